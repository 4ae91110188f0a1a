"""The names and calls of metric-learn (0.7) on the learners of nearfar.

``from nearfar.compat.metric_learn import ITML`` takes the place of ``from metric_learn import ITML``: same settings,
arrays of tuples of points, `preprocessor`, and `_Supervised` twins that draw constraints from labels. What is computed
is nearfar's: objectives are minimized to a tolerance, and results differ where `docs/switching.md` says so. Settings
that only steer metric-learn's own searches (`learn_rate`, `min_iter`, `max_proj`, and `gamma`, `max_iter`,
`output_iter` and `batch_size` of SCML) are taken and not used.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

import nearfar

from ...numerics import checks, constraints
from ...numerics.types import AnyArray
from .kinds_of_learners import (
    DrawingLearner,
    LabelLearner,
    LikeMetricLearn,
    PairLearner,
    Preprocessor,
    PreprocessorError,
    QuadrupletLearner,
    TripletLearner,
)

__all__ = [
    "ITML",
    "LFDA",
    "LMNN",
    "LSML",
    "MLKR",
    "MMC",
    "NCA",
    "RCA",
    "SCML",
    "SDML",
    "Covariance",
    "ITML_Supervised",
    "LSML_Supervised",
    "MMC_Supervised",
    "PreprocessorError",
    "RCA_Supervised",
    "SCML_Supervised",
    "SDML_Supervised",
]


@dataclass(eq=False, repr=False)
class Covariance(LikeMetricLearn):
    """The inverse of the covariance: `nearfar.CovarianceMetric` without shrinkage."""

    preprocessor: Preprocessor = None

    def fit(self, X: AnyArray, y: Any = None) -> Covariance:
        """Learn from points (n, d), or their indicators (n,); y is not read."""
        found: Covariance = self._take(nearfar.CovarianceMetric(shrinkage=None).fit(self._rows(X)))
        return found


SCML_BASES = {"lda": "discriminants", "triplet_diffs": "triplets"}


def checked_bounds(bounds: AnyArray | None) -> AnyArray | None:
    """Return two rising bounds above 0: equal ones are set apart, and 0 is raised, as metric-learn does."""
    if bounds is None:
        return None
    found = check_array(bounds, allow_nd=True, ensure_min_samples=0, ensure_2d=False).astype(np.float64).ravel()
    if found.shape != (2,):
        raise ValueError("`bounds` should be an array-like of two elements.")
    if found[0] > found[1]:
        raise ValueError("First bound should be less than or equal to second bound.")
    # the projections of ITML divide by the bounds
    found = np.maximum(found, 1e-9)
    if found[0] == found[1]:
        found[1] = found[0] * (1 + 1e-9)
    return found


@dataclass(eq=False, repr=False)
class LFDA(LabelLearner):
    """Local Fisher discriminant analysis: `nearfar.LFDA`."""

    n_components: int | None = None
    k: int | None = None
    embedding_type: str = "weighted"
    preprocessor: Preprocessor = None

    def _learner(self) -> Any:
        return nearfar.LFDA(self.n_components, embedding_type=self.embedding_type, shrinkage=0)

    def _made(self, d: int, **more: Any) -> Any:
        """Return the learner of nearfar with a number of neighbors that metric-learn takes: below that of features."""
        learner = super()._made(d, **more)
        most = max(1, d - 1)
        if self.k is not None and self.k > most:
            warnings.warn(f"Chosen k ({self.k}) too large, using {most} instead.", stacklevel=3)
        return learner.set_params(n_neighbors=min(self.k or 7, most))


@dataclass(eq=False, repr=False)
class LMNN(LabelLearner):
    """Large margin nearest neighbors: `nearfar.LMNN`."""

    _renamed = {"k": "n_neighbors"}

    init: Any = "auto"
    n_neighbors: int = 3
    min_iter: int = 50
    max_iter: int = 1000
    learn_rate: float = 1e-7
    regularization: float = 0.5
    convergence_tol: float = 0.001
    verbose: bool = False
    preprocessor: Preprocessor = None
    n_components: int | None = None
    random_state: Any = None
    k: Any = "deprecated"

    def _learner(self) -> Any:
        return nearfar.LMNN(
            self.n_neighbors,
            regularization=self.regularization,
            n_components=self.n_components,
            init=self.init,
            max_iter=self.max_iter,
            tol=self.convergence_tol,
            verbose=self.verbose,
            random_state=self.random_state,
        )


@dataclass(eq=False, repr=False)
class NCA(LabelLearner):
    """Neighborhood components analysis: `nearfar.NCA`."""

    init: Any = "auto"
    n_components: int | None = None
    max_iter: int = 100
    tol: float | None = None
    verbose: bool = False
    preprocessor: Preprocessor = None
    random_state: Any = None

    def _learner(self) -> Any:
        return nearfar.NCA(
            self.n_components,
            init=self.init,
            max_iter=self.max_iter,
            tol=self.tol or 1e-9,
            verbose=self.verbose,
            random_state=self.random_state,
        )


@dataclass(eq=False, repr=False)
class MLKR(LabelLearner):
    """Metric learning for kernel regression: `nearfar.MLKR`; y holds numbers."""

    n_components: int | None = None
    init: Any = "auto"
    tol: float | None = None
    max_iter: int = 1000
    verbose: bool = False
    preprocessor: Preprocessor = None
    random_state: Any = None

    def fit(self, X: AnyArray, y: AnyArray) -> Any:
        """Learn from points (n, d), or their indicators (n,), and their targets (n,)."""
        X, y = self._rows(X, y, numeric=True)
        return self._take(self._made(X.shape[1]).fit(X, y))

    def _learner(self) -> Any:
        return nearfar.MLKR(
            self.n_components,
            init="pca" if isinstance(self.init, str) and self.init == "auto" else self.init,
            reg=0,
            max_iter=self.max_iter,
            tol=self.tol or 1e-9,
            verbose=self.verbose,
            random_state=self.random_state,
        )


@dataclass(eq=False, repr=False)
class RCA(LikeMetricLearn):
    """Relevant component analysis: `nearfar.RCA`."""

    n_components: int | None = None
    preprocessor: Preprocessor = None

    def fit(self, X: AnyArray, chunks: AnyArray) -> Any:
        """Learn from points (n, d), or their indicators (n,), and the number of each one's chunk, -1 for none."""
        X = self._rows(X)
        return self._take(self._made(X.shape[1]).fit(X, chunklets=np.asarray(chunks)))

    def _learner(self) -> Any:
        return nearfar.RCA(self.n_components, shrinkage=0)


@dataclass(eq=False, repr=False)
class RCA_Supervised(DrawingLearner):
    """Relevant component analysis on chunks that are drawn from labels: `nearfar.RCA`."""

    _drawn = {"n_chunklets": "n_chunks", "chunklet_size": "chunk_size"}
    _renamed = {"num_chunks": "n_chunks"}

    n_components: int | None = None
    n_chunks: int = 100
    chunk_size: int = 2
    preprocessor: Preprocessor = None
    random_state: Any = None
    num_chunks: Any = "deprecated"

    def _learner(self) -> Any:
        return nearfar.RCA(
            self.n_components,
            shrinkage=0,
            random_state=self.random_state,
        )


class ITMLSettings(LikeMetricLearn):
    """The learner of `nearfar.ITML` for both classes of the method."""

    gamma: float
    max_iter: int
    tol: float
    verbose: bool

    def _learner(self) -> Any:
        return nearfar.ITML(
            self.gamma,
            prior=self.prior,
            max_iter=self.max_iter,
            tol=self.tol,
            verbose=self.verbose,
            random_state=self.random_state,
        )


@dataclass(eq=False, repr=False)
class ITML(ITMLSettings, PairLearner):
    """Information-theoretic metric learning: `nearfar.ITML`."""

    _renamed = {"convergence_threshold": "tol"}

    gamma: float = 1.0
    max_iter: int = 1000
    tol: float = 1e-3
    prior: Any = "identity"
    verbose: bool = False
    preprocessor: Preprocessor = None
    random_state: Any = None
    convergence_threshold: Any = "deprecated"

    def fit(  # type: ignore[override]  # metric-learn has the bounds before the other argument
        self,
        pairs: AnyArray,
        y: AnyArray,
        bounds: AnyArray | None = None,
        calibration_params: dict[str, Any] | None = None,
    ) -> Any:
        """Learn as every learner from pairs; `bounds` (2,) are the squared distances that pairs should stay within."""
        return self._fit_pairs(pairs, y, calibration_params, bounds=checked_bounds(bounds))


@dataclass(eq=False, repr=False)
class ITML_Supervised(ITMLSettings, DrawingLearner):
    """`ITML` on pairs that are drawn from labels."""

    _drawn = {"n_pairs": "n_constraints"}
    _renamed = {"num_constraints": "n_constraints", "convergence_threshold": "tol"}

    gamma: float = 1.0
    max_iter: int = 1000
    tol: float = 1e-3
    n_constraints: int | None = None
    prior: Any = "identity"
    verbose: bool = False
    preprocessor: Preprocessor = None
    random_state: Any = None
    num_constraints: Any = "deprecated"
    convergence_threshold: Any = "deprecated"

    def fit(self, X: AnyArray, y: AnyArray, bounds: AnyArray | None = None) -> Any:
        """Learn from points and labels; `bounds` (2,) are the squared distances that pairs should stay within."""
        X, y = self._rows(X, y)
        return self._take(self._made(X.shape[1], bounds=checked_bounds(bounds)).fit(X, y))


class MMCSettings(LikeMetricLearn):
    """The learner of `nearfar.MMC` for both classes of the method."""

    diagonal: bool
    diagonal_c: float
    max_iter: int
    tol: float
    verbose: bool

    def _learner(self) -> Any:
        return nearfar.MMC(
            self.diagonal,
            c=self.diagonal_c,
            floor=0,
            shrinkage=0,
            max_iter=self.max_iter,
            tol=self.tol,
            verbose=self.verbose,
            random_state=self.random_state,
        )


@dataclass(eq=False, repr=False)
class MMC(MMCSettings, PairLearner):
    """Metric learning with application to clustering: `nearfar.MMC`, which needs no start."""

    _renamed = {"convergence_threshold": "tol"}

    max_iter: int = 100
    max_proj: int = 10000
    tol: float = 1e-3
    init: Any = "identity"
    diagonal: bool = False
    diagonal_c: float = 1.0
    verbose: bool = False
    preprocessor: Preprocessor = None
    random_state: Any = None
    convergence_threshold: Any = "deprecated"


@dataclass(eq=False, repr=False)
class MMC_Supervised(MMCSettings, DrawingLearner):
    """`MMC` on pairs that are drawn from labels."""

    _drawn = {"n_pairs": "n_constraints"}
    _renamed = {"convergence_threshold": "tol", "num_constraints": "n_constraints"}

    max_iter: int = 100
    max_proj: int = 10000
    tol: float = 1e-6
    n_constraints: int | None = None
    init: Any = "identity"
    diagonal: bool = False
    diagonal_c: float = 1.0
    verbose: bool = False
    preprocessor: Preprocessor = None
    random_state: Any = None
    num_constraints: Any = "deprecated"
    convergence_threshold: Any = "deprecated"


class SDMLSettings(LikeMetricLearn):
    """The learner of `nearfar.SDML` for both classes of the method."""

    balance_param: float
    sparsity_param: float
    verbose: bool

    def _learner(self) -> Any:
        return nearfar.SDML(
            self.balance_param,
            sparsity=self.sparsity_param,
            prior=self.prior,
            verbose=self.verbose,
            random_state=self.random_state,
        )


@dataclass(eq=False, repr=False)
class SDML(SDMLSettings, PairLearner):
    """Sparse determinant metric learning: `nearfar.SDML`."""

    balance_param: float = 0.5
    sparsity_param: float = 0.01
    prior: Any = "identity"
    verbose: bool = False
    preprocessor: Preprocessor = None
    random_state: Any = None


@dataclass(eq=False, repr=False)
class SDML_Supervised(SDMLSettings, DrawingLearner):
    """`SDML` on pairs that are drawn from labels."""

    _drawn = {"n_pairs": "n_constraints"}
    _renamed = {"num_constraints": "n_constraints"}

    balance_param: float = 0.5
    sparsity_param: float = 0.01
    prior: Any = "identity"
    n_constraints: int | None = None
    verbose: bool = False
    preprocessor: Preprocessor = None
    random_state: Any = None
    num_constraints: Any = "deprecated"


class LSMLSettings(LikeMetricLearn):
    """The learner of `nearfar.LSML` for both classes of the method."""

    max_iter: int
    tol: float
    verbose: bool

    def _learner(self) -> Any:
        return nearfar.LSML(
            prior=self.prior,
            max_iter=self.max_iter,
            tol=self.tol,
            verbose=self.verbose,
            random_state=self.random_state,
        )


@dataclass(eq=False, repr=False)
class LSML(LSMLSettings, QuadrupletLearner):
    """Least squared-residual metric learning: `nearfar.LSML`."""

    tol: float = 1e-3
    max_iter: int = 1000
    prior: Any = "identity"
    verbose: bool = False
    preprocessor: Preprocessor = None
    random_state: Any = None

    def fit(self, quadruplets: AnyArray, weights: AnyArray | None = None) -> Any:
        """Learn from quadruplets of points (m, 4, d), or of indicators (m, 4).

        The first two of each are nearer to each other than the last two.
        """
        quadruplets = self._tuples(quadruplets)
        return self._take(self._made(quadruplets.shape[2]).fit(quadruplets, quadruplet_weights=weights))


@dataclass(eq=False, repr=False)
class LSML_Supervised(LSMLSettings, DrawingLearner):
    """`LSML` on quadruplets that are drawn from labels."""

    _drawn = {"n_quadruplets": "n_constraints"}
    _renamed = {"num_constraints": "n_constraints"}

    tol: float = 1e-3
    max_iter: int = 1000
    prior: Any = "identity"
    n_constraints: int | None = None
    weights: Any = None
    verbose: bool = False
    preprocessor: Preprocessor = None
    random_state: Any = None
    num_constraints: Any = "deprecated"

    def fit(self, X: AnyArray, y: AnyArray) -> Any:
        """Learn from points (n, d), or their indicators (n,), and their labels (n,).

        `weights` holds one number for each of the quadruplets that are drawn, in the order of the draws.
        """
        if self.weights is None:
            return super().fit(X, y)
        X, y = self._rows(X, y)
        # drawn here, as the learner would draw them, because each weight belongs to one of them
        labels = checks.encode(y)[1]
        drawn = constraints.quadruplets_from_labels(labels, self.n_constraints, self.random_state)
        weights = constraints.check_weights(self.weights, len(drawn), "weights")
        return self._take(self._made(X.shape[1]).fit(X, quadruplets=drawn, quadruplet_weights=weights))


class SCMLSettings(LikeMetricLearn):
    """The learner of `nearfar.SCML` for both classes of the method."""

    beta: float
    basis: Any
    n_basis: int | None
    verbose: bool

    def _learner(self) -> Any:
        return nearfar.SCML(
            beta=self.beta,
            basis=SCML_BASES.get(self.basis, self.basis) if isinstance(self.basis, str) else self.basis,
            n_basis=self.n_basis,
            verbose=self.verbose,
            random_state=self.random_state,
        )


@dataclass(eq=False, repr=False)
class SCML(SCMLSettings, TripletLearner):
    """Sparse compositional metric learning: `nearfar.SCML`."""

    beta: float = 1e-5
    basis: Any = "triplet_diffs"
    n_basis: int | None = None
    gamma: float = 5e-3
    max_iter: int = 10000
    output_iter: int = 500
    batch_size: int = 10
    verbose: bool = False
    preprocessor: Preprocessor = None
    random_state: Any = None

    def fit(self, triplets: AnyArray) -> Any:
        """Learn from triplets of points (m, 3, d), or of indicators (m, 3): the second is nearer than the third."""
        triplets = self._tuples(triplets)
        # the second and third point against the first, and the third against the second
        apart = (triplets[:, [0, 0, 1]] != triplets[:, [1, 2, 2]]).any(axis=2).all(axis=1)
        if not apart.all():
            same = int((~apart).sum())
            warnings.warn(f"{same} triplets hold a point twice. They were left out.", stacklevel=2)
        return self._take(self._made(triplets.shape[2]).fit(triplets[apart]))


@dataclass(eq=False, repr=False)
class SCML_Supervised(SCMLSettings, DrawingLearner):
    """`SCML` on triplets that are drawn from labels."""

    _drawn = {"n_neighbors": "k_genuine", "n_impostors": "k_impostor"}

    k_genuine: int = 3
    k_impostor: int = 10
    beta: float = 1e-5
    basis: Any = "lda"
    n_basis: int | None = None
    gamma: float = 5e-3
    max_iter: int = 10000
    output_iter: int = 500
    batch_size: int = 10
    verbose: bool = False
    preprocessor: Preprocessor = None
    random_state: Any = None
