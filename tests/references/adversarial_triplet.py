"""Every triplet by itself, through weights that are read from the term's own start."""

import torch

import nearfar

DETACHED = True  # the embeddings in one part of the loss and the generated negatives in the other


def triplets(x, y):
    """Return every positive pair with the nearest negative that is farther, or the farthest, as index triples."""
    d = [[float((u - v).square().sum()) for v in x] for u in x]
    found = []
    for a in range(len(x)):
        others = [n for n in range(len(x)) if y[n] != y[a] and min(y[n], y[a]) >= 0]
        for p in range(len(x)):
            if p != a and y[p] == y[a] and others:
                farther = [n for n in others if d[a][n] > d[a][p]]
                n = min(farther, key=d[a].__getitem__) if farther else max(others, key=d[a].__getitem__)
                found.append((a, p, n))
    return found


def generate(weights, a, p, n):
    hidden = (weights["generator.0.weight"] @ torch.cat([a, p, n]) + weights["generator.0.bias"]).clamp_min(0)
    return weights["generator.2.weight"] @ hidden + weights["generator.2.bias"]


def mapped(weights, z):
    for layer in ("metric.0", "metric.1"):
        z = weights[f"{layer}.weight"] @ z + weights[f"{layer}.bias"]
    return z


def square(v):
    return (v * v).sum()


def start(**settings):
    """Return the weights with which the laws' term begins."""
    torch.manual_seed(0)
    return nearfar.AdversarialTriplet(5, **settings).double().state_dict()


def reference(
    x,
    y,
    *,
    pooled=None,
    scores=None,
    proxies=None,
    weights=None,
    lam1=1.0,
    lam2=1.0,
    alpha=1.0,
    sign=-1,
    margin=1.0,
    joint=False,
    weight=1.0,
    real=False,
    normalize=False,
):
    x = torch.stack([row / row.norm() for row in x]) if normalize else x
    weights = weights or start()
    held = (lambda v: v) if joint else (lambda v: v.detach())
    generator, metric, active = 0.0, 0.0, 0
    found = triplets(x.detach(), y)
    for a, p, n in ([x[i] for i in t] for t in found):
        g = generate(weights, held(a), held(p), held(n))
        frozen = {name: held(value) for name, value in weights.items()}
        Mg, Ma, Mp = (mapped(frozen, v) for v in (g, held(a), held(p)))
        hinge = (square(Mg - Ma) - square(Mp - Ma) + sign * alpha).clamp_min(0)
        generator = generator + square(g - held(a)) + lam1 * square(g - held(n)) + lam2 * hinge
        far = mapped(weights, n if real else held(g))
        gap = square(mapped(weights, a) - mapped(weights, p)) - square(mapped(weights, a) - far) + margin
        metric, active = metric + gap.clamp_min(0), active + int(gap > 0)
    return generator / max(len(found), 1) + weight * metric / max(active, 1) + x.sum() * 0
