"""Trackers of runs by their names, which accelerate starts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from ..extras import hint, require
from ..quoting import shorten
from .config import TrainConfig
from .watchers import Watcher

PROJECT = "nearfar"
OFFLINE = {"wandb": "WANDB_MODE=offline keeps the run on this machine", "mlflow": "check MLFLOW_TRACKING_URI"}


class Trackers(Watcher):
    """Sends settings, losses and validation scores to trackers, in the project `nearfar`.

    No tracker ends a run: one that is not installed, does not start, or fails later is left with a warning.

    Parameters
    ----------
    accelerator : Accelerator
        That of the run. Its trackers are started.
    config : TrainConfig
        Settings of the run; `track` names the trackers.
    folder : Path
        Folder of the run, whose name is that of the run in the trackers. Those that write files into a folder of
        their own write into it.
    """

    def __init__(self, accelerator: Accelerator, config: TrainConfig, folder: Path) -> None:
        names = [tracker for tracker in config.track if tracker != "csv"]  # metrics.csv is always written
        settings = {key: _plain(value) for key, value in config.to_dict().items()}
        self._started: dict[str, Any] = {}
        for tracker in names:
            try:
                require(tracker)
                self._started[tracker] = _start(tracker, accelerator, settings, folder)
            except ImportError as error:
                _warn(f"{hint(error)}; the run continues without it")
            except Exception as error:  # of any kind: of a network, of an account, of a package that is too old
                advice = f"; {OFFLINE[tracker]}" if tracker in OFFLINE else ""
                _warn(f"{tracker} did not start ({_reason(error)}), so the run continues without it{advice}")

    def on_step(self, step: int, epoch: int, record: Mapping[str, Any] | None) -> None:
        if record is not None:
            self._log({f"parts/{name}": value for name, value in record["parts"].items()}, step)

    def on_epoch(self, row: Mapping[str, Any]) -> None:
        self._log(
            {f"epochs/{name}": value for name, value in row.items() if name not in ("epoch", "step")}, row["step"]
        )

    def close(self) -> None:
        for name, tracker in self._started.items():
            try:
                tracker.finish()
            except Exception as error:
                _warn(f"{name} did not end its run ({_reason(error)})")
        self._started = {}

    def _log(self, values: dict[str, Any], step: int) -> None:
        for name, tracker in list(self._started.items()):
            try:
                tracker.log(values, step=step)
            except Exception as error:
                del self._started[name]
                _warn(f"{name} failed in step {step} ({_reason(error)}), so the run continues without it")


def _start(name: str, accelerator: Accelerator, settings: dict[str, Any], folder: Path) -> Any:
    """Start a tracker, and return it as accelerate wraps it."""
    from accelerate.tracking import filter_trackers

    run = folder.resolve().name
    own: dict[str, dict[str, Any]] = {
        "wandb": {"name": run, "dir": str(folder)},
        "mlflow": {"run_name": run},
        "trackio": {"name": run},
    }
    accelerator.log_with = filter_trackers([name], str(folder))
    accelerator.project_configuration.set_directories(str(folder))
    # the folder of TensorBoard's events has the name of the project, and events of settings clutter it
    project = name if name == "tensorboard" else PROJECT
    config = None if name == "tensorboard" else settings
    try:
        accelerator.init_trackers(project, config, {name: own.get(name, {})})
        (tracker,) = accelerator.trackers
    finally:
        accelerator.trackers = []  # accelerate would start these again with the next one
    return tracker


def _warn(text: str) -> None:
    warnings.warn(f"track: {text}", stacklevel=3)


def _reason(error: Exception) -> str:
    """Return the first line of an error."""
    return shorten(str(error).strip().partition("\n")[0]) or type(error).__name__


def _plain(value: Any) -> Any:
    """Return a setting as trackers take it: a number or a text."""
    return value if isinstance(value, bool | int | float | str) else str(value)
