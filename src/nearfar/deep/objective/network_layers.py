"""Terms that read the embedding layer of a network without owning it."""

from __future__ import annotations

from typing import Any

from torch import nn

EMBEDDING = "embedding"  # the layer of the network that a training run builds


class BorrowsLayer:
    """A term with a setting `layer`: a module, None, or "embedding", for which a training run gives its own."""

    _layer: tuple[Any]

    def borrow(self, layer: Any) -> None:
        """Keep the layer, neither in the parameters nor in the state of the term.

        Raises
        ------
        ValueError
            If it is none of the above.
        """
        if layer is not None and layer != EMBEDDING and (not callable(layer) or isinstance(layer, type)):
            raise ValueError(f"{type(self).__name__}: layer must be a module, {EMBEDDING!r} or None; got {layer!r}")
        self._layer = (layer,)  # in a tuple: a module attribute would be registered

    @property
    def layer(self) -> Any:
        """The layer, or None."""
        (layer,) = self._layer
        if layer == EMBEDDING:
            told = f"layer={EMBEDDING!r} is that of a training run; elsewhere pass the layer itself"
            raise ValueError(f"{type(self).__name__}: {told}")
        return layer


def lend(layer: nn.Module, objective: nn.Module) -> None:
    """Give the embedding layer of a network to those parts of an objective that ask for it."""
    for part in objective.modules():
        if isinstance(part, BorrowsLayer) and part._layer == (EMBEDDING,):
            part.borrow(layer)
