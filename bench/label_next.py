"""How much labels help that `nearfar label-next` chooses, beside as many labels of random items.

    python bench/label_next.py orl.npz clinc150.npz [--seeds 10] [--per-class 1 2 4]

Reads embeddings and labels (`nearfar embed`). Each seed draws up to 3,000 of the items. Labels are asked for in rounds,
one, two and four per class on average. The score is the share of all other items whose nearest labeled item is of their
class. Prints the mean over seeds, and the mean gain over random items with its 95% interval (paired over the seeds).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.stats import t
from threadpoolctl import threadpool_limits

from nearfar.data import Dataset
from nearfar.neighbors.coverage import representatives
from nearfar.neighbors.nearest import nearest
from nearfar.workflows.collected import Collected, collect
from nearfar.workflows.labeling import doubts, nearest_labels

ITEMS = 3000  # of each seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--per-class", nargs="+", type=int, default=[1, 2, 4])
    given = parser.parse_args()
    print("| items | classes | labels | random | representative | gain | doubtful | gain |")
    print("|---|---|---|---|---|---|---|---|")
    with threadpool_limits(1):
        for file in given.files:
            compare(file, given.seeds, given.per_class)


def compare(file: Path, seeds: int, per_class: Sequence[int]) -> None:
    """Print a row for each number of labels."""
    everything = collect(file)
    classes = len(everything.dataset.classes)
    counts = [classes * each for each in per_class]
    scores = np.array([scores_of(everything, seed, counts) for seed in range(seeds)])  # (seeds, ways, counts)
    for place, count in enumerate(counts):
        random, representative, doubtful = scores[:, :, place].T
        cells = [f"{random.mean():.3f}"]
        for found in (representative, doubtful):
            cells += [f"{found.mean():.3f}", gain_text(found - random)]
        print(f"| {file.stem} | {classes} | {count} | {' | '.join(cells)} |", flush=True)


def gain_text(gains: np.ndarray) -> str:
    """Return a mean and its 95% interval."""
    half = t.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / np.sqrt(len(gains))
    return f"{gains.mean():+.3f} ± {half:.3f}"


def scores_of(everything: Collected, seed: int, counts: Sequence[int]) -> list[list[float]]:
    """Return the scores of random, representative and doubtful items, for each number of labels."""
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(len(everything.rows))[: min(ITEMS, round(0.8 * len(everything.rows)))]
    rows = everything.rows[drawn]
    labels = np.array(everything.classes)[drawn]
    distance = everything.distance
    random = rng.permutation(len(rows))
    representative = representatives(rows, counts[-1], distance=distance)
    doubtful = representative[: counts[0]]
    found = []
    for count in counts:
        if count > len(doubtful):
            known = np.where(np.isin(np.arange(len(rows)), doubtful), labels, "")
            items = Collected(Dataset.from_array("drawn", rows, known), rows, distance)
            weights = doubts(nearest_labels(items, known)[1])
            new = representatives(rows, count - len(doubtful), chosen=doubtful, weights=weights, distance=distance)
            doubtful = np.concatenate([doubtful, new])
        found.append(
            [accuracy(rows, labels, ask, distance) for ask in (random[:count], representative[:count], doubtful)]
        )
    return [list(column) for column in zip(*found, strict=True)]


def accuracy(rows: np.ndarray, labels: np.ndarray, asked: np.ndarray, distance: str) -> float:
    """Return the share of items without a label whose nearest labeled item is of their class."""
    others = np.setdiff1d(np.arange(len(rows)), asked)
    near = nearest(rows[others], rows[asked], 1, distance=distance)[1][:, 0]
    return float(np.mean(labels[asked][near] == labels[others]))


if __name__ == "__main__":
    main()
