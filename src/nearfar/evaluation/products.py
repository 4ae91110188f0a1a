"""Several photos of one product: a query is compared with products, by their nearest photo or the mean of all photos.

    best    d(q, P) = min_{p in P} d(q, p)
    mean    d(q, P) = (1 / |P|) sum_{p in P} d(q, p)

If each embedding searches all others, a query is left out of its own product. If that product has no other photo, the
query does not search it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..labels import as_array, class_numbers
from ..numerics.distances import distance_blocks
from ..numerics.types import AnyArray, Array, Bools, Ints
from ..quoting import quoted

SCORES = ("best", "mean")


class Products:
    """A gallery that is searched by product instead of by item.

    Parameters
    ----------
    x : ndarray of shape (n, d)
        Queries.
    y : ndarray of shape (m, d)
        Gallery photos.
    y_class : ndarray of int, shape (m,)
        Class of each photo.
    group_by : array-like of shape (m,)
        Product of each photo.
    score : {"best", "mean"}
        Distance of a product: that of its nearest photo, or the mean over its photos.
    leave_one_out : bool
        Whether `x` is `y`, and each query searches all others.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which embeddings are compared.

    Attributes
    ----------
    classes : ndarray of int, shape (p,)
        Class of each product.
    kinds : tuple of ndarray of int, or None
        Numbers of queries (n,) and products (p,); they are equal if the query is the only photo of the product.
    row_bytes : int
        Memory in bytes of the temporary arrays of one query.
    """

    def __init__(
        self,
        x: AnyArray,
        y: AnyArray,
        y_class: Ints,
        group_by: Any,
        *,
        score: str,
        leave_one_out: bool,
        distance: str,
    ) -> None:
        if score not in SCORES:
            raise ValueError(f"group_score: expected {' or '.join(SCORES)}, got {quoted(score)}")
        (product,) = class_numbers(group_by, names=("group_by",))
        if len(product) != len(y):
            raise ValueError(f"group_by: expected {len(y)} products, one per searched item, got {len(product)}")
        order = np.argsort(product, kind="stable")
        self.x = x
        self.y = y[order]
        self.score = score
        self.distance = distance
        self.leave_one_out = leave_one_out
        self.sizes = np.bincount(product)
        self.begins = np.cumsum(self.sizes) - self.sizes
        # class of the first photo of each product; the check below states that the others have it, too
        self.classes = y_class[order][self.begins]
        mixed = self.classes[product] != y_class
        if mixed.any():
            one = as_array(group_by).tolist()[int(np.argmax(mixed))]
            raise ValueError(f"group_by: {quoted(one)} has items of several classes; expected one class per product")
        self.product = product
        self.place = np.empty(len(order), dtype=np.intp)  # position of each photo in the sorted order
        self.place[order] = np.arange(len(order))
        self.kinds = self._kinds() if leave_one_out else None
        self.row_bytes = 16 * len(y)

    def __len__(self) -> int:
        return len(self.sizes)

    def _kinds(self) -> tuple[Ints, Ints]:
        # a query whose product has no other photo: it and its product get one kind, and are hidden from each other
        alone = self.sizes[self.product] == 1
        return np.where(alone, self.product, len(self)), np.arange(len(self))

    def values(self, rows: Ints) -> Array:
        """Return the distances (b, p) of these queries to all products; infinity if a product has no other photo."""
        (_, table) = next(distance_blocks(self.x[rows], self.y, self.distance, block=max(1, len(rows))))
        counts = np.broadcast_to(self.sizes, (len(rows), len(self)))
        if self.score == "best":
            if self.leave_one_out:
                # the query itself is no photo of what it searches
                table[np.arange(len(rows)), self.place[rows]] = np.inf
            return np.minimum.reduceat(table, self.begins, axis=1)
        if self.leave_one_out:
            table[np.arange(len(rows)), self.place[rows]] = 0.0
            counts = counts.copy()
            # its distance is 0 in the sum, so it must not be counted
            counts[np.arange(len(rows)), self.product[rows]] -= 1
        sums = np.add.reduceat(table, self.begins, axis=1)
        there: Bools = counts > 0
        return np.where(there, sums / np.maximum(counts, 1), np.inf)
