"""Verification over all pairs, and near pairs, beside scikit-learn: CPU time, extra memory, agreement.

    python bench/pairs.py             n = 3,000 beside the peer, 10,000 and 50,000 alone (about a minute)
    python bench/pairs.py --quick     a smoke run

Single-threaded, 64 dimensions, cosine distance. The peer lists all pairs (SciPy's `pdist`) and gives them to
`roc_curve` and `roc_auc_score`; near pairs are those of `NearestNeighbors(algorithm="brute").radius_neighbors_graph`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.metrics import roc_auc_score, roc_curve
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_info, threadpool_limits

from nearfar.evaluation import verify
from nearfar.neighbors.near_pairs import nearest_pairs, pairs_within

FAR = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    small, middle, large = (300, 500, 800) if parser.parse_args().quick else (3_000, 10_000, 50_000)
    for pool in threadpool_info():
        print(f"{pool['internal_api']} {pool['version'] or ''} {pool.get('architecture', '')}, 1 thread")
    print("\n| what | n | CPU s | MB | found |\n|---|---:|---:|---:|---|")
    ours = measured("verification", small, verification)
    theirs = measured("the same, scikit-learn", small, verification_by_list)
    measured("verification", middle, verification)
    print(f"| ratio | {small:,} | {theirs[0] / ours[0]:.1f} | {theirs[1] / max(ours[1], 1):.1f} | |")
    within = partial(near, within=0.4)
    ours = measured("pairs within 0.4", small, within)
    theirs = measured("the same, scikit-learn", small, partial(near_by_graph, within=0.4))
    print(f"| ratio | {small:,} | {theirs[0] / ours[0]:.1f} | {theirs[1] / max(ours[1], 1):.1f} | |")
    measured("pairs within 0.4", large, within)
    measured("the 20 nearest pairs", large, nearest)


def measured(name: str, n: int, call: Callable[[Any, Any], str]) -> tuple[float, float]:
    """CPU seconds and MB of a call in a separate process; prints them."""
    with get_context("fork").Pool(1) as pool:
        seconds, mb, found = pool.apply(timed, (n, call))
    print(f"| {name} | {n:,} | {seconds:.2f} | {mb:.0f} | {found} |", flush=True)
    return seconds, mb


def timed(n: int, call: Callable[[Any, Any], str]) -> tuple[float, float, str]:
    with threadpool_limits(1):
        rng = np.random.default_rng(0)
        y = np.arange(n) // 5
        X = (rng.normal(size=(n // 5 + 1, 64))[y] + 1.2 * rng.normal(size=(n, 64))).astype(np.float32)
        call(X[:50], y[:50])  # whatever a first call loads
        before, start = memory("VmRSS"), process_time()
        found = call(X, y)
        return process_time() - start, memory("VmHWM") - before, found


def memory(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


def verification(X: Any, y: Any) -> str:
    found = verify(X, y, fars=(FAR,))
    return f"AUC {found.auc:.6f}, TAR {found.tar_at[FAR]:.4f}"


def verification_by_list(X: Any, y: Any) -> str:
    i, j = np.triu_indices(len(X), 1)
    d, same = pdist(X, "cosine"), y[i] == y[j]
    far, tar, _ = roc_curve(same, -d, drop_intermediate=False)
    return f"AUC {roc_auc_score(same, -d):.6f}, TAR {tar[far <= FAR].max():.4f}"


def near(X: Any, y: Any, within: float) -> str:
    return f"{len(pairs_within(X, within, distance='cosine').i):,} pairs"


def nearest(X: Any, y: Any) -> str:
    return f"from {nearest_pairs(X, 20, distance='cosine').distances[0]:.4f}"


def near_by_graph(X: Any, y: Any, within: float) -> str:
    found = NearestNeighbors(radius=within, metric="cosine", algorithm="brute").fit(X).radius_neighbors_graph()
    return f"{found.nnz // 2:,} pairs"


if __name__ == "__main__":
    main()
