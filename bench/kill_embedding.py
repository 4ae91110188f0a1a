"""Kill `nearfar embed` again and again, and compare the folder with one that was written without a kill.

python bench/kill_embedding.py --items 1000000 --kills 5
python bench/kill_embedding.py --items 10000000 --kills 20

The rows are those of an `.npy`, and the model is a learner. Prints the largest resident memory of any of the processes.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
import time
from math import inf
from pathlib import Path

import numpy as np

from nearfar import RCA

BLOCK = 100_000  # rows that are made at a time
PAUSE = 0.2  # most seconds between a part and the kill


def make(folder: Path, items: int, dims: int) -> None:
    """Write the rows, and a learner that was fitted on a few of them."""
    rows = np.lib.format.open_memmap(folder / "rows.npy", mode="w+", dtype=np.float32, shape=(items, dims))
    rng = np.random.default_rng(0)
    for start in range(0, items, BLOCK):
        stop = min(items, start + BLOCK)
        rows[start:stop] = rng.standard_normal((stop - start, dims), dtype=np.float32)
    few = np.array(rows[:2000])
    RCA().fit(few, np.arange(len(few)) % 20).save(folder / "model.safetensors")


def started(folder: Path, out: Path) -> subprocess.Popen[bytes]:
    """Start the command."""
    words = ["embed", folder / "model.safetensors", folder / "rows.npy", "-o", out]
    return subprocess.Popen([sys.executable, "-m", "nearfar", *map(str, words)])


def resident(process: subprocess.Popen[bytes]) -> int:
    """Return the largest resident memory that a process has had so far in MB; 0 if it has ended."""
    try:
        text = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM:")) // 1024


def watched(process: subprocess.Popen[bytes], out: Path, until: float) -> int:
    """Wait until a process has ended or that many parts are complete, and return its resident memory."""
    most = 0
    while process.poll() is None and parts_of(out) < until:
        most = max(most, resident(process))
        time.sleep(0.01)
    return most


def parts_of(out: Path) -> int:
    """Return how many parts are complete."""
    return len(list(out.glob("part-*.parquet")))


def digests_of(out: Path) -> dict[str, str]:
    """Return a digest of every file of a folder."""
    found = {}
    for path in sorted(out.iterdir()):
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def main() -> None:
    """Kill as often as asked, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--dims", type=int, default=128)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, given.items, given.dims)
        began = time.perf_counter()
        process = started(folder, folder / "whole")
        most = watched(process, folder / "whole", until=inf)
        seconds = time.perf_counter() - began
        parts = parts_of(folder / "whole")
        out = folder / "killed"
        kills = 0
        for target in sorted(chance.sample(range(1, parts), min(given.kills, parts - 1))):
            process = started(folder, out)
            most = max(most, watched(process, out, until=target))
            time.sleep(chance.uniform(0, PAUSE))
            if process.poll() is None:
                process.kill()
                kills += 1
            process.wait()
        most = max(most, watched(started(folder, out), out, until=inf))
        same = digests_of(out) == digests_of(folder / "whole")
        size = sum(path.stat().st_size for path in out.iterdir()) / 2**20
    print(
        f"{given.items:,} x {given.dims}: {parts} parts, {size:,.0f} MB, {seconds:.0f} s; {kills} kills, "
        f"{'the same' if same else 'OTHER'} bytes; resident memory at most {most:,.0f} MB"
    )
    if not same or most > 1024:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
