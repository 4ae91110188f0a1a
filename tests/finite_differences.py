"""Derivatives by finite differences, with an error that does not depend on the processor.

The five-point formula f'(0) = (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / (12 h) has an error of h^4 |f^(5)| / 30 plus
1.5 r / h, where r is the rounding error of f: about 1e-14 |f| for sums over rows and products of matrices. With
h = 1e-4 that is 1e-10 |f| on every processor, and fifth derivatives of 1e8 add no more. The two-point
formula at h = 1e-6 has 1e-8 |f|: too much for `rtol=1e-6` where the derivative is small beside f.

A function whose second derivative jumps (a smoothed hinge) needs a smaller `h`: its error is of order h^2 at best.
"""

import numpy as np


def derivative_along(f, x, direction, h=1e-4):
    """Return the derivative of `f` at `x` along `direction`; `f` gives a number or an array."""
    x = np.asarray(x, dtype=float)
    direction = np.asarray(direction, dtype=float)
    near = f(x + h * direction) - f(x - h * direction)
    far = f(x + 2 * h * direction) - f(x - 2 * h * direction)
    return (8 * near - far) / (12 * h)


def gradient(f, x, h=1e-4):
    """Return the gradient of the number `f(x)`, in the shape of `x`."""
    x = np.asarray(x, dtype=float)
    result = np.zeros_like(x)
    for at in np.ndindex(*x.shape):
        direction = np.zeros_like(x)
        direction[at] = 1.0
        result[at] = derivative_along(f, x, direction, h)
    return result
