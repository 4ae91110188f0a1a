"""The cascade of every anchor: its pairs sorted by their losses, and the hardest of them handed on."""

import math

from .bier import lengths_of

DETACHED = "which pairs are hard is chosen without gradient"


def squared(a, b):
    return (a / a.norm() - b / b.norm()).square().sum()


def reference(x, y, *, pooled=None, scores=None, proxies=None, groups=3, shares=(0.5, 0.4), margin=1.0):
    parts = x.split(lengths_of(groups, x.shape[1]), dim=1)
    sums = [[x.sum() * 0, x.sum() * 0] for _ in parts]
    numbers = [[0, 0] for _ in parts]
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j != i and -1 not in (y[i], y[j])]
        kept = [[j for j in others if y[j] == y[i]], [j for j in others if y[j] != y[i]]]
        for k, part in enumerate(parts):
            for kind in (0, 1):
                d = {j: squared(part[i], part[j]) for j in kept[kind]}
                loss = d if kind == 0 else {j: (margin - value).clamp_min(0) for j, value in d.items()}
                sums[k][kind] = sums[k][kind] + sum(loss.values())
                numbers[k][kind] += len(loss)
                if loss and k + 1 < len(parts):
                    share = shares[min(k, len(shares) - 1)]
                    most = max(1, math.ceil(share * len(loss) - 1e-6))
                    least = sorted((value.item() for value in loss.values()), reverse=True)[most - 1]
                    kept[kind] = [j for j in kept[kind] if loss[j].item() >= least]
    total = x.sum() * 0
    for of_group, counts in zip(sums, numbers, strict=True):
        for part, number in zip(of_group, counts, strict=True):
            total = total + part / max(number, 1)
    return total
