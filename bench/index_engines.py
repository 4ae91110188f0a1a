"""Collections of embeddings beside faiss and usearch: recall, time of one query and of many, changes, memory.

    python bench/index_engines.py [--items 100000] [--dims 128] [--queries 300]
    python bench/index_engines.py --items 1000000 --folder kept    # the next run opens what this one has built

The vectors are clustered as embeddings are: one cluster for each thousand items, around centers of unit length. Queries
are drawn from the same clusters. All search ten neighbors by the cosine on one thread. The engines run one after the
other, each in a separate process, so that the memory of each can be measured. `nearfar` searches a file exactly and a
folder of LanceDB approximately, as `nearfar index` does. faiss and usearch hold an HNSW graph (M = 32, 128 candidates
when built, as many when searched), faiss also inverted lists (4 sqrt(n), of which it looks into 16). They save and read
their own files, without names, classes or columns, and nothing keeps such a file whole where a process is killed.

"Cold" is the first query after opening, and "first" the processor time of both, without imports. "Add" and "remove"
change 1,000 items so that they are there for the next process: an engine without such a change writes its whole file
again.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[Any]
K = 10
CHANGED = 1000
LINKS = 32
CANDIDATES = 128
PROBES = 16
ENGINES = ("nearfar, file", "nearfar, graph", "nearfar, LanceDB", "faiss, HNSW", "faiss, IVF", "usearch")
COLUMNS = {
    "recall": "recall@10",
    "build": "build, s",
    "open": "open, s",
    "cold": "cold, ms",
    "first": "first, ms of the processor",
    "p50": "p50, ms",
    "p99": "p99, ms",
    "filter": "1 % p50, ms",
    "batch": "queries/s",
    "one": "add 1, ms",
    "add": "add 1,000, s",
    "remove": "remove 1,000, s",
    "private": "private, MB",
    "memory": "peak, MB",
    "disk": "disk, MB",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dims", type=int, default=128)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--engines", nargs="*", default=ENGINES)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help="folder that keeps vectors and engines; others are removed")
    settings = parser.parse_args()
    if settings.engine:
        print(json.dumps(measured(settings)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = settings.folder or Path(scratch)
        if not (folder / "true.npy").exists():
            folder.mkdir(exist_ok=True)
            make_vectors(folder, settings)
        print(f"{settings.items:,} items of {settings.dims} dimensions, {settings.queries} queries\n")
        print("| engine | " + " | ".join(COLUMNS.values()) + " |")
        print("|---|" + "---:|" * len(COLUMNS))
        for engine in settings.engines:
            command = [sys.executable, __file__, "--engine", engine, "--folder", str(folder)]
            command += ["--items", str(settings.items), "--dims", str(settings.dims)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"| {engine} | {done.stderr.splitlines()[-1]} |", flush=True)
                continue
            found = json.loads(done.stdout.splitlines()[-1])
            print(f"| {engine} | " + " | ".join(shown(found[name]) for name in COLUMNS) + " |", flush=True)


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def make_vectors(folder: Path, settings: argparse.Namespace) -> None:
    """Write items, new items, queries and the true neighbors of these."""
    rng = np.random.default_rng(0)
    clusters = max(10, settings.items // 1000)
    centers = unit(rng.normal(size=(clusters, settings.dims)))

    def drawn(n: int) -> Rows:
        noise = rng.normal(size=(n, settings.dims)) / np.sqrt(settings.dims)
        return unit(centers[rng.integers(clusters, size=n)] + 0.7 * noise)

    items = np.concatenate([drawn(min(100_000, settings.items - at)) for at in range(0, settings.items, 100_000)])
    queries = drawn(settings.queries)
    np.save(folder / "items.npy", items)
    np.save(folder / "new.npy", drawn(CHANGED))
    np.save(folder / "queries.npy", queries)
    true = [np.argpartition(-(items @ query), K)[:K] for query in queries]
    np.save(folder / "true.npy", np.stack(true))


def unit(x: Rows) -> Rows:
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def measured(settings: argparse.Namespace) -> dict[str, float | None]:
    """Measure one engine in this process."""
    folder = settings.folder
    items = np.load(folder / "items.npy")
    new = np.load(folder / "new.npy")
    queries = np.load(folder / "queries.npy")
    true = np.load(folder / "true.npy")
    engine = MAKERS[settings.engine](folder)
    held = peak_memory()
    found: dict[str, float | None] = {}
    found["build"] = None if engine.path.exists() else seconds(lambda: engine.build(items))
    count = len(items)
    items = None  # the engine has its own copy now, or its file
    for module in engine.imports:
        importlib.import_module(module)
    begun = time.process_time()
    found["open"] = seconds(engine.open)
    found["cold"] = 1000 * seconds(lambda: engine.search(queries[:1]))
    found["first"] = 1000 * (time.process_time() - begun)
    times = [1000 * seconds(partial(engine.search, query[None])) for query in queries]
    found["p50"] = float(np.percentile(times, 50))
    found["p99"] = float(np.percentile(times, 99))
    found["filter"] = None
    if hasattr(engine, "filtered"):
        times = [1000 * seconds(partial(engine.filtered, query[None], k)) for k, query in enumerate(queries[:60])]
        found["filter"] = float(np.percentile(times, 50))
    found["private"] = private_memory()
    begun = time.perf_counter()
    rows = engine.search(queries)
    found["batch"] = len(queries) / (time.perf_counter() - begun)
    found["recall"] = float(
        np.mean([len(set(a) & set(b)) / K for a, b in zip(rows.tolist(), true.tolist(), strict=True)])
    )
    found["one"] = None
    if hasattr(engine, "filtered"):
        found["one"] = 1000 * seconds(lambda: engine.add(new[:1], 2 * count))
        engine.remove(range(2 * count, 2 * count + 1))
    found["add"] = seconds(lambda: engine.add(new, count))
    found["remove"] = None
    if hasattr(engine, "remove"):
        found["remove"] = seconds(lambda: engine.remove(range(count, count + CHANGED)))
    found["memory"] = (peak_memory() - held) / 1024
    found["disk"] = sum(file.stat().st_size for file in engine.path.rglob("*") if file.is_file()) / 2**20
    if engine.path.is_file():
        both = engine.path.parent.glob(f"{engine.path.name}*")  # an index may have a cache
        found["disk"] = sum(file.stat().st_size for file in both) / 2**20
    return found


def peak_memory() -> int:
    """Return the largest memory of this program so far, in kB.

    `ru_maxrss` also counts the program that started this one; Linux keeps a figure without it.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def private_memory() -> float | None:
    """Return the memory, in MB, that this program has written and shares with no file and no other program."""
    rollup = Path("/proc/self/smaps_rollup")
    if not rollup.is_file():
        return None
    line = next(line for line in rollup.read_text(encoding="utf-8").splitlines() if line.startswith("Private_Dirty"))
    return int(line.split()[1]) / 1024


def seconds(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


class Nearfar:
    """A collection of this library, in a file or in a folder of LanceDB."""

    imports: tuple[str, ...] = ("nearfar.index", "nearfar.index.file_store")

    def __init__(self, path: Path) -> None:
        self.path = path

    def build(self, items: Rows) -> None:
        from nearfar.index import create, records_of

        numbers = range(len(items))
        columns = {"price": np.random.default_rng(1).random(len(items)), "shop": [f"shop {k % 997}" for k in numbers]}
        labels = [f"class {k % 1000}" for k in numbers]
        create(self.path, records_of(items, self._names(numbers), labels=labels, columns=columns)).close()

    def open(self) -> None:
        from nearfar.index import open_store

        self.store = open_store(self.path)

    def search(self, queries: Rows) -> Rows:
        hits = self.store.search(queries, K)
        return hits.records.names[hits.positions].astype(int)

    def filtered(self, queries: Rows, number: int) -> Rows:
        """Search 1 % of the items, which are others for each number."""
        least = 0.016 * number
        hits = self.store.search(queries, K, where=f"price >= {least} and price < {least + 0.01}")
        return hits.records.names[hits.positions].astype(int)

    def add(self, new: Rows, first: int) -> None:
        from nearfar.index import open_store, records_of

        self.store.close()
        with open_store(self.path, "w") as store:
            labels = ["new"] * len(new)
            store.add(records_of(new, self._names(range(first, first + len(new))), labels=labels))

    def remove(self, numbers: range) -> None:
        from nearfar.index import open_store

        with open_store(self.path, "w") as store:
            store.remove(self._names(numbers))

    def _names(self, numbers: range) -> list[str]:
        return [str(number) for number in numbers]


class NearfarGraph(Nearfar):
    """A collection of this library in a file, with a graph beside it."""

    imports = (*Nearfar.imports, "usearch.index")

    def build(self, items: Rows) -> None:
        from nearfar.index import open_store

        super().build(items)
        store: Any = open_store(self.path, "w")
        with store:
            store.build()


class Faiss:
    """An index of faiss in a file."""

    index: Any
    imports = ("faiss",)

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        self.kind = kind

    def build(self, items: Rows) -> None:
        import faiss

        faiss.omp_set_num_threads(1)
        n, d = items.shape
        index: Any
        if self.kind == "HNSW":
            index = faiss.IndexHNSWFlat(d, LINKS, faiss.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction = CANDIDATES
        else:
            index = faiss.index_factory(d, f"IVF{int(4 * np.sqrt(n))},Flat", faiss.METRIC_INNER_PRODUCT)
            index.train(items)
        index.add(items)
        faiss.write_index(index, str(self.path))

    def open(self) -> None:
        import faiss

        self.index = faiss.read_index(str(self.path))
        if self.kind == "HNSW":
            self.index.hnsw.efSearch = CANDIDATES
        else:
            self.index.nprobe = PROBES

    def search(self, queries: Rows) -> Rows:
        return np.asarray(self.index.search(queries, K)[1])

    def add(self, new: Rows, first: int) -> None:
        import faiss

        self.index.add(new)
        faiss.write_index(self.index, str(self.path))


class FaissLists(Faiss):
    """Inverted lists, which can forget."""

    def remove(self, numbers: range) -> None:
        import faiss

        self.index.remove_ids(np.array(numbers, dtype=np.int64))
        faiss.write_index(self.index, str(self.path))


class Usearch:
    """An index of usearch in a file."""

    index: Any
    imports = ("usearch.index",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def build(self, items: Rows) -> None:
        from usearch.index import Index

        index = Index(
            ndim=items.shape[1],
            metric="cos",
            dtype="f32",
            connectivity=LINKS,
            expansion_add=CANDIDATES,
            expansion_search=CANDIDATES,
        )
        index.add(np.arange(len(items)), items, threads=1)
        index.save(str(self.path))

    def open(self) -> None:
        from usearch.index import Index

        self.index = Index.restore(str(self.path))
        self.index.expansion_search = CANDIDATES

    def search(self, queries: Rows) -> Rows:
        keys = self.index.search(queries, K, threads=1).keys
        return np.asarray(keys).reshape(len(queries), -1)

    def add(self, new: Rows, first: int) -> None:
        self.index.add(np.arange(first, first + len(new)), new, threads=1)
        self.index.save(str(self.path))

    def remove(self, numbers: range) -> None:
        for number in numbers:
            self.index.remove(number)
        self.index.save(str(self.path))


MAKERS: dict[str, Callable[[Path], Any]] = {
    "nearfar, file": lambda folder: Nearfar(folder / "items.index"),
    "nearfar, graph": lambda folder: NearfarGraph(folder / "graph.index"),
    "nearfar, LanceDB": lambda folder: Nearfar(folder / "items.lance"),
    "faiss, HNSW": lambda folder: Faiss(folder / "hnsw.faiss", "HNSW"),
    "faiss, IVF": lambda folder: FaissLists(folder / "ivf.faiss", "IVF"),
    "usearch": lambda folder: Usearch(folder / "items.usearch"),
}


if __name__ == "__main__":
    main()
