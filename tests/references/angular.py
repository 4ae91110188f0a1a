"""The angular loss from its geometry, triplet by triplet."""

import math

import torch


def reference(x, y, *, pooled=None, scores=None, proxies=None, alpha=45.0, form="hinge", reduction="active"):
    z = torch.nn.functional.normalize(x)
    T = math.tan(math.radians(alpha)) ** 2
    total, active, valid, pairs = x.sum() * 0, 0, 0, 0
    known = [i for i in range(len(x)) if y[i] >= 0]
    for a in known:
        for p in known:
            if a == p or y[a] != y[p]:
                continue
            pairs += 1
            inside = torch.ones((), dtype=x.dtype)
            for n in known:
                if y[n] == y[a]:
                    continue
                center = (z[a] + z[p]) / 2
                hinge = ((z[a] - z[p]) ** 2).sum() - 4 * T * ((z[n] - center) ** 2).sum()
                inside = inside + torch.exp(4 * T * (z[a] + z[p]) @ z[n] - 2 * (1 + T) * z[a] @ z[p])
                valid += 1
                if form == "hinge" and hinge > 0:
                    total, active = total + hinge, active + 1
            if form == "softmax":
                total = total + inside.log()
    count = pairs if form == "softmax" else {"active": active, "valid": valid}.get(reduction, 1)
    return total if reduction == "sum" else total / max(count, 1)
