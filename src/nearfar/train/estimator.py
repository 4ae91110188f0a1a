"""A trained network as a scikit-learn estimator."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from ..data import Dataset, Task, as_items
from ..data.dataset import carve_validation
from ..data.decode import part_that_fits
from ..data.readers.in_memory import GIVEN, are_rows, as_column, even, images
from ..data.table_columns import TableColumns
from ..deep.networks.embedder import Embedder
from ..deep.networks.text_settings import Role
from ..estimators.fitted import Fitted
from ..estimators.validation import as_rows_and_numbers, error_context
from ..io import tensor_file
from ..io.training_marks import TrainingMarks
from ..numerics import checks, constraints
from ..numerics.types import AnyArray, Ints
from .checkpoint import first_weights, preserve_random_state, prompts_of, read_about, save_tensors, shape_of
from .config import TrainConfig, TrainError
from .estimator_config import arguments_of, config_of
from .features import Floats, as_bytes, embed, image_sizes_of
from .interrupts import Interrupts
from .listed_pairs import KnownPairs, refuse_classes
from .loading import build_embedder, folder_and_config, network_config
from .pairs import embed_texts
from .run import Run, RunFolder
from .scoring import as_trained, prompt_tokens_of, with_prompt_tokens
from .setup import build
from .trainer import Trainer

Self = TypeVar("Self", bound="DeepMetric")

READ_BY = ("shape", "columns", "tokenizer", "prompt", "prompts", "architecture", "text_architecture")
"""Metadata of a checkpoint that determine, besides its weights, how items are read."""


class DeepMetric(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Fitted):
    """A neural network as a scikit-learn estimator, trained by `nearfar.train.train`, with all methods of a learner.

    It works in pipelines and searches, on rows, on images in memory or on paths of image files. `train` and `nearfar
    train` add what a run has: a folder from which it can be resumed, test classes, scores and a report.

    Parameters
    ----------
    objective : str
        Loss and regularizers by name, added and weighted, such as "TripletLoss(margin=0.2) + 0.3*EnergyConfusion()";
        package.module:Name names one of your own.
    trunk : str
        Network before the embedding layer, as for `TrainConfig`. "auto" chooses conv4 for images and mlp for rows. Pass
        pretrained weights in `settings`: ``{"pretrained": True}``, or the path of a file.
    embedding_dim : int
        Number of dimensions of an embedding.
    epochs : int
        Number of passes over the items.
    batch_size : int
        Number of items per batch.
    lr : float
        Learning rate.
    augment : str
        Random transforms of the training images, such as "affine(degrees=15), mirror".
    validation : float
        Fraction of the classes that is held out to choose, by MAP@R, the epoch whose weights are kept. With 0, all
        classes are used for training and the last weights are kept.
    settings : dict, optional
        Any other setting of `TrainConfig`, such as ``{"schedule": "cosine", "patience": 5, "standardize": True}``.
    random_state : int, RandomState or None
        Seed of the weights, the batches, the augmentation and the validation classes. The global random state is not
        changed.
    verbose : bool
        Print progress.

    Attributes
    ----------
    network_ : Module
        The trained network, in evaluation mode: ``network_(items).embedding`` are embeddings, not normalized.
    config_ : TrainConfig
        All settings, resolved.
    loss_curve_ : ndarray of shape (n_iter_,)
        Mean of the objective in every epoch.
    n_iter_ : int
        Number of epochs run.
    best_epoch_ : int
        The epoch whose weights are kept, counted from 1.
    best_score_ : float or None
        Score of that epoch on the validation classes; None without validation.

    Notes
    -----
    Embeddings have unit length, so that Euclidean distances order them in the same way as the cosine distances by which
    runs are scored.

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
        objective: str = "SupConLoss()",
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

    def fit(
        self: Self,
        X: AnyArray,
        y: AnyArray | None = None,
        *,
        pairs: AnyArray | None = None,
        pair_labels: AnyArray | None = None,
        rows: AnyArray | None = None,
    ) -> Self:
        """Train a new network, from labeled items or from pairs of items.

        Parameters
        ----------
        X : array-like
            Rows of shape (n, d); uint8 images of shape (n, H, W) or (n, H, W, C), or a list of them; or n paths of
            image files.
        y : array-like of shape (n,), optional
            Class labels of any type. Items with the number -1 are of unknown class and are left out. Not used if
            `pairs` is given.
        pairs : array-like of shape (m, 2), optional
            Pairs of item numbers. Losses that compare samples learn from these pairs only; losses with class proxies
            cannot be used.
        pair_labels : array-like of shape (m,), optional
            +1 for similar and -1 for dissimilar pairs; both kinds are needed.
        rows : array-like of shape (n,), optional
            Number of each item in `pairs`; pairs of other items are left out (see `FromPairs.fit`).

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If items, labels or a setting are not valid, or the loss is not finite.
        """
        with error_context(self):
            checks.only_with("pairs", pairs, pair_labels=pair_labels)
            if pairs is not None:
                return self._fit_pairs(X, pairs, pair_labels, rows)
            if y is None:
                raise ValueError("requires y to be passed, but the target y is None; pass labels, or pairs=")
            config = config_of(self)
            hint = as_rows_and_numbers(X, ["pairs"])
            if hint and getattr(X, "dtype", None) != np.uint8:  # uint8 is for images
                raise ValueError(hint)
            dataset = self._labeled(as_column(X), y)
            train, unseen = carve_validation(dataset, config.validation, config.seed)
            # every task needs a test part, which is not scored here
            self._train(config, Task(dataset.name, train, unseen, test=train, gallery=None, protocol=GIVEN))
        return self

    def transform(self, X: AnyArray) -> AnyArray:
        """Return embeddings of unit length.

        Parameters
        ----------
        X : array-like
            Items as for `fit`. Images of another size are resized to that of the network.

        Returns
        -------
        ndarray of shape (n, embedding_dim)
            Embeddings in float32.
        """
        check_is_fitted(self)
        with error_context(self):
            checks.require_plain(X)
            X = as_column(X)
            if are_rows(X):
                X = validate_data(self, even(X), dtype=[np.float64, np.float32], reset=False)
            Z = self.embed(self._dataset(X, np.zeros(len(X), np.int64)))
        length = np.linalg.norm(Z, axis=1, keepdims=True)
        return Z / np.where(length > 0, length, 1)

    @property
    def takes(self) -> tuple[str, ...]:
        """Kinds of items that the network embeds: "row", "image", "text" or "sound", or images and texts."""
        check_is_fitted(self)
        if self._about.get("sounds") is True:
            return ("sound",)
        text = ("text",) if "tokenizer" in self._about else ()
        if len(shape_of(self._about)) == 3:
            return ("image", *text)
        return text or ("row",)

    @property
    def prompts(self) -> dict[Role, str]:
        """Texts that `embed` puts in front of each query and of each document; {} if it has one prompt, or none."""
        check_is_fitted(self)
        if "tokenizer" not in self._about:
            return {}
        return {role: text for role, (text, _) in prompts_of(self._about).items()}

    @property
    def distance(self) -> str:
        """Distance by which embeddings are compared: cosine, because those of `embed` have any length."""
        return "cosine"

    @property
    def dimensions(self) -> int:
        """Number of dimensions of an embedding."""
        check_is_fitted(self)
        return int(self.network_.embedding_dim)

    @property
    def table_columns(self) -> TableColumns:
        """Columns of the classes, the names and the levels in the table that it was trained on."""
        check_is_fitted(self)
        return TableColumns(self.config_.label, self.config_.name, tuple(self.config_.levels))

    @property
    def fingerprint(self) -> str:
        """Digest of the weights and of how items are read, the same for the network that `load` restores."""
        check_is_fitted(self)
        reads = {name: self._about.get(name) for name in READ_BY}
        text = {"reads": json.dumps(reads), "images": repr(image_sizes_of(self.config_))}
        return tensor_file.digest(as_bytes(self.network_), text)

    def embed(self, items: Any, *, layer: str = "embedding", prompt: Role | None = None) -> AnyArray:
        """Return the embeddings of items, which are those of `transform` before they get unit length.

        Parameters
        ----------
        items : Dataset, array-like, or source
            Items as for `transform`, a data set, or what `nearfar.data.as_items` takes, such as a folder or, for a
            network of texts, a list of texts.
        layer : {"embedding", "pooled", "places"}
            Output of the network to return. For images, "places" are (n, h, w, c) descriptors of the places of the last
            map, or of the patches of a vision transformer, for `nearfar.evaluation.local_scores`.
        prompt : {"query", "document"}, optional
            What texts are, if the text model has `prompts` for the two. By default, each text has the prompt of the
            training.

        Returns
        -------
        ndarray of float32, shape (n, d)
            Embeddings, not normalized, to be compared by cosine distance.

        Raises
        ------
        TrainError
            If the network takes other items, or rows of another length.
        NotImplementedError
            If the network has no "places".
        DataError
            If the network was trained on a table, and the items are from one with other columns; their order does not
            matter.
        """
        check_is_fitted(self)
        dataset = as_items(items, self.takes, **self.table_columns.read(items))
        read, sizes = as_trained(dataset, self.config_, self._about, self._owner, prompt)
        if dataset.kind != "text":
            return embed(self.network_, read, layer=layer, **sizes)
        network = with_prompt_tokens(self.network_, prompt_tokens_of(self._about, prompt))
        if network.text is not None:
            return embed_texts(network, read)
        return embed(network, read, layer=layer)

    def seen_part(self, width: int, height: int) -> tuple[float, float, float, float]:
        """Return which part of an image of this size the network sees, after it was resized and cropped.

        Parameters
        ----------
        width, height : int
            Size of the image in pixels.

        Returns
        -------
        tuple of float
            Left, top, right and bottom, in pixels of the image.

        Examples
        --------
        >>> import numpy as np
        >>> images = np.zeros((8, 16, 16, 3), np.uint8)
        >>> network = DeepMetric(trunk="conv4(width=2)", epochs=1, random_state=0).fit(images, np.arange(8) % 4)
        >>> network.seen_part(300, 200)
        (50.0, 0.0, 250.0, 200.0)
        """
        check_is_fitted(self)
        shape = shape_of(self._about)
        sizes = image_sizes_of(self.config_)
        if len(shape) == 3 and shape[1] == shape[2]:
            sizes["image_size"] = shape[1]
        size = sizes["image_size"]
        if size is None:  # images are taken as they are
            return 0.0, 0.0, float(width), float(height)
        return part_that_fits(width, height, sizes["resize"] or size, size, sizes["resizing"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimator to a folder in the format of a run, which `load` and the commands of `nearfar` read.

        ``nearfar embed``, ``index``, ``search`` and ``export`` take the folder. `threshold_` is saved too, if it is
        set.

        Parameters
        ----------
        path : path
            Folder to create.

        Raises
        ------
        ValueError
            If the path already exists.
        """
        check_is_fitted(self)
        folder = RunFolder(Path(path))
        with error_context(self):
            if folder.config.exists():  # `create` would advise to resume it
                raise TrainError(f"{folder.path}: contains a run already; choose another folder")
            folder.create()
            weights = {f"embedder.{name}": value for name, value in self.network_.state_dict().items()}
            if self._training_marks is not None:
                self._training_marks.write(folder.training_items)
            save_tensors(folder.best, weights, {**self._about, "threshold": getattr(self, "threshold_", None)})
            if hasattr(self, "loss_curve_"):
                losses = self.loss_curve_.tolist()
                folder.write_metrics([{"epoch": epoch, "loss": loss} for epoch, loss in enumerate(losses, 1)])
            tensors = (*self.network_.parameters(), *self.network_.buffers())  # raw inputs may have neither
            device = str(tensors[0].device) if tensors else "cpu"
            folder.describe(self.config_, device, weights=first_weights(self._about))

    @classmethod
    def load(
        cls: type[Self], path: Run | str | os.PathLike[str], *, which: str = "best", trust: str | Collection[str] = ()
    ) -> Self:
        """Read what `save` wrote, or any run of `nearfar train`.

        Parameters
        ----------
        path : Run or path
            The folder.
        which : {"best", "last", "trained"}
            Checkpoint to use; "trained" is the best network that was trained, where something cheaper is kept as
            "best".
        trust : str or collection of str
            Modules of your own that the trunk may name, whose code is run, and the objective and the sampler, which
            the next `fit` runs.

        Returns
        -------
        DeepMetric

        Raises
        ------
        TrainError
            If the folder holds no run, or the run is damaged.
        TrustError
            If the trunk is of a module that is not trusted.
        """
        folder, config = folder_and_config(path if isinstance(path, Run) else Path(path), trust)
        metric = cls(**arguments_of(config), random_state=config.seed)
        embedder = path.embedder if isinstance(path, Run) and which == "best" else None
        if embedder is None:
            embedder = build_embedder(folder, config, which)
        about = read_about(folder.checkpoint(which))
        metric._keep(embedder, network_config(config, about), about, str(folder.path))
        metric._training_marks = TrainingMarks.read(folder.training_items)
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

    @classmethod
    def of_network(
        cls: type[Self], network: Embedder, config: TrainConfig, about: dict[str, Any], *, owner: str
    ) -> Self:
        """Return an estimator with a network that was not fitted here.

        Parameters
        ----------
        network : Embedder
            In evaluation mode.
        config : TrainConfig
            Its settings.
        about : dict
            Metadata of a checkpoint, which say how items are read.
        owner : str
            Whose network it is, for messages.
        """
        metric = cls(**arguments_of(config), random_state=config.seed)
        metric._keep(network, config, about, owner)
        metric.n_iter_ = metric.best_epoch_
        return metric

    def _fit_pairs(
        self: Self, X: AnyArray, pairs: AnyArray, pair_labels: AnyArray | None, rows: AnyArray | None
    ) -> Self:
        """Train on pairs, and set the threshold of `predict` to the best one on them."""
        config = config_of(self)
        items = self._items(as_column(X))
        refuse_classes(config)
        n = len(items)
        if rows is not None:
            pairs, pair_labels = constraints.present(pairs, rows, n, "pairs", pair_labels)
        checked = constraints.check_pairs(pairs, pair_labels, None, n)
        constraints.require_both(int(checked.similar.sum()), int((~checked.similar).sum()))
        dataset = self._dataset(items, constraints.groups(checked, n))
        task = Task(dataset.name, dataset, None, test=dataset, gallery=None, protocol=GIVEN)
        self._train(config, task, KnownPairs.of(checked, n))
        signs = np.where(checked.similar, 1, -1)
        return self.calibrate_threshold(np.stack([checked.i, checked.j], axis=1), signs, X=X)

    def _train(self, config: TrainConfig, task: Task, known: KnownPairs | None = None) -> None:
        with preserve_random_state(), TemporaryDirectory(prefix="nearfar-") as path:
            folder = RunFolder(path)
            loop = build(config, given=task, known=known)
            with Interrupts() as interrupts:
                trainer = Trainer(loop, folder, interrupts, progress=bool(self.verbose))
                run = trainer.run()
            assert run.embedder is not None
            self._keep(run.embedder, loop.config, read_about(folder.best), type(self).__name__)
            self._training_marks = TrainingMarks.read(folder.training_items)
        self.loss_curve_ = np.array([row["loss"] for row in trainer.position.rows])
        self.n_iter_ = len(self.loss_curve_)

    def _keep(self, network: Embedder, config: TrainConfig, about: dict[str, Any], owner: str) -> None:
        self.network_ = network
        self.config_ = config
        self._about = about
        self._owner = owner  # whose network it is, for messages
        self.best_epoch_ = self._about["epoch"]
        self.best_score_ = self._about["best"]
        self.__dict__.pop("threshold_", None)

    def _items(self, X: AnyArray) -> AnyArray:
        """Check rows; images and paths are checked when they become a set."""
        for name in ("n_features_in_", "feature_names_in_"):  # from an earlier fit on rows
            self.__dict__.pop(name, None)
        checks.require_plain(X)
        if are_rows(X):
            return validate_data(self, even(X), dtype=[np.float64, np.float32], ensure_min_samples=2)
        return X

    def _labeled(self, X: AnyArray, y: AnyArray) -> Dataset:
        """Select the items of known classes."""
        X = self._items(X)
        check_consistent_length(X, y)
        y = column_or_1d(checks.numbered(y, unlabeled=-1), warn=True)
        check_classification_targets(y)
        codes = checks.encode(y, unlabeled=-1)[1]
        checks.require_classes(codes, similar=False)
        dataset = self._dataset(X, codes)
        return dataset if codes.min() >= 0 else dataset.subset(codes >= 0)

    def _dataset(self, X: AnyArray, codes: Ints) -> Dataset:
        if not are_rows(X):
            return images(X, codes)
        with np.errstate(over="ignore"):
            rows = np.asarray(X, dtype=np.float32)
        if not np.isfinite(rows).all():
            raise ValueError("X has values that are too large for float32; scale the features")
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


def embed_run(
    run: Run | str | Path,
    dataset: Dataset | str | Path,
    *,
    layer: str = "embedding",
    which: str = "best",
    prompt: Role | None = None,
    trust: str | Collection[str] = (),
) -> Floats:
    """Embed all items of a data set with the network of a run.

    Parameters
    ----------
    run : Run, str or Path
        The run or its folder.
    dataset : Dataset, str or Path
        The items, or a source that `nearfar.data.open_items` opens. Images are resized to the size that the network was
        trained on.
    layer, which, prompt, trust
        As for `DeepMetric.embed` and `DeepMetric.load`, which load the network once for several sets.

    Returns
    -------
    ndarray of float32, shape (n, d)
        Embeddings, not normalized.

    Raises
    ------
    TrainError, DataError
        As `DeepMetric.load` and `DeepMetric.embed`.
    """
    return DeepMetric.load(run, which=which, trust=trust).embed(dataset, layer=layer, prompt=prompt)
