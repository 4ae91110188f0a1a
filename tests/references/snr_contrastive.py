"""Contrastive loss of signal-to-noise ratios in plain loops."""

import torch

from .nt_xent import others


def mean(values, x):
    return sum(values) / len(values) if values else x.sum() * 0


def reference(
    x,
    y,
    *,
    pooled=None,
    scores=None,
    proxies=None,
    pos_margin=0.0,
    neg_margin=1.0,
    zero_mean=0.0,
    normalize=False,
    **_,
):
    u = x / x.norm(dim=1, keepdim=True) if normalize else x
    near, far = [], []
    for i in range(len(u)):
        pos, neg = others(y, i)
        if u[i].var() == 0:
            continue
        near += [torch.relu((u[i] - u[p]).var() / u[i].var() - pos_margin) for p in pos]
        far += [torch.relu(neg_margin - (u[i] - u[n]).var() / u[i].var()) for n in neg]
    return mean(near, x) + mean(far, x) + zero_mean * mean([abs(z.sum()) for z in x], x)
