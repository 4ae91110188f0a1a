"""``nearfar train --ladder``: the table of steps before the training, and which of them the run goes on with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..progress import stage

if TYPE_CHECKING:
    from ..train import Ladder, Run, TrainConfig


def check_step_options(ladder: str | None, step: str | None, *, resume: bool, devices: int) -> None:
    """Refuse options of the table that do not go together.

    Raises
    ------
    ValueError
        One line that names the option.
    """
    asked = "--ladder" if ladder in ("yes", "full") else "--step" if step is not None else ""
    if asked and resume:
        raise ValueError(f"{asked}: is for the start of a run, not for --resume")
    if asked and devices != 1:
        raise ValueError(f"{asked}: runs on one device, got --devices {devices}")
    if step == "auto" and ladder not in ("yes", "full"):
        raise ValueError("--step auto: takes what the table says is worth it; give --ladder yes or full with it")


def train_by_steps(config: TrainConfig, out: Path, *, ladder: str | None, step: str | None, quiet: bool) -> Run:
    """Print the table where it is asked for, and make the run of the chosen step, with the table in its folder."""
    from ..train import train
    from ..train.run import RunFolder
    from ..train.rungs import config_for, save_frozen, write_ladder

    RunFolder(out).check_free()  # before the work of minutes
    found = None
    if ladder in ("yes", "full"):
        found = table(config, full=ladder == "full")
        if not quiet:
            print(f"{found}\n", flush=True)
    if step is None:
        step = "auto" if ladder == "full" else "full"
    if step == "auto" and found is not None:
        step = found.worth
    settings = config_for(step, config)
    if step in ("frozen", "whitened"):
        run = save_frozen(settings, out)
    else:
        run = train(settings, out, progress=not quiet)
    if found is not None:
        write_ladder(found, run.folder)
    return run


def table(config: TrainConfig, *, full: bool) -> Ladder:
    """Return the table of steps; progress names the step that is under way."""
    from ..train import ladder

    with stage("weighing steps", 5 if full else 4) as done:
        return ladder(config, full=full, told=lambda title: done(1))
