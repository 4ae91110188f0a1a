"""Scores and neighbors as their definitions say them, in plain loops."""

import math
from itertools import combinations, permutations


def nearness(x, y, distance):
    """Larger is nearer. Cosines within 2^-44 of a grid point are that point, which is the library's rule for ties."""
    if distance != "cosine":
        return -sum((a - b) ** 2 for a, b in zip(x, y, strict=True))
    dot, xx, yy = (sum(a * b for a, b in zip(p, q, strict=True)) for p, q in ((x, y), (x, x), (y, y)))
    return round((dot / math.sqrt(xx * yy) if xx * yy > 0 else 0.0) * 2**44) / 2**44


def ranking(query, gallery, distance, leave_out=None):
    """Gallery items from near to far, ties by index."""
    items = [j for j in range(len(gallery)) if j != leave_out]
    values = {j: nearness(query, gallery[j], distance) for j in items}
    return sorted(items, key=lambda j: (-values[j], j))


def rankings(queries, gallery, distance, leave_one_out, kinds=None):
    """kinds: the (class, group) of every query and of every gallery item; no query finds those of its own."""
    orders = [ranking(q, gallery, distance, i if leave_one_out else None) for i, q in enumerate(queries)]
    if kinds is None:
        return orders
    return [[j for j in order if kinds[1][j] != kind] for order, kind in zip(orders, kinds[0], strict=True)]


def scores_of_query(order, label, gallery_labels, ks):
    """Recall@k, precision@k, R-precision, MAP@R, reciprocal rank; None for a lone query."""
    right = [gallery_labels[j] == label for j in order]
    r = sum(right)
    if r == 0:
        return None
    recall = {k: float(any(right[:k])) for k in ks}
    precision = {k: sum(right[:k]) / k for k in ks}
    map_at_r = 0.0
    for i in range(1, r + 1):
        if right[i - 1]:
            map_at_r += sum(right[:i]) / i
    return recall, precision, sum(right[:r]) / r, map_at_r / r, 1 / (right.index(True) + 1)


def evaluate(x, labels, ks, distance, gallery=None, gallery_labels=None, lone="exclude", kinds=None):
    """Means over queries: recall_at, precision_at, r_precision, map_at_r, mrr, number of lone queries."""
    found = rankings(x, x if gallery is None else gallery, distance, gallery is None, kinds)
    others = labels if gallery is None else gallery_labels
    rows = [scores_of_query(order, label, others, ks) for order, label in zip(found, labels, strict=True)]
    fair = [row for row in rows if row is not None]
    count = len(fair) if lone == "exclude" else len(rows)

    def mean(pick):
        return sum(pick(row) for row in fair) / count if count else math.nan

    return (
        {k: mean(lambda row, k=k: row[0][k]) for k in ks},
        {k: mean(lambda row, k=k: row[1][k]) for k in ks},
        mean(lambda row: row[2]),
        mean(lambda row: row[3]),
        mean(lambda row: row[4]),
        len(rows) - len(fair),
    )


def mean_average_precision(x, labels, gallery, gallery_labels, distance, leave_one_out, lone, kinds=None):
    """Mean of precision at every right item of the whole ranking."""
    values = []
    for order, label in zip(rankings(x, gallery, distance, leave_one_out, kinds), labels, strict=True):
        right = [gallery_labels[j] == label for j in order]
        if any(right):
            values.append(sum(sum(right[: i + 1]) / (i + 1) for i, hit in enumerate(right) if hit) / sum(right))
    count = len(values) if lone == "exclude" else len(x)
    return sum(values) / count if count else math.nan


def expected_by_enumeration(items, relevant, ks):
    """Mean scores over all rankings of so many items, so many of them relevant."""
    labels = [1] * relevant + [0] * (items - relevant)
    rows = [scores_of_query(order, 1, labels, ks) for order in permutations(range(items))]
    n = len(rows)
    recall = {k: sum(row[0][k] for row in rows) / n for k in ks}
    precision = {k: sum(row[1][k] for row in rows) / n for k in ks}
    return recall, precision, *(sum(row[i] for row in rows) / n for i in (2, 3, 4))


def pairwise_f1(labels, clusters):
    same = [(labels[i] == labels[j], clusters[i] == clusters[j]) for i, j in combinations(range(len(labels)), 2)]
    both = sum(a and b for a, b in same)
    return 2 * both / (sum(a for a, _ in same) + sum(b for _, b in same)) if both else 0.0


def diversity(x):
    n, d = len(x), len(x[0])
    means = [sum(row[c] for row in x) / n for c in range(d)]
    return sum((row[c] - means[c]) ** 2 for row in x for c in range(d)) / n


def one_nn_errors(train, train_labels, test, test_labels, distance):
    return [
        train_labels[ranking(row, train, distance)[0]] != label for row, label in zip(test, test_labels, strict=True)
    ]
