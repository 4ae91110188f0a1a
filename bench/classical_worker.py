"""One library of `classical.py`: it fits its learners fold after fold and prints a JSON line for each.

    python bench/classical_worker.py LIBRARY TASK

TASK is JSON: where the table is, which learners, how many folds, CPU seconds and GB for each. Each learner runs in a
fork of this process, which has imported its library and loaded the table, so that its memory and its end are its own.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

Result = dict[str, Any]


class Given(NamedTuple):
    """The same supervision for every library, instead of what each would draw from labels."""

    pairs: np.ndarray
    signs: np.ndarray
    bounds: np.ndarray
    chunklets: np.ndarray


Fit = Callable[[np.ndarray, np.ndarray, "Given | None", int], Any]  # rows, labels, supervision, seed -> learner


def main(library: str, text: str) -> None:
    warnings.simplefilter("ignore")
    task = json.loads(text)
    fits = LIBRARIES[library](task["given"], task["names"])
    print(json.dumps({"about": about(library)}), flush=True)
    with np.load(task["table"]) as file:
        X, y = file["X"], file["y"]
    names = list(fits) if task["names"] is None else [name for name in task["names"] if name in fits]
    for name in names:
        print(json.dumps({"library": library, "name": name, **forked(fits[name], name, X, y, task)}), flush=True)


def about(library: str) -> str:
    from importlib.metadata import version

    from threadpoolctl import threadpool_info

    packages = dict.fromkeys([library, "scikit-learn", "numpy", "scipy"])
    said = ", ".join(f"{package} {version(package)}" for package in packages)
    pools = [
        f"{pool['internal_api']} {pool['version'] or ''}{' ' + pool.get('architecture', '')} x {pool['num_threads']}"
        for pool in threadpool_info()
    ]
    return f"python {platform.python_version()}, {said}; {'; '.join(pools)}"


# --- The learners of each library


def nearfar_learners(given: bool, names: list[str] | None = None) -> dict[str, Fit]:
    """Every learner of the catalog that is done, or those that take pairs or chunklets as the peers do."""
    import nearfar
    from nearfar.catalog import METHODS

    if given:
        return {
            "RCA": lambda A, a, weak, seed: nearfar.RCA().fit(A, chunklets=weak.chunklets),
            "ITML": lambda A, a, weak, seed: nearfar.ITML(1.0, bounds=weak.bounds).fit(
                A, pairs=weak.pairs, pair_labels=weak.signs
            ),
            "MMC": lambda A, a, weak, seed: nearfar.MMC().fit(A, pairs=weak.pairs, pair_labels=weak.signs),
        }
    learners = [method.name for method in METHODS if method.kind == "learner"]
    asked = [name for name in learners if names is None or name in names]  # some import PyTorch
    options = {
        "MMC(floor=0.0)": partial(nearfar.MMC, floor=0.0),
        "RCA(weighting='chunklets')": partial(nearfar.RCA, weighting="chunklets"),
        "CovarianceMetric(shrinkage=None)": partial(nearfar.CovarianceMetric, shrinkage=None),
    }
    kinds = {name: getattr(nearfar, name) for name in asked} | options
    return {name: partial(from_labels, kind) for name, kind in kinds.items()}


def from_labels(kind: Callable[[], Any], A: np.ndarray, a: np.ndarray, weak: Given | None, seed: int) -> Any:
    learner = kind()
    if "random_state" in learner.get_params():
        learner.set_params(random_state=seed)
    return learner.fit(A, a)


def scikit_learners(given: bool, names: list[str] | None = None) -> dict[str, Fit]:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.neighbors import NeighborhoodComponentsAnalysis

    return {
        "Euclidean": lambda A, a, weak, seed: StandardScaler(with_std=False).fit(A),
        "NCA": lambda A, a, weak, seed: NeighborhoodComponentsAnalysis(random_state=seed).fit(A, a),
        "LDA": lambda A, a, weak, seed: LinearDiscriminantAnalysis().fit(A, a),
    }


def metric_learners(given: bool, names: list[str] | None = None) -> dict[str, Fit]:
    import metric_learn as ml

    if given:
        return {
            "RCA_Supervised": lambda A, a, weak, seed: ml.RCA().fit(A, weak.chunklets),
            "ITML_Supervised": lambda A, a, weak, seed: ml.ITML().fit(A[weak.pairs], weak.signs, bounds=weak.bounds),
            "MMC_Supervised": lambda A, a, weak, seed: ml.MMC().fit(A[weak.pairs], weak.signs),
        }
    return {
        "NCA": lambda A, a, weak, seed: ml.NCA(random_state=seed).fit(A, a),
        "LMNN": lambda A, a, weak, seed: ml.LMNN(random_state=seed).fit(A, a),
        "MMC_Supervised": lambda A, a, weak, seed: ml.MMC_Supervised(random_state=seed).fit(A, a),
        # its default of 100 chunks is more than small tables have
        "RCA_Supervised": lambda A, a, weak, seed: ml.RCA_Supervised(
            n_chunks=min(100, len(A) // 5), random_state=seed
        ).fit(A, a),
        "ITML_Supervised": lambda A, a, weak, seed: ml.ITML_Supervised(random_state=seed).fit(A, a),
        "LSML_Supervised": lambda A, a, weak, seed: ml.LSML_Supervised(random_state=seed).fit(A, a),
        "Covariance": lambda A, a, weak, seed: ml.Covariance().fit(A),
    }


LIBRARIES = {"nearfar": nearfar_learners, "scikit-learn": scikit_learners, "metric-learn": metric_learners}


def supervision(A: np.ndarray, a: np.ndarray, seed: int) -> Given:
    """20 c^2 pairs of each kind, percentiles 5 and 95 of their squared distances, and 100 chunklets of two rows."""
    rng = np.random.default_rng(seed)
    i, j = rng.integers(len(A), size=(2, 4000 * len(np.unique(a)) ** 2))
    pairs = np.unique(np.sort(np.stack([i, j], axis=1), axis=1), axis=0)
    pairs = rng.permutation(pairs[np.any(A[pairs[:, 0]] != A[pairs[:, 1]], axis=1)])
    same = a[pairs[:, 0]] == a[pairs[:, 1]]
    n = 20 * len(np.unique(a)) ** 2
    pairs = pairs[np.r_[np.flatnonzero(same)[:n], np.flatnonzero(~same)[:n]]]
    bounds = np.percentile(np.sum((A[pairs[:, 0]] - A[pairs[:, 1]]) ** 2, axis=1), [5, 95])
    chunklets, order = np.full(len(A), -1), rng.permutation(len(A))
    order = order[np.argsort(a[order], kind="stable")]  # neighbors in this order are of one class, but at the seams
    couples = order[: len(A) // 2 * 2].reshape(-1, 2)
    couples = rng.permutation(couples[a[couples[:, 0]] == a[couples[:, 1]]])[:100]
    chunklets[couples] = np.arange(len(couples))[:, None]
    return Given(pairs, np.where(a[pairs[:, 0]] == a[pairs[:, 1]], 1, -1), bounds, chunklets)


# --- One fork per learner


def forked(fit: Fit, name: str, X: np.ndarray, y: np.ndarray, task: dict[str, Any]) -> Result:
    """Run a learner in a child that ends when its time is up, and gather what it wrote until then."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        with os.fdopen(write_end, "w") as out:
            measured(fit, name, X, y, task, lambda found: print(json.dumps(found), file=out, flush=True))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as lines:
        parts = [json.loads(text) for text in lines]
    status = os.waitpid(child, 0)[1]
    result: Result = {key: [found[key] for found in parts if key in found] for key in ("fit", "accuracy", "accuracy_1")}
    for key in ("objective", "same", "note"):
        values = [found[key] for found in parts if found.get(key) is not None]
        result[key] = values[0] if values else None
    result["mb"] = max((found["mb"] for found in parts if "mb" in found), default=float("nan"))
    if os.WIFSIGNALED(status):
        timed_out = os.WTERMSIG(status) == signal.SIGPROF
        result["note"] = "out of time" if timed_out else f"ended by signal {os.WTERMSIG(status)}"
    result["note"] = result["note"] or ""
    return result


def measured(
    fit: Fit, name: str, X: np.ndarray, y: np.ndarray, task: dict[str, Any], send: Callable[[Result], None]
) -> None:
    """In the child: fold after fold, or with no folds one fit on all rows."""
    resource.setrlimit(resource.RLIMIT_AS, (int(task["memory"] * 2**30),) * 2)
    # the default action of SIGPROF ends the process, wherever it is
    signal.setitimer(signal.ITIMER_PROF, task["seconds"])
    before = None
    try:
        for k, (train, test) in enumerate(parts(X, y, task["folds"], task["draws"])):
            scaler, seed = StandardScaler().fit(X[train]), k // max(task["folds"], 1)
            A, B = scaler.transform(X[train]), scaler.transform(X[test]) if len(X[test]) else X[test]
            weak = supervision(A, y[train], k) if task["given"] else None
            before = peak_mb() if before is None else before
            clock = perf_counter if task.get("wall") else process_time
            seconds, learner = fitted(partial(fit, A, y[train], weak, seed), task["least"], clock)
            send({"fit": seconds, "mb": peak_mb() - before, "objective": number(learner)})
            if len(B):
                send(scored(learner, name if k == 0 else "", A, y[train], B, y[test]))
    except (ValueError, MemoryError, TypeError, np.linalg.LinAlgError) as error:
        send({"note": f"{type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}"})


def fitted(fit: Callable[[], Any], least: float = 0.2, clock: Callable[[], float] = process_time) -> tuple[float, Any]:
    """Seconds of a fit, the mean over as many as make a clock of 10 ms exact, and the learner."""
    start, fits, spent = clock(), 0, 0.0
    while fits == 0 or (spent < least and fits < 50):
        learner = fit()
        fits, spent = fits + 1, clock() - start
    return spent / fits, learner


def parts(X: np.ndarray, y: np.ndarray, folds: int, draws: int) -> Iterator[tuple[Any, Any]]:
    """Each draw's folds, one draw after the other."""
    if folds == 0:
        yield slice(None), slice(0)
        return
    for seed in range(draws):
        yield from StratifiedKFold(folds, shuffle=True, random_state=seed).split(X, y)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def number(learner: Any) -> float | None:
    value = getattr(learner, "objective_", None)
    return float(value) if value is not None and np.ndim(value) == 0 and np.isfinite(value) else None


def scored(learner: Any, name: str, A: np.ndarray, a: np.ndarray, B: np.ndarray, b: np.ndarray) -> Result:
    Z = learner.transform(A)
    images = learner.transform(B)
    accuracy = KNeighborsClassifier(3).fit(Z, a).score(images, b)
    nearest = KNeighborsClassifier(1).fit(Z, a).score(images, b)
    same = SAME.get(name.removesuffix("_Supervised")) if len(A) <= 6000 else None
    return {
        "accuracy": float(accuracy),
        "accuracy_1": float(nearest),
        "same": None if same is None else same(np.asarray(Z, dtype=float), A, a),
    }


# --- One measure for all implementations of a method


def expected_share(Z: np.ndarray, A: np.ndarray, a: np.ndarray) -> float:
    """NCA: the mean probability of drawing a neighbor of the own class."""
    total = 0.0
    for rows in np.array_split(np.arange(len(Z)), len(Z) // 500 + 1):
        d2 = cdist(Z[rows], Z, "sqeuclidean")
        d2[np.arange(len(rows)), rows] = np.inf
        p = np.exp(d2.min(axis=1, keepdims=True) - d2)
        total += float(((p * (a[rows][:, None] == a)).sum(axis=1) / p.sum(axis=1)).sum())
    return total / len(Z)


def margin_loss(Z: np.ndarray, A: np.ndarray, a: np.ndarray, k: int = 3) -> float:
    """LMNN: half the pull of three targets (nearest of the own class in A) and half the hinges of rows of others."""
    total = 0.0
    for rows in np.array_split(np.arange(len(Z)), len(Z) // 500 + 1):
        own = a[rows][:, None] == a
        near = np.where(own, cdist(A[rows], A, "sqeuclidean"), np.inf)
        near[np.arange(len(rows)), rows] = np.inf
        targets = np.argpartition(near, k, axis=1)[:, :k]
        d2 = cdist(Z[rows], Z, "sqeuclidean")
        pull = np.take_along_axis(d2, targets, axis=1)
        total += float(pull.sum())
        for j in range(k):
            total += float(np.maximum(0, 1 + pull[:, j : j + 1] - np.where(own, np.inf, d2)).sum())
    return total / 2 / len(Z)


def spread(Z: np.ndarray, A: np.ndarray, a: np.ndarray) -> float:
    """MMC: sum of dissimilar distances over the root of similar pairs' summed squares, over all pairs of rows."""
    near = far = 0.0
    for rows in np.array_split(np.arange(len(Z)), len(Z) // 500 + 1):
        d2, own = cdist(Z[rows], Z, "sqeuclidean"), a[rows][:, None] == a
        near, far = near + float(d2[own].sum()), far + float(np.sqrt(d2[~own]).sum())
    return far / np.sqrt(near)


SAME = {"NCA": expected_share, "LMNN": margin_loss, "MMC": spread}


if __name__ == "__main__":
    main(*sys.argv[1:])
