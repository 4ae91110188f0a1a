"""SphereFace in plain loops, by the angles themselves."""

import math

import torch

from .nt_xent import cosine


def psi(cos, margin):
    theta = torch.acos(cos)
    k = math.floor(theta.item() * margin / math.pi)
    return (-1) ** k * torch.cos(margin * theta) - 2 * k


def reference(x, y, *, pooled=None, scores=None, proxies=None, margin=4, scale=1.0, ease=0.0, unit_proxies=True, **_):
    losses = []
    for i in range(len(x)):
        if y[i] < 0:
            continue
        bottom = 0.0
        for c, w in enumerate(proxies):
            cos = cosine(x[i], w)
            if c == y[i]:
                cos = (psi(cos, margin) + ease * cos) / (1 + ease)
            logit = scale * x[i].norm() * (1 if unit_proxies else w.norm()) * cos
            if c == y[i]:
                top = logit
            bottom = bottom + torch.exp(logit)
        losses.append(torch.log(bottom) - top)
    return sum(losses) / len(losses) if losses else x.sum() * 0
