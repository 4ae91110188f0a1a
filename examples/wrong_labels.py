"""Find wrong labels by the nearest pairs
======================================

    python examples/wrong_labels.py [FIGURE.png]

If two images are nearly the same but have different labels, one of the labels is probably wrong. This script replaces a
tenth of the labels of handwritten digits. An index then lists the nearest of all pairs, exactly, and you look first at
those with two labels. With embeddings of a network instead of pixels, this finds wrong labels among photos:
`nearfar duplicates photos.index` marks such pairs with a star. The script takes a second or two. With a file name, it
also draws a figure (this needs matplotlib).
"""

import sys

import numpy as np
from sklearn.datasets import load_digits

from nearfar.index import Index


def mislabeled(share: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels of which some are wrong, and which."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    wrong = rng.random(len(y)) < share
    return X, np.where(wrong, (y + rng.integers(1, 10, len(y))) % 10, y), wrong


def looked_at(counts: tuple[int, ...] = (50, 100, 200, 400)) -> list[tuple[int, float, float]]:
    """Pairs looked at, the share of them that hold a wrong label, and the share of all wrong labels among them."""
    X, labels, wrong = mislabeled()
    pairs = Index(X, labels=labels).closest(20_000)
    crossing = labels[pairs.i] != labels[pairs.j]
    i, j = pairs.i[crossing], pairs.j[crossing]
    rows = []
    for n in counts:
        seen = np.unique(np.r_[i[:n], j[:n]])
        rows.append((n, float((wrong[i[:n]] | wrong[j[:n]]).mean()), float(wrong[seen].sum() / wrong.sum())))
    return rows


def main() -> None:
    print(f"{mislabeled()[2].mean():.0%} of the labels are wrong\n")
    print("pairs looked at   hold a wrong label   of all wrong labels")
    rows = looked_at()
    for n, right, share in rows:
        print(f"{n:15}{right:21.0%}{share:22.0%}")
    if len(sys.argv) > 1:
        draw(rows, sys.argv[1])


def draw(rows: list[tuple[int, float, float]], path: str) -> None:
    """Draw the result into a file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot([row[0] for row in rows], [row[1] for row in rows], "o-", label="hold a wrong label")
    axes.plot([row[0] for row in rows], [row[2] for row in rows], "s-", label="of all wrong labels")
    axes.set(xlabel="pairs looked at", ylabel="share", ylim=(0, 1.02))
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
