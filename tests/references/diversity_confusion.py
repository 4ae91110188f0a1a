"""Diversity confusion in plain loops."""


def reference(x, y, *, pooled=None, scores=None, proxies=None, center=False, on="raw", **_):
    rows = [row / row.norm() if on == "normalized" else row for row in x]
    mean = sum(rows) / len(rows) if center else 0.0
    return sum((row - mean).square().sum() for row in rows) / len(rows)
