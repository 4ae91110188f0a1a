"""Optimizers, parameter groups and learning rates."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..deep.networks.depth import layer_numbers
from ..deep.networks.embedder import Embedder
from .config import TrainConfig
from .scale.sparse_rows import SparseRows


def param_groups(embedder: Embedder, objective: nn.Module, config: TrainConfig) -> list[dict[str, Any]]:
    """Return the groups "trunk", "embedding" and "proxies" (what the objective owns), each with its rate.

    A second tower adds "text trunk" and "text embedding". `initial_lr` of a group is what `set_rates` multiplies. With
    `layer_decay` b the trunk has a group for each of its layers, "trunk 0" next to the input, and of L layers layer l
    has the rate lr b^(L - 1 - l).
    """
    groups = _of_trunk(embedder.trunk, config)
    lr_embedding = config.lr if config.lr_embedding is None else config.lr_embedding
    text = embedder.text
    others: list[tuple[str, nn.Module, float]] = []
    if text is not None:
        others = [
            ("text trunk", text.trunk, config.lr if config.lr_text is None else config.lr_text),
            ("text embedding", text.layer, lr_embedding),
        ]
    others += [
        ("embedding", embedder.layer, lr_embedding),
        ("proxies", objective, config.lr if config.lr_proxies is None else config.lr_proxies),
    ]
    groups += [_group(name, list(module.parameters()), lr) for name, module, lr in others]
    return [group for group in groups if group["params"]]


def _of_trunk(trunk: nn.Module, config: TrainConfig) -> list[dict[str, Any]]:
    if config.layer_decay in (None, 1.0):
        return [_group("trunk", list(trunk.parameters()), config.lr)]
    numbers = layer_numbers(trunk)
    last = max(numbers.values(), default=0)
    parameters: dict[int, list[nn.Parameter]] = {number: [] for number in range(last + 1)}
    for name, parameter in trunk.named_parameters():
        parameters[numbers[name]].append(parameter)
    return [
        _group(f"trunk {number}", found, config.lr * config.layer_decay ** (last - number))
        for number, found in parameters.items()
    ]


def _group(name: str, parameters: list[nn.Parameter], lr: float) -> dict[str, Any]:
    return {"name": name, "params": [p for p in parameters if p.requires_grad], "lr": lr, "initial_lr": lr}


def make_optimizer(groups: list[dict[str, Any]], config: TrainConfig) -> Optimizer:
    """Return the optimizer that the config names."""
    optimizer = _optimizer(groups, config)
    if config.sample_classes is not None:
        SparseRows(optimizer)
    return optimizer


def _optimizer(groups: list[dict[str, Any]], config: TrainConfig) -> Optimizer:
    shared: dict[str, Any] = {"weight_decay": config.weight_decay}
    if config.eps is not None and config.optimizer != "sgd":
        shared["eps"] = config.eps
    if config.optimizer in ("adam", "adamw"):
        kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
        return kinds[config.optimizer](groups, fused=True, **shared)
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=0.9 if config.momentum is None else config.momentum, **shared)
    if config.rmsprop_decay is not None:
        shared["alpha"] = config.rmsprop_decay
    return torch.optim.RMSprop(groups, momentum=config.momentum or 0.0, **shared)


def rate_factor(config: TrainConfig, steps_per_epoch: int, steps: int) -> Callable[[int], float]:
    """Return the function from a step, counted from 0, to the factor on every learning rate.

    Examples
    --------
    >>> factor = rate_factor(TrainConfig.of(data="digits", warmup=1, schedule="step", lr_step=2), 4, 16)
    >>> [round(factor(step), 3) for step in (0, 3, 4, 7, 8)]
    [0.25, 1.0, 1.0, 1.0, 0.1]
    """
    warmup = round(config.warmup * steps_per_epoch)

    def factor(step: int) -> float:
        rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
        if config.schedule == "cosine":
            done = max(0, step - warmup) / max(1, steps - warmup)
            return rise * (1 + cos(pi * min(1.0, done))) / 2
        if config.schedule == "step":
            return rise * float(config.lr_gamma ** (step // steps_per_epoch // config.lr_step))
        return rise

    return factor


def set_rates(optimizer: Optimizer, factor: float) -> dict[str, float]:
    """Set the learning rate of every group; returns them by name."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * factor
    return {group["name"]: group["lr"] for group in optimizer.param_groups}
