"""PNP in plain loops."""

import torch

from .nt_xent import cosine, others


def reference(x, y, *, pooled=None, scores=None, proxies=None, variant="O", temperature=0.01, b=2.0, alpha=1.0, **_):
    f = {
        "O": lambda R: R,
        "Iu": lambda R: (1 + R) * torch.log(1 + R),
        "Ib": lambda R: (b * R - torch.log(1 + b * R)) / b**2,
        "Ds": lambda R: torch.log(1 + R),
        "Dq": lambda R: 1 - 1 / (1 + R) ** alpha,
    }[variant]
    losses = []
    for i in range(len(x)):
        pos, neg = others(y, i)
        if not pos:
            continue
        s = [cosine(x[i], z) for z in x]
        before = [sum(torch.sigmoid((s[n] - s[p]) / temperature) for n in neg) + 0 * x.sum() for p in pos]
        losses.append(sum(f(R) for R in before) / len(pos))
    return sum(losses) / len(losses) if losses else x.sum() * 0
