"""Cross-entropies of a softmax head, class by class."""

import torch

from .kl_head import rows, softmax
from .mse_head import average, outputs


def reference(
    x,
    y,
    *,
    pooled=None,
    scores=None,
    proxies=None,
    bias=None,
    temperature=1.0,
    smoothing=0.0,
    normalize=False,
    reduction="mean",
):
    if normalize:
        x, proxies = torch.nn.functional.normalize(x), torch.nn.functional.normalize(proxies)
    losses = []
    for z, target in zip(x, rows(y, len(proxies)), strict=True):
        if target is not None:
            q = softmax([o / temperature for o in outputs(z, proxies, bias)])
            target = [(1 - smoothing) * t + smoothing / len(target) for t in target]
            losses.append(-sum(t * v.log() for t, v in zip(target, q, strict=True)))
    return average(losses, x, reduction)
