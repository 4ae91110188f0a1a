"""All ordered pairs, one by one."""

import torch


def reference(x, y, *, pooled=None, scores=None, proxies=None, margin=1.0, form="hadsell", reduction="mean"):
    near, far, n_near, n_far = x.sum() * 0, x.sum() * 0, 0, 0
    for i in range(len(x)):
        for j in range(len(x)):
            if i == j or -1 in (y[i], y[j]):
                continue
            squared = ((x[i] - x[j]) ** 2).sum()
            cosine = torch.nn.functional.cosine_similarity(x[i], x[j], dim=0)
            if y[i] == y[j]:
                near = near + {"hadsell": squared / 2, "survey": squared, "xbm": 1 - cosine}[form]
                n_near += 1
            else:
                hinge = (margin - (squared.sqrt() if form == "hadsell" else squared)).clamp_min(0)
                push = {"hadsell": hinge**2 / 2, "survey": hinge, "xbm": cosine * (cosine > margin)}
                far = far + push[form]
                n_far += 1
    if reduction == "balanced":
        return near / max(n_near, 1) + far / max(n_far, 1)
    anchors = sum(1 for label in y if label != -1) if (n_near + n_far) else 0
    return (near + far) / max({"mean": n_near + n_far, "anchor": anchors, "sum": 1}[reduction], 1)
