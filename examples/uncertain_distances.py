"""How certain is a learned distance?
==================================

    python examples/uncertain_distances.py [FIGURE.png]

BayesianPairMetric learns a distribution over metrics from pairs of iris flowers that are of one species or not. The
more pairs it sees, the narrower the intervals of its distances become, and the better it predicts whether two flowers
are of one species. BayesianNCA learns such a distribution from labels. The script takes a second or two. With a file
name, it also draws a figure (this needs matplotlib).
"""

import sys

import numpy as np
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss

from nearfar import BayesianNCA, BayesianPairMetric


def split(n_pairs: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The flowers, `n_pairs` pairs to learn from, 1000 others, and a matrix of which flowers are of one species."""
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    pairs = np.random.default_rng(seed).permutation(np.stack(np.triu_indices(len(X), 1), axis=1))
    return X, pairs[:n_pairs], pairs[-1000:], np.where(y[:, None] == y, 1, -1)


def width(learner, pairs: np.ndarray, X: np.ndarray) -> float:
    """Mean width of the 90 % intervals of squared distances, over the distances themselves."""
    law = learner.distance_distribution(pairs, X)
    low, high = law.interval(0.9)
    return float(np.mean((high - low) / law.mean()))


def from_pairs(counts: tuple[int, ...] = (20, 80, 320, 1280)) -> list[tuple[int, float, float]]:
    """(pairs, relative width of the intervals, log loss on other pairs) for a growing number of pairs."""
    rows = []
    for n in counts:
        X, known, others, same = split(n)
        learner = BayesianPairMetric().fit(X, pairs=known, pair_labels=same[tuple(known.T)])
        loss = log_loss(same[tuple(others.T)] > 0, learner.pair_probability(others, X))
        rows.append((n, width(learner, others, X), loss))
    return rows


def main() -> None:
    print("BayesianPairMetric\npairs   width of 90 % intervals / distance   log loss of P(one species)")
    rows = list(from_pairs())
    for n, relative, loss in rows:
        print(f"{n:5}{relative:25.2f}{loss:33.3f}")
    if len(sys.argv) > 1:
        draw(rows, sys.argv[1])

    X, y = load_iris(return_X_y=True)
    learner = BayesianNCA(n_neighbors=10).fit(X, y)
    pairs = np.array([[0, 1], [0, 60], [60, 110]])
    law = learner.distance_distribution(pairs, X)
    low, high = law.interval(0.9)
    drawn = learner.sample_metric(2000, random_state=0)
    D = X[pairs[:, 0]] - X[pairs[:, 1]]
    sampled = np.einsum("pd,nde,pe->np", D, drawn, D).std(axis=0)
    print("\nBayesianNCA, squared distances: mean, 90 % interval, deviation, and that of 2000 drawn metrics")
    for k, name in enumerate(("setosa - setosa", "setosa - versicolor", "versicolor - virginica")):
        print(f"{name:24}{law.mean()[k]:9.3f}  [{low[k]:8.3f}, {high[k]:8.3f}]{law.std()[k]:9.3f}{sampled[k]:9.3f}")


def draw(rows: list[tuple[int, float, float]], path: str) -> None:
    """Draw the result into a file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.loglog([row[0] for row in rows], [row[1] for row in rows], "o-")
    axes.set(xlabel="pairs", ylabel="width of the 90 % interval / distance")
    figure.savefig(path)


if __name__ == "__main__":
    main()
