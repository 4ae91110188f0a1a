"""``nearfar train --ladder``: print the table of rungs before training, and choose the rung to train."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..progress import stage
from .bars import writes_lines
from .encoding import say

if TYPE_CHECKING:
    from ..train import Ladder, Run, TrainConfig
    from ..train.time_limit import TimeLimit

ASKED_SPLITS = 5  # splits of the classes, for the rungs that train, if the table is requested
TABLE_SHARE = 0.25  # of the time that is left, for the table
BAR_UNITS = 1000  # of the bar of the table
FEW_SPLITS = 3  # the same if the table is printed by default, which takes about a minute


def check_ladder_options(ladder: str | None, rung: str | None, *, resume: bool, devices: int) -> None:
    """Refuse options of the table that do not work together.

    Raises
    ------
    ValueError
        One line that names the option.
    """
    option = ""
    if ladder in ("yes", "full"):
        option = "--ladder"
    elif rung is not None:
        option = "--rung"
    if option and resume:
        raise ValueError(f"{option}: works only at the start of a run, not with --resume")
    if option and devices != 1:
        raise ValueError(f"{option}: runs on one device, got --devices {devices}")
    if rung == "auto" and ladder not in ("yes", "full"):
        raise ValueError("--rung auto: takes the rung that the table recommends; also give --ladder yes or full")


def time_limit(minutes: float, ladder: str | None, *, resume: bool, devices: int) -> TimeLimit:
    """Return the limit that --minutes sets, from now on.

    Raises
    ------
    ValueError
        If the number is not valid, or --minutes does not work with another option.
    """
    from ..train.time_limit import TimeLimit

    if resume:
        raise ValueError("--minutes: works only at the start of a run; with --resume, it continues to its planned end")
    if devices != 1:
        raise ValueError(f"--minutes: works on one device, got --devices {devices}")
    if ladder == "full":
        raise ValueError("--minutes: does not work with --ladder full, which takes as long as five trainings")
    return TimeLimit(minutes)


def train_by_ladder(
    config: TrainConfig,
    out: Path,
    *,
    ladder: str | None,
    rung: str | None,
    quiet: bool,
    limit: TimeLimit | None = None,
) -> Run:
    """Print the table if it is requested, and train the chosen rung, with the table in the folder of the run.

    If neither option is given, images and texts with a pretrained trunk get the table and the rung that it recommends.
    With a `limit`, there is no table unless it is requested: the training compares what is cheaper at its end, and the
    time is spent on it.
    """
    from ..train import train
    from ..train.run import RunFolder
    from ..train.rungs import config_for, write_ladder
    from ..train.untrained import save_untrained

    if rung is not None:
        refuse_second_tower(config, "--rung")
    RunFolder(out).check_free()  # before the table, which takes minutes
    found = None
    splits = ASKED_SPLITS
    seconds = None if limit is None else TABLE_SHARE * limit.seconds_left
    if ladder is None and rung is None and limit is None and _has_table_by_default(config, quiet=quiet):
        ladder = "yes"
        rung = "auto"
        splits = FEW_SPLITS
    if ladder in ("yes", "full"):
        found = table(config, full=ladder == "full", splits=splits, quiet=quiet, seconds=seconds)
        if not quiet:
            say(f"{found}\n", flush=True)
    if rung is None:
        rung = "auto" if ladder == "full" else "full"
    if rung == "auto" and found is not None:
        rung = "full" if found.worth == "raw" else found.worth
        if not quiet:
            title = next((row.title for row in found.rows if row.name == rung), "all weights trained")
            others = "--rung chooses another rung, --ladder no skips the table"
            say(f"Continuing with: {title} ({others}).\n", flush=True)
    settings = config_for(rung, config)
    if rung in ("frozen", "whitened"):
        # the table has begun with the origin of the weights
        how = {"kind": "frozen", "form": "none"} if rung == "frozen" else {}
        run = save_untrained(settings, out, **how, progress=found is None and not quiet)
    else:
        run = train(settings, out, progress=not quiet, minutes=limit)
    if found is not None:
        write_ladder(found, run.folder)
    return run


def _has_table_by_default(config: TrainConfig, *, quiet: bool) -> bool:
    """Return whether the table is printed without being requested; print why not if only the data prevent it."""
    from ..train.rungs import default_ladder

    by_default = default_ladder(config)
    if by_default.note and not quiet:
        say(by_default.note, file=sys.stderr, flush=True)
    return by_default.runs


def refuse_second_tower(config: TrainConfig, option: str) -> None:
    """Refuse an option of the table with --text-trunk: its rungs are those of a single network."""
    if config.text_trunk is not None:
        raise ValueError(f"{option}: works only for a single network, not with --text-trunk")


def table(
    config: TrainConfig,
    *,
    full: bool,
    splits: int = ASKED_SPLITS,
    quiet: bool = False,
    seconds: float | None = None,
) -> Ladder:
    """Return the table of rungs. Its progress is a bar on a terminal, and lines in a file unless `quiet`.

    It has fewer items and splits if it would take more than the given number of seconds.
    """
    from ..train import ladder

    refuse_second_tower(config, "--ladder")
    with stage("comparing rungs", BAR_UNITS) as done:
        shown = TableProgress(done, lines=not quiet and writes_lines())
        how: dict[str, Any] = {"on_rung": shown.on_rung, "on_progress": shown.on_progress}
        return ladder(config, full=full, splits=splits, seconds=seconds, **how)


class TableProgress:
    """Shows how much of the work of the table is done: on a bar, and in lines when a rung begins.

    Parameters
    ----------
    advance : callable
        Function that is called with the units of the bar that were done.
    lines : bool
        Whether to print lines on stderr.
    """

    def __init__(self, advance: Callable[[int], None], *, lines: bool) -> None:
        self.advance = advance
        self.lines = lines
        self.done = 0
        self.left: float | None = None

    def on_rung(self, title: str) -> None:
        """Print which rung begins, how much is done, and how long the rest takes once this was measured."""
        if not self.lines:
            return
        from ..train.duration import duration

        left = ""
        if self.left is not None:
            left = f", {self.done / BAR_UNITS:.0%} done, about {duration(self.left)} left"
        say(f"comparing rungs: {title}{left}", file=sys.stderr, flush=True)

    def on_progress(self, share: float, left: float) -> None:
        done = round(BAR_UNITS * share)
        self.advance(done - self.done)
        self.done = done
        self.left = left
