"""k-means of embeddings for NMI and AMI: CPU time beside all neighbor scores, inertia beside scikit-learn's KMeans.

    python bench/clustering.py                          six tables of some thousand rows (about two minutes)
    python bench/clustering.py --only 60000x512x12000x0.45
    python bench/clustering.py --repeat 5 --starts 10

A table is rows x dimensions x classes x distance of the class centers, in units of the noise. On one thread. For each
table and in turn, as often as asked: all neighbor scores (Recall@1, 2, 4, 8, precision, R-precision, MAP@R and MRR, as
`evaluate` computes them), the clustering as `evaluate` does it, and scikit-learn's KMeans with some starts of at most
25 steps, on the same unit rows. Times are the least of the runs, in seconds of CPU. `share` is the clustering over the
neighbor scores, at most 2; `inertia` that of nearfar over the best of scikit-learn's starts, at most 1.005.
"""

from __future__ import annotations

import argparse
from time import process_time

import numpy as np
import sklearn
from evaluation import data
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_info, threadpool_limits

from nearfar.evaluation import cluster, retrieve

TABLES = (
    "8000x128x1600x0.45",
    "8000x128x1600x1.5",
    "8000x128x400x0.5",
    "8000x128x100x0.3",
    "8000x128x10x0.15",
    "4000x64x1000x0.5",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=TABLES, metavar="TABLE")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--starts", type=int, default=3, help="of scikit-learn; 0 leaves it out")
    args = parser.parse_args()
    print(f"numpy {np.__version__}, scikit-learn {sklearn.__version__}")
    for pool in threadpool_info():
        kernel = pool.get("architecture", "")
        print(f"{pool['internal_api']} {pool['version']} {kernel}, {pool['num_threads']} thread(s)")
    print("\n| table | neighbor scores, s | clustering, s | share | KMeans, s | KMeans / ours | inertia |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for table in args.only:
        n, d, classes, signal = table.split("x")
        print(row(table, *data(int(n), int(d), int(classes), float(signal)), args), flush=True)


def row(table: str, x: np.ndarray, y: np.ndarray, args: argparse.Namespace) -> str:
    """A line of the table of results."""
    classes = int(y.max()) + 1
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    scores, ours, theirs = [], [], []
    inertia = np.nan
    for _ in range(args.repeat):
        start = process_time()
        retrieve(x, y, ks=(1, 2, 4, 8))
        scores.append(process_time() - start)
        start = process_time()
        found = cluster(x, classes)
        ours.append(process_time() - start)
        if args.starts:
            start = process_time()
            inertia = KMeans(classes, n_init=args.starts, max_iter=25, random_state=0).fit(unit).inertia_
            theirs.append(process_time() - start)
    cells = [table, f"{min(scores):.2f}", f"{min(ours):.2f}", f"{min(ours) / min(scores):.2f}"]
    if theirs:
        cells += [f"{min(theirs):.2f}", f"{min(theirs) / min(ours):.1f}", f"{found.inertia / inertia:.4f}"]
    else:
        cells += ["-", "-", "-"]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
