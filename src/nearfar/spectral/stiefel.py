"""Pairs under M = V Lam V' with V on the Stiefel manifold and Lam positive definite, for rows and for kernel maps.

    min  sum_S w softplus(d - u) + sum_D w softplus(u - d) + lam (tr(Lam P^-1) - log det(Lam P^-1) - p),  d = z' M z

With the prior P = I, neither manifold is needed: M = L' L for any L (p, d) of full rank, and the last term is
lam (|L|^2 - log det(L L') - p). Otherwise L = K V', with V from the QR factorization of any A (d, p), and Lam = K' K.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import cholesky, inv
from scipy.special import expit

from ..numerics import checks, manifolds, psd, scatter
from ..numerics.constraints import LabelPairs, Pairs, generator, written_out
from ..numerics.optimize import Objective, Report, Solution, lbfgs, lbfgs_in_rounds
from ..numerics.pair_differences import PairList
from ..numerics.types import AnyArray, Array, Seed

INITS = ("discriminant", "pca", "random")
MAX_SUBSPACE_DIMENSION = 16  # default number of dimensions if the rows span more


def stiefel_spd(
    X: Array,
    pairs: Pairs | LabelPairs,
    p: int | None = None,
    lam: float = 0.01,
    prior: AnyArray | None = None,
    bias: float = 0.0,
    *,
    init: str | AnyArray = "discriminant",
    last: Array | None = None,
    seed: Seed = None,
    max_iter: int = 500,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Solution:
    """Return L (p, d) as `x`, in the span of the rows; attributes ``stiefel`` V (d, p), ``spd`` Lam (p, p), ``scale``.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    pairs : Pairs or LabelPairs
        Pairs of rows.
    p : int or None
        Number of rows of L. If None, the rank of X, at most 16.
    lam : float
        Weight of the divergence from the prior, above 0.
    prior : array-like of shape (p, p), optional
        Prior P, in the units of `scale`. By default, the identity.
    bias : float
        Threshold u on the distances d, in the units of `scale`.
    init : str or array-like of shape (p, d)
        Initial directions, or the initial components themselves.
    last : ndarray of shape (p', d), optional
        Initial components that take precedence if they are p rows that are linearly independent in the span of X.
    seed : int, Generator, RandomState or None
        Seed of the random number generator that draws random initial components.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when the largest entry of the gradient falls below ``tol * max(1, |objective|)``.
    report : callable or None
        Function that is called with the progress.

    Notes
    -----
    X is first divided by `scale`, the root mean square distance of the pairs. Results are in the units of X.
    """
    checks.above(0, lam=lam)
    if not checks.is_finite(bias):
        raise ValueError(f"bias must be a finite number; got {bias!r}")
    span = scatter.data_span(X)
    p = check_rank(p, len(span))
    X, pairs = paired(X, written_out(pairs))
    X = X @ span.T
    scale = mean_distance(X, pairs)
    loss = pair_loss(X / scale, pairs, bias)
    root = np.eye(p)
    if prior is not None:
        root = cholesky(given_prior(prior, p))  # P = root' root
    if last is not None and len(last) == p and np.linalg.matrix_rank(last @ span.T) == p:
        L = last @ span.T * scale
    elif isinstance(init, str):
        L = root @ directions(X, pairs, p, init, seed)
    else:
        L = given_start(init, p, span) * scale
    if prior is None:
        found = lbfgs(without_prior(loss, lam), L, max_iter=max_iter, tol=tol, report=report)
        L = found.x
    else:
        # L = R' V': the start as [A', K] with A = V and K = R'
        V, R = np.linalg.qr(L.T)
        start = np.hstack([V.T, R.T])
        limits = dict[str, Any](max_iter=max_iter, tol=tol, report=report)
        found = lbfgs_in_rounds(with_prior(loss, lam, root), start, retract, **limits)
        L, K, V, _ = factor(found.x, p)
    L = psd.compress(L / scale) @ span
    # with a prior, the value depends on the basis of the span, so V and Lam are kept
    if prior is None:
        made = parts(L)
    else:
        made = {"stiefel": span.T @ V, "spd": K.T @ K / scale**2}
    return found.with_x(L, attributes=made | {"scale": scale})


def paired(X: Array, pairs: Pairs) -> tuple[Array, Pairs]:
    """Return the rows that are in a pair, and the pairs as numbers of these rows."""
    rows, places = np.unique(np.concatenate([pairs.i, pairs.j]), return_inverse=True)
    i, j = np.split(places, 2)
    return X[rows], pairs._replace(i=i, j=j)


def check_rank(p: int | None, rank: int) -> int:
    """Return p, or its default if p is None; raise a ValueError if p is above the rank."""
    if rank == 0:
        raise ValueError("X must hold rows that differ; all of them are equal")
    if p is not None and p > rank:
        raise ValueError(f"n_components must be at most {rank}, the rank of the data; got {p}")
    if p is None:
        return min(rank, MAX_SUBSPACE_DIMENSION)
    return p


def mean_distance(X: Array, pairs: Pairs) -> float:
    """Return the weighted root mean square distance of the pairs."""
    listed = PairList(pairs.i, pairs.j, len(X))
    d = listed.squared_distances(X)
    return float(np.sqrt(np.average(d, weights=pairs.weights[listed.order]))) or 1.0


def pair_loss(X: Array, pairs: Pairs, bias: float) -> Objective:
    """Return the function L -> (loss, gradient (p, d)), where the loss is the mean over each kind of pairs."""
    listed = PairList(pairs.i, pairs.j, len(X))
    similar = pairs.similar[listed.order]
    weight = pairs.weights[listed.order]
    tiny = np.finfo(np.float64).tiny
    similar_weight = max(float(weight[similar].sum()), tiny)
    dissimilar_weight = max(float(weight[~similar].sum()), tiny)
    c = weight / np.where(similar, similar_weight, dissimilar_weight)
    s = np.where(similar, 1.0, -1.0)

    def loss(L: Array) -> tuple[float, Array]:
        # sum_p c_p softplus(s_p (d_p - u)), with the derivative c_p s_p sigmoid(s_p (d_p - u)) with respect to d_p
        Z = X @ L.T
        margin = s * (listed.squared_distances(Z) - bias)
        value = float(c @ np.logaddexp(0.0, margin))
        gradient = 2 * listed.laplacian_times(c * s * expit(margin), Z).T @ X
        return value, gradient

    return loss


def without_prior(loss: Objective, lam: float) -> Objective:
    """Return the objective as a function of L."""

    def fun(L: Array) -> tuple[float, Array]:
        value, G = loss(L)
        # lam (|L|^2 - log det(L L') - p); tiny, because with one feature the first step from 1 may lead to exactly 0
        gram = L @ L.T + np.finfo(np.float64).tiny * np.eye(len(L))
        burg = np.sum(L * L) - np.linalg.slogdet(gram)[1] - len(L)
        return value + lam * float(burg), G + 2 * lam * (L - np.linalg.solve(gram, L))

    return fun


def with_prior(loss: Objective, lam: float, root: Array) -> Objective:
    """Return the objective as a function of [A', K] (p, d + p); P = root' root."""
    back = inv(root)
    precision = back @ back.T

    def fun(x: Array) -> tuple[float, Array]:
        p = len(x)
        L, K, V, pullback = factor(x, p)
        value, G = loss(L)
        # tr(Lam P^-1) - log det(Lam P^-1) - p with Lam = K'K and P^-1 = back back'
        burg = np.sum((K @ back) ** 2) - 2 * np.linalg.slogdet(K @ back)[1] - p
        # d/dK of tr(K'K P^-1) is 2 K P^-1, of -log det K'K it is -2 K'^-1; of the loss, G V
        G_K = G @ V + 2 * lam * (K @ precision - inv(K).T)
        return value + lam * float(burg), np.hstack([pullback(G.T @ K).T, G_K])

    return fun


def retract(x: Array) -> Array:
    """Return [V', K] for [A', K], because the value depends on A only through its basis V."""
    _, K, V, _ = factor(x, len(x))
    return np.hstack([V.T, K])


def factor(x: Array, p: int) -> tuple[Array, Array, Array, Callable[[Array], Array]]:
    """Return L = K V', K, V and the function that turns a gradient with respect to V into one with respect to A."""
    V, pullback = manifolds.orthonormal(x[:, :-p].T)
    K = x[:, -p:]
    return K @ V.T, K, V, pullback


def given_prior(prior: AnyArray, p: int) -> Array:
    """Check and return the user's P."""
    P = psd.require_pd(prior, "prior")
    if len(P) != p:
        raise ValueError(f"prior must have shape {(p, p)}; got {P.shape}")
    return P


def given_start(init: AnyArray, p: int, span: Array) -> Array:
    """Check the user's components and return them in coordinates of the span."""
    needs = f"init must be {p} independent rows of {span.shape[1]} numbers"
    L = checks.table(init, needs)
    if L.shape != (p, span.shape[1]) or not np.isfinite(L).all() or np.linalg.matrix_rank(L @ span.T) < p:
        raise ValueError(f"{needs}; got shape {L.shape}")
    return L @ span.T


def directions(X: Array, pairs: Pairs, p: int, init: str, seed: Seed) -> Array:
    """Return orthonormal rows to start from."""
    checks.one_of(INITS, init=init)
    if init == "pca":
        return np.eye(p, X.shape[1])  # the coordinates are those of the principal directions
    if init == "random":
        return manifolds.orthonormal(generator(seed).normal(size=(X.shape[1], p)))[0].T
    S, D = scatter.pair_scatters(X, pairs).mean()
    # similar pairs may not differ along some direction, whose ratio would be infinite
    ridge = (1e-3 * np.trace(S + D) / len(S) or 1.0) * np.eye(len(S))
    return manifolds.orthonormal(psd.gevd(D + ridge, S + ridge, p)[1])[0].T


def parts(L: Array) -> dict[str, Any]:
    """Return V and Lam with V Lam V' = L' L."""
    V, R = np.linalg.qr(L.T)
    return {"stiefel": V, "spd": R @ R.T}
