"""A smooth field that moves similar rows toward each other while nearby rows keep their distances.

    y(x) = x + B pi(x),   pi_r(x) = exp(-|x - c_r|^2 / (2 omega^2))
    f(B) = sum_S |y_i - y_j|^2 + lam sum_{i, j} w_ij (|y_i - y_j| - |x_i - x_j|)^2 + rho |B|^2
    w_ij = exp(-|x_i - x_j|^2 / sigma^2)

f is majorized by a quadratic in B with the same matrix in all steps, so that every step lowers f. These steps are slow
if the field has many bumps, so L-BFGS is run first, in units of that matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from ....neighbors import graphs
from ....numerics import scatter
from ....numerics.gradient_descent import hardly_changes
from ....numerics.optimize import Report, Solution, in_unit, lbfgs, stopped
from ....numerics.pair_differences import PairList, squared_distances
from ....numerics.types import Array, Ints

MIN_PAIR_WEIGHT = 1e-8  # pairs of smaller weight w_ij are left out


class Field(NamedTuple):
    """Field with centers (k, d), coefficients B (d, k) and width omega."""

    centers: Array
    coef: Array
    width: float

    def __call__(self, X: Array) -> Array:
        """Return the rows, moved by the field."""
        return X + bumps(X, self.centers, self.width) @ self.coef.T


def bumps(X: Array, centers: Array, width: float) -> Array:
    """Return pi of each row, shape (n, k)."""
    return np.exp(-squared_distances(X, centers) / (2 * width**2))


def far_rows(X: Array, k: int) -> Array:
    """Return at most k different rows, far from each other: each is the farthest from the rows chosen before it.

    The first is the farthest from the mean.
    """
    X = np.unique(X, axis=0)
    if len(X) <= k:
        return X
    far = np.sum((X - X.mean(axis=0)) ** 2, axis=1)
    chosen = []
    for _ in range(k):
        chosen.append(int(np.argmax(far)))
        # each center is the row that is worst covered by those before it
        distance = np.sum((X - X[chosen[-1]]) ** 2, axis=1)
        if len(chosen) == 1:
            far = distance
        else:
            far = np.minimum(far, distance)
    return X[chosen]


def held(X: Array, k: int | None, sigma: float | None) -> tuple[Ints, Ints, Array]:
    """Return the pairs i < j of nearby rows (all pairs if k is None) and their weights w_ij.

    By default, sigma^2 is the median squared distance of these pairs.
    """
    n = len(X)
    if k is None or k >= n - 1:
        i, j = np.triu_indices(n, 1)
    else:
        near = graphs.neighbors(X, k)
        # each unordered pair (i, j) once, coded as i n + j
        a = np.repeat(np.arange(n), k)
        b = near.ravel()
        i, j = np.divmod(np.unique(np.minimum(a, b) * n + np.maximum(a, b)), n)
    square = PairList(i, j, n).squared_distances(X)
    if sigma is None:
        unit = float(np.median(square)) or 1.0
    else:
        unit = sigma**2 or 1.0
    w = np.exp(-square / unit)
    keep = w >= MIN_PAIR_WEIGHT
    return i[keep], j[keep], w[keep]


class Shift:
    """Problem on given rows.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    i, j : ndarray of shape (m,)
        Similar pairs.
    weight : ndarray of shape (m,)
        Weights of the similar pairs.
    centers : ndarray of shape (k, d)
        Centers of the field.
    lam, width : float
        Weight of the term that preserves distances, and width omega of the field.
    near : (i, j, w)
        Pairs that keep their distance, and their weights.
    ridge : float
        Weight rho in units of the mean eigenvalue of the rest of the quadratic.
    """

    def __init__(
        self,
        X: Array,
        i: Ints,
        j: Ints,
        weight: Array,
        centers: Array,
        lam: float,
        width: float,
        near: tuple[Ints, Ints, Array],
        ridge: float = 1e-8,
    ) -> None:
        self.X = X
        self.lam = lam
        self.P = bumps(X, centers, width)
        self.similar = PairList(i, j, len(X))
        self.near = PairList(near[0], near[1], len(X))
        self.weight = weight[self.similar.order]
        self.w = near[2][self.near.order]
        self.d = np.sqrt(self.near.squared_distances(X))
        # H = P' (Lap_S + lam Lap_w) P + rho I, (k, k), the matrix of the majorizer
        H = self.P.T @ self.pulled(self.P)
        trace = float(np.trace(H)) / len(H)
        self.rho = ridge
        if trace > 0:
            self.rho = ridge * trace
        self.H = cho_factor((H + H.T) / 2 + self.rho * np.eye(len(H)))
        self.base = self.P.T @ self.pulled(X)

    def pulled(self, Y: Array) -> Array:
        """Return (Lap_S + lam Lap_w) Y, where w counts for (i, j) and for (j, i)."""
        return self.similar.laplacian_times(self.weight, Y) + self.near.laplacian_times(2 * self.lam * self.w, Y)

    def value(self, B: Array) -> tuple[float, Array, Array]:
        """Return f, the moved rows, and the distances of the nearby rows."""
        Y = self.X + self.P @ B.T  # y_i = x_i + B pi(x_i), (n, d)
        q = np.sqrt(self.near.squared_distances(Y))
        # sum_S |y_i - y_j|^2 + lam sum_{i, j} w_ij (q_ij - d_ij)^2 + rho |B|^2, with each pair i < j listed once
        f = self.weight @ self.similar.squared_distances(Y) + 2 * self.lam * self.w @ (q - self.d) ** 2
        return float(f + self.rho * np.sum(B * B)), Y, q

    def step(self, Y: Array, q: Array) -> Array:
        """Return the minimizer B of the majorizer at Y."""
        # (|y_i - y_j| - d)^2 <= |y_i - y_j|^2 - 2 d (y_i - y_j)'(last y_i - y_j) / |last y_i - y_j| + d^2
        ratio = np.divide(self.d, q, out=np.zeros_like(q), where=q > 0)
        kept = self.near.laplacian_times(2 * self.lam * self.w * ratio, Y)
        return cho_solve(self.H, self.P.T @ kept - self.base).T

    def gradient(self, B: Array) -> Array:
        """Return df/dB."""
        # df/dY = 2 (Lap_S + lam Lap_w - lam Lap_{w d / q}) Y, df/dB = (df/dY)' P + 2 rho B; (d, k)
        _, Y, q = self.value(B)
        ratio = np.divide(self.d, q, out=np.zeros_like(q), where=q > 0)
        pull = self.pulled(Y) - self.near.laplacian_times(2 * self.lam * self.w * ratio, Y)
        return 2 * pull.T @ self.P + 2 * self.rho * B


def majorize(
    problem: Shift, B: Array, *, max_iter: int = 200, tol: float = 1e-6, report: Report | None = None
) -> Solution:
    """Return B with a small f; stop once a step lowers f by less than ``tol * max(1, f)``.

    In units in which the curvature H of the majorizer is 1, its step is half a gradient step. L-BFGS runs in these
    units, and is much faster than steps of the majorizer, which follow only to check whether f can still decrease.
    """
    enough = hardly_changes(tol)
    f, Y, q = problem.value(B)
    # H = U' U
    history = [f]
    spent = 0
    U = np.triu(problem.H[0])

    def in_units(C: Array) -> tuple[float, Array]:
        B = solve_triangular(U, C.T).T
        f, Y, q = problem.value(B)
        return f, 2 * (B - problem.step(Y, q)) @ U.T

    if max_iter > 1:
        # C = B U': df/dC = df/dB U^-1, which is 2 (B - step) U' as the majorizer has the curvature 2 H
        found = lbfgs(in_units, B @ U.T, max_iter=max_iter - 1, tol=0.0, stop=enough, report=report)
        if found.value < f:
            B = solve_triangular(U, found.x.T).T
            spent = found.n_iter
            if found.history is not None:
                history.extend(found.history)
            f, Y, q = problem.value(B)
    for k in range(spent + 1, max_iter + 1):
        last = B
        before = f
        # the minimizer of the majorizer, which touches f at the last B and lies above it elsewhere
        B = problem.step(Y, q)
        f, Y, q = problem.value(B)
        if report is not None:
            report(k, f, before - f)
        if f > before:  # rounding
            return Solution(last, before, k, history=np.array(history))
        history.append(f)
        if enough(before, f):
            return Solution(B, f, k, history=np.array(history))
    message = stopped("majorization", max_iter, "fall", before - f, tol * max(1.0, f))
    return Solution(x=B, objective=f, n_iter=max_iter, converged=False, message=message, history=np.array(history))


def shifts(
    X: Array, i: Ints, j: Ints, weight: Array, centers: Array, *, last: Sequence[Array] = (), **settings: Any
) -> tuple[list[Field], Solution]:
    """Run `stages` with some rows of X as centers.

    If there are more features than rows, the computation takes place in the span of the rows, which no shift leaves.
    """
    if X.shape[1] <= len(X):
        return stages(X, i, j, weight, centers, last=last, **settings)
    V = scatter.span_or_axes(X, 1)  # (r, d): rows become V (x - mean), and coefficients V B
    mean = X.mean(axis=0)
    last = [V @ B for B in last if len(B) == X.shape[1]]
    rows = (X - mean) @ V.T
    points = (centers - mean) @ V.T
    found, solution = stages(rows, i, j, weight, points, last=last, scale=scatter.unit(X), **settings)
    fields = [Field(mean + field.centers @ V, V.T @ field.coef, field.width) for field in found]
    return fields, solution


def stages(
    X: Array,
    i: Ints,
    j: Ints,
    weight: Array,
    centers: Array,
    *,
    lam: float = 0.1,
    omega: float | None = None,
    sigma: float | None = None,
    n_neighbors: int | None = 50,
    n_stages: int = 1,
    ridge: float = 1e-2,
    last: Sequence[Array] = (),
    scale: float | None = None,
    **limits: Any,
) -> tuple[list[Field], Solution]:
    """Return the fields, each with half the width and range of the previous one, and the solution of the last (x = B).

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    i, j : ndarray of shape (m,)
        Similar pairs.
    weight : ndarray of shape (m,)
        Weights of the similar pairs.
    centers : ndarray of shape (k, d)
        Centers of the first field.
    lam, sigma, n_neighbors, n_stages, ridge
        Settings of `LLMA`.
    omega : float or None
        Width of the first field. If None, a third of the root mean square distance between rows and centers.
    last : sequence of ndarray of shape (d, k)
        Initial coefficients of each stage, used if their shape fits.
    scale : float or None
        Standard deviation of the features, which is the unit of the search. If None, that of the columns of X.
    """
    fields: list[Field] = []
    # in these units, because the meaning of `tol` would otherwise depend on those of X
    u = scatter.unit(X) if scale is None else scale
    X = X / u
    centers = centers / u
    last = [B / u for B in last]
    limits["report"] = in_unit(limits.get("report"), u * u)
    if omega is None:
        omega = float(np.sqrt(np.mean(squared_distances(X, centers)))) / 3 or 1.0
    else:
        omega = omega / u
    if sigma is not None:
        sigma = sigma / u
    for k in range(n_stages):
        problem = Shift(
            X=X,
            i=i,
            j=j,
            weight=weight,
            centers=centers,
            lam=lam,
            width=omega,
            near=held(X, n_neighbors, sigma),
            ridge=ridge,
        )
        B = np.zeros(centers.T.shape)
        if k < len(last) and last[k].shape == B.shape:
            B = last[k]
        found = majorize(problem, B, **limits)
        field = Field(centers, found.x, omega)
        fields.append(Field(u * centers, u * found.x, u * omega))
        X = field(X)
        centers = field(centers)
        omega = omega / 2
        if sigma is not None:
            sigma = sigma / 2
    return fields, found.with_x(u * found.x).times(u * u)
