"""Facility location loss: CPU time of loss and gradient beside the straightforward search that scores every candidate.

    python bench/facility_location.py [--repeat 5]

Prints the processor, the library versions, every native thread pool with its BLAS kernel (one thread each), and per
setting the smallest CPU time (user + system of the process) of `repeat` runs: ours; the straightforward search, where
each candidate set is assigned and scored from scratch, once with a short NMI in NumPy and once with scikit-learn's; the
ratio to ours; and whether both found the same set. The straightforward times are of the search alone, run once.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import normalized_mutual_info_score
from threadpoolctl import threadpool_info, threadpool_limits

from nearfar.deep.losses.facility_location import FacilityLocationLoss
from nearfar.deep.losses.facility_location.partition_scores import Agreement
from nearfar.deep.losses.facility_location.search import Problem, assign, distances, greedy, refine

BATCH, DIM, GAMMA, PASSES = 128, 64, 10.0, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    torch.set_num_threads(1)
    with threadpool_limits(1):
        describe_machine()
        print(f"\nbatch {BATCH}, {DIM} dimensions, gamma {GAMMA:g}, float32, forward and backward\n")
        loops = "NumPy loop, ms | ratio | same set | scikit-learn loop, ms | ratio | same set"
        print(f"| classes | refine | ours, ms | {loops} |")
        print("|---|---|---|---|---|---|---|---|---|")
        for classes in (32, 64, 96):
            for how in (None, "paper"):
                compare(classes, how, repeat)


def describe_machine() -> None:
    print(f"processor: {processor()}; python {platform.python_version()}, numpy {np.__version__}, {torch.__version__=}")
    for pool in threadpool_info():
        kernel = f", kernel {pool['architecture']}" if "architecture" in pool else ""
        print(f"{pool['internal_api']} {pool['version'] or ''}: {pool['num_threads']} thread{kernel}")


def processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def compare(classes: int, how: str | None, repeat: int) -> None:
    x, y = noisy_classes(classes)
    loss = FacilityLocationLoss(GAMMA, refine=how, passes=PASSES)

    def ours() -> None:
        loss(x, y).backward()

    z = torch.nn.functional.normalize(x.detach().double()).numpy()
    problem = Problem(distances(z), Agreement(y.numpy()), GAMMA)
    found = greedy(problem, classes)
    found = found if how is None else refine(problem, found, how, PASSES)
    plain: list[int] = []

    def straightforward(nmi: Callable[[np.ndarray, np.ndarray], float]) -> None:
        plain[:] = straightforward_search(problem.d, y.numpy(), classes, how, nmi)

    fast = cpu_time(ours, repeat)
    cells = [f"{fast * 1e3:.1f}"]
    for measure in (nmi, sklearn_nmi):
        slow = cpu_time(partial(straightforward, measure), 1)
        cells += [f"{slow * 1e3:.0f}", f"{slow / fast:.0f}x", "yes" if plain == found.tolist() else "no"]
    print(f"| {classes} | {how} | {' | '.join(cells)} |", flush=True)


def noisy_classes(classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Overlapping classes, as early in training: the search has work to do."""
    g = torch.Generator().manual_seed(classes)
    y = torch.arange(BATCH)[torch.randperm(BATCH, generator=g)] % classes
    centers = torch.randn(classes, DIM, generator=g)
    return (centers[y] + 2 * torch.randn(BATCH, DIM, generator=g)).requires_grad_(), y


def cpu_time(run: Callable[[], None], repeat: int) -> float:
    times = []
    for _ in range(repeat + (repeat > 1)):  # the first of several warms up
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times[1:] or times)


def sklearn_nmi(y: np.ndarray, a: np.ndarray) -> float:
    return normalized_mutual_info_score(y, a, average_method="geometric")


def straightforward_search(
    d: np.ndarray, y: np.ndarray, k: int, how: str | None, nmi: Callable[[np.ndarray, np.ndarray], float]
) -> list[int]:
    """Greedy selection and refinement where every candidate set is assigned and scored from scratch."""
    chosen: list[int] = []
    for _ in range(k):
        scores = [
            -np.inf
            if i in chosen
            else -reach(d, [*chosen, i]) + GAMMA * (1 - nmi(y, assign(d, np.array([*chosen, i]))))
            for i in range(len(d))
        ]
        chosen.append(first_best(scores))
    for _ in range(PASSES if how else 0):
        cluster, before = assign(d, np.array(chosen)), list(chosen)
        for position in range(k):
            members = np.flatnonzero(cluster == position)
            scores = []
            for j in members:
                swapped = np.array([*chosen[:position], j, *chosen[position + 1 :]])
                scores.append(-d[members, j].sum() + GAMMA * (1 - nmi(y, assign(d, swapped))))
            here = scores[members.tolist().index(chosen[position])]
            if max(scores) > here + 1e-10:
                chosen[position] = int(members[first_best(scores)])
        if chosen == before:
            break
    return chosen


def first_best(scores: list[float]) -> int:
    """Return the first of the largest scores; equal up to rounding is equal."""
    return next(i for i, score in enumerate(scores) if score >= max(scores) - 1e-10)


def reach(d: np.ndarray, chosen: list[int]) -> float:
    return float(d[:, chosen].min(1).sum())


def nmi(y: np.ndarray, a: np.ndarray) -> float:
    """Return the mutual information over the geometric mean of the entropies, from a fresh contingency table."""
    table = np.zeros((y.max() + 1, a.max() + 1))
    np.add.at(table, (y, a), 1 / len(y))
    p_y, p_a = table.sum(1), table.sum(0)
    filled = table > 0
    information = (table[filled] * np.log(table[filled] / np.outer(p_y, p_a)[filled])).sum()
    h_y, h_a = -(p_y * np.log(p_y)).sum(), -(p_a * np.log(p_a)).sum()
    return float(information / np.sqrt(h_y * h_a)) if h_y > 0 and h_a > 0 else float(h_y == h_a)


if __name__ == "__main__":
    main()
