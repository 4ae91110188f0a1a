"""One word, one meaning: what tools/words.toml does not let say is not said elsewhere."""

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORDS = tomllib.loads((ROOT / "tools" / "words.toml").read_text())
FOLDERS = {"src": "*.py", "src/": "*.j2", "docs": "*.md", "bench": "*.py", "examples": "*.py", "changes": "*.md"}


@cache
def texts():
    """The texts of the house by file, each on one line, so that phrases are found across lines."""
    paths = [path for folder, kind in FOLDERS.items() for path in (ROOT / folder).rglob(kind)]
    paths += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    named = {path.relative_to(ROOT).as_posix(): path for path in paths if "_build" not in path.parts}
    return {
        name: " ".join(path.read_text(encoding="utf-8").split())
        for name, path in named.items()
        if not name.startswith("docs/gallery/")
    }


def found(word):
    """The files in which something is said for a word, and what is said first."""
    places = WORDS[word].get("within", [])
    looked_through = {
        name: text for name, text in texts().items() if not places or any(within(name, at) for at in places)
    }
    hits = {name: re.search(WORDS[word]["not"], text, re.IGNORECASE) for name, text in looked_through.items()}
    return {name: hit[0] for name, hit in hits.items() if hit}


def within(name, place):
    return name == place or name.startswith(f"{place}/")


@pytest.mark.parametrize("word", WORDS)
def test_a_word_has_one_name(word):
    allowed = WORDS[word].get("allowed", {})
    others = {name: said for name, said in found(word).items() if not any(within(name, at) for at in allowed)}
    assert not others, f"say {word} ({WORDS[word]['means']}), or give the reason in tools/words.toml"


@pytest.mark.parametrize("word", WORDS)
def test_places_that_may_say_another_word_still_do(word):
    hits = found(word)
    stale = [place for place in WORDS[word].get("allowed", {}) if not any(within(name, place) for name in hits)]
    assert not stale, "remove their lines from tools/words.toml"


def test_words_are_found_across_lines():
    texts.cache_clear()
    assert re.search(WORDS["rung"]["not"], " ".join(["The", "table", "of", "steps"]), re.IGNORECASE)
    assert not re.search(WORDS["item"]["not"], "n_samples, resample", re.IGNORECASE)
