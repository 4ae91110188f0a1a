"""Layers of a trunk by depth, from the input, whose features are general, to the output."""

from __future__ import annotations

from typing import Any, cast

from torch import nn

LAST_STAGE = 0.5  # the last stage is the fewest last layers that hold at least this share of all weights


def layer_numbers(trunk: nn.Module) -> dict[str, int]:
    """Return the number of the layer that each parameter of a trunk belongs to, 0 for the layer next to the input.

    Models of timm define which of their stages (convolutional networks) or blocks (transformers) follow each other. For
    other modules, the children are layers in the order of their creation, and each element of a sequence of several is
    a layer.

    Examples
    --------
    >>> sorted(set(layer_numbers(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))).values()))
    [0, 1]
    """
    for place, module in trunk.named_modules():
        if callable(getattr(module, "group_matcher", None)):
            numbers = _by_timm(module)
            prefix = f"{place}." if place else ""
            return _ranked({f"{prefix}{name}": number for name, number in numbers.items()})
    numbers = {}
    for number, (place, layer) in enumerate(_layers(trunk, "")):
        for name, _ in layer.named_parameters():
            numbers[f"{place}.{name}" if place else name] = number
    last = max(numbers.values(), default=0)
    for name, _ in trunk.named_parameters():  # of the modules around the layers themselves, such as a class token
        numbers.setdefault(name, 0 if "token" in name or "pos" in name else last)
    return _ranked(numbers)


def last_stage(trunk: nn.Module) -> set[str]:
    """Return the names of the parameters of the last layers, the fewest that hold half of all weights."""
    numbers = layer_numbers(trunk)
    sizes: dict[int, int] = {}
    for name, parameter in trunk.named_parameters():
        sizes[numbers[name]] = sizes.get(numbers[name], 0) + parameter.numel()
    total = sum(sizes.values())
    held = 0
    first = max(sizes, default=0)
    for number in sorted(sizes, reverse=True):
        if held >= LAST_STAGE * total:
            break
        held += sizes[number]
        first = number
    return {name for name, number in numbers.items() if number >= first}


def _by_timm(model: nn.Module) -> dict[str, int]:
    from timm.models import group_parameters

    matcher = cast(Any, model).group_matcher(coarse=True)
    numbers: dict[str, int] = group_parameters(model, matcher, reverse=True)
    return numbers


def _layers(module: nn.Module, place: str) -> list[tuple[str, nn.Module]]:
    """Return the layers inside a module with their names, from the input to the output."""
    children = [(name, child) for name, child in module.named_children() if _has_weights(child)]
    if not children:
        return [(place, module)]
    layers: list[tuple[str, nn.Module]] = []
    for name, child in children:
        whole = f"{place}.{name}" if place else name
        is_model = name == "inner"  # inside a trunk of this library, where layers may follow it
        if is_model or len(children) == 1 or _is_sequence(child) or _holds_sequence(child):
            layers += _layers(child, whole)
        else:
            layers.append((whole, child))
    if _is_sequence(module):  # each element is one layer, even if it contains several
        return [(f"{place}.{name}" if place else name, child) for name, child in children]
    return layers


def _has_weights(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _is_sequence(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential | nn.ModuleList) and sum(map(_has_weights, module)) > 1


def _holds_sequence(module: nn.Module) -> bool:
    """Return whether a module holds a list of layers, as an encoder holds its blocks."""
    return any(isinstance(child, nn.ModuleList) and len(child) > 1 for child in module.children())


def _ranked(numbers: dict[str, int]) -> dict[str, int]:
    """Renumber the layers 0, 1, 2, ... without gaps, in the same order."""
    rank = {number: k for k, number in enumerate(sorted(set(numbers.values())))}
    return {name: rank[number] for name, number in numbers.items()}
