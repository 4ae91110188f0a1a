"""The probabilistic learners beside scikit-learn's NCA and plain NumPy loops: time, memory, accuracy, objective.

    python bench/classical_probabilistic.py speed                       loss and gradient, a minute
    python bench/classical_probabilistic.py memory [--table letter.csv] a fit on 20,000 x 16 in a separate process
    python bench/classical_probabilistic.py accuracy [--data FOLDER]    four small tables, and every table of FOLDER
    python bench/classical_probabilistic.py accuracy --only NCA ITML    methods whose name holds one of these words

One thread. Times are CPU seconds (user and system), the least of several runs that take turns; extra memory is what
tracemalloc sees at most during a call. Accuracy: 3 nearest neighbors, five stratified folds (shuffled, seed 0),
features standardized on the training part; objectives are sums over training rows. Tables are CSV files (also .gz) with
a header, features first and the class last; of larger ones, `--max-rows` rows drawn with seed 0 are used. Where the
interpreter has metric-learn (0.7 works with scikit-learn up to 1.7), its NCA and ITML take part.
"""

from __future__ import annotations

import argparse
import platform
import resource
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy
import sklearn
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

from nearfar import ITML, LDML, MCML, NCA, PCCA, FastNCA
from nearfar.numerics.checks import encode
from nearfar.numerics.constraints import LabelPairs
from nearfar.probabilistic import neighbor_softmax
from nearfar.probabilistic.collapsing.objective import Collapse
from nearfar.probabilistic.neighborhood import search
from nearfar.probabilistic.risk import solvers

try:
    import metric_learn
except ImportError:
    metric_learn = None

Table = tuple[np.ndarray, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "memory", "fit", "accuracy"])
    parser.add_argument("--data", type=Path, help="folder of further tables")
    parser.add_argument("--table", type=Path, help="the table of the memory run; default: 20,000 x 16 drawn rows")
    parser.add_argument("--dtype", default="float32", help="of the memory run")
    parser.add_argument("--max-iter", type=int, default=10, help="of the memory run")
    parser.add_argument("--max-rows", type=int, default=3000, help="rows of the accuracy run, drawn from larger tables")
    parser.add_argument("--only", nargs="+", default=[""], help="words of the methods of the accuracy run")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        if arguments.what != "fit":
            describe_machine()
        {"speed": speed, "memory": memory, "fit": fit, "accuracy": accuracies}[arguments.what](arguments)


def describe_machine() -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    print(f"processor: {names[0] if names else platform.processor()}; python {platform.python_version()}", end=", ")
    print(f"numpy {np.__version__}, scipy {scipy.__version__}, scikit-learn {sklearn.__version__}")
    for pool in threadpool_info():
        kernel = f", kernel {pool['architecture']}" if "architecture" in pool else ""
        print(f"{pool['internal_api']} {pool['version'] or ''}: {pool['num_threads']} thread{kernel}")


def least(calls: dict[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    """Least CPU seconds of each call; calls take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeat):
        for name, call in calls.items():
            start = process_time()
            call()
            times[name].append(process_time() - start)
    return {name: min(values) for name, values in times.items()}


def peak_mb(call: Callable[[], Any]) -> float:
    """Extra memory of a call."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def drawn(n: int, d: int, classes: int) -> Table:
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=n)
    return rng.normal(size=(n, d)) + 0.5 * rng.normal(size=(classes, d))[y], y


def speed(arguments: argparse.Namespace) -> None:
    print("\nNCA, loss and gradient, 10 classes, d = 64")
    print("| n, k | scikit-learn, s, MB | float64, s, MB | ratio | float32, s, MB | ratio | gradients differ by |")
    print("|---|---|---|---|---|---|---|")
    for n, k in ((3000, 16), (3000, 64)):
        nca_speed(n, k, arguments.repeat)
    print("\nloss and gradient, 5 classes, d = 10; rows: a loop over rows, pairs: a loop over pairs, in NumPy")
    print("| method | n | ours, s | rows, s | ratio | pairs, s | ratio |")
    print("|---|---|---|---|---|---|---|")
    for n in (300, 1000):
        loop_speed(n, arguments.repeat)


def nca_speed(n: int, k: int, repeat: int) -> None:
    X, y = drawn(n, 64, 10)
    L = 0.1 * np.random.default_rng(1).normal(size=(k, 64))
    peer = NeighborhoodComponentsAnalysis(n_components=k)
    peer.n_iter_ = 0
    rows = neighbor_softmax.sorted_rows(X, encode(y)[1])

    def theirs() -> np.ndarray:
        # their mask is made once per fit, so it is not part of the time
        return peer._loss_grad_lbfgs(L.ravel(), X, same, -1.0)[1]

    def ours(dtype: str) -> np.ndarray:
        return -search.dense(narrow if dtype == "float32" else rows, "accuracy", rows.weight)(L)[1]

    same, narrow = y[:, None] == y, rows.astype("float32")
    calls = {"peer": theirs, "float64": lambda: ours("float64"), "float32": lambda: ours("float32")}
    t, mb = least(calls, repeat), {name: peak_mb(call) for name, call in calls.items()}
    gradient = theirs().reshape(k, -1)
    off = [np.abs(ours(dtype) - gradient).max() / np.abs(gradient).max() for dtype in ("float64", "float32")]
    cells = [f"{t['peer']:.3f}, {mb['peer']:.0f}"]
    for dtype in ("float64", "float32"):
        cells += [f"{t[dtype]:.3f}, {mb[dtype]:.1f}", f"{t['peer'] / t[dtype]:.1f}"]
    print(f"| {n}, {k} | {' | '.join(cells)} | {off[0]:.0e}, {off[1]:.0e} |", flush=True)


def loop_speed(n: int, repeat: int) -> None:
    X, y = drawn(n, 10, 5)
    X -= X.mean(axis=0)
    codes = encode(y)[1]
    L = 0.3 * np.eye(10)
    collapse, pairs = Collapse(X, codes), solvers.risk(X, LabelPairs(codes))
    ours = {"MCML": lambda: collapse(L), "LDML": lambda: pairs(L, 1.0, by_metric=True)}
    loops = {"MCML": (mcml_by_rows, mcml_by_pairs), "LDML": (ldml_by_rows, ldml_by_pairs)}
    for name, call in ours.items():
        by_row, by_pair = (loop(X, y, L.T @ L) for loop in loops[name])
        t = least({"ours": call, "rows": by_row}, repeat)
        slow = least({"pairs": by_pair}, 1)["pairs"]
        G = collapse(L)[1] if name == "MCML" else pairs.X.T @ pairs(L, 1.0, by_metric=True).pull
        for other in (by_row(), by_pair()):
            np.testing.assert_allclose(G, other, rtol=1e-6, atol=1e-9 * np.abs(other).max())
        ratios = t["rows"] / t["ours"], slow / t["ours"]
        print(f"| {name} | {n} | {t['ours']:.4f} | {t['rows']:.3f} | {ratios[0]:.0f} | {slow:.2f} | {ratios[1]:.0f} |")


def mcml_by_rows(X: np.ndarray, y: np.ndarray, M: np.ndarray) -> Callable[[], np.ndarray]:
    def gradient() -> np.ndarray:
        G = np.zeros_like(M)
        for i in range(len(X)):
            D = X[i] - X
            d = np.einsum("nd,nd->n", D @ M, D)
            d[i] = np.inf
            p = np.exp(d.min() - d)
            same = y == y[i]
            same[i] = False
            w = same / same.sum() - p / p.sum()
            G += (D * w[:, None]).T @ D
        return G

    return gradient


def mcml_by_pairs(X: np.ndarray, y: np.ndarray, M: np.ndarray) -> Callable[[], np.ndarray]:
    def gradient() -> np.ndarray:
        G, sizes = np.zeros_like(M), np.bincount(y)
        for i in range(len(X)):
            others = [j for j in range(len(X)) if j != i]
            e = np.array([np.exp(-(X[i] - X[j]) @ M @ (X[i] - X[j])) for j in others])
            for j, p in zip(others, e / e.sum(), strict=True):
                G += ((y[i] == y[j]) / (sizes[y[i]] - 1) - p) * np.outer(X[i] - X[j], X[i] - X[j])
        return G

    return gradient


def ldml_by_rows(X: np.ndarray, y: np.ndarray, M: np.ndarray) -> Callable[[], np.ndarray]:
    def gradient() -> np.ndarray:
        G = np.zeros_like(M)
        for i in range(len(X)):
            D = X[i] - X[:i]
            s = np.where(y[:i] == y[i], 1.0, -1.0)
            w = s / (1 + np.exp(-s * (np.einsum("nd,nd->n", D @ M, D) - 1)))
            G += (D * w[:, None]).T @ D
        return G / (len(X) * (len(X) - 1) / 2)

    return gradient


def ldml_by_pairs(X: np.ndarray, y: np.ndarray, M: np.ndarray) -> Callable[[], np.ndarray]:
    def gradient() -> np.ndarray:
        G = np.zeros_like(M)
        for i in range(len(X)):
            for j in range(i):
                z = X[i] - X[j]
                s = 1.0 if y[i] == y[j] else -1.0
                G += s / (1 + np.exp(-s * (z @ M @ z - 1))) * np.outer(z, z)
        return G / (len(X) * (len(X) - 1) / 2)

    return gradient


def memory(arguments: argparse.Namespace) -> None:
    """The fit in a fresh process, whose peak is its own."""
    command = [sys.executable, __file__, "fit", "--dtype", arguments.dtype, "--max-iter", str(arguments.max_iter)]
    subprocess.run(command + (["--table", str(arguments.table)] if arguments.table else []), check=True)


def fit(arguments: argparse.Namespace) -> None:
    X, y = table(arguments.table) if arguments.table else drawn(20_000, 16, 26)
    X = StandardScaler().fit_transform(X)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = process_time()
    learner = NCA(dtype=arguments.dtype, max_iter=arguments.max_iter).fit(X, y)
    seconds, peak = process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"\nNCA on {X.shape[0]} x {X.shape[1]}, {arguments.dtype}: {learner.n_iter_} iterations, {seconds:.0f} s",
        end="",
    )
    share = float(learner.objective_ or 0) / len(y)
    print(f", expected accuracy {share:.4f}; peak of the process {peak:.0f} MB", end="")
    print(f" ({before:.0f} MB before the fit)")


def table(path: Path) -> Table:
    text = np.loadtxt(path, delimiter=",", skiprows=1, dtype=str)
    return text[:, :-1].astype(float), text[:, -1]


def accuracies(arguments: argparse.Namespace) -> None:
    tables = {"digits": load_digits(return_X_y=True), "breast cancer": load_breast_cancer(return_X_y=True)}
    tables |= {"wine": load_wine(return_X_y=True), "iris": load_iris(return_X_y=True)}
    for path in sorted(arguments.data.glob("*.csv*")) if arguments.data else []:
        tables[path.name.partition(".")[0]] = table(path)
    print("\n| table | method | 3-NN accuracy | NCA's objective | iterations | fit, s |")
    print("|---|---|---|---|---|---|")
    for name, (X, y) in tables.items():
        kept = np.sort(np.random.default_rng(0).permutation(len(y))[: arguments.max_rows])
        compare(name if len(kept) == len(y) else f"{name}, {len(kept)} rows", X[kept], y[kept], arguments.only)


METHODS: dict[str, Callable[[], Any]] = {
    "scikit-learn NCA": lambda: NeighborhoodComponentsAnalysis(random_state=0),
    "NCA": lambda: NCA(),
    "NCA, float32": lambda: NCA(dtype="float32"),
    "NCA, log": lambda: NCA(objective="log"),
    "FastNCA": lambda: FastNCA(),
    "MCML": lambda: MCML(max_iter=100),
    "LDML": lambda: LDML(max_iter=100),
    "PCCA": lambda: PCCA(max_iter=100),
    "ITML": lambda: ITML(random_state=0),
}
if metric_learn is not None:
    METHODS["metric-learn NCA"] = lambda: metric_learn.NCA(random_state=0)
    METHODS["metric-learn ITML"] = lambda: metric_learn.ITML_Supervised(random_state=0)


def compare(name: str, X: np.ndarray, y: np.ndarray, words: list[str]) -> None:
    large = np.isin(y, [c for c, size in zip(*np.unique(y, return_counts=True), strict=True) if size >= 5])
    X, y = X[large], np.unique(y[large], return_inverse=True)[1]  # a class needs a row in every fold
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
    for method, make in METHODS.items():
        if not any(word in method for word in words):
            continue
        found = []
        for train, test in folds:
            scaler = StandardScaler().fit(X[train])
            A, B = scaler.transform(X[train]), scaler.transform(X[test])
            start = process_time()
            learner = make().fit(A, y[train])
            seconds = process_time() - start
            score = KNeighborsClassifier(3).fit(learner.transform(A), y[train]).score(learner.transform(B), y[test])
            rows = neighbor_softmax.sorted_rows(A, encode(y[train])[1])
            value = neighbor_softmax.neighbor_sums(rows.X @ learner.components_.T, rows.sizes, "accuracy", rows.weight)[
                0
            ]
            found.append((score, value, learner.n_iter_, seconds))
        score, value, n_iter, seconds = np.mean(found, axis=0)
        shown = f"{value:.2f}" if "NCA" in method and "log" not in method and "Fast" not in method else ""
        print(f"| {name} | {method} | {score:.4f} | {shown} | {n_iter:.0f} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
