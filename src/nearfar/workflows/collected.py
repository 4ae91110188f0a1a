"""A collection with or without classes: an index, a file of embeddings, or items and the model that embeds them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import Dataset
from ..data.dataset import number_labels
from ..data.items import NamedReader, embedding_rows, named_by_paths, open_items, root_of
from ..data.located import Named, local_embeddings, local_source
from ..data.open import open_source
from ..index import open_store
from ..index.groups import numbered
from ..index.paths import base_folder_of, pictures_of, relative_path
from ..index.searching import check_group_column
from ..io.cells import write_table
from ..io.sources import MODELS, SourceKind, kind_of
from ..models import load
from ..models.embedded import Selection, distance_of, embed_source, recorded, refuse_data
from ..models.model import encoded_for
from .search_results import classes_of

if TYPE_CHECKING:
    from ..numerics.types import AnyArray, Ints
    from ..report.search_page import Line


@dataclass(frozen=True, eq=False)
class Collected:
    """Items, of which all, some or none have a class, and their embeddings.

    Attributes
    ----------
    dataset : Dataset
        The items. The class "" means that an item has none.
    rows : ndarray of shape (n, d)
        Their embeddings.
    distance : str
        Distance by which they are compared.
    folder : Path or None
        Folder to which the names of images are relative; None if items are not files.
    apart : ndarray of int, shape (n,), or None
        Number of the group of each item, if items of one group are not compared.
    columns : mapping
        Further columns of an index, each of length n.
    """

    dataset: Dataset
    rows: AnyArray
    distance: str
    folder: Path | None = None
    apart: Ints | None = None
    columns: Mapping[str, AnyArray] = field(default_factory=dict)

    @property
    def classes(self) -> list[str]:
        """Class of every item, "" if it has none."""
        return [self.dataset.classes[number] for number in self.dataset.labels]

    def write_page(
        self,
        out: Path,
        lines: Sequence[Line],
        title: str,
        note: str,
        on_outside: Callable[[NamedReader], None],
        *,
        removed: Collection[int] | None = None,
    ) -> None:
        """Write a page with lines of items; `on_outside` is called with the reader of the pictures of an index.

        With items that are proposed as `removed`, each item has a box for the decision.
        """
        from ..report.content import Items
        from ..report.search_page import write_search_page

        dataset = self.dataset
        items = Items(
            embeddings=self.rows,
            labels=dataset.labels,
            classes=list(dataset.classes),
            names=list(dataset.names),
            read=dataset.read,
        )
        write_search_page(out, lines, items, title=title, note=note, removed=removed)
        if isinstance(dataset.read, NamedReader):
            on_outside(dataset.read)

    def write_rows(self, out: Path, rows: Sequence[int], others: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
        """Write a table of some items, which `nearfar train` reads once each has a label.

        It has their names, their paths or texts, and the columns `others` with the `cells` of each item.
        """
        names = self.dataset.names
        kinds: list[str] = []
        shown: list[Sequence[str]] = []
        if self.folder is not None:
            kinds = ["path"]
            beside = out.absolute().parent
            shown = [[Path(relative_path(self.folder / names[at], beside)).as_posix()] for at in rows]
        elif self.dataset.texts is not None:
            kinds = ["text"]
            shown = [[str(self.dataset.texts[at])] for at in rows]
        else:
            shown = [[]] * len(rows)
        table = [(names[at], *what, *cell) for at, what, cell in zip(rows, shown, cells, strict=True)]
        write_table(out, ("name", *kinds, *others), table)


def collect(
    source: str | Path,
    data: Named | None = None,
    selection: Selection | None = None,
    *,
    distance: str | None = None,
    group_by: str = "",
) -> Collected:
    """Open a collection, and embed its items if they have no embeddings yet.

    Parameters
    ----------
    source : str or Path
        An index, a file of embeddings, or what `nearfar.load` loads.
    data : str, path, or datasets.Dataset, optional
        The items, for a model.
    selection : Selection, optional
        Which items are embedded; an index has all of its items.
    distance : str, optional
        Distance by which items are compared. By default, that of the source.
    group_by : str
        Column of an index, or of a table of items, with the group of each item.
    """
    source = local_embeddings(source)
    data = None if data is None else local_source(data)
    selection = replace(selection or Selection(), data=data, seen_too=True, group_by=group_by or None)
    kind = kind_of(source, *MODELS, SourceKind.EMBEDDINGS, SourceKind.INDEX)
    if kind is SourceKind.INDEX:
        refuse_data(source, data)
        found = of_index(source, group_by)
    elif kind is SourceKind.EMBEDDINGS:
        refuse_data(source, data)
        dataset = opened(str(source), selection)
        rows = embedding_rows(dataset, source)
        folder = folder_beside(source, dataset)
        found = Collected(dataset, rows, distance_of(source, dataset), folder, numbers_of(dataset))
    elif data is None:  # the test of a run
        embedded = embed_source(source, selection, labeled=False, apart=False)
        found = Collected(embedded.dataset, embedded.rows, embedded.distance, None, numbers_of(embedded.dataset))
    else:
        found = of_model(source, data, selection)
    if not group_by:
        found = replace(found, apart=None)
    return found if distance is None else replace(found, distance=distance)


def opened(data: str, selection: Selection, takes: Collection[str] = ()) -> Dataset:
    """Open all items of a source, which may have no classes, for a model that embeds these kinds of items."""
    how: dict[str, Any] = {"label": selection.label, "name": selection.name, "skip_bad": selection.skip_bad}
    if selection.group_by is None:
        return open_items(data, takes=takes, **how)
    return open_source(data, group=selection.group_by, mixed="table" in takes, **how).items


def of_model(source: Path, data: str, selection: Selection) -> Collected:
    """Embed items."""
    model = load(source)
    selection = replace(selection, **model.table_columns.read(data, selection.label, selection.name))
    dataset = encoded_for(model, opened(data, selection, model.takes))
    root = root_of(data)
    folder = root if named_by_paths(dataset, data) and root.is_dir() else None
    return Collected(dataset, np.asarray(model.embed(dataset)), model.distance, folder, numbers_of(dataset))


def folder_beside(file: Path, dataset: Dataset) -> Path | None:
    """Return the folder of the images in a file of embeddings; None if there is no such folder."""
    folder = Path(recorded(file, "folder") or ".")
    return folder if len(dataset) and (folder / dataset.names[0]).is_file() else None


def of_index(file: Path, group_by: str) -> Collected:
    """Return all items of an index."""
    with open_store(file, lock=False) as store:
        index = store.in_memory()
        check_group_column(store, group_by)
    classes, labels = number_labels(classes_of(index))
    names = index.names.tolist()
    read = pictures_of(names, index.about, file)
    dataset = Dataset(file.stem, labels=labels, classes=classes, kind="image", read=read, names=tuple(names))
    folder = base_folder_of(index.about, file)
    are_files = len(names) > 0 and (folder / names[0]).is_file()
    apart = numbered(index.all_columns()[group_by]) if group_by else None
    return Collected(dataset, index.embeddings, index.distance, folder if are_files else None, apart, index.columns)


def numbers_of(dataset: Dataset) -> Ints | None:
    """Return the number of the group of each item."""
    return None if dataset.groups is None else np.unique(dataset.groups, return_inverse=True)[1]
