"""Trunks by name. Weights come from local files, or from a hub if pretrained weights are requested by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from inspect import Parameter, signature
from math import prod
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...expressions import Call, ExpressionError, parse, settings_of, shown
from ...trust import OwnCodeError, import_own, is_defined_in, is_ones_own
from . import timm_trunk, transformers_trunk
from .bn_inception import BNInception
from .conv4 import Conv4
from .ge2e import GE2E
from .googlenet import GoogLeNet
from .hubs import Start
from .identity import Identity
from .mel_cnn import MelCNN
from .mlp import MLP
from .peft_folder import add_adapter_of, is_adapter
from .preprocessing import OVERRIDES, Preprocessing, of_factory
from .resnet50 import ResNet50
from .sound_trunk import LogMel
from .spd_trunk import SPDTrunk
from .text_settings import OPTIONS
from .timm_trunk import TimmTrunk
from .transformers_trunk import POOLERS, TransformersTrunk, own_pool
from .weights import Provenance, Trunk, TrunkError, load_weights, read_header

Shape = tuple[int, ...]
KINDS = ("timm:NAME", "transformers:NAME_OR_FOLDER", "package.module:factory")
TIMM_FAMILIES = (
    "convnext",
    "deit",
    "densenet",
    "efficientnet",
    "mobilenet",
    "regnet",
    "resnet",
    "resnext",
    "vgg",
    "vit",
)
"""Beginnings of the names of models of timm, which are suggested where it is not installed, too."""
EXPECTED = "a trunk: a name with options such as conv4(width=32)"
HUB_PAGE = re.compile(r"(?:(?:hf|hf-hub|hf_hub|huggingface):)?([A-Za-z0-9][\w.-]*)/([\w.-]+)")
"""Matches a name on the Hugging Face hub, as other libraries write it."""
OWN = "a class of modules, or a function that is written in this module or its package; trust= if it is installed"


def make_trunk(
    text: str,
    shape: Shape,
    *,
    weights: str | Path | None = None,
    pretrained: bool = False,
    preprocessing: Preprocessing | None = None,
    architecture: Mapping[str, Any] | None = None,
) -> Trunk:
    """Build a trunk from its name.

    Parameters
    ----------
    text : str
        ``conv4``, ``mlp``, ``identity``, ``bn_inception``, ``googlenet``, ``resnet50``, ``spd``; for sounds
        ``mel_cnn``, ``ge2e``, ``log_mel``; ``timm:NAME``, ``transformers:NAME_OR_FOLDER`` or
        ``package.module:factory``; with options in parentheses: ``conv4(width=32)``. A factory is called with the shape
        of an item and the options, and returns a module that maps items to features.
    shape : tuple of int
        Shape of one item: (C, H, W) for images, (d,) for rows, (samples,) for sounds.
    weights : str or Path, optional
        Local `.safetensors` or `.pth` state dict, or `.caffemodel` file; or the folder of an adapter of peft, which is
        added to the weights that timm or transformers has. By default, the weights are random unless `pretrained` is
        True.
    pretrained : bool
        Whether to use the weights that timm or transformers has under this name, from its cache or its hub.
    preprocessing : Preprocessing, optional
        How images are prepared, as returned by `find_preprocessing`. It determines the number of channels of the trunk
        and the pooling of the features. The trunk itself does not normalize images; `Normalize` does, as `scale` of an
        `Embedder`. By default, models of transformers average all tokens, like those of runs without such a record.
    architecture : mapping, optional
        Settings of a model of transformers, as stored in a checkpoint; its folder is then not needed.

    Returns
    -------
    Module
        Trunk, whose attribute `num_features` is the number of features, and `provenance` the origin of the weights.

    Raises
    ------
    TrunkError
        If the name is unknown (the nearest is suggested), a package is not installed, weights do not fit or are not
        available, or items are too small for the trunk.

    Examples
    --------
    >>> make_trunk("conv4(width=32)", (1, 28, 28)).num_features
    32
    """
    name, options = parse_trunk(text)
    if preprocessing is not None and len(shape) == 3:
        shape = (preprocessing.channels, *shape[1:])
    adapted = weights is not None and is_adapter(weights)
    try:
        hub = _hub(name)
        if adapted and hub is None:
            raise TrunkError(f"{weights}: an adapter needs a base with weights: timm:NAME or transformers:FOLDER")
        if hub is None:
            trunk, where = _of_this_library(name, shape, options, pretrained), Provenance()
        else:
            options = _without_overrides(hub, shape, options)
            start = Start(adapted or (pretrained and weights is None), preprocessing, architecture)
            trunk, where = HUBS[hub].build(name.partition(":")[2], shape, start, **options)
        if adapted:
            where = add_adapter_of(Path(str(weights)), _inner(trunk), where)
        elif weights is not None:
            where = load_weights(_inner(trunk), weights, name=text, optional=_optional(trunk))
        if isinstance(trunk, TransformersTrunk) and trunk.pool == "model":
            _settle_pool(trunk, shape, where, loaded=weights is not None and not adapted)
        if isinstance(trunk, TransformersTrunk):
            _hold_unused_pooler(trunk)
        if not hasattr(trunk, "num_features"):
            trunk = _probed(trunk, shape, text, preprocessing)
        complete = cast(Trunk, trunk)  # its two attributes are set here
        complete.provenance = where
        return complete
    except (TypeError, OverflowError, RuntimeError) as error:  # torch raises the last two for impossible layers
        raise TrunkError(f"trunk {shown(text)}: {error}") from error


def find_preprocessing(
    text: str, *, pretrained: bool = False, weights: str | Path | None = None
) -> Preprocessing | None:
    """Return how images are prepared for a trunk with its own preprocessing; None if it takes pixels in [0, 1].

    Models of timm and transformers have their own preprocessing. A factory of your own may have an attribute
    `preprocessing`. A .safetensors file of weights for a model of timm may state ``mean``, ``std`` and ``input_size``
    in its header, which take precedence. In the text, ``mean=``, ``std=``, ``interpolation=``, ``crop=`` and ``pool=``
    take precedence over both.

    Parameters
    ----------
    text : str
        Text of the trunk, as in `make_trunk`.
    pretrained : bool
        Whether files may be downloaded from a hub.
    weights : str or Path, optional
        File of the trunk's weights.

    Raises
    ------
    TrunkError
        If the normalization of images is not known, or an option is invalid.
    """
    name, options = parse_trunk(text)
    pretrained = pretrained or (weights is not None and is_adapter(weights))
    overrides = {option: options.pop(option) for option in OVERRIDES if option in options and _hub(name)}
    rest = name.partition(":")[2]
    try:
        if _hub(name) == "timm":
            record = timm_trunk.find_preprocessing(rest, options)
            if weights is not None:
                record = record.of_weights(read_header(Path(weights)), Path(weights).name, {**options, **overrides})
            return record.changed(overrides)
        if _hub(name) == "transformers":
            return transformers_trunk.find_preprocessing(rest, options, overrides, pretrained)
        settings = getattr(_factory(name), "preprocessing", None) if ":" in name else None
        return None if settings is None else of_factory(settings, name)
    except TrunkError:
        raise
    except ValueError as error:
        raise TrunkError(f"trunk {shown(text)}: {error}") from error


def _hub(name: str) -> str | None:
    """Return "timm" or "transformers" for the name of one of their models, otherwise None."""
    hub, colon, _ = name.partition(":")
    if colon and hub in HUBS:
        return hub
    return None


def _without_overrides(hub: str, shape: Shape, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a model without those for images; text models take rows of token numbers."""
    if hub == "transformers" and len(shape) == 1:
        return {name: value for name, value in options.items() if name not in OVERRIDES or name in OPTIONS}
    _channels(hub, shape)
    return {name: value for name, value in options.items() if name not in OVERRIDES}


def _of_this_library(name: str, shape: Shape, options: dict[str, Any], pretrained: bool) -> nn.Module:
    """Build a trunk of this library, or call a factory of the user."""
    trunk = _builder(name)(shape, **options)
    if not isinstance(trunk, nn.Module):
        raise TrunkError(f"trunk {shown(name)}: expected a module, got {trunk!r:.60}")
    if pretrained:
        detail = "only timm:NAME and transformers:NAME have pretrained weights by name; give a file of weights"
        raise TrunkError(f"trunk {shown(name)}: pretrained=true: {detail}")
    if len(shape) == 3 and not hasattr(trunk, "in_channels"):
        cast(Any, trunk).in_channels = shape[0]  # torch's annotations allow only tensors and modules as attributes
    return trunk


def _inner(trunk: nn.Module) -> nn.Module:
    """Return the module whose state dict has the names of public weights."""
    return trunk.inner if isinstance(trunk, TimmTrunk | TransformersTrunk) else trunk


def inner_place(trunk: nn.Module) -> str:
    """Return the prefix of the names of a trunk's weights that public weights do not have, such as ``inner.``."""
    inner = trunk.inner if isinstance(trunk, Probed) else _inner(trunk)
    place = next(place for place, module in trunk.named_modules() if module is inner)
    return f"{place}." if place else ""


def _optional(trunk: nn.Module) -> tuple[str, ...]:
    """Return the prefixes of names that a file of weights may lack: poolers are not always trained."""
    return POOLERS if isinstance(trunk, TransformersTrunk) else ()


def _settle_pool(trunk: TransformersTrunk, shape: Shape, where: Provenance, *, loaded: bool) -> None:
    """Decide how a model of transformers pools, once it is known which of its weights are trained."""
    untrained = where.missing if loaded else trunk.untrained
    with torch.no_grad():
        trunk.pool = own_pool(trunk.eval(), torch.zeros(1, *shape), untrained)
    trunk.train()


def _hold_unused_pooler(trunk: TransformersTrunk) -> None:
    """Freeze a pooler that is not used: with several processes, a weight without a gradient would block a step."""
    if trunk.pool == "pooler":
        return
    for name, parameter in trunk.inner.named_parameters():
        if name.startswith(POOLERS):
            parameter.requires_grad_(False)


def _probed(trunk: nn.Module, shape: Shape, text: str, record: Preprocessing | None) -> Probed:
    """Find the number of features with one pass; raise an error that names the size if images do not fit."""
    try:
        return Probed(trunk, shape)
    except (RuntimeError, AssertionError, ValueError) as error:
        if isinstance(error, TrunkError) or len(shape) != 3:
            raise
        reason = str(error).partition("\n")[0].rstrip(".")
        made_for = "" if record is None else f"; it was made for {record.image_size[0]} (image_size=)"
        detail = f"does not take images of {shape[1]} x {shape[2]} pixels ({reason:.150}){made_for}"
        raise TrunkError(f"trunk {shown(text)}: {detail}") from error


def parse_trunk(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``name(option=value, ...)``; values are literals.

    >>> parse_trunk("conv4(width=32)")
    ('conv4', {'width': 32})
    """
    try:
        call = parse(text, EXPECTED)
        if not isinstance(call, Call):
            raise ExpressionError(f"{shown(text)} is not {EXPECTED}")
        return call.name, settings_of(call, {}, hands_on=True)
    except ExpressionError as error:
        meant = _meant_hub(text)
        if meant is not None:
            raise TrunkError(f"trunk: {shown(text)} is not a trunk; models of {meant}") from error
        raise TrunkError(f"trunk: {error}; options are written name=value, with literal values") from error


def name_of_model(text: str) -> str | None:
    """Return the name of a model of timm or transformers, of its folder without the path; None for other trunks.

    >>> name_of_model("timm:vit_small(drop_rate=0.1)"), name_of_model("conv4")
    ('vit_small', None)
    """
    name = parse_trunk(text)[0]
    model = name.partition(":")[2]
    if _hub(name) is None:
        return None
    return Path(model).resolve().name if Path(model).is_dir() else model


def _meant_hub(text: str) -> str | None:
    """Return how models of a hub are written, if a text that is not a trunk probably means one; otherwise None."""
    if text.strip().rstrip(":") in HUBS:
        hub = text.strip().rstrip(":")
        return f"{hub} are written {hub}:NAME"
    page = HUB_PAGE.fullmatch(text.strip())
    if page is None:
        return None
    owner, name = page.groups()
    if owner == "timm":
        return f"timm are written timm:NAME, as in timm:{name}"
    return f"the Hugging Face hub are written transformers:NAME, as in transformers:{owner}/{name}"


def _builder(name: str) -> Callable[..., nn.Module]:
    if ":" in name:
        return _factory(name)
    if name not in NAMED:
        near = get_close_matches(name, NAMED, n=1)
        if timm_trunk.has_model(name) or name.startswith(TIMM_FAMILIES):
            hint = f"did you mean 'timm:{name}'?"
        elif near:
            hint = f"did you mean {near[0]!r}?"
        else:
            hint = f"expected {', '.join([*NAMED, *KINDS])}"
        raise TrunkError(f"unknown trunk {shown(name)}; {hint}")
    return NAMED[name]


def _factory(name: str) -> Callable[..., nn.Module]:
    """Import a function or a class of the user that builds a trunk, without calling it."""
    package, _, model = name.rpartition(":")
    if package.partition(".")[0] == "torchvision" and timm_trunk.has_model(model):
        raise TrunkError(f"trunk {name}: models of torchvision are not built by name; did you mean 'timm:{model}'?")
    try:
        factory = import_own(name, _makes_trunks, OWN, libraries=())  # libraries have usable classes of modules
    except OwnCodeError as error:
        raise TrunkError(f"trunk {error}") from error
    places = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)
    if not any(parameter.kind in places for parameter in signature(factory).parameters.values()):
        detail = "it must take the shape of an item, such as (3, 84, 84), as its first argument"
        raise TrunkError(f"trunk {name}: {detail}")
    builder: Callable[..., nn.Module] = factory
    return builder


def _makes_trunks(candidate: Any, module: str) -> bool:
    """Return whether an object is a class of torch modules, or a function of the user that is defined in `module`."""
    if isinstance(candidate, type):
        return issubclass(candidate, nn.Module)
    function = candidate.func if isinstance(candidate, partial) else candidate
    if isinstance(function, type):
        return issubclass(function, nn.Module)
    return isinstance(function, FunctionType) and is_defined_in(function, module) and is_ones_own(function)


def _conv4(shape: Shape, **options: Any) -> nn.Module:
    return Conv4(_channels("conv4", shape), **options)


def _mlp(shape: Shape, **options: Any) -> nn.Module:
    return MLP(prod(shape), **options)


def _identity(shape: Shape, **options: Any) -> nn.Module:
    return Identity(prod(shape), **options)


def _bn_inception(shape: Shape, **options: Any) -> nn.Module:
    _channels("bn_inception", shape)
    return BNInception(**options)


def _googlenet(shape: Shape, **options: Any) -> nn.Module:
    _channels("googlenet", shape)
    return GoogLeNet(**options)


def _resnet50(shape: Shape, **options: Any) -> nn.Module:
    _channels("resnet50", shape)
    return ResNet50(**options)


def _spd(shape: Shape, **options: Any) -> nn.Module:
    return SPDTrunk(_channels("spd", shape), **options)


def _log_mel(shape: Shape, **options: Any) -> nn.Module:
    return LogMel(_samples("log_mel", shape), **options)


def _mel_cnn(shape: Shape, **options: Any) -> nn.Module:
    return MelCNN(_samples("mel_cnn", shape), **options)


def _ge2e(shape: Shape, **options: Any) -> nn.Module:
    return GE2E(_samples("ge2e", shape), **options)


NAMED: dict[str, Callable[..., nn.Module]] = {
    "conv4": _conv4,
    "mlp": _mlp,
    "identity": _identity,
    "bn_inception": _bn_inception,
    "googlenet": _googlenet,
    "resnet50": _resnet50,
    "spd": _spd,
    "log_mel": _log_mel,
    "mel_cnn": _mel_cnn,
    "ge2e": _ge2e,
}
SOUND_TRUNKS = ("log_mel", "mel_cnn", "ge2e")
"""Trunks of this library that take sounds, and nothing else."""
HUBS: dict[str, Any] = {"timm": timm_trunk, "transformers": transformers_trunk}


class Probed(nn.Module):
    """A module without `num_features`, whose number of features is found in one pass.

    Outputs of shape (n, C, H, W) are averaged over space.
    """

    def __init__(self, module: nn.Module, shape: Shape) -> None:
        super().__init__()
        self.module = module
        if len(shape) == 3:
            self.in_channels = shape[0]
        with torch.no_grad():
            self.num_features = self.eval()(torch.zeros(2, *shape)).shape[1]
            self.convolutional = getattr(self.maps(torch.zeros(2, *shape)), "ndim", 0) == 4
        self.train()

    @property
    def inner(self) -> nn.Module:
        """The module whose state dict has the names of public weights."""
        return _inner(self.module)

    @property
    def prefix(self) -> int:
        """Number of tokens before those of the patches."""
        return int(getattr(self.module, "prefix", 0))

    def maps(self, images: Tensor) -> Tensor:
        """Return the last map (n, C, H, W) or the last tokens (n, T, C), or else what the module returns."""
        maps: Tensor = getattr(self.module, "maps", self.module)(images)
        return maps

    def forward(self, items: Tensor) -> Tensor:
        features = self.module(items)
        if not isinstance(features, Tensor) or features.ndim not in (2, 4):
            raise TrunkError(f"{type(self.inner).__name__}: a trunk must return an (n, D) or (n, C, H, W) tensor")
        return features.mean((2, 3)) if features.ndim == 4 else features


def _samples(name: str, shape: Shape) -> int:
    """Return the number of samples of the sounds that a trunk takes."""
    if len(shape) != 1:
        raise TrunkError(f"{name} takes sounds, got images; use conv4")
    return shape[0]


def _channels(name: str, shape: Shape) -> int:
    if len(shape) != 3:
        raise TrunkError(f"{name} takes images, got rows of {shape[0]} numbers; use mlp or identity")
    return shape[0]
