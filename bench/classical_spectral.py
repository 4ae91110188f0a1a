"""Large margin nearest neighbors beside its peers, the other margin and embedding learners, and the closed forms.

    python bench/classical_spectral.py lmnn                        digits and breast cancer, beside NCA and LDA
    python bench/classical_spectral.py lmnn --metric-learn PATH    and metric-learn, by an interpreter that has it
    python bench/classical_spectral.py lmnn --pylmnn PATH          and PyLMNN, in the same way
    python bench/classical_spectral.py lmnn --table FILE           on a CSV table (also .gz), header, class last
    python bench/classical_spectral.py tolerance                   time against the certified gap
    python bench/classical_spectral.py others                      the other learners by margins and embeddings
    python bench/classical_spectral.py many                        LMNN on 4,000 to 100,000 rows of 50 features
    python bench/classical_spectral.py closed                      closed forms on 100,000 rows of 50 features

Each fit runs in a separate process on one thread. `fit` is its CPU seconds (user and system; the mean over as many fits
as take 0.2 s), the median over the folds; `MB` what resident memory rose by at most; `ratio` the time over that of
nearfar's LMNN. Five stratified folds (shuffled, seed 0), features standardized on the training part; accuracy of 3
nearest neighbors. `hinge` and `square` are LMNN's objectives (3 targets, halves of pull and push) with the hinge and
its square, over all impostors, the mean over the folds: metric-learn minimizes the first, PyLMNN the second. A table of
its own is fitted whole, with a fifth held out. PyLMNN 1.6 imports six and GPyOpt without need; empty modules of these
names do.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
CLOSED: tuple[str, ...] = (
    "CovarianceMetric",
    "SideInformationMetric",
    "FisherMetric",
    "RCA",
    "DCA",
    "HighDimensionalDCA",
    "GMML",
)
CLOSED += ("InformationGeometryMetric",)
ITERATIVE = ("IML", "NuSVMMetric", "MDSMetric", "LLMA", "LLERegularizedMetric")
LARGE = (100_000, 50)
MANY = (4_000, 16_000, 32_000, 64_000, 100_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["lmnn", "tolerance", "others", "many", "closed", "fit"])
    parser.add_argument("--metric-learn", metavar="PATH", help="an interpreter that has metric-learn")
    parser.add_argument("--pylmnn", metavar="PATH", help="an interpreter that has PyLMNN")
    parser.add_argument("--table", type=Path, help="a CSV table instead of digits and breast cancer")
    parser.add_argument("--work", nargs=3, metavar=("METHOD", "SETTINGS", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part == "fit":
        return fit(*arguments.work)
    print(f"{processor()}; load {os.getloadavg()[0]:.1f}; {ask(sys.executable, 'about', {}, None)['about']}")
    return {"lmnn": lmnn, "tolerance": tolerance, "others": others, "many": many, "closed": closed}[arguments.part](
        arguments
    )


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


# --- Parts


def lmnn(arguments: argparse.Namespace) -> None:
    """LMNN with both losses, and its peers."""
    runs = [("nearfar", "LMNN", sys.executable, {}), ("nearfar", "LMNN", sys.executable, {"loss": "squared_hinge"})]
    runs += [("scikit-learn", name, sys.executable, {}) for name in ("NCA", "LDA")]
    if arguments.table:  # its memory grows with the square of the rows
        runs = [run for run in runs if run[1] != "NCA"]
    if arguments.metric_learn:
        runs.append(("metric-learn", "LMNN", arguments.metric_learn, {}))
    if arguments.pylmnn:
        runs.append(("pylmnn", "LMNN", arguments.pylmnn, {}))
    for title, splits in tables(arguments):
        print(f"\n{title}\n\n| library | method | fit, s | ratio | MB | hinge | square | 3-NN | note |")
        print("|---|---|---|---|---|---|---|---|---|")
        base = None
        for library, name, python, settings in runs:
            found = [ask(python, f"{library} {name}", settings, split) for split in splits]
            seconds = float(np.median([one["fit"] for one in found]))
            base = base or seconds
            measures = [objectives(one["components"], split) for one, split in zip(found, splits, strict=True)]
            cells = [library, name + "".join(f", {value}" for value in settings.values()), f"{seconds:.3f}"]
            cells += [f"{seconds / base:.1f}", f"{max(one['mb'] for one in found):.0f}"]
            cells += [f"{value:.1f}" for value in np.mean(measures, axis=0)]
            cells += [f"{np.mean([accuracy(one, s) for one, s in zip(found, splits, strict=True)]):.4f}"]
            print("| " + " | ".join([*cells, found[0]["note"]]) + " |", flush=True)


def tolerance(arguments: argparse.Namespace) -> None:
    """What a smaller gap costs."""
    for title, splits in tables(arguments):
        print(f"\n{title}, first fold\n\n| loss | tol | fit, s | objective | certified gap | 3-NN |")
        print("|---|---|---|---|---|---|")
        for loss in ("hinge", "squared_hinge"):
            for tol in (1e-1, 3e-2, 1e-2, 3e-3, 1e-3):
                found = ask(sys.executable, "nearfar LMNN", {"loss": loss, "tol": tol}, splits[0])
                cells = [loss, f"{tol:g}", f"{found['fit']:.3f}", f"{found['objective']:.2f}"]
                cells += [f"{found['gap'] / found['objective']:.2%}", f"{accuracy(found, splits[0]):.4f}"]
                print("| " + " | ".join(cells) + " |", flush=True)


def others(arguments: argparse.Namespace) -> None:
    """The other learners by margins and embeddings."""
    for title, splits in tables(arguments):
        print(f"\n{title}\n\n| method | fit, s | MB | objective | gap | 3-NN | note |\n|---|---|---|---|---|---|---|")
        for name in ITERATIVE:
            found = [ask(sys.executable, f"nearfar {name}", {}, split) for split in splits]
            cells = [name, f"{np.median([one['fit'] for one in found]):.3f}", f"{max(one['mb'] for one in found):.0f}"]
            cells += ["" if found[0][key] is None else f"{found[0][key]:.4g}" for key in ("objective", "gap")]
            cells += [f"{np.mean([accuracy(one, s) for one, s in zip(found, splits, strict=True)]):.4f}"]
            print("| " + " | ".join([*cells, found[0]["note"]]) + " |", flush=True)


def many(arguments: argparse.Namespace) -> None:
    """LMNN on ever more rows: ten classes of five clouds each, and 2,000 rows to score; `times` those of 16,000."""
    print("\n| rows | fit, s | times | MB | gap, % of f | 3-NN | before |\n|---|---|---|---|---|---|---|")
    seconds: dict[int, float] = {}
    for n in MANY:
        split = clouds(n)
        found = ask(sys.executable, "nearfar LMNN", {}, split)
        seconds[n] = found["fit"]
        times = found["fit"] / seconds.get(16_000, np.nan)
        some = (split[0][:5000], split[1][:5000], split[2], split[3])
        found["train"] = found["train"][:5000]
        before = accuracy({"train": some[0], "test": some[2]}, some)
        cells = [f"{n:,}", f"{found['fit']:.1f}", f"{times:.2f}", f"{found['mb']:.0f}"]
        cells += [f"{found['gap'] / found['objective']:.2%}", f"{accuracy(found, some):.4f}", f"{before:.4f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


def clouds(n: int, d: int = LARGE[1]) -> Split:
    """n rows to learn from and 2,000 to score, ten classes of five normal clouds."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(50, d))
    which = rng.integers(50, size=n + 2000)
    X = centers[which] + rng.normal(size=(n + 2000, d))
    y = which % 10
    return X[:n], y[:n], X[n:], y[n:]


def closed(arguments: argparse.Namespace) -> None:
    """Closed forms on many rows."""
    rng, (n, d) = np.random.default_rng(0), LARGE
    y = rng.integers(10, size=n)
    split = (rng.normal(size=(n, d)) + 0.5 * rng.normal(size=(10, d))[y], y, np.zeros((0, d)), y[:0])
    print(
        f"\n{n:,} x {d}, 10 classes, aim: under 2 s and 300 MB\n\n| method | fit, s | MB | within |\n|---|---|---|---|"
    )
    for name in CLOSED:
        found = ask(sys.executable, f"nearfar {name}", {}, split)
        within = "yes" if found["fit"] < 2 and found["mb"] < 300 else "NO"
        print(f"| {name} | {found['fit']:.3f} | {found['mb']:.0f} | {within} |", flush=True)


# --- Tables and measures


def tables(arguments: argparse.Namespace) -> Iterator[tuple[str, list[Split]]]:
    if arguments.table:
        path = arguments.table
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            rows = np.array([line.strip().split(",") for line in file if line.strip()][1:])
        X, y = rows[:, :-1].astype(float), np.unique(rows[:, -1], return_inverse=True)[1]
        parts = train_test_split(np.arange(len(X)), test_size=0.2, stratify=y, random_state=0)
        yield f"{path.name}, {len(X)} x {X.shape[1]}", [scaled(X, y, *parts)]
        return
    for name, load in (("digits", load_digits), ("breast cancer", load_breast_cancer)):
        X, y = load(return_X_y=True)
        folds = StratifiedKFold(5, shuffle=True, random_state=0).split(X, y)
        yield f"{name}, {len(X)} x {X.shape[1]}", [scaled(X, y, *fold) for fold in folds]


def scaled(X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> Split:
    scaler = StandardScaler().fit(X[train])
    return scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test]


def accuracy(found: dict[str, Any], split: Split) -> float:
    return float(KNeighborsClassifier(3).fit(found["train"], split[1]).score(found["test"], split[3]))


def objectives(L: np.ndarray, split: Split, k: int = 3) -> tuple[float, float]:
    """LMNN's objective with the hinge and with its square, by blocks of all distances."""
    X, y = split[:2]
    Z, hinge, square = X @ L.T, 0.0, 0.0
    for rows in np.array_split(np.arange(len(X)), len(X) // 500 + 1):
        own = y[rows][:, None] == y
        near = np.where(own, cdist(X[rows], X, "sqeuclidean"), np.inf)
        near[np.arange(len(rows)), rows] = np.inf
        d2 = cdist(Z[rows], Z, "sqeuclidean")
        pull = np.take_along_axis(d2, np.argpartition(near, k, axis=1)[:, :k], axis=1)
        hinge, square = hinge + pull.sum() / 2, square + pull.sum() / 2
        for j in range(k):
            u = np.maximum(0, 1 + pull[:, j : j + 1] - np.where(own, np.inf, d2))
            hinge, square = hinge + u.sum() / 2, square + (u * u).sum() / 2
    return float(hinge), float(square)


# --- One fit in a separate process


def ask(python: str, method: str, settings: dict[str, Any], split: Split | None) -> dict[str, Any]:
    """Start a process that fits a method, and read what it found."""
    with tempfile.TemporaryDirectory() as folder:
        if split is not None:
            np.savez(Path(folder) / "split.npz", X=split[0], y=split[1], T=split[2])
        command = [python, str(Path(__file__).resolve()), "fit", "--work", method, json.dumps(settings), folder]
        text = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **ONE_THREAD})
        found: dict[str, Any] = json.loads(text.stdout.splitlines()[-1])
        if split is not None:
            with np.load(Path(folder) / "found.npz") as file:
                found |= {key: file[key] for key in file}
        return found


def fit(method: str, settings: str, folder: str) -> None:
    """In the process: fit, and leave what `ask` reads."""
    warnings.simplefilter("ignore")
    if method == "about":
        print(json.dumps({"about": about()}))
        return
    make = maker(*method.split())
    with np.load(Path(folder) / "split.npz") as file:
        X, y, T = file["X"], file["y"], file["T"]
    make(**json.loads(settings)).fit(X[::10], y[::10])  # imports, and pages of the libraries
    before, start, fits, seconds = memory(), process_time(), 0, 0.0
    while seconds < 0.2 and fits < 50:
        learner = make(**json.loads(settings)).fit(X, y)
        fits, seconds = fits + 1, process_time() - start
    seconds, mb = seconds / fits, memory() - before
    train, test = (np.asarray(learner.transform(rows), dtype=float) if len(rows) else rows for rows in (X[:5000], T))
    if len(X) <= 20_000:
        train = np.asarray(learner.transform(X), dtype=float)
    components = getattr(learner, "components_", None)
    if components is None:
        components = getattr(learner, "scalings_", np.eye(X.shape[1])).T
    np.savez(Path(folder) / "found.npz", components=components, train=train, test=test)
    note = "" if getattr(learner, "converged_", True) else "not converged"
    values = {
        key: getattr(learner, f"{name}_", None) for key, name in (("objective", "objective"), ("gap", "duality_gap"))
    }
    numbers = {key: None if value is None else float(value) for key, value in values.items()}
    print(json.dumps({"fit": seconds, "mb": max(mb, 0.0), "note": note, **numbers}))


def about() -> str:
    """Versions, the kernel of the algebra library, threads."""
    import scipy
    import sklearn
    from threadpoolctl import threadpool_info

    pools = threadpool_info()
    kernels = {f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}".strip() for pool in pools}
    threads = max((pool["num_threads"] for pool in pools), default=1)
    versions = f"numpy {np.__version__}, scipy {scipy.__version__}, scikit-learn {sklearn.__version__}"
    return f"python {platform.python_version()}, {versions}; {', '.join(sorted(kernels))}; {threads} thread"


def maker(library: str, name: str) -> Callable[..., Any]:
    if library == "metric-learn":
        from metric_learn import LMNN

        return lambda **settings: LMNN(random_state=0, **settings)
    if library == "pylmnn":
        from pylmnn import LargeMarginNearestNeighbor

        return lambda **settings: LargeMarginNearestNeighbor(random_state=0, **settings)
    if library == "scikit-learn":
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
        from sklearn.neighbors import NeighborhoodComponentsAnalysis

        return {"NCA": NeighborhoodComponentsAnalysis, "LDA": LinearDiscriminantAnalysis}[name]
    import nearfar

    kind = getattr(nearfar, name)
    seed = {"random_state": 0} if "random_state" in kind().get_params() else {}
    return lambda **settings: kind(**seed, **settings)


def memory() -> float:
    """Peak resident memory in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
