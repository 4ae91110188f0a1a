"""Histogram loss in plain loops, node by node."""

import torch

from .nt_xent import cosine, others


def density(similarities, bins):
    width = 2 / bins
    nodes = [-1 + r * width for r in range(bins + 1)]
    all_of_them = torch.stack(similarities)
    return [(1 - (all_of_them - t).abs() / width).clamp_min(0).mean() for t in nodes]


def reference(x, y, *, pooled=None, scores=None, proxies=None, num_bins=100, **_):
    near, far = [], []
    for i in range(len(x)):
        pos, neg = others(y, i)
        near += [cosine(x[i], x[p]) for p in pos]
        far += [cosine(x[i], x[n]) for n in neg]
    if not near or not far:
        return x.sum() * 0
    h_near, h_far = density(near, num_bins), density(far, num_bins)
    return sum(h_far[r] * sum(h_near[: r + 1]) for r in range(num_bins + 1)) + x.sum() * 0
