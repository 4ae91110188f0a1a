"""The three updates with gradients by differences: no autograd, no graph."""

import numpy as np


def gradient(f, theta, h=1e-5):
    """Return the central differences of a scalar function of a vector."""
    out = np.zeros(len(theta))
    for k in range(len(theta)):
        step = np.zeros(len(theta))
        step[k] = h
        out[k] = (f(theta + step) - f(theta - step)) / (2 * h)
    return out


def update(mode, theta, support_loss, query_loss, inner_lr, lr):
    """Return theta after one episode, losses being functions of a vector."""
    adapted = theta - inner_lr * gradient(support_loss, theta)
    if mode == "maml":
        return theta - lr * gradient(lambda t: query_loss(t - inner_lr * gradient(support_loss, t)), theta)
    start = theta if mode == "fomaml" else adapted
    return start - lr * gradient(query_loss, adapted)
