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
    r"takes? notice of|yours to (?:say|know)|stands? beside|no hard task|goes to work",
    re.IGNORECASE,
)
"""Phrases that read as translated, and were rewritten once."""
FOLDERS = ("src", "docs", "bench", "tools", "examples", "tests", "changes")
OLD_NAMES = ("normalise", "centre", "orthogonalise", "licence")  # which still work, or stand in others' files
EXCEPT = {"tests/test_spelling.py", "tests/test_deprecation.py", "changes/names.changed.md"}


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
                if not (word in OLD_NAMES and name.startswith("src/")):
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
