"""Closed forms: linear maps of features that are fitted in seconds, one of which is chosen on held-out classes.

    z = L (x / |x| - mean),   compared by cosine

x are the features of a pretrained trunk, or the items themselves, whose columns may be standardized before. Which L
helps depends on the features: on photographs a whitening within the classes, on texts a point near the whitening on the
geodesic to the scatter between them, on tables that columns have one scale, or the inverse covariance within classes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numerics import mahalanobis, psd, scatter
from ...numerics.constraints import LabelPairs
from ...numerics.standard_columns import standard
from ...numerics.types import AnyArray, Array, Ints
from ...numerics.whitening import discriminant_whitening, unit_rows
from .class_scores import part_of, search

CHOOSING_SPLITS = 4  # of the classes into halves; each two hold out one half and then the other
MAX_WIDTH = 2048  # number of features up to which a form is chosen: they take d^3 multiplications
GEODESIC_POINTS = (0.1, 0.3)
PRIOR = 0.1  # weight of the prior of `GMML`, in units of the mean eigenvalue of the similar scatter
MAX_ROWS = 3000  # rows that choose a form; all of them fit the one that is chosen
FEWEST_FOR_FORMS = 4  # two to fit a form to, and two to score it on


class Columns(NamedTuple):
    """Mean and standard deviation of columns, (d,) each, by which rows are standardized."""

    mean: Array
    deviation: Array

    def __call__(self, rows: AnyArray) -> Array:
        """Return the standardized rows, (n, d)."""
        standardized: Array = (np.asarray(rows, dtype=np.float64) - self.mean) / self.deviation
        return standardized


class LinearMap(NamedTuple):
    """z = L (x / |x| - mean): the mean (d,) and L, the components (k, d); x may be standardized by its columns."""

    mean: Array
    components: Array
    columns: Columns | None = None

    def __call__(self, rows: AnyArray) -> Array:
        """Return the mapped rows, (n, k), which are compared by cosine."""
        rows = np.asarray(rows, dtype=np.float64) if self.columns is None else self.columns(rows)
        mapped: Array = (unit_rows(rows) - self.mean) @ self.components.T
        return mapped


class RowsOfClasses:
    """Rows (n, d) of unit length with class codes (n,), to which several forms are fitted.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Rows of any length.
    labels : ndarray of shape (n,)
        Their classes.
    standardized : bool
        Standardize the columns before the rows get unit length.
    """

    def __init__(self, rows: AnyArray, labels: Ints, *, standardized: bool = False) -> None:
        rows = np.asarray(rows, dtype=np.float64)
        self.columns = Columns(*standard(rows)) if standardized else None
        self.X = unit_rows(rows if self.columns is None else self.columns(rows))
        self.labels = np.unique(labels, return_inverse=True)[1]

    @cached_property
    def factors(self) -> dict[float, Array]:
        """L (d, d) of `GMML` at several points of the geodesic, from one eigendecomposition.

        If there are more features than rows, it is that of the rows' span: outside of it, both scatters are lam I with
        lam = reg tr(S) / d, so that L is lam^(t - 1/2) I there.
        """
        d = self.X.shape[1]
        Z = self.X - self.X.mean(axis=0)
        basis = scatter.data_span(Z) if d > len(Z) else np.eye(d)  # (r, d)
        S, D = scatter.pair_scatters(Z @ basis.T, LabelPairs(self.labels, "pairs")).mean()
        lam = PRIOR * (float(np.trace(S)) / d or 1.0)
        prior = lam * np.eye(len(basis))
        outside = np.eye(d) - basis.T @ basis
        found = psd.sharp_factors(S + prior, D + prior, GEODESIC_POINTS) if len(basis) else [S, S]
        return {
            t: basis.T @ L @ basis + lam ** (t - 0.5) * outside if len(basis) < d else L
            for t, L in zip(GEODESIC_POINTS, found, strict=True)
        }


def _none(rows: RowsOfClasses) -> LinearMap:
    d = rows.X.shape[1]
    return LinearMap(mean=np.zeros(d), components=np.eye(d), columns=rows.columns)


def _whitening(rows: RowsOfClasses) -> LinearMap:
    fitted = discriminant_whitening(rows.X, rows.labels)
    return LinearMap(mean=fitted.mean, components=fitted.components, columns=rows.columns)


def _within_class_whitening(rows: RowsOfClasses) -> LinearMap:
    fitted = discriminant_whitening(rows.X, rows.labels, emphasis=1.0)
    return LinearMap(mean=fitted.mean, components=fitted.components, columns=rows.columns)


def _relevant_components(rows: RowsOfClasses) -> LinearMap:
    """Fit `RCA()`: L = C^(-1/2) of the covariance within classes, with its prior, in columns of these units."""
    mean = rows.X.mean(axis=0)
    deviation = standard(rows.X)[1]
    units = deviation / np.sqrt(mahalanobis.shares_of_rows((rows.X - mean) / deviation, rows.labels))
    sizes = np.bincount(rows.labels)
    several = sizes[sizes > 1]
    C = scatter.within((rows.X - mean) / units, rows.labels) / max(several.sum(), 1)
    if np.trace(C) > 0:
        C = mahalanobis.regularized(C, "auto", freedom=several.sum() - len(several))
    else:  # rows of a class do not differ: there is nothing to undo
        C = np.eye(len(C))
    return LinearMap(mean=mean, components=psd.power(C, -0.5) / units, columns=rows.columns)


def _geometric_mean(t: float) -> Callable[[RowsOfClasses], LinearMap]:
    return lambda rows: LinearMap(mean=rows.X.mean(axis=0), components=rows.factors[t], columns=rows.columns)


@dataclass(frozen=True)
class ClosedForm:
    """A closed form: its title, what fits it to rows, the learner like it, and whether rows are standardized before."""

    title: str
    fit: Callable[[RowsOfClasses], LinearMap]
    learner: str = ""
    standardized: bool = False

    @property
    def maps(self) -> bool:
        """Whether it maps rows, instead of leaving their directions as they are."""
        return self.fit is not _none

    @property
    def options(self) -> str:
        """What `nearfar fit DATA` is given for a learner like it; "" if it maps nothing."""
        standardize = " --standardize" if self.standardized else ""
        return f'"{self.learner}"{standardize} --distance cosine' if self.learner else ""


OF_FEATURES: dict[str, ClosedForm] = {
    "none": ClosedForm("as they are", _none),
    "whitening": ClosedForm("whitened", _whitening, "DiscriminantWhitening(normalize=True)"),
    "within": ClosedForm(
        "whitened within classes", _within_class_whitening, "DiscriminantWhitening(emphasis=1, normalize=True)"
    ),
    "gmml-0.1": ClosedForm("GMML(t=0.1)", _geometric_mean(0.1), "GMML(t=0.1)"),
    "gmml-0.3": ClosedForm("GMML(t=0.3)", _geometric_mean(0.3), "GMML(t=0.3)"),
}
"""Forms for features, whose dimensions have one unit."""
OF_ROWS = OF_FEATURES | {"rca": ClosedForm("RCA()", _relevant_components, "RCA()")}
"""Forms for rows of a table, which are often many for each column."""
STANDARDIZED = "standardized"
FORMS: dict[str, ClosedForm] = OF_ROWS | {
    STANDARDIZED if name == "none" else f"{STANDARDIZED}-{name}": ClosedForm(
        STANDARDIZED if name == "none" else f"{STANDARDIZED}, {form.title}",
        form.fit,
        form.learner,
        standardized=True,
    )
    for name, form in OF_ROWS.items()
}
"""All forms. Those that standardize are for rows of a table, too, whose columns may have different units."""


@dataclass(frozen=True)
class ChosenForm:
    """The form that held-out classes have chosen.

    Attributes
    ----------
    name : str
        Key of `FORMS`.
    map_at_r : mapping of str to tuple of float
        MAP@R of each form on the held-out classes of each split; empty if there are too few classes to hold some out.
    """

    name: str
    map_at_r: Mapping[str, tuple[float, ...]]

    @property
    def title(self) -> str:
        return FORMS[self.name].title


def fitted(name: str, rows: AnyArray, labels: Ints) -> LinearMap:
    """Fit a form to features (n, d) and their classes (n,)."""
    form = FORMS[name]
    return form.fit(RowsOfClasses(rows, labels, standardized=form.standardized))


class FittedForm(NamedTuple):
    """A closed form that was chosen for rows and fitted to them: title, map, and the options of a learner like it."""

    title: str
    map: LinearMap
    options: str


def best_form(
    rows: AnyArray,
    labels: Ints,
    groups: AnyArray | None = None,
    asks: NDArray[np.bool_] | None = None,
    *,
    of_table: bool,
    seed: int = 0,
) -> FittedForm | None:
    """Choose a closed form as `choose_form` does, and fit it to all rows.

    The columns `of_table` may have different units, so that they may be standardized. Returns None if no form is better
    than the rows as they are, or there are more than `MAX_WIDTH` columns.
    """
    if rows.shape[1] > MAX_WIDTH:
        return None
    chosen = choose_form(rows, labels, groups, asks, seed=seed, forms=tuple(FORMS if of_table else OF_FEATURES))
    if chosen.name == "none":
        return None
    return FittedForm(chosen.title, fitted(chosen.name, rows, labels), FORMS[chosen.name].options)


def choose_form(
    rows: AnyArray,
    labels: Ints,
    groups: AnyArray | None = None,
    asks: NDArray[np.bool_] | None = None,
    *,
    seed: int = 0,
    splits: int = CHOOSING_SPLITS,
    forms: Collection[str] = tuple(OF_FEATURES),
) -> ChosenForm:
    """Choose a closed form for features by MAP@R on classes that are held out of them.

    Every split fits all forms to one half of the classes, and scores them on the other half; the next one exchanges the
    halves. The form with the largest mean is taken if its gain over the features as they are is larger than its
    standard error.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Features of the training items.
    labels : ndarray of shape (n,)
        Classes of the items.
    groups, asks
        As of `class_scores.search`.
    seed : int
        Seed of the random number generator that draws the halves.
    splits : int
        Number of splits.
    forms : collection of str
        Names of the forms to choose from, in `FORMS`; "none" among them.

    Returns
    -------
    ChosenForm
        "none" if there are fewer than four classes of two items.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(400) // 20
    >>> noise = rng.normal(size=(400, 8)) * np.array([5, 5, 5, 5, 0.1, 0.1, 0.1, 0.1])  # half of the features are noise
    >>> chosen = choose_form(rng.normal(size=(20, 8))[labels] + noise, labels)
    >>> chosen.name != "none"
    True
    """
    labels = np.unique(labels, return_inverse=True)[1]
    rng = np.random.default_rng(seed)
    if len(rows) > MAX_ROWS:
        kept = _some_classes(labels, rng)
        rows = rows[kept]
        groups = part_of(groups, kept)
        asks = part_of(asks, kept)
        labels = np.unique(labels[kept], return_inverse=True)[1]
    count = int(labels.max()) + 1 if len(labels) else 0
    if count < FEWEST_FOR_FORMS or int((np.bincount(labels) > 1).sum()) < FEWEST_FOR_FORMS:
        return ChosenForm("none", {})
    found: dict[str, list[float]] = {name: [] for name in forms}
    for split in range(splits):
        if split % 2 == 0:
            order = rng.permutation(count)
        out = np.isin(labels, order[: count // 2] if split % 2 == 0 else order[count // 2 :])
        if not (np.bincount(labels[~out]) > 1).any():  # no pair to learn from
            continue
        learned = {
            standardized: RowsOfClasses(rows[~out], labels[~out], standardized=standardized)
            for standardized in {FORMS[name].standardized for name in forms}
        }
        for name, scores in found.items():
            mapped = FORMS[name].fit(learned[FORMS[name].standardized])(rows[out])
            scores.append(held_out_score(mapped, labels[out], groups=part_of(groups, out), asks=part_of(asks, out)))
    scored = {name: tuple(scores) for name, scores in found.items() if scores and np.isfinite(scores).all()}
    return ChosenForm(_best(scored), scored)


def _some_classes(labels: Ints, rng: np.random.Generator) -> AnyArray:
    """Return which rows belong to drawn classes that have about `MAX_ROWS` rows together."""
    order = rng.permutation(int(labels.max()) + 1)
    enough = int(np.searchsorted(np.bincount(labels)[order].cumsum(), MAX_ROWS)) + 1
    return np.isin(labels, order[: max(FEWEST_FOR_FORMS, enough)])


def held_out_score(
    rows: AnyArray, labels: Ints, *, groups: AnyArray | None = None, asks: NDArray[np.bool_] | None = None
) -> float:
    """Return MAP@R by cosine of a search as in an evaluation; NaN if no query has anything to find."""
    found, _ = search(rows, labels, groups=groups, asks=asks)
    scored = found.relevant > 0
    return float(found.map_at_r[scored].mean()) if scored.any() else float("nan")


def _best(scored: Mapping[str, tuple[float, ...]]) -> str:
    """Return the form with the largest mean, if it is better than none by more than a standard error."""
    if "none" not in scored:
        return "none"
    best = max(scored, key=lambda name: float(np.mean(scored[name])))
    gains = np.subtract(scored[best], scored["none"])
    error = float(np.std(gains, ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else 0.0
    return best if float(np.mean(gains)) > error else "none"
