"""Closed forms: linear maps of features that are fitted in seconds, one of which is chosen on held-out classes.

    z = L (x / |x| - mean),   compared by cosine

x are the features of a pretrained trunk, or the items themselves. Which L helps depends on the features: on photographs
a whitening within the classes, on texts a point near the whitening on the geodesic to the scatter between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..numerics.constraints import LabelPairs
from ..numerics.types import AnyArray, Array, Ints
from ..numerics.whitening import discriminant_whitening, unit_rows
from ..spectral.geometric.gmml import gmml

CHOOSING_SPLITS = 4  # draws of held-out classes that choose a form
HELD_OUT_HALF = 1 / 2  # share of the classes that a draw holds out
MAX_ROWS = 3000  # rows that choose a form; all of them fit the one that is chosen
FEWEST_FOR_FORMS = 4  # two to fit a form to, and two to score it on


class LinearMap(NamedTuple):
    """z = L (x / |x| - mean): the mean (d,) and L, the components (k, d)."""

    mean: Array
    components: Array

    def __call__(self, rows: AnyArray) -> Array:
        """Return the mapped rows, (n, k), which are compared by cosine."""
        mapped: Array = (unit_rows(np.asarray(rows, dtype=np.float64)) - self.mean) @ self.components.T
        return mapped


def _none(X: Array, labels: Ints) -> LinearMap:
    return LinearMap(mean=np.zeros(X.shape[1]), components=np.eye(X.shape[1]))


def _whitening(X: Array, labels: Ints) -> LinearMap:
    fitted = discriminant_whitening(X, labels)
    return LinearMap(mean=fitted.mean, components=fitted.components)


def _within_class_whitening(X: Array, labels: Ints) -> LinearMap:
    fitted = discriminant_whitening(X, labels, emphasis=1.0)
    return LinearMap(mean=fitted.mean, components=fitted.components)


def _geometric_mean(t: float) -> Callable[[Array, Ints], LinearMap]:
    def fit(X: Array, labels: Ints) -> LinearMap:
        mean = X.mean(axis=0)
        return LinearMap(mean=mean, components=gmml(X, LabelPairs(labels, "pairs"), t=t).x)

    return fit


@dataclass(frozen=True)
class ClosedForm:
    """A closed form: its title, and the function that fits it to rows (n, d) of unit length and class codes (n,)."""

    title: str
    fit: Callable[[Array, Ints], LinearMap]


FORMS: Mapping[str, ClosedForm] = {
    "none": ClosedForm("as they are", _none),
    "whitening": ClosedForm("whitened", _whitening),
    "within": ClosedForm("whitened within classes", _within_class_whitening),
    "gmml-0.1": ClosedForm("GMML(t=0.1)", _geometric_mean(0.1)),
    "gmml-0.3": ClosedForm("GMML(t=0.3)", _geometric_mean(0.3)),
}


@dataclass(frozen=True)
class ChosenForm:
    """The form that held-out classes have chosen.

    Attributes
    ----------
    name : str
        Key of `FORMS`.
    map_at_r : mapping of str to tuple of float
        MAP@R of each form on the held-out classes of each draw; empty if there are too few classes to hold some out.
    """

    name: str
    map_at_r: Mapping[str, tuple[float, ...]]

    @property
    def title(self) -> str:
        return FORMS[self.name].title


def fitted(name: str, rows: AnyArray, labels: Ints) -> LinearMap:
    """Fit a form to features (n, d) and their classes (n,)."""
    codes = np.unique(labels, return_inverse=True)[1]
    return FORMS[name].fit(unit_rows(np.asarray(rows, dtype=np.float64)), codes)


def choose_form(
    rows: AnyArray, labels: Ints, groups: AnyArray | None = None, *, seed: int = 0, splits: int = CHOOSING_SPLITS
) -> ChosenForm:
    """Choose a closed form for features by MAP@R on classes that are held out of them.

    Every split fits all forms to one half of the classes, and scores them on the other half. The form with the largest
    mean is taken if its gain over the features as they are is larger than its standard error.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Features of the training items.
    labels : ndarray of shape (n,)
        Classes of the items.
    groups : ndarray of shape (n,), optional
        Items of one group are not relevant to each other.
    seed : int
        Seed of the random number generator that draws the classes.
    splits : int
        Number of draws.

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
        groups = None if groups is None else groups[kept]
        labels = np.unique(labels[kept], return_inverse=True)[1]
    count = int(labels.max()) + 1 if len(labels) else 0
    if count < FEWEST_FOR_FORMS or int((np.bincount(labels) > 1).sum()) < FEWEST_FOR_FORMS:
        return ChosenForm("none", {})
    found: dict[str, list[float]] = {name: [] for name in FORMS}
    for _ in range(splits):
        out = np.isin(labels, rng.permutation(count)[: int(HELD_OUT_HALF * count)])
        if not (np.bincount(labels[~out]) > 1).any():  # no pair to learn from
            continue
        for name, scores in found.items():
            mapped = fitted(name, rows[~out], labels[~out])(rows[out])
            scores.append(held_out_score(mapped, labels[out], None if groups is None else groups[out]))
    scored = {name: tuple(scores) for name, scores in found.items() if scores and np.isfinite(scores).all()}
    return ChosenForm(_best(scored), scored)


def _some_classes(labels: Ints, rng: np.random.Generator) -> AnyArray:
    """Return which rows belong to drawn classes that have about `MAX_ROWS` rows together."""
    order = rng.permutation(int(labels.max()) + 1)
    enough = int(np.searchsorted(np.bincount(labels)[order].cumsum(), MAX_ROWS)) + 1
    return np.isin(labels, order[: max(FEWEST_FOR_FORMS, enough)])


def held_out_score(rows: AnyArray, labels: Ints, groups: AnyArray | None) -> float:
    """Return MAP@R by cosine, each row searching all others; NaN if all are alone in their class."""
    from ..evaluation import evaluate  # scikit-learn's clustering takes half a second to import

    return float(evaluate(rows, labels, groups=groups, ks=(1,), clustering=False).map_at_r)


def _best(scored: Mapping[str, tuple[float, ...]]) -> str:
    """Return the form with the largest mean, if it is better than none by more than a standard error."""
    if "none" not in scored:
        return "none"
    best = max(scored, key=lambda name: float(np.mean(scored[name])))
    gains = np.subtract(scored[best], scored["none"])
    error = float(np.std(gains, ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else 0.0
    return best if float(np.mean(gains)) > error else "none"
