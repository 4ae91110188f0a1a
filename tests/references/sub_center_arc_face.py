"""Sub-center ArcFace in plain loops; proxies holds the first proxy of every class, then the second."""

import math

import torch

from .nt_xent import cosine


def reference(x, y, *, pooled=None, scores=None, proxies=None, sub_centers=3, scale=64.0, margin=0.5, **_):
    C = len(proxies) // sub_centers
    losses = []
    for i in range(len(x)):
        if y[i] < 0:
            continue
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
