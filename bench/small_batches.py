"""Losses at small batches beside the shortest plain PyTorch of the same value, and beside pytorch-metric-learning.

    python bench/small_batches.py                  eight losses, B = 32 and 128 (a minute)
    python bench/small_batches.py --sizes 32 --only Contrastive --profile

Forward and backward pass in float32, 128 dimensions, 4 samples per class, 100 class proxies, one thread. In each of
`--rounds` rounds the three sides take turns, each with `--calls` calls; the table has medians of the rounds' ratios of
processor time, so that other work on the machine slows all sides alike. Plain functions check nothing, are written
for these defaults, and have no blocks. That the values agree is asserted.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from pytorch_metric_learning import distances, losses, reducers
from torch import Tensor

import nearfar as nf

DIM = 128
PER_CLASS = 4
CLASSES = 100
MOST_SECONDS = 0.05  # of the calls of a side in a round
Function = Callable[[Tensor, Tensor], Tensor]


class Case(NamedTuple):
    """One loss: ours, plain PyTorch (given our proxies, if there are any) and the peer."""

    name: str
    ours: Callable[[], Any]
    plain: Callable[..., Tensor]
    theirs: Callable[[], Any]


def masks(y: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of one class without the sample itself, and pairs of different classes."""
    same = y[:, None] == y
    return same & ~torch.eye(len(y), dtype=torch.bool), ~same


def squares(x: Tensor) -> Tensor:
    """Squared distances of unit vectors."""
    z = F.normalize(x)
    return (2 - 2 * z @ z.T).clamp_min(0)


def contrastive(x: Tensor, y: Tensor) -> Tensor:
    pos, neg = masks(y)
    d = squares(x)
    return (d * pos).sum() / pos.sum() + (F.relu(0.25 - d) * neg).sum() / neg.sum()


def triplet(x: Tensor, y: Tensor) -> Tensor:
    pos, neg = masks(y)
    d = squares(x)
    loss = F.relu(d[:, :, None] - d[:, None, :] + 0.2) * (pos[:, :, None] & neg[:, None, :])
    return loss.sum() / (loss > 0).sum().clamp_min(1)


def multi_similarity(x: Tensor, y: Tensor) -> Tensor:
    pos, neg = masks(y)
    z = F.normalize(x)
    s = z @ z.T
    zero = s.new_zeros(len(s), 1)
    up = torch.logsumexp(torch.cat([(-2 * (s - 0.5)).masked_fill(~pos, -torch.inf), zero], 1), 1) / 2
    down = torch.logsumexp(torch.cat([(50 * (s - 0.5)).masked_fill(~neg, -torch.inf), zero], 1), 1) / 50
    return (up + down).mean()


def nt_xent(x: Tensor, y: Tensor) -> Tensor:
    pos, neg = masks(y)
    z = F.normalize(x)
    s = z @ z.T / 0.07
    others = torch.logsumexp(s.masked_fill(~neg, -torch.inf), 1, keepdim=True)
    return (F.softplus(others - s) * pos).sum() / pos.sum()


def sup_con(x: Tensor, y: Tensor) -> Tensor:
    pos, _ = masks(y)
    z = F.normalize(x)
    s = (z @ z.T / 0.1).fill_diagonal_(-torch.inf)
    log_p = F.log_softmax(s, 1).masked_fill(~pos, 0)
    return -(log_p.sum(1) / pos.sum(1)).mean()


def proxy_anchor(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    s = F.normalize(x) @ F.normalize(w).T
    hot = F.one_hot(y, len(w)).bool()
    pos = torch.exp(-32 * (s - 0.1)).masked_fill(~hot, 0).sum(0)
    neg = torch.exp(32 * (s + 0.1)).masked_fill(hot, 0).sum(0)
    return torch.log1p(pos).sum() / hot.any(0).sum() + torch.log1p(neg).mean()


def arc_face(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    s = F.normalize(x) @ F.normalize(w).T
    own = s.gather(1, y[:, None]).clamp(-1 + 1e-7, 1 - 1e-7)
    return F.cross_entropy(64 * s.scatter(1, y[:, None], torch.cos(own.acos() + 0.5)), y)


def nca(x: Tensor, y: Tensor) -> Tensor:
    pos, _ = masks(y)
    z = F.normalize(x)
    s = (2 * z @ z.T).fill_diagonal_(-torch.inf)
    log_p = F.log_softmax(s, 1).masked_fill(~pos, -torch.inf)
    return -torch.logsumexp(log_p, 1).mean()


def squared() -> Any:
    return distances.LpDistance(power=2)


CASES = [
    Case(
        "Contrastive",
        lambda: nf.ContrastiveLoss(form="survey", normalize=True, reduction="balanced"),
        contrastive,
        lambda: losses.ContrastiveLoss(0, 0.25, distance=squared(), reducer=reducers.MeanReducer()),
    ),
    Case("Triplet", nf.TripletLoss, triplet, lambda: losses.TripletMarginLoss(margin=0.2, distance=squared())),
    Case("Multi-similarity", nf.MultiSimilarityLoss, multi_similarity, losses.MultiSimilarityLoss),
    Case("NT-Xent", nf.NTXentLoss, nt_xent, losses.NTXentLoss),
    Case("SupCon", nf.SupConLoss, sup_con, lambda: losses.SupConLoss(temperature=0.1)),
    Case(
        "ProxyAnchor",
        lambda: nf.ProxyAnchorLoss(CLASSES, DIM),
        proxy_anchor,
        lambda: losses.ProxyAnchorLoss(num_classes=CLASSES, embedding_size=DIM),
    ),
    Case(
        "ArcFace",
        lambda: nf.ArcFaceLoss(CLASSES, DIM),
        arc_face,
        lambda: losses.ArcFaceLoss(num_classes=CLASSES, embedding_size=DIM, margin=math.degrees(0.5)),
    ),
    Case("NCA loss", lambda: nf.NCALoss(normalize=True), nca, losses.NCALoss),
]


def step(function: Function, x: Tensor, parameters: list[Tensor], y: Tensor) -> None:
    for tensor in (x, *parameters):
        tensor.grad = None
    function(x, y).backward()


def seconds(function: Function, x: Tensor, parameters: list[Tensor], y: Tensor, calls: int) -> float:
    begun = process_time()
    for _ in range(calls):
        step(function, x, parameters, y)
    return (process_time() - begun) / calls


def measured(case: Case, n: int, rounds: int, calls: int) -> str:
    torch.manual_seed(0)
    y = torch.arange(n) // PER_CLASS
    x = (torch.randn(n, DIM) + 0.5 * torch.randn(n, DIM)[y]).requires_grad_()
    ours = case.ours()
    theirs = case.theirs()
    weights = [part for part in ours.parameters() if part.ndim == 2]
    plain: Function = (lambda x, y: case.plain(x, y, *weights)) if weights else case.plain
    value = ours(x, y).item()
    assert math.isclose(value, plain(x, y).item(), rel_tol=1e-4), case.name
    sides = [(ours, list(ours.parameters())), (plain, weights), (theirs, [*theirs.parameters()])]
    seconds(ours, x, sides[0][1], y, 20)  # warms up
    # a side that takes long gets fewer calls
    once = [seconds(function, x, parameters, y, 3) for function, parameters in sides]
    counts = [max(1, min(calls, int(MOST_SECONDS / each))) for each in once]
    found = []
    for _ in range(rounds):
        found.append(
            [
                seconds(function, x, parameters, y, count)
                for (function, parameters), count in zip(sides, counts, strict=True)
            ]
        )
    us = [1e6 * median(row[k] for row in found) for k in range(3)]
    to_plain = median(row[0] / row[1] for row in found)
    to_peer = median(row[2] / row[0] for row in found)
    return f"{case.name},{n},{us[0]:.0f},{us[1]:.0f},{us[2]:.0f},{to_plain:.2f},{to_peer:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--profile", action="store_true", help="operations of ours instead of times")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if not given.profile:
        print("loss,batch,us,plain us,peer us,times plain,peer times ours")
    for n in given.sizes:
        for case in CASES:
            if given.only and case.name not in given.only:
                continue
            if given.profile:
                profile(case, n)
            else:
                print(measured(case, n, given.rounds, given.calls), flush=True)


def profile(case: Case, n: int) -> None:
    """Print the operations of ours, the most expensive first, and the functions of Python."""
    import cProfile
    import pstats

    y = torch.arange(n) // PER_CLASS
    x = torch.randn(n, DIM).requires_grad_()
    ours = case.ours()
    for _ in range(20):
        ours(x, y).backward()
    with torch.profiler.profile() as operations:
        for _ in range(20):
            ours(x, y).backward()
    print(operations.key_averages().table(sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=40))
    python = cProfile.Profile()
    python.enable()
    for _ in range(200):
        ours(x, y)
    python.disable()
    pstats.Stats(python).sort_stats("tottime").print_stats(28)


if __name__ == "__main__":
    main()
