"""Pair by pair: labels, the score of one pair layer by layer, the loss of a batch."""

import torch


def distances(items):
    """Return the scaled squared distance of every pair i < j."""
    n = len(items)
    found = {(i, j): float(((items[i] - items[j]) ** 2).sum()) for i in range(n) for j in range(i + 1, n)}
    low, high = min(found.values()), max(found.values())
    return {pair: (d - low) / (high - low) if high > low else 0.0 for pair, d in found.items()}


def label(d, same, alpha, beta):
    return (beta - 1) * d + 1 if same else -alpha * d + alpha


def nearest(s, y, same, lam, alpha, beta):
    """Return the best label on a fine grid of its interval."""
    low, high = (beta, 1.0) if same else (0.0, alpha)
    grid = torch.linspace(low, high, 20001, dtype=torch.float64)
    return float(grid[((s - grid) ** 2 + lam * (grid - y) ** 2).argmin()])


def one_score(net, u, v):
    """Return the score of an ordered pair of feature vectors, by the layers as they are."""
    stacked = torch.stack([u, v])[None, None]  # (1, 1, 2, D)
    return torch.sigmoid(net.score(torch.relu(net.pair(stacked)).flatten(1)))[0, 0]


def score(net, u, v):
    return (one_score(net, u, v) + one_score(net, v, u)) / 2


def loss(net, items, y, target_of, factor, anchor):
    """Return the mean over pairs of factor (s - t)^2 + anchor (t - y)^2."""
    d, values = distances(items), []
    for i, j in d:
        s, same = score(net, items[i], items[j]), y[i] == y[j]
        t = target_of(float(s.detach()), same, d[i, j])
        values.append(factor * (s - t) ** 2 + anchor * (t - float(same)) ** 2)
    return sum(values) / len(values)
