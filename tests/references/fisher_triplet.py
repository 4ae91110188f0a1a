"""The Fisher triplet loss from its scatter matrices, triplet by triplet; without a layer U is the identity."""

import torch


def scatter(pairs, size, ridge, mean, like):
    S = torch.zeros(size, size, dtype=like.dtype)
    for a, b in pairs:
        S = S + torch.outer(a - b, a - b)
    if mean and pairs:
        S = S / len(pairs)
    return S + ridge * torch.eye(size, dtype=like.dtype)


def triplets(y):
    known = [i for i in range(len(y)) if y[i] >= 0]
    return [(a, p, n) for a in known for p in known for n in known if a != p and y[a] == y[p] != y[n]]


def reference(x, y, *, pooled=None, scores=None, proxies=None, margin=0.25, lam=0.01, U=None, ridge=0.0, mean=False):
    """With U, x are the features before the layer."""
    chosen, size = triplets(y), x.shape[1]
    if not chosen:
        return x.sum() * 0
    U = torch.eye(size, dtype=x.dtype) if U is None else U
    S_W = scatter([(x[a], x[p]) for a, p, _ in chosen], size, ridge, mean, x)
    S_B = scatter([(x[a], x[n]) for a, _, n in chosen], size, ridge, mean, x)
    value = (2 - lam) * torch.trace(U.T @ S_W @ U) - lam * torch.trace(U.T @ S_B @ U) + margin
    return value.clamp_min(0)
