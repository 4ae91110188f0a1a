"""``nearfar search`` and ``duplicates``: what is near in the embeddings that ``nearfar index`` keeps in a file."""

from __future__ import annotations

import hashlib
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from .places import pictures_of
from .settings import check_out
from .showing import classes_of, group_lines, neighbours, printed, write_groups, write_hits, write_table, written

if TYPE_CHECKING:
    from ..core.types import AnyArray
    from ..data import Dataset
    from ..index import Index

Out = Annotated[Path | None, Parameter(name=["--out", "-o"])]


def search(
    file: Path,
    query: str,
    *,
    k: Annotated[int, Parameter(name="-k")] = 5,
    run: Path | None = None,
    out: Out = None,
    skip_bad: bool = False,
) -> None:
    """Find what is nearest to an image, to rows, or to every item of a data set.

    Example: nearfar search photos.index query.jpg -k 5

    Parameters
    ----------
    file
        What `nearfar index` wrote.
    query
        An image, a folder of images, an .npy or .npz of rows, or data as for train.
    k
        Neighbours of each query.
    run
        Where the run or the learner that made the index is now, if it was moved.
    out
        Write a .csv (query, rank, distance, class, name), or an .html page of pictures, instead of printing.
    skip_bad
        Leave out queries that cannot be decoded, and count them.
    """
    print(search_in(file, query, k, run, out, skip_bad))


def duplicates(
    file: Path, *, within: float | None = None, k: Annotated[int, Parameter(name="-k")] = 20, out: Out = None
) -> None:
    """Find items of an index that are nearly the same, and those among them whose classes differ.

    Example: nearfar duplicates photos.index --within 0.02 -o duplicates.csv

    Parameters
    ----------
    file
        What `nearfar index` wrote.
    within
        Group the items that are at most this far apart, directly or by a chain of others. Without it the nearest
        pairs of all are printed, which shows what distances duplicates have here.
    k
        Pairs to print.
    out
        Write the groups to a .csv (group, distance to the nearest other, class, name), or to an .html page of
        pictures, instead of printing.
    """
    if within is None and out is not None:
        raise ValueError("--out: only groups are written, and these need --within DISTANCE")
    print(nearest_in(file, k) if within is None else duplicates_in(file, within, out))


def search_in(file: Path, query: str, k: int, run: Path | None, out: Path | None, skip_bad: bool = False) -> str:
    """Search an index; returns the lines to print."""
    from .embedding import left_out

    if out is not None:
        check_page_or_table(out)
    index = opened(file)
    made = index.about.get("source", "")
    source = run or (Path(made) if made else None)
    if source is not None and not source.exists():
        raise FileNotFoundError(f"{source}, which made {file}, is not there; say with --run where it is")
    if source is not None and weights_of(source) != index.about["weights"]:
        raise ValueError(f"{source} has other weights than those that made {file}; index anew")
    items, rows = embedded(source, query, skip_bad)
    names, found = called(items, query), index.search(rows, k)
    written = f"{out}: {min(k, len(index))} neighbours of {len(names):,} queries{left_out(items)}"
    if out is not None and out.suffix == ".html":
        write_hits(out, index, items, rows, names, found, pictures_of(index, file))
        return written
    lines = list(neighbours(index, names, found))
    if out is None:
        return "\n".join([*printed(lines), *([left_out(items).lstrip("; ")] if items.bad else [])])
    write_table(out, ("query", "rank", "distance", "class", "name"), lines)
    return written


def nearest_in(file: Path, k: int) -> str:
    """Return lines on the k nearest pairs of an index."""
    index = opened(file)
    labels = classes_of(index)
    lines = [
        f"{written(d):>10}  {' ' if labels[i] == labels[j] else '*'}  {index.names[i]}  {index.names[j]}"
        for i, j, d in zip(*index.closest(k), strict=True)
    ]
    found = f"the {len(lines)} nearest pairs; * marks two classes; --within DISTANCE groups what is as near"
    return "\n".join([*lines, found])


def duplicates_in(file: Path, within: float, out: Path | None) -> str:
    """Return lines on the groups of an index, or write them to a file."""
    import numpy as np

    if out is not None:
        check_page_or_table(out)
    index = opened(file)
    labels, (numbers, distances) = classes_of(index), index.duplicates(within)
    order = np.flatnonzero(numbers >= 0)
    order = order[np.argsort(numbers[order], kind="stable")]
    rows = [(int(numbers[at]), float(distances[at]), labels[at], str(index.names[at])) for at in order]
    groups = [(number, list(part)) for number, part in groupby(rows, key=lambda row: row[0])]
    mixed = sum(len({row[2] for row in part}) > 1 for _, part in groups)
    count = f"{len(groups):,} group{'' if len(groups) == 1 else 's'}"
    found = f"{count} of {len(rows):,} items within {within:g}; {mixed:,} with several classes"
    if out is None:
        wide = max((len(row[2]) for row in rows), default=0)
        lines = [line for number, part in groups for line in group_lines(number, part, wide)]
        return "\n".join([*lines, found])
    if out.suffix == ".html":
        write_groups(out, index, numbers, distances, found, pictures_of(index, file))
    else:
        write_table(out, ("group", "distance", "class", "name"), rows)
    return f"{out}: {found}"


def check_page_or_table(out: Path) -> None:
    """As `check_out`, and refuse a name that says neither of the two forms."""
    if out.suffix not in (".csv", ".html"):
        raise ValueError(f"--out: {out}: expected a .csv, or an .html page of pictures")
    check_out(out)


def opened(file: Path) -> Index:
    """Read an index."""
    from ..index import Index
    from .embedding import is_embeddings

    if is_embeddings(file):
        raise ValueError(f"{file}: holds rows and is no index; `nearfar index {file} -o FILE` makes one of them")
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such index; `nearfar index RUN DATA -o {file}` makes it")
    return Index.load(file)


def weights_of(source: Path) -> str:
    """Say which weights a run or a learner has: queries must be embedded by those that made the index."""
    file = source / "best.safetensors" if source.is_dir() else source
    if not file.is_file():
        raise FileNotFoundError(f"{source}: neither a run nor a learner")
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def embedded(source: Path | None, data: str | None, skip_bad: bool = False) -> tuple[Dataset, AnyArray]:
    """Items and their embeddings; without a source they are rows, and embeddings already."""
    from ..data.items import open_items
    from .embedding import embed_with, rows_of

    if data is None:
        raise ValueError("DATA: say what to embed, for example a folder of images")
    items = open_items(data, skip_bad=skip_bad)
    return items, rows_of(items, Path(data)) if source is None else embed_with(source, items)


def called(items: Dataset, data: str) -> list[str]:
    """Names of items: the path that leads to them, of what a table lists from the folder of the table."""
    if not are_paths(items, data):
        return list(items.names)
    path = Path(data)
    root = path if path.is_dir() or path.suffix == ".zip" else path.parent
    return [(root / name).as_posix() for name in items.names]


def are_paths(items: Dataset, data: str) -> bool:
    """Whether items are called by the paths that lead to them: not rows, nor the items of built-in sets."""
    return items.kind != "row" and Path(data).exists()
