"""Inspect data before training: what they contain, how they are split, and what would distort a result."""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import chain
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...labels import spelled_alike
from ...progress import counted
from ...quoting import count_of
from ..dataset import (
    UNKNOWN_CLASS,
    BadItemError,
    DataError,
    Dataset,
    Kind,
    NoClassesError,
    Task,
    held_out_count,
    some,
)
from ..items import open_items
from ..located import Named, local_source
from ..open import (
    CLOSED,
    DRAWN,
    Split,
    about_spelling,
    has_captions,
    known_names,
    of_classes,
    open_source,
    open_task,
    read_levels,
    repeated_classes,
    with_levels,
)
from .columns import remarks_on_columns, remarks_on_gallery, remarks_on_groups

T = TypeVar("T")

NO_CLASSES = (
    "These items have no classes: `nearfar index` and `search` need none, `nearfar groups` proposes some, and "
    "`nearfar label-next` chooses which items to label for a training."
)
FEW_TEST_CLASSES = 20  # with fewer test classes, scores depend strongly on which classes are drawn
FEWEST_TO_HOLD_OUT = 4  # training classes: two to hold out, and two that remain
FEW_VALIDATION_CLASSES = 5  # with fewer validation classes, so does the choice of the checkpoint
AHEAD = 1024  # items that are handed over to threads at a time
EXAMPLES = 3
SMALL_SIDE = 32  # pixels; shorter sides are of thumbnails and icons
TIMES_SMALLER = 4  # than the median, images are unlike the others
MOST_ASPECT = 8  # ratio of the sides above which the square in the center is a small part


@dataclass(frozen=True)
class Part:
    """A part of a task, with the smallest, the median and the largest number of items of a class."""

    role: str
    items: int
    classes: int
    least: int
    median: float
    most: int


@dataclass(frozen=True)
class NameCounts:
    """How many names of a level, or how many labels of sets, are in training and validation, in the test, in both."""

    level: str
    learned: int
    tested: int
    both: int

    def __str__(self) -> str:
        unseen = f", {self.both:,} of them also in training" if self.both else ""
        return f"{self.level}: {self.learned:,} in training and validation, {self.tested:,} in the test{unseen}"


@dataclass(frozen=True)
class Inspection:
    """Result of `inspect_data`.

    Parameters
    ----------
    name : str
        Name of the data.
    kind : {"image", "row", "text", "sound"}
        Type of the items.
    parts : tuple of Part
        Training, validation, test or query, and gallery; all items as one part if they cannot be made a task.
    smallest : tuple of int
        Shape (height, width, channels) of the image with the fewest pixels, (d,) of rows, (number of characters,) of
        the shortest text, or (number of samples,) of the shortest sound, 16,000 per second.
    largest : tuple of int
        Shape of the image with the most pixels, of rows, of the longest text, or of the longest sound.
    bad : tuple of str
        Names of images or sounds that cannot be decoded.
    copies : tuple of tuples of str
        Names of identical items of one class, by group; within the test, or within training and validation.
    conflicts : tuple of tuples of str
        Names of identical items of several classes, by group.
    leaked : tuple of str
        Names of test items that also occur in training or validation.
    remarks : tuple of str
        Sentences on problems, and what to do about them; empty if none was found.
    protocol : str
        The sentence that a run on these data prints; empty if they cannot be made a task.
    levels : tuple of NameCounts
        Counts of each level above the classes, or of the labels if items have sets of labels.
    numeric : bool
        Whether the items are numbers, or become numbers by a network; not a table with words, dates or gaps, which only
        `nearfar fit` reads.
    """

    name: str
    kind: Kind
    parts: tuple[Part, ...]
    smallest: tuple[int, ...]
    largest: tuple[int, ...]
    bad: tuple[str, ...]
    copies: tuple[tuple[str, ...], ...]
    conflicts: tuple[tuple[str, ...], ...]
    leaked: tuple[str, ...]
    remarks: tuple[str, ...]
    protocol: str
    levels: tuple[NameCounts, ...] = ()
    numeric: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, for a .json file."""
        return asdict(self)


@dataclass(frozen=True)
class Read:
    """Items that can be read, with the shape of each and a digest of its content."""

    items: Dataset
    shapes: list[tuple[int, ...]]
    digests: list[bytes]

    @classmethod
    def of(cls, part: Dataset) -> Read:
        """Read a part, several items of files at a time."""
        n = len(part)
        see = functools.partial(_seen, part)
        if part.kind in ("row", "text") or part.array is not None:  # threads would take longer
            seen = list(counted(map(see, range(n)), "reading", n))
        else:
            with ThreadPoolExecutor() as pool:  # what is handed over takes memory
                blocks = (pool.map(see, range(n)[start : start + AHEAD]) for start in range(0, n, AHEAD))
                seen = list(counted(chain.from_iterable(blocks), "reading", n))
        good = np.array([one is not None for one in seen])
        bad = tuple(part.names[i] for i in np.flatnonzero(~good))
        items = part if good.all() else replace(part.subset(good), bad=part.bad + bad)
        return cls(items, [one[0] for one in seen if one], [one[1] for one in seen if one])


def _seen(part: Dataset, i: int) -> tuple[tuple[int, ...], bytes] | None:
    if has_only_cells(part):
        row = [column[i] for column in part.with_cells().columns.values()]
        return (len(row),), hashlib.sha256(repr(row).encode(errors="surrogateescape")).digest()
    if part.kind == "text" and part.texts is not None:
        text = str(part.texts[i])
        return (len(text),), hashlib.sha256(text.encode(errors="surrogateescape")).digest()
    try:
        item = part.read(i)
    except BadItemError:
        return None
    return item.shape, hashlib.sha256(item.tobytes()).digest()


def has_only_cells(part: Dataset) -> bool:
    """Return whether items are rows of a table that are not all numbers."""
    return part.kind == "row" and part.cells is not None and part.array is None


class Item(NamedTuple):
    """The part, the class and the name of an item."""

    role: str
    label: str
    name: str


def inspect_data(
    source: Named,
    *,
    test: Named | None = None,
    test_classes: Sequence[str] = (),
    validation: float | None = None,
    seed: int = 0,
    split: Split = "classes",
    label: str | None = None,
    name: str | None = None,
    levels: Sequence[str] = (),
    partial: bool = False,
    skip_bad: bool = False,
) -> Inspection:
    """Read every item of a source once, and report problems for training on it.

    Parameters
    ----------
    source : str or path
        As for `open_task`.
    test : str or path, optional
        Another source to test on.
    test_classes : sequence of str
        Names of the classes to test on, or the beginnings of their names.
    validation : float, optional
        Fraction of the training classes that is held out, as for `open_task`.
    seed : int
        Seed of the generator that draws the validation classes, and the test classes if the source has no split.
    split : {"classes", "rows"}
        Whether to test on unseen classes, or on unseen items of the same classes.
    label : str, optional
        Column of a table that holds the classes. By default, `label`; in a table of rows also `class`, `target` or `y`.
    name : str, optional
        Column of a table that holds the names of its rows. By default, `name`, or a column such as `id`, `sku`,
        `item_id` or `uid` whose cells are different.
    levels : sequence of str
        Columns of a table with what each class belongs to, the finest level first.
    partial : bool
        Whether an official archive may be incomplete.
    skip_bad : bool
        Leave out rows of a table with a missing label, vector or number. Images that cannot be decoded are always left
        out and reported.

    Returns
    -------
    Inspection
        The findings.

    Raises
    ------
    DataError
        If the source cannot be opened at all.
    """
    source = local_source(source)
    test = None if test is None else local_source(test)
    of_levels = None
    if levels:
        tables = [one for one in (source, test) if one is not None]
        of_levels = read_levels(tables, label or "label", levels)
    why = ""
    try:
        how: dict[str, Any] = {"validation": validation, "split": split}
        how["pairs"] = label is None and has_captions(source)
        how |= {"label": label, "name": name, "partial": partial, "skip_bad": skip_bad, "mixed": True}
        task = readable(open_task, source, test=test, test_classes=test_classes, seed=seed, **how)
    except DataError as error:
        if test is not None or test_classes or split == "rows":
            raise
        task, why = unsplit_task(source, error, label=label, name=name, skip_bad=skip_bad)
    if of_levels is not None:
        task = with_levels(task, of_levels)
    parts = {role: Read.of(part) for role, part in parts_by_role(task, bool(why)).items() if len(part)}
    shapes = [shape for read in parts.values() for shape in read.shapes]
    groups = equal_items(parts)
    copies = [items for items in groups if of_one_class(items) and not leaks(items)]
    conflicts = [items for items in groups if not of_one_class(items)]
    found = Inspection(
        name=task.name,
        kind=task.train.kind,
        parts=tuple(measured(role, read.items) for role, read in parts.items() if len(read.items)),
        smallest=min(shapes, key=prod, default=()),
        largest=max(shapes, key=prod, default=()),
        bad=tuple(dict.fromkeys(name for read in parts.values() for name in read.items.bad)),
        copies=tuple(map(named, copies)),
        conflicts=tuple(map(named, conflicts)),
        leaked=tuple(item.name for items in groups for item in leaks(items)),
        remarks=(),
        protocol="" if why else task.protocol,
        levels=tuple(counted_names(task)),
        numeric=not has_only_cells(task.train),
    )
    shaped = remarks_on_shapes(task.train.kind, parts.values())
    columns = (*remarks_on_columns(task.train), *remarks_on_gallery(task), *remarks_on_groups(task))
    remarks = (
        why,
        *remarks_on_items(found),
        *remarks_on_classes(found, task),
        *remarks_on_sizes(found),
        *shaped,
        *columns,
    )
    return replace(found, remarks=tuple(remark for remark in remarks if remark))


def unsplit_task(source: Named, error: DataError, **columns: Any) -> tuple[Task, str]:
    """Return all items as the training part of a task, and a sentence on why they cannot be split into a task."""
    if isinstance(error, NoClassesError):
        items = readable(open_items, source, takes=("table",), **columns)
        return task_of_all(items), NO_CLASSES
    opened = readable(open_source, source, mixed=True, **columns)
    items = of_classes(opened.items, ())
    why = f"These data cannot be split for training and test: {error}."
    if 2 <= len(items.classes) < 4 and opened.roles is None and items.kind == "row" and items.texts is None:
        why += " `nearfar fit` holds out items of every class by default."
    # there is no protocol, which would contain the notes
    why += "".join(f" {note[0].upper()}{note[1:]}." for note in opened.items.notes)
    return task_of_all(items), why


def task_of_all(items: Dataset) -> Task:
    """Return a task of training items only."""
    return Task(name=items.name, train=items, validation=None, test=items.subset([]), gallery=None, protocol="")


def readable(opened: Callable[..., T], source: Named, **settings: Any) -> T:
    """Open data; if images or sounds that cannot be decoded prevent it, leave them out."""
    try:
        return opened(source, **settings)
    except BadItemError:
        return opened(source, **{**settings, "skip_bad": True})


def parts_by_role(task: Task, alone: bool) -> dict[str, Dataset]:
    """Return the parts by their roles."""
    if alone:
        return {"all": task.train}
    test_role = "test" if task.gallery is None else "query"
    return {test_role if name == "test" else name: part for name, part in task.parts.items()}


def counted_names(task: Task) -> Iterator[NameCounts]:
    """Yield the counts of each level, or of the labels in sets."""
    labels = task.train.class_labels
    if labels is None:
        return
    learned = _labels_in(task.train) + _labels_in(task.validation)
    tested = _labels_in(task.test)
    if not labels.levels:
        yield _counts("labels", {one for names in learned for one in names}, {one for names in tested for one in names})
    for level, name in list(enumerate(labels.levels))[1:]:
        yield _counts(name, {names[level] for names in learned}, {names[level] for names in tested})


def _labels_in(part: Dataset | None) -> list[tuple[str, ...]]:
    """Return the labels of each class of a part, and none of a part without items."""
    if part is None or part.class_labels is None:
        return []
    return [part.class_labels.of[part.classes[number]] for number in np.unique(part.labels)]


def _counts(level: str, learned: set[str], tested: set[str]) -> NameCounts:
    return NameCounts(level, len(learned), len(tested), len(learned & tested))


def equal_items(parts: dict[str, Read]) -> list[list[Item]]:
    """Return the groups of two or more identical items."""
    equal: dict[tuple[tuple[int, ...], bytes], list[Item]] = defaultdict(list)
    for role, read in parts.items():
        labels = [read.items.classes[label] for label in read.items.labels]
        for shape, digest, label, name in zip(read.shapes, read.digests, labels, read.items.names, strict=True):
            equal[shape, digest].append(Item(role, label, name))
    return [items for items in equal.values() if len(items) > 1]


def measured(role: str, part: Dataset) -> Part:
    """Count the items and classes of a part."""
    known = np.array([name != UNKNOWN_CLASS for name in part.classes], dtype=bool)
    counts = part.class_counts[known & (part.class_counts > 0)]
    if not len(counts):  # none of the items has a class
        return Part(role, items=len(part), classes=0, least=0, median=0, most=0)
    return Part(
        role=role,
        items=len(part),
        classes=len(counts),
        least=int(counts.min()),
        median=float(np.median(counts)),
        most=int(counts.max()),
    )


def of_one_class(items: Sequence[Item]) -> bool:
    """Return whether all items have the same class."""
    return len({item.label for item in items}) == 1


def named(items: Sequence[Item]) -> tuple[str, ...]:
    """Return the names of items, with the class of each if their classes differ."""
    if of_one_class(items):
        return tuple(item.name for item in items)
    return tuple(f"{item.name} ({item.label})" for item in items)


def leaks(items: Sequence[Item]) -> list[Item]:
    """Return the test items among identical items if others of these are in training or validation."""
    tested = [item for item in items if item.role not in ("train", "validation")]
    return tested if len(tested) < len(items) else []


def remark_on_leaks(count: int, kind: str, examples: str = "") -> str:
    """Return a remark on test items that are also in the training; "" if there are none."""
    if count == 0:
        return ""
    verb = "is" if count == 1 else "are"
    return f"{count_of(count, f'test {kind}')} {verb} also in training{examples}: scores will be too high."


def remarks_on_items(found: Inspection) -> Iterator[str]:
    """Yield remarks on single items."""
    if found.bad:
        yield (
            f"{count_of(len(found.bad), found.kind)} cannot be decoded ({some(found.bad, EXAMPLES)}): training stops "
            "at the first, unless --skip-bad leaves them out."
        )
    if found.leaked:
        yield remark_on_leaks(len(found.leaked), found.kind, f" ({some(found.leaked, EXAMPLES)})")
    if found.conflicts:
        verb = "has" if len(found.conflicts) == 1 else "have"
        yield (
            f"{count_of(len(found.conflicts), 'group')} of identical {found.kind}s {verb} several classes "
            f"({shown(found.conflicts)}): at most one of these is right."
        )
    if found.copies:
        more = sum(len(group) - 1 for group in found.copies)
        noun = "is an exact copy" if more == 1 else "are exact copies"
        yield f"{count_of(more, found.kind)} {noun} of another one of the same class ({shown(found.copies)})."


def remarks_on_shapes(kind: Kind, parts: Iterable[Read]) -> Iterator[str]:
    """Yield remarks on images that are much smaller than the others, on very long ones, and on silent sounds."""
    if kind == "sound":
        yield from _on_silence(parts)
    if kind != "image":
        return
    sides = [(shape[:2], name) for read in parts for shape, name in zip(read.shapes, read.items.names, strict=True)]
    usual = float(np.median([min(shape) for shape, _ in sides])) if sides else 0.0
    smallest = min(SMALL_SIDE, usual / TIMES_SMALLER)
    tiny = [_sized(shape, name) for shape, name in sides if min(shape) < smallest]
    long = [_sized(shape, name) for shape, name in sides if max(shape) > MOST_ASPECT * min(shape)]
    if tiny:
        verb = "is" if len(tiny) == 1 else "are"
        yield f"{count_of(len(tiny), 'image')} {verb} tiny, unlike the others ({some(tiny, EXAMPLES)})."
    if long:
        verb = "is" if len(long) == 1 else "are"
        yield (
            f"{count_of(len(long), 'image')} {verb} more than {MOST_ASPECT} times as long as wide "
            f"({some(long, EXAMPLES)}): networks see only the square in the center."
        )


def _on_silence(parts: Iterable[Read]) -> Iterator[str]:
    """Yield a remark on sounds whose samples are all 0."""
    silent = [
        name
        for read in parts
        for shape, digest, name in zip(read.shapes, read.digests, read.items.names, strict=True)
        if digest == _digest_of_silence(shape)
    ]
    if silent:
        verb = "is" if len(silent) == 1 else "are"
        names = some(silent, EXAMPLES)
        yield f"{count_of(len(silent), 'sound')} {verb} silent ({names}): silent sounds of two classes are alike."


@functools.lru_cache(maxsize=4096)
def _digest_of_silence(shape: tuple[int, ...]) -> bytes:
    return hashlib.sha256(np.zeros(shape, np.float32).tobytes()).digest()


def _sized(shape: tuple[int, ...], name: str) -> str:
    return f"{name}: {shape[1]} x {shape[0]}"


def shown(groups: Sequence[Sequence[str]]) -> str:
    """List the first few groups."""
    return some([" = ".join(group[:EXAMPLES]) for group in groups], EXAMPLES)


def remarks_on_classes(found: Inspection, task: Task) -> Iterator[str]:
    """Yield remarks on single classes; a set of labels is none, because it shares labels with others."""
    if task.train.has_label_sets:
        return
    both = repeated_classes(task.train, task.validation, task.test)
    if both and CLOSED not in task.protocol:
        known = "training" if task.validation is None else "training or validation"
        verb = "is" if len(both) == 1 else "are"
        yield (
            f"{count_of(len(both), 'class')} {verb} in {known} and in the test ({some(both, EXAMPLES)}): scores do not "
            "measure how well unseen classes are distinguished."
        )
    alike = spelled_alike(task.test.classes, known_names(task.train, task.validation))
    if alike and CLOSED not in task.protocol:
        clause = about_spelling(alike)
        yield f"{clause[0].upper()}{clause[1:]}: if they are the same classes, write their names alike."
    if task.train.are_pairs:  # an image finds its text
        return
    alone = any(part.role == "all" for part in found.parts)
    for role, part in parts_by_role(task, alone).items():
        lone = [part.classes[c] for c in np.flatnonzero(part.class_counts == 1) if part.classes[c] != UNKNOWN_CLASS]
        if lone and role in ("train", "all"):
            yield (
                f"{_with_one_item(lone, 'training class', found.kind)}: without a second one, no positive pair can be "
                "formed."
            )
        elif lone and role == "test":
            yield (
                f"{_with_one_item(lone, 'test class', found.kind)}: without a second one, there is nothing to find, "
                "and it can only be a wrong neighbor of others."
            )


def _with_one_item(classes: Sequence[str], noun: str, kind: str) -> str:
    verb = "has" if len(classes) == 1 else "have"
    return f"{count_of(len(classes), noun)} {verb} only one {kind} ({some(classes, EXAMPLES)})"


def few_test_classes(classes: int, kind: str, protocol: str) -> str:
    """Return a warning if a test on unseen classes has so few of them that its scores depend on the draw."""
    if classes >= FEW_TEST_CLASSES or CLOSED in protocol:
        return ""
    warning = f"The test has only {classes} classes, so scores depend strongly on which classes these are."
    if DRAWN in protocol:
        advice = f"use `--split rows`, which holds out {kind}s of every class instead of classes"
        warning += f" If there will be no new classes, {advice}."
    return warning


def remarks_on_sizes(found: Inspection) -> Iterator[str]:
    """Yield remarks on the numbers of items and classes."""
    roles = {part.role: part for part in found.parts}
    learned = (roles.get("train") or roles.get("all")) if found.numeric else None  # else there is no training
    tested = roles.get("test") or roles.get("query")
    if learned is not None and learned.most > 10 * learned.median:
        yield (
            f"The largest training class has {learned.most:,} {found.kind}s, but half of the classes have at most "
            f"{learned.median:g}. The default sampler, m_per_class, draws all classes equally often."
        )
    if CLOSED in found.protocol:  # all of the classes are in every part
        return
    if tested is not None and tested.most != 1:  # a photo with its texts is a class of its own
        yield few_test_classes(tested.classes, found.kind, found.protocol)
    chosen_by = roles.get("validation") if found.numeric else None
    if chosen_by is None and learned is not None and tested is not None and learned.classes < FEWEST_TO_HOLD_OUT:
        yield (
            f"There are only {learned.classes} training classes, so that none is held out to choose the checkpoint, or "
            "between a trained network and what is cheaper: `nearfar train` keeps the cheapest."
        )
    if chosen_by is not None and chosen_by.classes < FEW_VALIDATION_CLASSES:
        remark = (
            f"The validation has only {chosen_by.classes} classes, so the choice of the checkpoint is largely random"
        )
        all_classes = chosen_by.classes + (0 if learned is None else learned.classes)
        if held_out_count(all_classes, 0.5) > chosen_by.classes:
            remark += "; `--set validation=0.5` holds out half of the training classes"
        yield f"{remark}."
