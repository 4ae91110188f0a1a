"""The Fisher contrastive loss from its scatter matrices, ordered pair by ordered pair."""

import torch

from .fisher_triplet import scatter


def reference(x, y, *, pooled=None, scores=None, proxies=None, margin=0.25, lam=0.01, U=None, ridge=0.0, mean=False):
    known, size = [i for i in range(len(y)) if y[i] >= 0], x.shape[1]
    U = torch.eye(size, dtype=x.dtype) if U is None else U
    near = [(x[i], x[j]) for i in known for j in known if i != j and y[i] == y[j]]
    far = [(x[i], x[j]) for i in known for j in known if y[i] != y[j]]
    if not near and not far:
        return x.sum() * 0
    within = torch.trace(U.T @ scatter(near, size, ridge, mean, x) @ U)
    between = torch.trace(U.T @ scatter(far, size, ridge, mean, x) @ U)
    return (2 - lam) * within + (margin - lam * between).clamp_min(0)
