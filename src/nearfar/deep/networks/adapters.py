"""Low-rank adapters, LoRA (Hu et al., 2022), of the linear layers and pointwise convolutions of a trunk.

    W' = W + (alpha / r) B A        A: (r, in), B: (out, r), zero at the start; only A and B are trained

The package peft inserts them into the network. `merged` does not need peft: it turns weights with adapters into plain
weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from .weights import TrunkError

NAME = "default"  # name of the adapter in peft
BASE = ".base_layer."
DOWN = f".lora_A.{NAME}.weight"
UP = f".lora_B.{NAME}.weight"


def add_adapters(trunk: nn.Module, rank: int, alpha: float) -> list[str]:
    """Add adapters to a trunk, freeze all of its other parameters, and return the names of the adapted layers.

    Layers with a side not larger than the rank, which an adapter would not make smaller, are not changed.

    Parameters
    ----------
    trunk : Module
        Network, which is changed in place.
    rank : int
        Rank r of the adapters.
    alpha : float
        Scale of the adapters: their product is multiplied by alpha / r.

    Raises
    ------
    TrunkError
        If peft is not installed, or no layer can have adapters of this rank.
    """
    largest = 0
    chosen = []
    for name, module in adaptable(trunk).items():
        side = min(module.weight.shape[:2])
        largest = max(largest, side)
        if rank < side:
            chosen.append(name)
    if not chosen:
        if largest == 0:
            detail = "the trunk has no linear layer and no pointwise convolution"
        else:
            detail = f"every layer of the trunk is too small for it; the largest takes up to rank {largest - 1}"
        raise TrunkError(f"lora: rank {rank}: {detail}")
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise TrunkError(f"lora: {error}; pip install 'nearfar[vision]'") from error
    settings: dict[str, Any] = {"r": rank, "lora_alpha": alpha, "target_modules": chosen}
    config = LoraConfig(**settings)
    inject_adapter_in_model(config, trunk, NAME)
    return chosen


def adaptable(trunk: nn.Module) -> dict[str, Any]:
    """Return the linear layers and pointwise convolutions of a trunk by their names.

    Those inside PyTorch's own attention are left out, because it reads their weights without calling them.
    """
    attentions = [module for module in trunk.modules() if isinstance(module, nn.MultiheadAttention)]
    inside = {id(part) for attention in attentions for part in attention.modules()}
    return {
        name: module
        for name, module in trunk.named_modules()
        if id(module) not in inside and (isinstance(module, nn.Linear) or _is_pointwise(module))
    }


def _is_pointwise(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1) and module.groups == 1


def merged(tensors: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """Return weights with their adapters added, under the names that the weights have without adapters.

    Parameters
    ----------
    tensors : mapping of str to Tensor
        State of a network, or of several, with adapters.
    scale : float
        Factor alpha / r of the adapters.
    """
    plain = {}
    for name, value in tensors.items():
        if ".lora_" in name:
            continue
        place, base, last = name.partition(BASE)
        if base and last == "weight":
            down = tensors[place + DOWN]
            up = tensors[place + UP]
            # W + scale B A: (out, r) (r, in) = (out, in), or (out, in, 1, 1) for a pointwise convolution
            product = (up.flatten(1).float() @ down.flatten(1).float()).reshape(value.shape)
            value = (value.float() + scale * product).to(value.dtype)
        plain[f"{place}.{last}" if base else name] = value
    return plain


def adapter_files(
    tensors: Mapping[str, Tensor], inner: str, rank: int, alpha: float, base: str | None = None
) -> tuple[dict[str, Tensor], str]:
    """Return the adapters under the names of peft, and their settings as JSON, for `PeftModel.from_pretrained`.

    Parameters
    ----------
    tensors : mapping of str to Tensor
        State of a network with adapters.
    inner : str
        Prefix, in these names, of the model that peft loads the adapters into.
    rank : int
        Rank r of the adapters.
    alpha : float
        Scale of the adapters, as in `add_adapters`.
    base : str, optional
        Name of the model that they were trained with.
    """
    adapters = {
        f"base_model.model.{name.removeprefix(inner).replace(f'.{NAME}.', '.')}": value
        for name, value in tensors.items()
        if name.startswith(inner) and ".lora_" in name
    }
    layers = sorted({name.removeprefix("base_model.model.").partition(".lora_")[0] for name in adapters})
    settings = {
        "peft_type": "LORA",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": layers,
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        "task_type": None,
    }
    return adapters, json.dumps(settings, indent=2) + "\n"
