"""Every classical learner beside its peers: fit time, memory, objective and 3-NN accuracy on the same five folds.

    python bench/classical.py                                    iris, wine, breast cancer and digits
    python bench/classical.py --data FOLDER [--label NAME]       and every CSV table of FOLDER (class last, or named)
    python bench/classical.py --metric-learn PATH                and metric-learn, by the interpreter of its environment
    python bench/classical.py --table letter vehicle             of all tables only these, by their file names
    python bench/classical.py --rows 5000                        at most so many rows of a table, by classes, seed 0
    python bench/classical.py --only GMML RCA LMNN               some learners and their peers
    python bench/classical.py --paired                           the learners that have a peer: minutes, not hours
    python bench/classical.py --given                            RCA, ITML and MMC, the same pairs and chunklets for all
    python bench/classical.py --draws 5                          so many draws of the five folds, one after the other
    python bench/classical.py --large                            closed forms on 100,000 rows of 50 features, alone
    python bench/classical.py --quick                            a smoke run of a few seconds

Learners have their default settings, and the number of the draw as seed. Each one is forked from a process that has
imported its library and loaded the table (`classical_worker.py`), on one thread; `fit` is the median of its CPU seconds
(user and system) over the folds, `MB` what its resident memory rose by at most, `ratio` how many times as long as
nearfar's method a peer takes. A learner that has used up `--seconds` of CPU is ended; what it finished counts. Classes
of fewer than five rows are left out: every fold needs one. Features are standardized on the training part, and accuracy
is that of 3 nearest neighbors on the test part. `same` is one measure for all of a method's implementations, on the
training part of the first fold: NCA's expected share of right neighbors (more is better), LMNN's loss per row with 3
targets, pull and push weighing 1/2 (less is better), MMC's summed distance of dissimilar pairs over the root of similar
pairs' summed squares (more is better).

Given supervision is 20 c^2 pairs of each kind for c classes, with percentiles 5 and 95 of their squared distances as
ITML's bounds and a gamma of 1, and 100 chunklets of two rows: one problem for all. Otherwise each library makes its own
from labels.

What single methods do at length is measured beside this file, in ``bench/classical_*.py``: ``classical_probabilistic``
(losses and gradients against plain loops, memory of NCA), ``classical_spectral``, ``classical_information``.
metric-learn 0.7 works with scikit-learn up to 1.7 only, so it needs a separate environment.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

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
    "LSML": {"metric-learn": "LSML_Supervised"},
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
GIVEN = ("RCA", "ITML", "MMC")
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
    parser.add_argument("--given", action="store_true", help="the same pairs and chunklets for all libraries")
    parser.add_argument("--draws", type=int, default=1, help="draws of the folds")
    parser.add_argument("--seconds", type=int, default=60, help="CPU seconds for a learner on a table")
    parser.add_argument("--memory", type=float, default=4.0, help="GB that a learner may ask for")
    parser.add_argument("--large", action="store_true", help="only closed forms on 100,000 rows")
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    arguments = parser.parse_args()
    if arguments.paired or arguments.given:
        arguments.only = arguments.only or list(GIVEN if arguments.given else PEERS)
    describe_machine()
    for library, python in libraries(arguments).items():
        list(ask(python, library, drawn(2, 2), [], arguments))
    if not arguments.large:
        for name, table in tables(arguments).items():
            if not arguments.table or name in arguments.table:
                compare(name, *sampled(table, arguments.rows), arguments)
    if not arguments.only or arguments.large:
        closed_forms(arguments)


def describe_machine() -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    print(f"processor: {names[0] if names else platform.processor()}; load {os.getloadavg()[0]:.1f}")


# --- Tables


def tables(arguments: argparse.Namespace) -> dict[str, Table]:
    from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

    if arguments.quick:
        X, y = load_breast_cancer(return_X_y=True)
        return {"breast cancer, 120 rows": (X[:120], y[:120])}
    load = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
    found = {name: call(return_X_y=True) for name, call in load.items()}
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
    """At most so many rows, each class by its share; none of classes of fewer than five; and how many there were."""
    X, y = table
    kept = np.arange(len(X))
    if rows is not None and len(X) > rows:
        kept = np.sort(train_test_split(kept, train_size=rows, stratify=y, random_state=0)[0])
    kept = kept[np.bincount(y[kept])[y[kept]] >= 5]
    return (X[kept], y[kept]), len(X)


def drawn(n: int, d: int) -> Table:
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=n)
    return rng.normal(size=(n, d)) + 0.5 * rng.normal(size=(10, d))[y], y


# --- Who runs, and what is printed


def compare(name: str, table: Table, of: int, arguments: argparse.Namespace) -> None:
    X, y = table
    wanted = arguments.only or (QUICK if arguments.quick else None)
    sample = f", of {of} rows" if len(X) < of else ""
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
        task = {name: getattr(arguments, name) for name in ("seconds", "memory", "given", "draws")}
        task |= {"table": str(Path(folder) / "table.npz"), "names": None if names is None else list(names)}
        task["least"] = 0.0 if arguments.quick else getattr(arguments, "least", 0.2)
        task |= {"folds": folds if folds is not None else 2 if arguments.quick else 5}
        command = [python, str(Path(__file__).with_name("classical_worker.py")), library, json.dumps(task)]
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


if __name__ == "__main__":
    main()
