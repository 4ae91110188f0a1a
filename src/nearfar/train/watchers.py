"""Watchers of a run, such as the progress line on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Protocol

from ..data import Task
from ..data.checks.shared_images import remark_shared
from ..progress import listening, terminal_display
from .timing.duration import RunTimer


class Watcher(Protocol):
    """Base class of objects that follow a run.

    A record has the contents of a line of log.jsonl, a row those of metrics.csv. Override the methods that you need; by
    default they do nothing. An exception that a method raises ends the run, whose last checkpoint is kept.
    """

    def on_step(self, step: int, epoch: int, record: Mapping[str, Any] | None) -> None:
        """Called after each batch; `record` is given for those that are logged."""
        return  # type checkers take a method of a protocol without statements for abstract

    def on_epoch(self, row: Mapping[str, Any]) -> None:
        """Called after each epoch."""
        return

    def close(self) -> None:
        """Called when the run has ended."""
        return


class ProgressLine:
    """A progress line with every part of the objective, active fraction, items per second and time to go, on stderr.

    Parameters
    ----------
    steps, epochs : int
        Length of the run.
    done : int
        Steps that were done before it was resumed.
    task : Task, optional
        The data, for a note before the progress if images are in training and in the test.
    first : str
        Text that is printed first.
    timer : RunTimer, optional
        Timer that estimates after a few batches how long the run will take.
    """

    def __init__(
        self,
        steps: int,
        epochs: int,
        done: int = 0,
        task: Task | None = None,
        first: str = "",
        timer: RunTimer | None = None,
    ) -> None:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(compact=True),
        )
        self._bar = terminal_display(*columns, transient=False)  # lines on finished epochs remain
        self._alone = ExitStack()
        self._timer = timer
        self._items = "images" if task is None else f"{task.train.kind}s"
        self._task = self._bar.add_task("", total=steps, completed=done, epoch=1, epochs=epochs, text="")
        remark = "" if task is None else remark_shared(task)
        for text in filter(None, (first, remark)):
            self.say(text)
        self._alone.enter_context(listening(None))  # two displays would overwrite each other
        self._bar.start()

    def on_step(self, step: int, epoch: int, record: Mapping[str, Any] | None) -> None:
        fields: dict[str, Any] = {} if record is None else {"text": line(record, self._items)}
        self._bar.update(self._task, completed=step, epoch=epoch + 1, **fields)
        message = "" if self._timer is None else self._timer.on_step(step, epoch)
        if message:
            self.say(message)

    def on_epoch(self, row: Mapping[str, Any]) -> None:
        if self._timer is not None:
            self._timer.on_epoch()
        self.say(summary(row))

    def say(self, text: str) -> None:
        """Print a line that remains above the progress line."""
        self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        self._bar.stop()
        self._alone.close()


def line(record: Mapping[str, Any], items: str = "images") -> str:
    """Return the text of the progress line; `items` is the kind of the items.

    >>> line({"parts": {"TripletLoss": 0.21}, "active": {"TripletLoss": 0.5}, "images_per_second": 812.3})
    'TripletLoss 0.21 (50% active)  812 images/s'
    """
    active = record.get("active", {})
    parts = [
        f"{name} {value:.4g}" + (f" ({active[name]:.0%} active)" if name in active else "")
        for name, value in record["parts"].items()
    ]
    return "  ".join([*parts, f"{record['images_per_second']:.0f} {items}/s"])


def summary(row: Mapping[str, Any]) -> str:
    """Return the line that remains on the terminal after an epoch.

    >>> summary({"epoch": 2, "loss": 0.25, "unseen_recall_at_1": 0.5, "seen_recall_at_1": 0.75})
    'epoch 2: loss 0.25, Recall@1 unseen 50.0% seen 75.0%'
    >>> summary({"epoch": 1, "loss": 0.5, "learned_NTXentLoss_temperature": 0.065})
    'epoch 1: loss 0.5, NTXentLoss temperature 0.065'
    """
    texts = [f"loss {row['loss']:.4g}"]
    learned = {name.removeprefix("learned_"): value for name, value in row.items() if name.startswith("learned_")}
    texts += [f"{name.replace('_', ' ')} {value:.4g}" for name, value in learned.items()]
    for name, title in (("recall_at_1", "Recall@1"), ("map_at_r", "MAP@R")):
        found = [f"{which} {row[f'{which}_{name}']:.1%}" for which in ("unseen", "seen") if f"{which}_{name}" in row]
        texts += [f"{title} {' '.join(found)}"] if found else []
    return f"epoch {row['epoch']}: {', '.join(texts)}"
