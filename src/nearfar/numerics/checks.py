"""Checks of what a user passes: each raises one ValueError that names the argument, what came and what was expected."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from ..fit_warnings import warn
from ..quoting import quoted
from ..settings import no_option
from .constraints import Pairs, encode
from .types import AnyArray, Array, Bools, Ints


def check_indices(indices: AnyArray | None, width: int, n: int, name: str) -> Ints:
    """Return a user's index tuples as an (m, width) integer array into n rows, none of which names a row twice.

    The two pairs of a quadruplet (width 4) may share a row.

    Raises
    ------
    ValueError
        Names the argument, what came and what was expected.
    """
    needs = f"{name} must be an integer array of shape (m, {width}), m >= 1"
    indices = table(indices, needs, None)
    if indices.ndim != 2 or indices.shape[1] != width or len(indices) == 0:
        if indices.ndim == 3:
            points = f"; points belong in X, and their row numbers in {name}"
        else:
            points = ""
        raise ValueError(f"{needs}; got shape {indices.shape}{points}")
    if not np.issubdtype(indices.dtype, np.integer):
        raise ValueError(f"{name} must hold integer row numbers; got dtype {indices.dtype}")
    out = (indices < 0) | (indices >= n)
    if out.any():
        raise ValueError(f"{name} must point at rows 0..{n - 1}; got {indices[out][:5].tolist()}")
    ordered = np.sort(indices.reshape(len(indices), -1, 2 if width == 4 else width), axis=2)
    twice = (ordered[..., 1:] == ordered[..., :-1]).any(axis=(1, 2))
    if twice.any():
        k = int(twice.argmax())
        told = f"{name}[{k}] joins a row with itself: {indices[k].tolist()}"
        raise ValueError(f"{name} must join different rows; {told}")
    return indices.astype(np.intp)


def present(indices: Any, rows: AnyArray, n: int, name: str, *beside: AnyArray | None) -> list[Any]:
    """Translate tuples of the user's row numbers into places in `rows`; leave out tuples with a number not in it.

    Returns the places, (m', width), and the entries of each of `beside`, (m,) or None, for the tuples that are there.
    Warns of as many tuples as rows: a search takes them for one per row, and cuts them as it cuts X.
    """
    rows = np.asarray(rows)
    indices = np.asarray(indices)
    if rows.shape != (n,) or len(np.unique(rows)) < n:
        raise ValueError(f"rows must be {n} different numbers, one per row of X; got shape {rows.shape}")
    if indices.ndim != 2:
        raise ValueError(f"{name} must be an integer array of two dimensions; got shape {indices.shape}")
    if len(indices) == n:
        cut = f"scikit-learn cuts {name} by its folds as if they were one per row; a list one longer is left whole"
        warn(f"there are as many {name} as rows, {n}: {cut}, such as with one of them given twice")
    order = np.argsort(rows)
    at = np.minimum(np.searchsorted(rows, indices, sorter=order), n - 1)
    kept = (rows[order][at] == indices).all(axis=1)
    if not kept.any():
        raise ValueError(f"{name}: none of {len(indices)} join two of the rows given by rows=")
    entries = (None if values is None else one_each(values, len(kept), name)[kept] for values in beside)
    return [order[at[kept]], *entries]


def one_each(values: AnyArray, m: int, name: str) -> AnyArray:
    """Return the values as an array; raise unless there is one for each of m constraints."""
    values = np.asarray(values)
    if values.shape != (m,):
        raise ValueError(f"labels and weights of {name} must have shape ({m},); got {values.shape}")
    return values


def check_pairs(pairs: AnyArray | None, pair_labels: AnyArray | None, pair_weights: AnyArray | None, n: int) -> Pairs:
    """Check a user's pairs and return them in their order with i < j; merge repeated ones, adding weights, and warn.

    Pairs of weight 0 are left out, so that they do not count even where a method only counts pairs.

    Parameters
    ----------
    pairs : array-like of shape (m, 2)
    pair_labels : array-like of shape (m,) or None
        +1 similar, -1 dissimilar; None: all similar.
    pair_weights : array-like of shape (m,) or None
        At least 0.
    n : int
        Rows of X.

    Raises
    ------
    ValueError
        Bad indices or labels, or one pair with both labels (lists the first five).
    """
    ij = np.sort(check_indices(pairs, 2, n, "pairs"), axis=1)
    similar = check_pair_labels(pair_labels, len(ij))
    if pair_weights is None:
        weight = None
    else:
        weight = check_weights(pair_weights, len(ij), "pair_weights")
    _, first, which = np.unique(ij[:, 0] * n + ij[:, 1], return_index=True, return_inverse=True)
    torn = similar != similar[first[which]]
    if torn.any():
        raise ValueError(f"pair_labels contradict: both +1 and -1 for pairs {np.unique(ij[torn], axis=0)[:5].tolist()}")
    keep = np.sort(first)
    if len(keep) < len(ij):
        added = "" if weight is None else ", their weights added"
        warn(f"{len(ij) - len(keep)} of {len(ij)} pairs repeat others; they were merged{added}")
    if weight is None:
        return Pairs(ij[keep, 0], ij[keep, 1], similar[keep])
    weight = np.bincount(which, weight)[which[keep]]
    keep = keep[weight > 0]
    weight = weight[weight > 0]
    return Pairs(ij[keep, 0], ij[keep, 1], similar[keep], weight)


def check_pair_labels(pair_labels: AnyArray | None, m: int) -> Bools:
    """Return labels +1 as True and -1 as False; None as all True."""
    if pair_labels is None:
        return np.ones(m, dtype=bool)
    s = np.asarray(pair_labels)
    if s.shape != (m,):
        raise ValueError(f"pair_labels must have one entry per pair, shape ({m},); got shape {s.shape}")
    if not np.isin(s, (-1, 1)).all():
        if np.isin(s, (0, 1)).all():
            hint = "; 2 * same - 1 makes them of 1 and 0, or of True and False"
        else:
            hint = ""
        got = np.unique(s)[:5].tolist()
        raise ValueError(f"pair_labels must be +1 (similar) or -1 (dissimilar); got {got}{hint}")
    return s == 1


def check_weights(weights: AnyArray, m: int, name: str) -> Array:
    """Return the weights; raise unless they are finite, at least 0, one per constraint and not all 0."""
    w = np.asarray(weights)
    if not np.issubdtype(w.dtype, np.number):
        raise ValueError(f"{name} must be {m} finite numbers >= 0, not all 0; got dtype {w.dtype}")
    w = w.astype(np.float64)
    if w.shape != (m,) or not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise ValueError(
            f"{name} must be {m} finite numbers >= 0, not all 0; got shape {w.shape}, {w.ravel()[:5].tolist()}"
        )
    return w


def check_chunklets(
    chunklets: AnyArray, negative_links: AnyArray | None, n: int, partly: bool = False
) -> tuple[Ints, Bools]:
    """Return chunklet numbers as codes 0, 1, ... (-1 stays: in no chunklet), and which chunklets differ.

    Parameters
    ----------
    chunklets : array-like of shape (n,)
    negative_links : array-like of shape (m, 2) or None
        Numbers of two chunklets that differ; None: any two do.
    n : int
        Rows of X.
    partly : bool
        Whether links may name chunklets that have no row here; such links are left out.
    """
    needs = f"chunklets must be {n} integers (-1: in none), one per row of X"
    c = table(chunklets, needs, None)
    if c.shape != (n,) or not np.issubdtype(c.dtype, np.number) or (c != np.floor(c)).any():
        called = c.shape == (n,) and (c.dtype.kind not in "iuf" or bool(np.isnan(c).any()))
        if called:
            hint = "; pandas.factorize(c)[0] numbers names, and gives -1 to missing ones"
        else:
            hint = ""
        raise ValueError(f"{needs}; got shape {c.shape}, dtype {c.dtype}{hint}")
    names, codes = encode(np.where(c < 0, -1, c), unlabeled=-1)
    if len(names) == 0:
        raise ValueError("chunklets must name at least one chunklet; every entry is negative")
    if negative_links is None:
        return codes, ~np.eye(len(names), dtype=bool)
    links = np.asarray(negative_links)
    if links.ndim != 2 or links.shape[1] != 2 or (links[:, 0] == links[:, 1]).any():
        raise ValueError(f"negative_links must be rows of two different chunklet numbers; got {links[:5].tolist()}")
    known = np.isin(links, names).all(axis=1)
    if not known.all() and not (partly and known.any()):
        raise ValueError(f"negative_links must be numbers of two chunklets of X; got {links[~known][:5].tolist()}")
    links = links[known]
    order = np.argsort(names)
    i, j = order[np.searchsorted(names, links, sorter=order)].T
    apart = np.zeros((len(names),) * 2, dtype=bool)
    apart[i, j] = apart[j, i] = True
    return codes, apart


def side_by_side(X: Any, widths: AnyArray | None = None) -> tuple[Any, list[int] | None]:
    """Join a list of views (of these widths, if given) into one matrix; return it and their widths, or X and None."""
    if isinstance(X, (list, tuple)):
        views = [table(view, "views must be matrices", None) for view in X]
    else:
        views = []
    if all(view.ndim != 2 for view in views):
        return X, None
    if any(view.ndim != 2 for view in views):
        raise ValueError(f"views must be matrices; got arrays of {[view.ndim for view in views]} dimensions")
    if len({len(view) for view in views}) > 1:
        raise ValueError(f"views must have the same rows; got {[len(view) for view in views]} rows")
    found = [view.shape[1] for view in views]
    if widths is not None and found != list(widths):
        raise ValueError(f"views must have {list(map(int, widths))} columns, as in fit; got {found}")
    return np.hstack(views), found


def table(value: Any, needs: str, dtype: Any = np.float64) -> Array:
    """Return `value` as an array (dtype None: of whatever it holds), or raise a ValueError that says what is needed."""
    try:
        return np.asarray(value, dtype=dtype)
    except (TypeError, ValueError) as error:  # text, lists of several lengths
        raise ValueError(f"{needs}; got {quoted(value)}") from error


def is_finite(value: object) -> bool:
    """Whether the value is a real number (no bool), and neither infinite nor NaN."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return bool(np.isfinite(float(value)))
    except OverflowError:  # an integer above 1.8e308
        return False


def targets(y: AnyArray | None, n: int) -> Array:
    """Check the real targets of n rows; return them less their means, shape (n, m), m >= 1.

    Raises
    ------
    ValueError
        None was passed, or targets that are not finite real numbers, not one per row, or all equal.
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    needs = f"y must hold finite real numbers, shape ({n},) or ({n}, m)"
    values = table(y, needs, None)
    if values.ndim not in (1, 2) or values.size == 0:
        raise ValueError(f"{needs}; got shape {values.shape}")
    if len(values) != n:
        raise ValueError(f"{needs}; got {len(values)}: X and y have inconsistent numbers of samples")
    try:
        Y = values.astype(np.float64) if values.dtype.kind in "biufO" else None
    except (TypeError, ValueError):
        Y = None
    if Y is None:
        raise ValueError(f"{needs}; got {values.ravel()[0]!r}, ...")
    bad = int((~(np.abs(Y) <= 1e150)).sum())
    if bad:
        raise ValueError(f"{needs}; {bad} of {Y.size} are NaN, infinite or above 1e150")
    Y = Y.reshape(n, -1)
    if (Y[0] == Y).all():
        raise ValueError(f"y must hold targets that differ; all {n} are {Y[0].tolist()}")
    return Y - Y.mean(axis=0)


def at_least(low: float, **values: float | str) -> None:
    """Raise unless each keyword's value is a finite number of at least `low`.

    >>> at_least(0, reg=-1.0)
    Traceback (most recent call last):
    ValueError: reg must be a finite number >= 0; got -1.0
    """
    for name, value in values.items():
        if isinstance(value, str) or not is_finite(value) or value < low:
            raise ValueError(f"{name} must be a finite number >= {low}; got {quoted(value)}")


def counts(low: int, **values: int) -> None:
    """Raise unless each keyword's value is an integer of at least `low`."""
    for name, value in values.items():
        if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < low:
            raise ValueError(f"{name} must be an integer >= {low}; got {quoted(value)}")


def not_none(**values: Any) -> dict[str, Any]:
    """Return the values that are not None: ``counts(1, **told(batch_size=...))`` checks a setting that may be None."""
    return {name: value for name, value in values.items() if value is not None}


def above(low: float, **values: float) -> None:
    """Raise unless each keyword's value is a finite number above `low`."""
    for name, value in values.items():
        if not is_finite(value) or value <= low:
            raise ValueError(f"{name} must be a finite number > {low}; got {quoted(value)}")


def between(low: float, high: float, **values: float) -> None:
    """Raise unless each keyword's value lies in [low, high]."""
    for name, value in values.items():
        if not is_finite(value) or not low <= value <= high:
            raise ValueError(f"{name} must be in [{low}, {high}]; got {quoted(value)}")


def share(stand_ins: tuple[str, ...], **values: float | str) -> None:
    """Raise unless each keyword's value lies in [0, 1], or is one of the names that stand for an estimate of it."""
    for name, value in values.items():
        if isinstance(value, str):
            known = value in stand_ins
        else:
            known = is_finite(value) and 0 <= value <= 1
        if not known:
            raise ValueError(f"{name} must be in [0, 1] or {' or '.join(map(repr, stand_ins))}; got {quoted(value)}")


def one_of(options: tuple[object, ...], **values: Any) -> None:
    """Raise unless each keyword's value is one of `options`."""
    for name, value in values.items():
        if np.ndim(value) or not any(value is option or value == option for option in options):
            raise ValueError(no_option(options, name, value))


def only_with(other: str, there: AnyArray | None, **given: Any) -> None:
    """Raise for an argument that was given without the `other` one, without which it means nothing."""
    for name, value in given.items():
        if there is None and value is not None:
            raise ValueError(f"{name} must be given with {other}")
