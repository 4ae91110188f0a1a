"""Compare the rungs of the ladder, and train the one that is worth its time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from ...data.open import reading_once
from ...progress import stage
from ...quoting import count_of
from ..checkpoint import read_about
from ..config import TrainConfig, TrainError
from ..run import Run, RunFolder
from ..settle import Plan, settle
from ..timing.duration import duration
from ..timing.time_limit import TimeLimit
from ..timing.time_plan import plan_untrained
from ..training import train, train_plan
from .by_default import default_ladder
from .ladder import TRAINED_SPLITS
from .ladder import ladder as compare_rungs
from .rung_settings import config_for, on_all_classes
from .table import UNTRAINED, Ladder, write_ladder, write_ladder_choice
from .untrained import save_untrained

RungName = Literal["auto", "frozen", "whitened", "head", "last-stage", "full"]

LADDER_SHARE = 0.25  # of the time that is left, for the ladder
FEW_SHARE = 0.6  # the same of few photos, for which a few batches follow
BAR_UNITS = 1000  # of the bar of the ladder
ALL_WEIGHTS = "all weights trained"


def ignore(news: object) -> None:
    """Do nothing with what becomes known."""


def climb(
    config: TrainConfig,
    out: str | Path,
    *,
    ladder: Literal["no", "yes", "full"] | None = None,
    rung: RungName | None = None,
    minutes: float | TimeLimit | None = None,
    progress: bool = True,
    on_note: Callable[[str], None] = ignore,
    on_line: Callable[[str], None] = ignore,
    on_ladder: Callable[[Ladder], None] = ignore,
    on_choice: Callable[[str], None] = ignore,
) -> Run:
    """Compare the rungs from raw inputs to a trained network, and train one of them.

    The ladder is kept in the folder of the run, for its report.

    Parameters
    ----------
    config : TrainConfig
        Settings of the full training.
    out : str or Path
        Folder of the run; it must be new or empty.
    ladder : {"no", "yes", "full"}, optional
        Whether to compare the rungs before the training; "full" also trains all weights for every split. By default,
        they are compared for images with a pretrained trunk, unless `rung` is given, or `minutes` for a thousand photos
        or more: a training with a time limit, or of texts, compares what is cheaper at its end, and has the time for
        itself.
    rung : {"auto", "frozen", "whitened", "head", "last-stage", "full"}, optional
        Rung to train. "auto" takes the one that the ladder recommends, and is the default if the rungs are compared by
        default or with "full"; otherwise the default is "full". Where the ladder recommends all weights, and there are
        at most 3,000 photos, they are trained on all training classes, also those that it held out, for the
        epochs of the config, and for 64 batches at least. Settings of the length or of the validation that are given
        are followed instead. The ladder is then the choice that the run keeps. If there is no time left for these
        batches, the run keeps a closed form.
    minutes : float, optional
        Time for all, as for `train`.
    progress : bool
        Show the progress of the training.
    on_note : callable, optional
        Function that is called with a sentence on why the rungs are not compared, if only the data prevent it.
    on_line : callable, optional
        Function that is called with a line when a rung begins: how much is done, and how long the rest takes.
    on_ladder : callable, optional
        Function that is called with the ladder when it is there.
    on_choice : callable, optional
        Function that is called with the title of the rung that "auto" trains, if it trains one.

    Returns
    -------
    Run

    Raises
    ------
    TrainError
        If the folder is not empty, images are searched by texts, or the training fails.

    Examples
    --------
    >>> config = TrainConfig.of(data="photos/", trunk="timm:resnet18", pretrained=True)
    >>> run = climb(config, "runs/photos", on_ladder=print)  # doctest: +SKIP
    """
    limit = None if minutes is None else TimeLimit.of(minutes)
    if rung is not None:
        _refuse_second_tower(config, "rung")
    RunFolder(Path(out)).check_free()  # before the ladder, which takes minutes
    plan: Plan | None = None
    with reading_once():
        found, name = _compared(
            config,
            ladder,
            rung,
            limit,
            on_note=on_note,
            on_line=on_line,
            on_ladder=on_ladder,
            on_choice=on_choice,
        )
        settings = config_for(name, config)
        is_chosen = found is not None and name == found.worth
        short = is_chosen and name == "full" and ladder != "full"
        if short:
            settings = on_all_classes(settings, timed=limit is not None)
        if name in UNTRAINED:
            if limit is not None:
                settings = plan_untrained(settings, limit)
            run = _untrained(name, settings, out, progress=progress and found is None)
        elif found is not None and limit is None:
            plan = settle(settings)
    if plan is not None:
        run = train_plan(plan, out, progress=progress)
    elif name not in UNTRAINED:
        run = train(settings, out, progress=progress, minutes=limit)
    if found is not None:
        write_ladder(found, run.folder)
    if found is not None and is_chosen:
        _write_choice(found, run, short=short)
    return run


def _write_choice(found: Ladder, run: Run, *, short: bool) -> None:
    """Write the choice of the ladder into a run that keeps it without another comparison.

    That is a rung that trains nothing, or all weights of photos, which were tried in a `short` training.
    """
    folder = RunFolder(run.folder)
    if found.worth in UNTRAINED:
        about = read_about(folder.best)
        then = "--rung full trains all weights."
        write_ladder_choice(found, folder, about["kept"], about["kept_title"], then)
    elif short and not folder.choice.exists():
        length = f"for {count_of(run.step, 'batch')}"
        then = f"Then it was trained {length} on all training classes, also those that the ladder held out."
        write_ladder_choice(found, folder, "trained", "the network, all weights trained", then)


def _compared(
    config: TrainConfig,
    ladder: str | None,
    rung: str | None,
    limit: TimeLimit | None,
    *,
    on_note: Callable[[str], None],
    on_line: Callable[[str], None],
    on_ladder: Callable[[Ladder], None],
    on_choice: Callable[[str], None],
) -> tuple[Ladder | None, str]:
    """Compare the rungs if that is wanted; return the ladder, and the name of the rung to train."""
    splits = TRAINED_SPLITS
    share = LADDER_SHARE
    if ladder is None and rung is None:
        by_default = default_ladder(config)
        if by_default.note and limit is None:
            on_note(by_default.note)
        if by_default.runs and (limit is None or by_default.few):
            ladder = "yes"
            rung = "auto"
            splits = by_default.splits
            share = FEW_SHARE
    found = None
    if ladder in ("yes", "full"):
        seconds = None if limit is None else share * limit.seconds_left
        found = watched_ladder(config, full=ladder == "full", splits=splits, seconds=seconds, on_line=on_line)
        on_ladder(found)
    if rung is None:
        rung = "auto" if ladder == "full" else "full"
    if rung != "auto" or found is None:
        return found, rung
    name = "full" if found.worth == "raw" else found.worth
    if name not in UNTRAINED:
        titles = {row.name: row.title for row in found.rows} | {"full": ALL_WEIGHTS}  # which the ladder trained shorter
        on_choice(titles[name])
    return found, name


def _untrained(name: str, config: TrainConfig, out: str | Path, *, progress: bool) -> Run:
    """Save a rung that trains nothing."""
    how = {"kind": "frozen", "form": "none"} if name == "frozen" else {}
    return save_untrained(config, out, progress=progress, **how)


def watched_ladder(
    config: TrainConfig,
    *,
    full: bool = False,
    splits: int = TRAINED_SPLITS,
    seconds: float | None = None,
    on_line: Callable[[str], None] = ignore,
) -> Ladder:
    """Compare the rungs as `ladder` does, with a bar for the work that is done, and a line when a rung begins.

    There are fewer items and splits if it would take more than the given number of seconds.
    """
    _refuse_second_tower(config, "ladder")
    with stage("comparing rungs", BAR_UNITS) as done:
        watched = RungProgress(done, on_line)
        return compare_rungs(
            config,
            full=full,
            splits=splits,
            seconds=seconds,
            on_rung=watched.on_rung,
            on_progress=watched.on_progress,
        )


def _refuse_second_tower(config: TrainConfig, option: str) -> None:
    """Refuse a ladder with a text trunk: its rungs are those of a single network."""
    if config.text_trunk is not None:
        raise TrainError(f"{option}: works only for a single network, so text_trunk must not be given with it")


class RungProgress:
    """Shows how much of the work of the ladder is done: on a bar, and in lines when a rung begins.

    Parameters
    ----------
    advance : callable
        Function that is called with the units of the bar that were done.
    on_line : callable
        Function that is called with each line.
    """

    def __init__(self, advance: Callable[[int], None], on_line: Callable[[str], None]) -> None:
        self.advance = advance
        self.on_line = on_line
        self.done = 0
        self.left: float | None = None

    def on_rung(self, title: str) -> None:
        """Say which rung begins, how much is done, and how long the rest takes once this was measured."""
        left = ""
        if self.left is not None:
            left = f", {self.done / BAR_UNITS:.0%} done, about {duration(self.left)} left"
        self.on_line(f"comparing rungs: {title}{left}")

    def on_progress(self, share: float, left: float) -> None:
        done = round(BAR_UNITS * share)
        self.advance(done - self.done)
        self.done = done
        self.left = left
