"""Intra-class penalty in plain loops."""

import torch


def reference(x, y, *, pooled=None, scores=None, proxies=None, normalize=True, **_):
    u = [row / row.norm() if normalize else row for row in x]
    total = x.sum() * 0
    for c in {int(label) for label in y if label >= 0}:
        members = [i for i in range(len(x)) if y[i] == c]
        pairs = [(i, j) for i in members for j in members if i < j]
        for i, j in pairs:
            total = total - torch.exp(-(u[i] - u[j]).square().sum() / 2) / len(pairs)
    return total
