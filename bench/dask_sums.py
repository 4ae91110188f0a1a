"""Closed forms on a table larger than the memory of each worker: a local cluster of two workers beside one array.

    python bench/dask_sums.py                                       1,200,000 x 50, two workers of 400 MB each
    python bench/dask_sums.py --rows 100000 --memory 300            a smaller run

The table is drawn part by part on the workers, from seeds, and is never whole in one of them. The in-memory fit gets
the same rows as one array in a separate process. Printed are wall seconds (on a machine that does other work, these say
little), the highest memory of a worker and of the in-memory process, and the largest difference of the metrics relative
to the largest entry.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

import nearfar

LEARNERS = ("CovarianceMetric", "RCA", "FisherMetric", "DCA", "GMML", "DiscriminantWhitening")
PART = 20_000  # rows
FEATURES = 50
CLASSES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_200_000)
    parser.add_argument("--memory", type=int, default=400, help="MB that a worker may use")
    parser.add_argument("--in-memory", action="store_true", help="only the fits of one array, as JSON")
    arguments = parser.parse_args()
    if arguments.in_memory:
        print(json.dumps(in_memory(arguments.rows)))
        return
    size = arguments.rows * FEATURES * 8 / 1e6
    print(f"{arguments.rows:,} x {FEATURES}, {size:.0f} MB; two workers of {arguments.memory} MB")
    found = on_a_cluster(arguments.rows, arguments.memory)
    command = [sys.executable, __file__, "--in-memory", "--rows", str(arguments.rows)]
    whole = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print(f"highest memory of a worker: {found['mb']:.0f} MB; of the process with one array: {whole['mb']:.0f} MB\n")
    print("| learner | two workers, s | one array, s | difference |\n|---|---:|---:|---:|")
    for name in LEARNERS:
        ours = np.array(found[name]["metric"])
        theirs = np.array(whole[name]["metric"])
        difference = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
        print(f"| {name} | {found[name]['seconds']:.1f} | {whole[name]['seconds']:.1f} | {difference:.1e} |")


def part(number: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ten overlapping classes and their labels, from the number of the part."""
    centers = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    rng = np.random.default_rng([1, number])
    y = rng.integers(CLASSES, size=rows)
    return centers[y] + 2 * rng.normal(size=(rows, FEATURES)), y


def sizes(rows: int) -> list[int]:
    whole, rest = divmod(rows, PART)
    return [PART] * whole + ([rest] if rest else [])


def on_a_cluster(rows: int, memory: int) -> dict[str, Any]:
    """Fit each learner from parts that the workers draw."""
    import dask.array as da
    from dask.delayed import delayed
    from distributed import Client, LocalCluster

    drawn = [delayed(part, nout=2)(number, size) for number, size in enumerate(sizes(rows))]
    X = da.concatenate(
        [da.from_delayed(x, (size, FEATURES), float) for (x, _), size in zip(drawn, sizes(rows), strict=True)]
    )
    y = da.concatenate([da.from_delayed(own, (size,), int) for (_, own), size in zip(drawn, sizes(rows), strict=True)])
    found: dict[str, Any] = {}
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=f"{memory}MB",
            dashboard_address=None,
            host="127.0.0.1",
            silence_logs=40,  # workers near their limit pause, and log it
        ) as cluster,
        Client(cluster) as client,
    ):
        for name in LEARNERS:
            start = time.perf_counter()
            learner = getattr(nearfar, name)().fit(X, y)
            seconds = time.perf_counter() - start
            found[name] = {"seconds": seconds, "metric": learner.get_mahalanobis_matrix()}
        found["mb"] = max(client.run(peak_mb).values())
    return found


def in_memory(rows: int) -> dict[str, Any]:
    """Fit each learner from one array."""
    drawn = [part(number, size) for number, size in enumerate(sizes(rows))]
    X = np.concatenate([x for x, _ in drawn])
    y = np.concatenate([own for _, own in drawn])
    del drawn
    found: dict[str, Any] = {}
    for name in LEARNERS:
        start = time.perf_counter()
        learner = getattr(nearfar, name)().fit(X, y)
        seconds = time.perf_counter() - start
        found[name] = {"seconds": seconds, "metric": learner.get_mahalanobis_matrix().tolist()}
    return {**found, "mb": peak_mb()}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
