"""Fisher-HSIC multi-view metric learning (Zhang, Liu, Liu, Hu, Liu & Zhu, 2018).

    max_P  sum_v tr(P_v' (S_b^v + lam1 S_t^v) P_v) + lam2 sum_{v<w} HSIC(X_v P_v, X_w P_w)   s.t.  P_v' P_v = I

With linear kernels HSIC(v, w) = |P_v' C_vw P_w|_F^2, C_vw = X_v' H X_w / (n - 1): no n x n kernel is formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from ...estimators.base import Supervised, Workspace, error_context, with_signature_hint
from ...estimators.sums import LabelSums, RowSums
from ...numerics import checks, psd, scatter
from ...numerics.class_sums import ClassMoments
from ...numerics.optimize import Report, Solution, stopped
from ...numerics.types import AnyArray, Array, Ints


def fish_mml(
    views: Sequence[Array],
    labels: Ints,
    p: int,
    lam1: float = 0.1,
    lam2: float = 0.1,
    *,
    hsic_scale: bool = True,
    max_iter: int = 50,
    tol: float = 1e-6,
    start: Array | None = None,
    report: Report | None = None,
) -> Solution:
    """Return block-diagonal L (p V, sum d_v) as `x`; ``attributes["view_components"]`` lists P_v' (p, d_v)."""
    n = len(labels)
    known = int((labels >= 0).sum())
    spans = [scatter.span_or_axes(X, p) for X in views]
    # centered rows in the coordinates of the span of their view, (n, d_v)
    views = [(X - X.mean(axis=0)) @ V.T for X, V in zip(views, spans, strict=True)]
    scatters = [scatter.between(X, labels) / known + lam1 * X.T @ X / n for X in views]  # S_b + lam1 S_t, (d_v, d_v)
    scale = n - 1 if hsic_scale else 1
    C = [[X.T @ Y / scale for Y in views] for X in views]  # C_vw (d_v, d_w)
    return ascent(scatters, C, spans, p, lam2, max_iter=max_iter, tol=tol, start=start, report=report)


def ascent(
    scatters: list[Array],
    C: list[list[Array]],
    spans: list[Array],
    p: int,
    lam2: float,
    *,
    max_iter: int,
    tol: float,
    start: Array | None,
    report: Report | None,
) -> Solution:
    """Return `fish_mml` from S_b + lam1 S_t and C_vw of views in the coordinates of their spans."""
    # the optimum without the coupling of the views
    P = [psd.spectrum(A)[1][:, :p] for A in scatters]
    widths = np.cumsum([V.shape[1] for V in spans])
    if start is not None and start.shape == (p * len(scatters), widths[-1]):
        parts = np.split(start, widths[:-1], axis=1)
        P = [V @ part[v * p : (v + 1) * p].T for v, (V, part) in enumerate(zip(spans, parts, strict=True))]
    history = [value(P, scatters, C, lam2)]
    converged = False
    while not converged and len(history) <= max_iter:
        for v, A in enumerate(scatters):
            # given the other views, P_v maximizes tr(P_v' (S_b + lam1 S_t + lam2 sum_w C_vw P_w P_w' C_vw') P_v)
            links = [C[v][w] @ P[w] for w in range(len(P)) if w != v]
            P[v] = psd.spectrum(A + lam2 * sum(K @ K.T for K in links))[1][:, :p]
        history.append(value(P, scatters, C, lam2))
        if report is not None:
            report(len(history) - 1, history[-1], history[-1] - history[-2])
        # each block is solved exactly, so the objective never decreases, and the last gain says how much is left
        converged = history[-1] - history[-2] <= tol * abs(history[-1])
    k = len(history) - 1
    if converged:
        message = ""
    else:
        limit = tol * abs(history[-1])
        message = stopped("block coordinate ascent", k, "last gain", history[-1] - history[-2], limit)
    components = [psd.fix_signs(V.T @ Pv).T.copy() for V, Pv in zip(spans, P, strict=True)]
    attributes = {"view_components": components}
    L = block_diag(*components)
    return Solution(
        x=L,
        objective=history[-1],
        n_iter=k,
        converged=bool(converged),
        message=message,
        history=np.array(history),
        attributes=attributes,
    )


def value(P: list[Array], scatters: list[Array], C: list[list[Array]], lam2: float) -> float:
    """Return the objective."""
    # sum_v tr(P_v' A_v P_v) + lam2 sum_{w < v} |P_v' C_vw P_w|^2, with A_v = S_b^v + lam1 S_t^v (d_v, d_v)
    fisher = sum(np.sum(Pv * (A @ Pv)) for Pv, A in zip(P, scatters, strict=True))
    hsic = sum(np.sum((P[v].T @ C[v][w] @ P[w]) ** 2) for v in range(len(P)) for w in range(v))
    return float(fisher + lam2 * hsic)


class FISHMML(LabelSums):
    """Learn an orthogonal projection of each view that separates classes and makes the views depend on each other.

    It keeps one direction less than there are classes, which is too little for nearest neighbors of a single view with
    few classes: choose `n_components` by cross-validation.

    Parameters
    ----------
    n_components : int, optional
        Number of directions of each view. By default, one less than the number of classes, but at most the number of
        features of the narrowest view.
    lam1 : float
        Weight of the total covariance, at least 0.
    lam2 : float
        Weight of the dependence between views, at least 0.
    view_sizes : sequence of int, optional
        Number of columns of each view if X is a single matrix, as in pipelines. By default, X is one view.
    hsic_scale : bool
        Divide the dependence by (n - 1)^2, which makes `lam2` independent of the number n of rows.
    max_iter : int
        Maximum number of iterations. One iteration updates the projection of every view.
    tol : float
        Stop when one iteration raises the objective by at most `tol` times its absolute value.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Block-diagonal map of the concatenated views, so that the squared distances of the views add up.
    view_components_ : list of ndarray of shape (n_components, d_v)
        Projection of each view, with orthonormal rows.
    view_sizes_ : ndarray of int
        Number of columns of each view.
    objective_ : float
        Value of the objective.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Zhang, Liu, Liu, Hu, Liu & Zhu, "FISH-MML: Fisher-HSIC multi-view metric learning", IJCAI 2018. The paper searches
    a grid of weights; the default weights here are not from the paper. The survey of Ghojogh et al. (2022) uses one
    projection for all views, which would require views of equal width.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        lam1: float = 0.1,
        lam2: float = 0.1,
        view_sizes: Sequence[int] | None = None,
        hsic_scale: bool = True,
        max_iter: int = 50,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.lam1 = lam1
        self.lam2 = lam2
        self.view_sizes = view_sizes
        self.hsic_scale = hsic_scale
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose

    @with_signature_hint
    def fit(
        self, X: Any, y: AnyArray | None = None, *, sample_weight: AnyArray | None = None, unlabeled: Any = None
    ) -> FISHMML:
        """Learn from labeled rows of several views.

        Parameters
        ----------
        X : list of array-like of shape (n, d_v); or array-like, CSR or Dask collection of shape (n, d)
            List of views, or the columns of all views side by side.
        y : array-like of shape (n,)
            Class labels of any kind.
        sample_weight : array-like of shape (n,), optional
            Number of times that each row counts, at least 0. Not supported with a list of views. By default, every row
            counts once.
        unlabeled : object, optional
            Value in y that marks rows without a label, such as -1. By default, every value is a class.

        Returns
        -------
        self : FISHMML
            The fitted learner.
        """
        return self._fit(X, y, sample_weight=sample_weight, unlabeled=unlabeled)

    def _summed(self, X: Any, y: Any, sample_weight: Any, unlabeled: Any, reset: bool) -> RowSums:
        if checks.side_by_side(X)[1] is not None:
            raise ValueError("X must be one matrix here; got a list of views: join their columns, and set view_sizes=")
        return super()._summed(X, y, sample_weight, unlabeled, reset)

    def _supervise(self, X: Any, y: AnyArray | None, **given: Any) -> Supervised:
        joined, sizes = checks.side_by_side(X)
        supervised = super()._supervise(joined, y, **given)
        if sizes is not None:
            widths = np.asarray(sizes)
        elif self.view_sizes is not None:
            widths = np.asarray(self.view_sizes)
        else:
            widths = np.array([supervised.X.shape[1]])
        return replace(supervised, known=(*supervised.known, widths))

    def transform(self, X: Any) -> AnyArray:
        """Return the projections of all views side by side.

        Parameters
        ----------
        X : list of array-like of shape (n, d_v), or array-like of shape (n, d)
            Views, as in `fit`.

        Returns
        -------
        ndarray of shape (n, k)
            Transformed rows.
        """
        with error_context(self):
            return super().transform(checks.side_by_side(X, getattr(self, "view_sizes_", None))[0])

    def _solve(self, X: Array, labels: Ints, sizes: Ints, work: Workspace) -> Solution:
        p = self._checked(sizes, X.shape[1], classes=int(labels.max()) + 1)
        views = np.split(X, np.cumsum(sizes)[:-1], axis=1)
        settings = self._settings("lam1", "lam2", "hsic_scale") | self._search()
        found = fish_mml(views, labels, p, start=work.start(), **settings)
        return found.with_x(found.x, attributes={**found.attributes, "view_sizes": sizes})

    def _solve_sums(self, sums: ClassMoments, rows: ClassMoments, work: Workspace) -> Solution:
        d = len(rows.center)
        if self.view_sizes is None:
            sizes = np.array([d])
        else:
            sizes = np.asarray(self.view_sizes)
        p = self._checked(sizes, d, classes=len(sums.count))
        ends = np.cumsum(sizes)
        views = [slice(int(end - size), int(end)) for end, size in zip(ends, sizes, strict=True)]
        T = rows.total
        B = sums.between / sums.n + self.lam1 * T / rows.n
        scale = rows.n - 1 if self.hsic_scale else 1
        scatters = [B[v, v] for v in views]
        # blocks of the total scatter between the columns of two views: HSIC(v, w) = |P_v' C_vw P_w|_F^2
        C = [[T[v, w] / scale for w in views] for v in views]
        spans = [np.eye(int(size)) for size in sizes]
        found = ascent(scatters, C, spans, p, self.lam2, start=work.start(), **self._search())
        return found.with_x(found.x, attributes={**found.attributes, "view_sizes": sizes})

    def _checked(self, sizes: Ints, d: int, classes: int) -> int:
        """Check the settings and the views, and return the number of directions of each."""
        checks.at_least(0, lam1=self.lam1, lam2=self.lam2)
        whole = sizes.dtype.kind in "iu" and (sizes >= 1).all()
        if not whole or sizes.sum() != d:
            raise ValueError(
                f"view_sizes must be integers >= 1 whose sum is {d}, as X has columns; got {sizes.tolist()}"
            )
        narrowest = int(sizes.min())
        if self.n_components is not None and self.n_components > narrowest:
            width = f"{narrowest}, the number of columns of the narrowest view"
            raise ValueError(f"n_components must be at most {width}; got {self.n_components}")
        return self.n_components or min(classes - 1, narrowest)
