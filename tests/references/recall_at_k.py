"""Recall@k with sigmoids for steps, query by query, without the query in its ranking."""

import torch


def reference(
    x,
    y,
    *,
    pooled=None,
    scores=None,
    proxies=None,
    ks=(1, 2, 4, 8, 16),
    temperature=1.0,
    rank_temperature=0.01,
    step=torch.sigmoid,
):
    z = torch.nn.functional.normalize(x)
    known = [i for i in range(len(x)) if y[i] >= 0]
    losses = []
    for i in known:
        others = [k for k in known if k != i]
        positives = [j for j in others if y[j] == y[i]]
        if not positives:
            continue
        ranks = [
            1 + sum(step((z[i] @ z[k] - z[i] @ z[j]) / rank_temperature) for k in others if k != j) for j in positives
        ]
        for k in ks:
            found = sum(torch.sigmoid((k - rank) / temperature) for rank in ranks)
            losses.append(1 - found.clamp(max=k) / min(k, len(positives)))
    return sum(losses) / len(losses) if losses else x.sum() * 0
