"""Positive definite matrices in a network: functions of the eigenvalues, and weights with orthonormal columns.

    f(X) = V diag(f(lambda)) V^T                     X = V diag(lambda) V^T
    gradient: V (K o (V^T sym(G) V)) V^T             K_ij = (f_i - f_j) / (lambda_i - lambda_j), f' where they tie

K is the matrix of divided differences of Daleckii and Krein. For repeated eigenvalues, its limit f' is exact, whereas
differentiating the eigenvectors divides by zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..autograd import applied

Function = Callable[[Tensor], Tensor]


def symmetric(X: Tensor) -> Tensor:
    """Return the symmetric part of (..., n, n) matrices."""
    return (X + X.mT) / 2


def divided_differences(values: Tensor, f: Tensor, slope: Function) -> Tensor:
    """Return the (..., n, n) divided differences of a function at eigenvalues.

    Parameters
    ----------
    values : (..., n) tensor
        Eigenvalues.
    f : (..., n) tensor
        Values of the function at the eigenvalues.
    slope : callable
        Derivative, which is taken halfway between two eigenvalues that are equal or nearly so.

    Notes
    -----
    "Nearly" is a gap below the cube root of the machine epsilon, relative to the eigenvalues. At this gap, the rounding
    error of the quotient equals the error of the halfway slope.
    """
    a = values[..., :, None]
    b = values[..., None, :]
    # (f(a) - f(b)) / (a - b), and f'((a + b) / 2) where a is nearly b; 1 there keeps the quotient finite
    gap = a - b
    tied = gap.abs() <= torch.finfo(values.dtype).eps ** (1 / 3) * torch.maximum(a.abs(), b.abs())
    quotient = (f[..., :, None] - f[..., None, :]) / torch.where(tied, 1.0, gap)
    return torch.where(tied, slope((a + b) / 2), quotient)


class _Spectral(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, f: Function, slope: Function) -> Tensor:
        values, V = torch.linalg.eigh(symmetric(X).double())
        image = f(values)
        ctx.save_for_backward(values, V, image)
        ctx.slope = slope
        return ((V * image[..., None, :]) @ V.mT).to(X.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        values, V, image = ctx.saved_tensors
        K = divided_differences(values, image, ctx.slope)
        G = symmetric(grads[0].double())
        return (V @ (K * (V.mT @ G @ V)) @ V.mT).to(grads[0].dtype), None, None


def spectral(X: Tensor, f: Function, slope: Function) -> Tensor:
    """Apply a function to the eigenvalues of symmetric matrices.

    Parameters
    ----------
    X : (..., n, n) float tensor
        Matrices, which are symmetrized first.
    f, slope : callable
        Function and its derivative, which are applied elementwise to the float64 eigenvalues.

    Returns
    -------
    (..., n, n) tensor
        Result in the dtype of `X`.

    Notes
    -----
    The gradient is symmetric, and exact for repeated eigenvalues. It cannot be differentiated again. The computation is
    in float64 and takes O(n^3) for each matrix.

    Examples
    --------
    >>> X = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    >>> spectral(X, torch.square, lambda values: 2 * values)
    tensor([[5., 4.],
            [4., 5.]])
    """
    if X.ndim < 2 or X.shape[-1] != X.shape[-2]:
        raise ValueError(f"X: expected (..., n, n) matrices, got shape {tuple(X.shape)}")
    return applied(_Spectral, X, f, slope)


def orthonormal_columns(A: Tensor) -> Tensor:
    """Return the orthonormal Q of A = Q R, (n, m) with n >= m, that has R with a positive diagonal."""
    Q, R = torch.linalg.qr(A)
    sign = torch.where(R.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(A.dtype)
    return Q * sign[..., None, :]


def stiefel_step(W: Tensor, G: Tensor, lr: float) -> Tensor:
    """Return W after one descent step on the manifold of matrices with orthonormal columns.

    Parameters
    ----------
    W : (n, m) tensor
        Matrix with orthonormal columns.
    G : (n, m) tensor
        Gradient in W without the constraint.
    lr : float
        Length of the step along the projected gradient G - W sym(W^T G), after which the columns are orthonormalized.
    """
    return orthonormal_columns(W - lr * (G - W @ symmetric(W.mT @ G)))


class StiefelSGD(torch.optim.Optimizer):
    """Gradient descent for weights with orthonormal columns.

    Parameters
    ----------
    params : iterable of (n, m) parameters
        Parameters that `stiefel_parameters(net)` returns; any other optimizer trains the rest.
    lr : float
        Learning rate, at least 0.
    momentum : float
        Momentum, in [0, 1), of the projected gradient, which is projected onto the new tangent space in every step.

    Raises
    ------
    ValueError
        If `lr` is negative, or `momentum` is outside [0, 1).

    Examples
    --------
    >>> W = nn.Parameter(orthonormal_columns(torch.randn(4, 2)))
    >>> optimizer = StiefelSGD([W], lr=0.1)
    >>> W.sum().backward()
    >>> optimizer.step()
    >>> bool(torch.allclose(W.mT @ W, torch.eye(2), atol=1e-6))
    True
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float, momentum: float = 0.0) -> None:
        if lr < 0 or not 0 <= momentum < 1:
            raise ValueError(f"StiefelSGD: lr must be at least 0 and momentum in [0, 1), got {lr} and {momentum}")
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for W in group["params"]:
                if W.grad is not None:
                    W.copy_(stiefel_step(W, self._direction(W, group["momentum"]), group["lr"]))
        return loss

    def _direction(self, W: Tensor, momentum: float) -> Tensor:
        assert W.grad is not None
        if not momentum:
            return W.grad
        # projection onto the tangent space at W of matrices with W'W = I: momentum adds up tangent vectors only
        tangent = W.grad - W @ symmetric(W.mT @ W.grad)
        state = self.state[W]
        if state:
            state["momentum"] = momentum * state["momentum"] + tangent
        else:
            state["momentum"] = tangent
        direction: Tensor = state["momentum"]
        return direction


def stiefel_parameters(net: nn.Module) -> list[nn.Parameter]:
    """Return the weights of a network whose columns must remain orthonormal.

    These are the weights that its modules list in `orthonormal`.
    """
    names = ((module, name) for module in net.modules() for name in getattr(module, "orthonormal", ()))
    return [module.get_parameter(name) for module, name in names]


def other_parameters(net: nn.Module) -> list[nn.Parameter]:
    """Return all other parameters of a network."""
    orthonormal = {id(weight) for weight in stiefel_parameters(net)}
    return [weight for weight in net.parameters() if id(weight) not in orthonormal]
