"""All neighbor scores against the bare similarity product they need: CPU time, extra memory, agreement with sorting.

    python bench/evaluation.py                      60,000 x 512, 12,000 classes of 5 (about two minutes)
    python bench/evaluation.py --n 12000            a quick look
    python bench/evaluation.py --n 12000 --classes 20
    python bench/evaluation.py --n 1000000 --d 128 --first 10000    10,000 queries of a million (two minutes)

Single-threaded. The product is float32 in blocks of 1024 rows, of 256 beside a million, and keeps nothing; the scores
are Recall@1, 2, 4, 8, precision, R-precision, MAP@R and MRR over the whole ranking, of raw rows, normalization
included.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import process_time

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info, threadpool_limits

from nearfar.evaluation import Retrieval, retrieve

KS = (1, 2, 4, 8)


def data(n: int, d: int, classes: int, signal: float) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(n) % classes)
    x = rng.standard_normal((n, d), dtype=np.float32)
    x += signal * rng.standard_normal((classes, d), dtype=np.float32)[y]
    return x, y


def bare_product(x: NDArray[np.float32], first: int) -> float:
    """CPU seconds of the first unit rows times all of them, block by block into one buffer."""
    block = max(256, min(1024, 2**26 // len(x)))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    out = np.zeros((block, len(x)), dtype=np.float32)
    start = process_time()
    for i in range(0, first, block):
        rows = unit[i : min(i + block, first)]
        np.matmul(rows, unit.T, out=out[: len(rows)])
    return process_time() - start


def memory_mb(field: str) -> float:
    """VmHWM (peak) or VmRSS of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


def timed(x: NDArray[np.float32], y: NDArray[np.intp], first: int) -> tuple[float, float, Retrieval]:
    """CPU seconds, extra peak memory in MB, scores."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = memory_mb("VmRSS")
    start = process_time()
    if first == len(x):
        found = retrieve(x, y, ks=KS)
    else:
        ids = np.arange(len(x))
        found = retrieve(x[:first], y[:first], gallery=x, gallery_labels=y, ids=ids[:first], gallery_ids=ids, ks=KS)
    return process_time() - start, memory_mb("VmHWM") - before, found


def disagreements(x: NDArray[np.float32], y: NDArray[np.intp], found: Retrieval, queries: int) -> int:
    """Queries whose scores differ from those of a full stable float64 sort."""
    unit = x.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    wrong = 0
    for i in np.random.default_rng(1).choice(len(found.first_rank), queries, replace=False):
        order = np.argsort(-(unit @ unit[i]), kind="stable")
        right = y[order[order != i]] == y[i]
        if not (r := int(right.sum())):
            continue
        precision = np.cumsum(right)[:r] / np.arange(1, r + 1)
        same = np.isclose(found.map_at_r[i], (precision * right[:r]).sum() / r, rtol=1e-12)
        same &= np.isclose(found.r_precision[i], right[:r].mean(), rtol=1e-12)
        same &= found.first_rank[i] == 1 + np.argmax(right)
        same &= all(found.hits[i, c] == right[:k].sum() for c, k in enumerate(KS))
        wrong += not same
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=60_000)
    parser.add_argument("--d", type=int, default=512)
    parser.add_argument("--classes", type=int, help="default: n / 5")
    parser.add_argument("--first", type=int, help="only so many of the rows are queries")
    parser.add_argument("--signal", type=float, default=0.45, help="distance of class centers, in units of the noise")
    parser.add_argument("--queries", type=int, default=200, help="queries checked against a full sort")
    args = parser.parse_args()
    x, y = data(args.n, args.d, args.classes or args.n // 5, args.signal)
    for pool in threadpool_info():
        if pool["user_api"] == "blas":
            print(
                f"{pool['internal_api']} {pool['version']} {pool.get('architecture')}, {pool['num_threads']} thread(s)"
            )
    print(f"{args.n:,} x {args.d}, {y.max() + 1:,} classes")
    first = args.first or args.n
    scores, extra, found = timed(x, y, first)
    product = min(bare_product(x, first), bare_product(x, first))
    print(f"bare product   {product:8.2f} s CPU")
    print(f"all scores     {scores:8.2f} s CPU   ratio {scores / product:.2f} (goal 1.60)   +{extra:.0f} MB (goal 500)")
    rates = [found.found(k).mean() for k in KS]
    print("Recall@1,2,4,8 " + " ".join(f"{rate:.4f}" for rate in rates), end="   ")
    print(f"MAP@R {found.map_at_r.mean():.4f}   MRR {found.reciprocal_rank().mean():.4f}")
    print(f"{disagreements(x, y, found, args.queries)} of {args.queries} queries differ from a full float64 sort")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
