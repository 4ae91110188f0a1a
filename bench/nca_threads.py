"""NCA beside that of scikit-learn on its tables, with one thread and with two.

    python bench/nca_threads.py [--tables iris wine breast_cancer digits] [--rounds 3]

Both begin at the identity, on standardized columns, with at most 50 iterations. Each fit runs in a process of its own
that may use one or two threads; rounds take turns. The table has the least processor and wall time of the fits, and the
objective (the expected share of rows with the right neighbor), computed by the same plain formula from the components.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

TABLES = ("iris", "wine", "breast_cancer", "digits")


def worker(table: str, side: str) -> None:
    import numpy as np
    from sklearn import datasets
    from sklearn.neighbors import NeighborhoodComponentsAnalysis
    from sklearn.preprocessing import StandardScaler

    from nearfar import NCA

    load: Any = getattr(datasets, f"load_{table}")
    X, y = load(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    makers: dict[str, Callable[[], Any]] = {
        "sklearn": lambda: NeighborhoodComponentsAnalysis(init="identity", max_iter=50),
        "nearfar": lambda: NCA(init="identity", max_iter=50),
        "float32": lambda: NCA(init="identity", max_iter=50, dtype="float32"),
    }
    learner = makers[side]()
    warnings.simplefilter("ignore")
    learner.fit(X[::7], y[::7])  # imports and warms up
    begun = time.process_time()
    wall = time.perf_counter()
    learner.fit(X, y)
    spent = [time.process_time() - begun, time.perf_counter() - wall]
    Z = X @ learner.components_.T
    d = (
        ((Z[:, None] - Z) ** 2).sum(2)
        if len(Z) < 600
        else np.maximum((Z**2).sum(1)[:, None] + (Z**2).sum(1) - 2 * Z @ Z.T, 0)
    )
    np.fill_diagonal(d, np.inf)
    p = np.exp(d.min(1, keepdims=True) - d)
    right = (p * (y[:, None] == y)).sum(1) / p.sum(1)
    print(json.dumps([*spent, float(right.mean())]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--sides", nargs="+", default=["sklearn", "nearfar"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(*given.worker)
        return
    print("table,side,threads,cpu s,wall s,objective")
    for table in given.tables:
        found: dict[tuple[str, int], list[list[float]]] = {}
        for _ in range(given.rounds):
            for side in given.sides:
                for threads in (1, 2):
                    limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
                    command = [sys.executable, __file__, "--worker", table, side]
                    done = subprocess.run(
                        command, env={**os.environ, **limits}, check=True, capture_output=True, text=True
                    )
                    found.setdefault((side, threads), []).append(json.loads(done.stdout))
        for (side, threads), runs in found.items():
            cpu, wall = (min(run[k] for run in runs) for k in (0, 1))
            print(f"{table},{side},{threads},{cpu:.2f},{wall:.2f},{runs[0][2]:.4f}", flush=True)


if __name__ == "__main__":
    main()
