"""JRD in plain loops: AM-softmax and the joint representation similarity, with the cosines to its proxies."""

import torch

from . import am_softmax, jrs
from .jrs import DETACHED as DETACHED


def reference(x, y, *, pooled=None, scores=None, proxies=None, alpha=1.0, **_):
    scores = [torch.stack([row @ w / (row.norm() * w.norm()) for w in proxies]) for row in x]
    layers = ("pooled", "embedding", "class")
    similarity = jrs.reference(x, y, pooled=pooled, scores=scores, layers=layers)
    return am_softmax.reference(x, y, proxies=proxies) + alpha * similarity
