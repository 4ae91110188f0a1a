"""The triplet loss of every prefix, one after the other."""

from . import triplet


def reference(x, y, *, pooled=None, scores=None, proxies=None, dims=(2, 5)):
    return sum(triplet.reference(x[:, :dim], y) for dim in dims)
