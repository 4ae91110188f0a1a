"""Activations that are recomputed in the backward pass instead of being kept: less memory, more time."""

from __future__ import annotations

from typing import Any, cast

from torch import nn

from .weights import TrunkError


def checkpoint_gradients(trunk: nn.Module) -> None:
    """Recompute the inner activations of a trunk in the backward pass, which saves memory and takes a third more time.

    Raises
    ------
    TrunkError
        If the trunk does not support it; models of timm and transformers do.
    """
    for module in trunk.modules():
        of_timm = getattr(module, "set_grad_checkpointing", None)
        if callable(of_timm):
            try:
                of_timm(True)
            except AssertionError as error:
                raise TrunkError(f"gradient_checkpointing: {error}") from error
            return
        if getattr(module, "supports_gradient_checkpointing", False):
            cast(Any, module).gradient_checkpointing_enable({"use_reentrant": False})  # a model of transformers
            return
    raise TrunkError("gradient_checkpointing: this trunk does not support it; models of timm and transformers do")
