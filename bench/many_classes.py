"""Softmax losses over many classes beside plain PyTorch: processor time and peak memory of a step.

    python bench/many_classes.py [--classes 10000 100000 400000] [--seconds 20]

One line per loss and number of classes: a forward and a backward pass of 64 samples with 64 dimensions, in float32 on
one thread. `ms` is the lower quartile of the processor time, both variants in turn. `MB` is the most that is allocated
at once beyond the weights' gradients, as PyTorch's profiler counts it. The plain form multiplies, normalizes where the
loss does, moves the own logit by the margin, and calls `cross_entropy`. That of ProxyAnchorLoss follows the code that
its authors published. Values and gradients are compared first.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from math import cos, sin

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, normalize, one_hot
from torch.profiler import ProfilerActivity, profile

import nearfar

SAMPLES = 64
DIM = 64
LOSSES = (
    "CrossEntropyHead",
    "AMSoftmaxLoss",
    "CosFaceLoss",
    "ArcFaceLoss",
    "SubCenterArcFaceLoss",
    "ProxyNCAPlusPlusLoss",
    "ProxyAnchorLoss",
)
Step = Callable[[], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, nargs="+", default=[10_000, 100_000, 400_000])
    parser.add_argument("--seconds", type=float, default=20.0, help="processor time of a line")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"nearfar {nearfar.__version__}, torch {torch.__version__}, {SAMPLES} samples, {DIM} dimensions, one thread\n"
    )
    print("| loss | classes | ms | plain ms | ratio | MB | plain MB |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for number in settings.classes:
        for name in LOSSES:
            print(measured(name, number, settings.seconds), flush=True)


def measured(name: str, number: int, seconds: float) -> str:
    """Return the line of a loss."""
    draws = torch.Generator().manual_seed(0)
    loss = getattr(nearfar, name)(number, DIM)
    x = torch.randn(SAMPLES, DIM, generator=draws).requires_grad_()
    y = torch.randint(number, (SAMPLES,), generator=draws)
    copies = [parameter.detach().clone().requires_grad_() for parameter in loss.parameters()]
    leaves = [x, *loss.parameters(), *copies]

    def ours() -> Tensor:
        value: Tensor = loss(x, y)
        return value

    def plain() -> Tensor:
        if name == "ProxyAnchorLoss":
            return plain_proxy_anchor(loss, x, y, copies[0])
        return cross_entropy(plain_logits(name, loss, x, y, copies), y)

    found = [gradient_of(step, leaves) for step in (ours, plain)]
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-5)
    times: tuple[list[float], list[float]] = ([], [])
    end = time.process_time() + seconds
    while time.process_time() < end or len(times[0]) < 4:
        for step, taken in zip((ours, plain), times, strict=True):
            begun = time.process_time()
            gradient_of(step, leaves)
            taken.append(time.process_time() - begun)
    fast, slow = (1e3 * sorted(taken)[len(taken) // 4] for taken in times)
    gradients = 4 * sum(part.numel() for part in [x, *copies])
    little, much = ((peak_memory(step, leaves) - gradients) / 1e6 for step in (ours, plain))
    return f"| `{name}` | {number:,} | {fast:.1f} | {slow:.1f} | {fast / slow:.2f} | {little:.1f} | {much:.1f} |"


def plain_logits(name: str, loss: torch.nn.Module, x: Tensor, y: Tensor, copies: list[Tensor]) -> Tensor:
    """Return the logits of a loss from copies of its parameters, in PyTorch's functions."""
    if name == "CrossEntropyHead":
        return linear(x, *copies)
    cosine = linear(normalize(x), normalize(copies[0]))
    if name == "ProxyNCAPlusPlusLoss":
        return float(loss.scale) * cosine  # type: ignore[arg-type]  # a module declares modules and tensors only
    if name == "SubCenterArcFaceLoss":
        cosine = cosine.view(len(x), 3, -1).amax(1)  # of the three sub-centers, the nearest
    places = (torch.arange(len(y)), y)
    own = cosine[places]
    margin = float(loss.margin)  # type: ignore[arg-type]
    if name in ("ArcFaceLoss", "SubCenterArcFaceLoss"):
        turned = own * cos(margin) - (1 - own.square()).clamp_min(1e-12).sqrt() * sin(margin)
        moved = torch.where(own > -cos(margin), turned, own - margin * sin(margin))
    else:
        moved = own - margin
    return float(loss.scale) * cosine.index_put(places, moved)  # type: ignore[arg-type]


def plain_proxy_anchor(loss: torch.nn.Module, x: Tensor, y: Tensor, proxies: Tensor) -> Tensor:
    """Return the proxy-anchor loss in PyTorch's functions."""
    scale = float(loss.scale)  # type: ignore[arg-type]
    margin = float(loss.margin)  # type: ignore[arg-type]
    cosine = linear(normalize(x), normalize(proxies))
    positive = one_hot(y, len(proxies)).bool()
    near = torch.where(positive, torch.exp(-scale * (cosine - margin)), 0.0).sum(0)
    far = torch.where(positive, 0.0, torch.exp(scale * (cosine + margin))).sum(0)
    return torch.log1p(near).sum() / positive.any(0).sum() + torch.log1p(far).sum() / len(proxies)


def gradient_of(step: Step, leaves: list[Tensor]) -> Tensor:
    """Run a forward and a backward pass; return the value and the norm of the gradient in the samples."""
    for leaf in leaves:
        leaf.grad = None
    value = step()
    value.backward()
    assert leaves[0].grad is not None
    return torch.stack([value.detach(), leaves[0].grad.norm()])


def peak_memory(step: Step, leaves: list[Tensor]) -> int:
    """Return the most bytes that are allocated at once in a step."""
    for leaf in leaves:
        leaf.grad = None
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step().backward()
    held = 0
    most = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


if __name__ == "__main__":
    main()
