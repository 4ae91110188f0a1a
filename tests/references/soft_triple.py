"""SoftTriple in plain loops; proxies holds the first center of every class, then the second."""

import torch

from .nt_xent import cosine


def similarity(x, centers, gamma):
    s = [cosine(x, w) for w in centers]
    bottom = sum(torch.exp(one / gamma) for one in s)
    return sum(torch.exp(one / gamma) / bottom * one for one in s)


def reference(
    x, y, *, pooled=None, scores=None, proxies=None, centers=10, scale=20.0, margin=0.01, gamma=0.1, tau=0.2, **_
):
    K, C = centers, len(proxies) // centers
    w = [[proxies[k * C + c] for k in range(K)] for c in range(C)]
    losses = []
    for i in range(len(x)):
        if y[i] < 0:
            continue
        logits = [scale * (similarity(x[i], w[c], gamma) - (margin if c == y[i] else 0.0)) for c in range(C)]
        losses.append(-torch.log(torch.exp(logits[y[i]]) / sum(torch.exp(one) for one in logits)))
    value = sum(losses) / len(losses) if losses else x.sum() * 0
    gaps = [torch.sqrt(2 - 2 * cosine(w[c][j], w[c][k]) + 1e-5) for c in range(C) for k in range(K) for j in range(k)]
    return value + tau / (C * K * (K - 1)) * sum(gaps) if K > 1 else value
