"""Two source trees of nearfar in turn: is one faster than the other?

    git worktree add ../before COMMIT
    python bench/compare_trees.py ../before/src src [--rounds 3]

Ten losses (a forward and a backward pass), five learners (a fit), the evaluation of embeddings and the search of an
index, through public names only. In every round each tree runs in a separate process. The order alternates from round
to round, so that other work on the machine slows both. In a process every task is repeated, and the least CPU time
counts; the table has the least over the rounds, and the ratio after / before. `noise` is the larger of what the trees'
own rounds differ by: a ratio nearer to 1 than that says nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

LOSSES = (
    "ContrastiveLoss()",
    "TripletLoss()",
    "BinomialDevianceLoss()",
    "MultiSimilarityLoss()",
    "CircleLoss()",
    "SupConLoss()",
    "NPairLoss()",
    "HistogramLoss()",
    "ProxyNCALoss(100, 64)",
    "ArcFaceLoss(100, 64)",
)
LEARNERS = ("LMNN(max_iter=10)", "NCA(max_iter=10)", "ITML(random_state=0)", "RCA()", "LFDA(n_components=8)")
REPEATS = 3
BATCH = 1000
DIM = 64
ROWS = 3000  # of the embeddings that are scored and searched


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?", help="a folder that holds the package nearfar")
    parser.add_argument("after", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.worker:
        print(json.dumps({name: least_time(task) for name, task in tasks().items()}))
        return
    if settings.after is None:
        parser.error("expected two source trees, such as ../before/src src")
    trees = (settings.before, settings.after)
    found: list[list[dict[str, float]]] = [[], []]
    for turn in range(settings.rounds):
        for place in (0, 1) if turn % 2 == 0 else (1, 0):
            found[place].append(measured(trees[place]))
    print(f"CPU time in ms, the least of {settings.rounds} rounds\n")
    print("| task | before | after | ratio | noise |")
    print("|---|---:|---:|---:|---:|")
    for name in found[0][0]:
        columns = [[turn[name] for turn in rounds] for rounds in found]
        before, after = (min(column) for column in columns)
        noise = max(sorted(column)[len(column) // 2] / min(column) - 1 for column in columns)
        print(f"| {name} | {1e3 * before:.2f} | {1e3 * after:.2f} | {after / before:.2f} | {noise:.0%} |")


def measured(tree: Path) -> dict[str, float]:
    """Return the seconds of every task with the package of a tree, in a separate process."""
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--worker"]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    timed: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return timed


def tasks() -> dict[str, Callable[[], object]]:
    """Return what is timed, by name; inputs are made before, and are the same in every process."""
    import numpy as np
    import torch
    from sklearn.datasets import load_digits

    from nearfar.evaluation import evaluate
    from nearfar.index import Index

    torch.set_num_threads(1)
    draws = np.random.default_rng(0)
    x = torch.from_numpy(draws.normal(size=(BATCH, DIM)).astype(np.float32)).requires_grad_()
    y = torch.from_numpy(np.arange(BATCH) % 100)
    found: dict[str, Callable[[], object]] = {}
    for text in LOSSES:
        torch.manual_seed(0)
        found[text] = partial(both_passes, made(text), x, y)
    digits = load_digits()
    X = digits.data[:300]
    labels = digits.target[:300]
    for text in LEARNERS:
        found[text] = partial(made(text).fit, X, labels)
    rows = draws.normal(size=(ROWS, DIM)).astype(np.float32)
    classes = np.arange(ROWS) % 300
    found["evaluate"] = lambda: evaluate(rows, classes, ks=(1, 10), clustering=False)
    index = Index(rows, labels=classes)
    found["Index.search"] = lambda: index.search(rows[:1000], k=10)
    found["Index"] = lambda: Index(rows, labels=classes)
    return found


def made(text: str) -> Any:
    """Return what an expression of this file makes, such as ``LMNN(max_iter=10)``."""
    import nearfar

    name = text.partition("(")[0]
    return eval(text, {name: getattr(nearfar, name)})


def both_passes(loss: Any, x: Any, y: Any) -> None:
    """Compute a loss and its gradient."""
    loss(x, y).backward()


def least_time(task: Callable[[], object]) -> float:
    """Return the least CPU seconds of several calls, after one that warms up."""
    task()
    least = float("inf")
    for _ in range(REPEATS):
        begun = time.process_time()
        task()
        least = min(least, time.process_time() - begun)
    return least


if __name__ == "__main__":
    main()
