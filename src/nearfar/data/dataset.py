"""The results of all readers: a `Dataset` of items with class labels, and a `Task`, which consists of several.

This module knows no file format. A data set consists of labels and a function that reads item i; small sets also hold
all items in one array. The functions that read are small picklable objects, so that worker processes can be started in
any way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..io.formats import PLAIN_TABLES, has_columns
from ..labels import class_name, named_classes, narrow_texts
from ..quoting import PATH, count_of, quoted, shorten
from .cells import Cells, as_cells
from .class_labels import ClassLabels
from .listed import PairsOfItems

Kind = Literal["image", "row", "text", "sound"]
UNKNOWN_CLASS = ""
"""Class of items without a class."""


class DataError(ValueError):
    """Data cannot be used. The message is one line on what was found and what was expected."""


class DataNotFoundError(DataError, FileNotFoundError):
    """A file or folder does not exist."""


class NoClassesError(DataError):
    """The items have no classes."""


class BadItemError(DataError):
    """An item cannot be read or decoded. The message names it."""


NEED_NONE = "`nearfar index` and `nearfar groups` need no classes"


def check_column(source: str, argument: str, column: str | None) -> None:
    """Raise a DataError if an argument names a column of a source that is not a table."""
    if column is not None and not has_columns(source):
        only = f"{source} has no columns; only tables have them ({', '.join(PLAIN_TABLES)})"
        raise DataError(f"{argument}: got {quoted(column)}, but {only}")


@dataclass(frozen=True)
class ArrayReader:
    """Item i of an array."""

    array: NDArray[Any]

    def __call__(self, i: int) -> NDArray[Any]:
        return self.array[i]


@dataclass(frozen=True)
class PickedReader:
    """Item `index[i]` of another reader."""

    read: Callable[[int], NDArray[Any]]
    index: NDArray[np.int64]

    def __call__(self, i: int) -> NDArray[Any]:
        return self.read(int(self.index[i]))


@dataclass(frozen=True)
class JoinedReader:
    """The `n` items of one reader, followed by those of another."""

    first: Callable[[int], NDArray[Any]]
    n: int
    second: Callable[[int], NDArray[Any]]

    def __call__(self, i: int) -> NDArray[Any]:
        if i < self.n:
            return self.first(i)
        return self.second(i - self.n)


@dataclass(frozen=True)
class NoNumbers:
    """Reads no item: the rows consist of cells that are not all numbers."""

    why: str

    def __call__(self, i: int) -> NDArray[Any]:
        raise DataError(self.why)


def unwrapped(read: Callable[[int], NDArray[Any]], i: int) -> tuple[Callable[[int], NDArray[Any]], int]:
    """Return the reader that actually reads item i, behind subsets and joined sets, and the item's number there."""
    while isinstance(read, PickedReader | JoinedReader):
        if isinstance(read, PickedReader):
            i = int(read.index[i])
            read = read.read
        elif i < read.n:
            read = read.first
        else:
            i -= read.n
            read = read.second
    return read, i


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Items with one class label each.

    Parameters
    ----------
    name : str
        Name of the data set in reports.
    labels : ndarray of int64, shape (n,)
        Class of each item, as an index into `classes`.
    classes : tuple of str
        Names of the classes.
    kind : {"image", "row", "text", "sound"}
        Type of the items. Texts become rows once the tokenizer of a network is known.
    read : callable
        Function from i to item i: a uint8 image of shape (H, W, C) with C 1 or 3, a float32 row of shape (d,), or the
        float32 samples (n,) of a sound, 16,000 per second, whose number may differ from sound to sound.
    names : tuple of str
        Printable name or path of each item.
    array : ndarray or None
        All items decoded, uint8 of shape (n, H, W, C) or float32 of shape (n, d), if they are small enough; `read` then
        indexes it.
    notes : tuple of str
        Remarks for reports, such as on classes with one item.
    bad : tuple of str
        Names of items that could not be decoded and were left out.
    columns : tuple of str
        Names of the columns of rows, if they come from a table.
    groups : ndarray of str, or of objects if some are long, shape (n,), or None
        Camera, video or the like of each item: a query does not search items of its class in its group.
    stored : callable or None
        Function that reads images or sounds from their files, if they are also in memory.
    texts : ndarray of object, shape (n,), or None
        Text of each item, if the items are texts or rows that a tokenizer has made of them; or the caption of each
        image, if they are pairs of both.
    unnamed : bool
        Whether the items have no names of their own: `names` were made of their positions, or of their first words.
    listed : PairsOfItems or None
        Pairs of items that are known to be similar or dissimilar, beside the classes or instead of them.
    class_labels : ClassLabels or None
        Labels of each class, if items have several: a class is then a set of labels, or it has levels above it.
    cells : Cells or None
        Cells of a table whose columns are not all numbers. Unless a `TableEncoder` has encoded them, such rows have no
        `array`, and `read` raises an error.
    """

    name: str
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    kind: Kind
    read: Callable[[int], NDArray[Any]]
    names: tuple[str, ...]
    array: NDArray[Any] | None = None
    notes: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    groups: NDArray[Any] | None = None
    stored: Callable[[int], NDArray[Any]] | None = None
    texts: NDArray[np.object_] | None = None
    unnamed: bool = False
    listed: PairsOfItems | None = None
    class_labels: ClassLabels | None = None
    cells: Cells | None = None

    @classmethod
    def from_array(
        cls,
        name: str,
        array: NDArray[Any],
        labels: Sequence[Any] | NDArray[Any] | None,
        *,
        names: Sequence[str] | None = None,
        notes: Sequence[str] = (),
        bad: Sequence[str] = (),
        columns: Sequence[str] = (),
        texts: Sequence[str] | None = None,
    ) -> Dataset:
        """Build a data set from items in memory.

        Parameters
        ----------
        name : str
            Name of the data set in reports.
        array : ndarray
            uint8 images of shape (n, H, W) or (n, H, W, C) with C 1 or 3, or rows of numbers of shape (n, d), which are
            converted to float32.
        labels : sequence of length n, or None
            Class of each item, of any type. None is for items without classes: all then have the class "".
        names : sequence of str, optional
            Name of each item.
        notes : sequence of str
            Remarks for reports.
        bad : sequence of str
            Names of items that were left out.
        columns : sequence of str
            Names of the columns of rows.
        texts : sequence of str, optional
            Caption of each image.

        Returns
        -------
        Dataset
        """
        if not isinstance(name, str):
            raise TypeError(f"name: expected text, got {type(name).__name__}; pass name, array, labels in this order")
        array = np.asarray(array)
        if array.ndim == 3:  # gray images, (n, H, W)
            array = array[..., None]
        if array.ndim == 2 and array.dtype.kind in "fiub":
            array = array.astype(np.float32, copy=False)
        elif array.ndim != 4 or array.dtype != np.uint8 or array.shape[3] not in (1, 3):
            expected = "(n, d) numbers, or (n, H, W) or (n, H, W, 1 or 3) uint8"
            raise DataError(f"{name}: array has shape {array.shape} and type {array.dtype}; expected {expected}")
        if labels is None:
            classes: tuple[str, ...] = (UNKNOWN_CLASS,) if len(array) else ()
            indices = np.zeros(len(array), dtype=np.int64)
        else:
            classes, indices = number_labels(labels)
        if len(array) != len(indices):
            raise DataError(f"{name}: {len(array)} items but {len(indices)} labels")
        if texts is not None and len(texts) != len(array):
            raise DataError(f"{name}: {len(array)} images but {len(texts)} texts; expected one text for each image")
        unnamed = names is None
        if names is None:
            names = [f"{name}[{i}]" for i in range(len(array))]
        return cls(
            name=name,
            labels=indices,
            classes=classes,
            kind="row" if array.ndim == 2 else "image",
            read=ArrayReader(array),
            names=tuple(names),
            array=array,
            notes=tuple(notes),
            bad=tuple(bad),
            columns=tuple(columns),
            texts=None if texts is None else as_cells(texts),
            unnamed=unnamed,
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {len(self)} {self.kind}s of {len(self.classes)} classes)"

    @property
    def are_pairs(self) -> bool:
        """Whether every item is a pair of an image and its text."""
        return self.kind == "image" and self.texts is not None

    @property
    def title_of_raw(self) -> str:
        """What the items are without a model, for tables."""
        return {"image": "raw pixels", "sound": "log-mel statistics"}.get(self.kind, "raw rows")

    @property
    def texts_given(self) -> list[str]:
        """The text of each item; raises a DataError if the items have no texts."""
        if self.texts is None:
            raise DataError(f"{self.name}: expected texts, got {self.kind}s")
        return [str(text) for text in self.texts]

    @property
    def has_label_sets(self) -> bool:
        """Whether items have sets of labels, each of which is a class."""
        return self.class_labels is not None and not self.class_labels.levels

    @property
    def asks(self) -> NDArray[np.bool_] | None:
        """Which items are queries, which search only the others, the documents; None if all items search each other."""
        asks = None if self.listed is None else self.listed.asks
        return None if asks is None or asks.all() or not asks.any() else asks

    @property
    def class_counts(self) -> NDArray[np.int64]:
        """The number of items of each class, of shape (number of classes,)."""
        return np.bincount(self.labels, minlength=len(self.classes)).astype(np.int64)

    def subset(self, index: ArrayLike, name: str | None = None) -> Dataset:
        """Return the items at `index` (integers or a mask), in that order, with the classes that occur in them."""
        chosen = np.asarray(index)
        if chosen.dtype != bool:
            chosen = chosen.astype(np.int64)  # an empty list is an array of floats
        chosen = np.arange(len(self))[chosen]  # readers do not count from the end
        # drop the classes without items, and number the others again
        present, labels = np.unique(self.labels[chosen], return_inverse=True)
        array = None
        read: Callable[[int], NDArray[Any]] = PickedReader(self.read, chosen)
        if self.array is not None:
            array = self.array[chosen]
            read = ArrayReader(array)
        return replace(
            self,
            name=name or self.name,
            labels=labels.astype(np.int64).reshape(-1),
            classes=tuple(self.classes[c] for c in present),
            read=read,
            names=tuple(self.names[i] for i in chosen.tolist()),
            array=array,
            groups=None if self.groups is None else self.groups[chosen],
            texts=None if self.texts is None else self.texts[chosen],
            stored=None if self.stored is None else PickedReader(self.stored, chosen),
            listed=None if self.listed is None else self.listed.subset(chosen, len(self)),
            cells=None if self.cells is None else self.cells.subset(chosen),
        )

    def only(self, classes: Sequence[str] | Sequence[int], name: str | None = None) -> Dataset:
        """Return the items of the given classes (names, or indices into `classes`), in their current order."""
        number = {c: i for i, c in enumerate(self.classes)}
        unknown = [c for c in classes if isinstance(c, str) and c not in number]
        if unknown:
            raise DataError(f"{self.name} has no class {quoted(unknown[0])}; it has {some(self.classes)}")
        wanted = [number[c] if isinstance(c, str) else int(c) for c in classes]
        outside = [c for c in wanted if not 0 <= c < len(self.classes)]
        if outside:
            raise DataError(f"{self.name} has no class number {outside[0]}; it has {len(self.classes)} classes")
        return self.subset(np.isin(self.labels, wanted), name)

    def joined(self, other: Dataset) -> Dataset:
        """Return the items of this data set followed by those of another; classes with equal names are one class.

        Parameters
        ----------
        other : Dataset
            Items of the same kind.

        Returns
        -------
        Dataset

        Raises
        ------
        DataError
            If one holds images and the other rows, or rows with other columns.
        """
        if self.kind != other.kind:
            raise DataError(
                f"{self.name} has {self.kind}s but {other.name} has {other.kind}s, so they cannot be joined"
            )
        other = other.in_columns(self.columns, self.name)
        cells = self._joined_cells(other)
        numbers = self.kind == "row" and cells is None and len(self) > 0 and len(other) > 0
        if numbers and len(self.read(0)) != len(other.read(0)):
            lengths = f"{len(self.read(0))} columns but {other.name} has {len(other.read(0))}"
            raise DataError(f"{self.name} has {lengths}, so they cannot be joined")
        classes = tuple(dict.fromkeys(self.classes + other.classes))
        array = None
        read: Callable[[int], NDArray[Any]] = JoinedReader(self.read, len(self), other.read)
        if self.array is not None and other.array is not None and self.array.shape[1:] == other.array.shape[1:]:
            array = np.concatenate([self.array, other.array])
            read = ArrayReader(array)
        elif cells is not None and self.kind == "row":
            read = NoNumbers(cells.why)
        groups = None
        if self.groups is not None and other.groups is not None:
            groups = np.concatenate([self.groups, other.groups])
        texts = None
        if self.texts is not None and other.texts is not None:
            texts = np.concatenate([self.texts, other.texts])
        listed = self.listed
        if other.listed is not None:
            after = other.listed.after(len(self))
            listed = after if listed is None else listed.joined(after)
        return replace(
            self,
            labels=np.concatenate([self.labels, other.labels_among(classes)]),
            classes=classes,
            read=read,
            names=self.names + other.names,
            array=array,
            notes=tuple(dict.fromkeys(self.notes + other.notes)),
            bad=self.bad + other.bad,
            groups=groups,
            texts=texts,
            stored=JoinedReader(self.stored or self.read, len(self), other.stored or other.read),
            unnamed=self.unnamed or other.unnamed,
            listed=listed,
            class_labels=None if self.class_labels is None else self.class_labels.joined(other.class_labels),
            cells=cells,
        )

    def labels_among(self, classes: Sequence[str]) -> NDArray[np.int64]:
        """Return the class of each item as an index into other `classes`, which must have all of its own, (n,)."""
        number = {name: i for i, name in enumerate(classes)}
        renumbered = np.array([number[name] for name in self.classes], dtype=np.int64)
        return renumbered[self.labels]

    def _joined_cells(self, other: Dataset) -> Cells | None:
        """Return the cells of both data sets; None if they are rows of numbers, or texts that are in no table."""
        if self.cells is None and other.cells is None:
            return None
        if self.kind == "text" and (self.cells is None or other.cells is None):
            return None
        return self.with_cells().joined(other.with_cells())

    def with_cells(self) -> Cells:
        """Return the rows as cells, also those of a table of numbers.

        Raises
        ------
        DataError
            If they are no rows, or their columns have no names.
        """
        if self.cells is not None:
            return self.cells
        if self.kind != "row" or self.array is None or not self.columns:
            what = f"{self.kind}s" if self.kind != "row" else "rows whose columns have no names"
            raise DataError(
                f"{self.name}: expected a table with the columns that the learner was fitted on, got {what}"
            )
        columns = {name: self.array[:, k].astype(object) for k, name in enumerate(self.columns)}
        return Cells(columns, why="")

    def in_columns(self, wanted: Sequence[str], taker: str) -> Dataset:
        """Return rows with their columns in the order that `taker` expects, if both have column names.

        Raises
        ------
        DataError
            If the columns differ.
        """
        if not wanted or not self.columns or self.columns == tuple(wanted) or self.array is None:
            return self
        place = {name: at for at, name in enumerate(self.columns)}
        missing = [name for name in wanted if name not in place]
        if missing:
            raise DataError(f"{self.name}: lacks {count_of(len(missing), 'column')} of {taker} ({some(missing)})")
        known = set(wanted)
        more = [name for name in self.columns if name not in known]
        if more:
            raise DataError(f"{self.name}: has {count_of(len(more), 'column')} more than {taker} ({some(more)})")
        array = self.array[:, [place[name] for name in wanted]]
        return replace(self, array=array, read=ArrayReader(array), columns=tuple(wanted))


def numbers_only(source: Source) -> Source:
    """Return a source; raise a DataError if it holds rows that are not all numbers."""
    items = source.items
    if items.kind == "row" and items.cells is not None and items.array is None:
        raise DataError(items.cells.why)
    return source


@dataclass(frozen=True, eq=False)
class Task:
    """A zero-shot retrieval task: train on some classes, choose on others, test on yet others.

    Parameters
    ----------
    name : str
        Name of the task in reports.
    train : Dataset
        Items to train on.
    validation : Dataset or None
        Items that choose the checkpoint, of classes that are held out of the training classes.
    test : Dataset
        Queries, of classes that do not occur in training. Without a gallery, each searches all others (leave one out).
    gallery : Dataset or None
        Items that the queries search, or None if they search each other; its `classes` equal those of `test`.
    protocol : str
        One sentence on the data set, its classes and items, and how they were split.
    """

    name: str
    train: Dataset
    validation: Dataset | None
    test: Dataset
    gallery: Dataset | None
    protocol: str

    @property
    def parts(self) -> dict[str, Dataset]:
        """The sets of items that there are, by their names: train, validation, test and gallery."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test, "gallery": self.gallery}
        return {name: part for name, part in parts.items() if part is not None}

    @property
    def notes(self) -> tuple[str, ...]:
        """Distinct remarks on all parts."""
        return tuple(dict.fromkeys(note for part in self.parts.values() for note in part.notes))

    def mapped(self, change: Callable[[Dataset], Dataset]) -> Task:
        """Return the task with every part changed by a function."""
        changed: dict[str, Any] = {name: change(part) for name, part in self.parts.items()}
        return replace(self, **changed)


@dataclass(frozen=True, eq=False)
class Source:
    """Contents of a source: all its items, and the part of the split that each belongs to, if there is a split.

    Parameters
    ----------
    items : Dataset
        All items.
    roles : ndarray of str, shape (n,), or None
        "train", "validation", "test", "query" or "gallery" for each item; None if the source has no split.
    split : str
        How the items were split, as a clause of the protocol sentence.
    """

    items: Dataset
    roles: NDArray[np.str_] | None = None
    split: str = ""


MANY_CHARACTERS = 2**24  # in an array with the name of the class of every item, as some functions make


def number_labels(labels: Sequence[Any] | NDArray[Any]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the names of the classes in sorted order (numbers by value), and the index of every item's class."""
    try:
        values, indices = named_classes(labels)
    except ValueError as error:
        raise DataError(str(error)) from error
    kinds = {isinstance(value, (str, bytes)) for value in values}
    if len(kinds) > 1:
        raise DataError("labels must be of one type; got text and numbers")
    names = tuple(map(class_name, values))
    if any(name.endswith("\0") for name in names):  # an array of text would drop it
        raise DataError("labels must not end with the character NUL")
    if len(indices) * max(map(len, names), default=0) > MANY_CHARACTERS:
        try:
            narrow_texts([names[i] for i in indices.tolist()], "labels")
        except ValueError as error:
            raise DataError(str(error)) from error
    return names, indices


def check_seed(seed: int) -> None:
    """Raise a DataError if a seed is not a non-negative integer."""
    if seed < 0:
        raise DataError(f"seed: expected a whole number of at least 0, got {quoted(seed)}")


def check_validation(share: float) -> None:
    """Raise a DataError if the share of the training that is held out is not one."""
    if not 0 <= share < 1:
        raise DataError(f"validation must be a share in [0, 1), got {share}")


def unseen_half(n_classes: int, seed: int) -> NDArray[np.bool_]:
    """Draw the test classes: half of all classes, rounded down."""
    check_seed(seed)
    held = np.zeros(n_classes, dtype=bool)
    held[np.random.default_rng(seed).permutation(n_classes)[: n_classes // 2]] = True
    return held


VALIDATION = 0.15  # share of the classes that is held out of many
FEW_CLASSES = 27  # below, the share is larger, because scores on few held-out classes mean little
VALIDATION_OF_FEW = 0.3
LEAST_HELD_OUT = 8  # minimum number of classes that is held out of more


def held_out_count(classes: int, fraction: float | None = None) -> int:
    """Return how many of the training classes are held out.

    By default, that is 15 % of them, but at least 8 classes, and 30 % of fewer than 27 classes.

    >>> [held_out_count(classes) for classes in (4, 20, 26, 27, 40, 100)]
    [2, 6, 8, 8, 8, 15]
    """
    if fraction is not None:
        count = round(fraction * classes)
    elif classes < FEW_CLASSES:
        count = round(VALIDATION_OF_FEW * classes)
    else:
        count = max(LEAST_HELD_OUT, round(VALIDATION * classes))
    return min(max(2, count), classes - 2)


def carve_validation(train: Dataset, fraction: float | None = None, seed: int = 0) -> tuple[Dataset, Dataset | None]:
    """Split off a validation set of held-out classes from a training set.

    Parameters
    ----------
    train : Dataset
        The training classes.
    fraction : float, optional
        Fraction of the classes to hold out, in [0, 1). Unless it is 0, at least two classes are held out. By default,
        that is 15 % of the classes, but at least 8, and 30 % of fewer than 27 classes.
    seed : int
        Seed of the generator that draws the classes.

    Returns
    -------
    train : Dataset
        The remaining training classes.
    validation : Dataset or None
        The held-out classes; None if `fraction` is 0, or there are fewer than four classes.
    """
    if fraction is not None:
        check_validation(fraction)
    n = len(train.classes)
    if fraction == 0 or n < 4:
        return train, None
    check_seed(seed)
    chosen = np.random.default_rng(seed).permutation(n)[: held_out_count(n, fraction)]
    mask = np.isin(train.labels, chosen)
    return train.subset(~mask), train.subset(mask)


def held_out_rows(labels: NDArray[np.int64], share: float, seed: int, least: int = 1) -> NDArray[np.bool_]:
    """Draw a fraction of the items of every class.

    Parameters
    ----------
    labels : ndarray of int64, shape (n,)
        Class of each item.
    share : float
        Fraction in [0, 1]; of a class of m items, `share` * m are drawn, rounded down.
    seed : int
        Seed of the generator that draws the items.
    least : int
        Minimum number of items of a class to draw and to leave; smaller classes are skipped.

    Returns
    -------
    ndarray of bool, shape (n,)
        Whether each item is drawn.
    """
    check_seed(seed)
    counts = np.bincount(labels)
    sizes = np.floor(share * counts + 1e-9).astype(np.int64)
    sizes[(sizes < least) | (counts - sizes < least)] = 0
    return _drawn_of_each(labels, sizes, np.random.default_rng(seed))


def _drawn_of_each(labels: NDArray[np.int64], sizes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw so many items of every class; return whether each item is drawn, (n,)."""
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]  # sorted by class, in random order within each class
    counts = np.bincount(labels)
    first = np.cumsum(counts) - counts
    rank = np.arange(len(labels)) - first[labels[order]]
    held = np.zeros(len(labels), dtype=bool)
    held[order] = rank < sizes[labels[order]]
    return held


def held_out_pairs(labels: NDArray[np.int64], share: float, seed: int) -> NDArray[np.bool_]:
    """Draw two items of some classes whose share is smaller than two items, so that small classes are not left out.

    An item that is held out can only be found by another of its class. Of `n` items in such classes, about `share` * n
    are drawn, rounded down to pairs, from classes that are chosen at random.

    Parameters
    ----------
    labels : ndarray of int64, shape (n,)
        Class of each item.
    share : float
        Fraction in [0, 1].
    seed : int
        Seed of the generator that draws the classes and the items.

    Returns
    -------
    ndarray of bool, shape (n,)
        Whether each item is drawn; two items or more remain of every class.
    """
    check_seed(seed)
    rng = np.random.default_rng((seed, 2))
    counts = np.bincount(labels)
    small = np.flatnonzero((counts >= 4) & (np.floor(share * counts + 1e-9) < 2))
    pairs = int(np.floor(share * counts[small].sum() / 2 + 1e-9))
    sizes = np.zeros(len(counts), dtype=np.int64)
    sizes[rng.permutation(small)[:pairs]] = 2
    return _drawn_of_each(labels, sizes, rng)


def images_once(pairs: Dataset) -> Dataset:
    """Return the set with every image once. A set of pairs repeats an image for each of its texts."""
    first: dict[str, int] = {}
    for i, name in enumerate(pairs.names):
        first.setdefault(name, i)
    if len(first) == len(pairs):
        return pairs
    return pairs.subset([*first.values()])


def some(names: Sequence[str], most: int = 5) -> str:
    """List the first few of many names."""
    shown = ", ".join(shorten(name, PATH) for name in names[:most])
    if len(names) > most:
        shown += f", ... ({len(names)} in all)"
    return shown
