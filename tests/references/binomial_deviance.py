"""Binomial deviance in plain loops."""

import torch


def reference(
    x, y, *, pooled=None, scores=None, proxies=None, alpha=2.0, beta=0.5, eta=25.0, reduction="balanced", **_
):
    near, far = [[] for _ in x], [[] for _ in x]
    for i in range(len(x)):
        for j in range(len(x)):
            if i == j or y[i] < 0 or y[j] < 0:
                continue
            cos = (x[i] @ x[j]) / (x[i].norm() * x[j].norm())
            if y[i] == y[j]:
                near[i].append(torch.log(1 + torch.exp(-alpha * (cos - beta))))
            else:
                far[i].append(torch.log(1 + torch.exp(alpha * eta * (cos - beta))))
    zero = x.sum() * 0
    if reduction == "anchor":
        anchors = [mean(near[i], zero) + mean(far[i], zero) for i in range(len(x)) if near[i] or far[i]]
        return mean(anchors, zero)
    near, far = [v for row in near for v in row], [v for row in far for v in row]
    if reduction == "sum":
        return sum(near, zero) + sum(far, zero)
    return mean(near, zero) + mean(far, zero)


def mean(values, zero):
    return sum(values) / len(values) if values else zero
