"""Every positive pair against the negatives of its anchor."""


def reference(x, y, *, pooled=None, scores=None, proxies=None, reg=0.002, form="npair", margin=0.2, reduction="mean"):
    total, pairs, n = x.sum() * 0, 0, len(x)
    for i in range(n):
        for p in range(n):
            if i == p or y[i] != y[p] or y[i] == -1:
                continue
            pairs += 1
            inner = 0
            for k in range(n):
                if y[k] == y[i] or y[k] == -1:
                    continue
                if form == "npair":
                    inner = inner + (x[i] @ x[k] - x[i] @ x[p]).exp()
                else:
                    inner = inner + (((x[i] - x[p]) ** 2).sum() - ((x[i] - x[k]) ** 2).sum() + margin).clamp_min(0)
            if form == "npair":
                total = total + ((1 + inner).log() if not isinstance(inner, int) else 0)
            else:
                total = total + inner
    if reduction == "sum":
        pairs = 1
    return total / max(pairs, 1) + reg * (x**2).sum() / max(n, 1)
