"""How long `nearfar serve` takes with many clients on loopback, compared with a request without a search.

python bench/serve_load.py --items 100000 --clients 50 --seconds 20

Each client asks for the ten nearest of a random item, waits for the answer, and asks again on the same connection.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from nearfar.index import create, records_of

DIMENSIONS = 128
PORT = 8765


async def client(path: str, items: int, until: float, seed: int, taken: list[float], failed: list[int]) -> None:
    """Ask until the time is over; `taken` collects seconds, `failed` statuses other than 200."""
    rng = np.random.default_rng(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    while time.perf_counter() < until:
        target = path.format(int(rng.integers(items)))
        began = time.perf_counter()
        writer.write(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{PORT}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        taken.append(time.perf_counter() - began)
        status = int(head.split(b" ")[1])
        if status != 200:
            failed.append(status)
    writer.close()


async def measure(path: str, items: int, clients: int, seconds: float) -> str:
    """Return one line on the answers to a path."""
    taken: list[float] = []
    failed: list[int] = []
    until = time.perf_counter() + seconds
    await asyncio.gather(*(client(path, items, until, seed, taken, failed) for seed in range(clients)))
    p50, p95, p99 = 1000 * np.quantile(taken, [0.5, 0.95, 0.99])
    rate = len(taken) / seconds
    return f"{rate:,.0f} answers/s, p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms, {len(failed)} errors"


def memory(process: int) -> float:
    """Return the resident memory of a process in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    """Make an index, serve it, and print what is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(given.items, DIMENSIONS)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/x.index"
        labels = [f"c{k % 1000}" for k in range(given.items)]
        create(file, records_of(rows, [str(k) for k in range(given.items)], labels=labels)).close()
        command = [sys.executable, "-m", "nearfar", "serve", file, "--port", str(PORT)]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as server:
            try:
                assert server.stderr is not None
                server.stderr.readline()
                time.sleep(3)
                asyncio.run(measure("/api/neighbors?name={}&k=10", given.items, 4, 2))
                before = memory(server.pid)
                print("network:", asyncio.run(measure("/health", given.items, given.clients, 5)))
                found = asyncio.run(measure("/api/neighbors?name={}&k=10", given.items, given.clients, given.seconds))
                print("neighbors:", found)
                print(f"memory: {before:.0f} MB before, {memory(server.pid):.0f} MB after")
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
