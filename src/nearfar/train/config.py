"""Everything that decides a training run, in one strict record that is read from and written to JSON."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection
from difflib import get_close_matches
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from ..deep.networks.preprocessing import Preprocessing
from ..expressions import modules_in
from ..io.untrusted import read_json
from ..quoting import PATH, in_brief, quoted
from ..trust import Origin, modules_of, refuse_untrusted

AtLeastOne = Annotated[int, Meta(ge=1, le=2**31 - 1)]  # a product of two, such as epochs and batches, has 64 bits
Side = Annotated[int, Meta(ge=1, le=8192)]  # pixels; more is a typing error that would fill the memory
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Factor = Annotated[float, Meta(gt=0, le=1)]

FREE = ("workers", "tensorboard")  # they do not change the result, and may differ when a run is resumed
CODE = ("objective", "trunk", "text_trunk", "sampler")  # texts that may name modules of a user's own
LATER = (
    "final",
    "split",
    "patience",
    "ema",
    "freeze_epochs",
    "network_weights",
    "label",
    "standardize",
    "metric",
    "pretrained",
    "preprocessing",
    "layer_decay",
    "last_stage",
    "lora",
    "lora_alpha",
    "gradient_checkpointing",
    "embedding_start",
    "chunk",
    "protocol",
    "squash",
    "partial",
    "rmsprop_decay",
    "text_trunk",
    "lr_text",
)
"""Settings that came later, and are in digests only where they are given."""
UNSAID = ("none", "random", "classes", "honest")


class TrainError(ValueError):
    """A run cannot be started, resumed or read; the message is one line."""


class TrainConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, eq=False):
    """Settings of a run. Create them with `TrainConfig.of`, which checks every value.

    Where items are photographs and the trunk starts from weights of another library, settings that are not given are
    those of the recipe `photos/finetune`, with adapters `photos/lora`, with a frozen trunk `photos/frozen`.

    Attributes
    ----------
    protocol : {"honest", "paper"}
        "honest" chooses the checkpoint by training classes that are held out. "paper" learns from all training classes
        and keeps the last checkpoint, as the founding papers do; what its length or its settings were chosen by is
        then their affair.
    data, test, test_classes, validation, split, label, skip_bad, partial
        What `nearfar.data.open_task` takes. No classes are held out for validation in the protocol of the papers.
    image_size : int, optional
        Side in pixels of the square images that the network sees in evaluation (center crop). By default, images that
        differ in size become 84 wide for conv4, mlp and spd, as large as timm or the image processor says for their
        models, and 224 (from 256) for other trunks; those models are given images of one size as they are, unless they
        take no other. If only test images differ, they get the size of the training images; images below 16, too small
        for conv4, become 28 wide.
    resize : int, optional
        Side to which images are scaled before that crop, `image_size` by default; training keeps it, for random crops.
    squash : bool
        Resize both sides of an image to `resize`, whatever its aspect ratio, instead of the shorter one.
    standardize : bool
        Bring every column of rows to mean 0 and deviation 1, as it is in training, before the network.
    symmetries : {"none", "rotations", "all"}
        Add the training classes turned by 90, 180 and 270 degrees, and with "all" also mirrored, as further classes;
        for characters and signs, where a turned class is another one.
    augment : str
        Random changes of training images, such as "affine(degrees=15), erasing"; empty for none.
    objective : str
        For example "TripletLoss(margin=0.2) + 0.3*EnergyConfusion()".
    trunk : str
        As in `make_trunk`; "auto" takes mlp for rows and conv4 for images, but for photographs a model of timm whose
        pretrained weights are in the local cache.
    text_trunk : str, optional
        A second tower, "transformers:FOLDER" of a text model with its tokenizer, or of a model of images and texts:
        items are then images with their texts, a table with the columns `path` and `text`, and both are embedded into
        one space. The objective compares images with texts and texts with images; by default it is the loss of CLIP.
    pretrained : bool or str
        Weights of the trunk to start from: true takes those that timm or transformers has under its name, from the
        local cache or the hub; a text is a local file, a .safetensors or .pth state dict.
    trunk_weights : str, optional
        The older name of `pretrained` with a file.
    preprocessing : Preprocessing, optional
        How images reach a trunk that was made elsewhere: mean, standard deviation, size, interpolation and pooling. By
        default what timm's data config, the image processor or the factory says, with what the options of `trunk` say
        instead; the trunks of this library take pixels in [0, 1] and have none.
    network_weights : str, optional
        Checkpoint of a run, whose trunk and embedding layer to start from.
    embedding_dim : int
        Length of an embedding.
    dropout : float
        Share of the features that are dropped before the embedding layer.
    freeze_bn : bool or "statistics", optional
        Keep statistics and scales of the batch normalizations of the trunk as they are; "statistics" keeps these alone,
        and trains the scales and shifts. By default both where the trunk
        starts from weights of another library or of a file, or has adapters: small batches of other images would
        replace the statistics by worse ones.
    freeze_trunk : bool
        Train the embedding layer only. The features of a frozen trunk are computed once and kept on disk.
    last_stage : bool
        Train only the last layers of the trunk, as few as hold half of its weights, and the embedding layer.
    lora : int, optional
        Train low-rank adapters of this rank instead of the weights of the trunk (Hu et al., 2022), in its linear
        layers and pointwise convolutions. The best checkpoint has them added in; `adapter/` of the run holds them
        alone, for peft.
    lora_alpha : float, optional
        What adapters are multiplied by, times the rank; twice the rank by default.
    freeze_epochs : int, optional
        First epochs that train only the embedding layer and the objective's own parameters, whose random start would
        spoil a trunk that is trained already.
    embedding_start : {"random", "whitening"}
        Start the embedding layer from a `DiscriminantWhitening` of the trunk's features of training items, and its
        first principal components where it is narrower: a head first, in closed form.
    layer_decay : float, optional
        Multiply the learning rate by this for every layer of the trunk that lies before the last, counted in stages of
        convolutional networks and blocks of transformers: early features are general, and should change less.
    gradient_checkpointing : bool
        Compute activations of a trunk of timm or transformers again on the way back: less memory, a third more time.
    sampler : str
        "auto", "random", "m_per_class:M", "class_ratio:R" or "package.module:Name(option=value)"; "auto" is m_per_class
        with 4 of a class, or more where there are too few classes for that.
    episodes : {"none", "maml", "fomaml", "sequential"}
        Take every batch as an episode, as `nearfar.EpisodicTrainer` does: the weights take steps on the support, and
        the objective is computed on the queries.
    shots, inner_steps : int
        Items of a class in the support, at least 2 for most losses; steps on the support.
    inner_lr : float
        Learning rate of those steps.
    batch_size : int
        Items of a batch, over all processes together.
    chunk : int, optional
        Items that pass the network at a time, in each process. The gradient is that of the whole batch, and the
        network runs twice: see `nearfar.deep.backward_in_chunks`. None takes all at once.
    epochs : int
        Passes of the sampler.
    steps : int, optional
        Train this many batches; `epochs` is then ignored and becomes as many as these take.
    seed : int
        Random seed for the weights, batches, augmentation and the split of the data.
    optimizer : {"adam", "adamw", "sgd", "rmsprop"}
        By default, eps and momentum are the optimizer's own (momentum of sgd: 0.9).
    rmsprop_decay : float, optional
        Share of the old mean of squared gradients that rmsprop keeps in a step: 0.99 by default, TensorFlow's is 0.9.
    lr, lr_embedding, lr_proxies : float
        Learning rates of the trunk, of the embedding layer and of the objective's parameters; the first by default.
    lr_text : float, optional
        Learning rate of the text trunk, 1e-5 by default.
    weight_decay : float
        Weight decay of all of these parameters.
    warmup : float
        Epochs during which the rates rise linearly from near 0.
    schedule : {"constant", "cosine", "step"}
        "cosine" falls to 0 at the end; "step" multiplies by `lr_gamma` every `lr_step` epochs.
    clip : float, optional
        Largest norm of the gradient.
    ema : float, optional
        Decay of running averages of the weights, such as 0.999; they are what is evaluated and kept as the best
        checkpoint. The last checkpoint holds the weights themselves.
    precision : {"no", "bf16", "fp16"}
        Precision of the network; objectives are always computed in float32.
    device : {"auto", "cpu"}
        "auto" takes an accelerator where there is one.
    workers : int, optional
        Processes that decode images; 0 decodes in the one that trains. Not given, as many as the machine has to spare
        for sets that are not in memory. Any number gives the same result.
    eval_every : int
        Epochs between evaluations.
    select : {"recall_at_1", "map_at_r"}
        Score on the validation classes that chooses the best checkpoint; Recall@1 tells less where it is near 1.
    metric : {"none", "auto", "whitening"}
        Fit a `DiscriminantWhitening` to the embeddings of the training items after the training, and let the best
        checkpoint's embeddings pass it. "auto" keeps it only if it is better by MAP@R on the validation classes.
    patience : int, optional
        Stop after this many evaluations in a row without a better validation score.
    ks : tuple of int
        The K of Recall@K.
    checkpoint_every : int
        Batches between checkpoints inside an epoch; 0 writes one at the end of every epoch only.
    log_every : int
        Batches between lines of the log.
    tensorboard : bool
        Also write TensorBoard events into the run folder.
    final : str, optional
        Folder of the evaluated run whose settings and length these are, as `train_final` makes them: train on all
        classes of the data, those of the validation and of the test too.
    """

    data: str
    protocol: Literal["honest", "paper"] = "honest"
    test: str | None = None
    test_classes: tuple[str, ...] = ()
    validation: Share = 0.15
    split: Literal["classes", "rows"] = "classes"
    label: str | None = None
    partial: bool = False
    image_size: Side | None = None
    resize: Side | None = None
    squash: bool = False
    skip_bad: bool = False
    standardize: bool = False
    symmetries: Literal["none", "rotations", "all"] = "none"
    augment: str = ""
    objective: str = "TripletLoss()"
    trunk: str = "auto"
    text_trunk: str | None = None
    pretrained: bool | str = False
    trunk_weights: str | None = None
    preprocessing: Preprocessing | None = None
    network_weights: str | None = None
    embedding_dim: AtLeastOne = 64
    dropout: Share = 0.0
    freeze_bn: bool | Literal["statistics"] | None = None
    freeze_trunk: bool = False
    freeze_epochs: AtLeastOne | None = None
    last_stage: bool = False
    lora: AtLeastOne | None = None
    lora_alpha: Positive | None = None
    embedding_start: Literal["random", "whitening"] = "random"
    layer_decay: Factor | None = None
    gradient_checkpointing: bool = False
    sampler: str = "auto"
    episodes: Literal["none", "maml", "fomaml", "sequential"] = "none"
    shots: AtLeastOne = 2
    inner_steps: AtLeastOne = 1
    inner_lr: NotNegative = 0.01
    batch_size: AtLeastOne = 128
    chunk: AtLeastOne | None = None
    epochs: AtLeastOne = 20
    steps: AtLeastOne | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    optimizer: Literal["adam", "adamw", "sgd", "rmsprop"] = "adam"
    lr: NotNegative = 1e-3
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
    precision: Literal["no", "bf16", "fp16"] = "no"
    device: Literal["auto", "cpu"] = "auto"
    workers: Annotated[int, Meta(ge=0)] | None = None
    eval_every: AtLeastOne = 1
    select: Literal["recall_at_1", "map_at_r"] = "map_at_r"
    metric: Literal["none", "auto", "whitening"] = "none"
    patience: AtLeastOne | None = None
    ks: tuple[AtLeastOne, ...] = (1, 2, 4, 8)
    checkpoint_every: Annotated[int, Meta(ge=0)] = 0
    log_every: AtLeastOne = 10
    tensorboard: bool = False
    final: str | None = None
    origin: Origin | None = None  # no setting: the file that these were read from, and what its texts may name
    given: tuple[str, ...] = ()  # no setting: the names of those that were given, and not left to their default

    @classmethod
    def of(cls, **fields: Any) -> TrainConfig:
        """Build a config from keywords, and check them.

        Raises
        ------
        TrainError
            For an unknown field (the nearest is suggested) or a wrong value.

        Examples
        --------
        >>> TrainConfig.of(data="digits", epochs=3).epochs
        3
        """
        for name in fields.keys() - set(cls.settings()):
            hint = "".join(f"; did you mean {near}?" for near in get_close_matches(name, cls.settings(), n=1))
            raise TrainError(f"config: no field is called {quoted(name)}{hint}")
        if fields.get("protocol") == "paper":
            fields.setdefault("validation", 0.0)
        try:
            plain = {name: msgspec.to_builtins(value, enc_hook=partial(_plain, name)) for name, value in fields.items()}
            config = msgspec.convert(plain, cls)
        except msgspec.ValidationError as error:
            raise TrainError(f"config: {_readable(error, fields)}") from error
        config._check()
        config._check_final()
        config._check_protocol()
        config._check_chunk()
        config._check_text_trunk()
        return msgspec.structs.replace(config, given=tuple(sorted(fields)))

    def _check_protocol(self) -> None:
        """Refuse what looks at validation classes in the protocol of the papers, which has none."""
        if self.protocol == "honest":
            return
        looking = {
            "validation": self.validation > 0,
            "patience": self.patience is not None,
            "metric": self.metric == "auto",
        }
        for name, given in looking.items():
            if given:
                told = "learns from all training classes and keeps the last checkpoint"
                raise TrainError(f'config: protocol="paper" {told}, so {name} must not ask for validation classes')

    def _check_final(self) -> None:
        if self.final is not None and self.patience is not None:
            raise TrainError("config: a final model has no validation classes, so patience must not be given with it")
        if self.final is not None and self.metric == "auto":
            raise TrainError(
                'config: a final model has no validation classes to choose by, so metric must not be "auto"'
            )

    def _check(self) -> None:
        for name, value in self.to_dict().items():
            if value == float("inf"):
                raise TrainError(f"config: {name}: Expected a finite number, got {value}")
        if 1 not in self.ks:
            raise TrainError(f"config: ks must hold 1, got {list(self.ks)}")
        if self.trunk_weights and self.pretrained:
            raise TrainError("config: trunk_weights is the older name of pretrained; give one of them")
        if (self.trunk_weights or self.pretrained) and self.network_weights:
            name = "trunk_weights" if self.trunk_weights else "pretrained"
            raise TrainError(f"config: network_weights hold a trunk, so {name} must not be given with them")
        if self.freeze_trunk and self.augment:
            raise TrainError("config: a frozen trunk sees every image once, so augment must be empty with it")
        if (self.freeze_trunk or self.freeze_epochs) and self.episodes != "none":
            name = "freeze_trunk" if self.freeze_trunk else "freeze_epochs"
            raise TrainError(f"config: episodes step on all weights, so {name} must not be given with them")
        if self.freeze_trunk and self.freeze_epochs:
            raise TrainError("config: freeze_trunk is for the whole run, so freeze_epochs must not be given with it")
        self._check_tuning()
        if self.resize is not None and (self.image_size is None or self.image_size > self.resize):
            raise TrainError(f"config: resize needs an image_size of at most {self.resize}, got {self.image_size}")

    def _check_tuning(self) -> None:
        """Refuse two answers to the question which weights of the trunk are trained."""
        ways = {"freeze_trunk": self.freeze_trunk, "last_stage": self.last_stage, "lora": self.lora is not None}
        given = [name for name, chosen in ways.items() if chosen]
        if len(given) > 1:
            raise TrainError(f"config: {' and '.join(given)} say both which weights are trained; give one of them")
        if given and given != ["freeze_trunk"] and self.episodes != "none":
            raise TrainError(f"config: episodes step on all weights, so {given[0]} must not be given with them")
        if self.lora_alpha is not None and self.lora is None:
            raise TrainError("config: lora_alpha scales adapters, so lora, their rank, must be given with it")
        if self.embedding_start != "random" and self.network_weights is not None:
            raise TrainError("config: network_weights hold an embedding layer, so embedding_start must not be given")

    def _check_chunk(self) -> None:
        if self.chunk is not None and self.chunk > self.batch_size:
            raise TrainError(f"config: chunk: {self.chunk} items at a time are more than a batch of {self.batch_size}")
        if self.chunk is not None and self.episodes != "none":
            raise TrainError("config: episodes need their whole batch, so chunk must not be given with them")

    def _check_text_trunk(self) -> None:
        """Refuse what is of classes or of one tower beside a second one."""
        if self.text_trunk is None:
            if self.lr_text is not None:
                raise TrainError("config: lr_text is for the text trunk, so text_trunk must be given with it")
            return
        ways = {
            "episodes": self.episodes != "none",
            "symmetries": self.symmetries != "none",
            "standardize": self.standardize,
            "metric": self.metric != "none",
            'embedding_start="whitening"': self.embedding_start == "whitening",
            "last_stage": self.last_stage,
            "lora": self.lora is not None,
        }
        for name, given in ways.items():
            if given:
                raise TrainError(f"config: {name} is for one tower, and must not be given with text_trunk")

    def __eq__(self, other: object) -> bool:
        """Whether all settings are the same, wherever they come from."""
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
        """Return the config with some fields changed, checked again; changed texts may name any module."""
        if "trunk" in changes and changes["trunk"] != self.trunk:
            changes.setdefault("preprocessing", None)  # that of another trunk
        if changes.get("protocol") == "paper":
            changes.setdefault("validation", 0.0)
        changed = TrainConfig.of(**{**self.to_dict(), **changes})
        changed = msgspec.structs.replace(changed, given=tuple(sorted({*self.given, *changes})))
        if self.origin is None:
            return changed
        typed = [module for name in CODE if name in changes for module in modules_in(str(changes[name]))]
        return changed._from(self.origin._replace(trusted=(*self.origin.trusted, *typed)))

    def _from(self, origin: Origin) -> TrainConfig:
        return msgspec.structs.replace(self, origin=origin)

    @property
    def weights_file(self) -> str | None:
        """The local file of weights that the trunk starts from."""
        return self.pretrained if isinstance(self.pretrained, str) else self.trunk_weights

    @property
    def starts_pretrained(self) -> bool:
        """Whether the trunk starts from weights that were trained elsewhere."""
        from_run = self.network_weights is not None and ":" in self.trunk
        return bool(self.pretrained or self.trunk_weights or from_run)

    @property
    def adapter_scale(self) -> float:
        """What the product of an adapter is multiplied by."""
        assert self.lora is not None
        return (2 * self.lora if self.lora_alpha is None else self.lora_alpha) / self.lora

    def without_weights(self) -> TrainConfig:
        """Return the config of the same network, with no weights to start from."""
        return self.replace(pretrained=False, trunk_weights=None, network_weights=None)

    def modules(self) -> tuple[str, ...]:
        """Return the modules of a user's own that the texts may name: trusted ones, or of typed texts all."""
        if self.origin is not None:
            return self.origin.trusted
        return tuple(module for name in CODE for module in modules_in(getattr(self, name) or ""))

    def refuse_untrusted(self) -> None:
        """Raise a TrustError where a text that was read from a file names a module that is not trusted."""
        for name in CODE:
            for module in modules_in(getattr(self, name) or ""):
                refuse_untrusted(module, f"{module} in its {name}", self.origin)

    def to_dict(self) -> dict[str, Any]:
        fields = dict(msgspec.to_builtins(self))
        del fields["origin"]
        del fields["given"]
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
            Modules of a user's own that its objective, trunk and sampler may name: their code then runs where these
            are built. The file may name others, but what they stand for cannot be built.

        Raises
        ------
        TrainError
            If the file is missing, holds no JSON object, or has a wrong field.
        """
        try:
            fields = read_json(path)
        except FileNotFoundError as error:
            folder = Path(path).parent
            if folder.is_dir():
                why = f"holds no run (no {Path(path).name})"
            else:
                why = "no such run"
            raise TrainError(f"{folder}: {why}") from error
        except (OSError, ValueError) as error:
            raise TrainError(f"{path}: not readable as a config ({error})") from error
        if not isinstance(fields, dict):
            raise TrainError(f"{path}: expected a JSON object with the fields of a config")
        config = msgspec.structs.replace(cls.of(**fields), given=cls.settings())  # it had all of them
        return config._from(Origin(os.fspath(path), modules_of(trust)))

    @property
    def digest(self) -> str:
        """Return sixteen hexadecimal digits that identify the settings that change the result."""
        values = {key: getattr(self, key) for key in LATER}
        later = {key for key, value in values.items() if value is None or value is False or value in UNSAID}
        fields = {key: value for key, value in self.to_dict().items() if key not in later.union(FREE)}
        fields["freeze_bn"] = self.freeze_bn or False  # what it was before it could be left open
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]

    def differences(self, other: TrainConfig) -> list[str]:
        """List the fields that change the result and differ, as "name: own / other's"."""
        own = self.to_dict()
        others = other.to_dict()
        return [
            f"{key}: {quoted(own[key])} / {quoted(others[key])}"
            for key in own
            if key not in FREE and own[key] != others[key]
        ]

    def refused(self, given: TrainConfig) -> list[str]:
        """List what keeps a run from being resumed with other settings: all differences except a later end.

        More epochs or another patience do not change the steps so far, unless the schedule depends on the end. A run
        that met an image that cannot be decoded may go on without such images.
        """
        run = self.replace(patience=given.patience, skip_bad=self.skip_bad or given.skip_bad)
        if given.epochs == run.epochs:
            return run.differences(given)
        why = ""
        if given.schedule == "cosine":
            why = " (a cosine schedule falls to 0 at the end: its rates would have been others)"
        elif run.steps or given.steps:
            why = " (a run of `steps` batches ends inside an epoch, which does not go on)"
        elif given.epochs < run.epochs:
            why = " (a run can become longer, not shorter)"
        end = [f"epochs: {run.epochs} / {given.epochs}{why}"] if why else []
        return run.differences(given.replace(epochs=run.epochs)) + end


def _plain(name: str, value: Any) -> Any:
    """Turn paths and NumPy numbers into what JSON has."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    raise TrainError(f"config: {name}: expected numbers, lists or text ('TripletLoss()'), got {type(value).__name__}")


def _readable(error: msgspec.ValidationError, fields: dict[str, Any]) -> str:
    """Name the field first: "epochs: Expected `int` >= 1, got 0"."""
    text, _, where = str(error).partition(" - at `$.")
    name = where.rstrip("`").split("[")[0]
    if name not in fields:
        return in_brief(text, PATH)
    expected = text.partition(", got `")[0].replace("`array`", "a list in brackets")  # the value shows its type
    if expected.startswith("Invalid enum value"):
        expected = f"Expected one of {', '.join(get_args(get_type_hints(TrainConfig)[name]))}"
    return f"{name}: {expected}, got {quoted(fields[name])}"
