"""AM-softmax in plain loops."""

import torch


def reference(x, y, *, pooled=None, scores=None, proxies=None, scale=20.0, margin=0.1, **_):
    losses = []
    for i in range(len(x)):
        if y[i] < 0:
            continue
        top, bottom = None, 0.0
        for c in range(len(proxies)):
            cos = (x[i] @ proxies[c]) / (x[i].norm() * proxies[c].norm())
            if c == y[i]:
                top = torch.exp(scale * (cos - margin))
                bottom = bottom + top
            else:
                bottom = bottom + torch.exp(scale * cos)
        losses.append(-torch.log(top / bottom))
    return sum(losses) / len(losses) if losses else x.sum() * 0
