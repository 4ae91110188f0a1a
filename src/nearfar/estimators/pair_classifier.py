"""A classifier of pairs of points as similar or dissimilar, by the distance of a learner."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from ..labels import as_array
from ..numerics.types import AnyArray
from .validation import error_context


class PairClassifier(ClassifierMixin, BaseEstimator):
    """Classify pairs of points as similar or dissimilar, as a scikit-learn classifier.

    Samples are pairs instead of rows, so that `cross_val_score`, `GridSearchCV` and `CalibratedClassifierCV` work on
    pairs. `TupleKFold` provides folds that keep the entities of the training and test pairs apart.

    Parameters
    ----------
    learner : estimator
        Learner from pairs, such as ``ITML()``. Its settings are available as ``learner__name``.
    strategy : str
        Score that the threshold on the distance maximizes on the training pairs: "accuracy", "balanced" or "f_beta".

    Attributes
    ----------
    learner_ : estimator
        Fitted learner, with its `threshold_`.
    classes_ : ndarray of shape (2,)
        The two labels, with the smaller one, which means dissimilar, first.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from nearfar import ITML
    >>> rng = np.random.default_rng(0)
    >>> points, kind = rng.normal(size=(80, 2, 3)), np.arange(80) % 2
    >>> points[:, 1, 0] += 5 * (kind == 0)
    >>> bool(cross_val_score(PairClassifier(ITML()), points, kind, cv=4).mean() > 0.8)
    True
    """

    def __init__(self, learner: Any, *, strategy: str = "accuracy") -> None:
        self.learner = learner
        self.strategy = strategy

    def fit(self, X: AnyArray, y: AnyArray) -> PairClassifier:
        """Learn from pairs of points.

        Parameters
        ----------
        X : array-like of shape (m, 2, d)
            Pairs of points.
        y : array-like of shape (m,)
            Labels of two values, of which the larger one means similar: -1 and +1, 0 and 1, or False and True.

        Returns
        -------
        self : PairClassifier
            The fitted classifier.
        """
        with error_context(self):
            points = self._points(X)
            classes, codes = np.unique(as_array(y, "y"), return_inverse=True)
            if len(classes) != 2:
                got = classes[:5].tolist()
                raise ValueError(f"y must hold two values, the larger one for similar pairs; got {got}")
            labels = 2 * codes - 1
            learner = clone(self.learner).fit(points, labels)
            learner.calibrate_threshold(points, labels, strategy=self.strategy)
            learner.calibrate_probability(points, labels)
        self.learner_ = learner
        self.classes_ = classes
        self.n_features_in_ = points.shape[2]
        return self

    def decision_function(self, X: AnyArray) -> AnyArray:
        """Return the threshold minus the distance of each pair, shape (m,): positive values mean similar."""
        check_is_fitted(self)
        with error_context(self):
            return self.learner_.threshold_ - self.learner_.pair_distance(self._points(X))

    def predict(self, X: AnyArray) -> AnyArray:
        """Return the label of each pair, shape (m,)."""
        return self.classes_[(self.decision_function(X) >= 0).astype(int)]

    def predict_proba(self, X: AnyArray) -> AnyArray:
        """Return the probabilities that each pair is dissimilar and similar, shape (m, 2), from a logistic curve.

        The curve is fitted to the training pairs; `CalibratedClassifierCV` fits it to held-out pairs instead.
        """
        check_is_fitted(self)
        with error_context(self):
            return self.learner_.predict_proba(self._points(X))

    def _points(self, X: AnyArray) -> AnyArray:
        points = np.asarray(X)
        if points.ndim != 3 or points.shape[1] != 2:
            raise ValueError(f"X must hold pairs of points, shape (m, 2, d); got shape {points.shape}")
        return points

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.classifier_tags.multi_class = False
        return tags
