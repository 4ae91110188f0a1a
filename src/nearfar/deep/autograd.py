"""Functions with gradients written by hand, also inside `torch.func.grad` and `vjp`.

These transforms accept only functions that keep nothing but their inputs and outputs for the gradient. Inside a
transform, `applied` brings a function into that form, with the kept tensors as further outputs; elsewhere it only calls
the function.

What each function is for. Times are milliseconds of a forward and a backward pass, ours and then with PyTorch's own
functions, in float32 on one core, for 512 anchors and 512 references (1,000 classes; 100 classes of 10 centers):

- `pairwise.blockwise._Swept`: no matrix of all comparisons is held, only a block of it; for memory, not for time. Of
  `ContrastiveLoss` on 2,048 samples of 128 dimensions, in blocks of 256, the peak is 19 MB; with one graph 73 MB;
- `pairwise.comparison._Distances`: two products from one saved matrix, 0 where points coincide: 13.5, 30.7;
- `pairwise.hinges._Hinges`: keeps counts, not K matrices of hinges: 11.3, 23.0 for K = 3;
- `pairwise.hinges._Negatives`: passes the gradient on as it is: 1.5, 1.7;
- `pairwise.reductions._NearAndRivals`: keeps the exponentials of a masked log-sum-exp: 2.1, 17.1;
- `pairwise.reductions._SoftCounts`: K matrices of sigmoids are not kept: 14.7, 45.9 for K = 3;
- `pairwise.reductions._Tilted`: keeps the exponentials: 3.5, 28.3;
- `pairwise.reductions._HingeSquares`: keeps the hinges alone: 2.3, 13.5;
- `proxies.logits._OwnAndOthers`: keeps one matrix beside the logits: 3.0, 17.3;
- `proxies.class_centers._Similarity`: keeps one matrix of slopes, in parts, not the cosines too: 42.5, 47.8;
- `proxies.class_centers._NearestCosine`: keeps one byte for each class instead of K cosines, for memory: 38.0, 30.9;
  with 1,000 classes the peak is 19 MB instead of 80 MB, and 33 MB instead of 305 MB for 2,048 anchors;
- `proxies.class_centers._Spread`: no list of the pairs of centers: 3.3, 29.9;
- `unit_vectors._Unit`: 0.6, 1.0.

Sums over pairs (`reductions.pair_sums`) and of softplus (`softplus_sums`) had functions of their own too. They held as
much or more than PyTorch's (84 MB and 50 MB of softplus at 2,048 x 2,048) and were no faster. Peaks are measured by
`bench/own_gradients.py`.

Not timed: `losses.angular.midpoints._Sums`, `losses.softmax_triplet._Likelihood`, `regularizers.horde._Moments` and
`memory.bayesian_updating.gaussians._Squares` keep less than a graph would; `pairwise.reductions._LogSumExp`, which is
`_NearAndRivals` without columns, and `proxies.logits._ClassLogSumExp` take fewer calls, which determine the time of a
batch of 32; `networks.spd._Spectral` has a gradient where eigenvalues are equal; `distributed._Gather` runs its
backward pass in every process; `_Transformed` below serves the transforms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import checkpoint

from .precision import without_autocast


def in_transform() -> bool:
    """Return whether this runs inside a transform of `torch.func`."""
    return not torch.compiler.is_compiling() and bool(torch._C._are_functorch_transforms_active())


def traced() -> bool:
    """Return whether this runs in a compiled graph or a transform, where NumPy cannot read the values of tensors."""
    return torch.compiler.is_compiling() or bool(torch._C._are_functorch_transforms_active())


def keep_plain_tensors(module: nn.Module) -> None:
    """Unwrap what a module and its parts keep of a call inside a transform, besides parameters.

    The tensors of a transform can be neither copied nor saved after it.
    """
    for part in module.modules():
        attributes = vars(part)
        for held in (attributes, attributes["_buffers"]):
            for name, value in held.items():
                if name in ("_parameters", "_buffers", "_modules"):
                    continue
                leaves, structure = tree_flatten(value)
                if any(_is_wrapped(leaf) for leaf in leaves):
                    held[name] = tree_unflatten([_unwrapped(leaf) for leaf in leaves], structure)


def _is_wrapped(x: Any) -> bool:
    return isinstance(x, Tensor) and bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


def _unwrapped(x: Any) -> Any:
    while _is_wrapped(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x


def host_array(x: Tensor) -> NDArray[Any]:
    """Return the values of a tensor on the host, even if a transform has wrapped it."""
    if in_transform():
        # one by one, since `tolist` of a wrapped tensor fails with torch 2.6
        values = [value.item() for value in x.flatten()]
        return np.array(values).reshape(x.shape)
    return x.cpu().numpy()


def clipped(x: Tensor, lowest: float, highest: float) -> Tensor:
    """Return x clipped to a range with the gradient of x itself, which also returns what lies outside the range."""
    return x.detach().clamp(lowest, highest) + (x - x.detach())


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that `torch.compile` must call as it is, without looking into it.

    Unlike ``torch.compiler.disable`` as a decorator, this does not import the compiler, which takes more than a second.
    """

    @wraps(function)
    def call(*args: Any) -> Any:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args)
        return function(*args)

    return call


def recomputed(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function whose graph is not kept but computed again in the backward pass, except inside a transform."""
    if in_transform():
        return function(*args)
    return checkpoint(function, *args, use_reentrant=False)


def exact(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward pass so that it computes in the precision of its inputs even if it runs under autocast."""

    @wraps(backward)
    def outside(ctx: Any, *grads: Tensor) -> Any:
        with without_autocast(grads[0].device):
            return backward(ctx, *grads)

    return outside


def applied(function: type[torch.autograd.Function], *args: Any) -> Any:
    """Return ``function.apply(*args)``, also inside the transforms of `torch.func`."""
    if not in_transform():
        return function.apply(*args)
    call = _Call(function, [isinstance(part, Tensor) and part.requires_grad for part in args])
    made = _Transformed.apply(call, *args)  # type: ignore[no-untyped-call]  # torch declares no types for apply
    return made[0] if call.single else made[: call.number]


class _Context:
    """A stand-in for the context that PyTorch passes to the forward and backward pass of a function."""

    saved_tensors: tuple[Tensor | None, ...] = ()
    constants: tuple[Tensor, ...] = ()
    needs_input_grad: Any

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        self.constants = tensors


class _Call:
    """One call of a function: its context, and where its saved tensors are among its inputs and outputs.

    Saved tensors that are neither inputs nor outputs become further outputs, whose gradients are ignored.
    """

    def __init__(self, function: type[torch.autograd.Function], needs: list[bool]) -> None:
        self.function = function
        self.needs = needs
        self.single = False
        self.number = 0

    def forward(self, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
        self.ctx = _Context()
        self.ctx.needs_input_grad = self.needs
        made = self.function.forward(self.ctx, *args)
        self.single = isinstance(made, Tensor)
        outputs = [made] if self.single else list(made)
        self.number = len(outputs)
        self.constant = [any(out is part for part in self.ctx.constants) for out in outputs]
        self.places: list[tuple[str, int]] = []
        for tensor in self.ctx.saved_tensors:
            at = next((k for k, part in enumerate(args) if part is tensor), None)
            if at is not None:
                self.places.append(("input", at + 1))  # input 0 of `_Transformed` is the call itself
                continue
            if tensor is None:
                self.places.append(("none", 0))
                continue
            at = next((k for k, part in enumerate(outputs) if part is tensor), len(outputs))
            if at == len(outputs):
                outputs.append(tensor)
            self.places.append(("output", at))
        self.constant += [True] * (len(outputs) - self.number)
        self.ctx.saved_tensors = self.ctx.constants = ()
        return tuple(outputs)

    def saved(self, inputs: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> list[Tensor | None]:
        """Return the saved tensors, in the order in which the function saved them."""
        tensors: list[Tensor | None] = []
        for kind, at in self.places:
            if kind == "input":
                tensors.append(inputs[at])
            elif kind == "output":
                tensors.append(outputs[at])
            else:
                tensors.append(None)
        return tensors

    def backward(self, ctx: Any, grads: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
        own = _Context()
        own.__dict__.update(vars(self.ctx))
        own.saved_tensors = ctx.saved_tensors
        own.needs_input_grad = ctx.needs_input_grad[1:]
        found = self.function.backward(own, *grads[: self.number])
        if isinstance(found, Tensor):
            return None, found
        return None, *found  # the call itself, input 0, has no gradient


class _Transformed(torch.autograd.Function):
    """A call whose first argument is its `_Call`."""

    @staticmethod
    def forward(call: _Call, *args: Any) -> tuple[Tensor, ...]:
        return call.forward(args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.call = call = inputs[0]
        ctx.save_for_backward(*call.saved(inputs, output))
        ctx.mark_non_differentiable(*(out for out, constant in zip(output, call.constant, strict=True) if constant))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        found: tuple[Tensor | None, ...] = ctx.call.backward(ctx, grads)
        return found
