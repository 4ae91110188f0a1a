"""Embedding into a folder by several processes of this machine, each of which writes a shard."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..children import end_with, isolate_children
from ..extras import is_installed
from ..io.part_files import holds_parts, missing_note, parts_in, read_manifest, written
from ..progress import stage
from ..quoting import shorten
from ..trust import trusted_modules, trusting
from .embedding_in_parts import PartsWritten, embed_in_parts

MOST_PROCESSES = 1024
GLANCE = 0.2  # seconds between two looks at what the processes have written
LONGEST_MESSAGE = 2_000
COMMAND = f"from {__name__} import run_shard; run_shard()"


def embed_by_processes(
    source: str | os.PathLike[str], data: str, folder: Path, devices: int, **how: Any
) -> PartsWritten:
    """Embed data into a folder by as many processes as there are `devices`; other arguments as for `embed_in_parts`.

    Each process has a GPU of its own, if there are any, and writes every `devices`-th part. They end with this process.

    Raises
    ------
    ValueError
        If there are fewer GPUs, or a process fails; the message is that of the first one. What is complete stays.
    """
    if not 1 <= devices <= MOST_PROCESSES:
        raise ValueError(f"devices: expected 1 to {MOST_PROCESSES:,}, got {devices}")
    if how.get("overwrite"):
        raise ValueError(f"overwrite: not with devices={devices}, of which each would remove what others write")
    places = places_of(devices)
    found = written(folder, read_manifest(folder)) if holds_parts(folder) else []
    given = {"source": os.fspath(source), "data": data, "folder": str(folder), **how}
    with TemporaryDirectory() as messages:
        files = [Path(messages, str(number)) for number in range(devices)]
        processes: list[subprocess.Popen[bytes]] = []
        try:
            with isolate_children():
                for number, (file, place) in enumerate(zip(files, places, strict=True), start=1):
                    processes.append(_started({**given, "shard": f"{number}/{devices}"}, file, place))
            _wait(folder, processes)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()
        texts = [file.read_text("utf-8", errors="replace").strip() for file in files]
    failed = [number for number, process in enumerate(processes) if process.returncode != 0]
    if failed:
        raise ValueError(_why(folder, failed, [process.returncode for process in processes], texts))
    lines = [line for text in texts for line in text.splitlines()]
    for line in dict.fromkeys(lines):  # warnings, which are the same in each process
        warnings.warn(line, stacklevel=2)
    manifest = read_manifest(folder)
    missing = sorted(set(range(manifest.parts)) - set(written(folder, manifest)))
    return PartsWritten(folder, manifest, [*range(manifest.parts)], found, missing, None)


def places_of(devices: int) -> list[Mapping[str, str]]:
    """Return the environment of each process: its GPU if there are any, or else its share of the processor."""
    gpus = _gpus()
    if not gpus:
        threads = max(1, (os.cpu_count() or 1) // devices)
        return [{"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}] * devices
    if devices > len(gpus):
        raise ValueError(f"devices: expected at most {len(gpus)}, the number of GPUs, got {devices}")
    return [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus[:devices]]


def _gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if not is_installed("torch"):
        return []
    from torch.cuda import device_count

    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible[: device_count()] or [str(number) for number in range(device_count())]


def _started(given: Mapping[str, Any], file: Path, place: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process; what it has to say goes into a file."""
    paths = [path for path in sys.path if path] + ([os.getcwd()] if "" in sys.path else [])
    environment = {**os.environ, **place, "PYTHONPATH": os.pathsep.join(paths)}
    words = [sys.executable, "-c", COMMAND]
    with open(file, "wb") as log:
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=log, stdout=subprocess.DEVNULL, env=environment)
    assert process.stdin is not None
    content = {"parent": os.getpid(), "trust": trusted_modules(), "given": given}
    with process.stdin as pipe:
        pipe.write(json.dumps(content).encode())
    return process


def run_shard() -> None:
    """Embed a shard, as the process that started this one writes to its standard input."""
    content = json.loads(sys.stdin.buffer.read())
    end_with(content["parent"], patience=5.0)
    warnings.formatwarning = lambda message, *_: f"{' '.join(str(message).split())}\n"
    try:
        with trusting(*content["trust"]):
            embed_in_parts(**content["given"])
    except (ValueError, OSError, ImportError, MemoryError) as error:
        print(" ".join(str(error).split()) or type(error).__name__, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _wait(folder: Path, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for the end of all processes, and report what they have written as progress."""
    while not holds_parts(folder) and any(process.poll() is None for process in processes):
        time.sleep(GLANCE)
    if not holds_parts(folder):
        return
    manifest = read_manifest(folder)
    there: set[int] = set()
    with stage("embedding", manifest.count) as done:
        while True:
            running = any(process.poll() is None for process in processes)
            new = {number for number in parts_in(folder) if number < manifest.parts} - there
            for number in new:
                start, stop = manifest.bounds(number)
                done(stop - start)
            there |= new
            if not running:
                return
            time.sleep(GLANCE)


def _why(folder: Path, failed: Sequence[int], codes: Sequence[int], texts: Sequence[str]) -> str:
    """Return why a process failed, and what is missing."""
    first = next((number for number in failed if codes[number] > 0), failed[0])
    code = codes[first]
    last = (texts[first].splitlines() or [""])[-1]
    if code < 0:
        memory = ", perhaps because memory ran out" if code == -signal.SIGKILL else ""
        why = f"process {first + 1} of {len(codes)} was ended by {signal.Signals(-code).name}{memory}"
    else:
        why = shorten(last, LONGEST_MESSAGE) or f"process {first + 1} of {len(codes)} ended with exit code {code}"
    if not holds_parts(folder):
        return why
    manifest = read_manifest(folder)
    missing = sorted(set(range(manifest.parts)) - set(written(folder, manifest)))
    return f"{why}; {missing_note(missing, manifest.parts)}, and the same command continues" if missing else why
