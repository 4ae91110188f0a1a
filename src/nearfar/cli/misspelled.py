"""What a user probably meant: words that no argument takes, and paths that lead nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from ..quoting import PATH, quoted, shorten

PATH_OPTIONS = (
    "data",
    "test",
    "final",
    "against",
    "pairs",
    "columns",
    "decided",
    "pretrained",
    "adapter",
    "run",
    "url",
)
"""Options whose values are paths that exist."""
MISSING = re.compile(
    r'(?:Command ".*" )?[Pp]arameter "?(\S+?)"? requires an argument\.(?: Did you mean (\S+) instead of (\S+)\?)?'
)
EXPECTED_DATA = "; expected a folder"
BUILT_IN = ("digits", "glyphs", "grocery")  # data sets that are no paths
LEAST_LIKENESS = 0.7  # of a name to the one that is suggested, between 0 and 1
MOST_NAMES = 10_000  # of a folder that are compared


def parser_message(error: Exception, words: Sequence[str]) -> str:
    """Return in plain words why the words of a command, of which the first names it, were not understood."""
    command = next(iter(words), "")
    text = " ".join(str(error).split())
    left = getattr(error, "unused_tokens", None)
    if left and type(error).__name__ == "UnusedCliTokensError":
        if len(left) == 1:
            text = f"{quoted(left[0], PATH)} is one argument too many"
        else:
            text = f"{quoted(left[0], PATH)} and {len(left) - 1} more are arguments too many"
        return f"{text}: `nearfar {command} --help` lists what the command takes"
    missing = MISSING.fullmatch(text)
    if missing is not None:
        name, meant, misspelled = missing.groups()
        if misspelled is not None:
            return f"Unknown option: {shorten(misspelled)}. Did you mean {meant}?"
        if name in words:
            return f"{name}: expected a value after it; `nearfar {command} --help` lists what it takes"
        if getattr(getattr(error, "argument", None), "index", None) is not None:  # it is given by its place
            name = name.lstrip("-").upper()
        return f"{name} is missing: `nearfar {command} --help` shows an example"
    return text


def suggest_near_path(message: str, words: Sequence[str]) -> str:
    """Return an error about a path that leads nowhere, with the path that was probably meant if there is one.

    Parameters
    ----------
    message : str
        The error.
    words : sequence of str
        The words of the command, one of which is the path.
    """
    for path in paths_among(words):
        if not mentions_path(message, path):
            continue
        near = near_path(path)
        if near is not None:
            return f"{message.partition(EXPECTED_DATA)[0]}; did you mean {quoted(near, PATH)}?"
    return message


def paths_among(words: Sequence[str]) -> Iterator[str]:
    """Return the words of a command that may be paths of what exists: not outputs, nor values of other options."""
    options = (*PATH_OPTIONS, "out") if "--resume" in words else PATH_OPTIONS
    for before, word in zip(("", *words), words, strict=False):
        if word.startswith("--"):
            option, _, path = word[2:].partition("=")
            if option in options:
                yield path
            continue
        is_value = before.startswith("-") and "=" not in before
        if word not in BUILT_IN and (not is_value or before[2:] in options):
            yield word


def mentions_path(message: str, path: str) -> bool:
    """Return whether a message names a path, as it was typed or as the system writes it."""
    spellings = {path, str(Path(path)), repr(path)[1:-1]} - {"", "."}
    return any(re.search(rf"(?<![\w./-]){re.escape(spelling)}(?![\w/-])", message) for spelling in spellings)


def near_path(path: str) -> str | None:
    """Return the path that exists and is spelled most like one that does not, differing in one name; or None."""
    try:
        parents = [*reversed(Path(path).parents), Path(path)]
        wrong = next((part for part in parents if not part.exists()), None)
        if wrong is None:
            return None
        names = [entry.name for entry, _ in zip(wrong.parent.iterdir(), range(MOST_NAMES), strict=False)]
        rest = Path(path).relative_to(wrong)
        for name in get_close_matches(wrong.name, names, n=3, cutoff=LEAST_LIKENESS):
            candidate = wrong.parent / name / rest
            if candidate.exists():
                return str(candidate)
    except (OSError, ValueError):  # a folder that cannot be read, or a path that none can be
        return None
    return None
