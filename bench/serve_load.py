"""How many searches a second `nearfar serve` answers, beside the bare framework, and whether its memory grows.

python bench/serve_load.py --items 100000 --requests 10000

The bare framework is Starlette on uvicorn with the same settings: it reads the same body, and answers ten items that it
has ready. The floor does the same after a search by the bare engine (usearch, or a product of NumPy with `--exact`),
whose result it throws away. All get the same requests, in turns, from a client in C (`load_client.c`): each of its
connections asks for the ten nearest of a vector near the items, waits for the answer, and asks again. Answers a second
depend on what else the machine does; processor time of the server per answer depends less on it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import nearfar.index
from nearfar.index import create, records_of

DIMENSIONS = 128
CLUSTERED = 1000  # items in each cluster
DIFFERENT = 200  # requests
HEAD = (
    b"POST /api/search?k=10 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


def rows_of(items: int) -> Any:
    """Return unit vectors in clusters, (n, d)."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(max(1, items // CLUSTERED), DIMENSIONS))
    rows = centers[np.arange(items) % len(centers)] + 0.7 * rng.normal(size=(items, DIMENSIONS))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def bare_app(search: Callable[[Any], Any]) -> Any:
    """Return what answers ten items that it has ready, after a search."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    one: dict[str, Any] = {
        "name": "123456",
        "class": "c456",
        "columns": {},
        "marked": None,
        "distance": 0.123456,
        "match": True,
    }
    answer = {"threshold": None, "distance": "cosine", "neighbors": [one] * 10}

    async def answered(request: Request) -> JSONResponse:
        search(await request.json())
        return JSONResponse(answer)

    return Starlette(routes=[Route("/api/search", answered, methods=["POST"])])


def bare_search(file: str, exact: bool) -> Callable[[Any], Any]:
    """Return the search of the engine alone, without names, checks and exact distances."""
    store: Any = nearfar.index.open(file)
    if exact:
        rows = store.in_memory().embeddings
        return lambda body: np.argpartition(rows @ np.array(body["vector"], dtype=np.float32), -10)[-10:]
    graph = store._mapped.graph  # it holds the file, which usearch only points to

    def search(body: Any) -> Any:
        return graph.found.search(np.array(body["vector"], dtype=np.float32), 10, threads=1)

    return search


def serve_bare(file: str, exact: bool) -> None:
    """Serve it, and print the port as `nearfar serve` does."""
    from nearfar.serve.server import config_of, listen

    listener = listen("127.0.0.1", 0)
    print(f"Serving at http://127.0.0.1:{listener.getsockname()[1]}/", file=sys.stderr, flush=True)
    import uvicorn

    app = bare_app(bare_search(file, exact) if file else lambda body: None)
    uvicorn.Server(config_of(app)).run(sockets=[listener])


def requests_near(file: str) -> bytes:
    """Return different requests near items of an index, each after its length, as `load_client.c` reads them."""
    rng = np.random.default_rng(1)
    with nearfar.index.open(file) as store:
        names = store.column("name")
        chosen = store.get(names[rng.integers(len(names), size=DIFFERENT)].tolist()).embeddings
    content = b""
    for row in (chosen + 0.03 * rng.normal(size=chosen.shape)).round(6).tolist():
        body = json.dumps({"vector": row}).encode()
        request = HEAD % len(body) + body
        content += b"%d\n%s" % (len(request), request)
    return content


def compiled(folder: str) -> str:
    """Compile the client, and return its path."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise SystemExit("serve_load: needs a compiler of C, for the client")
    program = f"{folder}/load_client"
    source = Path(__file__).with_name("load_client.c")
    subprocess.run([compiler, "-O2", "-D_GNU_SOURCE", "-o", program, str(source)], check=True)
    return program


def started(*command: str) -> tuple[subprocess.Popen[str], int]:
    """Start a server, and return its process and its port."""
    process = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    return process, int(line.partition("127.0.0.1:")[2].partition("/")[0])


def measured(
    client: str, content: bytes, process: subprocess.Popen[str], port: int, requests: int, connections: int
) -> dict[str, float]:
    """Let the client ask, and add the processor time of the server for each answer, in milliseconds."""
    before = processor_seconds(process.pid)
    words = [client, str(port), str(requests), str(connections)]
    rate, p50, p99 = map(float, subprocess.run(words, input=content, check=True, capture_output=True).stdout.split())
    processor = 1000 * (processor_seconds(process.pid) - before) / requests
    return {"rate": rate, "p50": p50, "p99": p99, "processor": processor}


def processor_seconds(process: int) -> float:
    """Return the processor time of a process until now."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process: int) -> float:
    """Return the resident memory of a process in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    """Make an index, serve it, and print what is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--index", default="", help="file of the index; if it is there, it is served as it is")
    parser.add_argument("--exact", action="store_true", help="search without a graph")
    parser.add_argument("--bare", nargs="?", const="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare is not None:
        serve_bare(given.bare, given.exact)
        return
    with tempfile.TemporaryDirectory() as folder:
        client = compiled(folder)
        file = given.index or f"{folder}/x.index"
        if not Path(file).exists():
            labels = [f"c{k % 1000}" for k in range(given.items)]
            with create(
                file, records_of(rows_of(given.items), [str(k) for k in range(given.items)], labels=labels)
            ) as store:
                if not given.exact:
                    store.build()  # type: ignore[attr-defined]  # a file has a graph
        content = requests_near(file)
        servers = {
            "bare framework": started(__file__, "--bare"),
            "framework and engine": started(__file__, "--bare", file, *(["--exact"] if given.exact else [])),
            "nearfar": started("-m", "nearfar", "serve", file, "--port", "0"),
        }
        try:
            rounds: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
            each = given.requests // given.rounds
            for process, port in servers.values():
                measured(client, content, process, port, 2 * given.connections, given.connections)  # what is made once
            process = servers["nearfar"][0]
            kept = [memory(process.pid)]
            for _ in range(given.rounds):
                for name, (other, port) in servers.items():
                    rounds[name].append(measured(client, content, other, port, each, given.connections))
                kept.append(memory(process.pid))
            medians = {
                name: {key: statistics.median(one[key] for one in found) for key in found[0]}
                for name, found in rounds.items()
            }
            for name, found in medians.items():
                print(
                    f"{name}: {found['rate']:,.0f} answers/s, p50 {found['p50']:.1f} ms, p99 {found['p99']:.1f} ms, "
                    f"{found['processor']:.2f} ms of the processor for each"
                )
            for name in ("framework and engine", "nearfar"):
                ratios = [
                    one["rate"] / bare["rate"] for one, bare in zip(rounds[name], rounds["bare framework"], strict=True)
                ]
                processor = medians[name]["processor"] / medians["bare framework"]["processor"]
                print(
                    f"{name} beside the bare framework: {processor:.2f} of the processor time, "
                    f"{', '.join(f'{ratio:.2f}' for ratio in ratios)} of the answers/s"
                )
            print(f"memory, MB, every {each:,} requests: {', '.join(f'{one:.0f}' for one in kept)}")
        finally:
            for process, _ in servers.values():
                process.terminate()
                process.wait(30)


if __name__ == "__main__":
    main()
