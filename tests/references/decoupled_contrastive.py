"""Decoupled contrastive loss in plain loops."""

import torch

from .nt_xent import cosine, others


def reference(x, y, *, pooled=None, scores=None, proxies=None, temperature=0.1, sigma=None, **_):
    terms = []
    for i in range(len(x)):
        pos, neg = others(y, i)
        for p in pos if neg else []:
            bottom = sum(torch.exp(cosine(x[i], x[n]) / temperature) for n in neg)
            terms.append((cosine(x[i], x[p]), torch.log(bottom)))
    if not terms:
        return x.sum() * 0
    weights = [1.0] * len(terms)
    if sigma is not None:
        likeness = [torch.exp(s.detach() / sigma) for s, _ in terms]
        weights = [2 - one / (sum(likeness) / len(likeness)) for one in likeness]
    losses = [-w * s / temperature + bottom for w, (s, bottom) in zip(weights, terms, strict=True)]
    return sum(losses) / len(losses)
