"""The global loss from lists of distances."""

import torch


def moments(d):
    mean = sum(d) / len(d)
    return mean, sum((one - mean) ** 2 for one in d) / len(d)


def reference(x, y, *, pooled=None, scores=None, proxies=None, margin=0.4, weight=0.8, over="pairs", normalize=True):
    z = torch.nn.functional.normalize(x) if normalize else x
    known = [i for i in range(len(x)) if y[i] >= 0]
    near, far = [], []
    for a in known:
        positives = [((z[a] - z[p]) ** 2).sum() / 4 for p in known if p != a and y[p] == y[a]]
        negatives = [((z[a] - z[n]) ** 2).sum() / 4 for n in known if y[n] != y[a]]
        for one in positives:
            near += [one] * (len(negatives) if over == "triplets" else 1)
        for one in negatives:
            far += [one] * (len(positives) if over == "triplets" else 1)
    if not near or not far:
        return x.sum() * 0
    (mu_p, var_p), (mu_n, var_n) = moments(near), moments(far)
    return var_p + var_n + weight * (mu_p - mu_n + margin).clamp_min(0)
