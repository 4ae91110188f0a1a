"""The folder of a run: its files, each of which is written completely or not at all.

config.json       every setting, resolved            command.txt      how it was started
environment.json  where, versions, device            log.jsonl        one line per `log_every` batches
metrics.csv       one line per epoch                 best.safetensors  last.safetensors  weights
state-STEP.RANK.safetensors   what a resumed run needs  scores.json  test.npz   written by `evaluate_run`
adapter/          low-rank adapters alone, as peft loads them, where these were trained
ladder.json       what the rungs up to this training are worth, where that was asked for
choice.json       what else could be kept, and its scores   trained.safetensors  weights, where something else is kept
training-items.safetensors    marks of what was learned from    .lock    only while a process trains here
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..data.checks import training_items
from ..io.atomic_files import remove_leftovers
from ..io.cells import write_rows
from ..io.remote import refuse_writing
from ..io.untrusted import parse_json, read_json
from ..settings import no_option
from .checkpoint import read_about, replace_file, save_tensors, save_tree
from .config import TrainConfig, TrainError

if TYPE_CHECKING:
    from ..data import Task
    from ..deep.networks.embedder import Embedder


@dataclass(frozen=True)
class Run:
    """A finished or interrupted run.

    Attributes
    ----------
    folder : Path
        Folder of its files.
    config : TrainConfig
        Its settings, resolved.
    epoch : int
        Number of finished epochs.
    step : int
        Number of finished batches.
    best_epoch : int
        Epoch of `best.safetensors`, counted from 1.
    best : float or None
        Score of that epoch on the validation classes; None without validation classes.
    task : Task or None
        The data of the training; None in all processes but the first.
    embedder : Embedder or None
        The network with the weights of that epoch, in evaluation mode; None in all processes but the first.
    """

    folder: Path
    config: TrainConfig = field(repr=False)
    epoch: int
    step: int
    best_epoch: int
    best: float | None
    task: Task | None = field(default=None, repr=False, compare=False)
    embedder: Embedder | None = field(default=None, repr=False, compare=False)


CHECKPOINTS = ("best", "last", "trained")
UNTRAINED = ("raw", "frozen")
"""How the names of models begin that are kept and were not trained."""
COMMAND = "command.txt"
ENVIRONMENT = "environment.json"
LOCK = ".lock"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_SETTINGS = "adapter_config.json"
"""Names of the files of adapters in peft."""


class RunFolder:
    """Reads and writes the files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.log = self.path / "log.jsonl"
        self.metrics = self.path / "metrics.csv"
        self.last = self.path / "last.safetensors"
        self.best = self.path / "best.safetensors"
        self.trained = self.path / "trained.safetensors"
        self.choice = self.path / "choice.json"
        self.training_items = self.path / training_items.FILE
        self.adapters = self.path / "adapter"
        self._missing = missing_folders(self.path)

    @property
    def start(self) -> Path | None:
        """The folder in which the run was started, to which its relative paths refer; None if it is unknown."""
        return start_of(self.path)

    def create(self) -> None:
        """Create the folder.

        Raises
        ------
        TrainError
            If the path already exists and is not an empty folder.
        """
        self.check_free()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TrainError(f"{self.path}: cannot be created ({error.strerror})") from error

    def check_free(self) -> None:
        """Raise a TrainError if the path exists and is not an empty folder, a ValueError if it is an address."""
        refuse_writing(self.path, "out")
        if self.config.exists():
            raise TrainError(f"{self.path}: contains a run already; resume it (resume=True), or choose another folder")
        if not self.path.exists():
            return
        if not self.path.is_dir() or any(entry.name != LOCK for entry in self.path.iterdir()):
            raise TrainError(f"{self.path}: exists and is not empty; choose another folder")

    def discard(self) -> None:
        """Remove the files of a run without a checkpoint; the folder itself stays for `remove_if_empty`."""
        if self.last.exists():
            return
        written = [self.config, self.log, self.metrics, self.best, self.trained, self.choice]
        written += [self.training_items, self.path / COMMAND, self.path / ENVIRONMENT]
        written += [self.adapters / ADAPTER_WEIGHTS, self.adapters / ADAPTER_SETTINGS]
        for path in (*written, *self.path.glob("state-*.safetensors")):
            path.unlink(missing_ok=True)
        remove_empty([self.adapters])

    def reopen(self) -> None:
        """Make the trained network the best checkpoint again; what is kept is chosen again at the end of the run."""
        if self.trained.exists():
            self.trained.replace(self.best)
        self.choice.unlink(missing_ok=True)

    def write_kept(self, name: str, title: str, sentence: str, candidates: Sequence[Mapping[str, Any]] = ()) -> None:
        """Write which model is kept where the run has held out nothing for the choice.

        The `candidates`, with their scores, are those of a ladder before the run.
        """
        compared = candidates or [{"name": name, "title": title}]
        kept = {"candidates": compared, "best": name, "kept": name, "classes": 0}
        write_json(self.choice, {**kept, "sentence": sentence})

    @property
    def kept_sentence(self) -> str:
        """Which model is kept, and by how much it was better than others; "" if there was nothing to choose."""
        try:
            return str(read_json(self.choice)["sentence"])
        except (OSError, ValueError, LookupError, TypeError):  # scores do not need it
            return ""

    def write_adapters(self, tensors: Mapping[str, Tensor], settings: str) -> None:
        """Write low-rank adapters and their settings, which name the adapted layers."""
        self.adapters.mkdir(exist_ok=True)
        save_tensors(self.adapters / ADAPTER_WEIGHTS, tensors, {})
        replace_file(self.adapters / ADAPTER_SETTINGS, settings.encode())

    def remove_if_empty(self) -> None:
        """Remove the folder, and the parents created for it, if they are empty."""
        remove_empty([self.path, *self._missing])

    def describe(self, config: TrainConfig, device: str, weights: str = "") -> None:
        """Write the command, the environment and, last, the settings: a folder with settings is complete.

        `weights` describes the origin of the trunk's weights.
        """
        program = "nearfar" if Path(sys.argv[0]).parts[-2:] == ("nearfar", "__main__.py") else sys.argv[0]
        command = shlex.join([program, *sys.argv[1:]]) + "\n"
        replace_file(self.path / COMMAND, command.encode(errors="surrogateescape"))
        replace_file(self.path / ENVIRONMENT, _json({**environment(device), "weights": weights}))
        self.write_config(config)

    def write_config(self, config: TrainConfig) -> None:
        """Write the settings."""
        replace_file(self.config, config.to_json().encode())

    def checkpoint(self, which: str) -> Path:
        """Return the file of the "best", the "last" or the best "trained" checkpoint.

        Raises
        ------
        TrainError
            If `which` is none of them, or there is no trained network.
        """
        if which not in CHECKPOINTS:
            raise TrainError(no_option(CHECKPOINTS, "which", which))
        if which == "last":
            return self.last
        if which == "best":
            return self.best
        if self.trained.exists():
            return self.trained
        about = read_about(self.best)
        if str(about.get("kept", "")).startswith(UNTRAINED):
            raise TrainError(f"{self.path}: keeps {about['kept_title']}, and has no trained network beside it")
        return self.best

    def state_path(self, step: int, rank: int) -> Path:
        """Return the file with what a process needs, besides the weights, to continue from a step."""
        return self.path / f"state-{step}.{rank}.safetensors"

    def save_state(self, step: int, rank: int, state: Any) -> None:
        """Write the state of a process, which is valid as soon as `commit` names its step."""
        save_tree(self.state_path(step, rank), state)

    def commit(self, tensors: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        """Make the states of `about["step"]` the valid checkpoint, and remove older ones."""
        save_tensors(self.last, tensors, about)
        current = set(self.path.glob(f"state-{about['step']}.*"))
        for path in set(self.path.glob("state-*.safetensors")) - current:
            path.unlink(missing_ok=True)
        remove_leftovers(self.path)  # the name of a state is never used again

    @contextmanager
    def mention_kept_checkpoint(self) -> Iterator[None]:
        """Add to an error of the training which checkpoint remains."""
        try:
            yield
        except TrainError as error:
            kept = "no checkpoint yet"
            if self.last.exists():
                kept = f"the checkpoint of step {read_about(self.last)['step']} is kept"
            raise TrainError(f"{error}; {kept}") from error

    def append_log(self, record: Mapping[str, Any]) -> None:
        """Append a line to the log; numbers that are not finite become null."""
        try:
            with self.log.open("a") as file:
                file.write(json.dumps(json_values(record), allow_nan=False) + "\n")
        except OSError as error:
            raise TrainError(f"{self.log}: cannot be written ({error.strerror})") from error

    def read_log(self, until: int | None = None) -> list[dict[str, Any]]:
        """Read the log, up to step `until` if it is given; an incomplete last line is left out."""
        if not self.log.exists():
            return []
        records = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                record = parse_json(line)
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("step"), int):
                records.append(record)
        return [record for record in records if until is None or record["step"] <= until]

    def cut_log(self, until: int) -> None:
        """Remove the log entries after the checkpoint of step `until`."""
        lines = [json.dumps(json_values(record)) for record in self.read_log(until)]
        replace_file(self.log, "".join(line + "\n" for line in lines).encode())

    def write_metrics(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the table of epochs; missing values are empty cells."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        write_rows(text, [names, *([row.get(name) for name in names] for row in rows)], lineterminator="\n")
        replace_file(self.metrics, text.getvalue().encode())

    def read_metrics(self) -> list[dict[str, float | None]]:
        """Read the table of epochs; empty cells become None."""
        if not self.metrics.exists():
            return []
        try:
            with self.metrics.open(newline="") as file:
                rows = list(csv.DictReader(file))
            return [{name: float(cell) if cell else None for name, cell in row.items()} for row in rows]
        except (ValueError, TypeError, csv.Error) as error:
            raise TrainError(f"{self.metrics}: not a table of numbers ({error})") from error


def missing_folders(path: Path) -> list[Path]:
    """Return which of a folder and its parents do not exist, inner ones first."""
    return [folder for folder in (path, *path.parents) if not folder.exists()]


def remove_empty(folders: Sequence[Path]) -> None:
    """Remove those of the given folders that are empty, inner ones first."""
    for folder in folders:
        with suppress(OSError):  # it is not empty, or another process was faster
            folder.rmdir()


def open_run(path: str | Path) -> RunFolder:
    """Open the folder of an existing run.

    Parameters
    ----------
    path : str or Path
        Folder of the run.

    Returns
    -------
    RunFolder

    Raises
    ------
    TrainError
        If the folder is not that of a run.
    """
    folder = RunFolder(path)
    if not folder.config.is_file():
        if folder.path.is_dir():
            what = "is not the folder of a run (no config.json)"
        else:
            what = "no such run"
        raise TrainError(f"{folder.path}: {what}")
    return folder


def start_of(run: Path) -> Path | None:
    """Read the folder in which a run was started from environment.json."""
    try:
        start = read_json(run / ENVIRONMENT)["folder"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Path(start) if isinstance(start, str) else None


def environment(device: str) -> dict[str, Any]:
    """Return the versions and the machine of a run."""
    from importlib.metadata import PackageNotFoundError, version

    import torch

    versions = {}
    for package in (
        "nearfar",
        "torch",
        "numpy",
        "accelerate",
        "safetensors",
        "scikit-learn",
        "pillow",
        "faiss-cpu",
        "timm",
        "transformers",
    ):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "folder": os.getcwd(),
        "python": platform.python_version(),
        "versions": versions,
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device,
        "device_name": torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.processor(),
    }


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, completely or not at all; numbers that are not finite become null."""
    replace_file(path, _json(content))


def _json(content: Any) -> bytes:
    return (json.dumps(json_values(content), indent=2, allow_nan=False) + "\n").encode()


def json_values(content: Any) -> Any:
    """Return plain data in which numbers that JSON cannot represent are None."""
    if isinstance(content, Mapping):
        return {key: json_values(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [json_values(value) for value in content]
    if isinstance(content, float) and not isfinite(content):
        return None
    return content
