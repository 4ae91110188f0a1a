"""The debiased, hardness-weighted contrastive loss in plain loops, from exponentials."""

import math

import torch


def reference(
    x,
    y,
    *,
    pooled=None,
    scores=None,
    proxies=None,
    temperature=0.5,
    beta=1.0,
    tau_plus=0.1,
    form="paper",
    alpha=1.0,
    detach_weights=False,
):
    z, t = torch.nn.functional.normalize(x), temperature
    known = [i for i in range(len(x)) if y[i] >= 0]
    total, count = x.sum() * 0, 0

    def tilt(s):
        weights = (beta * s / t).exp()
        weights = weights / weights.sum()
        return weights.detach() if detach_weights else weights

    for a in known:
        p = [z[a] @ z[j] for j in known if j != a and y[j] == y[a]]
        n = [z[a] @ z[j] for j in known if y[j] != y[a]]
        if not p or (form == "mixture" and not n):
            continue
        if not n:
            count += len(p)
            continue
        p, n = torch.stack(p), torch.stack(n)
        R = len(n) * (tilt(n) * (n / t).exp()).sum()
        if form == "paper":
            for s in p:
                G = (R - tau_plus * len(n) * (s / t).exp()) / (1 - tau_plus)
                G = G.clamp_min(len(n) * math.exp(-1 / t))
                total, count = total - ((s / t).exp() / ((s / t).exp() + G)).log(), count + 1
        else:
            E = alpha * R / len(n) + (1 - alpha) * (tilt(p) * (p / t).exp()).sum()
            for v, s in zip(tilt(p), p, strict=True):
                total = total - v * ((s / t).exp() / ((s / t).exp() + E)).log()
            count += 1
    return total / max(count, 1)
