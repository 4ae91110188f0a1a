"""What every fitted learner can do with its metric: distances, neighbors, decisions on pairs, saving to a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from numbers import Integral, Real
from typing import Any, Literal, TypeVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, column_or_1d

from .. import catalog
from ..data.dataset import Dataset
from ..data.items import as_items, flat_rows, is_numeric
from ..data.table_columns import TableColumns, flaw_of_columns, named_columns
from ..fit_warnings import nameless
from ..io import tensor_file
from ..io.training_marks import TrainingMarks
from ..io.untrusted import parse_json
from ..labels import as_array, is_missing
from ..neighbors import nearest
from ..numerics import constraints, device_arrays
from ..numerics.distances import DISTANCES, check_distance, pair_distances
from ..numerics.pair_differences import pair_squares
from ..numerics.types import AnyArray, Array
from ..quoting import PATH, quoted, shorten
from . import probability, thresholds
from .table_encoder import TableEncoder
from .validation import available_with, error_context, holds_tuples

Self = TypeVar("Self", bound="Fitted")


def has_threshold(estimator: Fitted) -> None:
    """Raise an AttributeError if there is no threshold, which predictions on pairs require."""
    if not hasattr(estimator, "threshold_"):
        raise AttributeError(
            "no threshold_ yet: fit on pairs of both kinds, or call calibrate_threshold or set_threshold"
        )


def has_probability(estimator: Fitted) -> None:
    """Raise an AttributeError that names the method to call if probabilities are not calibrated."""
    if not hasattr(estimator, "sigmoid_"):
        raise AttributeError("no probabilities yet: call calibrate_probability with pairs of both kinds")


class Fitted(BaseEstimator):
    """Methods that need only `transform`, because the learned distance is the distance `distance_` after it.

    `distance_` is "euclidean", unless the class declares another one or `set_distance` was called after the fit.
    """

    distance_: str = "euclidean"
    _holds: tuple[str, ...] = ("n_features_in_", "components_")  # fitted attributes that `transform` requires
    _matrices = False  # whether X may be a stack of matrices
    _training_marks: TrainingMarks | None = None  # marks of the training rows

    @property
    def takes(self) -> tuple[str, ...]:
        """Kinds of items that `embed` takes: rows and images of one size, whose pixels are rows; or tables of cells."""
        return ("row", "table") if hasattr(self, "table_encoding_") else ("row", "image")

    @property
    def encoder(self) -> TableEncoder | None:
        """What turned the table that the learner was fitted on into numbers; None if it was numbers.

        `embed` encodes tables by it, and `transform` data frames. Arrays are rows that are encoded already.
        """
        plain = getattr(self, "table_encoding_", None)
        return None if plain is None else TableEncoder.restored(plain)

    def rows_of(self, items: Dataset) -> Dataset:
        """Return a data set whose rows are numbers, which a table becomes by the `encoder`."""
        encoder = self.encoder
        return items if encoder is None else encoder.encoded(items)

    @property
    def distance(self) -> str:
        """Distance by which embeddings are compared, `distance_`."""
        return self.distance_

    @property
    def dimensions(self) -> int:
        """Number of dimensions of an embedding."""
        check_is_fitted(self)
        return int(self._n_features_out)

    @property
    def trained_on(self) -> TrainingMarks | None:
        """Marks of the training rows, by which they are recognized; None if they are not known."""
        return self._training_marks

    @property
    def table_columns(self) -> TableColumns:
        """Columns of the classes and of the names in the table that it was fitted on."""
        return TableColumns(**getattr(self, "table_columns_", {}))

    @property
    def fingerprint(self) -> str:
        """Digest of settings and fitted arrays, the same for the learner that `load` restores."""
        check_is_fitted(self)
        return tensor_file.digest(*self._contents())

    def transform(self, X: AnyArray) -> AnyArray:
        """Map rows so that the distances `distance_` between them are the learned distances."""
        raise NotImplementedError

    def embed(self, items: Any, *, prompt: Literal["query", "document"] | None = None) -> AnyArray:
        """Return the embeddings of items, which are those of `transform` for their rows.

        Parameters
        ----------
        items : Dataset, array-like, or source
            Rows as for `transform`, a data set, or what `nearfar.data.as_items` takes, such as the path of a table.
            Columns with names are brought into the order of the training rows. Images are rows of their pixels in
            [0, 1], and must be of the size of the training images.
        prompt : str, optional
            Not used: it is for models of texts.

        Returns
        -------
        ndarray of shape (n, k)
            Embeddings.
        """
        if is_numeric(items):
            return device_arrays.to_host(self.transform(items))
        with nameless():
            rows = self.rows_of(as_items(items, self.takes, **self.table_columns.read(items)))
            return device_arrays.to_host(self.transform(flat_rows(rows, named_columns(self))))

    def pair_distance(self, pairs: AnyArray, X: AnyArray | None = None) -> AnyArray:
        """Return the learned distance of each pair of points.

        Parameters
        ----------
        pairs : array-like of shape (m, 2, d), or of shape (m, 2) with `X`
            Pairs of points, or pairs of row numbers of `X`.
        X : array-like of shape (n, d), optional
            Rows to which `pairs` refers.

        Returns
        -------
        ndarray of shape (m,)
            Distances.
        """
        check_is_fitted(self)
        with error_context(self):
            if X is not None:
                Z = device_arrays.to_host(self.transform(X))
                ij = constraints.check_indices(pairs, 2, len(Z), "pairs")
                return self._distances(Z, ij[:, 0], ij[:, 1])
            # (m, 2, d), or pairs of matrices (m, 2, d, q)
            points = device_arrays.to_host(pairs)
            if points.ndim < 3 or points.shape[1] != 2:
                raise ValueError(f"pairs must have shape (m, 2, d), or (m, 2) with X=; got shape {points.shape}")
            with nameless():
                a = device_arrays.to_host(self.transform(points[:, 0]))
                b = device_arrays.to_host(self.transform(points[:, 1]))
            if self.distance_ == "euclidean":
                return np.linalg.norm(a - b, axis=1)
            number = np.arange(len(a))
            return pair_distances(a, b, number, number, self.distance_)

    def _distances(self, Z: AnyArray, i: Any, j: Any) -> AnyArray:
        """Return the learned distances of the listed pairs of transformed rows."""
        if self.distance_ == "euclidean":
            return np.sqrt(pair_squares(Z, i, j))
        return pair_distances(Z, Z, i, j, self.distance_)

    def pair_score(self, pairs: AnyArray, X: AnyArray | None = None) -> AnyArray:
        """Return the similarity of each pair of points: the negative of `pair_distance`, so that higher means nearer.

        Parameters
        ----------
        pairs : array-like of shape (m, 2, d), or of shape (m, 2) with `X`
            Pairs of points, or pairs of row numbers of `X`.
        X : array-like of shape (n, d), optional
            Rows to which `pairs` refers.

        Returns
        -------
        ndarray of shape (m,)
            Similarities.
        """
        return -self.pair_distance(pairs, X)

    def get_metric(self) -> Callable[..., float]:
        """Return the learned distance as a function of two points, as ``KNeighborsClassifier(metric=...)`` takes it."""
        check_is_fitted(self)
        return PointDistance(self)

    def kneighbors(
        self, X: AnyArray, queries: AnyArray | None = None, n_neighbors: int = 5, return_distance: bool = True
    ) -> Any:
        """Find the exact nearest rows of `X` under the learned distance.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows to search.
        queries : array-like of shape (q, d), optional
            Rows whose neighbors are returned. By default, the rows of `X`; a row is then not its own neighbor.
        n_neighbors : int
            Number of neighbors of each query, at least 1.
        return_distance : bool
            Whether to return the distances.

        Returns
        -------
        distances : ndarray of shape (q, n_neighbors)
            Distances to the neighbors. Returned only if `return_distance` is True.
        indices : ndarray of shape (q, n_neighbors)
            Row numbers of the neighbors in `X`, nearest first.
        """
        with error_context(self):
            Z = device_arrays.to_host(self.transform(X))
            Q = Z if queries is None else device_arrays.to_host(self.transform(queries))
            most = len(Z) - 1 if queries is None else len(Z)  # a row is not its own neighbor
            whole = isinstance(n_neighbors, Integral) and not isinstance(n_neighbors, bool)
            if not whole or not 1 <= n_neighbors <= most:
                raise ValueError(f"n_neighbors must be an integer in 1..{most}; got {n_neighbors!r}")
            how: dict[str, Any] = {"distance": self.distance_, "exclude_self": queries is None}
            distances, indices = nearest.nearest(Q, Z, n_neighbors, **how)
        if not return_distance:
            return indices
        return distances, indices

    def calibrate_threshold(
        self: Self,
        pairs: AnyArray,
        pair_labels: AnyArray,
        *,
        X: AnyArray | None = None,
        strategy: str = "accuracy",
        min_rate: float | None = None,
        beta: float = 1.0,
    ) -> Self:
        """Set `threshold_`, the distance up to which `predict` calls a pair similar, to the best value for these pairs.

        Parameters
        ----------
        pairs : array-like of shape (m, 2, d), or of shape (m, 2) with `X`
            Pairs of points, or pairs of row numbers of `X`.
        pair_labels : array-like of shape (m,)
            +1 for similar pairs and -1 for dissimilar pairs; both kinds are required.
        X : array-like of shape (n, d), optional
            Rows to which `pairs` refers.
        strategy : str
            Score to maximize: "accuracy", "balanced" (balanced accuracy), "f_beta" (of the similar pairs), "max_tpr"
            (the true positive rate, subject to a true negative rate of at least `min_rate`) or "max_tnr" (the
            reverse).
        min_rate : float, optional
            Lower bound on the other rate, in [0, 1]. Required by "max_tpr" and "max_tnr".
        beta : float
            Weight of recall relative to precision in "f_beta", at least 0.

        Returns
        -------
        self : estimator
            The fitted learner.
        """
        with error_context(self):
            distance = self.pair_distance(pairs, X)
            similar = constraints.check_pair_labels(pair_labels, len(distance))
            self.threshold_ = thresholds.calibrate(distance, similar, strategy, min_rate, beta)
        return self

    def set_threshold(self: Self, threshold: float) -> Self:
        """Set `threshold_` by hand.

        Parameters
        ----------
        threshold : float
            Distance up to which `predict` calls a pair similar.

        Returns
        -------
        self : estimator
            The fitted learner.
        """
        check_is_fitted(self)
        if not isinstance(threshold, Real) or np.isnan(float(threshold)):
            raise ValueError(f"{type(self).__name__}: threshold must be a number; got {threshold!r}")
        self.threshold_ = float(threshold)
        return self

    def set_distance(self: Self, distance: str) -> Self:
        """Set `distance_`, by which transformed rows are compared, and forget a threshold and probabilities.

        Every method of the learner compares by it until the next fit, and so do the commands that read the saved
        learner.

        Parameters
        ----------
        distance : {"cosine", "euclidean", "sqeuclidean"}
            Cosine suits embeddings, whose length rarely says anything about their class.

        Returns
        -------
        self : estimator
            The fitted learner.
        """
        check_is_fitted(self)
        with error_context(self):
            self.distance_ = check_distance(distance)
        for name in ("threshold_", "sigmoid_"):  # both depend on the scale of the distances
            if hasattr(self, name):
                delattr(self, name)
        return self

    def calibrate_probability(self: Self, pairs: AnyArray, pair_labels: AnyArray, *, X: AnyArray | None = None) -> Self:
        """Fit the logistic curve by which `predict_proba` turns distances into probabilities (Platt, 1999).

        Parameters
        ----------
        pairs : array-like of shape (m, 2, d), or of shape (m, 2) with `X`
            Pairs of points, or pairs of row numbers of `X`. Use pairs that the metric was not learned from, or the
            probabilities will be too confident.
        pair_labels : array-like of shape (m,)
            +1 for similar pairs and -1 for dissimilar pairs; both kinds are required.
        X : array-like of shape (n, d), optional
            Rows to which `pairs` refers.

        Returns
        -------
        self : estimator
            The fitted learner.
        """
        with error_context(self):
            distance = np.asarray(self.pair_distance(pairs, X), dtype=np.float64)
            similar = constraints.check_pair_labels(pair_labels, len(distance))
            self.sigmoid_ = probability.fit_sigmoid(distance, similar)
        return self

    @available_with(has_probability)
    def predict_proba(self, pairs: AnyArray, X: AnyArray | None = None) -> AnyArray:
        """Return the probabilities that each pair is dissimilar and similar, as calibrated by `calibrate_probability`.

        Parameters
        ----------
        pairs : array-like of shape (m, 2, d), or of shape (m, 2) with `X`
            Pairs of points, or pairs of row numbers of `X`.
        X : array-like of shape (n, d), optional
            Rows to which `pairs` refers.

        Returns
        -------
        ndarray of shape (m, 2)
            Probabilities, in the order of `classes_`.
        """
        similar = probability.similar_probability(self.pair_distance(pairs, X), self.sigmoid_)
        return np.stack([1 - similar, similar], axis=1)

    @property
    def classes_(self) -> AnyArray:
        """Labels that `predict` assigns to pairs: -1 for dissimilar, +1 for similar."""
        check_is_fitted(self)
        return np.array([-1, 1])

    def score(self, X: AnyArray, y: AnyArray | None = None) -> float:
        """Return how well the metric separates pairs, orders the distances of tuples, or finds the classes of rows.

        Parameters
        ----------
        X : array-like of shape (m, 2, d), (m, 3, d), (m, 4, d) or (n, d)
            Pairs, triplets (anchor, positive, negative) or quadruplets (a, b, c, d) of points, or rows.
        y : array-like of shape (m,) or (n,), optional
            +1 for similar and -1 for dissimilar pairs, or the classes of the rows. Triplets and quadruplets have none.

        Returns
        -------
        float
            For pairs, the area under the ROC curve: the probability that a similar pair is nearer than a dissimilar
            pair. For triplets, the share in which the positive is nearer to the anchor than the negative is; for
            quadruplets, the share in which a is nearer to b than c to d; equal distances count half. For rows, the
            share of rows whose nearest other row is of the same class.
        """
        check_is_fitted(self)
        with error_context(self):
            if holds_tuples(X, 3) or holds_tuples(X, 4):
                return self._share_in_order(np.asarray(X))
            if y is None:
                raise ValueError(
                    "requires y to be passed, but the target y is None; triplets and quadruplets need none"
                )
            if holds_tuples(X, 2) and not self._matrices:
                from sklearn.metrics import roc_auc_score  # late: it imports the plots of scikit-learn

                similar = constraints.check_pair_labels(y, len(X))
                return float(roc_auc_score(similar, self.pair_score(X)))
            labels = as_array(y, "y")
            n = X.shape[0] if issparse(X) else len(X)
            if labels.shape == (n, 1):
                labels = column_or_1d(labels, warn=True)
            if labels.shape != (n,):
                raise ValueError(f"y must hold one class per row of X, shape ({n},); got shape {labels.shape}")
            missing = sum(map(is_missing, labels.tolist()))
            if missing:
                raise ValueError(f"y: {missing} of {n} labels are missing (None or NaN); leave out their rows")
            # leave-one-out accuracy of the nearest neighbor
            nearest_row = self.kneighbors(X, n_neighbors=1, return_distance=False)[:, 0]
            return float(np.mean(labels[nearest_row] == labels))

    def _share_in_order(self, tuples: AnyArray) -> float:
        """Return the share of triplets (a, p, n) or quadruplets whose first distance is less than the second one."""
        if len(tuples) == 0:
            raise ValueError("X must hold at least one triplet or quadruplet")
        near = self.pair_distance(tuples[:, :2])
        far = self.pair_distance(tuples[:, [0, 2]] if tuples.shape[1] == 3 else tuples[:, 2:])
        return float(np.mean((near < far) + 0.5 * (near == far)))

    @available_with(has_threshold)
    def predict(self, pairs: AnyArray, X: AnyArray | None = None) -> AnyArray:
        """Return +1 for pairs that are at most `threshold_` apart and -1 for others.

        Available only if there is a threshold, from a fit on pairs, `calibrate_threshold` or `set_threshold`.

        Parameters
        ----------
        pairs : array-like of shape (m, 2, d), or of shape (m, 2) with `X`
            Pairs of points, or pairs of row numbers of `X`.
        X : array-like of shape (n, d), optional
            Rows to which `pairs` refers.

        Returns
        -------
        ndarray of shape (m,)
            +1 for similar pairs and -1 for dissimilar pairs.
        """
        return np.where(self.pair_distance(pairs, X) <= self.threshold_, 1, -1)

    @available_with(has_threshold)
    def decision_function(self, pairs: AnyArray, X: AnyArray | None = None) -> AnyArray:
        """Return `pair_score`; available only if there is a threshold.

        Parameters
        ----------
        pairs : array-like of shape (m, 2, d), or of shape (m, 2) with `X`
            Pairs of points, or pairs of row numbers of `X`.
        X : array-like of shape (n, d), optional
            Rows to which `pairs` refers.

        Returns
        -------
        ndarray of shape (m,)
            Similarities: higher means nearer.
        """
        return self.pair_score(pairs, X)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the settings and fitted arrays to a safetensors file, from which `load` restores the learner.

        The file also holds an 8-byte mark of each training row, which lets ``nearfar evaluate`` and ``report`` exclude
        these rows from scores.

        Parameters
        ----------
        path : str or path-like
            File to write.

        Raises
        ------
        ValueError
            A setting is code (a callable kernel, a random generator), which cannot be saved.
        """
        check_is_fitted(self)
        with error_context(self):
            arrays, text = self._contents()
            if self._training_marks is not None:
                marks, about_marks = self._training_marks.packed()
                arrays |= marks
                text |= about_marks
            tensor_file.write(path, arrays, text)

    def _contents(self) -> tuple[dict[str, AnyArray], dict[str, str]]:
        """Return the arrays and the texts that a saved learner holds, without the marks of its training rows."""
        fitted = {key: value for key, value in vars(self).items() if key.endswith("_") and not key.startswith("_")}
        tensors, plain = tensor_file.split("set", self.get_params(deep=False))
        fitted_tensors, fitted_plain = tensor_file.split("fit", fitted)
        text = {"class": type(self).__name__, "settings": in_order(plain), "fitted": in_order(fitted_plain)}
        return tensors | fitted_tensors, {"format": "nearfar-learner-1", **text}

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str]) -> Self:
        """Load a learner that `save` wrote; only classes of the catalog are accepted, and no code in the file is run.

        Parameters
        ----------
        path : str or path-like
            File to read.

        Returns
        -------
        estimator
            The fitted learner.

        Raises
        ------
        ValueError
            The file does not hold a learner of this class or of a subclass.
        """
        tensors, text = tensor_file.read(path)
        method = catalog.BY_NAME.get(text.get("class", ""))
        if text.get("format") != "nearfar-learner-1" or method is None or method.kind not in ("learner", "wrapper"):
            raise ValueError(f"{os.fspath(path)} holds no learner of nearfar")
        kind = getattr(import_module(method.module), method.name)
        if not issubclass(kind, cls):
            raise ValueError(f"{os.fspath(path)} holds {kind.__name__}, not {cls.__name__}")
        try:
            settings = tensor_file.join("set", tensors, parse_json(text["settings"]))
            # JSON has no tuples: turn its lists back into them, because `clone` and `repr` distinguish the two
            learner = kind(**{name: tensor_file.as_tuple(value) for name, value in settings.items()})._restored()
            fitted = tensor_file.join("fit", tensors, parse_json(text["fitted"]))
            for key, value in fitted.items():
                if not key.endswith("_") or key.startswith("_"):
                    raise ValueError(f"{quoted(key)} is no fitted attribute")
                setattr(learner, key, value)  # an AttributeError for a property, such as classes_
            if flaw := tensor_file.missing_keys(fitted, kind._holds) or _flaw_of_attributes(fitted):
                raise ValueError(flaw)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            cause = shorten(str(error), 2 * PATH)
            raise ValueError(f"{os.fspath(path)} holds no {kind.__name__} of this version: {cause}") from error
        learner._training_marks = marks_in(path, tensors, text)
        return learner

    def _restored(self: Self) -> Self:
        """Return this learner, which was just loaded; a subclass builds what its settings only describe."""
        return self


def in_order(values: Mapping[str, Any]) -> str:
    """Return plain values as JSON, sorted by name, so that a learner that was loaded has the same fingerprint."""
    return json.dumps(values, sort_keys=True)


def marks_in(path: str | os.PathLike[str], arrays: dict[str, AnyArray], text: dict[str, str]) -> TrainingMarks | None:
    """Return the marks of training rows that a saved learner holds, or None if there are none.

    Raises
    ------
    ValueError
        If they are damaged: scores must not include training rows unnoticed.
    """
    try:
        return TrainingMarks.unpacked(arrays, text)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def _flaw_of_attributes(fitted: dict[str, Any]) -> str:
    """Return what is wrong with the features, the threshold, the table or a distance; "" if nothing is."""
    names = fitted.get("feature_names_in_", np.empty(0, dtype=object))
    n = fitted.get("n_features_in_", 1)
    if not isinstance(names, np.ndarray) or names.dtype != object:
        return f"feature_names_in_ must be a list of text, got {quoted(names)}"
    if not isinstance(n, int) or n < 1:
        return f"n_features_in_ must be a number of features, got {quoted(n)}"
    threshold = fitted.get("threshold_", 0.0)
    if not isinstance(threshold, Real) or np.isnan(float(threshold)):
        return f"threshold_ must be a number, got {quoted(threshold)}"
    if flaw := flaw_of_columns(fitted.get("table_columns_", {})):
        return flaw
    if "table_encoding_" in fitted:
        try:
            TableEncoder.restored(fitted["table_encoding_"])
        except ValueError as error:
            return str(error)
    return flaw_of_distances(fitted)


def flaw_of_distances(fitted: Mapping[str, Any]) -> str:
    """Return what is wrong with the distances of a saved learner; "" if nothing is."""
    for name in ("distance_", "distance_of_rows_"):
        distance = fitted.get(name, "euclidean")
        if distance not in DISTANCES:
            return f"{name} must be one of {', '.join(DISTANCES)}, got {quoted(distance)}"
    return ""


class PointDistance:
    """Learned distance of two points, by the `transform` of the learner.

    Parameters
    ----------
    learner : Fitted
        Fitted learner.
    """

    def __init__(self, learner: Fitted) -> None:
        self.learner = learner

    def __call__(self, u: AnyArray, v: AnyArray, squared: bool = False) -> float:
        with nameless():
            a, b = np.asarray(self.learner.transform(np.stack([u, v])))
        if self.learner.distance_ != "euclidean":
            number = np.zeros(1, dtype=np.intp)
            distance = float(pair_distances(a[None], b[None], number, number, self.learner.distance_)[0])
            return distance**2 if squared else distance
        d2 = float(np.sum((a - b) ** 2))
        return d2 if squared else d2**0.5


class LinearDistance:
    """Mahalanobis distance of two points, without input checks, because brute-force searches call it often.

    Parameters
    ----------
    components : ndarray of shape (k, d)
        Linear map L of the metric.
    """

    def __init__(self, components: Array) -> None:
        self.components = components

    def __call__(self, u: AnyArray, v: AnyArray, squared: bool = False) -> float:
        z = self.components @ (np.asarray(u, dtype=np.float64) - np.asarray(v, dtype=np.float64))
        d2 = float(z @ z)
        return d2 if squared else d2**0.5
