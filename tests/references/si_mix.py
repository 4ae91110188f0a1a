"""Recall@k with a virtual sample for each pair of one class, whose similarities are mixed, query by query."""

import torch


def reference(x, y, *, alpha=0.5, ks=(1, 2, 4, 8, 16), temperature=1.0, rank_temperature=0.01, step=torch.sigmoid, **_):
    n = len(x)
    z = [row / row.norm() for row in x]
    s = [[z[i] @ z[j] for j in range(n)] for i in range(n)]
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if y[i] == y[j] >= 0]
    weights = alpha if isinstance(alpha, list) else [alpha] * len(pairs)
    # a sample is a mixture of itself alone
    parts = [[(1.0, i)] for i in range(n)] + [[(a, i), (1 - a, j)] for a, (i, j) in zip(weights, pairs, strict=True)]
    classes = [int(c) for c in y] + [int(y[i]) for i, _ in pairs]

    def similarity(p, q):
        return sum(a * b * s[i][j] for a, i in parts[p] for b, j in parts[q])

    known = [p for p in range(len(parts)) if classes[p] >= 0]
    losses = []
    for p in known:
        others = {q: similarity(p, q) for q in known if q != p}
        positives = [q for q in others if classes[q] == classes[p]]
        if not positives:
            continue
        ranks = [1 + sum(step((others[r] - others[q]) / rank_temperature) for r in others if r != q) for q in positives]
        for k in ks:
            found = sum(torch.sigmoid((k - rank) / temperature) for rank in ranks)
            losses.append(1 - found.clamp(max=k) / min(k, len(positives)))
    return sum(losses) / len(losses) if losses else x.sum() * 0
