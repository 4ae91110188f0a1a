"""Train: from a config to the folder of a run."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ..data.open import reading_once
from ..deep import distributed
from ..deep.precision import matmul_precision
from .config import TrainConfig, TrainError
from .interrupts import Interrupts
from .run import Run, RunFolder, open_run
from .rungs.untrained import save_untrained
from .settle import Plan, resumed_settings, settle
from .setup import build_loop, checked
from .timing.time_limit import TimeLimit, TimePlan, TooFewMinutes
from .timing.time_plan import plan_training
from .trainer import Trainer
from .training_lock import training_lock
from .watchers import Watcher


def train(
    config: TrainConfig | None,
    out: str | Path,
    *,
    resume: bool = False,
    progress: bool = True,
    watchers: Sequence[Watcher] = (),
    trust: str | Collection[str] = (),
    minutes: float | TimeLimit | None = None,
) -> Run:
    """Train a network on labeled items, and return the run.

    Parameters
    ----------
    config : TrainConfig or None
        Settings of the run. None resumes a run with its own settings.
    out : str or Path
        Folder of the run. It must be new or empty, or hold an existing run if `resume` is True.
    resume : bool
        Continue from the last checkpoint. On the CPU, the result is bit for bit that of an uninterrupted run. Settings
        must be those of the run, except for more `epochs` (unless the schedule is "cosine") and another `patience`.
    progress : bool
        Print progress.
    watchers : sequence of Watcher
        Objects that are notified of steps and epochs.
    trust : str or collection of str
        Modules of your own that the settings of the run may name if they are read from its folder; their code is run.
    minutes : float, optional
        Time for the training and for `evaluate_run` after it, from this call. After a few timed batches, it sets the
        number of batches, for which `epochs` or `steps` are an upper limit if they are given, and the image size. If
        the machine becomes slower later, the training ends early, with the best checkpoint. If not even ten batches
        fit, and no objective is named, the run keeps the features of a pretrained trunk, or the inputs themselves, with
        a closed form.

    Returns
    -------
    Run
        The run, with its folder and its best epoch. `evaluate_run` scores it on the test classes.

    Raises
    ------
    TrainError
        If a setting is not valid, the loss is not finite (the last good checkpoint is kept), the disk is full, the
        folder is not empty or another process trains in it, or the run to resume does not match. The message is one
        line.
    KeyboardInterrupt
        After Ctrl-C, once a checkpoint has been written. Callers exit with status 130.
    """
    config = None if config is None else checked(config)
    limit = None if minutes is None else TimeLimit.of(minutes)
    folder = open_run(out) if resume else RunFolder(out)
    if resume:
        if limit is not None:
            raise TrainError("minutes: a resumed run continues to its planned end; leave minutes out")
        with training_lock(folder.path):
            begun = TrainConfig.from_json(folder.config, trust)
            config = begun if config is None else resumed_settings(config, begun)
            return _train_in(folder, config, resume=True, progress=progress, watchers=watchers)
    config = config or TrainConfig.from_json(folder.config, trust)
    if limit is None:
        return _train_in_new_folder(folder, config, progress=progress, watchers=watchers)
    folder.check_free()  # before the timed batches
    with reading_once():
        try:
            timing = plan_training(config, limit)
        except TooFewMinutes as error:
            if error.untrained is None:
                raise
            if progress:
                print(f"{error}. So nothing is trained.", file=sys.stderr)
            why = f"; nothing was trained, because {limit} are too few for it."
            return save_untrained(error.untrained, out, why=why, progress=progress)
        plan = settle(timing.config)
    return _train_in_new_folder(folder, plan, timing=timing, progress=progress, watchers=watchers)


def train_plan(plan: Plan, out: str | Path, *, progress: bool = True, watchers: Sequence[Watcher] = ()) -> Run:
    """Train what was planned, in a new or empty folder, as `train` does."""
    return _train_in_new_folder(RunFolder(out), plan, progress=progress, watchers=watchers)


def _train_in_new_folder(folder: RunFolder, what: TrainConfig | Plan, **how: Any) -> Run:
    """Train in a new or empty folder, which is as before if there is no checkpoint at the end."""
    folder.create()
    try:
        with training_lock(folder.path):
            folder.check_free()  # another process may have trained there since
            return _train_in_empty_folder(folder, what, **how)
    except BaseException:
        if distributed.rank() == 0:
            folder.remove_if_empty()
        raise


def _train_in_empty_folder(folder: RunFolder, what: TrainConfig | Plan, **how: Any) -> Run:
    """Train in an empty folder, which is empty again if there is no checkpoint at the end."""
    try:
        return _train_in(folder, what, resume=False, **how)
    except BaseException:
        if distributed.rank() == 0:
            folder.discard()
        raise


def _train_in(
    folder: RunFolder,
    what: TrainConfig | Plan,
    *,
    resume: bool,
    progress: bool,
    watchers: Sequence[Watcher],
    timing: TimePlan | None = None,
) -> Run:
    """Train what a config or a plan describes, in the folder of its run."""
    plan = what if isinstance(what, Plan) else settle(what, folder.start)
    loop = build_loop(plan, resumed=resume and folder.last.exists())
    with Interrupts() as interrupts, matmul_precision(plan.asked.matmul_precision):
        trainer = Trainer(loop, folder, interrupts, resume=resume, progress=progress, watchers=watchers, timing=timing)
        with folder.mention_kept_checkpoint():
            return trainer.run()
