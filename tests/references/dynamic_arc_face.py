"""Dynamic ArcFace in plain loops; proxies holds the first proxy of every class, then the second."""

import math

import torch

from .nt_xent import cosine


def margins_of(sizes, least=0.05, most=0.5, power=0.25):
    """The margin of each class: a n^-power + b."""
    weights = [n**-power for n in sizes]
    if max(weights) == min(weights):
        return [most] * len(sizes)
    a = (most - least) / (max(weights) - min(weights))
    b = most - a * max(weights)
    return [a * weight + b for weight in weights]


def reference(
    x,
    y,
    *,
    pooled=None,
    scores=None,
    proxies=None,
    sub_centers=3,
    scale=64.0,
    class_sizes=None,
    least_margin=0.05,
    most_margin=0.5,
    power=0.25,
    **_,
):
    C = len(proxies) // sub_centers
    margins = margins_of(class_sizes or [1] * C, least_margin, most_margin, power)
    losses = []
    for i in range(len(x)):
        if y[i] < 0:
            continue
        margin = margins[int(y[i])]
        bottom = 0.0
        for c in range(C):
            cos = max((cosine(x[i], proxies[k * C + c]) for k in range(sub_centers)), key=torch.Tensor.item)
            if c == y[i]:
                theta = torch.acos(cos)
                beyond = theta > math.pi - margin
                cos = cos - margin * math.sin(margin) if beyond else torch.cos(theta + margin)
                top = torch.exp(scale * cos)
            bottom = bottom + torch.exp(scale * cos)
        losses.append(-torch.log(top / bottom))
    return sum(losses) / len(losses) if losses else x.sum() * 0
