"""Learners with their default settings on stress forms of tables: few rows, noise columns, copies, rare classes.

    python bench/stress_forms.py                              four tables of scikit-learn
    python bench/stress_forms.py --data FOLDER                and every CSV table of FOLDER (class last)
    python bench/stress_forms.py --learners LFDA "RCA(shrinkage=0.1)"
    python bench/stress_forms.py --rows 150                   fewer rows where columns of noise or copies are added
    python bench/stress_forms.py --quick                      a smoke run on one small table

Forms of each table: 150 rows; 400 rows with as many columns of noise as columns; and 400 rows with a noisy copy of each
column and as many noisy mixtures of columns. Tables with several classes also have a form of 22 classes, which k-means
makes within the classes: two with up to 120 rows, and 20 with 6. The score is the accuracy of 3 nearest neighbors in
three folds, in points, less that of the Euclidean distance; columns are standardized on the training part. A learner
that has used `--seconds` of CPU on a form has no result on it.
"""

from __future__ import annotations

import argparse
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from classical import Table, tables
from sklearn.cluster import KMeans
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from nearfar.catalog import METHODS
from nearfar.workflows.fitting import make_learner

LEFT_OUT = ("AutoMetric", "PrivilegedMetric", "GrassmannGMML", "CDML", "KernelMCML", "KernelPCCA", "KernelNuSVMMetric")
RARE = 22  # classes, the first two of which are large
MANY_ROWS = 1000  # rows from which a table has enough for rare classes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of CSV tables (also .gz) with a header")
    parser.add_argument("--label", help="the label's column; default: the last")
    parser.add_argument("--learners", nargs="+", help="learners with settings; default: all from labels or pairs")
    parser.add_argument("--rows", type=int, default=400, help="rows of the forms with more columns")
    parser.add_argument("--seconds", type=float, default=12, help="CPU seconds for a learner on a form")
    parser.add_argument("--quick", action="store_true", help="a smoke run on one small table")
    arguments = parser.parse_args()
    learners = arguments.learners or [
        method.name
        for method in METHODS
        if method.kind == "learner" and method.takes not in ("targets", "views") and method.name not in LEFT_OUT
    ]
    if arguments.quick:
        learners = learners[:2]
    found: dict[str, dict[str, float]] = {learner: {} for learner in learners}
    for table, rows in tables(arguments).items():
        for form, (X, y) in forms(*rows, arguments.rows).items():
            parts = [*folds(X, y)]
            plain = float(np.mean([score(None, *part) for part in parts]))
            for learner, gains in found.items():
                reached = limited(learner, parts, arguments.seconds)
                if reached is not None:
                    gains[f"{table}, {form}"] = 100 * (reached - plain)
    print(as_table(found))


def as_table(found: dict[str, dict[str, float]]) -> str:
    """Mean and smallest gain of each learner, the worst first."""
    lines = ["| learner | forms | mean | smallest | on |", "|---|---|---|---|---|"]
    for learner, gains in sorted(found.items(), key=lambda one: np.mean([*one[1].values()] or [0.0])):
        if gains:
            worst = min(gains, key=lambda form: gains[form])
            numbers = f"{np.mean([*gains.values()]):+.1f} | {gains[worst]:+.1f}"
            lines.append(f"| `{learner}` | {len(gains)} | {numbers} | {worst} |")
    return "\n".join(lines)


def forms(X: np.ndarray, y: np.ndarray, rows: int = 400) -> dict[str, Table]:
    """The stress forms of a table; those with more columns have at most so many rows."""
    X = np.asarray(X, dtype=float)
    X = X[:, X.std(axis=0) > 0]
    rng = np.random.default_rng(0)
    found = {"150 rows": drawn(X, y, 150, rng)}
    A, a = drawn(X, y, rows, rng)
    S = StandardScaler().fit_transform(A)
    d = S.shape[1]
    found["noise"] = (np.c_[S, rng.normal(size=S.shape)], a)
    mixed = S @ rng.normal(size=(d, d)) / d**0.5 + 0.05 * rng.normal(size=S.shape)
    found["copies"] = (np.c_[S, S + 0.1 * rng.normal(size=S.shape), mixed], a)
    if len(X) >= MANY_ROWS and len(np.unique(y)) > 2:
        found["rare classes"] = rare(X, y)
    return found


def drawn(X: np.ndarray, y: np.ndarray, n: int, rng: np.random.Generator) -> Table:
    """At most n rows at random, of classes of four rows or more."""
    some = rng.permutation(len(X))[:n]
    codes = np.unique(y[some], return_inverse=True)[1]
    kept = np.bincount(codes)[codes] >= 4
    return X[some][kept], np.unique(codes[kept], return_inverse=True)[1]


def rare(X: np.ndarray, y: np.ndarray) -> Table:
    """Rows of 22 classes, of which 20 have 6 rows."""
    some = np.random.default_rng(1).permutation(len(X))[:3000]
    X, y = X[some], np.unique(y[some], return_inverse=True)[1]
    parts = -(-RARE // (int(y.max()) + 1))
    codes = y * parts
    for c in range(int(y.max()) + 1):
        if parts > 1:
            codes[y == c] += KMeans(parts, n_init=1, random_state=0).fit_predict(X[y == c])
    codes = np.unique(codes, return_inverse=True)[1]
    largest = np.argsort(-np.bincount(codes), kind="stable")[:RARE]
    rows = [np.flatnonzero(codes == c)[: 120 if rank < 2 else 6] for rank, c in enumerate(largest)]
    kept = np.concatenate(rows)
    return X[kept], np.unique(codes[kept], return_inverse=True)[1]


def folds(X: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Three folds: training rows and classes, test rows and classes."""
    for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(X, y):
        scaler = StandardScaler().fit(X[train])
        yield scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test]


def score(learner: Any, A: np.ndarray, a: np.ndarray, B: np.ndarray, b: np.ndarray) -> float:
    """3-NN accuracy after a fit on (A, a)."""
    if learner is not None:
        learner.fit(A, a)
        A, B = learner.transform(A), learner.transform(B)
    return float(KNeighborsClassifier(3).fit(A, a).score(B, b))


def limited(text: str, parts: list[tuple[np.ndarray, ...]], seconds: float) -> float | None:
    """The mean score, or None if the learner cannot be fitted or has used up its time."""
    signal.signal(signal.SIGVTALRM, _end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(np.mean([score(make_learner(text), *part) for part in parts]))
    except (TimeoutError, ValueError, ArithmeticError):
        return None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _end(*_: Any) -> None:
    raise TimeoutError


if __name__ == "__main__":
    main()
