"""All ordered pairs, one by one."""

import torch


def reference(x, y, *, pooled=None, scores=None, proxies=None, margin=0.5, form="squared", similarity="labels"):
    n, total, pairs = len(x), x.sum() * 0, 0
    for i in range(n):
        for j in range(n):
            if i == j:
                continue
            if similarity == "pooled":
                g = (1 + torch.nn.functional.cosine_similarity(pooled[i], pooled[j], dim=0)) / 2
            elif y.ndim == 2:
                g = y[i, j]
            else:
                g = -1 if -1 in (y[i], y[j]) else float(y[i] == y[j])
            if g < 0:
                continue
            squared = ((x[i] - x[j]) ** 2).sum()
            if form == "survey":
                term = g * squared + (1 - g) * (margin - squared).clamp_min(0)
            else:
                term = (g * squared + (1 - g) * (margin - squared.sqrt()).clamp_min(0) ** 2) / 2
            total, pairs = total + term, pairs + 1
    return total / max(pairs, 1)
