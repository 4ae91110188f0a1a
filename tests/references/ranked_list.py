"""Ranked list loss in plain loops."""

import math

from .nt_xent import others

DETACHED = "the weights of the samples are held constant"


def weighted(excesses, temperature):
    active = [one for one in excesses if one > 0]
    weights = [math.exp(temperature * one.item()) for one in active]
    return sum(w * one for w, one in zip(weights, active, strict=True)) / sum(weights) if active else 0.0


def reference(
    x, y, *, pooled=None, scores=None, proxies=None, alpha=1.2, margin=0.4, imbalance=0.5, t_pos=0.0, t_neg=10.0, **_
):
    z = x / x.norm(dim=1, keepdim=True)
    losses = []
    for i in range(len(x)):
        pos, neg = others(y, i)
        if not pos and not neg:
            continue
        pull = weighted([(z[i] - z[p]).norm() - (alpha - margin) for p in pos], t_pos)
        push = weighted([alpha - (z[i] - z[n]).norm() for n in neg], t_neg)
        losses.append((1 - imbalance) * pull + imbalance * push)
    return sum(losses) / len(losses) + x.sum() * 0 if losses else x.sum() * 0
