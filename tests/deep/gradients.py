"""Samples in double precision, and comparisons of losses by value and gradient."""

import torch

LABELS = (0, 0, 1, 1, 1, 2, 3, 3, -1)


def samples(labels=LABELS, seed=0, dim=4):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(len(labels), dim, generator=g, dtype=torch.float64, requires_grad=True)
    return x, torch.tensor(labels)


def unit(x):
    return torch.nn.functional.normalize(x)


def grad(value, x):
    return torch.autograd.grad(value, x, retain_graph=True)[0]


def same(value, expected, x, **tolerance):
    torch.testing.assert_close(value, expected, **tolerance)
    torch.testing.assert_close(grad(value, x), grad(expected, x), **tolerance)
