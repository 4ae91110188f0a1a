"""Siamese network: one network for both items of a pair, or all three of a triplet (Bromley et al., 1993).

    z_a, z_p, z_n = f(a; theta), f(p; theta), f(n; theta)

The gradient of the shared weights theta is the sum of the gradients of the branches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ...settings import check_options

MODES = ("concat", "sequential", "replicated")
UPDATES = ("all", "anchor_branch")


def siamese(net: Callable[[Tensor], Any], branches: tuple[Tensor, ...]) -> list[Any]:
    """Return the outputs of the network for every branch, from one pass over all of them."""
    sizes = [len(branch) for branch in branches]
    return _split(net(torch.cat(branches)), sizes)


def _split(output: Any, sizes: list[int]) -> list[Any]:
    """Split a tensor, or every tensor of a (named) tuple, into branches."""
    if isinstance(output, Tensor):
        return list(output.split(sizes))
    make = getattr(type(output), "_make", tuple)
    return [make(parts) for parts in zip(*(part.split(sizes) for part in output), strict=True)]


class Siamese(nn.Module):
    """Pass both items of a pair, or all three of a triplet, through one network.

    Parameters
    ----------
    net : Module
        Network, which is called with one batch of items.
    mode : {"concat", "sequential", "replicated"}
        How the branches are computed:

        - "concat": one pass over the concatenation of all branches, which is fastest;
        - "sequential": one branch after the other, which holds the items of one branch at a time;
        - "replicated": every branch with its own copy of the weights, as in the first implementations; each call makes
          new copies.
    update : {"all", "anchor_branch"}
        "all" is the gradient of the loss. With "anchor_branch", only the first branch has a gradient and the others are
        constants, the literal reading of "update one network, then copy its weights". This is not the gradient of the
        loss: the positive and the negative of a triplet no longer move relative to the anchor.

    Notes
    -----
    Without layers that use statistics of the batch, all modes have the same outputs and, with ``update="all"``, the
    same gradients. Batch normalization computes its statistics over all branches in "concat", and over each branch in
    the other modes; freeze it, or train and compare in the same mode. The running statistics of the copies are
    discarded. Dropout draws a new mask for every branch, so equal items can have different embeddings during training.

    Examples
    --------
    >>> net = Siamese(nn.Linear(3, 2))
    >>> anchor, positive, negative = net(torch.rand(4, 3), torch.rand(4, 3), torch.rand(4, 3))
    >>> anchor.shape
    torch.Size([4, 2])
    """

    def __init__(self, net: nn.Module, mode: str = "concat", *, update: str = "all") -> None:
        super().__init__()
        check_options(self, MODES, mode=mode)
        check_options(self, UPDATES, update=update)
        self.net = net
        self.mode = mode
        self.update = update

    def forward(self, *branches: Tensor) -> tuple[Any, ...]:
        """Return the network's output for each branch; the first is the anchors'."""
        if len(branches) < 2:
            raise ValueError(f"Siamese: expected two branches or three, got {len(branches)}")
        if self.update == "all":
            return tuple(self._outputs(branches, self._others()))
        anchor = self.net(branches[0])
        with torch.no_grad():
            return (anchor, *self._outputs(branches, self._others())[1:])

    def _others(self) -> Callable[[Tensor], Any]:
        """Return the callable that embeds the branches after the first."""
        return self._copy if self.mode == "replicated" else self.net

    def _outputs(self, branches: tuple[Tensor, ...], others: Callable[[Tensor], Any]) -> list[Any]:
        if self.mode == "concat":
            return siamese(self.net, branches)
        return [self.net(branches[0]), *(others(branch) for branch in branches[1:])]

    def _copy(self, items: Tensor) -> Any:
        """Run a copy of the network; the gradient of the copied weights arrives at the network's own."""
        copies = {name: weight.clone() for name, weight in self.net.named_parameters()}
        state = {name: value.clone() for name, value in self.net.named_buffers()}
        return functional_call(self.net, {**copies, **state}, (items,))

    def embed(self, items: Tensor) -> Any:
        """Return the network's output for one batch of items."""
        return self.net(items)
