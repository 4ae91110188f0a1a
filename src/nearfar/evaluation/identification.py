"""Open-set identification: which class of the gallery is it, or none of them?

A query is answered with the class of its nearest gallery item if that lies within the distance t, else with "unknown".

TPIR(t)   share of the known queries, whose class is in the gallery, that are answered with their class
FPIR(t)   share of the unknown queries, whose class is not, that are answered with any class

Phillips, Grother & Micheals, "Evaluation methods in face recognition", Handbook of Face Recognition, 2011, call them
the detection and identification rate and the false alarm rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from ..neighbors.blocks import on_grid
from ..neighbors.nearest import nearest
from ..numerics.distances import check_distance
from ..quoting import significant
from .groups import Members, count_in_gallery, kinds_of, warn_of_queries_in_gallery
from .retrieval import protocol_of
from .threshold_curves import checked_rates, operating_points, unmeasurable_rates
from .verification import FARS


@dataclass(frozen=True)
class Identification:
    """How well a threshold on the nearest distance identifies known items and rejects unknown ones.

    Attributes
    ----------
    rank_1 : float
        Fraction of the known queries whose nearest gallery item is of their class, at any distance.
    tpir_at : dict of float to float
        True positive identification rate at each false positive identification rate (FPIR).
    threshold_at : dict of float to float
        Largest distance threshold that keeps each FPIR; None if even the smallest threshold exceeds it.
    n_known : int
        Number of queries whose class is in the gallery.
    n_unknown : int
        Number of other queries.
    n_gallery : int
        Number of gallery items.
    distance : str
        Distance by which embeddings were compared.
    """

    rank_1: float
    tpir_at: dict[float, float]
    threshold_at: dict[float, float | None]
    n_known: int
    n_unknown: int
    n_gallery: int
    distance: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, with each rate as a string."""
        plain = asdict(self)
        return plain | {name: {f"{far:g}": v for far, v in plain[name].items()} for name in ("tpir_at", "threshold_at")}

    def __str__(self) -> str:
        lines = [f"{'score':<18}{'value':>8}{'threshold':>11}", f"{'Rank 1':<18}{self.rank_1:>8.4f}"]
        for far, value in self.tpir_at.items():
            at = self.threshold_at[far]
            lines += [
                f"{f'TPIR at FPIR {far:g}':<18}{value:>8.4f}" + ("" if at is None else f"{significant(at, 4):>11}")
            ]
        queries = f"{self.n_known:,} queries of classes in the gallery, {self.n_unknown:,} of others"
        lines += [f"{queries}, each searching {self.n_gallery:,} items; {self.distance} distance"]
        rare = " and ".join(f"{far:g}" for far in unmeasurable_rates(self.tpir_at, self.n_unknown))
        if rare:
            lines += [f"at FPIR {rare}, no unknown query may be named: {self.n_unknown:,} are too few to measure it"]
        return "\n".join(lines)


def identify(
    embeddings: Any,
    labels: Any,
    *,
    gallery: Any = None,
    gallery_labels: Any = None,
    groups: Any = None,
    gallery_groups: Any = None,
    ids: Any = None,
    gallery_ids: Any = None,
    distance: str = "cosine",
    fars: Sequence[float] | float = FARS,
) -> Identification:
    """Score open-set identification: find the class of known queries, and reject the others.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Queries, as arrays or tensors.
    labels : array-like of shape (n,)
        Class of each query, of any hashable type. A class that is not in the gallery is unknown.
    gallery : array-like of shape (m, d), optional
        Enrolled embeddings: of single items, or one mean per class. By default, each query searches all other
        embeddings.
    gallery_labels : array-like of shape (m,), optional
        Class of each gallery item.
    groups : array-like of shape (n,), optional
        Camera, video or the like of each query. Items of its class in its group are ignored, as in `evaluate`.
    gallery_groups : array-like of shape (m,), optional
        Group of each gallery item.
    ids, gallery_ids : array-like of shape (n,) and (m,), optional
        Name or number of each embedding and of each gallery item: an item is not compared with itself.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which embeddings are compared.
    fars : float or sequence of float
        False positive identification rates, in (0, 1), at which to report the true positive identification rate.

    Returns
    -------
    Identification
        The rates and their thresholds.

    Raises
    ------
    ValueError
        If embeddings, labels, groups, rates or the distance are not valid, or there is no query of a known class or
        none of an unknown class.

    Examples
    --------
    >>> rows, gallery = [[1.0, 0.1], [0.1, 1.0], [-1.0, 0.2]], [[1.0, 0.0], [0.0, 1.0]]
    >>> identify(rows, ["a", "b", "stranger"], gallery=gallery, gallery_labels=["a", "b"]).tpir_at[0.01]
    1.0
    """
    x, y, kind, gallery_kind, own = protocol_of(embeddings, labels, gallery, gallery_labels)
    check_distance(distance)
    rates = checked_rates(fars)
    alone = own is not None
    kinds = kinds_of(kind, gallery_kind, groups, gallery_groups, alone, ids, gallery_ids)
    if kinds is None and own is None:
        warn_of_queries_in_gallery(count_in_gallery(x, y, kind, gallery_kind), len(x))
    n_hidden = np.full(len(x), int(alone))
    hidden = None
    if kinds is not None:
        query_kinds = kinds[0]
        members = Members(*kinds)
        n_hidden = members.sizes[query_kinds]
        hidden = partial(members.of_rows, query_kinds)
    known = Members(kind, gallery_kind).sizes[kind] > n_hidden
    if known.all() or not known.any():
        if known.all():
            lacking = "a class that is not in the gallery"
        else:
            lacking = "a class in the gallery"
        raise ValueError(
            f"identification needs queries of known and of unknown classes; none of the {len(x)} is of {lacking}: "
            "expected queries and a gallery, such as a table whose column split has query and gallery"
        )
    d, at = nearest(x, y, 1, distance=distance, exclude_self=alone, hidden=hidden)
    d[n_hidden == len(y)] = np.inf  # no item is left to find
    # a query is answered by the class of its nearest item
    right = known & (gallery_kind[at[:, 0]] == kind)
    steps, place = np.unique(on_grid(d[:, 0]) if distance == "cosine" else d[:, 0], return_inverse=True)
    thresholds = np.full(len(steps), -np.inf)
    np.maximum.at(thresholds, place, d[:, 0])
    # at each threshold: known queries that are named correctly, and unknown ones that are named at all
    named, wrong = (np.bincount(place[part], minlength=len(steps)).cumsum() for part in (right, ~known))
    tpir_at, threshold_at = operating_points(rates, thresholds, named / known.sum(), wrong)
    counts = {"n_known": int(known.sum()), "n_unknown": int((~known).sum()), "n_gallery": len(y) - int(alone)}
    return Identification(float(right.sum() / known.sum()), tpir_at, threshold_at, **counts, distance=distance)
