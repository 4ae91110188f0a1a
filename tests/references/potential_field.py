"""Potential energy of samples and proxies in plain loops; proxies holds the first of every class, then the second."""

import torch


def reference(
    x,
    y,
    *,
    pooled=None,
    scores=None,
    proxies=None,
    num_classes=8,
    proxies_per_class=15,
    alpha=2.0,
    delta=0.2,
    reduction="mean",
    **_,
):
    points = [(row / row.norm(), int(label)) for row, label in zip(x, y, strict=True) if label >= 0]
    for k in range(proxies_per_class):
        for c in range(num_classes):
            p = proxies[k * num_classes + c]
            points.append((p / p.norm(), c))
    energy, pairs = x.sum() * 0, 0
    for i, (r, of_r) in enumerate(points):
        for j, (s, of_s) in enumerate(points):
            if i == j:
                continue
            pairs += 1
            d = torch.sqrt(((r - s) ** 2).sum())
            within = bool(d < delta)
            if of_r == of_s:  # an attractive potential, flat within delta
                energy = energy - (delta**-alpha if within else d**-alpha)
            else:  # a repulsive one, flat beyond delta
                energy = energy + (d**-alpha if within else delta**-alpha)
    return energy if reduction == "sum" else energy / max(pairs, 1)
