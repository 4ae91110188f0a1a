"""The lifted structured loss in plain loops over unordered pairs."""

import torch


def distance(a, b):
    squared = ((a - b) ** 2).sum()
    return squared.sqrt() if squared > 0 else squared


def reference(x, y, *, pooled=None, scores=None, proxies=None, margin=1.0, hard=False, squared=False, reduction="mean"):
    known = [i for i in range(len(x)) if y[i] >= 0]
    total, pairs = x.sum() * 0, 0
    d = {(i, j): distance(x[i], x[j]) ** (2 if squared else 1) for i in known for j in known}
    for i in known:
        for j in known:
            if j <= i or y[i] != y[j]:
                continue
            pairs += 1
            pushes = [margin - d[i, k] for k in known if y[k] != y[i]] + [
                margin - d[j, k] for k in known if y[k] != y[j]
            ]
            if pushes:
                pushes = torch.stack(pushes)
                J = d[i, j] + (pushes.max() if hard else pushes.exp().sum().log())
                total = total + J.clamp_min(0) ** 2
    return 2 * total if reduction == "sum" else total / max(2 * pairs, 1)
