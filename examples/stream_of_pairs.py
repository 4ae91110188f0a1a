"""Follow a stream of pairs with OnlineITML
========================================

    python examples/stream_of_pairs.py [FIGURE.png]

Pairs of handwritten digits, similar or not, arrive a hundred at a time. OnlineITML updates its metric with each
hundred, at a fixed cost per pair, and keeps none of the pairs. ITML is refitted to all pairs so far. Both are scored by
3 nearest neighbors on digits that are in no pair. The script takes a few seconds. With a file name, it also draws a
figure (this needs matplotlib).
"""

import sys
from time import process_time

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from nearfar import ITML, OnlineITML

PACKET = 100


def world(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Digits and their kinds, pairs among the first 900 as they arrive, and their labels: half of them alike."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    X = X[:, X.std(axis=0) > 0.5] / 16 + 0.01 * rng.normal(size=(len(X), int((X.std(axis=0) > 0.5).sum())))
    pairs = rng.permutation(np.stack(np.triu_indices(900, 1), axis=1))[:20_000]
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    alike, other = pairs[same][:1500], pairs[~same][:1500]
    order = rng.permutation(3000)
    return X, y, np.r_[alike, other][order], np.repeat([1, -1], 1500)[order]


def accuracy(learner, X: np.ndarray, y: np.ndarray) -> float:
    Z = learner.transform(X) if learner is not None else X
    # few labeled digits: the metric has to help
    return KNeighborsClassifier(3).fit(Z[:200], y[:200]).score(Z[900:], y[900:])


def follow(packets: tuple[int, ...] = (1, 3, 10, 30)) -> list[tuple[int, float, float, float, float]]:
    """(pairs seen, accuracy online, seconds so far, accuracy of ITML on all, its seconds) at some packets."""
    X, y, pairs, labels = world()
    online, spent, rows = OnlineITML(), 0.0, []
    for k in range(1, max(packets) + 1):
        now, start = slice((k - 1) * PACKET, k * PACKET), process_time()
        online.partial_fit(X[:900], pairs=pairs[now], pair_labels=labels[now])
        spent += process_time() - start
        if k in packets:
            seen, start = slice(0, k * PACKET), process_time()
            offline = ITML().fit(X[:900], pairs=pairs[seen], pair_labels=labels[seen])
            once = process_time() - start
            rows.append((k * PACKET, accuracy(online, X, y), spent, accuracy(offline, X, y), once))
    return rows


def main() -> None:
    X, y, *_ = world()
    print(f"3-NN accuracy before any pair: {accuracy(None, X, y):.3f}")
    print("pairs    OnlineITML  seconds in all    ITML on all pairs  seconds")
    rows = list(follow())
    for n, online, spent, offline, once in rows:
        print(f"{n:5}{online:14.3f}{spent:16.3f}{offline:21.3f}{once:9.3f}")
    if len(sys.argv) > 1:
        draw(rows, sys.argv[1])


def draw(rows: list[tuple[int, float, float, float, float]], path: str) -> None:
    """Draw the result into a file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    pairs = [row[0] for row in rows]
    axes.plot(pairs, [row[1] for row in rows], "o-", label="OnlineITML, pair by pair")
    axes.plot(pairs, [row[3] for row in rows], "s--", label="ITML on all pairs so far")
    axes.set(xlabel="pairs", ylabel="3-NN accuracy")
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
