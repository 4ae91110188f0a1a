"""The ratio of variances, class by class and coordinate by coordinate."""

import torch


def trace_cov(rows):
    """Sum over coordinates of the biased variance of a list of vectors."""
    mean = sum(rows) / len(rows)
    return sum((row - mean).square().sum() for row in rows) / len(rows)


def traces(x, y):
    """Expected trace of the covariance given the class, and trace of the covariance of the expectation."""
    known = [i for i in range(len(x)) if y[i] >= 0]
    groups = [[x[i] for i in known if y[i] == label] for label in sorted({int(y[i]) for i in known})]
    within = sum(len(group) * trace_cov(group) for group in groups) / len(known)
    means = [sum(group) / len(group) for group in groups for _ in group]
    return within, trace_cov(means)


def reference(x, y, *, pooled=None, scores=None, proxies=None, form="ratio", normalize=False, **_):
    x = torch.stack([row / row.norm() for row in x]) if normalize else x
    W, B = traces(x, y)
    floor = 1e-6 * (W + B)
    if form == "neg_trace_ratio":
        return -B / (W + floor)
    return W / (B + floor) if form == "ratio" else torch.log((W + floor) / (B + floor))
