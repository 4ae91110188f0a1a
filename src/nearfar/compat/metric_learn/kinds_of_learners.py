"""What the learners of metric-learn have in common: how they take points and tuples, and what they do once fitted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import roc_auc_score
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, check_X_y, column_or_1d

from ...estimators.fitted import LinearDistance
from ...numerics import constraints
from ...numerics.types import AnyArray, Ints

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
