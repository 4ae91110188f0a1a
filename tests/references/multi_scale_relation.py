"""One query and one class at a time: maps on top of each other, through the layers as they are."""

import torch
from torch.nn.functional import group_norm, relu


def prototype(maps, labels, c):
    own = [m for m, label in zip(maps, labels, strict=True) if label == c]
    return sum(own) / len(own)


def relation(g, query, proto):
    x = g.first(torch.cat([query, proto])[None])
    x = relu(group_norm(x, 4, g.norms[0].weight, g.norms[0].bias))
    for conv, norm in zip(g.rest, list(g.norms)[1:], strict=True):
        x = relu(group_norm(conv(x), 4, norm.weight, norm.bias))
    return x[0].mean((1, 2))


def scores(net, query_maps, support_maps, labels, n_way):
    """Return the (q, N) scores as nested lists; maps: one list per scale of one map per item."""
    rows = []
    for q in range(len(query_maps[0])):
        row = []
        for c in range(n_way):
            parts = [
                relation(g, maps[q], prototype(support, labels, c))
                for g, maps, support in zip(net.relations, query_maps, support_maps, strict=True)
            ]
            row.append(torch.sigmoid(net.score(torch.cat(parts)))[0])
        rows.append(row)
    return rows


def loss(rows, labels, margin, weight, scale):
    total = 0.0
    for row, y in zip(rows, labels, strict=True):
        exps = [(scale * r).exp() for r in row]
        rival = max(r for c, r in enumerate(row) if c != y)
        hinge = rival - row[y] + margin
        total = total - (exps[y] / sum(exps)).log() + weight * (hinge if hinge > 0 else hinge * 0)
    return total / len(rows)
