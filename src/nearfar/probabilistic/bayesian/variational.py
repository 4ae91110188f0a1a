"""Bayesian logistic regression by the quadratic bound of Jaakkola & Jordan (1997), and the predictions it makes.

P(s | theta) = sigma(-s theta' w),  theta ~ N(theta0, I / delta),  q(theta) = N(m, C)
C^-1 = delta I + 2 sum h(xi) w w',  m = C (delta theta0 - 1/2 sum s w),  xi^2 = (m'w)^2 + w'C w
h(xi) = tanh(xi / 2) / (4 xi)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import entr, expit, log_expit, ndtr

from ...numerics.optimize import Report, Solution, stopped
from ...numerics.types import Array

WIDE_LOG_ODDS = 2.0  # standard deviation of the log-odds above which the integral runs over the log-odds themselves


class Gaussian(NamedTuple):
    """N(mean, cov)."""

    mean: Array
    cov: Array


class Answers(NamedTuple):
    """Rows w (p, k) with answers s (p,) of +1 or -1, each of which counts `weight` (p,) times."""

    W: Array
    s: Array
    weight: Array


def logistic_posterior(
    data: Answers,
    theta0: Array,
    delta: float,
    *,
    xi: Array | None = None,
    max_iter: int = 100,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Solution:
    """Return the posterior: mean as `x`, covariance as ``attributes["cov"]``, evidence bound as `objective`.

    Parameters
    ----------
    data : Answers
        Rows with their answers and weights.
    theta0 : ndarray of shape (k,)
        Mean of the prior.
    delta : float
        Precision of the prior.
    xi : ndarray of shape (p,), optional
        Start of xi. By default, the best values under the prior.
    max_iter : int
        Maximum number of rounds.
    tol : float
        Stop when a round raises the bound by at most ``tol * max(1, |bound|)``.
    report : callable, optional
        Function that is called with the number of the round, the bound and its gain.

    Notes
    -----
    A round costs one product of (k, p) with (p, k), one Cholesky factorization and one triangular solve, O(p k^2).
    """
    if xi is None:
        xi = spread(data.W, Gaussian(theta0, np.eye(len(theta0)) / delta))
    history: list[float] = []
    for k in range(1, max_iter + 1):
        # the bound is quadratic in theta for fixed xi, so q is a Gaussian; then xi is best for this q: neither step
        # lowers the bound
        q = posterior(data, theta0, delta, xi)
        xi = spread(data.W, q)
        history.append(evidence_bound(data, theta0, delta, q, xi))
        gain = history[-1] - history[-2] if k > 1 else np.inf
        limit = tol * max(1.0, abs(history[-1]))
        if report is not None:
            report(k, history[-1], gain)
        if gain <= limit:
            break
    converged = bool(gain <= limit)
    if converged:
        message = ""
    else:
        message = stopped("variational Bayes", k, "gain", gain, limit)
    return Solution(
        x=q.mean,
        objective=history[-1],
        n_iter=k,
        converged=converged,
        message=message,
        duality_gap=None,
        history=np.array(history),
        attributes={"cov": q.cov},
    )


def slope(xi: Array) -> Array:
    """Return h(xi) = tanh(xi / 2) / (4 xi), by the series 1/8 - xi^2 / 96 + ... for small xi."""
    small = xi < 1e-3
    safe = np.where(small, 1.0, xi)
    return np.where(small, 1 / 8 - xi**2 / 96, np.tanh(safe / 2) / (4 * safe))


def posterior(data: Answers, theta0: Array, delta: float, xi: Array) -> Gaussian:
    """Return q for given xi."""
    k = len(theta0)
    # C^-1 = delta I + 2 sum h(xi) w w'
    precision = delta * np.eye(k) + 2 * (data.W.T * (data.weight * slope(xi))) @ data.W
    R = solve_triangular(cholesky(precision, lower=True), np.eye(k), lower=True)
    C = R.T @ R
    # m = C (delta theta0 - 1/2 sum s w)
    return Gaussian(C @ (delta * theta0 - data.W.T @ (data.weight * data.s) / 2), C)


def law(W: Array, q: Gaussian) -> tuple[Array, Array]:
    """Return mean and variance of theta' w for each row w."""
    return W @ q.mean, np.einsum("pk,pk->p", W @ q.cov, W)


def spread(W: Array, q: Gaussian) -> Array:
    """Return the best xi for given q: xi^2 = (m'w)^2 + w'C w."""
    mean, variance = law(W, q)
    return np.sqrt(mean**2 + variance)


def evidence_bound(data: Answers, theta0: Array, delta: float, q: Gaussian, xi: Array) -> float:
    """Return sum [log sigma(xi) + (z - xi) / 2 - h(xi) (E z^2 - xi^2)] - KL(q | prior), with z = -s m'w."""
    mean, variance = law(data.W, q)
    terms = log_expit(xi) - (data.s * mean + xi) / 2 - slope(xi) * (mean**2 + variance - xi**2)
    k = len(theta0)
    # KL(q | prior) = (delta (tr C + |m - theta0|^2) - k - log det(delta C)) / 2
    away = q.mean - theta0
    volume = float(np.linalg.slogdet(q.cov)[1]) + k * np.log(delta)
    divergence = (delta * (np.trace(q.cov) + away @ away) - k - volume) / 2
    return float(data.weight @ terms - divergence)


def expected(f: str, mean: Array, variance: Array, nodes: int = 32) -> Array:
    """Return E f(t) for t ~ N(mean, variance), where f is the "probability" sigma(-t) or its "entropy".

    The error of the trapezoid rule decreases like exp(-pi sqrt(nodes)) for every variance: it is below 1e-6 for 32
    nodes.
    """
    found = np.empty(len(mean))
    deviation = np.sqrt(variance)
    wide = deviation > WIDE_LOG_ODDS
    for rows, rule in ((wide, over_odds), (~wide, over_normal)):
        found[rows] = rule(f, mean[rows], deviation[rows], nodes)
    return found


def over_normal(f: str, mean: Array, deviation: Array, nodes: int) -> Array:
    """Return E f(mean + deviation z), z ~ N(0, 1), from nodes z.

    The poles of f are at a distance of pi / deviation, which is too small for large deviations. The span of the nodes
    makes the truncation error, exp(-z^2 / 2), as small as the discretization error, exp(-2 pi (pi / WIDE_LOG_ODDS) /
    step).
    """
    z = 2 * np.cbrt(np.pi**2 * nodes) * centered_steps(nodes)
    weight = np.exp(-(z**2) / 2)
    p = expit(-(mean[:, None] + deviation[:, None] * z))
    values = entropy(p) if f == "entropy" else p
    return values @ (weight / weight.sum())


def over_odds(f: str, mean: Array, deviation: Array, nodes: int) -> Array:
    """Return the same from nodes t, for wide and therefore smooth normal densities.

    Integration by parts turns E sigma(-t) into E Phi(-(mean + u) / deviation), where u has the density
    sigma(u) sigma(-u). This density and the entropy decrease like exp(-|t|), and have poles at pi i.
    """
    # the truncation error exp(-span / 2) equals the discretization error exp(-2 pi^2 / step)
    span = 2 * np.pi * np.sqrt(nodes)
    t = span * centered_steps(nodes)
    p = expit(-t)
    if f == "entropy":
        density = np.exp(-(((mean[:, None] - t) / deviation[:, None]) ** 2) / 2)
        return density @ entropy(p) * (span / nodes / np.sqrt(2 * np.pi)) / deviation
    weight = p * (1 - p)
    return ndtr(-(mean[:, None] + t) / deviation[:, None]) @ (weight / weight.sum())


def centered_steps(n: int) -> Array:
    """Return n points around 0, at equal distances of 1 / n."""
    return (np.arange(n) - (n - 1) / 2) / n


def entropy(p: Array) -> Array:
    """Return -p log p - (1 - p) log(1 - p)."""
    return entr(p) + entr(1 - p)
