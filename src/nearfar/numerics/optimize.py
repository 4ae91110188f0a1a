"""Optimizers with one convergence protocol: each returns a `Solution` with the result and the reason why it stopped.

`one_thread` is for searches that take many small products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

from .types import AnyArray, Array

Report = Callable[[int, float, float], None]
Objective = Callable[[Array], tuple[float, Array]]
Bounds = tuple[float | Array | None, float | Array | None]
Stop = Callable[[float, float], bool]

NOISE = 1e-10  # relative difference of values below which rounding hides their order
FLAT_GRADIENT = 1e-7  # gradient relative to the value below which rounding hides the decrease of a step
STEPS_PER_ROUND = 50  # steps of `lbfgs_in_rounds` between two retractions
LINE_SEARCH = 2  # SciPy's status of L-BFGS-B where no step lowers the value


class HaltedError(Exception):
    """Signal that the caller's own stopping rule is met; never leaves this module."""


@dataclass(frozen=True)
class Solution:
    """Result of a solver.

    Attributes
    ----------
    x : ndarray
        Solution: the components L (k, d) when returned to a learner, anything else between solvers.
    objective : float
        Value of the objective at `x`, as defined in the paper (maximized objectives are not negated).
    n_iter : int
        Number of iterations run, at least 1.
    converged : bool
        Whether the stopping rule was met.
    message : str
        If not converged, how far the solver got; empty if it has no stopping rule.
    duality_gap : float or None
        For convex problems, an upper bound on the difference between the objective and the optimum.
    history : ndarray or None
        Objective after each iteration.
    attributes : dict
        Further fitted attributes, by name without the trailing underscore.
    """

    x: AnyArray
    objective: float | None = None
    n_iter: int = 1
    converged: bool = True
    message: str = ""
    duality_gap: float | None = None
    history: Array | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    def with_x(self, x: AnyArray, **changes: Any) -> Solution:
        """Return the same solution with another `x` (such as components made from a metric)."""
        return replace(self, x=x, **changes)

    @property
    def value(self) -> float:
        """Objective of a solution that has one; otherwise 0."""
        return float(self.objective or 0.0)

    def times(self, factor: float) -> Solution:
        """Return the same solution with its objective times `factor`, to change its units or to restore its sign."""
        objective = self.objective
        if objective is not None:
            objective = factor * objective
        gap = self.duality_gap
        if gap is not None:
            gap = abs(factor) * gap
        history = self.history
        if history is not None:
            history = factor * history
        return replace(self, objective=objective, duality_gap=gap, history=history)


def lbfgs(
    fun: Objective,
    x0: Array,
    *,
    max_iter: int = 100,
    tol: float = 1e-5,
    bounds: Bounds | None = None,
    memory: int = 10,
    report: Report | None = None,
    stop: Stop | None = None,
    ftol: float = 1e-15,
    tries: int = 20,
) -> Solution:
    """Minimize a smooth function by L-BFGS-B.

    Parameters
    ----------
    fun : callable
        Function that takes x (of the shape of `x0`) and returns (value, gradient of the same shape).
    x0 : ndarray
        Starting point.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when the largest entry of the projected gradient falls below ``tol * max(1, |value|)``. If rounding errors
        prevent any step from lowering the value, a gradient of 1e-7 counts as converged as well.
    bounds : (low, high) or None
        Numbers or arrays of the shape of `x0`, or None for no bound on that side.
    memory : int
        Number of corrections that approximate the Hessian.
    report : callable or None
        Function that is called with (iteration, value, largest gradient entry).
    stop : callable or None
        Function that is called after each iteration with (previous value, value), the first time with (inf, value). If
        it returns True, the search ends as converged. It may use what `fun` computed last, which belongs to the
        current iterate.
    ftol : float
        Stop as well once an iteration lowers the value by at most ``ftol * max(1, |value|)``.
    tries : int
        Maximum number of steps in a line search.
    """
    history: list[float] = []
    last = [np.inf, np.inf]

    def flat(x: Array) -> tuple[float, Array]:
        value, gradient = fun(x.reshape(x0.shape))
        last[:] = float(value), float(np.abs(gradient).max(initial=0.0))
        return float(value), gradient.ravel()

    def each(x: Array) -> None:
        before = history[-1] if history else np.inf
        # the last point that L-BFGS-B evaluates before this call is the iterate that it accepts
        history.append(last[0])
        if report is not None:
            report(len(history), last[0], last[1])
        if stop is not None and stop(before, last[0]):
            iterate[:] = x
            raise HaltedError

    iterate = x0.astype(np.float64).ravel()
    # one iteration rarely takes more than 20 evaluations; the default of SciPy, 15,000 in all, would end long searches
    limit = {"maxiter": max_iter, "maxfun": 20 * max_iter + 100, "maxls": tries}
    options = {**limit, "gtol": tol, "ftol": ftol, "maxcor": memory}
    if bounds is None:
        limits = None
    else:
        limits = np.stack([side.ravel() for side in sides(x0, bounds)], axis=1)
    try:
        found = minimize(flat, x0.ravel(), jac=True, method="L-BFGS-B", bounds=limits, callback=each, options=options)
    except HaltedError:
        return Solution(iterate.reshape(x0.shape), history[-1], len(history), history=np.array(history))
    # at a bound, the gradient need not vanish, but only the part of it that leads inside
    step = projected_step(found.x.reshape(x0.shape), found.jac.reshape(x0.shape), bounds)
    gradient = float(np.abs(step).max(initial=0.0))
    accepted = tol
    if found.status == LINE_SEARCH:
        accepted = max(tol, FLAT_GRADIENT)
    converged = bool(found.success or gradient <= accepted * max(1.0, abs(float(found.fun))))
    message = ""
    if not converged:
        message = stopped("L-BFGS", found.nit, "gradient", gradient, None if stop else tol)
    return Solution(
        found.x.reshape(x0.shape),
        objective=float(found.fun),
        n_iter=max(1, int(found.nit)),
        converged=converged,
        message=message,
        history=np.array(history or [float(found.fun)]),
    )


def lbfgs_in_rounds(
    fun: Objective,
    x0: Array,
    retract: Callable[[Array], Array],
    *,
    max_iter: int,
    tol: float,
    report: Report | None = None,
) -> Solution:
    """Minimize by L-BFGS a function that does not depend on all of x, such as one of the span of a basis.

    The parts of x without effect may grow without bound or become singular during the search; the gradient then
    vanishes, or is lost in rounding, far from any optimum. Every few steps, `retract` therefore replaces x by a
    well-conditioned point of equal value.

    Parameters
    ----------
    fun, x0, max_iter, tol, report
        As for `lbfgs`.
    retract : callable
        Function that maps x to another x of the same value, such as an orthonormal basis. It is also applied to the
        solution.
    """
    history: list[float] = []
    least = np.inf

    def each(k: int, value: float, rest: float) -> None:
        history.append(value)
        if report is not None:
            report(len(history), value, rest)

    x = x0
    while True:
        before = least
        done = len(history)
        # the curvature that L-BFGS remembers is that of the old coordinates, so each round starts without a memory
        x = retract(lbfgs(fun, x, max_iter=min(STEPS_PER_ROUND, max_iter - done), tol=tol, report=each).x)
        least, G = fun(x)
        gradient = float(np.abs(G).max())
        # converged, no step was possible, no iteration is left, or the round gained nothing
        if gradient <= tol * max(1.0, abs(least)) or len(history) in (done, max_iter) or not least < before:
            break
    converged = gradient <= max(tol, FLAT_GRADIENT) * max(1.0, abs(least))
    if converged:
        message = ""
    else:
        message = stopped("L-BFGS", len(history), "gradient", gradient, tol)
    return Solution(
        x=x,
        objective=float(least),
        n_iter=max(1, len(history)),
        converged=converged,
        message=message,
        history=np.array(history or [least]),
    )


def in_unit(report: Report | None, unit: float) -> Report | None:
    """Return a function that reports the progress of a search whose values are in this unit."""
    if report is None:
        return None
    return lambda k, value, rest: report(k, unit * value, unit * rest)


def stopped(what: str, n_iter: int, measure: str, value: float, tol: float | None) -> str:
    """Return the message of a solver that ran out of iterations; tol is None if another measure decides."""
    limit = ""
    if tol is not None:
        limit = f", tol {tol:.3g}"
    return f"{what} stopped after {n_iter} iterations with {measure} {value:.3g}{limit}"


def sides(x: Array, bounds: Bounds) -> tuple[Array, Array]:
    """Return lower and upper bounds of every entry of x."""
    low = -np.inf if bounds[0] is None else bounds[0]
    high = np.inf if bounds[1] is None else bounds[1]
    return np.broadcast_to(low, x.shape), np.broadcast_to(high, x.shape)


def projected_step(x: Array, gradient: Array, bounds: Bounds | None) -> Array:
    """Return x less the projection of x - gradient onto the bounds: zero exactly at a stationary point."""
    if bounds is None:
        return gradient
    return x - np.clip(x - gradient, *sides(x, bounds))


def fista(
    fun: Objective,
    project: Callable[[Array, float], Array],
    x0: Array,
    *,
    gap: Callable[[Array, float, Array], float],
    max_iter: int = 500,
    tol: float = 1e-6,
    step: float = 1.0,
    report: Report | None = None,
) -> Solution:
    """Minimize a convex smooth function over a convex set: monotone accelerated projected gradient with restarts.

    Parameters
    ----------
    fun : callable
        Function that takes x and returns (value, gradient).
    project : callable
        Function that takes (x, step) and returns the projection of x (or the proximal map with that step).
    x0 : ndarray
        Starting point.
    gap : callable
        Function that takes (x, value, gradient) and returns a certificate: an upper bound on value - minimum.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when the certificate falls below ``tol * max(1, |value|)``.
    step : float
        Initial step length. Backtracking halves it, and successful steps let it grow by 5 %.
    report : callable or None
        Function that is called with the progress.

    Notes
    -----
    FISTA of Beck & Teboulle (2009), with the gradient restart of O'Donoghue & Candès (2015).
    """
    x = y = x0
    value, gradient = fun(x)
    certificate = gap(x, value, gradient)
    t = 1.0
    history = [value]
    for k in range(1, max_iter + 1):
        if certificate <= tol * max(1.0, abs(value)):
            return Solution(x, value, max(1, k - 1), duality_gap=float(certificate), history=np.array(history))
        if y is x:
            fy = value
            gy = gradient
        else:
            fy, gy = fun(y)
        x_new, value_new, gradient_new, step = backtrack(fun, project, y, fy, gy, step)
        if value_new > value + 1e-14 * abs(value) and y is not x:
            # the extrapolation raised the value: repeat the step from x, which makes the method monotone
            y = x
            t = 1.0
            continue
        if np.vdot(gy, x_new - x) > 0:
            # the step goes uphill: restart the momentum (O'Donoghue & Candès, 2015)
            t = 1.0
            y = x_new
        else:
            # t_{k+1} = (1 + sqrt(1 + 4 t_k^2)) / 2, y = x_k + (t_k - 1) / t_{k+1} (x_k - x_{k-1})
            t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
            y = x_new + (t - 1) / t_next * (x_new - x)
            t = t_next
        x = x_new
        value = value_new
        gradient = gradient_new
        # backtracking only shortens steps; let them grow again where the curvature is smaller
        step = step * 1.05
        certificate = gap(x, value, gradient)
        history.append(value)
        if report is not None:
            report(k, value, certificate)
    limit = tol * max(1.0, abs(value))
    converged = bool(certificate <= limit)
    if converged:
        message = ""
    else:
        message = stopped("projected gradient", max_iter, "gap", certificate, limit)
    return Solution(
        x=x,
        objective=value,
        n_iter=max_iter,
        converged=converged,
        message=message,
        duality_gap=float(certificate),
        history=np.array(history),
    )


def backtrack(
    fun: Objective, project: Callable[[Array, float], Array], y: Array, fy: float, gy: Array, step: float
) -> tuple[Array, float, Array, float]:
    """Take a projected gradient step that is short enough for the quadratic model at y to bound the function."""
    for _ in range(100):
        x = project(y - step * gy, step)
        value, gradient = fun(x)
        D = x - y
        if abs(value - fy) > NOISE * abs(fy):
            # f(x) <= f(y) + <g, x - y> + |x - y|^2 / (2 step)
            short = value <= fy + np.vdot(gy, D) + np.vdot(D, D) / (2 * step)
        else:
            # rounding determines which of two such close values is smaller, but has little effect on gradients
            short = np.vdot(gradient - gy, D) <= np.vdot(D, D) / step
        if short:
            break
        step /= 2
    return x, value, gradient, step


@cache
def linear_algebra() -> ThreadpoolController:
    """Return the linear algebra libraries of NumPy and SciPy, cached because the search for them takes milliseconds."""
    import scipy.linalg  # noqa: F401 - loads the library of SciPy

    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Restrict linear algebra to one thread inside this context, which suits searches of many small products.

    A product of some megabytes takes less time than two threads need to synchronize, and waiting threads take
    processor time from everything else.
    """
    with linear_algebra().limit(limits=1, user_api="blas"):
        yield
