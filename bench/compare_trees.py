"""Two source trees of nearfar in turn: is one faster than the other?

    python bench/compare_trees.py                      this checkout beside the commit where its branch left main
    python bench/compare_trees.py --beside v1 --all    beside another commit, with all tasks in the table
    python bench/compare_trees.py ../before/src src [--rounds 3]

Thirty tasks: losses of large and of small batches (a forward and a backward pass), learners (a fit), the evaluation of
embeddings, clusters, and the search of an index, through public names only. In every round each tree runs in a separate
process. The order alternates from round to round, so that other work on the machine slows both. In a process every task
is repeated, and the least CPU time counts; the table has the least over the rounds, and the ratio after / before.
`noise` is the larger of what the trees' own rounds differ by: a ratio nearer to 1 than that says nothing, and is left
out of the table of two commits. Nothing fails if a task is slower.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
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
SMALL_LOSSES = (
    "ContrastiveLoss()",
    "TripletLoss()",
    "MultiSimilarityLoss()",
    "NTXentLoss()",
    "ProxyAnchorLoss(100, 64)",
    "ArcFaceLoss(100, 64)",
)
LEARNERS = (
    "LMNN(max_iter=10)",
    "NCA(max_iter=10)",
    "ITML(random_state=0)",
    "RCA()",
    "LFDA(n_components=8)",
    "GMML()",
    "SCML(max_iter=200, random_state=0)",
    "CovarianceMetric()",
)
REPEATS = 3
BATCH = 1000
DIM = 64
SMALL_BATCH = 32
SMALL_CALLS = 20  # passes of a small batch that are timed together
LEAST_CHANGE = 0.03  # smaller changes are not shown, however little the rounds differ
ROWS = 3000  # of the embeddings that are scored and searched


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?", help="a folder that holds the package nearfar")
    parser.add_argument("after", type=Path, nargs="?")
    parser.add_argument("--beside", default="main", help="branch or commit whose common ancestor with this one counts")
    parser.add_argument("--all", action="store_true", help="show also the tasks that did not change")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.worker:
        print(json.dumps({name: least_time(task) for name, task in tasks().items()}))
        return
    if settings.before is not None:
        if settings.after is None:
            parser.error("expected two source trees, such as ../before/src src")
        compare(settings.before, settings.after, settings.rounds, everything=True)
        return
    root = Path(__file__).parents[1]
    commit = git(root, "merge-base", "HEAD", settings.beside).decode().strip()
    print(f"before: {commit[:12]}; after: this checkout\n")
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(fileobj=io.BytesIO(git(root, "archive", commit, "src"))) as archive:
            archive.extractall(scratch, filter="data")
        compare(Path(scratch) / "src", root / "src", settings.rounds, everything=settings.all)


def git(root: Path, *words: str) -> bytes:
    """Return what a command of git prints."""
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True).stdout


def compare(before: Path, after: Path, rounds: int, *, everything: bool) -> None:
    """Print a table of the tasks, or only of those whose time changed by more than it differs between rounds."""
    trees = (before, after)
    found: list[list[dict[str, float]]] = [[], []]
    for turn in range(rounds):
        for place in (0, 1) if turn % 2 == 0 else (1, 0):
            found[place].append(measured(trees[place]))
    lines = []
    names = [name for name in found[0][0] if name in found[1][0]]
    for name in names:
        columns = [[turn[name] for turn in turns] for turns in found]
        ms = [1e3 * min(column) for column in columns]
        noise = max(sorted(column)[len(column) // 2] / min(column) - 1 for column in columns)
        ratio = ms[1] / ms[0]
        if everything or abs(ratio - 1) > max(noise, LEAST_CHANGE):
            lines.append(f"| {name} | {ms[0]:.2f} | {ms[1]:.2f} | {ratio:.2f} | {noise:.0%} |")
    if not everything:
        print(f"{len(lines)} of {len(names)} tasks take more or less time, beyond the noise of {rounds} rounds\n")
    if lines:
        print(f"CPU time in ms, the least of {rounds} rounds\n")
        print("| task | before | after | ratio | noise |")
        print("|---|---:|---:|---:|---:|")
        print("\n".join(lines))


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

    from nearfar.evaluation import cluster, evaluate, few_shot, verify
    from nearfar.index import Index

    torch.set_num_threads(1)
    draws = np.random.default_rng(0)
    x = torch.from_numpy(draws.normal(size=(BATCH, DIM)).astype(np.float32)).requires_grad_()
    y = torch.from_numpy(np.arange(BATCH) % 100)
    found: dict[str, Callable[[], object]] = {}
    for text in LOSSES:
        torch.manual_seed(0)
        found[text] = partial(both_passes, made(text), x, y)
    few = x[:SMALL_BATCH].detach().requires_grad_()
    few_y = y[:SMALL_BATCH] // 4
    for text in SMALL_LOSSES:
        torch.manual_seed(0)
        found[f"{text}, batch of {SMALL_BATCH}"] = partial(both_passes, made(text), few, few_y, SMALL_CALLS)
    digits = load_digits()
    X = digits.data[:300]
    labels = digits.target[:300]
    for text in LEARNERS:
        found[text] = partial(made(text).fit, X, labels)
    rows = draws.normal(size=(ROWS, DIM)).astype(np.float32)
    classes = np.arange(ROWS) % 300
    found["evaluate"] = lambda: evaluate(rows, classes, ks=(1, 10), clustering=False)
    found["cluster"] = lambda: cluster(rows, 300, engine="scikit-learn")
    found["verify"] = lambda: verify(rows[:1000], classes[:1000])
    found["few_shot"] = lambda: few_shot(rows, classes, queries=5, episodes=100)
    index = Index(rows, labels=classes)
    found["Index.search"] = lambda: index.search(rows[:1000], k=10)
    found["Index"] = lambda: Index(rows, labels=classes)
    return found


def made(text: str) -> Any:
    """Return what an expression of this file makes, such as ``LMNN(max_iter=10)``."""
    import nearfar

    name = text.partition("(")[0]
    return eval(text, {name: getattr(nearfar, name)})


def both_passes(loss: Any, x: Any, y: Any, times: int = 1) -> None:
    """Compute a loss and its gradient."""
    for _ in range(times):
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
