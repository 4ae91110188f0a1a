"""Items and their embeddings, from a run, a saved learner or a file of embeddings."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ..data import Dataset, open_dataset
from ..data.checks.columns import remarks_on_embeddings
from ..data.checks.training_items import FILE, TrainingItems
from ..data.dataset import some
from ..data.items import UNKNOWN_CLASS
from ..data.open import match_classes, of_classes, open_source, same_classes
from ..data.readers.arrays import UNNAMED, read_arrays, read_gallery
from ..data.readers.ids import NO_NAMES
from ..data.readers.text_tables import is_table
from ..data.readers.texts import text_items
from ..io.training_marks import MOST
from ..models import embed_as, load, load_learner
from ..numerics.distances import DISTANCES
from ..numerics.types import Ints
from ..quoting import count_of, quoted
from .outputs import check_out

LISTED = re.compile(r".*\[\d+\]")  # the name of a number in a column of lists, such as embedding[0]
IN_TRAINING = "in the training of"
TRAINING_SCORE = "these are training scores, which do not show how well it handles new items"
NO_LIST = "has no list of its training items"
FINAL = "is a final model, which was trained on all classes of its data"


class Selection(NamedTuple):
    """The options of a command that determine which items it scores.

    Attributes
    ----------
    data : DATA of the command line; None means the test of the run, or the items of the file of embeddings
    classes : classes to score; empty means all
    label : column of the classes in a table; None means the default
    name : column of the names of the rows of a table; None means the default
    skip_bad : whether images that cannot be decoded are left out
    unseen_by : models whose training items are left out of the data
    seen_too : whether training items are scored, too
    group_by, group_score : column of products that are ranked instead of items, and how their items are combined
    distance : distance by which embeddings are compared; None means that of the source
    """

    data: str | None
    classes: Sequence[str] = ()
    label: str | None = None
    name: str | None = None
    skip_bad: bool = False
    unseen_by: Sequence[Path] = ()
    seen_too: bool = False
    group_by: str | None = None
    group_score: str = "best"
    distance: str | None = None

    @property
    def all_of_run(self) -> bool:
        """Whether these are all test items of a run, compared by its own distance."""
        return self.data is None and not self.classes and self.distance is None


def select_items(
    data: str | None,
    classes: Sequence[str] = (),
    *,
    label: str | None = None,
    name: str | None = None,
    skip_bad: bool = False,
    files: Sequence[Path] = (),
    seen_too: bool = False,
    group_by: str | None = None,
    group_score: str = "best",
    distance: str | None = None,
) -> Selection:
    """Check the options, and return what to score.

    Training items of the models among `files` are left out of DATA. With `seen_too`, they are only counted.
    """
    table = data is not None or any(is_table(file) for file in files)
    if group_by is not None and not table:
        raise ValueError("--group-by: needs a table of data or of embeddings; give one as DATA or SOURCE")
    for option, column in {"--label": label, "--name": name}.items():
        if column is not None and not table:
            raise ValueError(
                f"{option}: needs a table of data or of embeddings; give one as DATA or SOURCE, or leave {option} out"
            )
    if skip_bad and data is None:
        raise ValueError(
            "--skip-bad: works only with DATA; the test of a run leaves out the images that its training left out "
            "(`nearfar train --resume --skip-bad --out RUN` continues a training without bad images)"
        )
    if seen_too and data is None:
        raise ValueError("--all: works only with DATA, of which training items are left out by default")
    models = tuple(file for file in files if not is_embeddings(file))
    # a file of embeddings has all items, so a model that is compared with it must embed all of them
    seen_too = seen_too or len(models) < len(files)
    return Selection(
        data=data,
        classes=classes,
        label=label,
        name=name,
        skip_bad=skip_bad,
        unseen_by=models,
        seen_too=seen_too,
        group_by=group_by,
        group_score=group_score,
        distance=distance,
    )


class Embedded(NamedTuple):
    """Items and their embeddings (n, d), and those of the gallery if the items search one instead of each other.

    Embeddings are compared by `distance`. If products are ranked, the groups are the products, and `products_by` says
    how the items of a product are combined.
    """

    dataset: Dataset
    rows: np.ndarray[Any, Any]
    distance: str
    gallery: Dataset | None = None
    gallery_rows: np.ndarray[Any, Any] | None = None
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


def is_run(source: Path) -> bool:
    """Return whether a source is the folder of a run."""
    return source.is_dir()


def name_of(source: Path) -> str:
    """Return the name of a run or a learner in messages; that of a run's folder is not in a path such as "."."""
    return os.path.basename(os.path.abspath(source))


def is_embeddings(source: Path) -> bool:
    """Return whether a source is a file of embeddings."""
    return source.name.endswith((".npz", ".npy")) or is_table(source)


def refuse_data(source: Path, data: str | None) -> None:
    """Refuse DATA if the source is a file of embeddings, which cannot embed it."""
    if data is not None:
        raise ValueError(f"DATA: {source} contains embeddings, which cannot embed {quoted(data)}; leave DATA out")


def open_embeddings(
    source: Path, selection: Selection, *, labeled: bool = True
) -> tuple[Dataset, np.ndarray[Any, Any]]:
    """Open data and embed it with a run or a learner, or read a file of embeddings. Return items and embeddings.

    If `labeled`, embeddings of items without a class are left out, unless no item has a class.
    """
    if is_embeddings(source):
        refuse_data(source, selection.data)
        how: dict[str, Any] = {"classes": selection.classes, **columns_of(source, selection)}
        dataset = open_dataset(str(source), **how)
        dataset = with_classes(dataset) if labeled else dataset
        return dataset, rows_of(dataset, source)
    dataset = open_all_items(source, selection)
    return dataset, embed_with(source, dataset)


def columns_of(source: Path, selection: Selection) -> dict[str, str | None]:
    """Return --label and --name of a table of embeddings; an .npz has none, because they are about another table."""
    if not is_table(source):
        return {"label": None, "name": None}
    return {"label": selection.label, "name": selection.name}


def open_queries_and_gallery(
    data: str, selection: Selection, columns: Mapping[str, str | None], *, apart: bool = True
) -> tuple[Dataset, Dataset | None]:
    """Open data. If it is divided into queries and a gallery and `apart`, return these two, else all items and None."""
    how: dict[str, Any] = {**columns, "group": selection.group_by, "skip_bad": selection.skip_bad}
    opened = open_source(data, **how)
    roles = np.array([]) if opened.roles is None else opened.roles
    if not apart or not {"query", "gallery"} <= set(roles.tolist()):
        return of_classes(opened.items, selection.classes), None
    query_items, gallery = (opened.items.subset(roles == role) for role in ("query", "gallery"))
    return of_classes(query_items, selection.classes), gallery


def with_classes(dataset: Dataset) -> Dataset:
    """Leave out items without a class, such as images that are not in a class folder, unless no item has a class."""
    known = np.asarray(dataset.classes)[dataset.labels] != UNKNOWN_CLASS
    if known.all() or not known.any():
        return dataset
    names = some([name for name, has in zip(dataset.names, known, strict=True) if not has], 3)
    note = f"{count_of(len(known) - int(known.sum()), 'item')} without a class left out ({names})"
    return replace(dataset.subset(known), notes=(*dataset.notes, note))


def open_with_gallery(source: Path, selection: Selection, *, labeled: bool = True) -> Embedded:
    """Return the items of `open_embeddings`, and the gallery if there is one, with the same class numbers in both.

    If items need not be `labeled`, as those of listed pairs, all items of the data are returned.
    """
    if is_embeddings(source):
        refuse_data(source, selection.data)
        dataset, gallery = open_queries_and_gallery(
            str(source), selection, columns_of(source, selection), apart=labeled
        )
        dataset = with_classes(dataset) if labeled else dataset
        gallery = (read_gallery(source, skip_bad=selection.skip_bad) if source.suffix == ".npz" else None) or gallery
        rows = rows_of(dataset, source)
        gallery_rows = None if gallery is None else rows_of(gallery, source)
    else:
        dataset, gallery = open_evaluated_items(source, selection, apart=labeled, listed=not labeled)
        rows = embed_with(source, dataset)
        gallery_rows = None if gallery is None else embed_with(source, gallery)
    if gallery is not None:
        dataset, gallery = same_classes(dataset, gallery)
    products_by = None if selection.group_by is None else selection.group_score
    distance = distance_of(source, dataset, selection.distance)
    return Embedded(dataset, rows, distance, gallery, gallery_rows, products_by)


def open_all_items(source: Path, selection: Selection) -> Dataset:
    """Open all items of the data, or the test items of a run if no data is given."""
    return open_evaluated_items(source, selection, apart=False)[0]


def open_evaluated_items(
    source: Path, selection: Selection, apart: bool = True, listed: bool = False
) -> tuple[Dataset, Dataset | None]:
    """Open the data, or the test of a run if no data is given: its items, and the gallery that they search.

    Training items of the models are left out of the data, unless items are `listed` in pairs.
    """
    if selection.data is not None:
        columns = {"label": selection.label, "name": selection.name}
        dataset, gallery = open_queries_and_gallery(selection.data, selection, columns, apart=apart)
        for model in selection.unseen_by:
            check_there(model)
        return unseen(dataset, selection.unseen_by, keep=selection.seen_too or listed), gallery
    check_there(source)
    if not is_run(source):
        raise ValueError(
            f"DATA: {name_of(source)} is a learner, which needs data to score, such as an .npz of rows and labels"
        )
    from ..train.scoring import task_of

    task = task_of(source)
    if selection.classes:
        test = task.test.only(match_classes(task.test, selection.classes))
    else:
        test = task.test
    return test, task.gallery


def unseen(dataset: Dataset, models: Sequence[Path], *, keep: bool) -> Dataset:
    """Leave out the items that models were trained on, or `keep` them, and note how many there are."""
    learned = {model: training_items_of(model) for model in models}
    seen = {model: marked.among(dataset) for model, marked in learned.items() if marked and marked.complete}
    every = np.logical_or.reduce([np.zeros(len(dataset), dtype=bool), *seen.values()])
    notes = []
    for model in models:
        marked = learned[model]
        if marked is None:
            notes.append(f"{name_of(model)} {NO_LIST}; some of these items may be among them")
        elif not marked.complete:
            why = f"{NO_LIST}, because they were more than {MOST:,}"
            notes.append(f"{name_of(model)} {why}; some of these items may be among them")
        elif seen[model].any():
            count = int(seen[model].sum())
            notes.append(_note_on_seen(dataset, model, count, kept=keep, all_seen=bool(every.all())))
    notes.extend(f"{name_of(model)} {FINAL}" for model, marked in learned.items() if marked and marked.final)
    kept = dataset if keep or every.all() else dataset.subset(~every)
    if not every.all():
        notes.extend(_note_on_classes(kept, model, marked) for model, marked in learned.items() if marked)
    return replace(kept, notes=(*dataset.notes, *filter(None, notes)))


def _note_on_seen(dataset: Dataset, model: Path, count: int, *, kept: bool, all_seen: bool) -> str:
    were = f"{dataset.kind}s were {IN_TRAINING} {name_of(model)}"
    if count == len(dataset):
        return f"all {count} {were}: {TRAINING_SCORE}"
    some_were = f"{count} of {len(dataset)} {were}"
    if kept or all_seen:
        return f"{some_were}, and are scored, too: in part, {TRAINING_SCORE}"
    return f"{some_were}, and are left out; --all scores them, too"


def _note_on_classes(dataset: Dataset, model: Path, marked: TrainingItems) -> str:
    known = marked.known_classes(dataset)
    total = np.count_nonzero(dataset.class_counts)
    there = f"{IN_TRAINING} {name_of(model)}"
    if known:
        return f"{known} of {total} classes have the names of classes {there}: not zero-shot"
    alike = marked.spelled_alike(dataset)
    if alike:
        spelled = f"{len(alike)} of {total} classes are spelled almost like classes {there}"
        return f"{spelled} ({some(alike, 3)}): perhaps not zero-shot"
    return ""


def training_items_of(model: Path) -> TrainingItems | None:
    """Return the fingerprints of the training items of a run or a learner; None if it has none."""
    try:
        return TrainingItems.read(model / FILE if is_run(model) else model)
    except ValueError as error:
        raise ValueError(f"{name_of(model)}: {error}") from error


def check_there(source: Path) -> None:
    """Raise a FileNotFoundError if a run or a learner does not exist."""
    if not source.exists():
        raise FileNotFoundError(f"{source}: does not exist; expected the folder of a run or a saved learner")


def embed_with(
    source: Path, dataset: Dataset, prompt: Literal["query", "document"] | None = None
) -> np.ndarray[Any, Any]:
    """Embed items with a run or a learner; texts with the prompt of queries or of documents, if the model has both."""
    check_there(source)
    return embed_as(load(source), dataset, prompt)


def rows_of(dataset: Dataset, source: Path) -> np.ndarray[Any, Any]:
    """Return the rows of a data set of rows, and warn about columns that are probably not part of an embedding."""
    if dataset.kind != "row" or dataset.array is None:
        raise ValueError(f"{source}: expected embeddings or rows, got {dataset.kind}s; give a run that embeds them")
    if dataset.columns:  # only tables have names of columns
        for warning in remarks_on_embeddings(dataset):
            warnings.warn(f"{source}: {warning}", stacklevel=2)
    return dataset.array


def distance_of(source: Path, items: Dataset, asked: str | None = None) -> str:
    """Return the distance that compares items: the one that was `asked` for, else that of the source.

    It is the learner's own for learners, cosine for runs and for embeddings, unless their file states another one, and
    Euclidean for tables of measurements.
    """
    return asked or known_distance_of(source) or usual_distance(items)


def usual_distance(items: Dataset) -> str:
    """Return the distance of rows as they are, without a model: Euclidean for measurements, otherwise cosine."""
    return "euclidean" if are_measurements(items) else "cosine"


def are_measurements(items: Dataset) -> bool:
    """Return whether items are rows of a table with a column for each number, and not lists of numbers."""
    return bool(items.columns) and not any(LISTED.fullmatch(name) for name in items.columns)


def known_distance_of(source: Path) -> str:
    """Return the distance that compares the embeddings of a source; "" if a file of them does not say."""
    if is_embeddings(source):
        recorded = _recorded(source, "distance")
        return recorded if recorded in DISTANCES else ""
    if is_run(source):
        return "cosine"
    check_there(source)
    return str(load_learner(source).distance_)


def folder_of(source: Path) -> str:
    """Return the folder or zip that contains the images of a file of embeddings; "" if it is not recorded."""
    return _recorded(source, "folder")


def _recorded(file: Path, key: str) -> str:
    """Return a word that `embed_to` wrote into a file of embeddings; "" if there is none."""
    if file.suffix != ".npz":
        return ""
    try:
        return str(read_arrays(file, [key]).get(key, ""))
    except (ValueError, OSError):  # reading the rows will raise the error
        return ""


def texts_of_pairs(data: str, label: str | None, skip_bad: bool) -> Dataset:
    """Open the texts of a table of photos and texts. Each text has the name of its photo."""
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
    name: str | None = None,
    texts: bool = False,
    overwrite: bool = False,
) -> str:
    """Embed data, or the `texts` of pairs, and write an .npz. Return one line on what was written."""
    from ..data.items import open_items
    from ..io.atomic_files import atomic_write
    from .index_files import named_by_paths, root_of

    if out.suffix != ".npz":
        raise ValueError(f"--out: {out}: expected a file that ends in .npz")
    check_out(out, overwrite=overwrite)
    if is_embeddings(source):
        raise ValueError(f"RUN: {source}: is a file of rows; expected the folder of a run or a saved learner")
    if dims is not None and dims < 1:
        raise ValueError(f"--dims: expected 1 or more, got {dims}")
    if texts:
        dataset = texts_of_pairs(data, label, skip_bad)
    else:
        dataset = open_items(data, label=label, name=name, skip_bad=skip_bad)
    embeddings = embed_with(source, dataset)
    if dims is not None:
        if not 1 <= dims <= embeddings.shape[1]:
            raise ValueError(f"--dims: expected 1 to {embeddings.shape[1]}, the number of dimensions, got {dims}")
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
        if dataset.unnamed:
            about[UNNAMED] = True
        if dataset.groups is not None:
            about["groups"] = dataset.groups
        if named_by_paths(dataset, data):  # for reports, which show the images
            about["folder"] = str(root_of(data).absolute())
        np.savez_compressed(file, embeddings=embeddings, **about)
    (n, d) = embeddings.shape
    known = [name for name in dataset.classes if name != UNKNOWN_CLASS]
    kinds = f"{len(known)} classes" if known else "without classes"
    return f"{out}: {n} embeddings of {d} dimensions, {kinds}{left_out(dataset)}"


def left_out(dataset: Dataset) -> str:
    """Return the end of a line on which files and images were left out."""
    # the other notes may be about all classes of the data, not only about these items
    shown = ("left out (", NO_NAMES, IN_TRAINING, NO_LIST, FINAL)
    notes = [note for note in dataset.notes if any(words in note for words in shown)]
    if dataset.bad:
        notes.append(f"{count_of(len(dataset.bad), 'undecodable image')} left out ({some(dataset.bad, 3)})")
    return "".join(f"; {note}" for note in notes)


def _size(dataset: Dataset) -> str:
    return f"{len(dataset)} items of {np.count_nonzero(dataset.class_counts)} classes"
