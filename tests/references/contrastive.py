"""All ordered pairs, one by one."""

import torch


def reference(
    x, y, *, pooled=None, scores=None, proxies=None, margin=1.0, form="hadsell", reduction="mean", pos_margin=0.0
):
    near, far, n_near, n_far = x.sum() * 0, x.sum() * 0, 0, 0
    for i in range(len(x)):
        for j in range(len(x)):
            if i == j or -1 in (y[i], y[j]):
                continue
            squared = ((x[i] - x[j]) ** 2).sum()
            cosine = torch.nn.functional.cosine_similarity(x[i], x[j], dim=0)
            if form == "plain":
                if y[i] == y[j]:
                    pull = (squared.sqrt() - pos_margin).clamp_min(0)
                    near, n_near = near + pull, n_near + (int(pull > 0) if reduction == "active" else 1)
                else:
                    push = (margin - squared.sqrt()).clamp_min(0)
                    far, n_far = far + push, n_far + (int(push > 0) if reduction == "active" else 1)
                continue
            if y[i] == y[j]:
                near = near + {"hadsell": squared / 2, "survey": squared, "xbm": 1 - cosine}[form]
                n_near += 1
            else:
                hinge = (margin - (squared.sqrt() if form == "hadsell" else squared)).clamp_min(0)
                push = {"hadsell": hinge**2 / 2, "survey": hinge, "xbm": cosine * (cosine > margin)}
                far = far + push[form]
                n_far += 1
    if reduction in ("balanced", "active"):
        return near / max(n_near, 1) + far / max(n_far, 1)
    anchors = sum(1 for label in y if label != -1) if (n_near + n_far) else 0
    return (near + far) / max({"mean": n_near + n_far, "anchor": anchors, "sum": 1}[reduction], 1)
