"""A trained network as a scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from ..core import constraints
from ..core.types import AnyArray, Ints
from ..data import Dataset, Task
from ..data.dataset import carve_validation
from ..data.given import GIVEN, are_rows, as_column, images
from ..deep.networks.embedder import Embedder
from ..fitted import Fitted, named
from .build import build
from .checkpoint import random_state, read_about, save_tensors, set_random_state
from .config import TrainConfig, TrainError
from .engine import Trainer
from .features import embed
from .finish import as_trained, load_embedder
from .interrupts import Interrupts
from .run_folder import RunFolder, open_run

Self = TypeVar("Self", bound="DeepMetric")

# fields of `TrainConfig`: those that are parameters here, and those that only a run in a folder has
OWN = ("objective", "trunk", "embedding_dim", "epochs", "batch_size", "lr", "augment", "validation")
OF_RUNS = ("data", "test", "test_classes", "skip_bad", "symmetries", "seed", "tensorboard", "checkpoint_every")


class DeepMetric(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Fitted):
    """A network that maps items of a class near each other: `nearfar.train.train` with the verbs of every learner.

    It works in pipelines and searches, on rows, on images in memory or on paths of image files. `train` and
    `nearfar train` give what a run has besides: a folder that can be resumed, test classes, scores and a report.

    Parameters
    ----------
    objective : str
        Losses and regularisers by their names, added and weighted.
    trunk : str
        As in `TrainConfig`; "auto" takes conv4 for images and mlp for rows.
    embedding_dim : int
        Length of an embedding.
    epochs : int
        Passes over the items.
    batch_size : int
        Items of a batch.
    lr : float
        Learning rate.
    augment : str
        Random changes of training images, such as "affine(degrees=15), mirror".
    validation : float
        Share of the classes that is not learnt from, but chooses the epoch whose weights are kept, by MAP@R; 0 learns
        from all and keeps the last.
    settings : dict, optional
        Any other field of `TrainConfig`, such as ``{"schedule": "cosine", "patience": 5, "device": "cpu"}``.
    random_state : int, RandomState or None
        Of weights, batches, augmentation and validation classes. Global random numbers stay as they were.
    verbose : bool
        Show a progress line.

    Attributes
    ----------
    network_ : Module
        In evaluation mode: ``network_(items).embedding``, not normalised.
    config_ : TrainConfig
        All settings, resolved.
    loss_curve_ : ndarray of shape (n_iter_,)
        Mean of the objective in every epoch.
    n_iter_, best_epoch_ : int
        Epochs done; the one whose weights were kept, from 1.
    best_score_ : float or None
        What its validation classes scored; None without any.

    Notes
    -----
    Embeddings have unit length, so that Euclidean distances order them as their cosines do, by which runs are scored.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> metric = DeepMetric("MultiSimilarityLoss()", embedding_dim=16, epochs=2, random_state=0).fit(X, y)
    >>> metric.transform(X[:3]).shape
    (3, 16)
    """

    network_: Embedder

    def __init__(
        self,
        objective: str = "TripletLoss()",
        *,
        trunk: str = "auto",
        embedding_dim: int = 64,
        epochs: int = 20,
        batch_size: int = 128,
        lr: float = 1e-3,
        augment: str = "",
        validation: float = 0.0,
        settings: Mapping[str, Any] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.objective = objective
        self.trunk = trunk
        self.embedding_dim = embedding_dim
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.augment = augment
        self.validation = validation
        self.settings = settings
        self.random_state = random_state
        self.verbose = verbose

    def fit(self: Self, X: AnyArray, y: AnyArray | None = None) -> Self:
        """Train a new network.

        Parameters
        ----------
        X : array-like
            (n, d) rows; (n, H, W) or (n, H, W, C) uint8 images, or a list of them; or (n,) paths of image files.
        y : array-like of shape (n,)
            Class labels of any kind; items of the number -1 are of unknown class, and are not learnt from.

        Raises
        ------
        ValueError
            One line: items, labels or a setting that does not fit, or a loss that is not finite.
        """
        with named(self):
            if y is None:
                raise ValueError("requires y to be passed, but the target y is None")
            config = self._config()
            dataset = self._labelled(as_column(X), y)
            train, unseen = carve_validation(dataset, config.validation, config.seed)
            # every task has a test part; that of this one is never scored
            self._train(config, Task(dataset.name, train, unseen, test=train, gallery=None, protocol=GIVEN))
        return self

    def transform(self, X: AnyArray) -> AnyArray:
        """Return (n, embedding_dim) float32 embeddings of unit length.

        Parameters
        ----------
        X : array-like
            Items as in `fit`. Images of another size are brought to that of the network.
        """
        check_is_fitted(self)
        with named(self):
            X = as_column(X)
            if are_rows(X):
                X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
            items = self._dataset(X, np.zeros(len(X), np.int64))
            dataset, sizes = as_trained(items, self.config_, self._about, type(self).__name__)
            Z = embed(self.network_, dataset, **sizes)
        length = np.linalg.norm(Z, axis=1, keepdims=True)
        return Z / np.where(length > 0, length, 1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a folder that is a run: ``nearfar embed``, ``index``, ``search`` and ``export`` take it, and `load`.

        `load` also finds there the `threshold_`, where there is one.

        Raises
        ------
        ValueError
            If something is at that place.
        """
        check_is_fitted(self)
        folder = RunFolder(Path(path))
        with named(self):
            folder.create()
            weights = {f"embedder.{name}": value for name, value in self.network_.state_dict().items()}
            save_tensors(folder.best, weights, {**self._about, "threshold": getattr(self, "threshold_", None)})
            if hasattr(self, "loss_curve_"):
                losses = self.loss_curve_.tolist()
                folder.write_metrics([{"epoch": epoch, "loss": loss} for epoch, loss in enumerate(losses, 1)])
            folder.describe(self.config_, str(next(self.network_.parameters()).device))

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote, or any run of `nearfar train`: the network of its best checkpoint.

        Raises
        ------
        TrainError
            If there is no run, or it is damaged.
        """
        folder = open_run(Path(path))
        config = TrainConfig.from_json(folder.config)
        metric = cls(**_arguments(config), random_state=config.seed)
        metric._keep(folder, config)
        columns = metric._about.get("columns") or ()
        if columns:
            metric.feature_names_in_ = np.array(columns, dtype=object)
        if len(metric._about["shape"]) == 1:
            metric.n_features_in_ = metric._about["shape"][0]
        rows = folder.read_metrics()
        if rows:
            metric.loss_curve_ = np.array([row.get("loss") for row in rows], dtype=float)
        metric.n_iter_ = len(rows) or metric.best_epoch_
        if metric._about.get("threshold") is not None:
            metric.threshold_ = float(metric._about["threshold"])
        return metric

    def _config(self) -> TrainConfig:
        if not isinstance(self.settings, Mapping | None):
            raise TrainError(f"settings must be a dict of fields of TrainConfig, or None; got {self.settings!r}")
        other = dict(self.settings or {})
        for name in other:
            if name in OWN or name in OF_RUNS:
                why = "is a parameter of its own" if name in OWN else "is one of runs only"
                raise TrainError(f"settings: {name!r} {why}")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        own = {name: getattr(self, name) for name in OWN}
        last = {} if self.validation or "eval_every" in other else {"eval_every": self.epochs}  # nothing to choose by
        return TrainConfig.of(data=GIVEN, seed=seed, **own, **last, **other)

    def _train(self, config: TrainConfig, task: Task) -> None:
        with undisturbed(), TemporaryDirectory(prefix="nearfar-") as path:
            folder, parts = RunFolder(path), build(config, given=task)
            with Interrupts() as interrupts:
                trainer = Trainer(parts, folder, interrupts, progress=bool(self.verbose))
                trainer.run()
            self._keep(folder, parts.config)
        self.loss_curve_ = np.array([row["loss"] for row in trainer.position.rows])
        self.n_iter_ = len(self.loss_curve_)

    def _keep(self, folder: RunFolder, config: TrainConfig) -> None:
        self.network_, self.config_, self._about = load_embedder(folder.path), config, read_about(folder.best)
        self.best_epoch_, self.best_score_ = self._about["epoch"], self._about["best"]
        self.__dict__.pop("threshold_", None)

    def _labelled(self, X: AnyArray, y: AnyArray) -> Dataset:
        """Items of known classes."""
        for name in ("n_features_in_", "feature_names_in_"):  # of a fit on rows before
            self.__dict__.pop(name, None)
        if are_rows(X):
            X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        check_consistent_length(X, y)
        codes = constraints.encode(column_or_1d(constraints.numbered(y), warn=True))[1]
        constraints.require_classes(codes, similar=False)
        dataset = self._dataset(X, codes)
        return dataset if codes.min() >= 0 else dataset.subset(codes >= 0)

    def _dataset(self, X: AnyArray, codes: Ints) -> Dataset:
        if not are_rows(X):
            return images(X, codes)
        with np.errstate(over="ignore"):
            rows = np.asarray(X, dtype=np.float32)
        if not np.isfinite(rows).all():
            raise ValueError("X holds numbers that are too large for float32; scale the features")
        columns = [str(name) for name in getattr(self, "feature_names_in_", ())]
        return Dataset.from_array("X", rows, codes, columns=columns)

    @property
    def _n_features_out(self) -> int:
        return int(self.config_.embedding_dim)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _arguments(config: TrainConfig) -> dict[str, Any]:
    """Return what a `DeepMetric` of this config is made with: `settings` holds what is not the default."""
    fields, defaults = config.to_dict(), TrainConfig.of(data=GIVEN).to_dict()
    others = fields.keys() - {*OWN, *OF_RUNS}
    settings = {name: value for name, value in fields.items() if name in others and value != defaults[name]}
    return {**{name: fields[name] for name in OWN}, "settings": settings or None}


@contextmanager
def undisturbed() -> Iterator[None]:
    """Leave global random numbers as they are: training seeds them."""
    before = random_state()
    try:
        yield
    finally:
        set_random_state(before)
