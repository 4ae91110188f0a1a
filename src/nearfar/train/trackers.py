"""Trackers of runs by their names, which accelerate starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from ..extras import hint, require
from ..quoting import shorten
from .config import TrainConfig, TrainError
from .watchers import Watcher

PROJECT = "nearfar"
OFFLINE = {"wandb": "WANDB_MODE=offline keeps the run on this machine", "mlflow": "check MLFLOW_TRACKING_URI"}


class Trackers(Watcher):
    """Sends settings, losses and validation scores to trackers, in the project `nearfar`.

    Parameters
    ----------
    accelerator : Accelerator
        That of the run. Its trackers are started.
    config : TrainConfig
        Settings of the run; `track` names the trackers.
    folder : Path
        Folder of the run, whose name is that of the run in the trackers. Those that write files into a folder of
        their own write into it.

    Raises
    ------
    TrainError
        If a tracker is not installed or does not start.
    """

    def __init__(self, accelerator: Accelerator, config: TrainConfig, folder: Path) -> None:
        from accelerate.tracking import filter_trackers

        name = folder.resolve().name
        names = [tracker for tracker in config.track if tracker != "csv"]  # metrics.csv is always written
        self._accelerator = accelerator
        settings = {key: _plain(value) for key, value in config.to_dict().items()}
        own: dict[str, dict[str, Any]] = {
            "wandb": {"name": name, "dir": str(folder)},
            "mlflow": {"run_name": name},
            "trackio": {"name": name},
        }
        for tracker in names:
            try:
                require(tracker)
                accelerator.log_with = filter_trackers([tracker], str(folder))
                accelerator.project_configuration.set_directories(str(folder))
                # the folder of TensorBoard's events has the name of the project, and events of settings clutter it
                project = tracker if tracker == "tensorboard" else PROJECT
                config_of = None if tracker == "tensorboard" else settings
                started = accelerator.trackers
                accelerator.init_trackers(project, config_of, {tracker: own.get(tracker, {})})
                accelerator.trackers = [*started, *accelerator.trackers]
            except ImportError as error:
                raise TrainError(f"track: {hint(error)}") from error
            except Exception as error:  # of any kind: of a network, of an account, of a package that is too old
                reason = shorten(str(error).strip().partition("\n")[0])
                advice = f"; {OFFLINE[tracker]}" if tracker in OFFLINE else ""
                raise TrainError(f"track: {tracker} did not start ({reason}){advice}") from error

    def on_step(self, step: int, epoch: int, record: Mapping[str, Any] | None) -> None:
        if record is not None:
            self._accelerator.log({f"parts/{name}": value for name, value in record["parts"].items()}, step=step)

    def on_epoch(self, row: Mapping[str, Any]) -> None:
        values = {f"epochs/{name}": value for name, value in row.items() if name not in ("epoch", "step")}
        self._accelerator.log(values, step=row["step"])

    def close(self) -> None:
        for tracker in self._accelerator.trackers:  # end_training would also leave the other processes
            tracker.finish()
        self._accelerator.trackers = []


def _plain(value: Any) -> Any:
    """Return a setting as trackers take it: a number or a text."""
    return value if isinstance(value, bool | int | float | str) else str(value)
