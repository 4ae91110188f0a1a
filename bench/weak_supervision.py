"""Clusters from pairs, and regression: k-means after learning from 200 pairs, and MLKR beside plain neighbors.

    python bench/weak_supervision.py                       tables of scikit-learn
    python bench/weak_supervision.py --data FOLDER         and ecoli and segment, if FOLDER has them as CSV tables
    python bench/weak_supervision.py --quick               a smoke run

Clusters: adjusted Rand index of k-means on standardized rows, with as many clusters as classes, mean of five draws of
200 random pairs, at most 600 rows. Regression: R^2 in five folds, of the kernel regression of MLKR and of five
neighbors.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from classical import Table, tables
from sklearn.cluster import KMeans
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.metrics import adjusted_rand_score, r2_score
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler

from nearfar import ITML, MLKR, MMC, RCA

TABLES = ("iris", "wine", "breast cancer", "ecoli", "segment")
LEARNERS = {"ITML": ITML(), "RCA": RCA(), "MMC": MMC(), "MMC(floor=0)": MMC(floor=0)}
MOST_ROWS = 600
PAIRS = 200


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of CSV tables (also .gz) with a header")
    parser.add_argument("--label", help="the label's column; default: the last")
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    arguments = parser.parse_args()
    draws = 1 if arguments.quick else 5
    print("| table | Euclidean | " + " | ".join(LEARNERS) + " |\n" + "|---|" + "---:|" * (len(LEARNERS) + 1))
    for name, table in tables(arguments).items():
        if arguments.quick or name in TABLES:
            print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in clusters(*table, draws)) + " |", flush=True)
    print("\n| table | five neighbors | reg | own regression | five neighbors of it |\n|---|---:|---:|---:|---:|")
    for name, (X, y) in targets(arguments.quick).items():
        for reg in (0.0, 0.01):
            plain, own, near = regression(X, y, reg)
            print(f"| {name} | {plain:.2f} | {reg:g} | {own:.2f} | {near:.2f} |", flush=True)


def clusters(X: np.ndarray, y: np.ndarray, draws: int) -> np.ndarray:
    """Mean index of the plain rows and of each learner."""
    kept = np.random.default_rng(0).permutation(len(X))[:MOST_ROWS]
    X = StandardScaler().fit_transform(X[kept][:, X[kept].std(axis=0) > 0])
    y = np.unique(y[kept], return_inverse=True)[1]
    found = []
    for seed in range(draws):
        pairs = np.random.default_rng(seed).integers(len(X), size=(2 * PAIRS, 2))
        pairs = pairs[pairs[:, 0] != pairs[:, 1]][:PAIRS]
        signs = np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 1, -1)
        rows = [X, *(one.fit(X, pairs=pairs, pair_labels=signs).transform(X) for one in LEARNERS.values())]
        found.append([adjusted_rand_score(y, clustered(Z, int(y.max()) + 1)) for Z in rows])
    return np.mean(found, axis=0)


def clustered(Z: np.ndarray, k: int) -> np.ndarray:
    """Cluster of each row."""
    return KMeans(k, n_init=10, random_state=0).fit_predict(Z)


def targets(quick: bool) -> dict[str, Table]:
    """Tables of numbers to predict."""
    if quick:
        return {"Friedman, 60 rows": make_friedman1(60, noise=1, random_state=0)}
    return {
        "diabetes": load_diabetes(return_X_y=True),
        "Friedman": make_friedman1(400, noise=1, random_state=0),
    }


def regression(X: np.ndarray, y: np.ndarray, reg: float) -> np.ndarray:
    """R^2 of five plain neighbors, of the regression of MLKR with two components, and of five neighbors after it."""
    found = []
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        scaler = StandardScaler().fit(X[train])
        A, B = scaler.transform(X[train]), scaler.transform(X[test])
        learner = MLKR(2, reg=reg).fit(A, y[train])
        Z = learner.transform(A)
        z = learner.transform(B)
        d2 = np.sum((z[:, None] - Z) ** 2, axis=-1)
        weight = np.exp(d2.min(axis=1, keepdims=True) - d2)
        guesses = (
            KNeighborsRegressor(5).fit(A, y[train]).predict(B),
            weight @ y[train] / weight.sum(axis=1),
            KNeighborsRegressor(5).fit(Z, y[train]).predict(z),
        )
        found.append([r2_score(y[test], guess) for guess in guesses])
    return np.mean(found, axis=0)


if __name__ == "__main__":
    main()
