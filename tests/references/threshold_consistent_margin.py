"""Threshold-consistent margin loss in plain loops."""

from .nt_xent import cosine, others


def mean(values, x):
    return sum(values) / len(values) if values else x.sum() * 0


def reference(
    x,
    y,
    *,
    pooled=None,
    scores=None,
    proxies=None,
    pos_margin=0.9,
    neg_margin=0.5,
    pos_weight=1.0,
    neg_weight=1.0,
    **_,
):
    near, far = [], []
    for i in range(len(x)):
        pos, neg = others(y, i)
        near += [cosine(x[i], x[p]) for p in pos]
        far += [cosine(x[i], x[n]) for n in neg]
    short = [pos_margin - s for s in near if s <= pos_margin]
    over = [s - neg_margin for s in far if s >= neg_margin]
    return pos_weight * mean(short, x) + neg_weight * mean(over, x)
