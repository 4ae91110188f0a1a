"""How well queries are answered while an index is upgraded to a new model: from mapped vectors to embedded ones.

python bench/upgrade_recall.py

The old model is a projection of digits onto six principal components, the new one a learner on random features. Queries
are held out, and compared with all others, of which a growing share is embedded by the new model.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from nearfar import RCA
from nearfar.evaluation import recall_at_k
from nearfar.index.vector_map import fit_map

QUERIES = 397
COMPONENTS = 6
FEATURES = 256
SAMPLE = 400  # items to which the map is fitted
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def main() -> None:
    """Print Recall@1 for each share of items that are embedded."""
    rng = np.random.default_rng(0)
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(X))
    X = X[order] / 16
    y = y[order]
    n = len(X) - QUERIES
    centered = X - X[:n].mean(axis=0)
    old = centered @ np.linalg.svd(centered[:n], full_matrices=False)[2][:COMPONENTS].T
    features = np.maximum(X @ rng.normal(size=(X.shape[1], FEATURES)), 0)
    new = np.asarray(RCA(n_components=32).fit(features[:n], y[:n]).transform(features))

    def recall(queries: np.ndarray, gallery: np.ndarray) -> float:
        return recall_at_k(queries, y[n:], 1, gallery=gallery, gallery_labels=y[:n], distance="cosine")

    sample = rng.choice(n, SAMPLE, replace=False)
    found = fit_map(old[sample], new[sample], old_distance="cosine", new_distance="cosine")
    unit = new / np.linalg.norm(new, axis=1, keepdims=True)
    print(f"cosine of mapped vectors to those of the new model: {found.similarity:.3f}")
    print(f"old model: {recall(old[n:], old[:n]):.3f}")
    embedded_first = rng.permutation(n)
    for share in SHARES:
        vectors = found.mapped(old[:n])
        there = embedded_first[: int(share * n)]
        vectors[there] = unit[there]
        print(f"{share:.0%} embedded by the new model: {recall(unit[n:], vectors):.3f}")


if __name__ == "__main__":
    main()
