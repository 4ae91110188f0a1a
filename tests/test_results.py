"""The pages of results show what the files of their long tables hold."""

import re

import pytest

from tools.measured import DOCS, as_markdown, rows_of

BENCH = DOCS.parent / "bench"

PAGES = sorted(DOCS.glob("results*.md"))
IN_FILES = [
    pytest.param(page, name, id=name) for page in PAGES for name in re.findall(r"measured/(\w+)\.csv", page.read_text())
]


def cells_of(line):
    return [cell.strip().replace("**", "") for cell in line.strip().strip("|").split("|")]


def table_before(text, name):
    """Return the header and the rows of the table above the name of a file, or nothing."""
    lines = text.partition(f"measured/{name}.csv")[0].rpartition("\n")[0].rstrip().splitlines()
    count = next(k for k, line in enumerate([*reversed(lines), ""]) if not line.startswith("|"))
    table = lines[len(lines) - count :]
    return (cells_of(table[0]), [cells_of(line) for line in table[2:]]) if table else ([], [])


@pytest.mark.parametrize(("page", "name"), IN_FILES)
def test_a_page_shows_the_rows_of_its_file_and_all_of_them_if_it_folds_none(page, name):
    text = page.read_text()
    columns, shown = table_before(text, name)
    header, _, *rows = [cells_of(line) for line in as_markdown(rows_of(name))]
    assert set(columns) <= set(header)
    places = [header.index(column) for column in columns]
    held = [[row[place] for place in places] for row in rows]
    assert not [row for row in shown if row not in held]
    assert f"```{{measured}} measured/{name}.csv" in text or shown == held


TABLE = re.compile(r"^\|[ :|-]+\|$", re.M)
COMMAND = re.compile(
    r"\bnearfar (?:train|evaluate|compare|embed|suspects|adapt|fit|search|index) [^ `]|(?:bench/|`)(\w+)\.py\b"
)


def sections_of(page):
    """Return the text of each section of a page by its anchor, without the beginning, which summarizes the others."""
    parts = re.split(r"^#{2,3} (.*)$", page.read_text(), flags=re.M)[1:]
    return {anchor_of(title): text for title, text in zip(parts[::2], parts[1::2], strict=True)}


def anchor_of(title):
    return re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-")


SECTIONS = {f"{page.name}#{anchor}": text for page in PAGES for anchor, text in sections_of(page).items()}
TABLES = [name for name, text in SECTIONS.items() if TABLE.search(text) or "```{measured}" in text]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_its_command_in_its_section_or_in_one_that_it_links(name):
    page = name.partition("#")[0]
    linked = [f"{other or page}#{place}" for other, place in re.findall(r"\((\w+\.md)?#([\w-]+)\)", SECTIONS[name])]
    texts = [SECTIONS[name], *(SECTIONS[other] for other in linked if other in SECTIONS)]
    assert any(COMMAND.search(text) for text in texts)
    for file in COMMAND.findall(SECTIONS[name]):
        assert not file or (BENCH / f"{file}.py").is_file(), f"bench/{file}.py"


NAMED_IN_README = {
    "portraits": "ORL",
    "groceries": "groceries",
    "questions (CLINC150)": "CLINC150",
    "products in two shops": "Abt and Buy",
    "spoken digits": "spoken digits",
    "table rows (segment)": "segment",
}


def test_the_scores_that_readme_and_guides_quote_are_those_of_the_table():
    rows = {row["set"]: row for row in rows_of("zoo")}
    before = {name: float(row["frozen"] or row["raw"]) for name, row in rows.items()}
    after = {name: float(row["default"]) for name, row in rows.items()}
    text = " ".join((DOCS.parent / "README.md").read_text().split())
    for words, name in NAMED_IN_README.items():
        assert f"of {words} from {before[name]:.2f} to {after[name]:.2f}" in text, words
    gains = [float(row["default - plain loop"]) for row in rows.values()]
    assert f"{sum(gains) / len(gains):.3f} better on the mean than a plain loop" in text
    counts = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine"}
    better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    assert f"(better on {counts[better]}, worse on {counts[worse]})" in text
    page = " ".join((DOCS / "items.md").read_text().split())
    for name in ("CLINC150", "banking77"):
        assert f"from {before[name]:.3f} to {after[name]:.3f} with" in page, name


def test_every_file_of_results_is_on_a_page():
    assert {path.stem for path in (DOCS / "measured").glob("*.csv")} == {param.values[1] for param in IN_FILES}


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "results"], ids=lambda page: page.stem)
def test_a_page_of_results_begins_with_a_choice_and_a_picture(page):
    first = re.split(r"^## ", page.read_text(), flags=re.M)[0]
    assert re.search(r"^\| you (have|want) \| (take|expect) \|", first, re.M)
    assert re.search(r"^!\[[^\]]{40,}\]\(pictures/\w+\.svg\)$", first, re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_long_tables_are_folded(page):
    for table in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.M):
        assert table.count("\n") <= 22, table[:200]
