"""The search for components over the nearest neighbors of each class only."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...numerics.optimize import Solution
from ...numerics.types import Array, Ints
from . import listed_softmax
from . import search as neighborhood
from .listed_softmax import Lists
from .search import Ridge, Terms


def maximize_listed(
    X: Array,
    labels: Ints,
    L0: Array,
    k: int,
    *,
    kind: str = "accuracy",
    ridge: Ridge,
    refresh: int = 0,
    near: Array | None = None,
    warm: bool = False,
    **search: Any,
) -> Solution:
    """Find components at a maximum of F - ridge over k hits and k misses of each row.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    labels : ndarray of shape (n,)
        Class codes; rows with -1 are left out.
    L0 : ndarray of shape (r, d)
        Start of the search.
    k : int
        Number of hits and of misses of each row.
    kind : {"accuracy", "log"}
        Term of F to sum over anchors.
    ridge : Ridge
        The penalty.
    refresh : int
        Number of times that the neighbors are searched again under the learned components before the search goes on.
    near : ndarray of shape (n, q), optional
        Rows whose Euclidean distances determine the first neighbors. By default, X.
    warm : bool
        Whether L0 is the result of another search, at which this search may stay.
    **search
        Arguments max_iter, tol and report of `search.maximize`.

    Returns
    -------
    Solution
        ``attributes["neighbors"]`` holds the hits and misses of the last search, as `neighbor_table` returns them.
    """
    known = labels >= 0
    X = X[known]
    labels = labels[known]
    rows = X if near is None else near[known]
    found = Solution(L0)
    spent = 0
    history = np.zeros(0)
    for _ in range(refresh + 1):
        lists = listed_softmax.nearest_lists(rows, labels, k)
        n = float(lists.weight.sum())
        terms = over(lists, X, kind)
        found = search_lists(terms, found.x, X, kind, ridge, n, warm or spent > 0, **search)
        spent = spent + found.n_iter
        history = np.concatenate([history, np.asarray(found.history)])
        rows = X @ found.x.T
    at = np.flatnonzero(known)  # numbers of the rows with labels
    last = listed_softmax.neighbor_table(lists, min(k, len(labels) - 1))
    table = np.full((len(known), last.shape[1]), -1)
    table[at] = np.where(last >= 0, at[last], -1)
    return found.with_x(found.x, n_iter=spent, history=history, attributes={"neighbors": table})


def search_lists(
    terms: Terms, L0: Array, X: Array, kind: str, ridge: Ridge, n: float, warm: bool, **search: Any
) -> Solution:
    """Return components at a maximum of F - ridge over fixed lists of n anchors, searched from L0."""

    def find(L: Array) -> Solution:
        return neighborhood.maximize(terms, L, ridge=ridge, n=n, **search)

    if warm:
        return find(L0)

    def cause(found: Solution, L: Array) -> str:
        return neighborhood.standstill(found, L, n, kind, ridge, terms)

    return neighborhood.search_off_start(find, cause, L0, X)


def over(lists: Lists, X: Array, kind: str) -> Terms:
    """Return F over the lists, as a function of L."""

    def terms(L: Array) -> tuple[float, Array]:
        F, U = listed_softmax.neighbor_sums(X @ L.T, lists, kind)
        return F, 2 * U.T @ X

    return terms
