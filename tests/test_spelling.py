"""Names and texts are in American spelling."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
BRITISH = re.compile(
    r"neighbour|(?<![a-z])centr(?:e|ed|es|ing)(?![a-z])|learnt|labell(?!earner)|colour|behaviour|catalogue|licence|analyse|"
    r"(?:minim|maxim|standard|normal|regular|optim|general|penal|symmetr|factor|orthogonal|vector|recogn|diagonal|"
    r"initial|summar|organ|serial|visual|util|parametr|binar|token)is(?:e|ed|er|ers|es|ing|ation|ations)(?![a-z])",
    re.IGNORECASE,
)
TRANSLATED = re.compile(
    r"neither an option nor a recipe|As for train\.|let the network see|errors of either kind|raw items|"
    r"says? nothing of|likelier of|the items themselves are|of weights, batches, augmentation|"
    r"takes? notice of|yours to (?:say|know)|stands? beside|no hard task|goes to work|of one's own|without a word|"
    r"ended in a traceback|not at hand|as it is there|has what it needs",
    re.IGNORECASE,
)
"""Phrases that read as translated, and were rewritten once."""
UNCLEAR = re.compile(
    r"\b(?:is|are|was|were|be) told\b|whichever|goes on (?:where|as|without)|hands? (?:on|over) |in place of|"
    r"a (?:loop|loss|miner|network|sampler|module|distance|term) of your own|of (?:its|their) own\b|"
    r"what the \w+ says|stands? (?:in|for) |\bbeside\b|one and the same|so many of each|\banew\b|"
    r"is not here|likewise|therefor\b|by and by|hereby|thereby|amongst|whilst|whereas|\bpersons\b|somebody|"
    r"\b(?:ours|theirs)\b|whatever the|in any case|taken for the same|have to say that|\bsays? so\b|"
    r"says (?:what|which|how)|, as th(?:at|ose) of|\|[^|]*as (?:it is|they are) \||goes on \w+ing",
    re.IGNORECASE,
)
"""Phrases that pages and release notes do not use, because readers stumble over them."""
UNCLEAR_IN_CODE = re.compile(
    r"\b(?:is|are|was|were|be) told\b|whichever|goes on (?:where|as|without)|hands? (?:on|over) |in place of|"
    r"what the \w+ says|stands? (?:in|for) |one and the same|so many of each|\banew\b|is not here|likewise|"
    r"therefor\b|by and by|hereby|thereby|amongst|whilst|\bpersons\b|somebody|taken for the same|have to say that|"
    r"\blooked at\b|and its like|so called\b|column\(s\)|class\(es\)|item\(s\)|row\(s\)",
    re.IGNORECASE,
)
"""Phrases that messages, docstrings and comments do not use. Names of variables may be "theirs" or "beside"."""
FOLDERS = ("src", "docs", "bench", "tools", "examples", "tests", "changes")
IN_FILES_OF_OTHERS = ("licence",)  # a key of the headers of weights
EXCEPT = {"tests/test_spelling.py"}


@cache
def british(letters):
    """Return what is British in letters that stand together: most of them stand in many files."""
    return BRITISH.findall(letters)


def test_texts_are_american():
    found = []
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in [*paths, *ROOT.glob("*.md")]:
        name = path.relative_to(ROOT).as_posix()
        if path.suffix not in (".py", ".md", ".j2") or name in EXCEPT or "_build" in name:
            continue
        for letters in set(re.findall("[A-Za-z]+", path.read_text(encoding="utf-8"))):
            for word in british(letters):
                if not (word in IN_FILES_OF_OTHERS and name.startswith("src/")):
                    found.append(f"{name}: {word}")
    assert not found


def test_texts_do_not_fall_back_into_phrases_that_were_rewritten():
    found = []
    paths = [path for folder in ("src", "docs") for path in (ROOT / folder).rglob("*")]
    for path in [*paths, ROOT / "README.md"]:
        name = path.relative_to(ROOT).as_posix()
        if path.suffix not in (".py", ".md", ".j2") or "_build" in name or "gallery/" in name:
            continue
        found += [f"{name}: {phrase}" for phrase in TRANSLATED.findall(" ".join(path.read_text().split()))]
    assert not found


def test_messages_and_docstrings_do_not_use_phrases_that_readers_stumble_over():
    found = [
        f"{path.relative_to(ROOT)}: {phrase}"
        for folder in ("src", "bench")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".j2")
        for phrase in UNCLEAR_IN_CODE.findall(" ".join(path.read_text(encoding="utf-8").split()))
    ]
    assert not found


def test_pages_do_not_use_phrases_that_readers_stumble_over():
    pages = [page for folder in ("docs", "changes", ".") for page in (ROOT / folder).glob("*.md")]
    pages += [ROOT / "docs" / "formulas.toml", ROOT / "bench" / "README.md"]
    found = [
        f"{page.relative_to(ROOT)}: {phrase}"
        for page in pages
        for phrase in UNCLEAR.findall(" ".join(page.read_text().replace("theirs / ours", "").split()))  # a column
    ]
    assert not found


def test_phrases_are_found_across_lines():
    text = "You are\n  told how to do it in a loop of\nyour own, and the page says\nso."
    assert UNCLEAR.findall(" ".join(text.split())) == ["are told", "a loop of your own", "says so"]
