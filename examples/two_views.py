"""Two views of the same real images, one of which may be missing: 8 x 8 digits cut into an upper and a lower half.
================================================================================================================

    python examples/two_views.py

A multi-modal autoencoder learns one code of both halves. In the test the nearest neighbors of a code vote for the
digit: with both halves, with the upper one alone, and with the lower one alone. Three fits are compared: without
labels; without labels, but with halves hidden at random in training; and with hidden halves and labels. The last lines
say how well a missing half is made from the other. The script takes about 20 seconds on one core.
"""

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
    "max_iter": 40,
    "pretrain": 5,
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


if __name__ == "__main__":
    main()
