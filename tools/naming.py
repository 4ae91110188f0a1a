"""Names in inline code of the documentation, and the pages that describe them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from nearfar.catalog import BY_NAME

WORD = re.compile(r"(?<![\w.])(?:[A-Za-z_]+\.)*([A-Za-z_]\w*)(?![\w.])")
COMMAND = re.compile(r"nearfar ([a-z]+)(?= |$)")
COMMON = {"embed", "evaluate", "interval", "open", "search", "compare", "report", "fit", "load", "train", "cluster"}
"""Public functions whose names are also words, options or commands: they are linked where they are called."""

DRAWINGS = ("which_loss", "which_learner", "gain_against_time", "losses_compared")
"""Drawings that are put into the page itself, so that the names of methods in them are links."""


def find_targets(text: str, targets: dict[str, str], commands: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Split inline code into pieces, each with its target or "".

    Parameters
    ----------
    text : str
        Code such as ``TripletLoss(margin=0.2) + 0.02 * EnergyConfusion()``.
    targets : dict
        The target of each name. A dotted name, such as ``nearfar.index.open``, is also found by its last part.
    commands : iterable of str
        Commands, whose targets are ``nearfar NAME``.

    Examples
    --------
    >>> find_targets("LMNN() or losses.LMNN()", {"LMNN": "reference/LMNN"})
    [('LMNN', 'reference/LMNN'), ('() or losses.LMNN()', '')]
    >>> find_targets("nearfar train photos/", {}, ["train"])
    [('nearfar train', 'nearfar train'), (' photos/', '')]
    >>> targets = {"nearfar.train.TrainConfig.of": "training#of", "nearfar.index.open": "index#open"}
    >>> targets |= {"nearfar.train.config.TrainConfig.of": "training#of"}
    >>> find_targets("of, open, TrainConfig.of, index.open()", targets)
    [('of, open, ', ''), ('TrainConfig.of', 'training#of'), (', ', ''), ('index.open', 'index#open'), ('()', '')]
    """
    command = COMMAND.match(text)
    if command and command[1] in commands:
        return [piece for piece in ((command[0], command[0]), (text[command.end() :], "")) if piece[0]]
    pieces: list[tuple[str, str]] = []
    done = 0
    for found in WORD.finditer(text):
        target = target_of(found[0], targets, is_call=text[found.end() : found.end() + 1] == "(")
        if not target or is_setting(text, found):
            continue
        pieces += [(text[done : found.start()], ""), (found[0], target)]
        done = found.end()
    pieces.append((text[done:], ""))
    return [piece for piece in pieces if piece[0]]


def target_of(name: str, targets: dict[str, str], *, is_call: bool) -> str:
    """Return the target of a name; of a dotted one, that of the public name that ends with it."""
    plain = name.removeprefix("nearfar.")
    if plain in BY_NAME:
        return targets.get(plain, "")
    last = plain.rpartition(".")[2]
    if last in BY_NAME or (last == plain and last in COMMON and not is_call):
        return ""
    if plain == plain.lower() and not (is_call or "_" in plain or "." in plain):
        return ""  # a word, such as "of"
    owners = [dotted for dotted in targets if dotted == f"nearfar.{plain}" or dotted.endswith(f".{plain}")]
    if last == plain:
        owners = [dotted for dotted in owners if dotted.rpartition(".")[0] == dotted.rpartition(".")[0].lower()]
    addresses = {targets[dotted] for dotted in owners}  # a class of a module may also have the name of its package
    return addresses.pop() if len(addresses) == 1 else ""


def is_setting(text: str, found: re.Match[str]) -> bool:
    """Return whether a word is the name of an argument, as in ``of(data="x")``, or part of a path or an option."""
    before, after = text[: found.start()], text[found.end() :]
    return (after.startswith("=") and not after.startswith("==")) or before.endswith(("/", "-", '"', "'"))


def targets_in_columns(header: list[str]) -> list[bool]:
    """Return which columns of a table name our methods: if it compares libraries, those headed "nearfar"."""
    ours = ["nearfar" in cell.lower() for cell in header]
    others = any(library in cell.lower() for cell in header for library in ("pytorch-metric", "metric-learn"))
    return ours if others and any(ours) else [True] * len(header)


def with_links(svg: str, address_of: Callable[[str], str]) -> str:
    """Make links of the names of methods in the text of a drawing.

    >>> with_links("<text>NCA, or none</text>", lambda name: f"{name}.html")
    '<text><a href="NCA.html">NCA</a>, or none</text>'
    """

    def linked(text: re.Match[str]) -> str:
        return re.sub(
            r"\b[A-Z]\w+",
            lambda word: f'<a href="{address_of(word[0])}">{word[0]}</a>' if word[0] in BY_NAME else word[0],
            text[0],
        )

    return re.sub(r"(?<=>)[^<>]+(?=</text>)", linked, svg)
