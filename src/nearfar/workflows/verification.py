"""Scores of distances by thresholds: verification and identification."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data import Dataset
from ..data.dataset import some
from ..data.readers.pair_tables import columns_of_pairs
from ..evaluation import identify, verify, verify_pairs
from ..io.cells import unescaped
from ..io.sources import SourceKind, kind_of
from ..models.embedded import Selection, embed_source
from ..quoting import quoted
from .outcome import Outcome

YES = ("1", "+1", "true", "yes", "same", "target", "genuine")
NO = ("0", "-1", "false", "no", "different", "nontarget", "impostor")
TABLES = (",", "\t", ";", "|")
"""What may stand between the columns of a table of pairs."""


def score_verification(source: Path, selection: Selection, pairs: Path | None, fars: Sequence[float] = ()) -> Outcome:
    """Return the scores of all pairs, or of those in a file; for a run's test, also write `verification.json`.

    Parameters
    ----------
    source, selection
        As for ``nearfar evaluate``.
    pairs : Path, optional
        As for `read_pair_list`.
    fars : sequence of float
        False accept rates. If empty, those of `verify`.
    """
    how = _rates(fars)
    listed = None if pairs is None else read_pair_list(pairs)  # read before the work, which takes minutes
    embedded = embed_source(source, selection, labeled=pairs is None)
    dataset = embedded.dataset
    rows = embedded.rows
    gallery = embedded.gallery
    gallery_rows = embedded.gallery_rows
    how["distance"] = embedded.distance
    about = embedded.about()
    if listed is None:
        how |= embedded.groups()
        found = verify(rows, dataset.labels, gallery=gallery_rows, gallery_labels=embedded.gallery_labels, **how)
    else:
        if gallery_rows is not None:
            rows = np.concatenate([rows, gallery_rows])
        ij, same, folds = rows_of_pairs(listed, dataset, gallery)
        found = verify_pairs(rows, ij, same, folds=folds, **how)
        about = f"{about.removesuffix('.')}, pairs of {pairs}."
    if kind_of(source) is SourceKind.RUN and selection.all_of_run and pairs is None:
        from ..train.run import write_json

        write_json(source / "verification.json", found.to_dict())
    return Outcome(f"{about}\n\n{found}", {"protocol": about, "scores": found.to_dict()})


def score_identification(source: Path, selection: Selection, fars: Sequence[float] = ()) -> Outcome:
    """Return the scores of identification; for a run's test, also write `identification.json`."""
    how = _rates(fars)
    embedded = embed_source(source, selection)
    how |= {"gallery": embedded.gallery_rows, "gallery_labels": embedded.gallery_labels, **embedded.groups()}
    found = identify(embedded.rows, embedded.dataset.labels, distance=embedded.distance, **how)
    if kind_of(source) is SourceKind.RUN and selection.all_of_run:
        from ..train.run import write_json

        write_json(source / "identification.json", found.to_dict())
    about = embedded.about()
    return Outcome(f"{about}\n\n{found}", {"protocol": about, "scores": found.to_dict()})


def _rates(fars: Sequence[float]) -> dict[str, Any]:
    """Check the rates, and return them as keywords of a score; without rates, it uses its defaults."""
    if not all(0 < far < 1 for far in fars):
        raise ValueError(f"fars: expected rates between 0 and 1, got {', '.join(map(str, fars))}")
    return {"fars": fars} if fars else {}


Lines = list[tuple[int, list[str]]]
"""The numbers of lines, and their words."""


class Listed(NamedTuple):
    """A pair in a file: its line, the names of both items, whether they are of one class, and its fold."""

    line: int
    left: str
    right: str
    same: bool
    fold: str | None


class PairFile(NamedTuple):
    """The pairs of a file. If `lfw`, items are named as in LFW, otherwise as in the data set."""

    path: Path
    pairs: list[Listed]
    lfw: bool


def read_pair_list(path: Path) -> PairFile:
    """Read the pairs of a file: a table, the pairs.txt of LFW, or a list of trials as those of VoxCeleb or Kaldi.

        left,right,same,fold      a table, also with tabs, semicolons or bars; fold is optional
        Ann_Lee 1 4               LFW: two photos of one person
        Ann_Lee 1 Bob_Poe 2       LFW: photos of two people
        1 a/1.wav b/7.wav         trials, with 1 or 0 before the names of both items
        a/1.wav b/7.wav target    trials, with target or nontarget, or 1 or 0, after them

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is none of these in UTF-8, lacks a column, or does not say of a pair whether it is the same. The
        message names the line.
    """
    if not path.is_file():
        raise FileNotFoundError(f"pairs: {path}: no such file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8; save it as CSV in UTF-8") from error
    header = text.partition("\n")[0]
    separator = next((sign for sign in TABLES if columns_of_pairs(header.strip().split(sign))), None)
    if separator is not None or path.suffix in (".csv", ".tsv") or "," in header:
        return PairFile(path, list(_of_table(path, text, separator or ",")), lfw=False)
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    place = _place_of_answers(lines)
    if place is not None:
        return PairFile(path, list(_of_trials(path, lines, place)), lfw=False)
    return PairFile(path, list(_of_lfw(path, lines)), lfw=True)


def rows_of_pairs(
    listed: PairFile, dataset: Dataset, gallery: Dataset | None = None
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.intp]], list[bool], list[str] | None]:
    """Return the row numbers (m, 2) of pairs, whether each is of one class, and the folds if every pair has one.

    The rows of the gallery follow those of the data set. A name in both refers to the data set.

    Raises
    ------
    ValueError
        If a name is not that of an item. The message names the line of the file.
    """
    path, pairs, lfw = listed
    if gallery is None:
        names = dataset.names
    else:
        names = (*dataset.names, *gallery.names)
    place: dict[str, int] = {}
    for at, name in enumerate(names):
        place.setdefault(_photo(name) if lfw else name, at)
    for pair in pairs:
        lost = next((name for name in (pair.left, pair.right) if name not in place), None)
        if lost is not None:
            first = dataset.names[0]
            raise ValueError(
                f"{path}, line {pair.line}: {dataset.name} has no {quoted(lost)}; its first item is {quoted(first)}"
            )
    ij = np.array([(place[pair.left], place[pair.right]) for pair in pairs], dtype=np.intp).reshape(-1, 2)
    folds = [pair.fold for pair in pairs if pair.fold is not None]
    return ij, [pair.same for pair in pairs], folds if len(folds) == len(pairs) and pairs else None


def _of_table(path: Path, text: str, separator: str) -> Iterator[Listed]:
    """Read the pairs of a table, by the names of its columns."""
    try:
        table = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
        rows = [(table.line_num, row) for row in table]  # a blank line has no row
        header = table.fieldnames or ()
    except csv.Error as error:
        raise ValueError(f"{path}: not a readable CSV file ({error})") from error
    columns = columns_of_pairs(header)
    if columns is None:
        raise ValueError(f"{path}: expected the columns left, right and same, got {some(header) or 'none'}")
    first, second, same = columns
    for line, row in rows:
        answer = (row[same] or "").strip().lower()
        if answer not in YES + NO:
            raise ValueError(f"{path}, line {line}: {same}: expected 1 or 0, got {quoted(row[same])}")
        left, right = (unescaped(row[side] or "") for side in (first, second))
        yield Listed(line, left, right, answer in YES, row.get("fold") or None)


def _place_of_answers(lines: Lines) -> int | None:
    """Return whether the answers of trials are their first or their last word, 0 or 2; None if these are no trials.

    The second word of a trial is the name of an item, and not a number as in LFW.
    """
    if not lines or len(lines[0][1]) != 3 or lines[0][1][1].isdecimal():
        return None
    return next((place for place in (0, 2) if lines[0][1][place].lower() in YES + NO), None)


def _of_trials(path: Path, lines: Lines, place: int) -> Iterator[Listed]:
    """Read the lines `1 left right` or `left right 1`."""
    expected = "1 LEFT RIGHT" if place == 0 else "LEFT RIGHT 1"
    for line, words in lines:
        answer = words[place].lower() if len(words) == 3 else ""
        if answer not in YES + NO:
            shown = quoted(" ".join(words))
            raise ValueError(
                f"{path}, line {line}: expected {expected} as in the lines before, or 0 for 1, got {shown}"
            )
        left, right = words[1:] if place == 0 else words[:2]
        yield Listed(line, left, right, answer in YES, fold=None)


def _of_lfw(path: Path, lines: Lines) -> Iterator[Listed]:
    """Read the lines `name a b` and `name a other b`, after a line with the number of folds and of pairs per fold."""
    counts: list[int] = []
    if lines and len(lines[0][1]) < 3 and all(map(str.isdecimal, lines[0][1])):
        counts = [int(word) for word in lines[0][1]]
        lines = lines[1:]
    if 0 in counts:
        raise ValueError(f"{path}, line 1: expected numbers of folds and of pairs of at least 1, got 0")
    for at, (line, words) in enumerate(lines):
        if len(words) not in (3, 4) or not (words[1].isdecimal() and words[-1].isdecimal()):
            shown = " ".join(words)
            expected = "NAME A B or NAME A OTHER B as in LFW, or lines that all are 1 LEFT RIGHT or LEFT RIGHT 1"
            raise ValueError(f"{path}, line {line}: expected {expected}, got {quoted(shown)}")
        name = words[0]
        other = words[2] if len(words) == 4 else name
        yield Listed(
            line=line,
            left=f"{name}/{name}_{int(words[1]):04d}",
            right=f"{other}/{other}_{int(words[-1]):04d}",
            same=len(words) == 3,
            # each fold has as many pairs of one person as of two
            fold=str(at // (2 * counts[1])) if len(counts) == 2 else None,
        )


def _photo(name: str) -> str:
    """Return the name of an item in LFW, its person and photo: the last folder and the file without its ending."""
    return "/".join(Path(name).with_suffix("").parts[-2:])
