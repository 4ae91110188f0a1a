"""Every classical learner beside its peers: fit time, memory, objective and 3-NN accuracy on the same five folds.

    python bench/classical.py                                    digits and breast cancer
    python bench/classical.py --data FOLDER [--label NAME]       and every CSV table of FOLDER (class last, or named)
    python bench/classical.py --metric-learn PATH                and metric-learn, by the interpreter of its environment
    python bench/classical.py --table letter vehicle             of all tables only these, by their file names
    python bench/classical.py --rows 5000                        at most so many rows of a table, by classes, seed 0
    python bench/classical.py --only GMML RCA LMNN               some learners and their peers
    python bench/classical.py --paired                           the learners that have a peer: minutes, not hours
    python bench/classical.py --large                            closed forms on 100,000 rows of 50 features, alone
    python bench/classical.py --quick                            a smoke run of a few seconds

Learners have their default settings and a seed. Each one is forked from a process that has imported its library and
loaded the table, on one thread; `fit` is the median of its CPU seconds (user and system) over the folds, `MB` what its
resident memory rose by at most, `ratio` how many times as long as nearfar's method a peer takes. A learner that has
used up `--seconds` of CPU is ended; what it finished counts. Features are standardised on the training part, and
accuracy is that of 3 nearest neighbours on the test part. `same` is one measure for all of a method's
implementations, on the training part of the first fold: NCA's expected share of right neighbours (more is better),
LMNN's loss per row with 3 targets, pull and push weighing 1/2 (less is better), MMC's summed distance of dissimilar
pairs over the root of similar pairs' summed squares (more is better).

What single methods do at length is measured beside this file, in ``bench/classical_*.py``: ``classical_probabilistic``
(losses and gradients against plain loops, memory of NCA), ``classical_spectral``, ``classical_information``.
metric-learn 0.7 works with scikit-learn up to 1.7 only, so it has an environment of its own; both run under this one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

Table = tuple[np.ndarray, np.ndarray]
Result = dict[str, Any]

# nearfar's learner -> the same method elsewhere
PEERS = {
    "NCA": {"scikit-learn": "NCA", "metric-learn": "NCA"},
    "FisherMetric": {"scikit-learn": "LDA"},
    "LMNN": {"metric-learn": "LMNN"},
    "MMC": {"metric-learn": "MMC_Supervised"},
    "RCA": {"metric-learn": "RCA_Supervised"},
    "ITML": {"metric-learn": "ITML_Supervised"},
    "CovarianceMetric": {"metric-learn": "Covariance"},
}
CLOSED: tuple[str, ...] = (
    "CovarianceMetric",
    "SideInformationMetric",
    "FisherMetric",
    "RCA",
    "DCA",
    "HighDimensionalDCA",
)
CLOSED += ("FISHMML", "GMML", "InformationGeometryMetric")
QUICK = ("GMML", "RCA", "DCA", "MMC", "NCA", "FisherMetric", "ITML")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"), "1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of CSV tables (also .gz) with a header")
    parser.add_argument("--label", help="the label's column; default: the last")
    parser.add_argument("--metric-learn", type=Path, metavar="PATH", help="an interpreter that has metric-learn")
    parser.add_argument("--table", nargs="+", help="names of the tables to run")
    parser.add_argument("--rows", type=int, help="most rows of a table")
    parser.add_argument("--only", nargs="+", help="nearfar's names of the learners to run")
    parser.add_argument("--paired", action="store_true", help="only learners that have a peer")
    parser.add_argument("--seconds", type=int, default=60, help="CPU seconds for a learner on a table")
    parser.add_argument("--memory", type=float, default=4.0, help="GB that a learner may ask for")
    parser.add_argument("--large", action="store_true", help="only closed forms on 100,000 rows")
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--work", nargs=2, metavar=("LIBRARY", "TASK"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        return work(*arguments.work)
    if arguments.paired:
        arguments.only = list(PEERS)
    describe_machine()
    for library, python in libraries(arguments).items():
        list(ask(python, library, drawn(2, 2), [], arguments))
    if not arguments.large:
        for name, table in tables(arguments).items():
            if not arguments.table or name in arguments.table:
                compare(name, *sampled(table, arguments.rows), arguments)
    if not arguments.only or arguments.large:
        closed_forms(arguments)
    return None


def describe_machine() -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    print(f"processor: {names[0] if names else platform.processor()}; load {os.getloadavg()[0]:.1f}")


# --- Tables


def tables(arguments: argparse.Namespace) -> dict[str, Table]:
    from sklearn.datasets import load_breast_cancer, load_digits

    if arguments.quick:
        X, y = load_breast_cancer(return_X_y=True)
        return {"breast cancer, 120 rows": (X[:120], y[:120])}
    found = {"breast cancer": load_breast_cancer(return_X_y=True), "digits": load_digits(return_X_y=True)}
    for path in sorted(arguments.data.glob("*.csv*")) if arguments.data else []:
        found[path.name.partition(".")[0]] = read(path, arguments.label)
    return found


def read(path: Path, label: str | None) -> Table:
    """Features and classes of a CSV table."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        rows = np.array([line.strip().split(",") for line in file if line.strip()])
    names = rows[0].tolist()
    at = names.index(label) if label in names else len(names) - 1
    return np.delete(rows[1:], at, axis=1).astype(float), np.unique(rows[1:, at], return_inverse=True)[1]


def sampled(table: Table, rows: int | None) -> tuple[Table, int]:
    """At most so many rows, each class by its share, and how many there were."""
    X, y = table
    if rows is None or len(X) <= rows:
        return table, len(X)
    kept = train_test_split(np.arange(len(X)), train_size=rows, stratify=y, random_state=0)[0]
    return (X[np.sort(kept)], y[np.sort(kept)]), len(X)


def drawn(n: int, d: int) -> Table:
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=n)
    return rng.normal(size=(n, d)) + 0.5 * rng.normal(size=(10, d))[y], y


# --- The parent: who runs, and what is printed


def compare(name: str, table: Table, of: int, arguments: argparse.Namespace) -> None:
    X, y = table
    wanted = arguments.only or (QUICK if arguments.quick else None)
    sample = f", a sample of {of}" if len(X) < of else ""
    print(f"\n{name}: {len(X)} x {X.shape[1]}, {len(np.unique(y))} classes{sample}")
    print("\n| library | method | fit, s | ratio | MB | objective | same | 3-NN | folds | note |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    ours: dict[str, Result] = {}
    for library, python in libraries(arguments).items():
        names = wanted if library == "nearfar" else peer_names(library, wanted)
        for result in ask(python, library, table, names, arguments):
            if library == "nearfar":
                ours[result["name"]] = result
            print(line(result, ours), flush=True)


def libraries(arguments: argparse.Namespace) -> dict[str, str]:
    """The interpreter of each library."""
    found = {"nearfar": sys.executable, "scikit-learn": sys.executable}
    return found | ({"metric-learn": str(arguments.metric_learn)} if arguments.metric_learn else {})


def peer_names(library: str, wanted: Any) -> list[str]:
    """The peers of the wanted learners, and the plain distance."""
    kept = [peers[library] for name, peers in PEERS.items() if library in peers and (wanted is None or name in wanted)]
    return ["Euclidean", *kept] if library == "scikit-learn" else kept


def ask(
    python: str, library: str, table: Table, names: Any, arguments: argparse.Namespace, folds: int | None = None
) -> Iterator[Result]:
    """Run a library's learners in a process of that interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "table.npz", X=table[0], y=table[1])
        task: dict[str, Any] = {
            "table": str(Path(folder) / "table.npz"),
            "names": None if names is None else list(names),
        }
        task |= {"seconds": arguments.seconds, "memory": arguments.memory}
        task |= {"folds": folds if folds is not None else 2 if arguments.quick else 5}
        command = [python, str(Path(__file__).resolve()), "--work", library, json.dumps(task)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **ONE_THREAD})
        assert child.stdout is not None
        for text in child.stdout:
            found = json.loads(text)
            if "about" not in found:
                yield found
            elif names == []:
                print(f"{library}: {found['about']}", flush=True)
        if child.wait() != 0:
            raise SystemExit(f"the process of {library} failed")


def line(result: Result, ours: dict[str, Result]) -> str:
    times, note = result["fit"], result.get("note", "")
    mine = next((own for own, peers in PEERS.items() if peers.get(result["library"]) == result["name"]), "")
    base = ours.get(mine, {}).get("fit")
    cells = [result["library"], result["name"], f"{np.median(times):.4f}" if times else ""]
    cells += [f"{np.median(times) / np.median(base):.1f}" if times and base else "", f"{result['mb']:.0f}"]
    cells += ["" if result.get(key) is None else f"{result[key]:.6g}" for key in ("objective", "same")]
    cells += [f"{np.mean(result['accuracy']):.4f}" if result["accuracy"] else "", str(len(times)), note]
    return f"| {' | '.join(cells)} |"


def closed_forms(arguments: argparse.Namespace) -> None:
    n, d = (2000, 10) if arguments.quick else (100_000, 50)
    print(f"\nclosed forms, {n:,} x {d}, 10 classes, one fit on all rows (aim: under 2 s and 300 MB)")
    print("\n| method | fit, s | MB | within the aim |\n|---|---|---|---|")
    for result in ask(sys.executable, "nearfar", drawn(n, d), CLOSED, arguments, folds=0):
        if not result["fit"]:
            print(f"| {result['name']} | | | {result['note']} |")
            continue
        good = result["fit"][0] < 2 and result["mb"] < 300
        print(f"| {result['name']} | {result['fit'][0]:.3f} | {result['mb']:.0f} | {'yes' if good else 'NO'} |")


# --- The worker: one library, one fork per learner


def work(library: str, text: str) -> None:
    """Print a JSON line on the library and one per learner."""
    warnings.simplefilter("ignore")
    task = json.loads(text)
    makers = {"nearfar": nearfar_learners, "scikit-learn": peers, "metric-learn": metric_learn_learners}[library]()
    print(json.dumps({"about": about(library)}), flush=True)
    with np.load(task["table"]) as file:
        X, y = file["X"], file["y"]
    names = list(makers) if task["names"] is None else [name for name in task["names"] if name in makers]
    for name in names:
        print(json.dumps({"library": library, "name": name, **forked(makers[name], name, X, y, task)}), flush=True)


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


def nearfar_learners() -> dict[str, Callable[[int], Any]]:
    """Every learner of the catalogue that is done."""
    import nearfar
    from nearfar.catalog import METHODS

    done = [method.name for method in METHODS if method.kind == "learner" and method.done]
    return {name: partial(seeded, getattr(nearfar, name)) for name in done}


def seeded(kind: type, n: int) -> Any:
    learner: Any = kind()
    return learner.set_params(random_state=0) if "random_state" in learner.get_params() else learner


def peers() -> dict[str, Callable[[int], Any]]:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.neighbors import NeighborhoodComponentsAnalysis

    return {
        "Euclidean": lambda n: StandardScaler(with_std=False),
        "NCA": lambda n: NeighborhoodComponentsAnalysis(random_state=0),
        "LDA": lambda n: LinearDiscriminantAnalysis(),
    }


def metric_learn_learners() -> dict[str, Callable[[int], Any]]:
    import metric_learn

    return {
        "NCA": lambda n: metric_learn.NCA(random_state=0),
        "LMNN": lambda n: metric_learn.LMNN(random_state=0),
        "MMC_Supervised": lambda n: metric_learn.MMC_Supervised(random_state=0),
        # its default of 100 chunks is more than small tables have
        "RCA_Supervised": lambda n: metric_learn.RCA_Supervised(n_chunks=min(100, n // 5), random_state=0),
        "ITML_Supervised": lambda n: metric_learn.ITML_Supervised(random_state=0),
        "Covariance": lambda n: metric_learn.Covariance(),
    }


def forked(make: Callable[[int], Any], name: str, X: np.ndarray, y: np.ndarray, task: dict[str, Any]) -> Result:
    """Run a learner in a child that ends when its time is up, and gather what it wrote until then."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        with os.fdopen(write_end, "w") as out:
            measured(make, name, X, y, task, lambda found: print(json.dumps(found), file=out, flush=True))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as lines:
        told = [json.loads(text) for text in lines]
    status = os.waitpid(child, 0)[1]
    result: Result = {key: [found[key] for found in told if key in found] for key in ("fit", "accuracy")}
    for key in ("objective", "same", "note"):
        values = [found[key] for found in told if found.get(key) is not None]
        result[key] = values[0] if values else None
    result["mb"] = max((found["mb"] for found in told if "mb" in found), default=float("nan"))
    if os.WIFSIGNALED(status):
        timed_out = os.WTERMSIG(status) == signal.SIGPROF
        result["note"] = "out of time" if timed_out else f"ended by signal {os.WTERMSIG(status)}"
    result["note"] = result["note"] or ""
    return result


def measured(
    make: Callable[[int], Any],
    name: str,
    X: np.ndarray,
    y: np.ndarray,
    task: dict[str, Any],
    tell: Callable[[Result], None],
) -> None:
    """In the child: fold after fold, or with no folds one fit on all rows."""
    resource.setrlimit(resource.RLIMIT_AS, (int(task["memory"] * 2**30),) * 2)
    # the default action of SIGPROF ends the process, wherever it is
    signal.setitimer(signal.ITIMER_PROF, task["seconds"])
    before = None
    try:
        for fold, (train, test) in enumerate(parts(X, y, task["folds"])):
            scaler = StandardScaler().fit(X[train])
            A, B = scaler.transform(X[train]), scaler.transform(X[test]) if len(X[test]) else X[test]
            before = peak_mb() if before is None else before
            seconds, learner = fitted(partial(make, len(A)), A, y[train])
            found: Result = {"fit": seconds, "mb": peak_mb() - before}
            found["objective"] = as_number(getattr(learner, "objective_", None))
            tell(found)
            if len(B):
                tell(scored(learner, name if fold == 0 else "", A, y[train], B, y[test]))
    except (ValueError, MemoryError, TypeError, np.linalg.LinAlgError) as error:
        tell({"note": f"{type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}"})


def fitted(make: Callable[[], Any], A: np.ndarray, a: np.ndarray) -> tuple[float, Any]:
    """CPU seconds of a fit, the mean over as many as make a clock of 10 ms exact, and the learner."""
    start, fits, spent = process_time(), 0, 0.0
    while spent < 0.2 and fits < 50:
        learner = make().fit(A, a)
        fits, spent = fits + 1, process_time() - start
    return spent / fits, learner


def parts(X: np.ndarray, y: np.ndarray, folds: int) -> Iterator[tuple[Any, Any]]:
    if folds == 0:
        return iter([(slice(None), slice(0))])
    return StratifiedKFold(folds, shuffle=True, random_state=0).split(X, y)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def as_number(value: Any) -> float | None:
    return float(value) if value is not None and np.ndim(value) == 0 and np.isfinite(value) else None


def scored(learner: Any, name: str, A: np.ndarray, a: np.ndarray, B: np.ndarray, b: np.ndarray) -> Result:
    Z = learner.transform(A)
    accuracy = KNeighborsClassifier(3).fit(Z, a).score(learner.transform(B), b)
    same = SAME.get(name.removesuffix("_Supervised")) if len(A) <= 6000 else None
    return {"accuracy": float(accuracy), "same": None if same is None else same(np.asarray(Z, dtype=float), A, a)}


# --- One measure for all implementations of a method


def expected_share(Z: np.ndarray, A: np.ndarray, a: np.ndarray) -> float:
    """NCA: the mean probability of drawing a neighbour of the own class."""
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
    return far / 2 / np.sqrt(near / 2)


SAME = {"NCA": expected_share, "LMNN": margin_loss, "MMC": spread}


if __name__ == "__main__":
    main()
