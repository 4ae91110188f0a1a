"""Closed forms and fast learners on embeddings: what half of the classes teach about the other half.

    python bench/unseen_classes.py embeddings.npz study.jsonl            continues an interrupted study
    python bench/unseen_classes.py embeddings.npz study.jsonl --read     only the table
    python bench/unseen_classes.py embeddings.npz study.jsonl --only GMML RCA --splits 3

The `.npz` file holds `embeddings` (n, d) and `labels` (n,), as `nearfar embed` writes it. In each split, drawn by its
number, half of the classes are for learning and the rest are the test. Rows are scaled to unit length, centered on the
mean of the training rows, and projected to their first principal components (`--components`), for all learners alike;
"without a learner" is the cosine of the embeddings before all of this. A learner's setting is the one of its list in
`SETTINGS` with the best MAP@R on half of the training classes after learning from the other half; then it learns from
all training classes. Scores are by the cosine of test rows among each other. Differences to whitening are paired over
the splits, with half of the 95% t-interval; the splits share classes, so that the intervals are too narrow. Each line
of the results is one learner on one split; seconds are CPU time of the last fit, on one thread.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student
from threadpoolctl import threadpool_limits

import nearfar
from nearfar.evaluation import evaluate

Rows = NDArray[np.float64]
PLAIN = "without a learner"
CENTERED = "centered"
WHITENING = "DiscriminantWhitening"
FEW = [{"n_components": 20}, {"n_components": 40}, {"n_components": 80}]
SEED = {"random_state": 0}
SETTINGS: dict[str, list[dict[str, Any]]] = {
    WHITENING: [{}, {"emphasis": 1.0}, {"emphasis": 8.0}, {"shrinkage": 0.2}],
    "CovarianceMetric": [{}, {"pooled": True}, {"shrinkage": 0.5}, {"pooled": True, "shrinkage": 0.5}],
    "RCA": [{}, {"shrinkage": 0.1}, {"shrinkage": 0.5}],
    "DCA": [{}, {"n_components": 10}],
    "HighDimensionalDCA": [{}, *FEW],
    "FisherMetric": [{}, *FEW],
    "LFDA": [{}, *FEW],
    "FISHMML": [{}, *FEW],
    "GMML": [{}, {"t": 0.3}, {"t": 0.1}, {"t": 0.3, "reg": 1.0}],
    "LowRankGMML": [{}, *FEW],
    "InformationGeometryMetric": [{}, {"shrinkage": 0.1}, {"shrinkage": 0.5}],
    "SideInformationMetric": [{}],
    "LayeredGMML": [{}, {"t": 0.3}, {"t": 0.3, "reg": 1.0}],
    "MMC": [SEED, {"floor": 0.9, **SEED}],
    "ITML": [SEED, {"gamma": 0.1, **SEED}],
    "LSML": [SEED, {"gamma": 0.1, **SEED}],
    "SDML": [SEED, {"sparsity": 0.1, **SEED}],
    "AML": [SEED],
    "FastNCA": [{"reg": 1.0, **SEED}, {"n_components": 40, **SEED}],
    "SCML": [SEED],
    "LMNN": [SEED, {"regularization": 0.9, **SEED}],
}


class Split(NamedTuple):
    """Rows for learning and for the test, with their labels."""

    train: Rows
    known: NDArray[Any]
    test: Rows
    asked: NDArray[Any]


def split(X: Rows, y: NDArray[Any], number: int) -> Split:
    """Half of the classes against the others, drawn by number."""
    classes = np.random.default_rng(number).permutation(np.unique(y))
    learned = np.isin(y, classes[: len(classes) // 2])
    return Split(X[learned], y[learned], X[~learned], y[~learned])


def projected(part: Split, components: int) -> Split:
    """Rows centered on the training mean, in the training rows' first principal components."""
    mean = part.train.mean(axis=0)
    C = part.train - mean
    V = np.linalg.eigh(C.T @ C)[1][:, ::-1][:, :components]
    return part._replace(train=C @ V, test=(part.test - mean) @ V)


def scores(rows: Rows, y: NDArray[Any]) -> dict[str, float]:
    found = evaluate(rows, y, clustering=False)
    return {"map_at_r": found.map_at_r, "recall": found.recall_at[1]}


def learned(name: str, settings: dict[str, Any], part: Split) -> tuple[dict[str, float], float]:
    """The scores on the test rows of a split, and the CPU seconds of the fit."""
    learner = getattr(nearfar, name)(**settings)
    start = process_time()
    learner.fit(part.train, part.known)
    seconds = process_time() - start
    return scores(learner.transform(part.test), part.asked), seconds


def measured(name: str, part: Split, components: int, number: int) -> dict[str, Any]:
    """One line of the results."""
    if name == PLAIN:
        return scores(part.test, part.asked)
    whole = projected(part, components)
    if name == CENTERED:
        return scores(whole.test, whole.asked)
    choices = SETTINGS[name]
    best = 0
    if len(choices) > 1:
        inner = projected(split(part.train, part.known, number), components)
        best = int(np.argmax([learned(name, settings, inner)[0]["map_at_r"] for settings in choices]))
    found, seconds = learned(name, choices[best], whole)
    return {**found, "seconds": seconds, "settings": choices[best]}


def run(arguments: argparse.Namespace) -> None:
    """Measure what the results do not hold yet, and add it line by line."""
    with np.load(arguments.embeddings) as file:
        X = file["embeddings"].astype(np.float64)
        y = file["labels"]
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    names = arguments.only or [PLAIN, CENTERED, *SETTINGS]
    done = {(line["split"], line["name"]) for line in read(arguments.results)}
    for number in range(arguments.splits):
        part = split(X, y, number)
        for name in names:
            if (number, name) in done:
                continue
            try:
                found = measured(name, part, arguments.components, number)
            except (ValueError, np.linalg.LinAlgError) as error:
                found = {"error": str(error).splitlines()[0]}
            with arguments.results.open("a") as file:
                file.write(json.dumps({"split": number, "name": name, **found}) + "\n")


def read(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if line["name"] == "as they are":  # the former name of the row
            line["name"] = PLAIN
    return lines


def table(lines: list[dict[str, Any]]) -> str:
    """Means over the splits, and differences to whitening on the same splits."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for line in lines:
        if "map_at_r" in line:
            found.setdefault(line["name"], {})[line["split"]] = line
    rows = []
    for name, own in found.items():
        both = sorted(own.keys() & found.get(WHITENING, {}).keys())
        cells = [f"`{name}`" if name in SETTINGS else name]
        for score in ("map_at_r", "recall"):
            cells.append(f"{np.mean([line[score] for line in own.values()]):.3f}")
            gaps = np.array([own[k][score] - found[WHITENING][k][score] for k in both])
            cells.append(
                "" if name == WHITENING or len(gaps) < 2 else f"{gaps.mean():+.3f} ± {half_interval(gaps):.3f}"
            )
        times = [line["seconds"] for line in own.values() if "seconds" in line]
        cells.append(f"{np.median(times):.2g} s" if times else "-")
        if len(own) < max(len(other) for other in found.values()):
            cells[0] += f" ({len(own)} splits)"
        rows.append(cells)
    rows.sort(key=lambda cells: -float(cells[1]))
    head = ["", "MAP@R", "against whitening", "Recall@1", "against whitening", "fit"]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---", *["---:"] * 5], *rows])


def half_interval(gaps: Rows) -> float:
    """Half of the 95% t-interval of the mean."""
    return float(student.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("embeddings", type=Path, help=".npz with embeddings and labels")
    parser.add_argument("results", type=Path, help="one JSON line for each learner on a split")
    parser.add_argument("--only", nargs="+", choices=[PLAIN, CENTERED, *SETTINGS], metavar="LEARNER")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--components", type=int, default=128, help="principal components that learners see")
    parser.add_argument("--read", action="store_true", help="only print what the results hold")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of singular scatters, and of searches that stop early
    if not arguments.read:
        run(arguments)
    print(table(read(arguments.results)))


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
