"""``nearfar train --ladder``: the table of steps before the training, and which of them the run goes on with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..progress import stage

if TYPE_CHECKING:
    from ..train import Ladder, Run, TrainConfig

ASKED_SPLITS = 5  # of the classes, where the table is asked for
FEW_SPLITS = 3  # where it begins a training unasked, within about a minute


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
    """Print the table where it is asked for, and make the run of the chosen step, with the table in its folder.

    Where neither is asked for, photographs with a pretrained trunk have the table, and go on with what it says.
    """
    from ..train import train
    from ..train.run import RunFolder
    from ..train.rungs import STEPS, begins_with_table, config_for, save_frozen, write_ladder

    if step is not None:
        refuse_second_tower(config, "--step")
    RunFolder(out).check_free()  # before the work of minutes
    found = None
    splits = ASKED_SPLITS
    if ladder is None and step is None and begins_with_table(config):
        ladder = "yes"
        step = "auto"
        splits = FEW_SPLITS
    if ladder in ("yes", "full"):
        found = table(config, full=ladder == "full", splits=splits)
        if not quiet:
            print(f"{found}\n", flush=True)
    if step is None:
        step = "auto" if ladder == "full" else "full"
    if step == "auto" and found is not None:
        step = "full" if found.worth == "pixels" else found.worth
        if not quiet:
            others = "--step goes on with another one, --ladder no leaves the table out"
            print(f"Going on with: {STEPS[step]} ({others}).\n", flush=True)
    settings = config_for(step, config)
    if step in ("frozen", "whitened"):
        run = save_frozen(settings, out)
    else:
        run = train(settings, out, progress=not quiet)
    if found is not None:
        write_ladder(found, run.folder)
    return run


def refuse_second_tower(config: TrainConfig, option: str) -> None:
    """Refuse an option of the table, whose steps are of one network of images, beside one of texts."""
    if config.text_trunk is not None:
        raise ValueError(f"{option}: is for one network of images, and must not be given with --text-trunk")


def table(config: TrainConfig, *, full: bool, splits: int = ASKED_SPLITS) -> Ladder:
    """Return the table of steps; progress counts those that have begun."""
    from ..train import ladder

    refuse_second_tower(config, "--ladder")
    with stage("weighing steps", 6 if full else 5) as done:
        return ladder(config, full=full, splits=splits, told=lambda title: done(1))
