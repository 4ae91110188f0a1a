"""The names and calls of metric-learn (0.7) on the learners of nearfar.

``from nearfar.compat.metric_learn import ITML`` takes the place of ``from metric_learn import ITML``: same settings,
arrays of tuples of points, `preprocessor`, and `_Supervised` twins that draw constraints from labels. What is computed
is nearfar's: objectives are minimized to a tolerance, and results differ where `docs/switching.md` says so. Settings
that only steer metric-learn's own searches (`learn_rate`, `min_iter`, `max_proj`, and `gamma`, `max_iter`,
`output_iter` and `batch_size` of SCML) are taken and not used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import roc_auc_score
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, check_X_y, column_or_1d

import nearfar

from ..estimators.fitted import LinearDistance
from ..numerics import checks, constraints
from ..numerics.types import AnyArray, Ints

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
    "RCA_Supervised",
    "SCML_Supervised",
    "SDML_Supervised",
]

Preprocessor = AnyArray | Callable[[AnyArray], AnyArray] | None


class PreprocessorError(Exception):
    """The preprocessor failed; the message holds its own error."""


def points_of(preprocessor: Preprocessor, indicators: AnyArray) -> AnyArray:
    """Return the points that a preprocessor gives for indicators of any shape, in that shape and with one axis more."""
    indicators = np.asarray(indicators)
    try:
        if callable(preprocessor):
            found = np.asarray(preprocessor(indicators.ravel()))
        else:
            found = np.asarray(preprocessor)[indicators.ravel()]
    except Exception as error:
        raise PreprocessorError(f"An error occurred when trying to use the preprocessor: {error!r}") from error
    return found.reshape(*indicators.shape, -1)


class VectorDistance(LinearDistance):
    """The learned distance of two vectors, each of shape (d,), (1, d) or (d, 1)."""

    def __call__(self, u: AnyArray, v: AnyArray, squared: bool = False) -> float:
        return super().__call__(vector(u), vector(v), squared)


def vector(point: AnyArray) -> AnyArray:
    """Return a point as a vector (d,), whatever axes of length 1 it has."""
    found = np.atleast_1d(np.squeeze(point))
    if found.ndim != 1:
        raise ValueError(f"Input vector should be 1-D; got an array of shape {np.shape(point)}.")
    return found


class LikeMetricLearn(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What every learner of metric-learn can do once it is fitted; `learner_` is the one of nearfar."""

    _tuple_size: int | None = None
    _drawn: dict[str, str] = {}  # settings of nearfar that say how much is drawn from labels, and their names here
    _renamed: dict[str, str] = {}  # old names of settings, and their names now
    preprocessor: Preprocessor
    prior: Any
    random_state: Any

    def __post_init__(self) -> None:
        """Give what came under old names the new ones, with the warning of metric-learn."""
        for old, new in self._renamed.items():
            given = getattr(self, old)
            if isinstance(given, str) and given == "deprecated":
                continue
            detail = f'"{old}" parameter has been renamed to "{new}". It has been deprecated in version 0.6.3'
            warnings.warn(f"{detail} and will be removed in 0.7.0", FutureWarning, stacklevel=3)
            setattr(self, new, given)
            setattr(self, old, "deprecated")

    def _learner(self) -> Any:
        """Return the learner of nearfar with the same settings."""
        raise NotImplementedError

    def _made(self, d: int, **more: Any) -> Any:
        """Return the learner of nearfar for points of d features, with further settings."""
        n_components = getattr(self, "n_components", None)
        if n_components is not None and not 1 <= n_components <= d:
            raise ValueError(f"Invalid n_components, must be in [1, {d}]")
        learner = self._learner()
        more |= {name: getattr(self, own) for name, own in self._drawn.items()}
        if "prior" in learner.get_params():
            more["prior"] = random_prior(self.prior, d, self.random_state)
        return learner.set_params(**more)

    def _rows(self, X: AnyArray, y: AnyArray | None = None, numeric: bool = False) -> Any:
        """Return checked points (n, d), and y: points themselves or what the preprocessor gives for indicators."""
        self._check_preprocessor()
        if self.preprocessor is not None and np.ndim(X) == 1:
            X = points_of(self.preprocessor, X)
        if y is None:
            return check_array(X, dtype=np.float64, estimator=self)
        return check_X_y(X, y, dtype=np.float64, y_numeric=numeric, estimator=self, ensure_min_samples=2)

    def _tuples(self, tuples: AnyArray, size: int | None = None) -> AnyArray:
        """Return checked tuples of points (m, size, d): points themselves or indicators for the preprocessor."""
        self._check_preprocessor()
        size = size or self._tuple_size
        if np.ndim(tuples) == 2 and self.preprocessor is not None:
            tuples = points_of(self.preprocessor, tuples)
        if np.ndim(tuples) != 3:
            hint = "" if self.preprocessor is not None else "; with indicators a preprocessor is needed"
            kind = type(self).__name__
            raise ValueError(
                f"3D array of formed tuples expected by {kind}. Found {np.ndim(tuples)}D array instead{hint}."
            )
        tuples = check_array(tuples, dtype=np.float64, allow_nd=True, estimator=self)
        if size is not None and tuples.shape[1] != size:
            raise ValueError(
                f"Tuples of {size} element(s) expected by {type(self).__name__}. Got tuples of {tuples.shape[1]}."
            )
        return tuples

    def _check_preprocessor(self) -> None:
        given = getattr(self, "preprocessor", None)
        if given is not None and not callable(given) and not hasattr(given, "__len__"):
            needs = "You should provide either None, an array-like object, or a callable."
            raise ValueError(f"Invalid type for the preprocessor: {type(given)}. {needs}")

    def _take(self, learner: Any) -> Any:
        """Keep a fitted learner of nearfar, and show its results under the names of metric-learn."""
        self.learner_ = learner
        self.components_ = learner.components_
        self.n_features_in_ = learner.components_.shape[1]
        self.n_iter_ = learner.n_iter_
        self.preprocessor_ = self.preprocessor
        if hasattr(learner, "bounds_"):
            self.bounds_ = learner.bounds_
        return self

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def transform(self, X: AnyArray) -> AnyArray:
        """Map points (n, d), or their indicators (n,), to ``X @ components_.T``."""
        check_is_fitted(self, "components_")
        X = self._rows(X)
        if X.shape[1] != self.components_.shape[1]:
            expected = f"{type(self).__name__} is expecting {self.components_.shape[1]} features as input"
            raise ValueError(f"X has {X.shape[1]} features, but {expected}")
        return X @ self.components_.T

    def pair_distance(self, pairs: AnyArray) -> AnyArray:
        """Return the learned distance of each pair, points (m, 2, d) or indicators (m, 2)."""
        check_is_fitted(self, "components_")
        pairs = self._tuples(pairs, size=2)
        return np.linalg.norm((pairs[:, 1] - pairs[:, 0]) @ self.components_.T, axis=1)

    def pair_score(self, pairs: AnyArray) -> AnyArray:
        """Return minus `pair_distance`: the larger, the more similar."""
        return -self.pair_distance(pairs)

    def score_pairs(self, pairs: AnyArray) -> AnyArray:
        """Return `pair_distance`, under the name that metric-learn deprecated in 0.7."""
        detail = "score_pairs will be deprecated in release 0.7.0. Use pair_score to compute similarity scores"
        warnings.warn(f"{detail}, or pair_distances to compute distances.", FutureWarning, stacklevel=2)
        return self.pair_distance(pairs)

    def get_metric(self) -> Callable[..., float]:
        """Return the learned distance as a function of two points."""
        check_is_fitted(self, "components_")
        return VectorDistance(np.atleast_2d(self.components_).copy())

    def get_mahalanobis_matrix(self) -> AnyArray:
        """Return M = L' L, shape (d, d)."""
        check_is_fitted(self, "components_")
        return self.components_.T @ self.components_


class LabelLearner(LikeMetricLearn):
    """Learners with `fit(X, y)`, to which every label is a class."""

    def fit(self, X: AnyArray, y: AnyArray) -> Any:
        """Learn from points (n, d), or their indicators (n,), and their labels (n,)."""
        X, y = self._rows(X, y)
        return self._take(self._made(X.shape[1]).fit(X, y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class DrawingLearner(LabelLearner):
    """Learners that draw constraints from labels: rows with a negative label have none, and are left out."""

    def _rows(self, X: AnyArray, y: AnyArray | None = None, numeric: bool = False) -> Any:
        if y is None:
            return super()._rows(X)
        X, y = super()._rows(X, y)
        if y.dtype.kind not in "if":
            return X, y
        known = y >= 0
        if not known.any():
            raise ValueError("y should hold labels of at least 0; every label is negative, which means unlabeled.")
        return X[known], y[known]


class TupleLearner(ClassifierMixin, LikeMetricLearn):
    """Learners from tuples of points: classifiers of these, so that folds have as many of each kind."""

    classes_ = np.array([0, 1])


class PairLearner(TupleLearner):
    """Learners with `fit(pairs, y)`, and what they decide of pairs."""

    _tuple_size = 2

    def fit(self, pairs: AnyArray, y: AnyArray, calibration_params: dict[str, Any] | None = None) -> Any:
        """Learn from pairs of points (m, 2, d), or of indicators (m, 2), and +1 or -1 for each.

        `calibration_params` are arguments of `calibrate_threshold`, which is called on the same pairs.
        """
        return self._fit_pairs(pairs, y, calibration_params)

    def _fit_pairs(self, pairs: AnyArray, y: AnyArray, calibration: dict[str, Any] | None, **more: Any) -> Any:
        self._validate_calibration_params(**(calibration or {}))
        pairs, y = self._labeled_pairs(pairs, y)
        learner = self._made(pairs.shape[2], **more)
        # two equal points are at distance 0 under every metric: as a dissimilar pair, they cannot be satisfied
        apart = (pairs[:, 0] != pairs[:, 1]).any(axis=1)
        if not apart.all():
            same = int((~apart).sum())
            warnings.warn(f"{same} collapsed pairs found. They were left out.", stacklevel=3)
        self._take(learner.fit(pairs[apart], y[apart]))
        return self.calibrate_threshold(pairs, y, **(calibration or {}))

    def _labeled_pairs(self, pairs: AnyArray, y: AnyArray) -> tuple[AnyArray, Ints]:
        pairs = self._tuples(pairs)
        y = column_or_1d(y, warn=True)
        check_consistent_length(pairs, y)
        if not np.isin(y, (-1, 1)).all():
            raise ValueError("When training on pairs, the labels (y) should contain only values in [-1, 1].")
        return pairs, y

    def decision_function(self, pairs: AnyArray) -> AnyArray:
        """Return `pair_score`."""
        return self.pair_score(pairs)

    def predict(self, pairs: AnyArray) -> AnyArray:
        """Return +1 for pairs at most `threshold_` apart, else -1."""
        check_is_fitted(self, "components_")
        if not hasattr(self, "threshold_"):
            raise AttributeError(
                "A threshold for this estimator has not been set, call its set_threshold or calibrate_threshold method."
            )
        return 2 * (self.pair_distance(pairs) <= self.threshold_) - 1

    def score(self, pairs: AnyArray, y: AnyArray) -> float:
        """Return the area under the ROC curve of `decision_function`."""
        return float(roc_auc_score(y, self.decision_function(pairs)))

    def set_threshold(self, threshold: float) -> Any:
        """Set the distance up to which points are similar for `predict`."""
        check_is_fitted(self, "components_")
        try:
            self.threshold_ = float(threshold)
        except (TypeError, ValueError):
            raise ValueError(f"Parameter threshold must be a real number. Got {type(threshold)} instead.") from None
        return self

    def calibrate_threshold(
        self,
        pairs_valid: AnyArray,
        y_valid: AnyArray,
        strategy: str = "accuracy",
        min_rate: float | None = None,
        beta: float = 1.0,
    ) -> Any:
        """Set the threshold that is best on these pairs: "accuracy", "f_beta", "max_tpr" or "max_tnr"."""
        check_is_fitted(self, "components_")
        self._validate_calibration_params(strategy, min_rate, beta)
        pairs, y = self._labeled_pairs(pairs_valid, y_valid)
        options = {"strategy": strategy, "min_rate": min_rate, "beta": beta}
        self.learner_.calibrate_threshold(pairs, y, **options)
        self.threshold_ = self.learner_.threshold_
        return self

    @staticmethod
    def _validate_calibration_params(
        strategy: str = "accuracy", min_rate: float | None = None, beta: float = 1.0
    ) -> None:
        """Raise unless these are arguments of `calibrate_threshold`."""
        if strategy not in ("accuracy", "f_beta", "max_tpr", "max_tnr"):
            options = '"accuracy", "f_beta" or "max_tpr" or "max_tnr"'
            raise ValueError(f'Strategy can either be {options}. Got "{strategy}" instead.')
        if strategy in ("max_tpr", "max_tnr") and (
            not isinstance(min_rate, (int, float)) or isinstance(min_rate, bool) or not 0 <= min_rate <= 1
        ):
            raise ValueError(f"Parameter min_rate must be a number in[0, 1]. Got {min_rate} instead.")
        if strategy == "f_beta" and (not isinstance(beta, (int, float)) or isinstance(beta, bool)):
            raise ValueError(f"Parameter beta must be a real number. Got {type(beta)} instead.")


class TripletLearner(TupleLearner):
    """Learners with `fit(triplets)`, and what they decide of triplets."""

    _tuple_size = 3

    def decision_function(self, triplets: AnyArray) -> AnyArray:
        """Return by how much the second point is nearer to the first than the third."""
        triplets = self._tuples(triplets)
        return self.pair_score(triplets[:, :2]) - self.pair_score(triplets[:, [0, 2]])

    def predict(self, triplets: AnyArray) -> AnyArray:
        """Return +1 where the second point is nearer to the first than the third, else -1."""
        check_is_fitted(self, "components_")
        return 2 * (self.decision_function(triplets) > 0) - 1

    def score(self, triplets: AnyArray) -> float:
        """Return the share of triplets in the right order."""
        return float(self.predict(triplets).mean() / 2 + 0.5)


class QuadrupletLearner(TupleLearner):
    """Learners with `fit(quadruplets)`, and what they decide of quadruplets."""

    _tuple_size = 4

    def decision_function(self, quadruplets: AnyArray) -> AnyArray:
        """Return by how much the first two points are nearer to each other than the last two."""
        quadruplets = self._tuples(quadruplets)
        return self.pair_score(quadruplets[:, :2]) - self.pair_score(quadruplets[:, 2:])

    def predict(self, quadruplets: AnyArray) -> AnyArray:
        """Return the sign of `decision_function`."""
        check_is_fitted(self, "components_")
        return np.sign(self.decision_function(quadruplets))

    def score(self, quadruplets: AnyArray) -> float:
        """Return the share of quadruplets in the right order."""
        return float(self.predict(quadruplets).mean() / 2 + 0.5)


def random_prior(prior: Any, d: int, random_state: Any) -> Any:
    """Return what nearfar takes for the prior "random": a positive definite matrix (d, d); else the prior itself."""
    if not isinstance(prior, str) or prior != "random":
        return prior
    A = constraints.generator(random_state).normal(size=(d, d))
    return A @ A.T / d + 0.1 * np.eye(d)


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
