"""All settings of a training run, in one strict record that is read from and written to JSON."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta

from ..data.located import is_elsewhere, local_source, refuse_remote
from ..deep.networks.preprocessing import Preprocessing
from ..deep.networks.timm_folder import trunk_of_folder
from ..expressions import modules_in
from ..io.untrusted import read_json
from ..quoting import PATH, quoted, shorten
from ..trust import Origin, TextOfFile, modules_of

# so that a product of two, such as epochs and batches, fits into 64 bits
AtLeastOne = Annotated[int, Meta(ge=1, le=2**31 - 1)]
AtLeastZero = Annotated[int, Meta(ge=0)]
Side = Annotated[int, Meta(ge=1, le=8192)]  # pixels; a larger value is probably a typo, and would fill the memory
Seconds = Annotated[float, Meta(ge=0.1, le=60)]
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Factor = Annotated[float, Meta(gt=0, le=1)]

# marks of settings, in their annotations
CODE = Meta(extra={"may name modules of the user": True})
Tracker = Literal["tensorboard", "wandb", "mlflow", "trackio", "csv"]
NO_EFFECT = Meta(extra={"changes the result": False})  # may differ when a run is resumed
OF_A_RUN = Meta(extra={"only of a run in a folder": True})  # not of an estimator
OF_AN_ESTIMATOR = Meta(extra={"argument of DeepMetric": True})
SOURCES = ("data", "test", "pairs")
OF_THE_TASK = Meta(extra={"of what is learned and tested": True})  # which the data do not change
FOUND = Meta(extra={"may be found": True})  # another than given: after `steps`, for the trunk, for the device

NAMES_ELSEWHERE = {
    "learning_rate": "lr",
    "loss": "objective",
    "criterion": "objective",
    "model": "trunk",
    "backbone": "trunk",
    "num_epochs": "epochs",
    "max_epochs": "epochs",
    "embedding_size": "embedding_dim",
    "random_state": "seed",
}
"""Names of other libraries for settings of a run that are also options of `nearfar train`."""


class TrainError(ValueError):
    """A run cannot be started, resumed or read. The message is one line."""


class TrainConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, eq=False):
    """Settings of a training run. Create them with `TrainConfig.of`, which checks every value.

    If a trunk of another library starts from pretrained weights, settings that are not given take the values of the
    recipe `photos/finetune` for images, and of `texts/finetune` for texts; with adapters those of `photos/lora` and
    `texts/lora`, and with a frozen trunk those of `photos/frozen` and `texts/frozen`.

    Parameters
    ----------
    data : str
        Source of the items and their classes, as for `nearfar.data.open_task`. Of an address or a data set of Hugging
        Face, it is the local copy.
    protocol : {"honest", "paper"}
        "honest" chooses the checkpoint on classes that are held out of the training classes; "paper" trains on all of
        them and keeps the last checkpoint, as the founding papers do.

        "paper" does not say how the length and the settings of the training were chosen.
    keep : {"auto", "best", "trained"}
        What the run keeps at its end: "best" keeps something cheaper, such as the frozen features with a closed form,
        if the network is not clearly better on held-out classes; "trained" keeps the network. "auto" is "best", and
        "trained" if an objective is given.

        "best" chooses among the trained network, weights between those before and after the training, features of the
        trunk before the training, and the items themselves, the latter two also with a closed form on them. "trained"
        adds a remark where something cheaper is better.
    test : str, optional
        Another data set to test on. By default, the split that `data` comes with, or else half of its classes.
    test_classes : tuple of str
        Names of the classes to test on, or the beginnings of their names. By default, all test classes.
    validation : float, optional
        Fraction of the training classes that is held out to choose the checkpoint, in [0, 1). By default, that is 15 %
        of the classes, but at least 8, and 30 % of fewer than 27 classes. Not used if `data` has validation items of
        its own. With ``protocol="paper"``, it must be 0.
    split : {"classes", "rows"}
        "classes" tests on classes that are not seen in training; "rows" tests on half of the items of every class, for
        data whose classes are fixed.
    label : str, optional
        Column of a table that holds the classes. By default `label`; in a table of numbers also `class`, `target` or
        `y`.
    name : str, optional
        Column of a table that holds the names of its rows. By default `name`, or a column such as `id`, `sku`,
        `item_id` or `uid`, if its cells are different.
    levels : tuple of str
        Columns of a table with what each class belongs to, the finest level first, such as genus and family of the
        species in `label`. The objective is the sum over the levels, each with half the weight of the one below, and
        the scores of the test are those of each level.
    pairs : str, optional
        A table of pairs of the items of `data`, by their names: hard negatives as `nearfar suspects --negatives` writes
        them, triplets, or pairs. Batches are made of them, and they take precedence over the classes.
    partial : bool
        For a trial, accept an incomplete copy of an official archive (cub:, cars:, sop:, inshop:): its counts are not
        checked, and missing images are left out.
    image_size : int, optional
        Side in pixels, at most 8192, of the square images that the network gets. By default, models of timm and
        transformers take the size that they were trained with; for other trunks, images of several sizes are brought to
        84 for conv4, and to 224 for larger trunks.

        In evaluation, images are cropped to it at their center. Images smaller than what a model of timm or
        transformers was trained with are enlarged. For other trunks, images of one size are used as they are, and
        images of different sizes are brought to 84 for conv4, mlp and spd, and to 224 (cropped from 256) otherwise. If
        only the test images differ, they are brought to the size of the training images. Images below 16, which are too
        small for conv4, are enlarged to 28.
    resize : int, optional
        Side in pixels to which images are scaled before the center crop, at least `image_size`. By default,
        `image_size`. Random crops in training are taken from images of this size.
    squash : bool
        Scale both sides of an image to `resize`, which changes its aspect ratio, instead of the shorter side only.
    seconds : float, optional
        Length in seconds of the pieces of sounds that the network gets, from 0.1 to 60. By default, that of nearly all
        sounds of the training, but at most 4, and for ge2e at least 1.6.

        Training draws pieces at random. The embedding of a longer sound is the average over three pieces, evenly from
        its begin to its end; a shorter sound is repeated.
    skip_bad : bool
        Skip images and sounds that cannot be decoded, and rows of a table with a missing label, vector or number,
        instead of stopping with an error; their number is reported.
    standardize : bool
        Standardize each column to mean 0 and standard deviation 1 on the training items; the scaling is saved with the
        model.
    symmetries : {"none", "rotations", "all"}
        Add copies of the training classes, rotated by 90, 180 and 270 degrees, as further classes; "all" also adds
        mirrored ones. For characters and signs, where a rotated class is a different one.
    augment : str
        Random augmentation of training images, such as "affine(degrees=15), erasing". By default, none.
    objective : str
        Losses and regularizers by name, in a weighted sum such as "TripletLoss(margin=0.2) + 0.3*EnergyConfusion()";
        package.module:Name for a class that you wrote.

        The default was chosen on validation classes of characters, photos and tables.
    trunk : str
        Network before the embedding layer: conv4, mlp, identity, bn_inception, googlenet, resnet50, spd, timm:NAME,
        transformers:NAME or package.module:factory. "auto" chooses mlp for rows, conv4 for images, and for photographs
        a timm model whose pretrained weights are in the local cache, for texts a text model that is there.
    text_trunk : str, optional
        A second network for the texts of images, transformers:FOLDER of a text model with its tokenizer, or of a model
        of images and texts. The data are then a table of pairs, with the columns `path` and `text`, and photos are
        found by words.

        Both are embedded into one space. The objective compares images with texts and texts with images; by default it
        is the CLIP loss.
    pretrained : bool or str
        Pretrained weights of the trunk: true for those of timm or transformers, from the local cache or the hub; or a
        .safetensors, .pth or .caffemodel file; or the folder of an adapter of peft, which is added to the weights of
        timm or transformers.
    preprocessing : Preprocessing, optional
        How images are prepared for a trunk of another library: mean, standard deviation, size, interpolation and
        pooling. By default, the values of timm's data config, of the image processor or of the factory, overridden by
        the options of `trunk`. The trunks of this library take pixels in [0, 1] and need none.
    network_weights : str, optional
        Checkpoint of a run from which the trunk and the embedding layer start.
    embedding_dim : int
        Number of dimensions of the embedding.
    dropout : float
        Probability with which a feature is zeroed before the embedding layer, in [0, 1).
    freeze_bn : bool or "statistics", optional
        Whether to freeze the batch normalization layers of the trunk: True freezes their running statistics, scales and
        shifts; "statistics" freezes the statistics only. By default, True if the trunk starts from pretrained weights
        or has adapters, as small batches of other images would replace the statistics by worse ones.
    freeze_trunk : bool
        Train the embedding layer only. The features of the frozen trunk are computed once and kept on disk.
    freeze_epochs : int, optional
        Number of epochs at the start that train only the embedding layer and the parameters of the objective, whose
        random start would otherwise spoil a pretrained trunk.
    last_stage : bool
        Train only the embedding layer and the last layers of the trunk, the fewest that hold half of its weights.
    lora : int, optional
        Rank of low-rank adapters (Hu et al., 2022), which are trained instead of the weights of the trunk in its linear
        layers and pointwise convolutions. The best checkpoint has them merged in; the folder `adapter/` of the run
        holds them alone, in the format of peft.
    lora_alpha : float, optional
        Scale of the adapters: their product is multiplied by ``lora_alpha / lora``. By default, twice the rank.
    embedding_start : {"random", "whitening", "features"}
        Start of the embedding layer: random weights; a `DiscriminantWhitening` fitted in closed form to the trunk's
        features of the training items; or these features as they are. If `embedding_dim` is smaller than the number of
        features, the first principal components are used.
    layer_decay : float, optional
        Factor in (0, 1] on the learning rate for every layer of the trunk before the last, counted in stages of
        convolutional networks and in blocks of transformers. Early features are general and should change less.
    gradient_checkpointing : bool
        Recompute the activations of a timm or transformers trunk in the backward pass. It saves memory and takes a
        third more time.
    sampler : str
        How batches are drawn: auto, random, m_per_class:M, class_ratio:R, a sampler such as
        "SmartMiningSampler(neighbors=20)", or package.module:Name for one of your own.

        "auto" is "m_per_class" with 4 items per class, or more if there are too few classes for that.
    episodes : {"none", "maml", "fomaml", "sequential"}
        Use every batch as an episode, as `nearfar.EpisodicTrainer` does: the weights are adapted on the support items,
        and the objective is computed on the query items.
    shots : int
        Number of support items per class in an episode, at least 2 for most losses.
    inner_steps : int
        Number of gradient steps on the support items of an episode.
    inner_lr : float
        Learning rate of these steps.
    batch_size : int
        Number of items per batch, over all processes together.
    chunk : int, optional
        Number of items that pass through the network at a time, in each process. The gradient is that of the whole
        batch, and the network runs twice: see `nearfar.deep.backward_in_chunks`. By default, the whole batch.
    shard_classes : bool
        With several processes, distribute the class proxies of the objective over them: each process stores and trains
        those of some classes, and the softmax over all classes stays exact (`nearfar.deep.ShardedClasses`).
    sample_classes : float, optional
        Share of the classes, in (0, 1], that a batch is compared with: its own classes, and others drawn in each
        step (partial FC; `nearfar.deep.SampledClasses`). The optimizer updates only the proxies that were drawn. By
        default, all classes.
    epochs : int
        Number of passes over the training data.
    steps : int, optional
        Number of batches to train on. If given, `epochs` is ignored and becomes the number of epochs that they take.
    seed : int
        Random seed for weights, batches, augmentation and the split.
    optimizer : {"adam", "adamw", "sgd", "rmsprop"}
        Optimizer.
    lr : float
        Learning rate of the trunk and, unless set otherwise, of all other parts.
    lr_embedding : float, optional
        Learning rate of the embedding layer. By default, `lr`.
    lr_proxies : float, optional
        Learning rate of the parameters of the objective, such as proxies. By default, `lr`.
    lr_text : float, optional
        Learning rate of the text trunk. By default, 1e-5.
    weight_decay : float
        Weight decay of all parameters.
    momentum : float, optional
        Momentum of "sgd" and "rmsprop". By default, 0.9 for "sgd", else that of the optimizer.
    eps : float, optional
        Term added to the denominator of "adam", "adamw" and "rmsprop". By default, that of the optimizer.
    rmsprop_decay : float, optional
        Decay of the running mean of squared gradients of "rmsprop". By default, 0.99; TensorFlow uses 0.9.
    warmup : float
        Number of epochs during which the learning rates rise linearly from near 0.
    schedule : {"constant", "cosine", "step"}
        Learning rate schedule: "cosine" decays to 0 at the end; "step" multiplies by `lr_gamma` every `lr_step` epochs.
    lr_step : int
        Number of epochs between two steps of the schedule "step".
    lr_gamma : float
        Factor of each step of the schedule "step".
    clip : float, optional
        Maximum norm of the gradient. By default, gradients are not clipped.
    ema : float, optional
        Decay of the exponential moving average of the weights, such as 0.999. The averages are evaluated and kept as
        the best checkpoint; the last checkpoint holds the weights themselves. By default, no averages are kept.
    precision : {"no", "bf16", "fp16", "auto"}
        Precision of the network: float32 ("no") or mixed. "auto" is "bf16" on GPUs and processors that compute in
        bfloat16 natively, else "no". Objectives are always computed in float32.
    matmul_precision : {"highest", "high", "medium"}, optional
        How much precision products of float32 matrices may lose, in the network and in the objective, as in
        `torch.set_float32_matmul_precision`: "high" allows TF32, and "medium" bfloat16, where the device multiplies
        faster in these formats; sums remain in float32. By default, the setting of PyTorch is left as it is.
    device : {"auto", "cpu"}
        Device to train on. "auto" chooses an accelerator if there is one. The environment variable CUDA_VISIBLE_DEVICES
        chooses among several GPUs.
    workers : int, optional
        Number of processes that decode images; with 0, the training process decodes them. By default, as the machine
        allows, if the images are not in memory. The results do not depend on it.
    eval_every : int
        Number of epochs between two evaluations.
    select : {"recall_at_1", "map_at_r"}
        Score on the validation classes that chooses the best checkpoint. Recall@1 discriminates less when it is near 1.
    metric : {"none", "auto", "whitening"}
        Fit a `DiscriminantWhitening` to the embeddings of the training items after the training, and apply it to the
        embeddings of the best checkpoint. "auto" keeps it only if it improves MAP@R on the validation classes.
    patience : int, optional
        Number of consecutive evaluations without a better validation score after which training stops. By default,
        training does not stop early.
    ks : tuple of int
        Values of K for Recall@K; they must include 1.
    checkpoint_every : int
        Number of batches between checkpoints within an epoch. With 0, one is written at the end of every epoch.
    log_every : int
        Number of batches between two lines of the log.
    track : tuple of {"tensorboard", "wandb", "mlflow", "trackio", "csv"}
        Also send losses and validation scores to these trackers. "tensorboard" writes events into the folder of the
        run; "csv" is metrics.csv, which every run writes.
    final : str, optional
        Folder of the evaluated run whose settings and length these are, as set by `train_final`: train on all classes
        of the data, including those of the validation and of the test.
    interpolation : float, optional
        Share of the way from the weights before the training to those after it at which the network of a final model
        is, as set by `train_final` if the evaluated run keeps such weights.
    """

    data: Annotated[str, OF_A_RUN]
    protocol: Annotated[Literal["honest", "paper"], OF_THE_TASK] = "honest"
    keep: Annotated[Literal["auto", "best", "trained"], OF_A_RUN] = "auto"
    test: Annotated[str | None, OF_A_RUN, OF_THE_TASK] = None
    test_classes: Annotated[tuple[str, ...], OF_A_RUN, OF_THE_TASK] = ()
    validation: Annotated[Share | None, OF_THE_TASK, OF_AN_ESTIMATOR] = None
    split: Annotated[Literal["classes", "rows"], OF_A_RUN, OF_THE_TASK] = "classes"
    label: Annotated[str | None, OF_A_RUN, OF_THE_TASK] = None
    name: Annotated[str | None, OF_A_RUN, OF_THE_TASK] = None
    levels: Annotated[tuple[str, ...], OF_A_RUN] = ()
    pairs: Annotated[str | None, OF_A_RUN] = None
    partial: Annotated[bool, OF_A_RUN, OF_THE_TASK] = False
    image_size: Side | None = None
    resize: Side | None = None
    squash: bool = False
    seconds: Annotated[Seconds | None, OF_A_RUN] = None
    skip_bad: Annotated[bool, OF_A_RUN, OF_THE_TASK] = False
    standardize: bool = False
    symmetries: Annotated[Literal["none", "rotations", "all"], OF_A_RUN] = "none"
    augment: Annotated[str, OF_AN_ESTIMATOR] = ""
    objective: Annotated[str, CODE, OF_AN_ESTIMATOR] = "SupConLoss()"
    trunk: Annotated[str, CODE, OF_AN_ESTIMATOR] = "auto"
    text_trunk: Annotated[str | None, CODE] = None
    pretrained: bool | str = False
    preprocessing: Annotated[Preprocessing | None, OF_A_RUN, FOUND] = None
    network_weights: str | None = None
    embedding_dim: Annotated[AtLeastOne, OF_AN_ESTIMATOR] = 64
    dropout: Share = 0.0
    freeze_bn: bool | Literal["statistics"] | None = None
    freeze_trunk: bool = False
    freeze_epochs: AtLeastOne | None = None
    last_stage: bool = False
    lora: AtLeastOne | None = None
    lora_alpha: Positive | None = None
    embedding_start: Literal["random", "whitening", "features"] = "random"
    layer_decay: Factor | None = None
    gradient_checkpointing: bool = False
    sampler: Annotated[str, CODE] = "auto"
    episodes: Literal["none", "maml", "fomaml", "sequential"] = "none"
    shots: AtLeastOne = 2
    inner_steps: AtLeastOne = 1
    inner_lr: NotNegative = 0.01
    batch_size: Annotated[AtLeastOne, OF_AN_ESTIMATOR] = 128
    chunk: AtLeastOne | None = None
    shard_classes: bool = False
    sample_classes: Factor | None = None
    epochs: Annotated[AtLeastOne, FOUND, OF_AN_ESTIMATOR] = 20
    steps: AtLeastOne | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1), OF_A_RUN, OF_THE_TASK] = 0
    optimizer: Literal["adam", "adamw", "sgd", "rmsprop"] = "adam"
    lr: Annotated[NotNegative, OF_AN_ESTIMATOR] = 1e-3
    lr_embedding: NotNegative | None = None
    lr_proxies: NotNegative | None = None
    lr_text: NotNegative | None = None
    weight_decay: NotNegative = 0.0
    momentum: Share | None = None
    eps: Positive | None = None
    rmsprop_decay: Share | None = None
    warmup: NotNegative = 0.0
    schedule: Literal["constant", "cosine", "step"] = "constant"
    lr_step: AtLeastOne = 20
    lr_gamma: Positive = 0.1
    clip: Positive | None = None
    ema: Share | None = None
    precision: Annotated[Literal["no", "bf16", "fp16", "auto"], FOUND] = "no"
    matmul_precision: Literal["highest", "high", "medium"] | None = None
    device: Literal["auto", "cpu"] = "auto"
    workers: Annotated[AtLeastZero | None, NO_EFFECT] = None
    eval_every: AtLeastOne = 1
    select: Literal["recall_at_1", "map_at_r"] = "map_at_r"
    metric: Literal["none", "auto", "whitening"] = "none"
    patience: AtLeastOne | None = None
    ks: tuple[AtLeastOne, ...] = (1, 2, 4, 8)
    checkpoint_every: Annotated[AtLeastZero, OF_A_RUN] = 0
    log_every: AtLeastOne = 10
    track: Annotated[tuple[Tracker, ...], NO_EFFECT, OF_A_RUN] = ()
    final: Annotated[str | None, OF_A_RUN] = None
    interpolation: Factor | None = None
    origin: Origin | None = None
    """Not a setting: the file that the settings were read from, and the modules that it may name."""
    given: tuple[str, ...] = ()
    """Not a setting: the names of the settings that were given explicitly."""

    @classmethod
    def of(cls, /, **fields: Any) -> TrainConfig:
        """Build a config from keyword arguments, and check them.

        Parameters
        ----------
        **fields
            Settings by name.

        Returns
        -------
        TrainConfig

        Raises
        ------
        TrainError
            If a name is unknown (the error suggests the closest one) or a value is not valid.

        Examples
        --------
        >>> TrainConfig.of(data="digits", epochs=3).epochs
        3
        """
        for name in fields.keys() - set(cls.settings()):
            if name in NAMES_ELSEWHERE:
                hint = f"; use {NAMES_ELSEWHERE[name]}"
            else:
                hint = "".join(f"; did you mean {near}?" for near in get_close_matches(name, cls.settings(), n=1))
            raise TrainError(f"config: unknown setting {quoted(name)}{hint}")
        if fields.get("protocol") == "paper":
            fields.setdefault("validation", 0.0)
        fields |= {name: local_source(fields[name]) for name in SOURCES if is_elsewhere(fields.get(name))}
        fields = _of_timm_folder(fields)
        try:
            config = msgspec.convert({name: plain_value(name, value) for name, value in fields.items()}, cls)
        except msgspec.ValidationError as error:
            raise TrainError(f"config: {_message_of(error, fields)}") from error
        contradiction = next(_contradictions(config), None)
        if contradiction is not None:
            raise TrainError(f"config: {contradiction}")
        origin = _origin_of({name: fields.get(name) for name in NAMING_CODE})
        return msgspec.structs.replace(config, given=tuple(sorted(fields)), origin=origin)

    def __eq__(self, other: object) -> bool:
        """Return whether all settings are equal, whatever their origin."""
        if isinstance(other, TrainConfig):
            return self.to_dict() == other.to_dict()
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        """Return the names of all settings."""
        return tuple(name for name in cls.__struct_fields__ if name not in ("origin", "given"))

    def replace(self, **changes: Any) -> TrainConfig:
        """Return a config with some settings changed, checked again. Settings that are changed may name any module."""
        if "trunk" in changes and changes["trunk"] != self.trunk:
            changes.setdefault("preprocessing", None)  # the record belongs to the old trunk
        if changes.get("protocol") == "paper":
            changes.setdefault("validation", 0.0)
        for name in SOURCES:
            refuse_remote(getattr(self, name) or "")
        changed = TrainConfig.of(**{**self.to_dict(), **changes})
        return msgspec.structs.replace(changed, given=tuple(sorted({*self.given, *changes})))

    def read_from(self, origin: Origin) -> TrainConfig:
        """Return the config as that of a file, which may name trusted modules only."""
        return msgspec.structs.replace(self, origin=origin)

    @property
    def weights_file(self) -> str | None:
        """The local file of weights that the trunk starts from."""
        return self.pretrained if isinstance(self.pretrained, str) else None

    @property
    def starts_pretrained(self) -> bool:
        """Whether the trunk starts from weights that were trained before."""
        from_run = self.network_weights is not None and ":" in self.trunk
        return bool(self.pretrained or from_run or is_model_folder(self.trunk))

    @property
    def adapter_scale(self) -> float:
        """Factor on the product of an adapter."""
        assert self.lora is not None
        return (2 * self.lora if self.lora_alpha is None else self.lora_alpha) / self.lora

    def modules(self) -> tuple[str, ...]:
        """Return the modules of your own that the settings may name: trusted ones, or all if settings were typed."""
        if self.origin is not None:
            return self.origin.trusted
        return tuple(module for name in NAMING_CODE for module in modules_in(getattr(self, name) or ""))

    def to_dict(self) -> dict[str, Any]:
        """Return all settings. Texts that may name code remain those of the file that they were read from, if any."""
        fields = dict(msgspec.to_builtins(self))
        del fields["origin"]
        del fields["given"]
        if self.origin is not None:
            texts = {name: fields[name] for name in NAMING_CODE if fields[name] is not None}
            fields |= {name: TextOfFile.of(text, self.origin) for name, text in texts.items()}
        return fields

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_json(cls, path: str | Path, trust: str | Collection[str] = ()) -> TrainConfig:
        """Read a config from a file.

        Parameters
        ----------
        path : str or Path
            The file.
        trust : str or collection of str
            Modules of your own that its objective, trunk and sampler may name: their code is run when these
            are built. The file may name other modules, but then these parts cannot be built.

        Raises
        ------
        TrainError
            If the file is missing, is not a JSON object, or has an invalid field.
        """
        try:
            fields = read_json(path)
        except FileNotFoundError as error:
            folder = Path(path).parent
            if folder.is_dir():
                why = f"is not the folder of a run (no {Path(path).name})"
            else:
                why = "no such run"
            raise TrainError(f"{folder}: {why}") from error
        except (OSError, ValueError) as error:
            raise TrainError(f"{path}: not readable as a config ({error})") from error
        if not isinstance(fields, dict):
            raise TrainError(f"{path}: expected a JSON object with the settings of a run")
        config = msgspec.structs.replace(cls.of(**fields), given=cls.settings())  # the file has all settings
        return config.read_from(Origin(os.fspath(path), modules_of(trust)))

    @property
    def digest(self) -> str:
        """Return sixteen hexadecimal digits that identify the settings that change the result.

        They depend on the settings that differ from their defaults, so that a new setting leaves older digests alone.
        """
        defaults = self.defaults()
        fields = {
            name: value
            for name, value in self.to_dict().items()
            if name not in WITHOUT_EFFECT and (name not in defaults or value != defaults[name])
        }
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the default values of all settings that have one, as in `to_dict`."""
        fields = {field.name: field.default for field in msgspec.structs.fields(cls)}
        return {
            name: msgspec.to_builtins(fields[name]) for name in cls.settings() if fields[name] is not msgspec.NODEFAULT
        }

    def differences(self, other: TrainConfig, but: Collection[str] = ()) -> list[str]:
        """List the fields that change the result and differ, `but` some of them, as "name: ours / theirs"."""
        ours = self.to_dict()
        theirs = other.to_dict()
        return [
            f"{name}: {quoted(ours[name])} / {quoted(theirs[name])}"
            for name in ours
            if name not in (*WITHOUT_EFFECT, *but) and ours[name] != theirs[name]
        ]

    def refused(self, given: TrainConfig) -> list[str]:
        """List the differences because of which a run cannot be resumed: all except a later end.

        More epochs or another patience do not change the finished steps, unless the schedule depends on the end. A run
        that stopped at an image that cannot be decoded may continue without such images.
        """
        may_differ = ["patience", "epochs"]
        if given.skip_bad:
            may_differ.append("skip_bad")
        different = self.differences(given, may_differ)
        if given.epochs == self.epochs:
            return different
        why = ""
        if given.schedule == "cosine":
            why = " (with a cosine schedule, all learning rates depend on the number of epochs)"
        elif self.steps or given.steps:
            why = " (a run with `steps` ends within an epoch, which cannot be continued)"
        elif given.epochs < self.epochs:
            why = " (a run can be made longer, but not shorter)"
        end = [f"epochs: {self.epochs} / {given.epochs}{why}"] if why else []
        return different + end


def _contradictions(config: TrainConfig) -> Iterator[str]:
    """Yield a line for each setting that another one forbids, or without which it has no meaning."""
    yield from _wrong_numbers(config)
    yield from _wrong_weights(config)
    yield from _wrong_trained_weights(config)
    yield from _without_validation(config)
    yield from _divided_batches(config)
    yield from _wrong_with_text_trunk(config)


def _wrong_numbers(config: TrainConfig) -> Iterator[str]:
    for name, value in config.to_dict().items():
        if value == float("inf"):
            yield f"{name}: Expected a finite number, got {value}"
    if 1 not in config.ks:
        yield f"ks must contain 1, got {list(config.ks)}"
    if config.resize is not None and (config.image_size is None or config.image_size > config.resize):
        yield f"resize needs an image_size of at most {config.resize}, got {config.image_size}"


def _wrong_weights(config: TrainConfig) -> Iterator[str]:
    """Yield lines on several sources of weights for one part of the network."""
    if config.pretrained and config.network_weights:
        yield "network_weights contain a trunk, so pretrained must not be given with them"
    if config.embedding_start != "random" and config.network_weights is not None:
        yield "network_weights contain an embedding layer, so embedding_start must not be given with them"


def _wrong_trained_weights(config: TrainConfig) -> Iterator[str]:
    """Yield lines on settings of which weights are trained."""
    if config.freeze_trunk and config.augment:
        yield "augment does not work with a frozen trunk, whose features are computed once; leave it empty"
    if config.episodes != "none":
        parts = {
            "freeze_trunk": config.freeze_trunk,
            "freeze_epochs": config.freeze_epochs is not None,
            "last_stage": config.last_stage,
            "lora": config.lora is not None,
        }
        for name in _those_set(parts):
            yield f"episodes train all weights, so {name} must not be given with them"
    if config.freeze_trunk and config.freeze_epochs:
        yield "freeze_trunk applies to the whole run, so freeze_epochs must not be given with it"
    ways = {"freeze_trunk": config.freeze_trunk, "last_stage": config.last_stage, "lora": config.lora is not None}
    chosen = _those_set(ways)
    if len(chosen) > 1:
        yield f"{' and '.join(chosen)} both set which weights are trained; give only one of them"
    if config.lora_alpha is not None and config.lora is None:
        yield "lora_alpha is the scale of adapters, so lora, their rank, must be given with it"


def _without_validation(config: TrainConfig) -> Iterator[str]:
    """Yield lines on settings that need validation classes, which a final model and the papers have not."""
    if config.final is None:
        if config.interpolation is not None:
            yield "interpolation belongs to a final model, and train_final sets it; leave it out"
    else:
        if config.patience is not None:
            yield "patience needs validation classes, which a final model does not have; leave it out"
        if config.metric == "auto":
            yield 'metric="auto" needs validation classes, which a final model lacks; use "none" or "whitening"'
    if config.protocol == "paper":
        needs_validation = {
            "validation": config.validation != 0,
            "patience": config.patience is not None,
            "metric": config.metric == "auto",
        }
        for name in _those_set(needs_validation):
            detail = "trains on all training classes and keeps the last checkpoint"
            yield f'protocol="paper" {detail}, so {name} must not request validation classes'


def _divided_batches(config: TrainConfig) -> Iterator[str]:
    """Yield lines on batches that have to remain whole, or on chunks that are larger than them."""
    if config.chunk is not None and config.chunk > config.batch_size:
        yield f"chunk: {config.chunk} items at a time are more than a batch of {config.batch_size}"
    if config.episodes == "none":
        return
    if config.chunk is not None:
        yield "episodes need the whole batch, so chunk must not be given with them"
    class_proxies = {"shard_classes": config.shard_classes, "sample_classes": config.sample_classes is not None}
    for name in _those_set(class_proxies):
        yield f"episodes compare items with each other, so {name} must not be given with them"


def _wrong_with_text_trunk(config: TrainConfig) -> Iterator[str]:
    """Yield lines on settings for classes or for a single tower."""
    if config.text_trunk is None:
        if config.lr_text is not None:
            yield "lr_text is the learning rate of the text trunk, so text_trunk must be given with it"
        return
    class_proxies = {"shard_classes": config.shard_classes, "sample_classes": config.sample_classes is not None}
    for name in _those_set(class_proxies):
        yield f"{name} works only with class proxies, so it must not be given with text_trunk"
    single_tower = {
        "episodes": config.episodes != "none",
        "symmetries": config.symmetries != "none",
        "standardize": config.standardize,
        "metric": config.metric != "none",
        "embedding_start": config.embedding_start != "random",
        "last_stage": config.last_stage,
        "lora": config.lora is not None,
    }
    for name in _those_set(single_tower):
        yield f"{name} works only with a single tower, so it must not be given with text_trunk"


def _those_set(settings: Mapping[str, bool]) -> list[str]:
    """Return the names of the settings that are set."""
    return [name for name, is_set in settings.items() if is_set]


def _of_timm_folder(fields: dict[str, Any]) -> dict[str, Any]:
    """Return settings whose trunk is named with its file of weights, if it is a folder of timm: a run needs it once."""
    trunk = fields.get("trunk")
    if not isinstance(trunk, str) or not trunk.startswith("timm:"):
        return fields
    try:
        found = trunk_of_folder(trunk)
    except ValueError as error:
        raise TrainError(f"config: {error}") from error
    if found is None:
        return fields
    own = fields.get("pretrained")
    if isinstance(own, str | os.PathLike) and os.path.isfile(os.path.join(own, "adapter_config.json")):
        raise TrainError(f"config: pretrained: {own} is an adapter of peft, which {trunk} takes only merged into it")
    return {**fields, "trunk": found[0], "pretrained": own if isinstance(own, str) else found[1]}


def settings_with(mark: Meta) -> tuple[str, ...]:
    """Return the names of the settings that have a mark."""
    hints = get_type_hints(TrainConfig, include_extras=True)
    return tuple(name for name in TrainConfig.settings() if mark in getattr(hints[name], "__metadata__", ()))


NAMING_CODE = settings_with(CODE)
WITHOUT_EFFECT = settings_with(NO_EFFECT)


def is_model_folder(trunk: str) -> bool:
    """Return whether a trunk is the folder of a model of transformers, which is loaded with its weights."""
    kind, _, name = trunk.partition("(")[0].strip().partition(":")
    return kind == "transformers" and os.path.isdir(name)


def plain_value(name: str, value: Any) -> Any:
    """Return the value of a setting as plain data, which JSON can store: without paths and numbers of NumPy.

    Raises
    ------
    TrainError
        If it is anything else; the message begins with the name of the setting.
    """
    if isinstance(value, TextOfFile):
        return str(value)
    return msgspec.to_builtins(value, enc_hook=partial(_plain, name))


def _origin_of(texts: Mapping[str, Any]) -> Origin | None:
    """Return the file that some of the texts are from, or None. The others were typed, so it may name their modules."""
    origins = [text.origin for text in texts.values() if isinstance(text, TextOfFile)]
    if not origins:
        return None
    typed = [text for text in texts.values() if text is not None and not isinstance(text, TextOfFile)]
    trusted = [module for text in typed for module in modules_in(str(text))]
    return origins[0]._replace(trusted=(*origins[0].trusted, *trusted))


def _plain(name: str, value: Any) -> Any:
    """Convert a path, or a number or truth value of NumPy."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    raise TrainError(f"config: {name}: expected numbers, lists or text ('TripletLoss()'), got {type(value).__name__}")


def _message_of(error: msgspec.ValidationError, fields: dict[str, Any]) -> str:
    """Return an error that begins with the name of the setting: "epochs: Expected `int` >= 1, got 0"."""
    text, _, where = str(error).partition(" - at `$.")
    name = where.rstrip("`").split("[")[0]
    if name not in fields:
        return shorten(text, PATH)
    expected = text.partition(", got `")[0].replace("`array`", "a list in brackets")  # the value shows its type
    if expected.startswith("Invalid enum value"):
        expected = f"Expected one of {', '.join(_words_of(get_type_hints(TrainConfig)[name]))}"
        if name == "device":
            expected += " (auto takes a GPU if there is one; CUDA_VISIBLE_DEVICES chooses among several)"
    return f"{name}: {expected}, got {quoted(fields[name])}"


def _words_of(kind: Any) -> list[str]:
    """Return the words that a type allows: those of a Literal, also of one in a union."""
    words = []
    for part in get_args(kind):
        if isinstance(part, str):
            words.append(part)
        else:
            words.extend(_words_of(part))
    return words
