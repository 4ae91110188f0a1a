"""Every virtual positive pair against the negatives of its anchor."""


def reference(x, y, *, pooled=None, scores=None, proxies=None, k=1.05, reg=0.0):
    total, pairs, n = x.sum() * 0, 0, len(x)
    for i in range(n):
        for p in range(n):
            if i == p or y[i] != y[p] or y[i] == -1:
                continue
            pairs += 1
            lengths = x[i].norm() * x[p].norm()
            cosine = x[i] @ x[p] / lengths
            virtual = x[i] @ x[p] - (k - 1) * (cosine + 1) * lengths
            inner = [(x[i] @ x[j] - virtual).exp() for j in range(n) if y[j] not in (y[i], -1)]
            if inner:
                total = total + (1 + sum(inner)).log()
    return total / max(pairs, 1) + reg / 2 * (x**2).sum() / max(n, 1)
