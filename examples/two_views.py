"""Learn one code from two views, even if one is missing
=====================================================

    python examples/two_views.py [FIGURE.png]

A multi-modal autoencoder learns one code for both halves. The nearest neighbors of a code then vote for the digit: with
both halves, with the upper half alone, and with the lower half alone. The script compares three ways to train: without
labels; without labels, but with halves hidden at random; and with hidden halves and labels. Hiding halves is what makes
a single half recognizable. The last lines show how well the autoencoder fills in a missing half. The script takes about
10 seconds on one core. With a file name, it also draws a figure (this needs matplotlib).
"""

import sys

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from nearfar import MultiModalAutoencoder

IMAGES, DIGITS = load_digits(return_X_y=True)
HALVES = [IMAGES[:, :32] / 16, IMAGES[:, 32:] / 16]
SETTINGS = {
    "n_components": 16,
    "hidden": (128,),
    "standardize": False,  # every pixel has the same unit
    "learning_rate": 3e-3,
    "max_iter": 15,
    "pretrain": 3,
    "random_state": 0,
}
FITS = {
    "no labels": {"lam1": 0, "lam2": 0},
    "no labels, hidden halves": {"lam1": 0, "lam2": 0, "hide": 0.4},
    "labels, hidden halves": {"hide": 0.4},
}


def accuracy(learner, views, queries, y, expected):
    """Return how often three nearest neighbors among the codes of `views` name the digit of `queries`."""
    return KNeighborsClassifier(3).fit(learner.transform(views), y).score(learner.transform(queries), expected)


def main() -> None:
    train, test = train_test_split(np.arange(len(DIGITS)), test_size=0.4, random_state=0, stratify=DIGITS)
    known, new = [half[train] for half in HALVES], [half[test] for half in HALVES]
    queries = {"both": new, "upper": [new[0], None], "lower": [None, new[1]]}
    print(f"3-NN accuracy on {len(test)} digits\n{'':26}" + "".join(f"{name:>8}" for name in queries))
    for name, settings in FITS.items():
        learner = MultiModalAutoencoder(**SETTINGS, **settings).fit(known, DIGITS[train])
        scores = [accuracy(learner, known, half, DIGITS[train], DIGITS[test]) for half in queries.values()]
        print(f"{name:26}" + "".join(f"{score:8.3f}" for score in scores))

    print("\nMean squared error of a lower half made from the upper one, in gray levels of 0 to 1 (last fit)")
    made = learner.reconstruct(queries["upper"])[1]
    print(f"{'made from the upper half':26}{np.mean((made - new[1]) ** 2):8.4f}")
    print(f"{'mean lower half':26}{np.mean((known[1].mean(axis=0) - new[1]) ** 2):8.4f}")
    if len(sys.argv) > 1:
        draw(new, made, DIGITS[test], sys.argv[1])


def draw(views, made, digits, path):
    """Draw an image of each digit: its upper half, the same with the lower half filled in, and the whole image."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.0), layout="constrained")
    panels = figure.subplots(3, 10)
    chosen = [np.flatnonzero(digits == digit)[0] for digit in range(10)]
    hidden = np.zeros_like(made)
    rows = {"given: the upper half": hidden, "the lower half filled in": made, "the whole digit": views[1]}
    for axes, (name, lower) in zip(panels, rows.items(), strict=True):
        for panel, k in zip(axes, chosen, strict=True):
            whole = np.concatenate([views[0][k], lower[k]])
            panel.imshow(whole.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
            panel.axhline(3.5, color="tab:orange", linewidth=1)
            panel.set_xticks([])
            panel.set_yticks([])
        axes[0].set_title(name, loc="left", fontsize=10)
    figure.savefig(path)


if __name__ == "__main__":
    main()
