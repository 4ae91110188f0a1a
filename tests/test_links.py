"""Links of README and documentation lead somewhere; charts of methods say what the tables beside them say."""

import ast
import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import nearfar
from nearfar.catalog import BY_NAME, HERE
from tools.naming import DRAWINGS, find_targets, targets_in_columns

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BUILT = ("pictures", "reference", "gallery", "_build")  # folders of docs/ that the build writes
DRAWN = re.compile(r'^    "(\w+)": \w+,$', re.M)


def without_code(text):
    """Return a page without its blocks of code, in which brackets are no links."""
    return re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)


def links_of(text):
    """Return where the links and pictures of a page lead."""
    plain = re.sub(r"`[^`\n]*`", "code", without_code(text))
    return re.findall(r"\]\(([^)\s]+)\)", plain) + re.findall(r"<(https?://[^>\s]+)>", plain)


def anchors_of(text):
    """Return the anchors that headings of a page have, as GitHub and MyST make them."""
    found = set()
    for heading in re.findall(r"^#{1,3} +(.+?) *$", without_code(text), re.M):
        slug = re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).replace(" ", "-")
        number = 0
        while (f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(f"{slug}-{number}" if number else slug)
    return found


def fault_of(link, page):
    """Say what is wrong with a link of a page; nothing where it leads somewhere."""
    parts = urlsplit(link)
    if parts.scheme:
        right = parts.scheme == "https" and "." in parts.netloc
        return "" if right or parts.hostname in ("127.0.0.1", "localhost") else "expected a complete https address"
    target = page if not parts.path else (page.parent / parts.path).resolve()
    inside = target.relative_to(ROOT)
    if inside.parts[:1] == ("docs",) and len(inside.parts) > 2 and inside.parts[1] in BUILT:
        figures = " ".join(module.read_text() for module in (ROOT / "docs").glob("*figures.py"))
        if inside.parts[1] == "pictures" and inside.stem not in DRAWN.findall(figures):
            return "no such figure in docs/*figures.py"
        return ""
    if not target.exists():
        return "no such file"
    if parts.fragment and parts.fragment not in anchors_of(target.read_text()):
        return "no such heading"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    faults = {link: fault_of(link, page) for link in links_of(page.read_text())}
    assert not {link: fault for link, fault in faults.items() if fault}


@pytest.mark.parametrize(
    ("link", "fault"),
    [
        ("nowhere.md", "no such file"),
        ("basics.md#no-heading", "no such heading"),
        ("pictures/none.svg", "no such figure in docs/*figures.py"),
        ("http://example.org", "expected a complete https address"),
        ("basics.md#glossary", ""),
        ("pictures/triplet.svg", ""),
        ("https://example.org/a", ""),
    ],
)
def test_faults_of_links_are_found(link, fault):
    assert fault_of(link, ROOT / "docs" / "index.md") == fault


def test_every_page_is_in_the_menu():
    home = (ROOT / "docs" / "index.md").read_text()
    menus = "".join(re.findall(r"```\{toctree\}\n(.*?)```", home, re.S))
    shown = set(re.findall(r"^[a-z_]+$", menus, re.M))
    assert shown == {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}


def test_every_method_has_its_paper_in_the_list_of_citations():
    citations = tomllib.loads((ROOT / "docs" / "citations.toml").read_text())
    assert set(citations) == set(BY_NAME), "docs/citations.toml: an entry for each method of the catalog"
    for name, work in citations.items():
        assert re.search(r"[.?] .*[12]\d{3}", work), name  # a title, a venue and a year


def test_a_paper_is_cited_in_one_form(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    from reference import about, citation

    works = tomllib.loads((ROOT / "docs" / "citations.toml").read_text())
    titles = {work: citation("", work).split("*")[1] for work in works.values()}
    assert len(set(titles.values())) == len(titles)  # one venue for each title
    forms, years = {}, []
    for name, work in works.items():
        method = BY_NAME[name]
        _, authors, _ = about(method)
        forms.setdefault(work, set()).add(citation(authors, work))
        years += [(name, work)] * (method.paper[-4:] not in work.removeprefix(titles[work]))
    assert not [texts for texts in forms.values() if len(texts) > 1]  # the authors are written alike
    assert not years  # the year of the paper is that of its venue


@pytest.mark.parametrize(("page", "chart"), [("objectives", "LOSS"), ("learners", "LEARNER")])
def test_the_charts_of_methods_say_what_their_tables_say(page, chart):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    table = next(block for block in re.findall(r"(?:^\|.*\n)+", text, re.M) if "begin with" in block)
    figures = (ROOT / "docs" / "figures.py").read_text()
    drawn = re.search(rf"^WHICH_{chart} = \((.*?)^\)\nOTHER_{chart} = (.*?)$", figures, re.S | re.M)
    answers = re.findall(r'\?", "(.*)"\)', drawn[1]) + [drawn[2]]
    assert len(answers) > 6
    for name in re.findall(r"[A-Z]\w+", " ".join(answers).replace("\\n", " ")):
        assert name in BY_NAME, name
        assert re.search(rf"\b{name}\b", table), name


def test_names_of_methods_in_guides_are_links_and_those_of_other_libraries_are_not():
    targets = {name: f"reference/{name}" for name in BY_NAME}
    linked = [piece for piece, target in find_targets("TripletLoss(miner=BatchHard()) + 0.02*JRS()", targets) if target]
    assert linked == ["TripletLoss", "BatchHard", "JRS"]
    for code in ("losses.TripletLoss()", "NCA.md", "--NCA", "'NCA'", "sklearn.neighbors.NCA", "NCALike"):
        assert not [target for _, target in find_targets(code, targets) if target], code
    assert targets_in_columns(["pytorch-metric-learning", "nearfar"]) == [False, True]
    assert targets_in_columns(["learner", "mean"]) == [True, True]


PLAIN_NAMES = ("switching", "results_atlas", "results_pretrained", "results_speed")
"""Pages whose tables name methods of other libraries, or whole settings, as they are."""


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_guides_write_names_of_methods_as_code_which_becomes_a_link(page):
    if page.stem in PLAIN_NAMES:
        pytest.skip("names of other libraries, and settings")
    names = [name for name in BY_NAME if sum(letter.isupper() for letter in name) > 1]
    text = re.sub(r"`[^`]+`|!?\[[^\]]*\]\([^)]*\)|^#.*$|^    .*$", "", without_code(page.read_text()), flags=re.M)
    assert not re.findall(rf"(?<![\w\-./\"])(?:{'|'.join(names)})(?![\w\"])", text)


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_drawings_with_names_of_methods_are_drawn(drawing):
    assert f'"{drawing}": {drawing},' in (ROOT / "docs" / "figures.py").read_text()


def test_pages_of_methods_name_no_module_of_the_library():
    rooms = {path.name.partition(".")[0] for path in HERE.iterdir()} - {"index"}  # `index.search` is for users
    public = ("nearfar.", "train.", "data.", "evaluation.", "report.", "models.", "workflows.", "estimators.")
    for name in BY_NAME:
        text = (getattr(nearfar, name).__doc__ or "") + (
            ast.get_docstring(ast.parse(BY_NAME[name].path.read_text())) or ""
        )
        named = re.findall(r"(?<!`)`{1,2}([a-z_]+\.[a-z_.]+)`", text)
        assert not [word for word in named if word.partition(".")[0] in rooms and not word.startswith(public)], name


@pytest.mark.parametrize("name", BY_NAME)
def test_remarks_on_a_method_show_no_markup(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    from reference import about, remark

    for block in re.split(r"\n\s*\n", about(BY_NAME[name])[2])[1:]:  # the first is the formula in plain characters
        lines = remark(block)
        text = lines[0] if len(lines) == 1 else ""  # formulas stand apart, as they are
        left = re.sub(r":math:`[^`]*`(?![\w^])|``[^`]+``(?!`)|\\[*|`_]", "", text)
        assert "`" not in left, block


def luminance(color):
    """Return the relative luminance of a color, as the Web Content Accessibility Guidelines define it."""
    light = [channel / 255 for channel in color]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in light]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def test_text_in_pictures_has_enough_contrast_in_light_and_dark_mode():
    figures = (ROOT / "docs" / "figures.py").read_text()
    style = (ROOT / "docs" / "style" / "tables.css").read_text()
    (brightness,) = {float(factor) for factor in re.findall(r"filter: brightness\((.*?)\)", style)}
    named = re.search(r"^COLORS = .*\nGRAY = .*$", figures, re.M)[0]
    colors = [tuple(bytes.fromhex(color)) for color in re.findall(r"#([0-9a-f]{6})", named)]
    assert len(colors) == 7
    for color in colors:
        bright = tuple(min(255, brightness * channel) for channel in color)
        assert contrast(color, (255, 255, 255)) >= 4.5  # level AA
        assert contrast(bright, (19, 20, 22)) >= 4.5  # the dark page of the theme
