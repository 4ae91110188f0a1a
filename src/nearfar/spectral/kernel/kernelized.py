"""The kernel form of any linear learner (Chatpatanasiri, Korsrilabutr, Tangchanachaianan & Kijsirikul, 2010).

    d(a, b) = |L (R(a) - R(b))|,   R(x) = k(x)' V w^(-1/2),   K = V diag(w) V'

L is the solution of the learner on the rows R(x_i). If its problem depends only on inner products, this is exactly its
solution in the feature space.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_consistent_length

import nearfar

from ...estimators.base import KernelMetric, MetricLearner, Supervised, Workspace, with_signature_hint
from ...labels import as_array
from ...numerics import checks
from ...numerics.kernels import Kernel
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array, Ints

TUPLES = ("pairs", "pair_labels", "pair_weights", "triplets", "quadruplets", "quadruplet_weights")
ROUTED = (
    *TUPLES,
    "conflicts",
    "distances",
    "groups",
    "target_pairs",
    "target_distances",
    "chunklets",
    "negative_links",
    "privileged",
    "rows",
    "sample_weight",
    "unlabeled",
)
REPORTED = ("duality_gap", "history", "threshold")  # results of the learner that are passed on


def kernelized(learner: Any, R: Array, **supervision: Any) -> tuple[Any, Array]:
    """Fit the learner on rows R of a kernel map; return it and its components (k, r)."""
    name = type(learner).__name__
    learner = learner.fit(R, **supervision)
    L = getattr(learner, "components_", None)
    if not isinstance(L, np.ndarray) or L.shape[1:] != R.shape[1:]:
        raise ValueError(f"learner must learn one linear map, components_ of shape (k, d); {name} does not")
    # differences of transformed rows must be those of L R
    few = R[:4]
    Z = learner.transform(few)
    if not np.allclose(Z - Z[0], (few - few[0]) @ L.T, rtol=1e-6, atol=1e-9 * np.abs(Z).max()):
        raise ValueError(f"learner must be linear; the transform of {name} is more than its components_")
    return learner, np.asarray(L, dtype=np.float64)


class Kernelized(KernelMetric):
    """Run a linear learner in the feature space of a kernel.

    Parameters
    ----------
    learner : estimator
        Linear learner, with `components_` after a fit. Its settings are available as ``learner__name``. Saved files
        hold {"class": name, "settings": {...}}.
    kernel : str or callable
        "rbf", "linear", "polynomial", "laplacian", "cosine", "precomputed", or a function that takes two sets of rows
        and returns the matrix of their kernel values.
    landmarks : int or None
        Number of rows drawn with `random_state` to span the feature space (Nystroem approximation), which costs O(n
        landmarks^2). None uses all rows, which costs O(n^3).
    gamma : float, optional
        Coefficient of the kernel. By default, 1 / (median squared distance), for "laplacian" 1 / (median city-block
        distance), and for the other kernels 1 / d.
    degree, coef0 : float
        Degree and constant term of the polynomial kernel.
    rank : int, optional
        Number of leading directions of the kernel map to keep, at least 1, which acts as regularization. By default,
        all directions with eigenvalues above 1e-10 of the largest are kept.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the landmarks.

    Attributes
    ----------
    learner_ : estimator
        Learner fitted to the rows of the kernel map, which is not saved to files. Its `n_iter_`, `objective_` and
        similar attributes are also attributes of this learner.
    dual_coef_ : ndarray of shape (m, k)
        Coefficients of the map in the rows that span the feature space: a point maps to k(x)' dual_coef_.

    Notes
    -----
    Chatpatanasiri et al., Neurocomputing 73, 2010: their "KPCA trick", without centering, which changes no distance.
    >>> turn, r = np.linspace(0, 12, 80), np.repeat([1, 2], 40)
    >>> model = Kernelized(nearfar.RCA(shrinkage=0.1)).fit(np.c_[r * np.cos(turn), r * np.sin(turn)], r)
    >>> model.pair_distance([[[1, 0], [-1, 0]], [[1, 0], [2, 0]]]).round(1)
    array([ 4.4, 14. ])
    """

    _y_required = False
    __metadata_request__fit = dict.fromkeys(ROUTED)  # `fit` takes them without naming them

    def __init__(
        self,
        learner: Any,
        kernel: Kernel = "rbf",
        landmarks: int | None = None,
        *,
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        rank: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.learner = learner
        self.kernel = kernel
        self.landmarks = landmarks
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.rank = rank
        self.random_state = random_state

    @with_signature_hint
    def fit(self, X: AnyArray, y: AnyArray | None = None, **supervision: Any) -> Kernelized:
        """Learn from labels y, or from other supervision that the learner supports (``pairs=``, ...).

        Parameters
        ----------
        X : array-like of shape (n, d)
            Training rows.
        y : array-like of shape (n,), optional
            Class labels of any kind.
        **supervision : dict
            Other arguments of the `fit` of the learner.

        Returns
        -------
        self : Kernelized
            The fitted learner.
        """
        return self._fit(X, y, **supervision)

    def _supervise(self, X: AnyArray, y: AnyArray | None, *, unlabeled: Any = None, **given: Any) -> Supervised:
        X = self._rows(X)
        supervision = {key: value for key, value in given.items() if value is not None}
        check_consistent_length(X, y)
        if y is None:
            return Supervised(X, (supervision,))
        # rows are sorted only if there are labels alone, because other supervision refers to rows by their numbers
        if supervision:
            order = np.arange(len(X))
        else:
            order = self._order(X)
        checks.require_same_type(y, unlabeled)
        y = as_array(y, "y")
        labels = checks.numbered(y, unlabeled)
        if unlabeled is not None:
            supervision["unlabeled"] = unlabeled if labels is y else -1
        return Supervised(X[order], ({"y": labels[order], **supervision},), order)

    def _workspace(self, X: AnyArray, order: Ints | None) -> Workspace:
        checks.counts(1, **checks.not_none(rank=self.rank))
        work = super()._workspace(X, order)
        if self.rank is None:
            return work
        rows = np.ascontiguousarray(work.rows[:, : self.rank])
        last = work.last
        if last is not None:
            last = last[:, : self.rank]
        assert work.basis is not None
        return replace(work, rows=rows, basis=work.basis[:, : self.rank], last=last)

    def _solve(self, R: Array, supervision: dict[str, Any], work: Workspace) -> Solution:
        learner = clone(self._linear())
        if isinstance(learner, MetricLearner):
            # to divide the coordinates by their deviations would make the smallest, which are noise, as large as any
            learner._has_units = False
        if work.last is not None:
            learner.components_ = work.last
        learner, L = kernelized(learner, R, **supervision)
        attributes = {name: getattr(learner, f"{name}_") for name in REPORTED if hasattr(learner, f"{name}_")}
        return Solution(
            L,
            objective=getattr(learner, "objective_", None),  # the learners of scikit-learn have none
            n_iter=getattr(learner, "n_iter_", 1),
            converged=getattr(learner, "converged_", True),
            attributes={"learner": learner, **attributes},
        )

    def _linear(self) -> Any:
        """Return the learner, or make it from the description that a saved file holds."""
        if hasattr(self.learner, "get_params") and not isinstance(self.learner, type):
            return self.learner
        kind = None
        if isinstance(self.learner, dict):
            method = nearfar.catalog.BY_NAME.get(str(self.learner.get("class")))
            if method is not None and method.kind == "learner":
                kind = getattr(nearfar, method.name)
        if not (isinstance(kind, type) and issubclass(kind, MetricLearner)):
            raise ValueError(f"learner must be a learner of this library, such as RCA(); got {self.learner!r}")
        return kind(**self.learner.get("settings", {}))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self._linear().__sklearn_tags__().target_tags.required
        return tags

    def _contents(self) -> tuple[dict[str, AnyArray], dict[str, str]]:
        """Return what a saved learner holds; the linear learner is its name and settings."""
        inner = self._linear()
        shadow = copy.copy(self)
        plain = {}
        for name, value in inner.get_params(deep=False).items():
            plain[name] = value.tolist() if isinstance(value, np.ndarray) else value
        shadow.learner = {"class": type(inner).__name__, "settings": plain}
        shadow.__dict__.pop("learner_", None)
        shadow._linear()
        return super(Kernelized, shadow)._contents()

    def _restored(self) -> Kernelized:
        return self.set_params(learner=self._linear())
