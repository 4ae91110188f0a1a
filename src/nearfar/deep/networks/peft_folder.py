"""Folders of low-rank adapters that peft or transformers has written, added to the weights of their base.

    W' = W + s B A        s = alpha / r, or alpha / sqrt(r) with `use_rslora`

The folder may be that of a stranger. Only numbers are read from it, the package peft is not needed, and settings that
ask for anything else than this sum are refused. Other weights in the file replace those of the base.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import sqrt
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
from msgspec import Meta
from torch import Tensor, nn

from ...io.untrusted import parse_json, read_file
from ...quoting import quoted
from .weights import HEADS, Provenance, TrunkError, read_tensors

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
LARGEST_SETTINGS = 2**20
START = "base_model.model."
"""How the names of all weights in a file of peft begin."""
SIDE = re.compile(r"(.*)\.lora_(?:embedding_)?([AB])(?:\.weight)?")
"""Matches the name of a factor, after that of its layer: those of an embedding have no `.weight`."""
UNSUPPORTED = (
    "alora_invocation_tokens",
    "alpha_pattern",
    "arrow_config",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "monteclora_config",
    "target_parameters",
    "use_bdlora",
    "use_dora",
    "use_qalora",
)
"""Settings with which the adapted weights are another function of the factors."""
KEEPING_THE_BASE = (True, False, "eva", "gaussian", "orthogonal")
"""Values of `init_lora_weights` after which the weights of the base are still those of its own files."""


class AdapterSettings(msgspec.Struct, frozen=True):
    """The settings in `adapter_config.json` that the sum depends on."""

    peft_type: str
    r: Annotated[int, Meta(ge=1)] = 8
    lora_alpha: Annotated[float, Meta(gt=0)] = 8.0
    use_rslora: bool = False
    base_model_name_or_path: str | None = None


def is_adapter(path: str | Path) -> bool:
    """Return whether a path is the folder of an adapter."""
    return (Path(path) / CONFIG).is_file()


def base_of(folder: Path) -> str:
    """Return the name of the base that an adapter states, and "its base" if it states none."""
    try:
        return quoted(_settings(folder).base_model_name_or_path or "its base")
    except TrunkError:
        return "its base"


def add_adapter_of(folder: Path, module: nn.Module, base: Provenance) -> Provenance:
    """Add the adapter in a folder to the weights of its base, in place, and return the origin of both.

    Parameters
    ----------
    folder : Path
        Folder with `adapter_config.json` and `adapter_model.safetensors`.
    module : Module
        The base: a model, or the tower or encoder of one that the adapter was trained with.
    base : Provenance
        Origin of the weights of the base.

    Raises
    ------
    TrunkError
        If a file is missing or damaged, the adapter is not a low-rank sum, or it belongs to another base.
    """
    settings = _settings(folder)
    file = folder / WEIGHTS
    if not file.is_file():
        raise TrunkError(f"{folder}: an adapter without {WEIGHTS}; weights in other files may run code")
    tensors = {name.removeprefix(START): value for name, value in read_tensors(file).items()}
    factors: dict[str, dict[str, Tensor]] = {}
    others = {}
    for name, value in tensors.items():
        side = SIDE.fullmatch(name)
        if side:
            factors.setdefault(side[1], {})[side[2]] = value
        elif not name.startswith(HEADS):
            others[name.replace(".base_layer.", ".")] = value
    if not factors:
        raise TrunkError(f"{file}: has no low-rank factors, lora_A and lora_B; not an adapter that can be added")
    prefix = _prefix_of(factors, module, folder, settings)
    state = module.state_dict()
    changed = {}
    for layer, pair in factors.items():
        name = f"{layer.removeprefix(prefix)}.weight"
        if pair.keys() != {"A", "B"}:
            raise TrunkError(f"{file}: {layer} has only one of the factors lora_A and lora_B: damaged")
        transposed = isinstance(_layer(module, name), nn.Embedding) or _is_conv1d(_layer(module, name))
        changed[name] = _sum(state[name], pair["A"], pair["B"], settings, transposed, f"{file}: {layer}")
    for name, value in others.items():
        own = name.removeprefix(prefix)
        if own not in state or state[own].shape != value.shape:
            raise TrunkError(f"{file}: {quoted(name)} belongs to no weight of this model; another base, or no LoRA")
        changed[own] = value.to(state[own].dtype)
    module.load_state_dict(changed, strict=False)
    return base._replace(source=f"{base.source or 'random weights'} with the adapter {folder}")


def _settings(folder: Path) -> AdapterSettings:
    """Read the settings of an adapter, and refuse those that ask for another function of the factors."""
    file = folder / CONFIG
    try:
        content = parse_json(read_file(file, LARGEST_SETTINGS).decode("utf-8"))
        settings = msgspec.convert(content, AdapterSettings)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise TrunkError(f"{file}: not the settings of an adapter ({error})") from error
    if settings.peft_type != "LORA":
        raise TrunkError(f"{file}: peft_type: expected LORA, got {quoted(settings.peft_type)}")
    for name in UNSUPPORTED:
        if content.get(name):
            raise TrunkError(
                f"{file}: {name} is not supported; merge the adapter into its base with peft, and save that"
            )
    start = content.get("init_lora_weights", True)
    if start not in KEEPING_THE_BASE:
        raise TrunkError(f"{file}: init_lora_weights {quoted(start)} has changed the base, which its own files lack")
    return settings


def _prefix_of(factors: Mapping[str, Any], module: nn.Module, folder: Path, settings: AdapterSettings) -> str:
    """Return what the names of the adapted layers have before those in the module, such as that of a tower."""
    layers = {name for name, _ in module.named_modules()}
    parts = next(iter(factors)).split(".")
    prefixes = ["".join(f"{part}." for part in parts[:count]) for count in range(len(parts))]
    lacking = {
        prefix: [name for name in factors if not (name.startswith(prefix) and name.removeprefix(prefix) in layers)]
        for prefix in prefixes
    }
    prefix = min(prefixes, key=lambda prefix: len(lacking[prefix]))
    if lacking[prefix]:
        base = f", {quoted(settings.base_model_name_or_path)}" if settings.base_model_name_or_path else ""
        layer = quoted(lacking[prefix][0])
        raise TrunkError(f"{folder}: an adapter of another base{base}: it adapts {layer}, which this model lacks")
    return prefix


def _layer(module: nn.Module, weight: str) -> nn.Module:
    return module.get_submodule(weight.removesuffix(".weight"))


def _is_conv1d(layer: nn.Module) -> bool:
    """Return whether a layer is the linear layer of GPT-2, whose weights are (in, out)."""
    return type(layer).__name__ == "Conv1D"


def _sum(weight: Tensor, down: Tensor, up: Tensor, settings: AdapterSettings, transposed: bool, where: str) -> Tensor:
    """Return W + s B A: (out, r) (r, in) = (out, in), or (out, in, h, w) for a convolution."""
    rank = len(down)
    product_of = up.flatten(1).float(), down.flatten(1).float()
    if product_of[0].shape[1] != rank:
        raise TrunkError(f"{where}: factors of rank {rank} and {product_of[0].shape[1]}: damaged")
    scale = settings.lora_alpha / (sqrt(rank) if settings.use_rslora else rank)
    product = torch.mm(*product_of)
    product = product.T if transposed else product
    if product.shape != weight.flatten(1).shape:
        sizes = f"{tuple(product.shape)}, and this model's is {tuple(weight.shape)}"
        raise TrunkError(f"{where}: an adapter of another base: its weight is {sizes}")
    return (weight.float() + scale * product.reshape(weight.shape)).to(weight.dtype)
