"""Base classes of learners that reconstruct their input: training on batches, saving, and scikit-learn's methods."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from ....catalog import BY_NAME
from ....estimators.fitted import Fitted, flaw_of_distances, marks_in
from ....estimators.validation import error_context, mark_training_rows
from ....io import tensor_file
from ....io.untrusted import parse_json
from ....numerics.checks import is_finite
from ....numerics.standard_columns import standard
from ....numerics.types import AnyArray
from ....quoting import PATH, shorten
from ....settings import check_options, check_settings
from .codecs import ACTIVATIONS, Codec

Self = TypeVar("Self", bound="NetworkLearner")

FORMAT = "nearfar-network-1"
EPOCH_PATIENCE = 10  # a fit ends after this many epochs without progress
ENCODED_ROWS = 8192  # number of rows that are encoded at a time


class NetworkLearner(Fitted):
    """Base class of networks that are fitted by Adam on batches, and saved in a file of weights and settings.

    Distances, neighbors and decisions about pairs are based on the codes.

    A subclass stores `max_iter`, `batch_size`, `learning_rate`, `tol`, `random_state`, `verbose` and `device`, and
    builds its network from its settings and `n_features_in_`.
    """

    network_: nn.Module
    n_features_in_: Any
    _holds = ("n_features_in_", "mean_", "scale_")

    def _check(self) -> None:
        """Raise a ValueError if a setting of the network is invalid."""
        with error_context(self):
            check_settings(self)
        check_numbers(self, 1, n_components=self.n_components, max_iter=self.max_iter, batch_size=self.batch_size)
        check_numbers(self, 0, learning_rate=self.learning_rate, tol=self.tol)
        check_options(self, ACTIVATIONS, activation=self.activation)
        check_hidden(self, self.hidden)
        if not is_available(self.device):
            detail = "expected a device of this machine, such as 'cpu' or 'cuda'"
            raise ValueError(f"{type(self).__name__}: device: {detail}, got {self.device!r}")

    def _network(self) -> nn.Module:
        """Return a new network."""
        raise NotImplementedError

    def _begin(self, dtype: Any) -> tuple[torch.Generator, torch.Generator]:
        """Build the network, and return the generators that draw the order of rows and the noise."""
        if isinstance(self.random_state, np.random.Generator):
            draw = self.random_state.integers
        else:
            draw = check_random_state(self.random_state).randint
        # three seeds, so that a change of one, such as of the noise, leaves the others as they were
        weights, order, noise = draw(2**31, size=3).tolist()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(weights)
            self.network_ = self._network().to(device=self.device, dtype=torch.from_numpy(np.zeros(0, dtype)).dtype)
        return torch.Generator().manual_seed(order), torch.Generator().manual_seed(noise)

    def _minimize(
        self,
        parameters: Sequence[nn.Parameter],
        loss: Callable[[Tensor], Tensor],
        n: int,
        order: torch.Generator,
        max_iter: int | None = None,
    ) -> list[float]:
        """Minimize the mean of `loss`, which takes row numbers; return its mean in every epoch."""
        optimizer = torch.optim.Adam(parameters, lr=self.learning_rate)
        curve: list[float] = []
        best = np.inf
        since = 0
        while len(curve) < (max_iter or self.max_iter) and since < EPOCH_PATIENCE:
            total = 0.0
            for rows in torch.randperm(n, generator=order).split(int(self.batch_size)):
                optimizer.zero_grad()
                value = loss(rows)
                value.backward()
                optimizer.step()
                total += float(value.detach()) * len(rows)
            curve.append(total / n)
            self._report(len(curve), curve[-1])
            if curve[-1] < best * (1 - self.tol):  # losses are not negative
                best = curve[-1]
                since = 0
            elif self.tol:
                since += 1
        return curve

    def _report(self, epoch: int, value: float) -> None:
        if not np.isfinite(value):
            raise ValueError(f"{type(self).__name__}: the loss is {value} in epoch {epoch}; lower learning_rate")
        if self.verbose:
            print(f"{type(self).__name__}: epoch {epoch}, loss {value:.6g}")

    def _to(self, X: AnyArray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(X)).to(self.device)

    def _fitted(self) -> dict[str, Any]:
        """Return the fitted attributes except the network, by name."""
        kept = {key: value for key, value in vars(self).items() if key.endswith("_") and not key.startswith("_")}
        return {key: value for key, value in kept.items() if key != "network_"}

    def _contents(self) -> tuple[dict[str, AnyArray], dict[str, str]]:
        """Return what a saved learner holds: settings, weights and fitted arrays."""
        fitted = self._fitted()
        arrays = {f"fit/{key}": value for key, value in fitted.items() if _is_numbers(value)}
        weights = {f"net/{key}": value.detach().cpu().numpy() for key, value in self.network_.state_dict().items()}
        plain = {key: value for key, value in fitted.items() if f"fit/{key}" not in arrays}
        text = {"class": type(self).__name__, "settings": _json(self.get_params()), "fitted": _json(plain)}
        return arrays | weights, {"format": FORMAT, **text}

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str]) -> Self:
        """Read a learner that `save` wrote.

        Its class must be in the catalog; no code in the file is run. If this machine lacks the device of the learner,
        it uses the CPU, with a warning.
        """
        arrays, text = tensor_file.read(path)
        method = BY_NAME.get(text.get("class", ""))
        kind = None if method is None else getattr(import_module(method.module), method.name)
        if text.get("format") != FORMAT or not isinstance(kind, type) or not issubclass(kind, NetworkLearner):
            raise ValueError(f"{os.fspath(path)} holds no network learner of nearfar")
        if not issubclass(kind, cls):
            raise ValueError(f"{os.fspath(path)} holds {kind.__name__}, not {cls.__name__}")
        try:
            learner = kind._read(arrays, parse_json(text["settings"]), parse_json(text["fitted"]))
        except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
            why = shorten(" ".join(str(error).split()), 2 * PATH)
            raise ValueError(f"{os.fspath(path)} holds no {kind.__name__} of this version: {why}") from error
        learner._training_marks = marks_in(path, arrays, text)
        return learner

    @classmethod
    def _read(cls: type[Self], arrays: dict[str, AnyArray], settings: dict[str, Any], fitted: dict[str, Any]) -> Self:
        learner = cls(**{key: tensor_file.as_tuple(value) for key, value in settings.items()})
        fitted = fitted | {key[4:]: a for key, a in arrays.items() if key.startswith("fit/")}
        for key, value in fitted.items():
            if not key.endswith("_") or key.startswith("_"):
                raise ValueError(f"{key!r} is no fitted attribute")
            if key == "feature_names_in_":
                value = tensor_file.texts(value)
            else:
                value = tensor_file.as_tuple(value)
            setattr(learner, key, value)
        weights = {key[4:]: torch.from_numpy(a) for key, a in arrays.items() if key.startswith("net/")}
        needed = (*cls._holds, *(key for key in arrays if key.startswith("net/")))
        if weights:
            flaw = tensor_file.missing_keys(fitted | arrays, needed) or flaw_of_distances(vars(learner))
        else:
            flaw = "it has no weights"
        if flaw:
            raise ValueError(flaw)
        with torch.device("meta"):  # no random numbers, and no memory for sizes that a damaged file may claim
            learner.network_ = learner._network()
        learner.network_.load_state_dict(weights, assign=True)
        if not is_available(torch.device(learner.device)):  # an unknown kind of device is an error
            detail = f"the learner was saved with device={learner.device!r}, which this machine lacks; it uses the CPU"
            warnings.warn(f"{cls.__name__}: {detail}", stacklevel=3)
            learner.device = "cpu"
        learner.network_.to(device=learner.device)
        return learner


def is_available(device: Any) -> bool:
    """Return whether PyTorch can store a tensor on a device of this name."""
    try:
        torch.zeros(0, device=device)
    except (RuntimeError, AssertionError, TypeError):  # AssertionError: PyTorch was built without CUDA
        return False
    return True


def _is_numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype != object


def _json(values: dict[str, Any]) -> str:
    """Return values as JSON; raise a ValueError that names the value that has no JSON form."""
    for key, value in values.items():
        try:
            json.dumps(value, default=_plain)
        except TypeError as error:
            raise ValueError(f"{key}={value!r} cannot be saved; only numbers, text and arrays can") from error
    return json.dumps(values, default=_plain, sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(value)


def check_numbers(learner: object, low: float, **values: float) -> None:
    """Raise unless every keyword's value is a number of at least `low`."""
    for name, value in values.items():
        if not is_finite(value) or value < low:
            raise ValueError(f"{type(learner).__name__}: {name} must be at least {low}, got {value!r}")


def check_hidden(learner: object, hidden: Any) -> None:
    """Raise unless `hidden` is a number of hidden layers, or their sizes."""
    if isinstance(hidden, (list, tuple)):
        sizes, least = (hidden, 1)
    else:
        sizes, least = ([hidden], 0)
    if not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= least for n in sizes):
        expected = "an integer of at least 0, or a sequence of sizes of at least 1"
        raise ValueError(f"{type(learner).__name__}: hidden must be {expected}, got {hidden!r}")


class Reconstruction(ClassNamePrefixFeaturesOutMixin, TransformerMixin, NetworkLearner):
    """Base class of learners of codes from which rows can be reconstructed.

    A subclass implements `_network` and `_objective`.
    """

    network_: Codec
    mean_: AnyArray
    scale_: AnyArray
    loss_curve_: AnyArray

    def _objective(self, x: Tensor, noise: torch.Generator) -> Tensor:
        """Return the mean loss of standardized rows."""
        raise NotImplementedError

    def _encode(self, x: Tensor) -> Tensor:
        """Return the codes of standardized rows."""
        return self.network_.encoder(x)

    def fit(self: Self, X: AnyArray, y: object = None) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Training rows.
        y : ignored
            Present for compatibility with scikit-learn.
        """
        self._check()
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        if self.standardize:
            self.mean_, self.scale_ = standard(X)
        else:
            self.mean_, self.scale_ = (np.zeros_like(X[0]), np.ones_like(X[0]))
        x = self._standard(X)
        self._look(x)
        order, noise = self._begin(X.dtype)
        parameters = list(self.network_.parameters())
        curve = self._minimize(parameters, lambda rows: self._objective(x[rows.to(x.device)], noise), len(x), order)
        self.loss_curve_ = np.array(curve)
        self.n_iter_ = len(curve)
        self._training_marks = mark_training_rows(self, X, y)
        return self

    def _look(self, x: Tensor) -> None:
        """Store what the noise depends on, such as the range of the standardized training rows."""

    def _standard(self, X: AnyArray) -> Tensor:
        return self._to(((X - self.mean_) / self.scale_).astype(self.mean_.dtype, copy=False))

    def _run(self, X: AnyArray, function: Callable[[Tensor], Tensor]) -> AnyArray:
        """Apply a function to standardized rows, a few thousand at a time."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        with torch.no_grad():
            return np.concatenate([function(part).cpu().numpy() for part in self._standard(X).split(ENCODED_ROWS)])

    def transform(self, X: AnyArray) -> AnyArray:
        """Return the (n, n_components) codes of rows, whose Euclidean distances are the learned ones."""
        return self._run(X, self._encode)

    def inverse_transform(self, Z: AnyArray) -> AnyArray:
        """Decode (n, n_components) codes to (n, d) rows in the units of X."""
        check_is_fitted(self)
        with torch.no_grad():
            decoded = self.network_.decoder(self._to(np.asarray(Z, dtype=self.mean_.dtype))).cpu().numpy()
        return decoded * self.scale_ + self.mean_

    def reconstruct(self, X: AnyArray) -> AnyArray:
        """Return the network's (n, d) reconstruction of rows, in the units of X."""
        return self.inverse_transform(self.transform(X))

    def reconstruction_error(self, X: AnyArray, *, per: str = "sample") -> AnyArray:
        """Return the squared error of the reconstruction, in squared standard deviations if `standardize` is True.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows to reconstruct.
        per : {"sample", "feature"}
            "sample" returns (n,) sums over the features, an outlier score that is higher for more abnormal rows.
            "feature" returns (d,) means over the samples. The sum of the latter is the mean of the former.
        """
        check_options(self, ("sample", "feature"), per=per)
        error = self._run(X, lambda x: (x - self.network_.decoder(self._encode(x))).square())
        return error.sum(1) if per == "sample" else error.mean(0)

    def score_samples(self, X: AnyArray) -> AnyArray:
        """Return minus the reconstruction error of each row: lower is more abnormal, as in scikit-learn."""
        return -self.reconstruction_error(X)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
