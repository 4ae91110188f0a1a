"""The zero-shot protocol: `evaluate` computes all `Scores` of embeddings with classes; others compute single scores."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np

from ..labels import class_numbers
from ..numerics.distances import as_rows
from ..numerics.types import AnyArray, Ints
from .chance import random_map_at_r, random_mrr, random_precision, random_recall
from .clustering import ami, checked_engine, cluster, nmi, pairwise_f1
from .given_distances import PRECOMPUTED
from .reranking import read_reranking
from .retrieval import Retrieval, retrieve
from .scores import OF_PRODUCTS, OTHER_GROUPS, WITHOUT_ITSELF, Scores

LONE = ("exclude", "miss")
ALL = 2**62  # a K above the size of any gallery

PLAIN = "plain"  # clustering without the steps that improve k-means


def evaluate(
    embeddings: Any,
    labels: Any,
    *,
    gallery: Any = None,
    gallery_labels: Any = None,
    groups: Any = None,
    gallery_groups: Any = None,
    ids: Any = None,
    gallery_ids: Any = None,
    ks: Iterable[int] | int = (1, 2, 4, 8),
    clustering: bool | str = True,
    distance: str = "cosine",
    lone: str = "exclude",
    restarts: int = 1,
    engine: str = "auto",
    seed: int = 0,
    rerank: str | None = None,
    group_by: Any = None,
    group_score: str = "best",
    dims: int | None = None,
) -> Scores:
    """Compute all retrieval and clustering scores of embeddings, exactly.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Queries, as arrays or tensors, on any scale. With ``distance="precomputed"``, the distances of shape (n, m) of
        each query to each item that it searches, smaller for nearer ones.
    labels : array-like of shape (n,)
        Class of each query: integers, strings, or any hashable type.
    gallery : array-like of shape (m, d), optional
        Embeddings that the queries search. By default, each query searches all other embeddings (leave one out).
    gallery_labels : array-like of shape (m,), optional
        Class of each gallery item; needed with `gallery`. With precomputed distances, the class of each column; if they
        are left out, the queries search each other, and the diagonal is not read.
    groups : array-like of shape (n,), optional
        Camera, video or the like of each query. Items of a query's class in its group are ignored: they count neither
        as hits nor as misses, as in re-identification. The clustering ignores groups.
    gallery_groups : array-like of shape (m,), optional
        Group of each gallery item; needed with `groups` and `gallery`.
    ids : array-like of shape (n,), optional
        Name or number of each query, if the gallery contains queries: none searches the gallery item of its own id.
        Without ids, a query finds itself first in such a gallery, and the protocol line states how many do.
    gallery_ids : array-like of shape (m,), optional
        Name or number of each gallery item; needed with `ids`.
    ks : int or iterable of int
        Values of K for Recall@K and precision@K. A K beyond the gallery uses the whole gallery.
    clustering : bool or "plain"
        Also cluster the embeddings (with the gallery, if given) into as many clusters as classes, for NMI, AMI and F1.
        It takes at most about twice as long as the retrieval scores. "plain" uses k-means without the steps that
        improve it, as most papers do; its NMI is lower. Precomputed distances are not clustered.
    distance : {"cosine", "euclidean", "sqeuclidean", "precomputed"}
        Distance by which embeddings are compared. With "cosine", rows are also normalized for the clustering. With
        "precomputed", `embeddings` are distances, such as those of another library.
    lone : {"exclude", "miss"}
        Whether queries without a relevant item are left out of the means, or count as 0. Their number is reported in
        both cases.
    restarts : int
        Number of runs of k-means from different seeds; the clustering with the smallest inertia is kept.
    engine : {"auto", "faiss", "scikit-learn"}
        Library that finds the nearest centers; "auto" chooses faiss if it is installed. Results differ by rounding.
    seed : int
        Seed of the clustering. The same seed and engine give the same result.
    rerank : str, optional
        Method that reorders the neighbors of a query with the help of other items: "expand_queries", "augment_gallery",
        "k_reciprocal" or "csls", optionally with settings, such as "k_reciprocal(k1=30)". The scores then note that
        test items were used together. The clustering is not affected.
    group_by : array-like of shape (m,), optional
        Product of each item that is searched: of the gallery, or by default of the embeddings. Queries then rank
        products instead of single items, and a product is relevant if it is of the query's class; all items of a
        product must be of one class. Without a gallery, a query is left out of its own product. Cannot be combined with
        `groups` or `rerank`.
    group_score : {"best", "mean"}
        Distance of a product: that of its nearest item, or the mean over its items.
    dims : int, optional
        Number of leading dimensions to use, for example one of those of `nearfar.Matryoshka`. By default, all.

    Returns
    -------
    Scores
        The scores, with their values for a random ranking.

    Raises
    ------
    ValueError
        If rows are not finite (the error counts them), labels do not match them, or a setting is not valid.

    Notes
    -----
    MAP@R follows Musgrave, Belongie & Lim, "A metric learning reality check", ECCV 2020.

    Retrieval scores equal those of rankings in float64 with ties ordered by index. Memory beyond the input: a float32
    copy of the gallery and at most 256 MB, or as much again as a larger copy, up to 1 GB.

    Examples
    --------
    >>> rows = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
    >>> scores = evaluate(rows, ["a", "a", "b", "b"], ks=(1,), engine="scikit-learn")
    >>> scores.recall_at[1], scores.map_at_r, scores.nmi
    (1.0, 1.0, 1.0)

    Distances that are computed already:

    >>> evaluate([[0, 1, 4], [1, 0, 2], [4, 2, 0]], ["a", "a", "b"], ks=(1,), distance="precomputed").recall_at[1]
    1.0
    """
    return evaluate_queries(
        embeddings,
        labels,
        gallery=gallery,
        gallery_labels=gallery_labels,
        groups=groups,
        gallery_groups=gallery_groups,
        ids=ids,
        gallery_ids=gallery_ids,
        ks=ks,
        clustering=clustering,
        distance=distance,
        lone=lone,
        restarts=restarts,
        engine=engine,
        seed=seed,
        rerank=rerank,
        group_by=group_by,
        group_score=group_score,
        dims=dims,
    )[0]


def evaluate_queries(
    embeddings: Any,
    labels: Any,
    *,
    gallery: Any = None,
    gallery_labels: Any = None,
    groups: Any = None,
    gallery_groups: Any = None,
    ids: Any = None,
    gallery_ids: Any = None,
    ks: Iterable[int] | int = (1, 2, 4, 8),
    clustering: bool | str = True,
    distance: str = "cosine",
    lone: str = "exclude",
    restarts: int = 1,
    engine: str = "auto",
    seed: int = 0,
    rerank: str | None = None,
    group_by: Any = None,
    group_score: str = "best",
    dims: int | None = None,
) -> tuple[Scores, Retrieval]:
    """Return the scores that `evaluate` returns, and those of each query."""
    if distance == PRECOMPUTED:
        clustering = _without_embeddings(clustering, dims)
    if dims is not None:
        embeddings = first_dims(embeddings, dims)
        gallery = None if gallery is None else first_dims(gallery, dims)
    searched = {"gallery": gallery, "gallery_labels": gallery_labels}
    searched |= {"groups": groups, "gallery_groups": gallery_groups, "ids": ids, "gallery_ids": gallery_ids}
    if clustering:
        if clustering not in (True, PLAIN):
            raise ValueError(f'clustering: expected True, False or "{PLAIN}", got {clustering!r:.40}')
        checked_engine(engine, restarts)  # before the search, which may take long
    searched |= {"group_by": group_by, "group_score": group_score}
    found = _retrieved(lone, embeddings, labels, **searched, ks=ks, distance=distance, rerank=rerank)
    clusters: dict[str, Any] = dict.fromkeys(("nmi", "nmi_geometric", "ami", "f1"))
    if clustering:
        rows, classes = _joined(embeddings, labels, gallery, gallery_labels)
        # with a single item of each class, every clustering into that many clusters is perfect
        if len(np.unique(classes)) < len(classes):
            how: dict[str, Any] = {"restarts": restarts, "engine": engine, "seed": seed, "plain": clustering == PLAIN}
            clusters = clustering_scores(rows, classes, distance=distance, **how)
    scores = Scores(
        **_neighbor_scores(found, lone),
        **clusters,
        n_queries=len(found.relevant),
        n_gallery=found.n_gallery,
        n_classes=1 + int(class_numbers(labels)[0].max()),
        n_lone=int((found.relevant == 0).sum()),
        distance=distance,
        n_in_gallery=found.n_in_gallery,
        protocol=_protocol_name(gallery_labels, groups, ids, group_by, group_score),
        lone=lone,
        rerank=None if rerank is None else str(read_reranking(rerank)),
    )
    return scores, found


def _without_embeddings(clustering: bool | str, dims: int | None) -> bool:
    """Return False, as there is nothing to cluster; refuse settings that need embeddings."""
    for name, asked in (("dims", dims is not None), ("clustering", clustering not in (True, False))):
        if asked:
            raise ValueError(f"{name}: does not work with {PRECOMPUTED} distances, which have no embeddings")
    return False


def _protocol_name(gallery_labels: Any, groups: Any, ids: Any, group_by: Any, group_score: str) -> str:
    """Return how queries were searched, for the protocol line of the scores."""
    name = "leave-one-out" if gallery_labels is None else "query-gallery"
    if groups is not None:
        name += OTHER_GROUPS
    if ids is not None:
        name += WITHOUT_ITSELF
    if group_by is not None:
        name += OF_PRODUCTS[group_score]
    return name


def first_dims(embeddings: Any, dims: int) -> AnyArray:
    """Return the first dimensions of embeddings.

    Raises
    ------
    ValueError
        If `dims` is not an integer from 1 to the number of dimensions.
    """
    rows = as_rows(embeddings, "embeddings")
    if isinstance(dims, bool) or not isinstance(dims, Integral) or not 1 <= dims <= rows.shape[1]:
        width = rows.shape[1]
        raise ValueError(f"dims: expected an integer from 1 to {width}, the number of dimensions, got {dims!r:.40}")
    return rows[:, : int(dims)]


def clustering_scores(
    embeddings: Any,
    labels: Any,
    *,
    distance: str = "cosine",
    restarts: int = 1,
    engine: str = "auto",
    seed: int = 0,
    plain: bool = False,
) -> dict[str, Any]:
    """Compute NMI (with both means), AMI and F1 of k-means with as many clusters as classes.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings, as arrays or tensors.
    labels : array-like of shape (n,)
        Class of each embedding, of any hashable type.
    distance, restarts, engine, seed
        As for `evaluate`.
    plain : bool
        As for `nearfar.evaluation.cluster`.

    Returns
    -------
    dict
        The scores, and how the clustering was done.
    """
    (classes,) = class_numbers(labels)
    how: dict[str, Any] = {"restarts": restarts, "engine": engine, "seed": seed, "plain": plain}
    found = cluster(embeddings, int(classes.max()) + 1, distance=distance, **how)
    name = "plain k-means" if plain else "k-means"
    return {
        "nmi": nmi(classes, found.numbers),
        "nmi_geometric": nmi(classes, found.numbers, "geometric"),
        "ami": ami(classes, found.numbers),
        "f1": pairwise_f1(classes, found.numbers),
        "clusterer": f"{name} of {found.engine}, {describe_restarts(restarts)}, seed {seed}",
        "inertia": found.inertia,
    }


def describe_restarts(restarts: int) -> str:
    """Return how often the clustering was started, in words."""
    if restarts == 1:
        return "one start"
    return f"best of {restarts} starts"


def _joined(embeddings: Any, labels: Any, gallery: Any, gallery_labels: Any) -> tuple[AnyArray, Ints]:
    rows = as_rows(embeddings)
    if gallery is None:
        return rows, class_numbers(labels)[0]
    return np.concatenate([rows, as_rows(gallery, "gallery")]), np.concatenate(class_numbers(labels, gallery_labels))


def _neighbor_scores(found: Retrieval, lone: str) -> dict[str, Any]:
    """Return the retrieval scores, and those of a random ranking, by the names of `Scores`."""
    # the 1 avoids a division by zero for queries without a relevant item, which `mean_score` leaves out
    n = np.maximum(found.available, 1)
    n_relevant = np.maximum(found.relevant, 1)
    return {
        "recall_at": {k: mean_score(found, found.found(k), lone) for k in found.ks},
        "precision_at": {k: mean_score(found, found.hits[:, i] / k, lone) for i, k in enumerate(found.ks)},
        "map_at_r": mean_score(found, found.map_at_r, lone),
        "r_precision": mean_score(found, found.r_precision, lone),
        "mrr": mean_score(found, found.reciprocal_rank(), lone),
        "chance": {
            "recall_at": {k: mean_score(found, random_recall(n_relevant, n, k), lone) for k in found.ks},
            "precision_at": {k: mean_score(found, random_precision(n_relevant, n, k), lone) for k in found.ks},
            "map_at_r": mean_score(found, random_map_at_r(n_relevant, n), lone),
            "r_precision": mean_score(found, n_relevant / n, lone),
            "mrr": mean_score(found, random_mrr(n_relevant, n), lone),
        },
    }


def _retrieved(lone: str, embeddings: Any, labels: Any, **how: Any) -> Retrieval:
    """Return the scores of each query; check `lone` before the search."""
    if lone not in LONE:
        raise ValueError(f'lone: expected "exclude" or "miss", got {lone!r}')
    return retrieve(embeddings, labels, **how)


def mean_score(found: Retrieval, values: AnyArray, lone: str = "exclude") -> float:
    """Return the mean of the scores (n,), over queries with a relevant item or over all, with 0 for the others."""
    fair = found.relevant > 0
    # queries without a relevant item add 0, counted or not
    total = float(np.sum(values[fair], dtype=np.float64))
    if lone == "exclude":
        count = int(fair.sum())
    else:
        count = len(fair)
    if count == 0:
        return float("nan")
    return total / count


def recall_at_k(embeddings: Any, labels: Any, k: int = 1, *, lone: str = "exclude", **protocol: Any) -> float:
    """Return Recall@K: the fraction of queries with a relevant item among their k nearest.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings, as arrays or tensors.
    labels : array-like of shape (n,)
        Class of each embedding, of any hashable type.
    k : int
        Number of nearest items.
    lone : {"exclude", "miss"}
        Whether queries without a relevant item are left out of the mean, or count as 0.
    **protocol
        Further arguments of `retrieve`, such as `gallery`, `groups`, `distance` or `rerank`.

    Returns
    -------
    float
        The score, in [0, 1].
    """
    found = _retrieved(lone, embeddings, labels, ks=(k,), whole=False, up_to_r=False, **protocol)
    return mean_score(found, found.found(k), lone)


def precision_at_k(embeddings: Any, labels: Any, k: int = 1, *, lone: str = "exclude", **protocol: Any) -> float:
    """Return precision@K: the mean fraction of relevant items among the k nearest.

    Parameters
    ----------
    embeddings, labels, k, lone, **protocol
        As in `recall_at_k`.

    Returns
    -------
    float
        The score, in [0, 1].
    """
    found = _retrieved(lone, embeddings, labels, ks=(k,), whole=False, up_to_r=False, **protocol)
    return mean_score(found, found.hits[:, 0] / k, lone)


def map_at_r(embeddings: Any, labels: Any, *, lone: str = "exclude", **protocol: Any) -> float:
    """Return MAP@R: the mean average precision over the R nearest items, for R relevant ones.

    Parameters
    ----------
    embeddings, labels, lone, **protocol
        As in `recall_at_k`.

    Returns
    -------
    float
        The score, in [0, 1].

    Notes
    -----
    Musgrave, Belongie & Lim, "A metric learning reality check", ECCV 2020.
    """
    found = _retrieved(lone, embeddings, labels, ks=(1,), whole=False, **protocol)
    return mean_score(found, found.map_at_r, lone)


def mean_average_precision(embeddings: Any, labels: Any, *, lone: str = "exclude", **protocol: Any) -> float:
    """Return the mean over queries of the average precision of the whole ranking, the mAP of re-identification.

    It sorts all items for every query, and is slower than `map_at_r`, which uses only the R nearest.

    Parameters
    ----------
    embeddings, labels, lone, **protocol
        As in `recall_at_k`.

    Returns
    -------
    float
        The score, in [0, 1].

    Examples
    --------
    >>> mean_average_precision([[1.0, 0], [0.9, 0.5], [0.9, 0.2]], ["a", "a", "b"])
    0.5
    """
    found = _retrieved(lone, embeddings, labels, ks=(ALL,), **protocol)
    assert found.average_precision is not None
    return mean_score(found, found.average_precision, lone)


def r_precision(embeddings: Any, labels: Any, *, lone: str = "exclude", **protocol: Any) -> float:
    """Return R-precision: the mean fraction of relevant items among the R nearest, for R relevant ones.

    Parameters
    ----------
    embeddings, labels, lone, **protocol
        As in `recall_at_k`.

    Returns
    -------
    float
        The score, in [0, 1].
    """
    found = _retrieved(lone, embeddings, labels, ks=(1,), whole=False, **protocol)
    return mean_score(found, found.r_precision, lone)


def mrr(embeddings: Any, labels: Any, *, lone: str = "exclude", **protocol: Any) -> float:
    """Return the mean reciprocal rank of the first relevant item in the whole ranking.

    Parameters
    ----------
    embeddings, labels, lone, **protocol
        As in `recall_at_k`.

    Returns
    -------
    float
        The score, in [0, 1].
    """
    found = _retrieved(lone, embeddings, labels, ks=(1,), up_to_r=False, **protocol)
    return mean_score(found, found.reciprocal_rank(), lone)
