"""All triplets, one by one."""

import torch


def reference(
    x,
    y,
    *,
    ref=None,
    ref_labels=None,
    pooled=None,
    scores=None,
    proxies=None,
    margin=None,
    normalize=True,
    soft=False,
    swap=False,
    distance="sq_euclidean",
    reduction="active",
    triplets="all",
):
    def apart(u, v):
        if normalize or distance == "cosine":
            u, v = torch.nn.functional.normalize(u, dim=0), torch.nn.functional.normalize(v, dim=0)
        if distance in ("dot", "cosine"):
            return int(distance == "cosine") - (u * v).sum()
        square = ((u - v) ** 2).sum()
        return square if distance == "sq_euclidean" else square.sqrt()

    shift = (0.0 if soft else 0.2) if margin is None else margin
    margin = 0.2 if margin is None else margin
    total, active, valid = x.sum() * 0, 0, 0
    others, other_y = (x, y) if ref is None else (ref, ref_labels)
    for a in range(len(x)):
        for p in range(len(others)):
            for k in range(len(others)):
                if (ref is None and a == p) or y[a] != other_y[p] or y[a] == other_y[k]:
                    continue
                if -1 in (y[a], other_y[p], other_y[k]):
                    continue
                rival = apart(x[a], others[k])
                if swap:
                    rival = torch.minimum(rival, apart(others[p], others[k]))
                gap = apart(x[a], others[p]) - rival
                if (triplets == "hard" and gap < 0) or (triplets == "semihard" and not -margin < gap < 0):
                    continue
                value = torch.log1p((gap + shift).exp()) if soft else (gap + shift).clamp_min(0)
                total, active, valid = total + value, active + int(value > 0), valid + 1
    return total / max({"active": active, "valid": valid, "sum": 1}[reduction], 1)
