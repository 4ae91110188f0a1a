"""Fit a learner of the catalog on rows or on the pixels of images, save it, and score it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..catalog import BY_NAME, missing
from ..data import Task, open_task
from ..data.checks.columns import remarks_on_row_numbers, remarks_on_telling_columns, scale_warning
from ..data.checks.inspection import few_test_classes, remark_on_leaks
from ..data.checks.training_items import among, marks_of
from ..data.dataset import check_seed
from ..data.items import flat_rows
from ..data.located import Named, local_source
from ..data.open import open_source, open_whole
from ..data.table_columns import TableColumns
from ..estimators import TableEncoder
from ..estimators.mahalanobis import Mahalanobis
from ..evaluation import best_distance
from ..expressions import Call, ExpressionError, Node, is_plain, parse, plain, settings_of, shown
from ..io.sources import SourceKind, kind_by_name
from ..models.embedded import are_measurements, reconstruction, recorded_distance
from ..numerics.standard_columns import standard, standardized
from ..progress import stage
from ..train.rungs.closed_forms import best_form

if TYPE_CHECKING:
    from ..data import Dataset, Task
    from ..numerics.types import AnyArray

AUTO = "auto"
EXPECTED = "a learner such as 'GMML(t=0.3)'"
ENOUGH = 4  # minimum number of classes to hold some out: two to learn from and two to test on


def fit(
    data: Named,
    text: str,
    out: str | Path,
    *,
    test: str | None = None,
    test_classes: Sequence[str] = (),
    split: Literal["classes", "rows"] = "classes",
    label: str | None = None,
    name: str | None = None,
    standardize: bool = False,
    distance: str | None = None,
    seed: int = 0,
    skip_bad: bool = False,
    final: bool = False,
) -> str:
    """Fit and save a learner. Return the table of its scores on the test classes, or one line if it is final.

    Parameters
    ----------
    data : str, path, or datasets.Dataset
        Source of the items, as for `nearfar.data.open_task`.
    text : str
        The learner with its settings, such as "GMML(t=0.3)". "auto" is `nearfar.AutoMetric`, which holds out what the
        test holds out: rows or classes.
    out : str or Path
        The .safetensors file to write.
    test, test_classes, split, label, name, seed, skip_bad
        As for `nearfar.data.open_task`.
    standardize : bool
        Standardize each column, for linear learners only.
    distance : {"cosine", "euclidean"}, optional
        Distance of the learner. By default, the one by which the training rows compare best.
    final : bool
        Fit on all items, without a test.
    """

    from .scoring import score_learner

    data = local_source(data)
    out = Path(out)
    if kind_by_name(out) is SourceKind.EMBEDDINGS:  # the other commands would read a file of this name as embeddings
        raise ValueError(f"out: {out}: expected a file that ends in .safetensors")
    if text == AUTO:
        text = f"AutoMetric(hold_out={split!r})"
    learner = make_learner(text, seed)
    if standardize:
        check_linear(learner)
    how: dict[str, Any] = {"label": label, "name": name, "skip_bad": skip_bad}
    if final:
        opened = open_whole(data, mixed=True, **how)
    else:
        opened = task_to_fit(data, test=test, test_classes=test_classes, split=split, seed=seed, **how)
    task, encoder = encoded_task(opened)
    X = flat_rows(task.train)
    deviations: AnyArray | None
    with stage("fitting"):
        if standardize:
            deviations = fit_standardized(learner, X, task.train)
        else:
            learner.fit(X, task.train.labels, **groups_for(learner, task.train))
            deviations = deviations_of(task.train, X)
    set_columns(learner, task.train.columns, encoder)
    if read_as := TableColumns(label, name).given():
        learner.table_columns_ = read_as
    learner.distance_of_rows_ = distance_of_rows(data, task.train, X, standardize=standardize)
    choice = set_distance(learner, distance)
    learner.save(out)
    marks = marks_of(task.train, task.validation, final=final)
    marks.add_to(out)
    about = f"{task.protocol}{reconstruction(learner, task.train, 'training items')}{choice_of(learner)} {choice}"
    about += lines_on(encoder)
    if final:
        return f"{about}\nSaved {out}: a final model, which cannot be scored; fit without --final to get a score."
    with stage("choosing a closed form"):
        form = best_form(
            X,
            task.train.labels,
            groups=task.train.groups,
            asks=task.train.asks,
            of_table=task.train.kind == "row",
            seed=seed,
        )
    scored = score_learner(learner, task.test, task.gallery, deviations, form, standardized=standardize)
    remarks = [few_test_classes(int(np.count_nonzero(task.test.class_counts)), task.test.kind, task.protocol)]
    remarks += remarks_on_row_numbers(opened.train)
    remarks += remarks_on_telling_columns(opened.train)
    remarks.append(remark_on_leaks(int(among(marks, task.test).sum()), task.test.kind))
    if is_linear(learner) and not standardize:
        remarks.append(scale_warning(task.train))
    listed = [f"- {remark}" for remark in remarks if remark]
    if listed:
        listed.insert(0, "")
    return "\n".join([about, scored, *listed, "", f"Saved {out}"])


def encoded_task(task: Task) -> tuple[Task, TableEncoder | None]:
    """Return the task with tables as rows of numbers, and what encoded them; it is fitted to the training rows."""
    if all(part.cells is None for part in task.parts.values()):
        return task, None
    encoder = TableEncoder().fit(task.train)
    return task.mapped(encoder.encoded), encoder


def set_columns(learner: Any, columns: Sequence[str], encoder: TableEncoder | None) -> None:
    """Let a fitted learner know the names of its columns, and what encodes tables for it."""
    if columns:
        learner.feature_names_in_ = np.array(columns, dtype=object)
    if encoder is not None:
        learner.table_encoding_ = encoder.as_plain()


def choice_of(learner: Any) -> str:
    """Return a sentence on what an `AutoMetric` chose; "" for other learners."""
    if not hasattr(learner, "fold_scores_"):
        return ""
    means = {name: float(np.mean(scores)) for name, scores in learner.fold_scores_.items() if scores}
    if not means:
        return (
            f" {type(learner).__name__} chose {learner.chosen_}, as no part of the rows could be held out for a score."
        )
    shown = ", ".join(f"{name} {mean:.3f}" for name, mean in sorted(means.items(), key=lambda one: -one[1]))
    how = learner.chosen_by_
    if learner.hold_out == "classes" and "rows" in how:
        how += ", as there are too few classes to hold any out"
    if max(means.values()) > means[learner.chosen_]:
        shown += " (not better by more than one standard error)"
    return f" {type(learner).__name__} chose {learner.chosen_} by {how}: {shown}."


def lines_on(encoder: TableEncoder | None) -> str:
    """Return lines on what became of the columns of a table; "" if they are numbers."""
    if encoder is None:
        return ""
    lines = [*encoder.describe().splitlines(), *encoder.remarks_]
    return "\n\nColumns:\n" + "\n".join(f"- {line}" for line in lines)


def distance_of_rows(data: str, items: Dataset, rows: AnyArray, *, standardize: bool) -> str:
    """Return the distance by which training rows are compared without a learner.

    It is Euclidean for measurements and for standardized columns, whose cosine would depend on their means; else the
    one that their file states, or by which the rows compare best.
    """
    if standardize or are_measurements(items):
        return "euclidean"
    recorded = recorded_distance(Path(data))
    if recorded:
        return recorded
    with stage("choosing the distance"):
        return best_distance(rows, items.labels, groups=items.groups)


def set_distance(learner: Any, asked: str | None) -> str:
    """Set the distance of a fitted learner; return a sentence on why it is this one."""
    if asked is not None:
        learner.set_distance(asked)
        return f"Compared by {asked} distance, the one of --distance."
    if learner.distance_ != "euclidean":  # all other learners leave the choice to the rows
        return f"Compared by {learner.distance_} distance, for which {type(learner).__name__} is made."
    learner.set_distance(learner.distance_of_rows_)
    return f"Compared by {learner.distance_} distance, as the training rows before the learner."


def task_to_fit(
    data: str, *, test: str | None, test_classes: Sequence[str], split: Literal["classes", "rows"], **how: Any
) -> Task:
    """Open the data and split it: by classes, or into halves of each class if there are too few classes."""
    task = halves(data, **how) if test is None and not test_classes and split == "classes" else None
    return task or open_task(data, test=test, test_classes=test_classes, split=split, validation=0.0, mixed=True, **how)


def is_linear(learner: Any) -> bool:
    """Return whether the distances of a learner depend on its components only."""
    return isinstance(learner, Mahalanobis) and not learner._matrices and not getattr(learner, "normalize", False)


def check_linear(learner: Any) -> None:
    """Raise a ValueError if a learner is not linear."""
    if not is_linear(learner):
        raise ValueError(
            f"standardize: {type(learner).__name__} is not a linear learner; standardize the rows beforehand"
        )


def groups_for(learner: Any, items: Dataset) -> dict[str, Any]:
    """Return the groups of items as an argument of `fit`, for a learner that holds out groups."""
    if items.groups is None or "groups" not in signature(learner.fit).parameters:
        return {}
    return {"groups": items.groups}


def deviations_of(items: Dataset, X: AnyArray) -> AnyArray | None:
    """Return the standard deviations of columns of measurements; None if they are encoded, or are no measurements."""
    if items.cells is not None or not are_measurements(items):
        return None
    return standard(X)[1]


def fit_standardized(learner: Any, X: AnyArray, items: Dataset) -> AnyArray:
    """Fit a linear learner on standardized columns, and rescale its components for the original columns.

    Returns
    -------
    ndarray of shape (d,)
        Standard deviations of the columns.
    """
    rows, mean, scale = standardized(X)
    learner.fit(rows, items.labels, **groups_for(learner, items))
    learner.components_ = learner.components_ / scale
    learner.column_scale_ = scale  # for the report, which fits it again
    if hasattr(learner, "mean_"):  # L ((x - m) / s - mean) = L / s (x - (m + s mean))
        learner.mean_ = mean + scale * learner.mean_
    if hasattr(learner, "view_components_"):  # parts of the components, which need the same scale
        scales = np.split(scale, np.cumsum(learner.view_sizes_)[:-1])
        learner.view_components_ = [L / part for L, part in zip(learner.view_components_, scales, strict=True)]
    return scale


def halves(
    data: str, seed: int, label: str | None = None, name: str | None = None, skip_bad: bool = False
) -> Task | None:
    """Return a task that learns from one half of every class; None if there are enough classes to hold some out."""
    source = open_source(data, label=label, name=name, skip_bad=skip_bad, mixed=True)
    items = source.items
    if source.roles is not None or len(items.classes) >= ENOUGH:
        return None
    check_seed(seed)
    order = np.random.default_rng(seed).permutation(len(items))
    order = order[np.argsort(items.labels[order], kind="stable")]
    what = f"{items.name}: {len(items):,} {items.kind}s of {len(items.classes)} classes, too few to hold any out"
    how = f"one half of each class is for learning, the other for the test (seed {seed})"
    notes = "".join(f"; {note}" for note in items.notes)
    protocol = f"{what}; {how}{notes}."
    learned, tested = (items.subset(np.sort(half)) for half in (order[::2], order[1::2]))
    return Task(name=items.name, train=learned, validation=None, test=tested, gallery=None, protocol=protocol)


def make_learner(text: str, seed: int = 0) -> Any:
    """Build a learner from text; the text is parsed, never run as code.

    Parameters
    ----------
    text : str
        Such as "LMNN(n_neighbors=5)"; a setting may be another learner.
    seed : int
        `random_state` of learners that have this setting, unless the text sets it.

    Raises
    ------
    ValueError
        For anything but names of learners and keyword literals.
    """
    try:
        return _built(parse(text, EXPECTED), seed)
    except ExpressionError as error:
        raise ValueError(f"LEARNER: {error}") from error


def _built(node: Node, seed: int) -> Any:
    if not isinstance(node, Call):
        raise ExpressionError(f"{shown(str(node))} is not {EXPECTED}")
    make = _found(node.name)
    takes = signature(make).parameters
    settings = settings_of(node, takes, lambda value: plain(value) if is_plain(value) else _built(value, seed))
    drawn = {"random_state": seed} if "random_state" in takes else {}
    return make(**drawn | settings)


def _found(name: str) -> Any:
    """Return a class of the catalog that fits and transforms."""
    method = BY_NAME.get(name)
    if method is None:
        raise ExpressionError(missing(name))
    if method.takes == "targets":
        raise ExpressionError(f"{name} learns from numbers, not from classes; use {name}().fit(X, y) in Python")
    found = getattr(import_module(method.module), name)
    if not all(hasattr(found, verb) for verb in ("fit", "transform", "save")):
        if method.kind == "wrapper":
            where = "Python"
        else:
            where = "`nearfar train --objective` or Python"
        raise ExpressionError(f"{name} is a {method.kind}, not a learner; use it in {where}")
    return found
