"""A learner of one code for several modalities: its input, its training and its methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d
from torch import Tensor

from ....estimators.validation import error_context, mark_training_rows
from ....numerics.checks import numbered
from ....numerics.standard_columns import standard
from ....numerics.types import AnyArray
from ....quoting import count_of
from ...objective.relations import UNKNOWN
from ..reconstruction.codecs import squared_error, widths
from ..reconstruction.learner import ENCODED_ROWS, NetworkLearner
from .modalities import Modalities, MultiCodec, greedy, hide

Self = TypeVar("Self", bound="ViewReconstruction")
Views: TypeAlias = Sequence[AnyArray | None] | AnyArray


def check_views(views: Views, expected: Sequence[int] | None = None) -> list[AnyArray]:
    """Return the modalities as float arrays, with NaN in missing entries.

    Parameters
    ----------
    views : sequence of array-like of shape (n, D_v), or None
        Modalities. A row with a NaN is missing. None means that a modality is missing in all rows, which needs
        `expected`.
    expected : sequence of int, optional
        Number D_v of columns of each modality.

    Raises
    ------
    ValueError
        If the number of modalities, rows or columns differs, or an entry is infinite.
    """
    if not isinstance(views, Sequence) or not len(views) or (expected is not None and len(views) != len(expected)):
        if expected is None:
            many = "arrays"
        else:
            many = count_of(len(expected), "array")
        needs = f"views: expected a list of {many}, one per modality, or one table and view_sizes"
        raise ValueError(f"{needs}; got {type(views).__name__}")
    arrays = [
        None if X is None else check_array(X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")
        for X in views
    ]
    lengths = sorted({len(X) for X in arrays if X is not None})
    if len(lengths) != 1 or (expected is None and any(X is None for X in arrays)):
        raise ValueError(f"views: expected arrays with the same number of rows, got {lengths}")
    if expected is None:
        columns = [0 if X is None else X.shape[1] for X in arrays]
    else:
        columns = list(expected)
    complete = [np.full((lengths[0], d), np.nan) if X is None else X for X, d in zip(arrays, columns, strict=True)]
    if [X.shape[1] for X in complete] != columns:
        raise ValueError(f"views: expected {columns} columns, got {[X.shape[1] for X in complete]}")
    if expected is None and any(np.isnan(X).any(axis=1).all() for X in complete):
        raise ValueError("views: every modality needs a row without NaN to learn from")
    return complete


def cut_views(views: Views, sizes: Sequence[int] | None) -> Views:
    """Split concatenated columns, (n, sum of D_v), into one array per modality; return a list of arrays unchanged."""
    if sizes is None or isinstance(views, Sequence) or len(getattr(views, "shape", ())) != 2:
        return views
    X: AnyArray = check_array(views, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")
    if sum(sizes) != X.shape[1] or min(sizes, default=0) < 1:
        raise ValueError(f"view_sizes: expected widths that add up to {X.shape[1]} columns, got {list(sizes)}")
    return np.split(X, np.cumsum(sizes)[:-1], axis=1)


class ViewReconstruction(NetworkLearner):
    """Base class of learners of codes from which several modalities can be reconstructed.

    A subclass implements `_objective`.
    """

    network_: MultiCodec
    mean_: AnyArray
    scale_: AnyArray
    loss_curve_: AnyArray

    def _objective(self, views: Modalities, present: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of samples; present: (n, V), which modalities count in the reconstruction."""
        raise NotImplementedError

    def _network(self) -> MultiCodec:
        sizes = [widths(d, self.n_components, self.hidden)[:-1] for d in self.n_features_in_]
        return MultiCodec(sizes, self.n_components, self.activation)

    def fit(self: Self, views: Views, y: AnyArray | None = None) -> Self:
        """Train the network.

        Parameters
        ----------
        views : sequence of array-like of shape (n, D_v)
            One array per modality, where a row with a NaN is missing. Every sample needs at least one modality. With
            `view_sizes`, a single array with the concatenated columns of all modalities is accepted too.
        y : array-like of shape (n,), optional
            Class of each sample, negative if unknown. By default, only the reconstruction is trained.
        """
        self._check()
        arrays = check_views(cut_views(views, self.view_sizes))
        self.n_features_in_ = tuple(X.shape[1] for X in arrays)
        X = np.concatenate(arrays, axis=1)
        if self.standardize:
            self.mean_, self.scale_ = standard(X)
        else:
            self.mean_, self.scale_ = (np.zeros_like(X[0]), np.ones_like(X[0]))
        of_all = self._standard(arrays)
        classes = self._classes(y, len(X))
        order, noise = self._begin(X.dtype)
        if self.pretrain:
            train = self._trainer(order, self.pretrain)
            greedy(self.network_, of_all, self.level, noise, train)

        def loss(rows: Tensor) -> Tensor:
            part = of_all.take(rows)
            # hidden modalities are not read, but have to be reconstructed from the others
            if self.hide:
                shown = hide(part.present, self.hide, noise)
            else:
                shown = part.present
            return self._objective(part._replace(present=shown), part.present, classes[rows.to(classes.device)])

        curve = self._minimize(list(self.network_.parameters()), loss, len(X), order)
        self.loss_curve_ = np.array(curve)
        self.n_iter_ = len(curve)
        self._training_marks = mark_training_rows(self, X, y)
        return self

    def _trainer(self, order: torch.Generator, epochs: int) -> Any:
        return lambda parameters, loss, n: self._minimize(parameters, loss, n, order, epochs)

    def _classes(self, y: AnyArray | None, n: int) -> Tensor:
        """Return (n,) class codes, -1 for unknown."""
        if y is None:
            return torch.full((n,), UNKNOWN, device=self.device)
        with error_context(self):
            y = column_or_1d(numbered(y, unlabeled=-1))  # numbers text labels, keeps -1, and refuses missing labels
            if y.dtype.kind == "f":
                check_classification_targets(y)
        if len(y) != n:
            raise ValueError(f"{type(self).__name__}: y must have one entry per sample, {n}, got {len(y)}")
        codes = np.unique(y, return_inverse=True)[1].reshape(-1)
        return self._to(np.where(y < 0, UNKNOWN, codes) if np.issubdtype(y.dtype, np.number) else codes)

    def _standard(self, arrays: Sequence[AnyArray]) -> Modalities:
        """Return standardized modalities, 0 where missing; raise if a sample has none."""
        present = np.stack([~np.isnan(X).any(axis=1) for X in arrays], axis=1)
        if not present.any(axis=1).all():
            none = int((~present.any(axis=1)).sum())
            raise ValueError(f"{type(self).__name__}: views: {none} of {len(present)} samples have no modality")
        parts = zip(arrays, self._cut(self.mean_), self._cut(self.scale_), strict=True)
        rows = [np.nan_to_num((X - mean) / scale).astype(self.mean_.dtype, copy=False) for X, mean, scale in parts]
        return Modalities([self._to(X) for X in rows], self._to(present))

    def _cut(self, row: AnyArray) -> list[AnyArray]:
        """Split the columns of all modalities into those of each."""
        return np.split(row, np.cumsum(self.n_features_in_)[:-1], axis=-1)

    def _errors(self, views: Modalities, decoded: Sequence[Tensor]) -> Tensor:
        """Return the (n,) squared errors of the modalities that are not missing, each scaled if `scale_views`."""
        parts = zip(views.rows, decoded, self.n_features_in_, strict=True)
        each = [squared_error(x, output) / (d if self.scale_views else 1) for x, output, d in parts]
        return (torch.stack(each, 1) * views.present).sum(1)

    def _known(self, views: Views) -> Modalities:
        check_is_fitted(self)
        return self._standard(check_views(cut_views(views, self.n_features_in_), self.n_features_in_))

    def _parts(self, views: Views) -> list[Modalities]:
        """Return the samples, a few thousand at a time."""
        known = self._known(views)
        return [known.take(index) for index in torch.arange(len(known.present)).split(ENCODED_ROWS)]

    @torch.no_grad()
    def transform(self, views: Views) -> AnyArray:
        """Return the (n, n_components) shared codes; a modality may be None, or NaN in some rows.

        A single array with the concatenated columns of all modalities is accepted too.
        """
        return np.concatenate([self.network_.encode(part).cpu().numpy() for part in self._parts(views)])

    def fit_transform(self, views: Views, y: AnyArray | None = None) -> AnyArray:
        """Fit, and return the codes of the same samples."""
        return self.fit(views, y).transform(views)

    @torch.no_grad()
    def reconstruct(self, views: Views) -> list[AnyArray]:
        """Return the (n, D_v) reconstruction of every modality, also of missing ones, in its own units."""
        outputs = [torch.cat(self.network_(part)[0], 1).cpu().numpy() for part in self._parts(views)]
        return self._cut(np.concatenate(outputs) * self.scale_ + self.mean_)

    @torch.no_grad()
    def reconstruction_error(self, views: Views) -> AnyArray:
        """Return the (n,) squared errors of the modalities that are present, as in the objective: an outlier score."""
        parts = self._parts(views)
        return np.concatenate([self._errors(part, self.network_(part)[0]).cpu().numpy() for part in parts])

    def score_samples(self, views: Views) -> AnyArray:
        """Return minus the reconstruction error of each sample: lower is more abnormal, as in scikit-learn."""
        return -self.reconstruction_error(views)
