"""SigLIP's loss in plain loops."""

import torch


def cosine(a, b):
    return (a @ b) / (a.norm() * b.norm())


def reference(x, y, *, pooled=None, scores=None, proxies=None, scale=10.0, bias=-10.0, **_):
    losses = []
    for i in range(len(x)):
        others = [j for j in range(len(y)) if j != i and y[i] >= 0 and y[j] >= 0]
        if not others:
            continue
        signs = [1 if y[j] == y[i] else -1 for j in others]
        logits = [scale * cosine(x[i], x[j]) + bias for j in others]
        losses.append(-sum(torch.log(torch.sigmoid(s * z)) for s, z in zip(signs, logits, strict=True)))
    return sum(losses) / len(losses) if losses else x.sum() * 0
