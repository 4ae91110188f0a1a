"""Every triplet by itself, through weights that are read from the term's own start."""

import math

import torch

import nearfar

DETACHED = True  # the generator's inputs, and its weights in the loss of the embeddings


def triplets(x, y):
    """Return every positive pair with the nearest negative that is farther than the positive, or else the farthest."""
    found = []
    for a in range(len(x)):
        distance = [float((point - x[a]).square().sum()) for point in x]
        near = [i for i in range(len(x)) if i != a and y[i] == y[a] != -1]
        far = [i for i in range(len(x)) if y[i] != y[a] and -1 not in (y[i], y[a])]
        for p in near if far else ():
            farther = [i for i in far if distance[i] > distance[p]]
            if farther:
                negative = min(farther, key=distance.__getitem__)
            else:
                negative = max(far, key=distance.__getitem__)
            found.append((a, p, negative))
    return found


def harder(a, p, n, share_kept):
    near, far = (p - a).norm(), (n - a).norm()
    if far <= near:
        return n
    return a + (near + (far - near) * share_kept) / far * (n - a)


def generate(weights, z):
    hidden = (weights["generator.0.weight"] @ z + weights["generator.0.bias"]).clamp_min(0)
    return weights["generator.2.weight"] @ hidden + weights["generator.2.bias"]


def cross_entropy(weights, v, label):
    scores = weights["classifier.weight"] @ v + weights["classifier.bias"]
    return scores.exp().sum().log() - scores[label]


def unit(v):
    return v / v.norm()


def hinge(a, p, n, margin):
    return ((a - p).square().sum() - (a - n).square().sum() + margin).clamp_min(0)


def mean(values, like):
    return sum(values) / len(values) if len(values) else like.sum() * 0


def start():
    """Return the weights with which the laws' term begins."""
    torch.manual_seed(0)
    return nearfar.HDMLLoss(8, 5).double().state_dict()


def reference(
    x,
    y,
    *,
    pooled=None,
    scores=None,
    proxies=None,
    weights=None,
    layer=None,
    normalize=True,
    margin=0.2,
    alpha=0.1,
    beta=1.0,
    lam=1.0,
    average=(math.inf, math.inf),
):
    """Return the value for the averages of J_m and J_gen; `layer` is the pair (W, b) of the embedding layer."""
    weights = weights or start()
    held = {name: value.detach() for name, value in weights.items()}
    features = x.detach() if layer is None else pooled.detach()
    share_kept, w = math.exp(-alpha / average[0]), math.exp(-beta / average[1])

    def embedded(v):
        return v if layer is None else layer[0] @ v + layer[1]

    compared = unit if normalize else (lambda v: v)

    real, synthetic, soft = [], [], []
    for a, p, n in triplets([compared(row) for row in x.detach()], y):
        real.append(hinge(compared(x[a]), compared(x[p]), compared(x[n]), margin))
        points = (x[a], x[p], harder(x[a], x[p], x[n], share_kept))
        synthetic.append(hinge(*(compared(embedded(generate(held, z))) for z in points), margin))
        for z, label in zip(points, (y[a], y[p], y[n]), strict=True):
            soft.append(cross_entropy(held, generate(weights, z.detach()), label))
    known = [i for i in range(len(x)) if y[i] != -1]
    recon = [(generate(weights, x[i].detach()) - features[i]).square().sum() for i in known]
    softmax = [cross_entropy(weights, features[i], y[i]) for i in known]
    metric = w * mean(real, x) + (1 - w) * mean(synthetic, x)
    return metric + mean(recon, x) + lam * mean(soft, x) + mean(softmax, x)
