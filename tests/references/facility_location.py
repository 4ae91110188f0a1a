"""Algorithms 1 and 2 of the paper, every candidate set scored from scratch."""

import math

import torch


def entropy(labels):
    m = len(labels)
    return -sum(labels.count(v) / m * math.log(labels.count(v) / m) for v in sorted(set(labels)))


def information(a, b):
    m, total = len(a), 0.0
    for u in set(a):
        for v in set(b):
            both = sum(1 for i in range(m) if a[i] == u and b[i] == v)
            if both:
                total += both / m * math.log(m * both / (a.count(u) * b.count(v)))
    return total


def expected(a, b):
    """Mean information over all relabelings with the same class and cluster sizes."""
    m, total = len(a), 0.0
    for u in set(a):
        for v in set(b):
            s, t = a.count(u), b.count(v)
            for both in range(max(1, s + t - m), min(s, t) + 1):
                chance = math.comb(s, both) * math.comb(m - s, t - both) / math.comb(m, t)
                total += chance * both / m * math.log(m * both / (s * t))
    return total


def rand_index(a, b):
    pairs = [(i, j) for i in range(len(a)) for j in range(i)]
    in_a = [a[i] == a[j] for i, j in pairs]
    in_b = [b[i] == b[j] for i, j in pairs]
    both = sum(p and q for p, q in zip(in_a, in_b, strict=True))
    chance = sum(in_a) * sum(in_b) / len(pairs)
    most = (sum(in_a) + sum(in_b)) / 2
    return 1.0 if most == chance else (both - chance) / (most - chance)


def margin(y, a, agreement="nmi", nmi="geometric"):
    if agreement == "const":
        same = all((y[i] == y[j]) == (a[i] == a[j]) for i in range(len(y)) for j in range(i))
        return 0.0 if same else 1.0
    if agreement == "ari":
        return 1 - max(rand_index(y, a), 0.0)
    h_y, h_a = entropy(y), entropy(a)
    if h_y == 0 and h_a == 0:
        return 0.0
    mean = math.sqrt(h_y * h_a) if nmi == "geometric" and agreement != "vmeasure" else (h_y + h_a) / 2
    chance = expected(y, a) if agreement == "ami" else 0.0
    if abs(mean - chance) < 1e-12:
        return 1.0
    return 1 - min(max((information(y, a) - chance) / (mean - chance), 0.0), 1.0)


def assign(d, facilities):
    nearest = []
    for i in range(len(d)):
        best = min(range(len(facilities)), key=lambda k: (d[i][facilities[k]], k))
        nearest.append(facilities.index(i) if i in facilities else best)
    return nearest


def reach(d, facilities):
    return sum(min(row[j] for j in facilities) for row in d)


def score(d, y, gamma, facilities, agreement="nmi", nmi="geometric"):
    return gamma * margin(y, assign(d, facilities), agreement, nmi) - reach(d, facilities)


def greedy(d, y, gamma, k, **how):
    facilities, scores = [], []
    for _ in range(k):
        rest = [i for i in range(len(d)) if i not in facilities]
        values = [score(d, y, gamma, [*facilities, i], **how) for i in rest]
        facilities.append(next(i for i, v in zip(rest, values, strict=True) if v >= max(values) - 1e-10))  # ties
        scores.append(max(values))
    return facilities, scores


def refine(d, y, gamma, facilities, kind, passes, **how):
    facilities = list(facilities)
    for _ in range(passes if kind != "full" else 1000):
        cluster, before = assign(d, facilities), list(facilities)
        for k in range(len(facilities)):
            members = [i for i in range(len(d)) if cluster[i] == k]
            free = [i for i in range(len(d)) if i not in facilities]
            candidates = free if kind == "full" else [i for i in members if i != facilities[k]]

            def value(j, k=k, members=members):
                swapped = [*facilities[:k], j, *facilities[k + 1 :]]
                if kind != "paper":
                    return score(d, y, gamma, swapped, **how)
                within = -sum(d[i][j] for i in members)
                return within + gamma * margin(y, assign(d, swapped), **how)

            values = {j: value(j) for j in candidates}
            if values and max(values.values()) > value(facilities[k]) + 1e-10:
                facilities[k] = next(j for j, v in values.items() if v >= max(values.values()) - 1e-10)
        if facilities == before:
            break
    return facilities


def medoids(d, y):
    chosen = []
    for c in sorted(set(y)):
        members = [i for i in range(len(y)) if y[i] == c]
        chosen.append(min(members, key=lambda j: (sum(d[i][j] for i in members), j)))
    return chosen


def plain_distances(z):
    d = [[float(((z[i] - z[j]) ** 2).sum().sqrt()) for j in range(len(z))] for i in range(len(z))]
    return [[0.0 if value < 1e-7 else value for value in row] for row in d]


def gap(z, i, j):
    difference = ((z[i] - z[j]) ** 2).sum()
    return difference.sqrt() if difference > 0 else difference * 0


def reference(
    x,
    y,
    *,
    pooled=None,
    scores=None,
    proxies=None,
    gamma=10.0,
    refine_how="paper",
    passes=5,
    warm_start_oracle=False,
    normalize_sum=False,
    **how,
):
    keep = [i for i in range(len(y)) if y[i] != -1]
    labels = [int(y[i]) for i in keep]
    z = torch.nn.functional.normalize(x)[keep]
    m, k = len(labels), len(set(labels))
    if k < 2 or k == m:
        return x.sum() * 0
    gamma = gamma * m / 128 if normalize_sum else gamma
    d = plain_distances(z.detach().double())
    oracle = medoids(d, labels)
    facilities, _ = greedy(d, labels, gamma, k, **how)
    if warm_start_oracle and score(d, labels, gamma, oracle, **how) > score(d, labels, gamma, facilities, **how):
        facilities = oracle
    if refine_how is not None:
        facilities = refine(d, labels, gamma, facilities, refine_how, passes, **how)
    nearest = assign(d, facilities)
    classes = sorted(set(labels))
    value = gamma * margin(labels, nearest, **how)
    for i in range(m):
        value = value - gap(z, i, facilities[nearest[i]]) + gap(z, i, oracle[classes.index(labels[i])])
    return value.clamp_min(0) / (m if normalize_sum else 1)
