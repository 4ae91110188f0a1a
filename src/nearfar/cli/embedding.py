"""Items and their embeddings: by a run, by a saved learner, or read from a file of embeddings."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data import Dataset, open_dataset
from ..data.checks.columns import on_embeddings
from ..data.checks.training_items import FILE, TrainingItems
from ..data.dataset import some
from ..data.items import UNKNOWN_CLASS
from ..data.open import match_classes, of_classes, open_source, same_classes
from ..data.readers.arrays import read_arrays, read_gallery
from ..data.readers.text_tables import TABLES
from ..data.readers.texts import text_items
from ..io.training_marks import MOST
from ..numerics.distances import DISTANCES
from ..numerics.types import Ints
from ..quoting import quoted
from .options import check_out
from .saved_learners import load_learner, transformed

LISTED = re.compile(r".*\[\d+\]")  # the name of a number in a column of lists, such as embedding[0]
IN_TRAINING = "in the training of"
TRAINING_SCORE = "these are training scores, which say nothing about new items"
NO_LIST = "keeps no list of its training items"
FINAL = "is a final model, which has learned from all classes of its data"


class Chosen(NamedTuple):
    """What a command is asked to score.

    Attributes
    ----------
    data : as on the command line; None is what belongs to the source
    classes : the only ones that count; none given, all do
    label : the column of the classes in the table that is scored, where it is named
    skip_bad : whether images that cannot be decoded are left out
    unseen_by : models whose training items are left out of the data
    seen_too : whether these are scored too
    group_by, group_score : the column of products that are ranked in place of items, and by which of their items
    """

    data: str | None
    classes: Sequence[str] = ()
    label: str | None = None
    skip_bad: bool = False
    unseen_by: Sequence[Path] = ()
    seen_too: bool = False
    group_by: str | None = None
    group_score: str = "best"

    @property
    def all_of_run(self) -> bool:
        """Whether it is the whole test of a run."""
        return self.data is None and not self.classes


def choose(
    data: str | None,
    classes: Sequence[str] = (),
    *,
    label: str | None = None,
    skip_bad: bool = False,
    files: Sequence[Path] = (),
    seen_too: bool = False,
    group_by: str | None = None,
    group_score: str = "best",
) -> Chosen:
    """Return what to score; refuse what a run has from its training, and a `label` where no file can be a table.

    Of DATA, training items of the models among `files` are left out, or with `seen_too` only told.
    """
    table = data is not None or any(file.name.endswith(TABLES) for file in files)
    if group_by is not None and not table:
        raise ValueError("--group-by: only for a table, of DATA or of embeddings, which has such a column")
    if label is not None and not table:
        raise ValueError("--label: only for a table, of DATA or of embeddings; a run knows that of its training")
    if skip_bad and data is None:
        raise ValueError(
            "--skip-bad: only with DATA; the test of a run leaves out what its training did "
            "(`nearfar train --resume --skip-bad --out RUN` goes on without such images)"
        )
    if seen_too and data is None:
        raise ValueError("--all: only with DATA, of which training items are otherwise left out")
    models = tuple(file for file in files if not is_embeddings(file))
    # a file of embeddings has all items, and what is set against it must have the same
    seen_too = seen_too or len(models) < len(files)
    return Chosen(data, classes, label, skip_bad, models, seen_too, group_by, group_score)


class Embedded(NamedTuple):
    """Items and their embeddings (n, d); and the same of a gallery, where they search one and not each other.

    Where products are ranked, their groups are the products, and `products_by` says by which of its items each is.
    """

    dataset: Dataset
    rows: np.ndarray[Any, Any]
    gallery: Dataset | None = None
    gallery_rows: np.ndarray[Any, Any] | None = None
    products_by: str | None = None

    @property
    def gallery_labels(self) -> Ints | None:
        """The classes of the gallery, where there is one."""
        return None if self.gallery is None else self.gallery.labels

    def groups(self) -> dict[str, Any]:
        """Return the groups of items and gallery, as the scores take them."""
        if self.products_by is not None:
            searched = self.dataset if self.gallery is None else self.gallery
            return {"group_by": searched.groups, "group_score": self.products_by}
        return {"groups": self.dataset.groups, "gallery_groups": None if self.gallery is None else self.gallery.groups}

    def about(self) -> str:
        """Say in one sentence which items are scored, and what they search."""
        if self.gallery is None:
            there = ""
        else:
            there = f", searching a gallery of {_size(self.gallery)}"
        return f"{self.dataset.name}, {_size(self.dataset)}{there}{left_out(self.dataset)}."


def is_run(source: Path) -> bool:
    """Return whether a source is the folder of a run."""
    return source.is_dir()


def is_embeddings(source: Path) -> bool:
    """Return whether a source is a file of embeddings."""
    return source.name.endswith((".npz", ".npy", *TABLES))


def refuse_data(source: Path, data: str | None) -> None:
    """Refuse DATA beside embeddings: nothing would embed it."""
    if data is not None:
        raise ValueError(f"DATA: {source} holds embeddings already, so {quoted(data)} must be left out")


def embedded_on(source: Path, chosen: Chosen, *, labeled: bool = True) -> tuple[Dataset, np.ndarray[Any, Any]]:
    """Open data and embed it with a run or a learner, or read a file of embeddings; returns items and embeddings.

    Embeddings of items without a class are left out where the others are `labeled`.
    """
    if is_embeddings(source):
        refuse_data(source, chosen.data)
        dataset = open_dataset(str(source), classes=chosen.classes, label=label_of(source, chosen))
        dataset = with_classes(dataset) if labeled else dataset
        return dataset, rows_of(dataset, source)
    dataset = items_on(source, chosen)
    return dataset, embed_with(source, dataset)


def label_of(source: Path, chosen: Chosen) -> str | None:
    """Return the column of the classes of a file of embeddings; beside an .npz, another file may be the table."""
    return chosen.label if source.name.endswith(TABLES) else None


def searching(data: str, chosen: Chosen, label: str | None, apart: bool = True) -> tuple[Dataset, Dataset | None]:
    """Open data; where they tell queries and a gallery, these two `apart`, and else all items."""
    opened = open_source(data, label=label, group=chosen.group_by, skip_bad=chosen.skip_bad)
    roles = np.array([]) if opened.roles is None else opened.roles
    if not apart or not {"query", "gallery"} <= set(roles.tolist()):
        return of_classes(opened.items, chosen.classes), None
    asked, gallery = (opened.items.subset(roles == role) for role in ("query", "gallery"))
    return of_classes(asked, chosen.classes), gallery


def with_classes(dataset: Dataset) -> Dataset:
    """Leave out the items that have no class, as images beside class folders, unless none has one."""
    known = np.asarray(dataset.classes)[dataset.labels] != UNKNOWN_CLASS
    if known.all() or not known.any():
        return dataset
    names = some([name for name, has in zip(dataset.names, known, strict=True) if not has], 3)
    note = f"{len(known) - known.sum()} item(s) without a class left out ({names})"
    return replace(dataset.subset(known), notes=(*dataset.notes, note))


def embedded_with_gallery(source: Path, chosen: Chosen, *, labeled: bool = True) -> Embedded:
    """As `embedded_on`, and the same of the gallery that there is to search; both number classes alike.

    Where items need not be `labeled`, as those of listed pairs, all of the data are there.
    """
    if is_embeddings(source):
        refuse_data(source, chosen.data)
        dataset, gallery = searching(str(source), chosen, label_of(source, chosen), apart=labeled)
        dataset = with_classes(dataset) if labeled else dataset
        gallery = (read_gallery(source) if source.suffix == ".npz" else None) or gallery
        rows = rows_of(dataset, source)
        gallery_rows = None if gallery is None else rows_of(gallery, source)
    else:
        dataset, gallery = opened_on(source, chosen, apart=labeled, listed=not labeled)
        rows = embed_with(source, dataset)
        gallery_rows = None if gallery is None else embed_with(source, gallery)
    if gallery is not None:
        dataset, gallery = same_classes(dataset, gallery)
    products_by = None if chosen.group_by is None else chosen.group_score
    return Embedded(dataset, rows, gallery, gallery_rows, products_by)


def items_on(source: Path, chosen: Chosen) -> Dataset:
    """Open data, all of them, or where none is named the test classes of a run."""
    return opened_on(source, chosen, apart=False)[0]


def opened_on(source: Path, chosen: Chosen, apart: bool = True, listed: bool = False) -> tuple[Dataset, Dataset | None]:
    """Open data, or where none is named the test of a run: its items, and the gallery that they search.

    Training items of the models are left out of data, unless items are needed as they are `listed` in pairs.
    """
    if chosen.data is not None:
        dataset, gallery = searching(chosen.data, chosen, chosen.label, apart)
        for model in chosen.unseen_by:
            check_there(model)
        return unseen(dataset, chosen.unseen_by, keep=chosen.seen_too or listed), gallery
    check_there(source)
    if not is_run(source):
        raise ValueError(f"DATA: say what to score {source.name} on, for example an .npz of rows and labels")
    from ..train.scoring import task_of

    task = task_of(source)
    if chosen.classes:
        test = task.test.only(match_classes(task.test, chosen.classes))
    else:
        test = task.test
    return test, task.gallery


def unseen(dataset: Dataset, models: Sequence[Path], *, keep: bool) -> Dataset:
    """Leave out the items that models have learned from, or `keep` them, and note how many they are."""
    learned = {model: training_items_of(model) for model in models}
    seen = {model: marked.among(dataset) for model, marked in learned.items() if marked and marked.complete}
    every = np.logical_or.reduce([np.zeros(len(dataset), dtype=bool), *seen.values()])
    notes = []
    for model in models:
        marked = learned[model]
        if marked is None:
            notes.append(f"{model.name} {NO_LIST}: some of these may be among them")
        elif not marked.complete:
            notes.append(f"{model.name} {NO_LIST}, which were more than {MOST:,}: some of these may be among them")
        elif seen[model].any():
            notes.append(_told_of_seen(dataset, model, int(seen[model].sum()), kept=keep, all_seen=bool(every.all())))
    notes.extend(f"{model.name} {FINAL}" for model, marked in learned.items() if marked and marked.final)
    kept = dataset if keep or every.all() else dataset.subset(~every)
    if not every.all():
        notes.extend(_told_of_classes(kept, model, marked) for model, marked in learned.items() if marked)
    return replace(kept, notes=(*dataset.notes, *filter(None, notes)))


def _told_of_seen(dataset: Dataset, model: Path, count: int, *, kept: bool, all_seen: bool) -> str:
    were = f"{dataset.kind}s were {IN_TRAINING} {model.name}"
    if count == len(dataset):
        return f"all {count} {were}: {TRAINING_SCORE}"
    some_were = f"{count} of {len(dataset)} {were}"
    if kept or all_seen:
        return f"{some_were} and are scored too: in part, {TRAINING_SCORE}"
    return f"{some_were} and are left out; --all scores them too"


def _told_of_classes(dataset: Dataset, model: Path, marked: TrainingItems) -> str:
    known = marked.known_classes(dataset)
    if not known:
        return ""
    there = np.count_nonzero(dataset.class_counts)
    return f"{known} of {there} classes have names of classes {IN_TRAINING} {model.name}: not zero-shot"


def training_items_of(model: Path) -> TrainingItems | None:
    """Return the marks of what a run or a learner has learned from; None where it does not keep them."""
    try:
        return TrainingItems.read(model / FILE if is_run(model) else model)
    except ValueError as error:
        raise ValueError(f"{model.name}: {error}") from error


def check_there(source: Path) -> None:
    """Raise a FileNotFoundError where there is neither a run nor a learner."""
    if not source.exists():
        raise FileNotFoundError(f"{source}: neither a run nor a learner")


def embed_with(source: Path, dataset: Dataset) -> np.ndarray[Any, Any]:
    """Embed items with a run or a learner."""
    check_there(source)
    if is_run(source):
        from ..train import embed_run

        return embed_run(source, dataset)
    return transformed(load_learner(source), dataset)


def rows_of(dataset: Dataset, source: Path) -> np.ndarray[Any, Any]:
    """Return the rows of a data set of rows, and warn of columns that were hardly meant to be among them."""
    if dataset.kind != "row" or dataset.array is None:
        raise ValueError(f"{source}: expected embeddings or rows, got {dataset.kind}s, which a run embeds")
    if dataset.columns:  # only tables name them
        for warning in on_embeddings(dataset):
            warnings.warn(f"{source}: {warning}", stacklevel=2)
    return dataset.array


def distance_of(source: Path, items: Dataset) -> str:
    """Return the distance in which items are compared.

    It is the Euclidean one for learners, which learn it, and for tables of measurements; the cosine one for runs and
    for embeddings, unless their file states another.
    """
    return known_distance_of(source) or ("euclidean" if are_measurements(items) else "cosine")


def are_measurements(items: Dataset) -> bool:
    """Return whether items are rows of a table with a column for each number, and not lists of numbers."""
    return bool(items.columns) and not any(LISTED.fullmatch(name) for name in items.columns)


def known_distance_of(source: Path) -> str:
    """Return the distance in which a source's embeddings are compared, or "" where a file of them does not tell."""
    if is_embeddings(source):
        told = _told(source, "distance")
        return told if told in DISTANCES else ""
    return "cosine" if is_run(source) else "euclidean"


def folder_of(source: Path) -> str:
    """Return the folder or the zip from which names beside embeddings lead to images; nothing where none is told."""
    return _told(source, "folder")


def _told(file: Path, key: str) -> str:
    """Return a word that `embed_to` has written beside embeddings."""
    if file.suffix != ".npz":
        return ""
    try:
        return str(read_arrays(file, [key]).get(key, ""))
    except (ValueError, OSError):  # who reads the rows says what is wrong
        return ""


def texts_of_pairs(data: str, label: str | None, skip_bad: bool) -> Dataset:
    """Open the texts of a table of photos with their texts, each under the name of its photo."""
    pairs = open_source(data, label=label, skip_bad=skip_bad, pairs=True).items
    classes = [pairs.classes[number] for number in pairs.labels]
    return text_items(pairs.name, pairs.texts_given, classes, names=list(pairs.names), groups=pairs.groups)


def embed_to(
    source: Path,
    data: str,
    out: Path,
    skip_bad: bool,
    label: str | None = None,
    dims: int | None = None,
    *,
    texts: bool = False,
    overwrite: bool = False,
) -> str:
    """Embed data, or the `texts` of pairs, and write an .npz; returns one line on what was written."""
    from ..data.items import open_items
    from ..io.atomic_files import atomic_write
    from .index_files import named_by_paths, root_of

    if out.suffix != ".npz":
        raise ValueError(f"--out: {out}: expected a file that ends in .npz; `nearfar embed` writes no other kind")
    check_out(out, overwrite=overwrite)
    if texts:
        dataset = texts_of_pairs(data, label, skip_bad)
    else:
        dataset = open_items(data, label=label, skip_bad=skip_bad)
    embeddings = embed_with(source, dataset)
    if dims is not None:
        if not 1 <= dims <= embeddings.shape[1]:
            raise ValueError(f"--dims: expected 1 to {embeddings.shape[1]}, the dimensions, got {dims}")
        embeddings = embeddings[:, :dims]
    with atomic_write(out) as file:
        names = np.asarray(dataset.names, dtype=np.str_)
        classes = np.asarray(dataset.classes, dtype=np.str_)
        about: dict[str, Any] = {
            "labels": dataset.labels,
            "classes": classes,
            "names": names,
            "distance": distance_of(source, dataset),
        }
        if dataset.groups is not None:
            about["groups"] = dataset.groups
        if named_by_paths(dataset, data):  # a report shows the images
            about["folder"] = str(root_of(data).absolute())
        np.savez_compressed(file, embeddings=embeddings, **about)
    (n, d) = embeddings.shape
    known = [name for name in dataset.classes if name != UNKNOWN_CLASS]
    kinds = f"{len(known)} classes" if known else "without classes"
    return f"{out}: {n} embeddings of {d} dimensions, {kinds}{left_out(dataset)}"


def left_out(dataset: Dataset) -> str:
    """Say which files are not among the items, and which images could not be decoded, as the end of a line."""
    # other notes may be of all classes, not of these
    told = [
        note for note in dataset.notes if any(words in note for words in ("left out (", IN_TRAINING, NO_LIST, FINAL))
    ]
    if dataset.bad:
        told.append(f"{len(dataset.bad)} undecodable image(s) left out ({some(dataset.bad, 3)})")
    return "".join(f"; {note}" for note in told)


def _size(dataset: Dataset) -> str:
    return f"{len(dataset)} items of {np.count_nonzero(dataset.class_counts)} classes"
