"""Terms that read the embedding layer of a network without owning it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .. import distributed

EMBEDDING = "embedding"  # the layer of the network that a training run builds


class BorrowsLayer:
    """A term with a setting `layer`: a module, None, or "embedding", the embedding layer of a training run."""

    _layer: tuple[Any]

    def borrow(self, layer: Any) -> None:
        """Store the layer, which belongs neither to the parameters nor to the state of the term.

        Raises
        ------
        ValueError
            If `layer` is none of the above.
        """
        if layer is not None and layer != EMBEDDING and (not callable(layer) or isinstance(layer, type)):
            raise ValueError(f"{type(self).__name__}: layer must be a module, {EMBEDDING!r} or None; got {layer!r}")
        self._layer = (layer,)  # in a tuple: a module attribute would be registered

    @property
    def layer(self) -> Any:
        """The layer, or None."""
        (layer,) = self._layer
        if layer == EMBEDDING:
            advice = f"layer={EMBEDDING!r} is that of a training run; elsewhere pass the layer itself"
            raise ValueError(f"{type(self).__name__}: {advice}")
        return layer


class Outputs(dict[str, Tensor]):
    """The outputs of watched modules, by their names; a copy is empty, because the graph of a run cannot be copied.

    A trunk and a term that are copied together share the copy.
    """

    def __reduce__(self) -> tuple[type[Outputs], tuple[()]]:
        return Outputs, ()


class WatchesLayers:
    """A term that reads the outputs of named modules of the trunk from their last run with gradients.

    A training run calls `watch` with its trunk; elsewhere, call it yourself. Maps (n, C, H, W) are averaged over space.
    """

    _names: tuple[str, ...] = ()
    _outputs: Outputs | None = None

    def watch_later(self, names: Sequence[str]) -> None:
        """Keep the names of the modules to watch."""
        self._names = tuple(names)

    @property
    def watched_names(self) -> tuple[str, ...]:
        """The names of the modules, as in `named_modules` of the trunk."""
        return self._names

    def watch(self, trunk: nn.Module) -> None:
        """Start reading the outputs of the named modules of a trunk.

        Raises
        ------
        ValueError
            If the trunk has no module of that name.
        """
        if not self._names:
            return
        modules = dict(trunk.named_modules())
        outputs = Outputs()
        for name in self._names:
            if name not in modules:
                known = ", ".join([place for place in modules if place and "." not in place][:8])
                got = f"layers: {type(trunk).__name__} has no module {name!r}; it has {known}, ..."
                raise ValueError(f"{type(self).__name__}: {got}")
            modules[name].register_forward_hook(partial(_keep_output, outputs, name))
        self._outputs = outputs

    def watched_outputs(self, x: Tensor) -> dict[str, Tensor]:
        """Return the outputs (n, C) of the watched modules for the embeddings x, across all processes.

        Raises
        ------
        ValueError
            If the modules have not run for these embeddings.
        """
        if not self._names:
            return {}
        found = dict(self._outputs or {})
        missing = [name for name in self._names if name not in found]
        if missing:
            advice = f"the layer {missing[0]!r} was not seen: watch(trunk) comes before the trunk runs with gradients"
            raise ValueError(f"{type(self).__name__}: {advice}")
        for name, output in found.items():
            rows = output
            if rows.dtype in (torch.float16, torch.bfloat16):
                rows = rows.float()
            if rows.ndim == 4:
                rows = rows.mean((2, 3))  # (n, C, H, W) -> (n, C)
            else:
                rows = rows.flatten(1)
            found[name] = distributed.gather_rows(rows)
            if len(found[name]) != len(x):
                got = f"the layer {name!r} was seen with {len(found[name])} items, and there are {len(x)} embeddings"
                raise ValueError(f"{type(self).__name__}: {got}")
        return found


def _keep_output(outputs: Outputs, name: str, module: nn.Module, inputs: Any, output: Tensor) -> None:
    # not the outputs of a validation pass, which would replace those of the step
    if torch.is_grad_enabled():
        outputs[name] = output


def watch_layers(trunk: nn.Module, objective: nn.Module) -> None:
    """Let the parts of an objective that name layers of the trunk read their outputs."""
    for part in objective.modules():
        if isinstance(part, WatchesLayers):
            part.watch(trunk)


def lend(layer: nn.Module, objective: nn.Module) -> None:
    """Pass the embedding layer of a network to the parts of an objective that ask for it."""
    for part in objective.modules():
        if isinstance(part, BorrowsLayer) and part._layer == (EMBEDDING,):
            part.borrow(layer)
