"""What learning from some classes does to embeddings of other classes: with learners, and with layers on top.

    nearfar embed runs/NAME DATA -o embeddings.npz
    python bench/embeddings.py embeddings.npz --seen 5 10 20 40 80 --seeds 5

The embeddings are scaled to unit length. Each seed draws half of the classes for the test. Each method learns from
`--seen` of the others, with its default settings; the table has the mean MAP@R (Recall@1 with `--recall`) on the test
classes by the cosine, and the CPU seconds of the largest fit. "without a learner" is the score of the embeddings.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar import GMML, LFDA, LMNN, NCA, RCA, SCML, LowRankGMML
from nearfar.evaluation import evaluate
from nearfar.train import DeepMetric

LINEAR = {"trunk": "identity", "random_state": 0}
METHODS: dict[str, Callable[[], Any] | None] = {
    "without a learner": None,
    "`GMML()`": GMML,
    "`GMML(t=0.3)`": lambda: GMML(t=0.3),
    "`LowRankGMML()`": LowRankGMML,
    "`LFDA()`": LFDA,
    "`SCML()`": lambda: SCML(random_state=0),
    "`LMNN()`": LMNN,
    "`NCA()`": lambda: NCA(random_state=0),
    "`RCA()`": RCA,
    '`DeepMetric("TripletLoss()", trunk="identity")`': lambda: DeepMetric("TripletLoss()", **LINEAR),
    '`DeepMetric("TripletLoss()")`': lambda: DeepMetric("TripletLoss()", random_state=0),
}


def measure(
    make: Callable[[], Any] | None, X: NDArray[np.float64], y: NDArray[Any], seen: int, seed: int, score: str
) -> tuple[float, float]:
    """Return the score on the test classes, and the CPU seconds of the fit."""
    classes = np.random.default_rng(seed).permutation(np.unique(y))
    tested = np.isin(y, classes[len(classes) // 2 :])
    learned = np.isin(y, classes[: min(seen, len(classes) // 2)])
    rows, seconds = X[tested], 0.0
    if make is not None:
        start = process_time()
        learner = make().fit(X[learned], y[learned])
        seconds = process_time() - start
        rows = learner.transform(rows)
    scores = evaluate(rows, y[tested], clustering=False)
    return (scores.recall_at[1] if score == "recall" else scores.map_at_r), seconds


def table(file: Path, seen: list[int], seeds: int, score: str) -> str:
    with np.load(file) as arrays:
        X = arrays["embeddings"].astype(np.float64)
        y = arrays["labels"]
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    lines = [["classes learned from", *map(str, seen), "CPU"], ["---", *["---:"] * (len(seen) + 1)]]
    for name, make in METHODS.items():
        results = [[measure(make, X, y, count, seed, score) for seed in range(seeds)] for count in seen]
        means = [f"{np.mean([value for value, _ in each]):.3f}" for each in results]
        seconds = float(np.mean([seconds for _, seconds in results[-1]]))
        lines.append([name, *means, "-" if make is None else f"{seconds:.2g} s"])
    head = f"{file.name}: {len(X):,} embeddings of {X.shape[1]} dimensions, {len(np.unique(y))} classes\n"
    return "\n".join([head, *("| " + " | ".join(line) + " |" for line in lines)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help=".npz with embeddings and labels")
    parser.add_argument("--seen", type=int, nargs="+", default=[5, 10, 20, 40, 80])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--recall", action="store_true", help="Recall@1 instead of MAP@R")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of singular scatters, where few classes are learned from
    for file in given.files:
        print(table(file, given.seen, given.seeds, "recall" if given.recall else "map_at_r"), flush=True)


if __name__ == "__main__":
    main()
