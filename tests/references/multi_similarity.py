"""Multi-similarity loss in plain loops."""

import torch

from .nt_xent import cosine, others


def reference(x, y, *, pooled=None, scores=None, proxies=None, alpha=2.0, beta=50.0, base=0.5, epsilon=None, **_):
    losses = []
    for i in range(len(x)):
        pos, neg = others(y, i)
        if not pos and not neg:
            continue
        near, far = [cosine(x[i], x[p]) for p in pos], [cosine(x[i], x[n]) for n in neg]
        if epsilon is not None:
            reach, bound = max(far, default=-9), min(near, default=9)
            near, far = [s for s in near if s - epsilon < reach], [s for s in far if s + epsilon > bound]
        one = torch.ones((), dtype=x.dtype)
        pull = torch.log(one + sum(torch.exp(-alpha * (s - base)) for s in near)) / alpha
        push = torch.log(one + sum(torch.exp(beta * (s - base)) for s in far)) / beta
        losses.append(pull + push)
    return sum(losses) / len(losses) + x.sum() * 0 if losses else x.sum() * 0
