"""Intra-pair variance loss in plain loops."""

import torch

from .nt_xent import cosine, others


def reference(x, y, *, pooled=None, scores=None, proxies=None, pos_eps=0.01, neg_eps=0.01, **_):
    near, far = [], []
    for i in range(len(x)):
        pos, neg = others(y, i)
        near += [cosine(x[i], x[p]) for p in pos]
        far += [cosine(x[i], x[n]) for n in neg]
    value = x.sum() * 0
    if near:
        mean = sum(near) / len(near)
        value = value + sum(torch.relu((1 - pos_eps) * mean - s) ** 2 for s in near) / len(near)
    if far:
        mean = sum(far) / len(far)
        value = value + sum(torch.relu(s - (1 + neg_eps) * mean) ** 2 for s in far) / len(far)
    return value
