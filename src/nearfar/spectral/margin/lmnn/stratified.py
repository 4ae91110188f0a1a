"""Metrics learned in rounds on small stratified samples of spheres (Poorheravi et al., 2020).

Each round places a few spheres in the bounding box of the rows, learns a metric M from a class-stratified sample of
each sphere that holds several classes, and maps all rows by (M + I)^(1/2), scaled to preserve the total variance. The
result is the product of all maps. From round to round, there are fewer and larger spheres and smaller samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ....fit_warnings import warn
from ....numerics import checks, psd
from ....numerics.constraints import generator
from ....numerics.optimize import Solution
from ....numerics.types import Array, Ints, Seed

Solve = Callable[[Array, Ints, Array, Array], Solution]


class Strata(NamedTuple):
    """Settings of the samples.

    Attributes
    ----------
    rounds : int
        Number of rounds.
    spheres : int or None
        Number of spheres in the first round. Each round has a fifth fewer than the previous one. If None, a hundredth
        of the number of rows, but at least 10 and at most 20.
    radius, growth : float
        Radius of the spheres in the first round, and its increase in each further round, in units of the mean standard
        deviation of a feature.
    share : float
        Share of each class in a sphere that is drawn in the first round. It decreases by 0.05 in each further round,
        down to 0.2.
    identity : bool
        Map by (M + I)^(1/2), scaled. Otherwise, map by M^(1/2), which is possible only for a single sphere: M often
        drops directions, and the next sphere would stretch the rounding errors that remain of them.

    Notes
    -----
    Each sphere poses a separate problem on the rows mapped by all previous spheres, so rounding errors grow from one
    sphere to the next: an error of 1e-13 in X can change distances by several percent after 25 spheres.
    """

    rounds: int = 10
    spheres: int | None = None
    radius: float = 0.1
    growth: float = 0.3
    share: float = 1.0
    identity: bool = True


def stratified(
    X: Array, labels: Ints | None, solve: Solve, k: int, settings: bool | dict[str, Any] = True, seed: Seed = None
) -> Solution:
    """Return the product L (d, d) of the maps of all spheres.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    labels : ndarray of shape (n,), or None
        Class codes, all known. None raises a ValueError.
    solve : callable
        Function (rows, their labels, first metric, start) that returns components. Each class has more than k rows.
    k : int
        Number of target neighbors.
    settings : bool or dict
        Settings of `Strata`.
    seed : int, Generator, RandomState or None
        Seed of the random number generator that draws the spheres and samples.

    Raises
    ------
    ValueError
        There are no labels, or settings are unknown or out of range.
    """
    if labels is None:
        raise ValueError("stratified needs labels, because it draws rows of each class; got triplets")
    strata = read(settings)
    I = np.eye(X.shape[1])
    rng = generator(seed)
    L = I
    learned = 0
    spheres = strata.spheres or max(min(len(X) // 100, 20), 10)
    for t in range(strata.rounds):
        # spheres grow and get fewer from round to round, and their samples smaller
        share = max(strata.share - 0.05 * t, 0.2)
        for _ in range(max(1, int(spheres * 0.8**t))):
            Y = X @ L.T
            radius = (strata.radius + strata.growth * t) * float(np.std(Y, axis=0).mean())
            rows = sample(Y, labels, radius, share, k, rng)
            if len(rows):
                # learned in the space of the maps so far, which it then follows: L <- (M + I)^1/2 L
                step = solve(Y[rows], np.unique(labels[rows], return_inverse=True)[1], I, I).x
                L = widened(step, Y, strata.identity) @ L
                learned = learned + 1
    if learned == 0:
        warn("stratified: no sphere held two classes of more than n_neighbors rows; increase radius or growth")
    return Solution(L, n_iter=max(1, learned))


def read(settings: Any) -> Strata:
    """Validate and return the user's settings of the samples."""
    if not isinstance(settings, (bool, np.bool_, dict)):
        raise ValueError(f"stratified must be True, False or a dict of settings; got {settings!r}")
    given = settings if isinstance(settings, dict) else {}
    unknown = given.keys() - set(Strata._fields)
    if unknown:
        raise ValueError(f"stratified takes {', '.join(Strata._fields)}; got {sorted(map(str, unknown))}")
    strata = Strata(**given)
    checks.counts(1, rounds=strata.rounds)
    checks.counts(1, **checks.not_none(spheres=strata.spheres))
    checks.above(0, radius=strata.radius, share=strata.share)
    checks.at_least(0, growth=strata.growth)
    checks.between(0, 1, share=strata.share)
    checks.one_of((True, False), identity=strata.identity)
    if not strata.identity and (strata.rounds, strata.spheres) != (1, 1):
        got = f"rounds={strata.rounds} and spheres={strata.spheres}"
        raise ValueError(
            f"stratified: identity=False needs rounds=1 and spheres=1; got {got}: a further sphere would amplify the "
            "rounding errors in directions that the one before it dropped"
        )
    return strata


def sample(Y: Array, labels: Ints, radius: float, share: float, k: int, rng: np.random.Generator) -> Ints:
    """Draw rows of one random sphere: this share of each class, without classes of which at most k rows are drawn."""
    center = rng.uniform(Y.min(axis=0), Y.max(axis=0))
    inside = rng.permutation(np.flatnonzero(np.linalg.norm(Y - center, axis=1) <= radius))
    inside = inside[np.argsort(labels[inside], kind="stable")]
    _, start, code, size = np.unique(labels[inside], return_index=True, return_inverse=True, return_counts=True)
    place = np.arange(len(inside)) - start[code]  # 0, 1, ... within each class
    keep = np.ceil(share * size)  # (c,), number of rows drawn of each class
    rows = inside[(place < keep[code]) & (keep[code] > k)]
    if len(np.unique(labels[rows])) < 2:
        return rows[:0]
    return np.sort(rows)


def widened(L: Array, Y: Array, identity: bool) -> Array:
    """Return the symmetric root of L' L, or of L' L + I scaled to preserve the total variance of Y."""
    if not identity:
        return psd.power(L.T @ L, 0.5)
    # (M + I)^(1/2), times the square root of tr Cov(Y) / tr Cov(Y (M + I)^(1/2))
    root = psd.power(L.T @ L + np.eye(L.shape[1]), 0.5)
    return root * np.sqrt(Y.var(axis=0).sum() / (Y @ root).var(axis=0).sum())
