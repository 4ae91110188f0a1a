"""ITML and the other information-theoretic and Bayesian learners beside straightforward loops: CPU time, agreement.

    python bench/classical_information.py                      about two minutes
    python bench/classical_information.py --sizes 13x240 50x1000
    PYTHONPATH=src PYTHON bench/classical_information.py peers [--data FOLDER]

`peers` compares with metric-learn in an interpreter that has it (0.7 works with scikit-learn up to 1.7): the same pairs
(those that metric-learn draws, each once), standardized features, and the same bounds: percentiles 5 and 95 of squared
distances, as the problem wants, and of plain ones, as metric-learn takes. Both fits are whole, with their checks;
metric-learn stops by its own rule with its tolerance of 1e-3, or after 1000 sweeps. f is the objective, less is better.

One thread. The loop is the usual pure Python form of ITML, one NumPy rank-one update of A per pair and sweep, stopped
where a sweep changes the multipliers by at most 1e-3 of their length. Pairs are drawn from five Gaussian classes, the
bounds are percentiles 5 and 95 of squared distances, gamma is 1 unless said. Errors are relative Frobenius distances
from the optimum (Newton's method with a tolerance of 1e-10). Times are the least of three runs in CPU seconds; each
contender is timed in turn.
"""

from __future__ import annotations

import argparse
import platform
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

from nearfar import ITML
from nearfar.probabilistic.bayesian import variational
from nearfar.probabilistic.bayesian.variational import Answers
from nearfar.probabilistic.information import label_precision, logdet
from nearfar.probabilistic.information.dmbk import divergences
from nearfar.probabilistic.information.logdet import Bounded
from nearfar.probabilistic.information.online_itml import stream


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["loops", "peers"], default="loops")
    parser.add_argument("--data", type=Path, help="folder of further tables for peers: CSV (.gz), class last")
    parser.add_argument("--sizes", nargs="+", default=["13x240", "50x1000", "100x2000"], help="features x pairs")
    parser.add_argument("--gammas", nargs="+", type=float, default=[0.1, 1.0, 10.0])
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        describe_machine()
        if arguments.what == "peers":
            return peers(arguments)
        print("\nITML, CPU ms (error): loop | projections | Newton, tol 1e-3 | Newton, tol 1e-6 | loop / Newton 1e-6")
        for size in arguments.sizes:
            d, c = map(int, size.split("x"))
            for gamma in arguments.gammas if size != arguments.sizes[-1] else [1.0]:
                itml_row(d, c, gamma, arguments.repeat)
        others(arguments.repeat)
    return None


def describe_machine() -> None:
    print(f"python {platform.python_version()}, numpy {np.__version__}, scipy {scipy.__version__}")
    for pool in threadpool_info():
        kernel = pool.get("architecture", "?")
        print(
            f"{pool['user_api']}: {pool['internal_api']} {pool['version']}, {kernel}, {pool['num_threads']} thread(s)"
        )


def least(call: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """Least CPU seconds, and the result."""
    times = []
    for _ in range(repeat):
        start = process_time()
        found = call()
        times.append(process_time() - start)
    return min(times), found


def pairs(d: int, c: int, gamma: float) -> Bounded:
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=1000)
    X = rng.normal(size=(5, d))[y] + rng.normal(size=(1000, d))
    i, j = rng.integers(1000, size=(2, 20 * c))
    same, different = y[i] == y[j], i != j
    chosen = np.r_[np.flatnonzero(same & different)[: c // 2], np.flatnonzero(~same)[: c // 2]]
    chosen = rng.permutation(chosen)
    i, j = i[chosen], j[chosen]
    a, b = rng.integers(1000, size=(2, 5000))
    u, l = np.percentile(np.sum((X[a] - X[b])[a != b] ** 2, axis=1), [5, 95])
    same = y[i] == y[j]
    return Bounded(X[i] - X[j], np.where(same, 1.0, -1.0), np.where(same, u, l), np.full(len(i), gamma))


def loop(weak: Bounded, tol: float = 1e-3, max_sweeps: int = 1000) -> np.ndarray:
    """ITML as one would write it first."""
    V, sign, bound, gammas = weak
    A, dual, slack, gamma = np.eye(V.shape[1]), np.zeros(len(V)), bound.copy(), gammas[0]
    for _ in range(max_sweeps):
        before = dual.copy()
        for k, v in enumerate(V):
            Av = A.dot(v)
            p = v.dot(Av)
            a = min(dual[k], gamma / (gamma + 1) * sign[k] * (1 / p - 1 / slack[k]))
            dual[k] -= a
            slack[k] = 1 / (1 / slack[k] + sign[k] * a / gamma)
            A += np.outer(Av, Av * (sign[k] * a / (1 - sign[k] * a * p)))
        if np.abs(dual - before).sum() <= tol * np.linalg.norm(dual):
            break
    return A


def itml_row(d: int, c: int, gamma: float, repeat: int) -> None:
    weak, one = pairs(d, c, gamma), np.eye(d)
    best = logdet.nearest(weak, one, tol=1e-10).x
    contenders: dict[str, tuple[Callable[[], np.ndarray], int]] = {
        "loop": (lambda: loop(weak), 1),
        "projections": (lambda: logdet.nearest(weak, one, "projections", max_iter=1000, tol=1e-3).x, 1),
        "newton 1e-3": (lambda: logdet.nearest(weak, one, tol=1e-3).x, repeat),
        "newton 1e-6": (lambda: logdet.nearest(weak, one, tol=1e-6).x, repeat),
    }
    times, cells = {}, []
    for name, (call, times_over) in contenders.items():
        times[name], A = least(call, times_over)
        cells.append(f"{1e3 * times[name]:9.1f} ({np.linalg.norm(A - best) / np.linalg.norm(best):.0e})")
    ratio = times["loop"] / times["newton 1e-6"]
    print(f"d={d:4} pairs={c:5} gamma={gamma:5g}: {' |'.join(cells)} | {ratio:6.1f}x")


def peers(arguments: argparse.Namespace) -> None:
    """ITML beside metric-learn's."""
    load = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
    tables = {name: call(return_X_y=True) for name, call in load.items()}
    for path in sorted(arguments.data.glob("*.csv*")) if arguments.data else []:
        text = np.loadtxt(path, delimiter=",", skiprows=1, dtype=str)
        tables[path.name.partition(".")[0]] = text[:, :-1].astype(float), np.unique(text[:, -1], return_inverse=True)[1]
    print("\n| table | pairs | bounds | metric-learn, ms (sweeps) | ours, ms (steps) | ratio | f, theirs | f, ours |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (X, y) in tables.items():
        for squared in (True, False):
            peer_row(name, StandardScaler().fit_transform(X), y, squared, arguments.repeat)


def peer_row(name: str, X: np.ndarray, y: np.ndarray, squared: bool, repeat: int) -> None:
    from metric_learn import ITML as Theirs
    from metric_learn.constraints import Constraints

    i, j, a, b = Constraints(y).positive_negative_pairs(20 * len(np.unique(y)) ** 2, random_state=0)
    weak = np.unique(np.sort(np.stack([np.r_[i, a], np.r_[j, b]], axis=1), axis=1), axis=0)
    weak = weak[np.any(X[weak[:, 0]] != X[weak[:, 1]], axis=1)]
    V, sign = X[weak[:, 0]] - X[weak[:, 1]], np.where(y[weak[:, 0]] == y[weak[:, 1]], 1, -1)
    d2 = np.sum(V**2, axis=1)
    bounds = np.maximum(np.percentile(d2 if squared else np.sqrt(d2), [5, 95]), 1e-9)

    def theirs() -> Any:
        return Theirs().fit(X[weak], sign, bounds=bounds)

    def ours() -> Any:
        return ITML(1.0, bounds=bounds).fit(X, pairs=weak, pair_labels=sign)

    slow, peer = least(theirs, 1)
    slow, peer = (slow, peer) if slow > 5 else least(theirs, repeat)
    fast, own = least(ours, 3 * repeat)
    problem = Bounded(V, sign.astype(float), np.where(sign > 0, *bounds), np.ones(len(V)))
    f = []
    for A in (peer.get_mahalanobis_matrix(), own.get_mahalanobis_matrix()):
        penalty = logdet.penalty(np.einsum("cd,cd->c", V @ A, V), problem)
        f.append(f"{np.trace(A) - len(A) - np.linalg.slogdet(A)[1] + penalty:.4f}")
    cells = [name, str(len(V)), "squared" if squared else "plain", f"{1e3 * slow:.1f} ({peer.n_iter_ + 1})"]
    cells += [f"{1e3 * fast:.2f} ({own.n_iter_})", f"{slow / fast:.1f}", *f]
    print(f"| {' | '.join(cells)} |", flush=True)


def others(repeat: int) -> None:
    rng = np.random.default_rng(0)
    print("\nOther parts, CPU ms: here | loop | ratio | largest relative difference")
    for name, fast, slow in (streams(rng), bayes(rng), label_kernel(rng), class_divergences(rng)):
        here, a = least(fast, repeat)
        there, b = least(slow, 1)
        error = np.abs(np.asarray(a) - b).max() / np.abs(b).max()
        print(f"{name:62}{1e3 * here:9.2f} |{1e3 * there:9.1f} |{there / here:7.1f}x | {error:.0e}")


Contest = tuple[str, Callable[[], np.ndarray], Callable[[], np.ndarray]]


def streams(rng: np.random.Generator) -> Contest:
    Z, sign = rng.normal(size=(10_000, 30)), rng.choice([-1.0, 1.0], size=10_000)
    target = np.where(sign > 0, 20.0, 100.0)

    def slow() -> np.ndarray:
        A, eta = np.eye(30), 1e-3
        for z, s, y in zip(Z, sign, target, strict=True):
            Az = A @ z
            yh = z @ Az
            if s * (yh - y) > 0:
                b = eta * y * yh - 1
                yb = (b + np.sqrt(b * b + 4 * eta * yh * yh)) / (2 * eta * yh)
                A = A + (yb - yh) / yh**2 * np.outer(Az, Az)
        return A

    return (
        "online ITML, 10,000 pairs of 30 features",
        lambda: stream.follow(np.eye(30), Z, sign, target, 1e-3)[0],
        slow,
    )


def bayes(rng: np.random.Generator) -> Contest:
    W = np.hstack([rng.exponential(size=(2000, 30)), -np.ones((2000, 1))])
    data, theta0 = Answers(W, rng.choice([-1.0, 1.0], size=2000), np.ones(2000)), np.ones(31)
    xi = rng.exponential(size=2000) + 0.1

    def slow() -> np.ndarray:
        precision, right = np.eye(31), theta0.copy()
        for w, s, x in zip(W, data.s, xi, strict=True):
            precision += np.tanh(x / 2) / (2 * x) * np.outer(w, w)
            right -= 0.5 * s * w
        C = np.linalg.inv(precision)
        return np.array([np.sqrt((w @ C @ right) ** 2 + w @ C @ w) for w in W])

    return (
        "one round of variational Bayes, 2000 pairs, 30 directions",
        lambda: variational.spread(W, variational.posterior(data, theta0, 1.0, xi)),
        slow,
    )


def label_kernel(rng: np.random.Generator) -> Contest:
    X, y = rng.normal(size=(2000, 30)), rng.integers(10, size=2000)

    def slow() -> np.ndarray:
        K = (y[:, None] == y).astype(float) + 0.5 * np.eye(2000)
        return 0.5 * X.T @ np.linalg.inv(K) @ X

    return (
        "label precision, 2000 x 30, 10 classes (n x n inverse)",
        lambda: label_precision.label_precision(X, y, 0.5),
        slow,
    )


def class_divergences(rng: np.random.Generator) -> Contest:
    B = rng.normal(size=(20, 30, 60))
    laws = divergences.GaussianClasses(rng.normal(size=(20, 30)), B @ np.swapaxes(B, 1, 2) / 60, np.full(20, 50.0))
    U = rng.normal(size=(30, 10))

    def kl(a: int, b: int) -> float:
        A, B, m = U.T @ laws.covs[a] @ U, U.T @ laws.covs[b] @ U, U.T @ (laws.means[a] - laws.means[b])
        C = np.linalg.inv(B)
        log = np.linalg.slogdet(B)[1] - np.linalg.slogdet(A)[1]
        return 0.5 * float(log + np.trace(C @ A) + m @ C @ m - 10)

    return (
        "divergences of 20 classes, 30 -> 10 dimensions",
        lambda: divergences.divergences(U, laws),
        lambda: np.array([[kl(a, b) for b in range(20)] for a in range(20)]),
    )


if __name__ == "__main__":
    main()
