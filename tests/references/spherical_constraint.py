"""Spherical embedding constraint in plain loops."""


def reference(x, y, *, pooled=None, scores=None, proxies=None, **_):
    norms = [row.square().sum().sqrt() for row in x]
    mean = sum(norms) / len(norms)
    return sum((norm - mean) ** 2 for norm in norms) / len(norms)
