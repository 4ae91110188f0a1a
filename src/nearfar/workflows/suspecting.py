"""Items whose label is probably wrong, as lines, as a table, or as a page for decisions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.items import left_out
from ..data.located import local_source
from ..evaluation import hard_negatives
from ..evaluation import pairs_across as nearest_across
from ..evaluation import suspects as suspects_among
from ..index import Index
from ..index.paths import labeled_items
from ..io.atomic_files import atomic_write
from ..io.cells import read_by_name, write_table
from ..io.sources import SourceKind, kind_of
from ..labels import narrow_texts
from ..models.embedded import Selection, embed_source, refuse_data
from ..quoting import count_of, quoted, significant
from .collected import Collected, collect

if TYPE_CHECKING:
    from ..data import Dataset
    from ..data.located import Named
    from ..evaluation import HardNegatives, Suspects
    from ..numerics.types import AnyArray

COLUMNS = ("name", "label", "suggested", "doubt", "decision")
KEEP = "keep"
REMOVE = "remove"
SHARE_OF_SUSPECTS = 1 / 3
"""Share of items above which suspects show how well a model separates classes, and not which labels are wrong."""
EVIDENCE = 8  # neighbors that the page shows for each suspect


def suspects(
    source: str | Path,
    data: Named | None = None,
    out: Path | None = None,
    selection: Selection | None = None,
    *,
    k: int = 20,
    decided: Path | None = None,
    across: int | None = None,
    negatives: int | None = None,
    distance: str | None = None,
) -> str:
    """Find suspects, or write what was decided on them; return lines on it.

    Parameters
    ----------
    source : str or Path
        A file of embeddings, an index, a run or a learner.
    data : str, path, or datasets.Dataset, optional
        The items to check, with a run or a learner.
    out : Path, optional
        The file to write.
    selection : Selection, optional
        Which items are embedded; an index has all of its items.
    k, decided, across, negatives, distance
        As for `nearfar suspects`.
    """
    source = Path(source)
    if data is not None:
        data = local_source(data)
        selection = replace(selection or Selection(), data=data, seen_too=True)
    if decided is not None:
        assert out is not None
        collected = collect(source, data, selection, distance=distance)
        return write_corrected(out, collected, read_decisions(decided, collected.dataset))
    if kind_of(source) is SourceKind.INDEX:
        refuse_data(source, data)

        dataset, rows, usual = labeled_items(source)
    else:
        embedded = embed_source(source, selection, apart=False)
        dataset = embedded.dataset
        rows = embedded.rows
        usual = embedded.distance
    compared_by = distance or usual
    if across is not None:
        return pairs_across(dataset, rows, across, out, distance=compared_by)
    if negatives is not None:
        assert out is not None
        return negatives_to(out, dataset, rows, negatives, distance=compared_by)
    return most_doubtful(dataset, rows, k, out, distance=compared_by)


def find_suspects(dataset: Dataset, rows: AnyArray, distance: str) -> Suspects:
    """Return the suspects among items, with the classes of the data set."""
    found = suspects_among(rows, dataset.labels, groups=dataset.groups, distance=distance)
    return found._replace(classes=[dataset.classes[number] for number in found.classes])


def most_doubtful(dataset: Dataset, rows: AnyArray, k: int, out: Path | None, *, distance: str) -> str:
    """Return lines on the suspects, or write them all to a file."""
    found = find_suspects(dataset, rows, distance)
    order = found.ranked()
    suggested = [found.classes[place] for place in found.suggested]
    table = [
        (dataset.names[at], dataset.classes[dataset.labels[at]], suggested[at], round(float(found.doubt[at]), 4), "")
        for at in order
    ]
    count = f"{len(order):,} of {len(dataset):,} items are probably of another class, by {distance} distance"
    detail = f"{count}{left_out(dataset)}{too_many(dataset, len(order))}"
    if out is None:
        lines = [f"{doubt:>8.3f}  {name}  {given} -> {other}" for name, given, other, doubt, _ in table[:k]]
        return "\n".join([*lines, detail])
    if out.suffix == ".html":
        write_suspects_page(out, dataset, rows, found, distance)
    else:
        write_table(out, COLUMNS, table)
    return f"{out}: {detail}"


def too_many(dataset: Dataset, suspected: int) -> str:
    """Return a clause if more items are suspects than wrong labels could explain, otherwise ""."""
    if suspected <= SHARE_OF_SUSPECTS * len(dataset):
        return ""
    counts = dataset.class_counts[dataset.class_counts > 0]
    about = f"the median class has {count_of(int(np.median(counts)), 'item')}"
    return f"; so many, because this model does not separate these classes ({about}), so labels are not what is wrong"


def write_suspects_page(out: Path, dataset: Dataset, rows: AnyArray, found: Suspects, distance: str) -> None:
    """Write a page with every suspect, its nearest items, and buttons to decide."""
    from ..report.content import Items
    from ..report.search_page import Line, Near
    from ..report.suspects_page import write_suspects

    order = found.ranked()
    lines = []
    if len(order):
        # the nearest item is the suspect itself
        near = Index(rows, distance=distance).search(rows[order], EVIDENCE + 1).positions
        for at, others in zip(order, near, strict=True):
            first = Near(int(at), f"doubt {found.doubt[at]:.2f}")
            lines.append(Line(first, [Near(int(other), "") for other in others if other not in (at, -1)][:EVIDENCE]))
    items = Items(
        embeddings=rows,
        labels=dataset.labels,
        classes=list(dataset.classes),
        names=list(dataset.names),
        read=dataset.read,
    )
    write_suspects(out, lines, items, [found.classes[found.suggested[at]] for at in order], title=dataset.name)


def read_decisions(file: Path, dataset: Dataset) -> dict[str, str]:
    """Read the decisions on items, by their names.

    Raises
    ------
    ValueError
        If the table cannot be read, lacks the column name or decision, or a name is not that of an item.
    """
    rows = read_by_name(file, "decision", "decided")
    known = set(dataset.names)
    unknown = [name for name, _ in rows if name not in known]
    if unknown:
        raise ValueError(f"{file}: no item is named {quoted(unknown[0])} ({len(unknown)} of {len(rows)} are unknown)")
    return {name: decision for name, decision in rows if decision not in ("", KEEP)}


def write_corrected(out: Path, collected: Collected, decisions: dict[str, str]) -> str:
    """Write the items with corrected labels, and return a line on it.

    A .csv lists images or texts; an .npz holds embeddings, and the distance that compares them.
    """
    dataset = collected.dataset
    labels = collected.classes
    decided = [decisions.get(name, label) for name, label in zip(dataset.names, labels, strict=True)]
    kept = [place for place, label in enumerate(decided) if label != REMOVE]
    moved = sum(decided[place] != labels[place] for place in kept)
    if not kept:
        raise ValueError("decided: would remove all items; expected at least one that is kept")
    if out.suffix == ".csv":
        if collected.folder is None and dataset.texts is None:
            raise ValueError(
                f"out: {out}: a .csv lists texts or the paths of images, which are unknown here; "
                f"give {out.with_suffix('.npz')} for the embeddings with their names and labels"
            )
        collected.write_rows(out, kept, ("label",), [(decided[place],) for place in kept])
    else:
        classes = sorted({decided[place] for place in kept})
        number = {name: place for place, name in enumerate(classes)}
        arrays: dict[str, Any] = {
            "embeddings": collected.rows[kept],
            "labels": np.array([number[decided[place]] for place in kept]),
            "classes": narrow_texts(classes, "classes"),
            "names": narrow_texts([dataset.names[place] for place in kept], "names"),
            "distance": collected.distance,
        }
        if collected.folder is not None:  # for reports, which show the images
            arrays["folder"] = str(collected.folder.absolute())
        if dataset.groups is not None:
            arrays["groups"] = narrow_texts(dataset.groups[kept], "groups")
        with atomic_write(out) as file:
            np.savez(file, **arrays)
    return f"{out}: {len(kept):,} items, {moved:,} with another class, {len(dataset) - len(kept):,} removed"


def pairs_across(dataset: Dataset, rows: AnyArray, count: int, out: Path | None, *, distance: str) -> str:
    """Return lines on the nearest pairs of items of two classes, or write them to a file."""
    found = nearest_across(rows, dataset.labels, count, distance=distance)
    labels = [dataset.classes[label] for label in dataset.labels]
    names = dataset.names
    table = [
        (significant(apart, 4), names[i], labels[i], names[j], labels[j])
        for i, j, apart in zip(found.i, found.j, found.distances, strict=True)
    ]
    if out is not None:
        write_table(out, ("distance", "name", "label", "other", "label of other"), table)
        return f"{out}: the {len(table):,} nearest pairs of two classes"
    return "\n".join(f"{apart:>10}  {i} ({a})  {j} ({b})" for apart, i, a, j, b in table)


def negatives_to(out: Path, dataset: Dataset, rows: AnyArray, count: int, *, distance: str) -> str:
    """Write the hard negatives of every item to a table, and return a line on it."""
    suspect = find_suspects(dataset, rows, distance).doubt > 0
    found = hard_negatives(rows, dataset.labels, k=count, suspect=suspect, groups=dataset.groups, distance=distance)
    doubtful = _too_near(rows, dataset.labels, found, count, distance)
    # the table has cosines, which are larger for near items, or distances, which are smaller
    measure = "similarity" if distance == "cosine" else "distance"
    labels = [dataset.classes[label] for label in dataset.labels]
    table = []
    for at in range(len(dataset)):
        near = [
            (other, value, "negative") for other, value in zip(found.indices[at], found.similarities[at], strict=True)
        ]
        for rank, (other, similarity, use) in enumerate([*near, *doubtful[at]], start=1):
            if other < 0:  # there are fewer negatives than requested
                continue
            value = round(abs(float(similarity)), 6) if measure == "distance" else round(float(similarity), 6)
            table.append((dataset.names[at], labels[at], rank, value, dataset.names[other], labels[other], use))
    write_table(out, ("name", "label", "rank", measure, "negative", "label of negative", "use"), table)
    left_out = sum(map(len, doubtful))
    count_negatives = f"{len(table) - left_out:,} negatives of {len(dataset):,} items"
    return f"{out}: {count_negatives}, and {left_out:,} nearer ones that are doubtful; train with --pairs {out}"


def _too_near(
    rows: AnyArray, labels: AnyArray, found: HardNegatives, count: int, distance: str
) -> list[list[tuple[int, float, str]]]:
    """Return the items of other classes that are nearer to each item than its last negative, but are none of them.

    Their labels are doubtful, or they are as near as the item's own class.
    """
    hits = Index(rows, distance=distance).search(rows, k=min(2 * count + 1, len(rows)))
    likeness = 1 - hits.distances if distance == "cosine" else -hits.distances
    other = labels[hits.positions] != labels[:, None]
    last = np.where(np.isfinite(found.similarities), found.similarities, np.inf).min(axis=1, keepdims=True)
    known = (hits.positions[:, :, None] == found.indices[:, None]).any(axis=2)
    doubtful = other & ~known & ((likeness >= last) | ~np.isfinite(last))
    listed: list[list[tuple[int, float, str]]] = [[] for _ in range(len(rows))]
    for at, place in np.argwhere(doubtful):
        listed[at].append((int(hits.positions[at, place]), float(likeness[at, place]), "doubtful"))
    return listed
