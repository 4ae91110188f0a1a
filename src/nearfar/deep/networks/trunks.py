"""Trunks by name, with weights from local files. Nothing is ever downloaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from inspect import Parameter, signature
from math import prod
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from ...expressions import Call, ExpressionError, parse, settings_of, shown
from ...trust import LIBRARIES, OwnCodeError, at_home, take_own
from .weights import TrunkError, load_weights, pickles_are_safe

Shape = tuple[int, ...]
KINDS = ("timm:NAME", "transformers:NAME_OR_FOLDER", "package.module:factory")
EXPECTED = "a trunk: a name with options such as conv4(width=32)"
OWN = "a function or a class of modules, written in this module or its package"
RUN_CODE = ("trust_remote_code", "auto_map", "code_revision", "checkpoint_path", "use_safetensors", "use_kernels")
"""Options that make models of other packages run or unpickle the content of a file."""


def make_trunk(text: str, shape: Shape, *, weights: str | Path | None = None) -> nn.Module:
    """Build a trunk.

    Parameters
    ----------
    text : str
        ``conv4``, ``mlp``, ``identity``, ``bn_inception``, ``spd``, ``timm:NAME``, ``transformers:NAME_OR_FOLDER`` or
        ``package.module:factory``, with options in brackets: ``conv4(width=32)``. A factory is called with the shape
        of an item and the options, and returns a module from items to features.
    shape : tuple of int
        Shape of one item: (C, H, W) for images, (d,) for rows.
    weights : str or Path, optional
        A local `.safetensors` or `.pth` state dict.

    Returns
    -------
    Module
        Its `num_features` is the width of the features.

    Raises
    ------
    TrunkError
        For an unknown name (the nearest is suggested), a package that is not installed, or weights that do not fit.

    Examples
    --------
    >>> make_trunk("conv4(width=32)", (1, 28, 28)).num_features
    32
    """
    name, options = parse_trunk(text)
    build = _builder(name)
    try:
        trunk = build(shape, **options)
        if not isinstance(trunk, nn.Module):
            raise TrunkError(f"trunk {shown(text)}: expected a module, got {trunk!r:.60}")
        if len(shape) == 3 and not hasattr(trunk, "in_channels"):
            trunk.in_channels = shape[0]
        if weights is not None:
            load_weights(trunk.inner if isinstance(trunk, Probed) else trunk, weights)
        return trunk if hasattr(trunk, "num_features") else Probed(trunk, shape)
    except (TypeError, OverflowError, RuntimeError) as error:  # the last two are torch's, for layers it cannot build
        raise TrunkError(f"trunk {shown(text)}: {error}") from error


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
        raise TrunkError(f"trunk: {error}; options are written name=value, with literal values") from error


def _builder(name: str) -> Callable[..., nn.Module]:
    hub, colon, rest = name.partition(":")
    if hub in HUBS and colon:
        return lambda shape, **options: HUBS[hub](rest, shape, **options)
    if colon:
        return _factory(name)
    if name not in NAMED:
        near = get_close_matches(name, NAMED, n=1)
        if near:
            hint = f"did you mean {near[0]!r}?"
        else:
            hint = f"expected {', '.join([*NAMED, *KINDS])}"
        raise TrunkError(f"unknown trunk {shown(name)}; {hint}")
    return NAMED[name]


def _factory(name: str) -> Callable[..., nn.Module]:
    """Return a function or a class of a user's own that makes a trunk; it has not been called yet."""
    libraries = () if name.startswith("torch.") else LIBRARIES  # which has classes of modules
    try:
        found = take_own(name, _makes_trunks, OWN, libraries=libraries)
    except OwnCodeError as error:
        raise TrunkError(f"trunk {error}") from error
    places = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)
    if not any(parameter.kind in places for parameter in signature(found).parameters.values()):
        told = "it must take the shape of an item, such as (3, 84, 84), as its first argument"
        raise TrunkError(f"trunk {name}: {told}")
    made: Callable[..., nn.Module] = found
    return made


def _makes_trunks(found: Any, module: str) -> bool:
    """Return whether something is a class of modules, or a function that this module wrote: not one it imported."""
    if isinstance(found, type):
        return issubclass(found, nn.Module)
    function = found.func if isinstance(found, partial) else found
    if isinstance(function, type):
        return issubclass(function, nn.Module)
    foreign = module.partition(".")[0] in LIBRARIES
    return isinstance(function, FunctionType) and at_home(function, module) and not foreign


def _check_options(package: str, options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        fetched = name.endswith("_implementation") and "/" in str(value)  # code from a hub
        if name in RUN_CODE or fetched:
            told = "files must run no code; give weights as trunk_weights"
            raise TrunkError(f"trunk {package}: {name} is refused, {told}")


def _conv4(shape: Shape, **options: Any) -> nn.Module:
    from .conv4 import Conv4

    return Conv4(_channels("conv4", shape), **options)


def _mlp(shape: Shape, **options: Any) -> nn.Module:
    from .mlp import MLP

    return MLP(prod(shape), **options)


def _identity(shape: Shape, **options: Any) -> nn.Module:
    from .identity import Identity

    return Identity(prod(shape), **options)


def _bn_inception(shape: Shape, **options: Any) -> nn.Module:
    from .bn_inception import BNInception

    _channels("bn_inception", shape)
    return BNInception(**options)


def _spd(shape: Shape, **options: Any) -> nn.Module:
    from .spd_trunk import SPDTrunk

    return SPDTrunk(_channels("spd", shape), **options)


def _timm(name: str, shape: Shape, **options: Any) -> nn.Module:
    _check_options("timm", options)
    timm = _installed("timm")
    channels = _channels("timm", shape)
    if not timm.is_model(name):
        near = get_close_matches(name, timm.list_models(), n=1)
        raise TrunkError(f"timm has no model {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    model = timm.create_model(name, pretrained=False, num_classes=0, in_chans=channels, **options)
    return Probed(TimmTrunk(model), shape)


def _transformers(name: str, shape: Shape, **options: Any) -> nn.Module:
    _check_options("transformers", options)
    transformers = _installed("transformers")
    channels = _channels("transformers", shape)
    try:
        if Path(name).is_dir():
            # without the first, it asks on the terminal whether to run the code in the folder
            safe = {"trust_remote_code": False, "use_safetensors": None if pickles_are_safe() else True}
            model = transformers.AutoModel.from_pretrained(name, local_files_only=True, **safe, **options)
        else:
            config = transformers.AutoConfig.for_model(name, **options)
            model = transformers.AutoModel.from_config(config, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0].partition(". Should contain")[0]  # the list of all models follows
        raise TrunkError(f"transformers:{name}: {reason}") from error
    channels = getattr(model.config, "num_channels", channels)
    return Probed(TransformersTrunk(model), (channels, *shape[1:]))


NAMED: dict[str, Callable[..., nn.Module]] = {
    "conv4": _conv4,
    "mlp": _mlp,
    "identity": _identity,
    "bn_inception": _bn_inception,
    "spd": _spd,
}
HUBS: dict[str, Callable[..., nn.Module]] = {"timm": _timm, "transformers": _transformers}


class TimmTrunk(nn.Module):
    """A model of timm without its classifier."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def maps(self, images: Tensor) -> Tensor:
        return self.inner.forward_features(images)

    def forward(self, images: Tensor) -> Tensor:
        return self.inner(images)


class TransformersTrunk(nn.Module):
    """A vision model of transformers: its last map averaged over space, or its last tokens averaged."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def maps(self, images: Tensor) -> Tensor:
        return self.inner(images).last_hidden_state

    def forward(self, images: Tensor) -> Tensor:
        found = self.maps(images)
        return found.mean((2, 3)) if found.ndim == 4 else found.mean(1)


class Probed(nn.Module):
    """A module of any origin whose width is found by one pass; (n, C, H, W) outputs are averaged over space."""

    def __init__(self, module: nn.Module, shape: Shape) -> None:
        super().__init__()
        self.module = module
        if len(shape) == 3:
            self.in_channels = shape[0]
        with torch.no_grad():
            self.num_features = self.eval()(torch.zeros(2, *shape)).shape[1]
            self.convolutional = getattr(module, "maps", module)(torch.zeros(2, *shape)).ndim == 4
        self.train()

    @property
    def inner(self) -> nn.Module:
        """The module whose state dict fits public weights."""
        if isinstance(self.module, TimmTrunk | TransformersTrunk):
            return self.module.inner
        return self.module

    def maps(self, images: Tensor) -> Tensor:
        found = getattr(self.module, "maps", self.module)(images)
        if found.ndim != 4:
            raise TrunkError(f"{type(self.inner).__name__} has no convolutional feature map")
        return found

    def forward(self, items: Tensor) -> Tensor:
        found = self.module(items)
        if not isinstance(found, Tensor) or found.ndim not in (2, 4):
            raise TrunkError(f"{type(self.inner).__name__}: a trunk returns an (n, D) or (n, C, H, W) tensor")
        return found.mean((2, 3)) if found.ndim == 4 else found


def _channels(name: str, shape: Shape) -> int:
    if len(shape) != 3:
        raise TrunkError(f"{name} takes images, got rows of {shape[0]} numbers; use mlp or identity")
    return shape[0]


def _installed(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise TrunkError(f"trunk {package}:NAME: {error}; pip install {package}") from error
