"""Class by class."""

import torch


def reference(
    x,
    y,
    *,
    pooled=None,
    scores=None,
    proxies=None,
    margin=0.3,
    negatives="points",
    detach_centers=False,
    min_per_class=2,
    reduction="sum",
):
    known = [i for i in range(len(y)) if y[i] != -1]
    classes = sorted({int(y[i]) for i in known})
    members = {c: [i for i in known if y[i] == c] for c in classes}
    centers = {c: torch.stack([x[i] for i in members[c]]).mean(0) for c in classes}
    if detach_centers:
        centers = {c: center.detach() for c, center in centers.items()}
    total, valid = x.sum() * 0, 0
    for c in classes:
        if len(members[c]) < min_per_class or len(classes) < 2:
            continue
        far = max(((centers[c] - x[i]) ** 2).sum() for i in members[c])
        strangers = [x[i] for i in known if y[i] != c]
        if negatives == "centers":
            strangers = [centers[other] for other in classes if other != c]
        near = min(((centers[c] - stranger) ** 2).sum() for stranger in strangers)
        total, valid = total + (far - near + margin).clamp_min(0), valid + 1
    return total / max(valid, 1) if reduction == "mean" else total
