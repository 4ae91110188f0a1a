"""Supervised contrastive loss for label sets in plain loops."""

import torch

from .nt_xent import cosine


def of_sets(x, sets, temperature=0.1, threshold=0.5):
    """The loss of samples with these sets of labels."""
    labeled = [i for i in range(len(x)) if sets[i]]
    losses = []
    for i in labeled:
        others = [k for k in labeled if k != i]
        similarity = {p: len(sets[i] & sets[p]) / len(sets[i] | sets[p]) for p in others}
        positives = [p for p in others if similarity[p] >= threshold]
        if not positives:
            continue
        bottom = torch.log(sum(torch.exp(cosine(x[i], x[k]) / temperature) for k in others))
        terms = [similarity[p] * (cosine(x[i], x[p]) / temperature - bottom) for p in positives]
        losses.append(-sum(terms) / len(positives))
    return sum(losses) / len(losses) if losses else x.sum() * 0


def reference(x, y, *, pooled=None, scores=None, proxies=None, temperature=0.1, threshold=0.5, **_):
    return of_sets(x, [{int(c)} - {-1} for c in y], temperature, threshold)
