"""All triplets, one by one."""

import torch


def reference(
    x, y, *, pooled=None, scores=None, proxies=None, margin=0.2, normalize=True, soft=False, reduction="active"
):
    z = torch.nn.functional.normalize(x) if normalize else x
    total, active, valid = x.sum() * 0, 0, 0
    n = len(x)
    for a in range(n):
        for p in range(n):
            for k in range(n):
                if a == p or y[a] != y[p] or y[a] == y[k] or -1 in (y[a], y[p], y[k]):
                    continue
                gap = ((z[a] - z[p]) ** 2).sum() - ((z[a] - z[k]) ** 2).sum()
                value = torch.log1p(gap.exp()) if soft else (gap + margin).clamp_min(0)
                total, active, valid = total + value, active + int(value > 0), valid + 1
    return total / max({"active": active, "valid": valid, "sum": 1}[reduction], 1)
