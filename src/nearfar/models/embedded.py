"""Items with their embeddings, from a model and data or from a file of embeddings."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Dataset
from ..data.checks.training_items import unseen
from ..data.dataset import UNKNOWN_CLASS, some
from ..data.items import embedding_rows, flat_rows, left_out, open_items
from ..data.located import is_elsewhere, local_embeddings, local_source
from ..data.open import match_classes, of_classes, open_source, queries_and_documents, read_levels, same_classes
from ..data.readers.arrays import read_arrays, read_gallery
from ..data.readers.manifest import read_columns
from ..data.readers.texts import text_items
from ..data.table_columns import named_columns, names_table
from ..fit_warnings import nameless
from ..io.formats import is_table
from ..io.part_files import holds_parts, read_manifest
from ..io.sources import MODELS, SourceKind, kind_of, name_of
from ..numerics.distances import DISTANCES
from ..numerics.types import AnyArray, Ints
from ..quoting import count_of, quoted
from .loading import load
from .model import Model, encoded_for, open_for
from .written import write_embeddings, written_distance

LISTED = re.compile(r".*\[\d+\]")  # the name of a number in a column of lists, such as embedding[0]


@dataclass(frozen=True)
class Selection:
    """Which items are embedded, and how they are compared.

    Attributes
    ----------
    data : str or None
        Source of the items, as for `nearfar.data.open_task`; None means the test of a run, or the items of a file of
        embeddings.
    classes : sequence of str
        Classes to keep; empty means all.
    label, name : str or None
        Columns of the classes and of the names of the rows of a table; None means the default.
    skip_bad : bool
        Whether images that cannot be decoded are left out.
    unseen_by : sequence of path
        Models whose training items are left out of the data.
    seen_too : bool
        Whether training items stay, too.
    group_by, group_score : str or None, str
        Column of products that are ranked instead of items, and how their items are combined.
    distance : str or None
        Distance by which embeddings are compared; None means that of the source.
    """

    data: str | None = None
    classes: Sequence[str] = ()
    label: str | None = None
    name: str | None = None
    skip_bad: bool = False
    unseen_by: Sequence[Path] = ()
    seen_too: bool = False
    group_by: str | None = None
    group_score: str = "best"
    distance: str | None = None

    def __post_init__(self) -> None:
        if is_elsewhere(self.data):
            object.__setattr__(self, "data", local_source(self.data))  # type: ignore[arg-type]  # it is a text here

    @property
    def all_of_run(self) -> bool:
        """Whether these are all test items of a run, compared by its own distance."""
        return self.data is None and not self.classes and self.distance is None


@dataclass(frozen=True, eq=False)
class Embedded:
    """Items and their embeddings, and those of the gallery if the items search one instead of each other.

    Attributes
    ----------
    dataset : Dataset
        The items.
    rows : ndarray of shape (n, d)
        Their embeddings.
    distance : str
        Distance by which embeddings are compared.
    model : Model or None
        What embedded them; None for a file of embeddings.
    gallery, gallery_rows : Dataset and ndarray of shape (m, d), or None
        The items that are searched, and their embeddings.
    products_by : str or None
        How the items of a product are combined, if products are ranked: the groups are the products.
    """

    dataset: Dataset
    rows: AnyArray
    distance: str
    model: Model | None = None
    gallery: Dataset | None = None
    gallery_rows: AnyArray | None = None
    products_by: str | None = None

    @property
    def gallery_labels(self) -> Ints | None:
        """Labels of the gallery, or None if there is no gallery."""
        return None if self.gallery is None else self.gallery.labels

    def groups(self) -> dict[str, Any]:
        """Return the groups of items and gallery as keywords of the scores."""
        if self.products_by is not None:
            searched = self.dataset if self.gallery is None else self.gallery
            return {"group_by": searched.groups, "group_score": self.products_by}
        return {"groups": self.dataset.groups, "gallery_groups": None if self.gallery is None else self.gallery.groups}

    def about(self) -> str:
        """Return one sentence on which items are scored, and what they search."""
        if self.gallery is None:
            there = ""
        else:
            there = f", searching a gallery of {_size(self.gallery)}"
        return f"{self.dataset.name}, {_size(self.dataset)}{there}{left_out(self.dataset)}."


def embed_source(
    source: str | os.PathLike[str],
    selection: Selection | None = None,
    *,
    labeled: bool = True,
    apart: bool = True,
) -> Embedded:
    """Open data and embed it with a model, or read a file of embeddings.

    Parameters
    ----------
    source : str or path
        What `nearfar.load` loads, or a file of embeddings.
    selection : Selection, optional
        Which items, and how they are compared. By default, the test of a run, or all items of a file.
    labeled : bool
        Leave out the embeddings in a file of items without a class, unless no item has a class. Without it, as for
        listed pairs, all items of the data are returned, also training items.
    apart : bool
        Whether data that are divided into queries and a gallery are returned as these two, with the same class numbers
        in both, and not as one set.

    Returns
    -------
    Embedded

    Raises
    ------
    FileNotFoundError
        If the source or the data do not exist.
    ValueError
        If the data cannot be embedded by the source; the message is one line.
    """
    selection = selection or Selection()
    source = local_embeddings(source)
    if kind_of(source, *MODELS, SourceKind.EMBEDDINGS) is SourceKind.EMBEDDINGS:
        model = None
        dataset, gallery = _items_of_file(source, selection, labeled=labeled, apart=apart)
        rows = embedding_rows(dataset, source)
        gallery_rows = None if gallery is None else embedding_rows(gallery, source)
    else:
        models = {path: load(path) for path in dict.fromkeys((source, *selection.unseen_by))}
        model = models[source]
        learned = {name_of(path): models[path].trained_on for path in selection.unseen_by}
        columns = model.table_columns.read(selection.data, selection.label, selection.name)
        selection = replace(selection, **columns)
        dataset, gallery = _items_to_embed(source, selection, learned, model, listed=not labeled, apart=apart)
        if selection.data is not None:
            dataset, gallery = _with_levels(model, selection, dataset, gallery)
        saved = None if selection.data is not None else _saved_test(source, model, dataset, gallery)
        if saved is None:
            rows = np.asarray(model.embed(dataset))
            gallery_rows = None if gallery is None else np.asarray(model.embed(gallery))
        else:
            rows = saved[""]
            gallery_rows = saved.get("gallery_")
    if gallery is not None:
        dataset, gallery = same_classes(dataset, gallery)
    products_by = None if selection.group_by is None else selection.group_score
    distance = distance_of(source, dataset, selection.distance, model)
    return Embedded(dataset, rows, distance, model, gallery, gallery_rows, products_by)


def _saved_test(source: Path, model: Model, dataset: Dataset, gallery: Dataset | None) -> dict[str, AnyArray] | None:
    """Return the embeddings of the test of a run that the run has stored, if they are still those of its items."""
    network = getattr(model, "network_", None)
    if network is None or kind_of(source) is not SourceKind.RUN:
        return None
    from ..train.scoring import saved_test  # for start-up time: it loads PyTorch

    return saved_test(source, network, dataset, gallery)


def _with_levels(
    model: Model, selection: Selection, dataset: Dataset, gallery: Dataset | None
) -> tuple[Dataset, Dataset | None]:
    """Return items of a table with the levels on which a model was trained, if the table has them all."""
    levels = model.table_columns.levels
    data = str(selection.data)
    if not levels or not names_table(data) or not {*levels} <= {*read_columns(data)}:
        return dataset, gallery
    of = read_levels([data], selection.label or "label", levels)
    return replace(dataset, class_labels=of), None if gallery is None else replace(gallery, class_labels=of)


def items_of(source: Path, selection: Selection) -> Dataset:
    """Open all items of the data, or the test items of a run if no data is given, without embedding them."""
    learned = {name_of(path): load(path).trained_on for path in selection.unseen_by}
    model = load(source)
    selection = replace(selection, **model.table_columns.read(selection.data, selection.label, selection.name))
    return _items_to_embed(source, selection, learned, model, listed=False, apart=False)[0]


def _items_of_file(source: Path, selection: Selection, *, labeled: bool, apart: bool) -> tuple[Dataset, Dataset | None]:
    """Open the items of a file of embeddings, and the gallery if there is one."""
    refuse_data(source, selection.data)
    columns = {"label": selection.label, "name": selection.name}
    if not is_table(source):  # they are about the table of another model
        columns = {"label": None, "name": None}
    if labeled:
        dataset, gallery = _queries_and_gallery(str(source), selection, columns, apart=apart)
        dataset = with_classes(dataset)
    else:
        dataset, gallery = _listed_items(str(source), selection, columns), None
    if apart and source.suffix.lower() == ".npz":
        gallery = read_gallery(source, skip_bad=selection.skip_bad) or gallery
    return dataset, gallery


def _items_to_embed(
    source: Path, selection: Selection, learned: Mapping[str, Any], model: Model, *, listed: bool, apart: bool
) -> tuple[Dataset, Dataset | None]:
    """Open the data, or the test of a run if no data is given: its items, and the gallery that they search.

    Training items of the models are left out of the data, unless items are `listed` in pairs.
    """
    if selection.data is not None:
        columns = {"label": selection.label, "name": selection.name}
        gallery: Dataset | None = None
        if listed:
            dataset = _listed_items(selection.data, selection, columns, model.takes)
        else:
            how: dict[str, Any] = {"apart": apart, "mixed": "table" in model.takes}
            dataset, gallery = _queries_and_gallery(selection.data, selection, columns, **how)
        dataset = encoded_for(model, dataset)
        gallery = None if gallery is None else encoded_for(model, gallery)
        return unseen(dataset, learned, keep=selection.seen_too or listed), gallery
    kind = kind_of(source, *MODELS)
    if kind is not SourceKind.RUN:
        what = "learner" if kind is SourceKind.LEARNER else "pretrained encoder"
        raise ValueError(
            f"DATA: {name_of(source)} is a {what}, which needs data to score, such as an .npz of rows and labels"
        )
    from ..train.scoring import task_of  # for start-up time: it loads PyTorch

    task = task_of(source)
    if selection.classes:
        return task.test.only(match_classes(task.test, selection.classes)), task.gallery
    return task.test, task.gallery


def _queries_and_gallery(
    data: str, selection: Selection, columns: Mapping[str, str | None], *, apart: bool, mixed: bool = False
) -> tuple[Dataset, Dataset | None]:
    """Open data. If it is divided into queries and a gallery and `apart`, return these two, else all items and None."""
    how: dict[str, Any] = {**columns, "group": selection.group_by, "skip_bad": selection.skip_bad}
    opened = open_source(data, mixed=mixed, **how)
    roles = np.array([]) if opened.roles is None else opened.roles
    if not apart or not {"query", "gallery"} <= set(roles.tolist()):
        items = of_classes(opened.items, selection.classes)
        return (apart and queries_and_documents(items)) or (items, None)
    query_items, gallery = (opened.items.subset(roles == role) for role in ("query", "gallery"))
    return of_classes(query_items, selection.classes), gallery


def _listed_items(
    data: str, selection: Selection, columns: Mapping[str, str | None], takes: Collection[str] = ()
) -> Dataset:
    """Open all items, which need no class: the pairs in which they are listed state what is the same."""
    items = open_items(data, **columns, skip_bad=selection.skip_bad, takes=takes)
    return of_classes(items, selection.classes)


def refuse_data(source: Path, data: str | None) -> None:
    """Refuse data for a source that has its embeddings already."""
    if data is not None:
        raise ValueError(f"DATA: {source} contains embeddings, which cannot embed {quoted(data)}; leave DATA out")


def with_classes(dataset: Dataset) -> Dataset:
    """Leave out items without a class, such as images that are not in a class folder, unless no item has a class."""
    known = np.asarray(dataset.classes)[dataset.labels] != UNKNOWN_CLASS
    if known.all() or not known.any():
        return dataset
    names = some([name for name, has in zip(dataset.names, known, strict=True) if not has], 3)
    note = f"{count_of(len(known) - int(known.sum()), 'item')} without a class left out ({names})"
    return replace(dataset.subset(known), notes=(*dataset.notes, note))


def distance_of(source: Path, items: Dataset, asked: str | None = None, model: Model | None = None) -> str:
    """Return the distance that compares items: the one that was `asked` for, else that of the model or of the file.

    A file of embeddings that states none is compared by `usual_distance`.
    """
    known = recorded_distance(source) if model is None else model.distance
    return asked or known or usual_distance(items)


def recorded_distance(file: Path) -> str:
    """Return the distance that a file of embeddings states; "" if it does not, or is another kind of file."""
    found = recorded(file, "distance")
    return found if found in DISTANCES else ""


def usual_distance(items: Dataset) -> str:
    """Return the distance of rows as they are, without a model: Euclidean for measurements, otherwise cosine."""
    return "euclidean" if are_measurements(items) else "cosine"


def are_measurements(items: Dataset) -> bool:
    """Return whether items are rows of a table with a column for each number, and not lists of numbers."""
    return bool(items.columns) and not any(LISTED.fullmatch(name) for name in items.columns)


def recorded(file: Path, key: str) -> str:
    """Return what `nearfar embed` noted beside embeddings, such as their distance or folder; "" if there is nothing."""
    if holds_parts(file):
        try:
            return str(getattr(read_manifest(file), key, ""))
        except ValueError:  # reading the rows will raise the error
            return ""
    if key == "distance" and file.suffix.lower() in (".parquet", ".faiss"):
        return written_distance(file)
    if file.suffix.lower() != ".npz":
        return ""
    try:
        return str(read_arrays(file, [key]).get(key, ""))
    except (ValueError, OSError):  # reading the rows will raise the error
        return ""


def embed_to(
    source: str | os.PathLike[str],
    data: str,
    out: str | os.PathLike[str],
    *,
    label: str | None = None,
    name: str | None = None,
    dims: int | None = None,
    texts: bool = False,
    skip_bad: bool = False,
) -> Embedded:
    """Embed data, or the texts of pairs, and write a file with embeddings, labels, names and distance.

    Parameters
    ----------
    source : str or path
        What `nearfar.load` loads.
    data : str
        The items, as for `nearfar.data.open_items`.
    out : str or path
        The .npz, .parquet or .faiss to write, as in `write_embeddings`.
    label, name : str, optional
        Columns of the classes and of the names of the rows of a table.
    dims : int, optional
        Keep only this many leading dimensions.
    texts : bool
        Embed the texts of a table of photos and texts. Each text has the name of its photo.
    skip_bad : bool
        Leave out images that cannot be decoded.

    Returns
    -------
    Embedded
        What was written.
    """
    kind_of(source, *MODELS)
    model = load(source)
    if texts:
        dataset = texts_of_pairs(data, model.table_columns.read(data, label)["label"], skip_bad)
    else:
        dataset = open_for(model, data, label=label, name=name, skip_bad=skip_bad)
        selection = Selection(data=data, label=model.table_columns.read(data, label)["label"])
        dataset, _ = _with_levels(model, selection, dataset, None)
    embeddings = np.asarray(model.embed(dataset))
    if dims is not None:
        if not 1 <= dims <= embeddings.shape[1]:
            raise ValueError(f"dims: expected 1 to {embeddings.shape[1]}, the number of dimensions, got {dims}")
        embeddings = embeddings[:, :dims]
    write_embeddings(out, dataset, embeddings, model.distance, data=data)
    return Embedded(dataset, embeddings, model.distance, model)


def texts_of_pairs(data: str, label: str | None, skip_bad: bool) -> Dataset:
    """Open the texts of a table of photos and texts. Each text has the name of its photo."""
    pairs = open_source(data, label=label, skip_bad=skip_bad, pairs=True).items
    classes = [pairs.classes[number] for number in pairs.labels]
    return text_items(pairs.name, pairs.texts_given, classes, names=list(pairs.names), groups=pairs.groups)


def reconstruction(model: Any, dataset: Dataset, what: str) -> str:
    """Return a sentence on the reconstruction error, or "" if the model does not reconstruct rows."""
    if not hasattr(model, "reconstruction_error"):
        return ""

    with nameless():
        error = model.reconstruction_error(flat_rows(dataset, named_columns(model)))
    return f" Reconstruction error of {what}: {error.mean():.4g}."


def _size(dataset: Dataset) -> str:
    """Return the numbers of items and, if any item has a class, of classes."""
    items = count_of(len(dataset), "item")
    if set(dataset.classes) <= {UNKNOWN_CLASS}:
        return items
    return f"{items} of {count_of(int(np.count_nonzero(dataset.class_counts)), 'class')}"
