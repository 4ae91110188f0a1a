"""Open data by a path or a name, as one data set or as a zero-shot task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from ..io.formats import ARCHIVES, TABLES, accepted, has_columns, is_table, reader_called, reader_of
from ..io.other_formats import advice_on_ending, mistaken
from ..io.uris import is_database, shown
from ..labels import spelled_alike
from ..numerics.types import Bools, Ints
from ..quoting import PATH, count_of, quoted
from .class_labels import ClassLabels, levels_in
from .dataset import (
    VALIDATION,
    DataError,
    DataNotFoundError,
    Dataset,
    Source,
    Task,
    carve_validation,
    check_column,
    check_validation,
    held_out_pairs,
    held_out_rows,
    numbers_only,
    some,
    unseen_half,
)
from .located import Named, local_source, refuse_remote
from .readers.files import OTHER_TARS, refuse_special

Split: TypeAlias = Literal["classes", "rows"]
DRAWN = "test classes drawn with seed"
CLOSED = "closed set: the classes of the test are those of the training"
LEFT_OUT_QUERIES = "left out (they search the documents)"
PAIR_ITEMS = 2
"""Minimum number of items of a class in the test or the validation, so that one can find another."""


def open_dataset(
    source: Named,
    *,
    classes: Sequence[str] = (),
    label: str | None = None,
    name: str | None = None,
    image_size: int | None = None,
    skip_bad: bool = False,
) -> Dataset:
    """Open all items of a source as one data set, whatever its split.

    Parameters
    ----------
    source : str or path
        As for `open_task`.
    classes : sequence of str
        Names of the classes to keep, or the beginnings of their names ("Sanskrit" keeps "Sanskrit/character01"). If
        empty, all are kept.
    label, name, image_size, skip_bad
        As for `open_task`.

    Returns
    -------
    Dataset
        The items.
    """
    return of_classes(
        open_source(source, label=label, name=name, image_size=image_size, skip_bad=skip_bad).items, classes
    )


def of_classes(items: Dataset, classes: Sequence[str]) -> Dataset:
    """Return the items of the given classes, or all if none is named, with notes on them."""
    if classes:
        items = items.only(match_classes(items, classes))
    return _noted(items, "")


def open_task(
    source: Named,
    *,
    test: Named | None = None,
    test_classes: Sequence[str] = (),
    validation: float | None = None,
    seed: int = 0,
    split: Split = "classes",
    label: str | None = None,
    name: str | None = None,
    image_size: int | None = None,
    skip_bad: bool = False,
    partial: bool = False,
    pairs: bool = False,
    mixed: bool = False,
) -> Task:
    """Open data as a zero-shot task: train on some classes, test on others.

    Parameters
    ----------
    source : str, path, or datasets.Dataset
        A folder with one folder per class, a table, an archive, or the name of a built-in data set. `docs/data.md`
        describes all that can be read, and `nearfar.io.formats.accepted()` lists it. Also the address of one, such as
        ``s3://bucket/photos``, or a `Dataset` or `DatasetDict` of Hugging Face (`nearfar.data.located`).
    test : str or path, optional
        Another source to test on. By default, the split of `source` is used; if it has none, half of its classes are
        drawn.
    test_classes : sequence of str
        Names of the classes to test on, or the beginnings of their names ("Sanskrit" takes "Sanskrit/character01" and
        the like). Without `test`, they are held out of `source`. If empty, all test classes are used.
    validation : float, optional
        Fraction of the training classes that is held out to choose the checkpoint, in [0, 1). By default, that is 15 %
        of the classes, but at least 8, and 30 % of fewer than 27 classes. Not used if the source has validation items
        of its own.
    seed : int
        Seed of the generator that draws the validation classes, and the test classes if the source has no split.
    split : {"classes", "rows"}
        Whether to test on unseen classes, or on unseen items of the same classes. "rows" is for data whose classes are
        fixed: half of the items of every class are the test items, and the fraction `validation` of the others chooses
        the checkpoint. Scores then measure how well new items of known classes are found, but not how well the model
        handles unseen classes.
    label : str, optional
        Column of a table that holds the classes. By default, `label`; in a table of rows also `class`, `target` or `y`.
        It applies to `source` and `test`, if these are tables.
    name : str, optional
        Column of a table that holds the names of its rows. By default, `name`, or a column such as `id`, `sku`,
        `item_id` or `uid` whose cells are different.
    image_size : int, optional
        Side in pixels to which every image is made square: the shorter side is resized, and the center is cropped. By
        default, images are kept as they are.
    skip_bad : bool
        Leave out images that cannot be decoded; they are counted in `protocol` and named in `notes`.
    partial : bool
        Accept an incomplete copy of an official archive, for a trial: its counts are not checked, and missing images
        are left out.
    pairs : bool
        Read images with their texts, from tables with the columns `path` and `text`. Without labels, every image forms
        its own class.
    mixed : bool
        Open a table whose columns are not all numbers, for a `nearfar.estimators.TableEncoder`. By default, that is an
        error.

    Returns
    -------
    Task
        The parts of the data, and a sentence on how they were split.

    Raises
    ------
    DataError
        If the data cannot be used; the message is one line.
    """
    how: dict[str, Any] = {"label": label, "name": name, "image_size": image_size, "skip_bad": skip_bad}
    opened, *others = _open_each(source, test, **how, partial=partial, pairs=pairs, mixed=mixed)
    is_drawn = opened.roles is None and test is None and not test_classes
    if split == "rows" or (is_drawn and opened.items.has_label_sets):  # a set is no class that can be held out
        _check_rows_split(opened, test, test_classes)
        return _split_by_rows(opened.items, validation, seed)
    validation_items: Dataset | None = None
    if others:
        validation_items = _part(opened, "validation")
        train = _part(opened, "train") or _not_in(opened, "validation")
        queries, gallery = _held_out(others[0])
        queries = queries or others[0].items
        how_split = f"tested on {others[0].items.name}"
    elif opened.roles is not None:
        train, validation_items, queries, gallery, how_split = _by_roles(opened)
    else:
        train, queries, gallery, how_split = _by_classes(opened.items, test_classes, seed)
    if test_classes and (others or opened.roles is not None):
        queries = queries.only(match_classes(queries, test_classes))
        how_split += f", classes {some(test_classes)} only"
    if validation_items is None:
        train, validation_items = carve_validation(train, validation, seed)
        if validation_items is not None:
            how_split += f"; validation classes drawn from the training classes with seed {seed}"
    return _assemble(opened.items.name, train, validation_items, queries, gallery, how_split)


def _open_each(
    source: Named, test: Named | None, *, label: str | None = None, name: str | None = None, **settings: Any
) -> list[Source]:
    """Open one or two sources, with the columns of labels and names for tables; if none is one, these are refused."""
    sources = [source] if test is None else [source, test]
    tables = [has_columns(local_source(each)) for each in sources]
    opened = []
    for each, is_of_columns in zip(sources, tables, strict=True):
        columns: dict[str, Any] = {"label": label, "name": name} if is_of_columns or not any(tables) else {}
        opened.append(open_source(each, **columns, **settings))
    return opened


def _check_rows_split(opened: Source, test: Named | None, test_classes: Sequence[str]) -> None:
    """Raise a DataError if split="rows" contradicts another argument or the split of the data."""
    detail = ""
    if test is not None:
        detail = "`test` gives other test items"
    elif test_classes:
        detail = "`test_classes` gives the test classes"
    elif opened.roles is not None:
        detail = f"{opened.items.name} is already split ({opened.split})"
    if detail:
        raise DataError(f'split="rows" holds out items of every class, but {detail}')


def _split_by_rows(items: Dataset, share: float | None, seed: int) -> Task:
    """Hold out half of the items of every class for the test, and a share of the others for validation."""
    validation = VALIDATION if share is None else share
    check_validation(validation)
    if items.has_label_sets:
        return _split_at_random(items, validation, seed)
    held = held_out_rows(items.labels, 0.5, seed)
    if not held.any():
        raise DataError(f"{items.name}: every class has only one item, so none can be held out for the test")
    train = items.subset(~held)
    chosen = held_out_rows(train.labels, validation, seed, least=PAIR_ITEMS)
    chosen |= held_out_pairs(train.labels, validation, seed)
    how_split = f"{CLOSED}, one half of the {items.kind}s of each held out with seed {seed}"
    validation_items = None
    if chosen.any():
        validation_items = train.subset(chosen)
        train = train.subset(~chosen)
        how_split += f"; validation {items.kind}s drawn from the training in the same way"
    elif validation > 0:
        how_split += f"; no validation {items.kind}s, because the classes have too few {items.kind}s"
    how_split += _divided_groups(items, held)
    return _assemble(items.name, train, validation_items, items.subset(held), None, how_split)


def _divided_groups(items: Dataset, held: Bools) -> str:
    """Return the end of a line on groups that have items on both sides of a split; "" if there are none."""
    if items.groups is None:
        return ""
    tested = np.unique(items.groups[held])
    divided = int(np.isin(tested, items.groups[~held]).sum())
    if not divided:
        return ""
    verb = "is" if divided == 1 else "are"
    of = f"{divided} of {count_of(len(tested), 'group')} in the test"
    return f"; {of} {verb} also in the training, so that the scores are not those of new groups"


def _split_at_random(items: Dataset, validation: float, seed: int) -> Task:
    """Hold out half of the items for the test, and a share of the others for validation, whatever their labels."""
    order = np.random.default_rng(seed).permutation(len(items))
    test, rest = np.split(order, [len(order) // 2])
    held, train = np.split(rest, [round(validation * len(rest))])
    if min(len(test), len(train)) < 2:
        raise DataError(f"{items.name}: expected at least 4 items to hold out half of them, got {len(items)}")
    how_split = f"items with sets of labels, one half held out with seed {seed}"
    parts = [items.subset(np.sort(part)) for part in (train, held, test)]
    validation_items = parts[1] if len(held) else None
    return _assemble(items.name, parts[0], validation_items, parts[2], None, how_split)


def read_levels(tables: Sequence[str], label: str, levels: Sequence[str]) -> ClassLabels:
    """Return what the classes of tables belong to, which their columns name.

    Raises
    ------
    DataError
        If a table has no such column, a cell is empty, or two levels contradict each other.
    """
    from .readers.manifest import read_columns

    found: ClassLabels | None = None
    for table in tables:
        columns = read_columns(table)
        try:
            read = levels_in(Path(table), columns, label, levels)
        except ValueError as error:
            raise DataError(str(error)) from error
        found = read.joined(found)
    assert found is not None
    return found


def with_levels(task: Task, levels: ClassLabels) -> Task:
    """Return a task whose classes belong to levels."""
    unused = f"; columns not used: {some(levels.levels[1:], 3)}"  # as features, where they were not known as levels
    task = replace(task, protocol=task.protocol.replace(unused, ""))
    return task.mapped(lambda part: replace(part, class_labels=levels))


def with_pairs(task: Task, table: Named, *, skip_bad: bool = False) -> Task:
    """Return a task whose parts know the pairs that a table lists by the names of items.

    `skip_bad` leaves out pairs of an item with itself as different.

    Raises
    ------
    DataError
        If the table cannot be read, or names an item that is in no part of the task.
    """
    from .readers.pair_tables import listed_in

    names = [name for part in task.parts.values() for name in part.names]
    listed, note = listed_in(local_source(table), names, skip_bad=skip_bad)
    begin = 0
    found: dict[str, Any] = {}
    for name, part in task.parts.items():
        chosen = np.arange(begin, begin + len(part))
        begin += len(part)
        found[name] = replace(part, listed=listed.subset(chosen, len(names)))
    return replace(task, **found, protocol=f"{task.protocol[:-1]}; {note}.")


def open_whole(source: Named, *, test: Named | None = None, **how: Any) -> Task:
    """Open data to train on all of them, including those of `test`; `how` are other arguments of `open_source`.

    The test items of this task are its training items, so that its scores do not measure new items.
    """
    opened, *others = _open_each(source, test, **how)
    items = opened.items
    for other in others:
        items = items.joined(other.items)
    if len(items.classes) < 2:
        raise DataError(f"{items.name}: expected 2 training classes or more, got {len(items.classes)}")
    items = _noted(items, "training ")
    clauses = [f"{_size(items)}, all for training and none for a test", *items.notes]
    return Task(
        name=items.name,
        train=items,
        validation=None,
        test=items,
        gallery=None,
        protocol=f"{items.name}: {'; '.join(clauses)}.",
    )


def open_source(
    source: Named,
    *,
    label: str | None = None,
    name: str | None = None,
    group: str | None = None,
    image_size: int | None = None,
    skip_bad: bool = False,
    partial: bool = False,
    pairs: bool = False,
    mixed: bool = False,
) -> Source:
    """Open a source with the reader of its format.

    `group` names the column of the groups in a table. `pairs` reads a table of images with their texts. `mixed` accepts
    a table whose columns are not all numbers.
    """
    source = local_source(source)
    if image_size is not None and image_size < 1:
        raise DataError(f"image_size: expected a side of at least 1 pixel, got {quoted(image_size)}")
    check_column(source, "label", label)
    check_column(source, "name", name)
    settings = {"label": label, "name": name, "image_size": image_size, "skip_bad": skip_bad}
    read = _read_already.get()
    if read is None:
        read = {}  # for this call alone
    key = (source, group, partial, pairs, *settings.values())
    if key not in read:
        read[key] = _read_source(source, settings, group=group, partial=partial, pairs=pairs)
    return read[key] if mixed else numbers_only(read[key])


_read_already: ContextVar[dict[tuple[Any, ...], Source] | None] = ContextVar("_read_already", default=None)


@contextmanager
def reading_once() -> Iterator[None]:
    """Read a source once, however often it is opened with the same settings in this block.

    A command opens its data to plan a training, to compare what is cheaper, and to train. They stay in memory until the
    end of the block.

    >>> with reading_once():
    ...     open_source("digits") is open_source("digits")
    True
    """
    if _read_already.get() is not None:
        yield
        return
    token = _read_already.set({})
    try:
        yield
    finally:
        _read_already.reset(token)


def _read_source(source: str, settings: Mapping[str, Any], *, group: str | None, partial: bool, pairs: bool) -> Source:
    """Read a source as `open_source` does."""
    if pairs or group is not None:
        return _table_in(source, settings, group=group, pairs=pairs)
    called = reader_called(source)
    if called is None:
        return _open_path(source, settings)
    reader, path = called
    if not (partial and reader.prefix):
        whole: Source = reader.read(path, **settings)
        return whole
    opened: Source = reader.read(path, **settings, expected=None)
    return replace(opened, split=f"{opened.split}, of a possibly incomplete archive")


def has_captions(source: str) -> bool:
    """Return whether a source is a table of images with a text each, and without classes."""
    from .readers.manifest import LABELS, SETS, read_columns

    if not has_columns(source) or not Path(source).exists() or Path(source).is_dir():
        return False
    columns = {*read_columns(source)}
    return {"path", "text"} <= columns and not columns & {*LABELS[:2], SETS}


def _table_in(source: str, settings: Mapping[str, Any], *, group: str | None, pairs: bool) -> Source:
    """Open a table with the groups of its items from a given column, or of images with their texts."""
    from .readers.manifest import read_manifest

    wrong = ""
    if group is not None and not is_table(source):
        wrong = "grouping by a column needs a table"
    elif pairs and not has_columns(source):
        wrong = "has images without texts; for pairs, give a table with the columns path and text"
    if wrong:
        raise DataError(f"{quoted(source, PATH)}: {wrong}, {', '.join(TABLES)}")
    path = Path(source)
    if not path.exists():
        raise DataNotFoundError(f"{quoted(source, PATH)}: no such table")
    return read_manifest(path, **settings, group=group, pairs=pairs)


def _open_path(source: str, settings: Mapping[str, Any]) -> Source:
    """Open a file or a folder with the reader that recognizes it."""
    if is_database(source):  # which may hold a password
        raise DataError(f"{shown(source)} is an index; expected {accepted()}")
    path = Path(source)
    if not path.exists():
        raise DataNotFoundError(
            f"{quoted(source, PATH)} is neither a file, a folder nor a known name; expected {accepted()}"
        )
    refuse_special(path)
    if path.name.endswith(OTHER_TARS):
        raise DataError(f"{path}: unpack it first (tar xf {path.name}) and give the folder")
    reader = reader_of(path)
    if reader is None:
        what = mistaken(path) if path.is_file() else ""
        if what or advice_on_ending(path):
            raise DataError(f"{source}: {what or f'files of this type are not read; {advice_on_ending(path)}'}")
        raise DataError(f"{source}: unknown file type; expected {accepted()}")
    opened: Source = reader.read(source, **settings)
    return opened


def resolve_source(source: str, folder: Path | None) -> str:
    """Return a recorded source. A relative path that does not exist in the current folder refers to `folder`."""
    refuse_remote(source)
    kind, _, path = source.partition(":")
    prefix = f"{kind}:" if kind in ARCHIVES and path else ""
    path = source.removeprefix(prefix)
    if folder is None or Path(path).exists() or not (folder / path).exists():
        return source
    return f"{prefix}{folder / path}"


def match_classes(items: Dataset, wanted: Sequence[str]) -> list[str]:
    """Return the classes to which names refer: a class, those below it ("A/b" for "A"), or all with this prefix.

    Each class is returned once, in the order of the names.
    """
    if isinstance(wanted, str):
        raise DataError(f"classes: expected a list of names, got {quoted(wanted)}; put it in brackets")
    matched: list[str] = []
    for name in wanted:
        if name in items.classes:
            matched.append(name)
            continue
        below = [c for c in items.classes if c.startswith(name.rstrip("/") + "/")]
        beginning = below or [c for c in items.classes if c.startswith(name)]
        if not beginning:
            raise DataError(
                f"{items.name} has no class named {quoted(name)} or beginning with it; it has {some(items.classes)}"
            )
        matched += beginning
    return list(dict.fromkeys(matched))


def _part(opened: Source, *roles: str) -> Dataset | None:
    if opened.roles is None or not np.isin(opened.roles, roles).any():
        return None
    return opened.items.subset(np.isin(opened.roles, roles))


def _not_in(opened: Source, role: str) -> Dataset:
    """Return the items of all parts but one."""
    if opened.roles is None:
        return opened.items
    return opened.items.subset(opened.roles != role)


def _held_out(opened: Source) -> tuple[Dataset | None, Dataset | None]:
    """Return the test items or queries, and the gallery that they search, if any."""
    queries = _part(opened, "test", "query")
    gallery = _part(opened, "gallery")
    if gallery is None and _part(opened, "query") is not None:
        advice = "mark the items to search as gallery, or all of them as test items that search each other"
        raise DataError(f"{opened.items.name}: has queries but no gallery; {advice}")
    return queries, gallery


def _by_roles(opened: Source) -> tuple[Dataset, Dataset | None, Dataset, Dataset | None, str]:
    train = _part(opened, "train")
    validation = _part(opened, "validation")
    queries, gallery = _held_out(opened)
    split = opened.split
    if queries is None:
        queries = validation
        validation = None
        split += "; its validation items are the test"
    if train is None or queries is None:
        roles = sorted(set(np.asarray(opened.roles).tolist()))
        raise DataError(f"{opened.items.name}: expected items for train and for test, got only {', '.join(roles)}")
    return train, validation, queries, gallery, split


def _by_classes(items: Dataset, test_classes: Sequence[str], seed: int) -> tuple[Dataset, Dataset, None, str]:
    n = len(items.classes)
    if test_classes:
        held = np.isin(items.classes, match_classes(items, test_classes))
        split = f"classes {some(test_classes)} held out for the test"
    else:
        held = drawn_classes(items, seed)
        split = f"{DRAWN} {seed}"
    tested = int(np.count_nonzero(held))
    if min(tested, n - tested) < 2:
        raise DataError(f"{items.name}: {_why_not_by_classes(n, tested if test_classes else None)}")
    mask = held[items.labels]
    return items.subset(~mask), items.subset(mask), None, split


def drawn_classes(items: Dataset, seed: int) -> Bools:
    """Return which classes of a data set are drawn for the test."""
    held = unseen_half(len(items.classes), seed)
    if items.are_pairs or items.has_label_sets:  # an image finds its text, and a set a label in common
        return held
    return with_several_items(items.class_counts, held, seed)


def with_several_items(counts: Ints, held: Bools, seed: int) -> Bools:
    """Return which classes are held out, so that training and test both have classes of several items.

    A draw is kept if it gives each side two such classes, or as many as there are. Else classes of several items are
    drawn first, and those of one item fill the test up to one half of all classes.

    >>> counts = np.array([1, 1, 5, 1, 1, 5])
    >>> held = with_several_items(counts, (counts > 1) | (np.arange(6) < 1), seed=0)
    >>> int(held.sum()), int(held[counts > 1].sum())
    (3, 1)
    """
    several = np.flatnonzero(counts > 1)
    tested = int(held[several].sum())
    if tested >= min(2, len(several) // 2) and len(several) - tested >= min(2, (len(several) + 1) // 2):
        return held
    found = np.zeros_like(held)
    found[several] = unseen_half(len(several), seed)
    alone = np.flatnonzero(counts <= 1)
    order = np.random.default_rng(seed).permutation(len(alone))
    found[alone[order[: len(counts) // 2 - int(found.sum())]]] = True
    return found


def _why_not_by_classes(n: int, tested: int | None) -> str:
    """Return why n classes cannot be split into training and test classes; `tested` is the number of given ones."""
    if tested is not None:
        return f"expected 2 or more classes for the test and for training, got {tested} and {n - tested}"
    why = f"{count_of(n, 'class')}, but holding out classes needs 4 or more: 2 for training and 2 for the test"
    if n == 1:
        return why
    return f"{why}; to hold out items of every class, pass split='rows'"


def _assemble(
    name: str, train: Dataset, validation: Dataset | None, test: Dataset, gallery: Dataset | None, split: str
) -> Task:
    if len(train.classes) < 2:
        raise DataError(f"{name}: expected 2 training classes or more, got {len(train.classes)}")
    test = test.in_columns(train.columns, "the training")
    if validation is not None:
        validation = validation.in_columns(train.columns, "the training")
    if gallery is not None:
        test, gallery = same_classes(test, gallery.in_columns(train.columns, "the training"))
    train = _noted(train, "training ")
    test = _noted(test, "test ")
    if gallery is None:
        both = queries_and_documents(test)
        if both is not None:
            test, gallery = same_classes(*both)
    test_role = "test" if gallery is None else "query"
    parts = [("train", train), ("validation", validation), (test_role, test), ("gallery", gallery)]
    clauses = [", ".join(f"{role} {_size(part)}" for role, part in parts if part is not None), split]
    if test.has_label_sets:
        clauses.append(about_labels(train, validation, test))
    elif not split.startswith(CLOSED):
        clauses += _about_known_classes(train, validation, test)
    clauses.extend(dict.fromkeys(note for _, part in parts if part is not None for note in part.notes))
    return Task(
        name=name,
        train=train,
        validation=validation,
        test=test,
        gallery=gallery,
        protocol=f"{name}: {'; '.join(filter(None, clauses))}.",
    )


def _about_known_classes(train: Dataset, validation: Dataset | None, test: Dataset) -> list[str]:
    """Return clauses on classes of the test that training or validation have, too, under this name or nearly."""
    clauses = []
    shared = repeated_classes(train, validation, test)
    if shared:
        known = "training and test" if validation is None else "training or validation and in the test"
        verb = "occurs" if len(shared) == 1 else "occur"
        clauses.append(f"NOT zero-shot: {count_of(len(shared), 'class name')} {verb} in {known} ({some(shared, 3)})")
    alike = spelled_alike(test.classes, known_names(train, validation))
    if alike:
        clauses.append(f"perhaps NOT zero-shot: {about_spelling(alike)}")
    return clauses


def queries_and_documents(items: Dataset) -> tuple[Dataset, Dataset] | None:
    """Return the queries of a table of queries and documents, and the documents that they search; None of others."""
    if items.asks is None or items.listed is None:
        return None
    queries = np.flatnonzero(items.asks)
    documents = np.flatnonzero(~items.asks)
    across = items.listed.subset(np.append(queries, documents), len(items))
    if across is not None:
        across = replace(across, asks=None, searched=len(documents))
    return replace(items.subset(queries), listed=across), replace(items.subset(documents), listed=None)


def documents_of(items: Dataset) -> Dataset:
    """Return the documents of a table of queries and documents, with a note; other items as they are."""
    both = queries_and_documents(items)
    if both is None:
        return items
    queries, documents = both
    note = f"{count_of(len(queries), 'query', 'queries')} {LEFT_OUT_QUERIES}"
    return replace(documents, notes=(*documents.notes, note))


def queries_of(items: Dataset) -> Dataset:
    """Return the queries of a table of queries and documents; other items as they are."""
    both = queries_and_documents(items)
    return items if both is None else both[0]


def repeated_classes(train: Dataset, validation: Dataset | None, test: Dataset) -> list[str]:
    """Return the classes of the test that also occur in training or validation."""
    return sorted(known_names(train, validation) & set(test.classes))


def about_labels(train: Dataset, validation: Dataset | None, test: Dataset) -> str:
    """Return a clause on how many labels in the sets of the test are those of the training."""
    known = labels_in_sets(train) | labels_in_sets(validation)
    tested = labels_in_sets(test)
    there = len(known & tested)
    if there == 0:
        return "none of the labels of the test is in training or validation"
    verb = "is" if there == 1 else "are"
    return (
        f"not zero-shot: {there:,} of the {count_of(len(tested), 'label')} of the test {verb} in training or validation"
    )


def labels_in_sets(part: Dataset | None) -> set[str]:
    """Return all labels in the sets of some items."""
    if part is None or part.class_labels is None:
        return set()
    return {label for name in part.classes for label in part.class_labels.of[name]}


def known_names(train: Dataset, validation: Dataset | None) -> set[str]:
    """Return the names of the classes of training and validation."""
    return {*train.classes, *(() if validation is None else validation.classes)}


def about_spelling(alike: Sequence[tuple[str, str]]) -> str:
    """Return a clause on test classes whose names are those of training classes in another spelling."""
    examples = [f"{quoted(name)} like {quoted(other)}" for name, other in alike[:3]]
    more = ", ..." if len(alike) > 3 else ""
    verb = "is" if len(alike) == 1 else "are"
    count = count_of(len(alike), "test class")
    return f"{count} {verb} spelled almost like classes of the training ({', '.join(examples)}{more})"


def same_classes(test: Dataset, gallery: Dataset) -> tuple[Dataset, Dataset]:
    """Number the labels of both data sets by the union of their classes."""
    classes = tuple(dict.fromkeys(test.classes + gallery.classes))
    both = [replace(part, labels=part.labels_among(classes), classes=classes) for part in (test, gallery)]
    return both[0], both[1]


def _size(part: Dataset) -> str:
    occurring = int((part.class_counts > 0).sum())
    classes = "different sets of labels" if part.has_label_sets else "classes"
    return f"{len(part):,} {part.kind}s of {occurring:,} {classes}"


def _noted(items: Dataset, what: str) -> Dataset:
    """Return the items with notes on classes of one item and on images that could not be decoded."""
    notes = list(items.notes)
    lone = [items.classes[c] for c in np.flatnonzero(items.class_counts == 1)]
    if lone and not items.are_pairs and not items.has_label_sets:  # an image finds its text, a set a label in common
        notes.append(f"{count_of(len(lone), f'{what}class')} with only one {items.kind} ({some(lone, 3)})")
    if items.bad:
        count = count_of(len(items.bad), f"undecodable {items.kind}")
        notes.append(f"{count} left out of {items.name} ({some(items.bad, 3)})")
    return replace(items, notes=tuple(dict.fromkeys(notes)))
