"""AutoMetric beside the Euclidean distance of standardized columns, and beside each learner that it chooses from.

    python bench/auto_metric.py                       four tables of scikit-learn
    python bench/auto_metric.py --data FOLDER         and every CSV table of FOLDER (class last)
    python bench/auto_metric.py --only iris wine      some of them
    python bench/auto_metric.py --new-classes --data FOLDER --label label --splits 3
                                                      classes that are not learned, of the CSV tables of FOLDER
    python bench/auto_metric.py --quick               a smoke run on one small table

For each table and split, half of the rows of every class are for learning, and the others for the test. The score is
the accuracy of 3 nearest neighbors on the test half, in points, less that of the Euclidean distance of the same
standardized columns: mean and standard error over the splits. A table has at most 1000 rows, and no class of fewer than
six. What is learned, standardized and chosen comes from the learning half only.

With `--new-classes`, half of the classes are for learning, the rows of the others search each other, and the score is
MAP@R, in hundredths. Columns may have words, dates and missing cells, which `TableEncoder` encodes.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from classical import tables
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

import nearfar
from nearfar.estimators import TableEncoder
from nearfar.estimators.choice.auto_metric import CANDIDATES, FEWEST_CHOOSING_CLASSES
from nearfar.evaluation import map_at_r

ROWS = 1000
FEWEST = 6  # rows of a class


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of CSV tables (also .gz) with a header")
    parser.add_argument("--label", help="the label's column; default: the last")
    parser.add_argument("--only", nargs="+", help="names of tables")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="a smoke run on one small table")
    parser.add_argument("--new-classes", action="store_true", help="learn from half of the classes, score the others")
    arguments = parser.parse_args()
    if arguments.new_classes:
        compare_on_new_classes(arguments)
        return
    print(f"{'table':16} Euclidean  AutoMetric        {'  '.join(f'{name[:10]:>10}' for name in CANDIDATES)}  chosen")
    gains = []
    for name, (X, y) in tables(arguments).items():
        if arguments.only and name not in arguments.only:
            continue
        found, chosen = measured(X, y, 2 if arguments.quick else arguments.splits)
        plain = found.pop("Euclidean")
        gains.append(np.mean(found["AutoMetric"] - plain))
        print(line(name, plain, found, chosen), flush=True)
    print(f"mean gain of AutoMetric: {np.mean(gains):+.2f} points on {len(gains)} tables")


def line(name: str, plain: np.ndarray, found: dict[str, np.ndarray], chosen: Counter[str]) -> str:
    """One line: the accuracy of the plain distance, the gains of all others, and how often each was chosen."""
    gain = found["AutoMetric"] - plain
    error = gain.std(ddof=1) / len(gain) ** 0.5
    others = "  ".join(f"{np.mean(found[other] - plain):+10.1f}" for other in CANDIDATES)
    often = ", ".join(f"{other} {count}" for other, count in chosen.most_common())
    return f"{name:16} {plain.mean():9.1f}  {gain.mean():+10.1f} +- {error:3.1f}  {others}  {often}"


def measured(X: np.ndarray, y: np.ndarray, splits: int) -> tuple[dict[str, np.ndarray], Counter[str]]:
    """The accuracy of each learner on every split, in points, and how often AutoMetric chose which."""
    y = np.unique(y, return_inverse=True)[1]
    kept = np.bincount(y)[y] >= FEWEST
    X = X[kept]
    y = y[kept]
    found: dict[str, list[float]] = {"Euclidean": [], "AutoMetric": [], **{name: [] for name in CANDIDATES}}
    chosen: Counter[str] = Counter()
    for seed in range(splits):
        A, a = X, y
        if len(A) > ROWS:
            some = next(StratifiedShuffleSplit(1, train_size=ROWS, random_state=seed).split(A, a))[0]
            A, a = A[some], a[some]
        train, test = next(StratifiedShuffleSplit(1, test_size=0.5, random_state=seed).split(A, a))
        scaler = StandardScaler().fit(A[train])
        rows, others = scaler.transform(A[train]), scaler.transform(A[test])
        for name, scores in found.items():
            Z, W = rows, others
            if name != "Euclidean":
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    learner = getattr(nearfar, name)().fit(rows, a[train])
                Z, W = learner.transform(rows), learner.transform(others)
            if name == "AutoMetric":
                chosen[learner.chosen_] += 1
            scores.append(100 * KNeighborsClassifier(3).fit(Z, a[train]).score(W, a[test]))
    return {name: np.array(scores) for name, scores in found.items()}, chosen


def compare_on_new_classes(arguments: argparse.Namespace) -> None:
    """Print MAP@R on new classes of the Euclidean distance, AutoMetric and GMML(t=0.1), for every table and split."""
    print(f"{'table':16} classes  Euclidean  AutoMetric  GMML(t=0.1)  chosen")
    gains: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for path in sorted(arguments.data.glob("*.csv*")):
        if arguments.only and path.name.partition(".")[0] not in arguments.only:
            continue
        frame = pd.read_csv(path)
        label = arguments.label or frame.columns[-1]
        y = np.unique(frame.pop(label).astype(str), return_inverse=True)[1]
        for seed in range(arguments.splits):
            order = np.random.default_rng(seed).permutation(y.max() + 1)
            learned = np.isin(y, order[: len(order) // 2])
            encoder = TableEncoder().fit(frame[learned], y[learned])
            scaler = StandardScaler().fit(encoder.transform(frame[learned]))
            rows, others = (scaler.transform(encoder.transform(frame[part])) for part in (learned, ~learned))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                auto = nearfar.AutoMetric(hold_out="classes").fit(rows, y[learned])
                gmml = nearfar.GMML(t=0.1).fit(rows, y[learned])
            plain, *scores = (
                100 * map_at_r(Z, y[~learned], distance="euclidean")
                for Z in (others, auto.transform(others), gmml.transform(others))
            )
            count = len(order) // 2
            gains[count >= FEWEST_CHOOSING_CLASSES].append((scores[0] - plain, scores[1] - plain))
            line = f"{path.name.partition('.')[0]:16} {count:7}  {plain:9.1f}  {scores[0] - plain:+10.1f}"
            print(f"{line}  {scores[1] - plain:+11.1f}  {auto.chosen_}", flush=True)
    for many, found in gains.items():
        if found:
            name = "at least" if many else "fewer than"
            means = ", ".join(f"{gain:+.1f}" for gain in np.mean(found, axis=0))
            least = ", ".join(f"{gain:+.1f}" for gain in np.min(found, axis=0))
            name = f"{name} {FEWEST_CHOOSING_CLASSES} classes to learn from"
            print(f"{name}, {len(found)} splits: means {means}; least {least}")


if __name__ == "__main__":
    main()
