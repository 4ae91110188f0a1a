"""Functions with a hand-written gradient against the same in PyTorch's functions: time and peak memory.

    python bench/own_gradients.py [--sizes 512 1024 2048] [--repeats 7]

One line per function and batch size, in float32 on one thread. `ms` is the least wall time of a forward and a backward
pass over several repeats, both variants in turn; `MB` is the most that is allocated at once, beyond the inputs, as
PyTorch's profiler counts it. A ratio above 1 says that plain PyTorch takes longer, or holds more. Values and gradients
are compared first.

`nearest_cosine` is compared with one line of PyTorch; `blockwise` is a whole loss, summed block by block, with the same
loss in one block and an ordinary graph. Both are there for memory.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import nearfar
from nearfar.deep.objective.terms import Term
from nearfar.deep.proxies import class_centers
from nearfar.deep.unit_vectors import unit

DIM = 128
PER_CLASS = 8
CLASSES = 1000  # of the centers
CENTERS = 10  # of each class


class Case(NamedTuple):
    """One function: its inputs that have a gradient, and what it computes of them, in our way and in PyTorch's."""

    name: str
    inputs: tuple[Tensor, ...]
    ours: Callable[..., Tensor]
    plain: Callable[..., Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--repeats", type=int, default=7)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    print(f"nearfar {nearfar.__version__}, torch {torch.__version__}, {DIM} dimensions, float32, one thread\n")
    print("| function | batch | ours ms | plain ms | ratio | ours MB | plain MB | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for size in settings.sizes:
        for case in cases(size):
            check(case)
            fast, slow = times(case, settings.repeats)
            little, much = (peak_memory(function, case.inputs) for function in (case.ours, case.plain))
            milliseconds = f"{1e3 * fast:.1f} | {1e3 * slow:.1f} | {slow / fast:.2f}"
            megabytes = f"{little / 1e6:.1f} | {much / 1e6:.1f} | {much / little:.2f}"
            print(f"| {case.name} | {size} | {milliseconds} | {megabytes} |", flush=True)


def cases(size: int) -> list[Case]:
    """Return what is measured for a batch of `size` samples, in classes of 8."""
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(size, DIM, generator=draws)
    w = torch.randn(CENTERS, CLASSES, DIM, generator=draws)
    y = torch.arange(size) // PER_CLASS

    def plain_nearest_cosine(x: Tensor, w: Tensor) -> Tensor:
        return (unit(x) @ unit(w).flatten(0, 1).T).unflatten(1, w.shape[:2]).amax(1).sum()

    def own_nearest_cosine(x: Tensor, w: Tensor) -> Tensor:
        return class_centers.nearest_cosine(x, w).sum()

    found = [Case("nearest_cosine", (x, w), own_nearest_cosine, plain_nearest_cosine)]
    for loss in ("ContrastiveLoss", "BinomialDevianceLoss", "MultiSimilarityLoss"):
        found.append(blockwise(loss, x, y))
    return found


def blockwise(name: str, x: Tensor, y: Tensor) -> Case:
    """Return a loss summed over blocks of at most 256 anchors, against one block with an ordinary graph."""
    kind: Callable[..., Term] = getattr(nearfar, name)
    in_blocks = kind(block=256)
    in_one = kind(block=len(x))
    return Case(f"blockwise {name}", (x,), lambda x: in_blocks(x, y), lambda x: in_one(x, y))


def gradients(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the gradients of a scalar function in its inputs."""
    leaves = [part.detach().clone().requires_grad_() for part in inputs]
    return torch.autograd.grad(function(*leaves), leaves)


def check(case: Case) -> None:
    """Raise unless both variants have the same gradients."""
    doubles = tuple(part.double() for part in case.inputs)
    for ours, plain in zip(gradients(case.ours, doubles), gradients(case.plain, doubles), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-8, atol=1e-10)


def times(case: Case, repeats: int) -> tuple[float, float]:
    """Return the least seconds of both variants, measured in turn."""
    least = [float("inf"), float("inf")]
    for _ in range(repeats + 1):  # the first of each warms up
        for place, function in enumerate((case.ours, case.plain)):
            begun = time.perf_counter()
            gradients(function, case.inputs)
            least[place] = min(least[place], time.perf_counter() - begun)
    return least[0], least[1]


def peak_memory(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> int:
    """Return the most bytes that a forward and a backward pass hold at once, beyond the inputs and their copies."""
    leaves = [part.detach().clone().requires_grad_() for part in inputs]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        torch.autograd.grad(function(*leaves), leaves)
    held = 0
    most = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":  # one for every piece that is taken, or given back
            held += event.nbytes()
            most = max(most, held)
    return most


if __name__ == "__main__":
    main()
