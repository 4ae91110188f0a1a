"""Intra-class part of the joint discrepancy in plain loops; the joint kernel is that of JRS."""

import torch

from .jrs import joint_kernel

DETACHED = "the bandwidth tau follows the batch but is a constant of the gradient, as in the paper's code"


def reference(
    x,
    y,
    *,
    pooled=None,
    scores=None,
    proxies=None,
    layers=("embedding",),
    kernel="gaussian",
    kernels=3,
    class_kernels=1,
    degree=2,
    squared=False,
    **more,
):
    k, labels = joint_kernel(x, y, pooled, scores, layers, kernel, kernels, class_kernels, degree, **more)
    n = len(labels)
    members = {c: [i for i in range(n) if labels[i] == c] for c in labels}

    def mean(I, J):
        return sum(k[i][j] for i in members[I] for j in members[J]) / (len(members[I]) * len(members[J]))

    pairs = sum(labels[i] != labels[j] for i in range(n) for j in range(n))
    total = x.sum() * 0
    for I in members:
        for J in members:
            if I == J:
                continue
            norms = [mean(I, I), mean(J, J)]
            value = sum(norms) if squared else sum(torch.sqrt(norm) for norm in norms)
            total = total - len(members[I]) * len(members[J]) / pairs * value
    return total
