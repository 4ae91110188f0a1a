"""Binomial deviance on every moment, the moments entry by entry from the signs as they are drawn."""

import torch

from . import binomial_deviance


def moments(vectors, signs):
    """Unit moments of the orders 2 to K of one item's list of feature vectors."""
    for k in range(2, len(signs) + 1):
        total = 0
        for v in vectors:
            product = 1
            for W in signs[:k]:
                product = product * sum(v[i] * W[i] for i in range(len(v)))
            total = total + product
        yield total / total.norm().clamp_min(1e-300)


def draw(orders, width, features, seed=0):
    bits = torch.randint(0, 2, (orders, width, features), generator=torch.Generator().manual_seed(seed))
    return (2 * bits - 1).double()


def reference(x, y, *, pooled=None, scores=None, proxies=None, orders=5, features=8192):
    signs = draw(orders, x.shape[1], features)
    by_item = [list(moments([z], signs)) for z in x]
    return sum(binomial_deviance.reference(torch.stack(order), y) for order in zip(*by_item, strict=True))
