"""Kill a process that adds to an index and removes from it, again and again, and check whether anything is lost.

python bench/kill_writers.py items.lance --kills 50
python bench/kill_writers.py items.index --kills 50
python bench/kill_writers.py 'postgresql:///test#items' --kills 50
python bench/kill_writers.py items.index --kills 50 --first 20000 --dims 256

What the process has reported before it was killed must be there, or be gone, afterwards; of the one change that was
under way either is right.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import numpy as np

import nearfar.index
from nearfar.index import create, records_of
from nearfar.io.uris import is_address

ITEMS = 3  # of each change
EACH = 9_999  # changes of one process at most, of which every third is followed by a removal
MAX_PAUSE = 0.4  # seconds until the kill, after the first report


SLOW_IMPORTS = {".lance": ("lance_namespace", "pyarrow.dataset")}  # by the end of a name


def import_beforehand(name: str) -> None:
    """Import once what every process would import again: all but the engines, whose threads do not survive a fork."""
    for module in SLOW_IMPORTS.get(Path(name).suffix, ()):
        importlib.import_module(module)


def group(number: int) -> list[str]:
    """Return the names that one change adds or removes."""
    return [f"w{number}.{j}" for j in range(ITEMS)]


def write(uri: str, start: int, report: int, dims: int) -> None:
    """Add and remove until killed, and report what is done."""
    with nearfar.index.open(uri, "w") as store:
        for number in range(start, start + EACH):
            rows = np.random.default_rng(number).normal(size=(ITEMS, dims))
            store.add(records_of(rows, group(number)))
            os.write(report, f"+{number}\n".encode())
            if number % 3 == 2:
                store.remove(group(number - 1))
                os.write(report, f"-{number - 1}\n".encode())


def killed(uri: str, start: int, pause: float, dims: int) -> list[str]:
    """Let a process write, kill it, and return what it has reported."""
    reading, report = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write(uri, start, report, dims)
        finally:
            os._exit(1)
    os.close(report)
    reported = os.read(reading, 65536)
    time.sleep(pause)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while part := os.read(reading, 65536):
        reported += part
    os.close(reading)
    return reported.decode().splitlines()


def there(uri: str, dims: int, file: Path) -> set[str]:
    """Read all names in a new process, which writes them to a file: an engine may not survive a fork."""
    if os.fork() == 0:
        try:
            with nearfar.index.open(uri, "w") as store:
                store.search(np.ones((1, dims)), 5)
                file.write_text("\n".join(store.column("name").tolist()))
                os._exit(0)
        finally:
            os._exit(1)
    _, status = os.wait()
    assert status == 0, "the index cannot be opened any more"
    return set(file.read_text().splitlines())


def main() -> None:
    """Kill as often as asked, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--first", type=int, default=1, help="number of items before the first change")
    parser.add_argument("--dims", type=int, default=8)
    given = parser.parse_args()
    chance = random.Random(0)
    import_beforehand(given.name)
    with tempfile.TemporaryDirectory() as folder:
        uri = given.name if is_address(given.name) else f"{folder}/{given.name}"
        first = [f"first{k}" for k in range(given.first)]
        if os.fork() == 0:
            create(uri, records_of(np.ones((given.first, given.dims)), first)).close()
            os._exit(0)
        os.wait()
        expected = set(first)
        changes = 0
        lost = 0
        for kill in range(given.kills):
            reported = killed(uri, EACH * kill, chance.uniform(0, MAX_PAUSE), given.dims)
            changes += len(reported)
            for line in reported:
                names = set(group(int(line[1:])))
                expected = expected | names if line[0] == "+" else expected - names
            last = int(reported[-1][1:]) if reported else EACH * kill
            open_question = {name for number in (last - 1, last, last + 1, last + 2) for name in group(number)}
            found = there(uri, given.dims, Path(folder) / "names")
            wrong = (found ^ expected) - open_question
            wrong |= {name for name in group(last + 1) if (name in found) != (group(last + 1)[0] in found)}
            lost += len(wrong)
            expected = found
        print(f"{given.name}: {given.kills} kills, {changes} changes reported, {lost} items lost or half-written")
        if lost:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
