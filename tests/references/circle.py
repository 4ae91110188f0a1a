"""Circle loss in plain loops."""

import torch

from .nt_xent import cosine, others

DETACHED = "the weights of the pairs follow the cosines but are constants of the gradient, as in the paper's code"


def reference(x, y, *, pooled=None, scores=None, proxies=None, margin=0.4, scale=80.0, **_):
    losses = []
    for i in range(len(x)):
        pos, neg = others(y, i)
        if not pos or not neg:
            continue
        far = near = 0.0
        for n in neg:
            s = cosine(x[i], x[n])
            far = far + torch.exp(scale * max(0.0, s.item() + margin) * (s - margin))
        for p in pos:
            s = cosine(x[i], x[p])
            near = near + torch.exp(-scale * max(0.0, 1 + margin - s.item()) * (s - (1 - margin)))
        losses.append(torch.log(1 + far * near))
    return sum(losses) / len(losses) if losses else x.sum() * 0
