"""The last stage of a trunk alone: activations before it are stored, so the rest of the trunk runs only once per item.

The trunk is run on one blank image, and where its last stage begins, a hook replaces the activations of that image by
stored ones. So the last stage of any trunk is run by the trunk itself, whatever happens between its layers.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from ...deep.networks.depth import last_stage
from ...deep.networks.embedder import device_of
from ...deep.networks.weights import Trunk

LARGEST_SET = 2**30  # maximum number of bytes of stored activations
SAME_FEATURES = 1e-3  # tolerance of features, relative to the largest


class _Reached(Exception):
    """Not an error: stops the trunk before its last stage, and carries the activations there."""

    def __init__(self, activations: Tensor) -> None:
        super().__init__()
        self.activations = activations


class LastStage(nn.Module):
    """The last stage of a trunk, from its flattened activations (n, k) to features.

    Parameters
    ----------
    trunk : Module
        From images to features; its earlier layers are no longer trained.
    first : Module
        The one with which the last stage begins.
    shape : tuple of int
        (C, H, W) of an image.
    activations : tuple of int
        Their shape for one image.
    """

    blank: Tensor

    def __init__(
        self, trunk: nn.Module, first: nn.Module, shape: tuple[int, ...], activations: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.num_features = int(cast(Trunk, trunk).num_features)
        self._first = (first,)  # in a tuple, so that it is not registered as a submodule twice
        self.activations = activations
        self.register_buffer("blank", torch.zeros(1, *shape), persistent=False)
        chosen = last_stage(trunk)
        for name, parameter in trunk.named_parameters():
            if name not in chosen:
                parameter.requires_grad_(False)

    def before(self, images: Tensor) -> Tensor:
        """Return the flattened activations (n, k) of images, with which the last stage begins."""

        def stop(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            raise _Reached(inputs[0])

        hook = self._first[0].register_forward_pre_hook(stop)
        try:
            self.trunk(images)
        except _Reached as reached:
            return reached.activations.flatten(1)
        finally:
            hook.remove()
        raise AssertionError("the trunk did not run its last stage")

    def forward(self, rows: Tensor) -> Tensor:
        kept = rows.unflatten(1, self.activations)
        if kept.ndim == 4:
            kept = kept.contiguous(memory_format=torch.channels_last)

        def put(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            return (kept, *inputs[1:])

        hook = self._first[0].register_forward_pre_hook(put)
        try:
            found: Tensor = self.trunk(self.blank)
        finally:
            hook.remove()
        return found


def split_off(trunk: nn.Module, shape: tuple[int, ...], count: int) -> LastStage | None:
    """Return the last stage of a trunk; None if it cannot be run alone, or the activations would need too much memory.

    Parameters
    ----------
    trunk : Module
        In evaluation mode.
    shape : tuple of int
        (C, H, W) of an image.
    count : int
        Images whose activations are to be kept.
    """
    device = device_of(trunk)
    images = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)).to(device)
    with torch.no_grad():
        begins = _beginning(trunk, images)
        if begins is None:
            return None
        first, activations = begins
        if activations[0].numel() * 4 * count > LARGEST_SET:
            return None
        stage = LastStage(trunk, first, shape, tuple(activations.shape[1:])).to(device).eval()
        expected = trunk(images)
        found = stage(stage.before(images))
    close = torch.allclose(found, expected, rtol=0.0, atol=SAME_FEATURES * float(expected.abs().max()))
    return stage if close else None


def _beginning(trunk: nn.Module, images: Tensor) -> tuple[nn.Module, Tensor] | None:
    """Return the module that runs first of the last stage, and what it is given; None where that is no one tensor."""
    chosen = last_stage(trunk)
    inside = [module for place, module in trunk.named_modules() if place and _has_only(module, place, chosen)]
    reached: list[tuple[nn.Module, Any]] = []
    hooks = [
        module.register_forward_pre_hook(lambda module, inputs: reached.append((module, inputs))) for module in inside
    ]
    try:
        trunk(images)
    finally:
        for hook in hooks:
            hook.remove()
    if not reached:
        return None
    module, inputs = reached[0]
    batch = bool(inputs) and isinstance(inputs[0], Tensor) and len(inputs[0]) == len(images)
    return (module, inputs[0]) if batch else None


def _has_only(module: nn.Module, place: str, chosen: set[str]) -> bool:
    """Return whether a module has parameters, and all of them are among the chosen ones."""
    names = [f"{place}.{name}" for name, _ in module.named_parameters()]
    return bool(names) and chosen.issuperset(names)
