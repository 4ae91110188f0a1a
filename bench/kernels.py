"""Kernel methods: time and memory on many rows with landmarks, and their scores beside those of their linear forms.

    python bench/kernels.py large                          50,000 x 20, 500 landmarks: every method in its own process
    python bench/kernels.py large --rows 5000 --kernel laplacian
    python bench/kernels.py tables [--data FOLDER]         two-moons-like and real tables, and every CSV file of FOLDER
    python bench/kernels.py tables --tune --train 300 --splits 2

Both print the processor, the library versions and every native thread pool with its BLAS kernel (one thread each).

large: CPU seconds (user and system) of `fit`, and the largest resident memory of the whole process, data and libraries
included (and how much of it was there before `fit`).

tables: mean over stratified splits (half of the rows, at most `--train` of them, learn; at most `--test` of the others
judge), features standardized on the learning rows, all settings at their defaults (inside `Kernelized` those that the
row names), or with `--tune` those of either form that do best by 3-NN in three folds of the learning rows alone: of the
kernel forms the kernel (rbf, laplacian or quadratic), its gamma and the regularization, of the linear forms what they
have to choose. 3-NN accuracy of the judging rows with the learning rows as memory, and MAP@R among the judging rows. A
kernel form that lies below its linear form by more than half a point is marked with <. Tables are CSV files (also .gz)
with a header, features first and the class last. nan: the method refused (such as for data without a direction that
separates).
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_circles, make_moons
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

import nearfar as nf
from nearfar.evaluation import retrieve
from nearfar.numerics import kernels

Table = tuple[np.ndarray, np.ndarray]
Grid = dict[str, Any]

CLOSED: dict[str, Callable[..., Any]] = {
    "KernelSpectrumMetric": nf.KernelSpectrumMetric,
    "KernelLLERegularizedMetric": nf.KernelLLERegularizedMetric,
    "KernelLLERegularizedMetric, feature space": lambda **k: nf.KernelLLERegularizedMetric(lle_space="feature", **k),
    "KernelDCA": nf.KernelDCA,
    "KernelDCA, hoi": lambda **k: nf.KernelDCA(solver="hoi", **k),
    "KernelFisherMetric": nf.KernelFisherMetric,
    "KernelFisherMetric, orthonormal": lambda **k: nf.KernelFisherMetric(constraint="orthonormal", **k),
    "Kernelized(GMML)": lambda **k: nf.Kernelized(nf.GMML(), **k),
    "Kernelized(RCA)": lambda **k: nf.Kernelized(nf.RCA(shrinkage=0.1), **k),
    "Kernelized(HighDimensionalDCA)": lambda **k: nf.Kernelized(nf.HighDimensionalDCA(), **k),
    "Kernelized(CovarianceMetric)": lambda **k: nf.Kernelized(nf.CovarianceMetric(), **k),
    "KernelNuSVMMetric (iterates)": nf.KernelNuSVMMetric,
    "KernelStiefelSPDMetric (iterates)": nf.KernelStiefelSPDMetric,
    "LaplacianRegularizedKernel (iterates)": nf.LaplacianRegularizedKernel,
}

WIDTHS = {"rbf": (0.1, 0.3, 1.0, 3.0, 10.0), "laplacian": (0.3, 1.0)}  # gamma, in units of 1 / median distance
SHARES = [1e-3, 1e-2, 1e-1, 0.5]
COUNTS = [None, 1, 2, 5]
TWINS: list[tuple[str, Any, Any, Grid, Grid]] = [
    (
        "GMML | Kernelized(GMML)",
        nf.GMML(),
        nf.Kernelized(nf.GMML()),
        {"reg": [0.01, 0.1, 1.0, 10.0]},
        {"learner__reg": [0.01, 0.1, 1.0, 10.0]},
    ),
    (
        "RCA | Kernelized(RCA(shrinkage=0.1))",
        nf.RCA(),
        nf.Kernelized(nf.RCA(shrinkage=0.1)),
        {"shrinkage": [0.0, 0.1, 0.5, 0.9]},
        {"learner__shrinkage": [0.01, 0.1, 0.5, 0.9]},
    ),
    ("DCA | KernelDCA", nf.DCA(), nf.KernelDCA(), {"n_components": COUNTS}, {"shrinkage": SHARES}),
    (
        "Fisher, trace | KernelFisher",
        nf.FisherMetric("trace", scale="unit"),
        nf.KernelFisherMetric(constraint="orthonormal"),
        {"n_components": COUNTS},
        {"n_components": COUNTS},
    ),
    (
        "Fisher, scatter | KernelFisher, within",
        nf.FisherMetric(),
        nf.KernelFisherMetric(),
        {"n_components": COUNTS},
        {"shrinkage": SHARES},
    ),
    (
        "LLERegularized | KernelLLERegularized",
        nf.LLERegularizedMetric(),
        nf.KernelLLERegularizedMetric(),
        {"lam": [0.1, 1.0, 10.0], "n_components": [None, 5]},
        {"reg": [1e-3, 1e-1], "n_components": [None, 5]},
    ),
    (
        "NuSVM | KernelNuSVM",
        nf.NuSVMMetric(),
        nf.KernelNuSVMMetric(),
        {"l1": [1.0, 5.0]},
        {"l1": [1.0, 5.0]},
    ),
    (
        "StiefelSPD | KernelStiefelSPD",
        nf.StiefelSPDMetric(),
        nf.KernelStiefelSPDMetric(),
        {"lam": [0.01, 0.1]},
        {"lam": [0.01, 0.1]},
    ),
    ("Euclidean | KernelSpectrum", None, nf.KernelSpectrumMetric(), {}, {"share": [0.8, 0.95]}),
    (
        "Euclidean | LaplacianRegularizedKernel",
        None,
        nf.LaplacianRegularizedKernel(),
        {},
        {"ridge": [0.01, 0.1]},
    ),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["large", "one", "tables"])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--landmarks", type=int, default=500)
    parser.add_argument("--kernel", default="rbf")
    parser.add_argument("--only", default="", help="methods (or twins) whose name contains this")
    parser.add_argument("--table", default="", help="tables whose name contains this")
    parser.add_argument("--data", type=Path, help="folder of further tables")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--train", type=int, default=400)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--tune", action="store_true", help="settings of both forms by three-fold cross-validation")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        if arguments.what != "one":
            describe_machine()
        {"large": large, "one": one, "tables": tables}[arguments.what](arguments)


def describe_machine() -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    print(f"processor: {names[0] if names else platform.processor()}; python {platform.python_version()}", end=", ")
    print(f"numpy {np.__version__}, scipy {scipy.__version__}, scikit-learn {sklearn.__version__}")
    for pool in threadpool_info():
        kernel = f", kernel {pool['architecture']}" if "architecture" in pool else ""
        print(f"{pool['internal_api']} {pool['version'] or ''}: {pool['num_threads']} thread{kernel}")


def large(arguments: argparse.Namespace) -> None:
    size = f"{arguments.rows:,} x {arguments.features}, {arguments.landmarks} landmarks, {arguments.kernel} kernel"
    print(f"\n{size}, float64, one thread\n\n| method | fit, CPU s | peak, MB | before fit, MB |\n|---|---|---|---|")
    settings = ("rows", "features", "landmarks", "kernel")
    options = [text for name in settings for text in (f"--{name}", str(getattr(arguments, name)))]
    for name in CLOSED:
        if arguments.only.lower() in name.lower():
            command = [sys.executable, __file__, "one", "--only", name, *options]
            found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            row = json.loads(found)
            print(f"| {name} | {row['seconds']:.1f} | {row['peak']:.0f} | {row['before']:.0f} |", flush=True)


def one(arguments: argparse.Namespace) -> None:
    X, y = rings(arguments.rows, arguments.features)
    learner = CLOSED[arguments.only](kernel=arguments.kernel, landmarks=arguments.landmarks, random_state=0)
    before, start = peak_mb(), process_time()
    learner.fit(X, y)
    print(json.dumps({"seconds": process_time() - start, "peak": peak_mb(), "before": before}))


def peak_mb() -> float:
    """Largest resident memory of this process so far, in 10^6 bytes (ru_maxrss is in KiB, on a Mac in bytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 2**10) / 1e6


def rings(n: int, d: int) -> Table:
    """Ten classes on five rings, half a ring each, among noise."""
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=n)
    angle = np.pi * (rng.random(n) + y % 2)
    X = 0.5 * rng.standard_normal((n, d))
    X[:, 0] += (y // 2 + 1) * np.cos(angle)
    X[:, 1] += (y // 2 + 1) * np.sin(angle)
    return X, y


def tables(arguments: argparse.Namespace) -> None:
    print(f"\n{arguments.splits} splits, at most {arguments.train} rows learn and {arguments.test} judge")
    twins = [twin for twin in TWINS if arguments.only.lower() in twin[0].lower()]
    won: dict[str, list[np.ndarray]] = {twin[0]: [] for twin in twins}
    titles = []
    for title, data in every_table(arguments.data):
        if arguments.table not in title:
            continue
        X, y = data
        titles.append(title)
        print(f"\n{title}: {X.shape[0]} x {X.shape[1]}, {len(np.unique(y))} classes\n")
        print("| linear, kernel | 3-NN, % | | | MAP@R, % | | |\n|---|---|---|---|---|---|---|")
        for name, linear, kernel, few, many in twins:
            a = np.mean([*scores(linear, few, data, arguments)], axis=0)
            b = np.mean([*scores(kernel, many, data, arguments)], axis=0)
            won[name].append(b - a)
            cells = [f"{x:.1f} | {z:.1f} | {'<' if z < x - 0.5 else ''}" for x, z in zip(a, b, strict=True)]
            print(f"| {name.replace(' | ', ', ')} | {' | '.join(cells)} |", flush=True)
    head = ["linear, kernel", "mean", "better", "worse", *titles]
    for k, measure in enumerate(("3-NN", "MAP@R")):
        print(f"\nkernel less linear, {measure} points\n\n| {' | '.join(head)} |\n{'|---' * len(head)}|")
        for name, gains in won.items():
            print(f"| {name.replace(' | ', ', ')} | {' | '.join(summary([gain[k] for gain in gains]))} |")


def summary(gains: list[float]) -> list[str]:
    """Mean gain, how many are above and how many below half a point, and each."""
    g = np.array(gains)[~np.isnan(gains)]
    return [f"{g.mean():+.1f}", str((g > 0.5).sum()), str((g < -0.5).sum()), *(f"{gain:+.1f}" for gain in gains)]


def scores(model: Any, grid: Grid, data: Table, arguments: argparse.Namespace) -> Iterator[tuple[float, float]]:
    """3-NN accuracy and MAP@R of each split, in percent."""
    X, y = data
    train = min(arguments.train, len(y) // 2)
    test = min(arguments.test, len(y) - train)
    for a, b in StratifiedShuffleSplit(arguments.splits, train_size=train, test_size=test, random_state=0).split(X, y):
        scaler = StandardScaler().fit(X[a])
        A, B = scaler.transform(X[a]), scaler.transform(X[b])
        if model is not None:
            learner = seeded(model)
            try:
                learner = tuned(learner, grid, A, y[a]) if arguments.tune and grid else learner.fit(A, y[a])
            except ValueError:  # a clear refusal, such as that no direction separates
                yield np.nan, np.nan
                continue
            A, B = learner.transform(A), learner.transform(B)
        found = retrieve(B, y[b], distance="euclidean").map_at_r
        yield 100 * KNeighborsClassifier(3).fit(A, y[a]).score(B, y[b]), 100 * float(np.nanmean(found))


def seeded(model: Any) -> Any:
    learner = clone(model)
    return learner.set_params(**{name: 0 for name in learner.get_params() if name.endswith("random_state")})


def tuned(learner: Any, grid: Grid, A: np.ndarray, a: np.ndarray) -> Any:
    """The learner with the settings that do best in three folds of its learning rows, fitted on all of them."""
    model = Pipeline([("metric", learner), ("neighbors", KNeighborsClassifier(3))])
    forms = kernel_forms(A) if hasattr(learner, "kernel") else [{}]
    grids = [{f"metric__{name}": values for name, values in {**grid, **form}.items()} for form in forms]
    return GridSearchCV(model, grids, cv=3).fit(A, a).best_estimator_[0]


def kernel_forms(A: np.ndarray) -> list[Grid]:
    """Kernels to choose from, the first one first among equals."""
    widths = [
        {"kernel": [name], "gamma": [kernels.median_gamma(A, name) * w for w in sorted(factors, key=lambda w: w != 1)]}
        for name, factors in WIDTHS.items()
    ]
    return [*widths, {"kernel": ["polynomial"], "degree": [2]}]


def every_table(folder: Path | None) -> Iterator[tuple[str, Table]]:
    yield "two moons", make_moons(800, noise=0.2, random_state=0)
    yield "circles", make_circles(800, noise=0.15, factor=0.5, random_state=0)
    yield "spirals", spirals(900)
    yield "moons among noise", among_noise(make_moons(800, noise=0.15, random_state=0))
    for name, load in (
        ("iris", load_iris),
        ("wine", load_wine),
        ("cancer", load_breast_cancer),
        ("digits", load_digits),
    ):
        yield name, load(return_X_y=True)
    for path in sorted(folder.glob("*.csv*")) if folder else []:
        yield path.name.partition(".")[0], read(path)


def spirals(n: int) -> Table:
    rng = np.random.default_rng(0)
    y, t = np.arange(n) % 3, rng.random(n)
    angle = 2 * np.pi * (y / 3 + 1.2 * t)
    return (t * np.array([np.cos(angle), np.sin(angle)])).T + 0.03 * rng.standard_normal((n, 2)), y


def among_noise(data: Table, d: int = 6) -> Table:
    """Further features that say nothing."""
    X, y = data
    return np.hstack([X, np.random.default_rng(1).standard_normal((len(X), d))]), y


def read(path: Path) -> Table:
    raw = np.genfromtxt(path, delimiter=",", skip_header=1, dtype=str)
    X, y = raw[:, :-1].astype(float), np.unique(raw[:, -1], return_inverse=True)[1]
    X, keep = X[:, np.ptp(X, axis=0) > 0], np.bincount(y)[y] >= 10  # splits need several rows of a class
    return X[keep], y[keep]


if __name__ == "__main__":
    main()
