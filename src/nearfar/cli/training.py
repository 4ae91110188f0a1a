"""``nearfar train`` and ``nearfar compare``: networks, one or several."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ..io.untrusted import images_from
from ..train.launching import is_first_process
from ..trust import trusting
from .encoding import say
from .given import given, make_config, refuse_beside_final, refuse_beside_table, varied_settings
from .ladder import check_ladder_options, printers_of_ladder, time_limit
from .options import (
    ABOUT_DATA,
    COMPARISON,
    RUN,
    RUNGS,
    TRAINING,
    ItemOptions,
    Out,
    Quiet,
    SplitOptions,
    TrainingOptions,
    Trust,
    setting,
)
from .outputs import check_table
from .processes import launch

Objectives = Annotated[tuple[str, ...], Parameter(name="--objective", show_default=False, group=TRAINING)]


def train(
    data: Annotated[str | None, ABOUT_DATA] = None,
    *,
    out: Out,
    objective: Annotated[str | None, setting("objective", TRAINING)] = None,
    split: SplitOptions = SplitOptions(),
    items: ItemOptions = ItemOptions(),
    training: TrainingOptions = TrainingOptions(),
    seed: Annotated[int | None, setting("seed", TRAINING)] = None,
    minutes: Annotated[float | None, Parameter(group=TRAINING)] = None,
    resume: Annotated[bool, Parameter(group=RUN)] = False,
    final: Annotated[Path | None, Parameter(group=RUN)] = None,
    devices: Annotated[int, Parameter(group=RUN)] = 1,
    ladder: Annotated[Literal["no", "yes", "full"] | None, Parameter(group=RUNGS)] = None,
    rung: Annotated[
        Literal["auto", "frozen", "whitened", "head", "last-stage", "full"] | None, Parameter(group=RUNGS)
    ] = None,
    keep: Annotated[Literal["auto", "best", "trained"] | None, setting("keep", RUNGS)] = None,
    trust: Trust = (),
    quiet: Quiet = False,
) -> None:
    """Train an embedder, and score it on classes that it has never seen.

    Defaults: SupConLoss(), 64 dimensions, batches of 128, 20 epochs, learning rate 0.001, seed 0. For images and a
    pretrained trunk, the defaults are those of the recipe photos/finetune; for texts, of texts/finetune.

    Example: nearfar train glyphs --objective "TripletLoss(margin=0.2) + 0.02*EnergyConfusion()" --out runs/glyphs

    Parameters
    ----------
    out
        Folder of the run, for its settings, log, weights and scores.
    minutes
        Time for the whole command, such as 4: after a few timed batches, the length of the training and the size of
        images are chosen so that all of it ends in time, with its scores, after at most --epochs. Ctrl-C before that
        keeps the best checkpoint.
    resume
        Resume the run in OUT from its last checkpoint, bit for bit as if it had not been interrupted. Its settings need
        not be repeated; --skip-bad may be added.
    final
        Train on all classes, including the test classes, with the data and settings of this evaluated run, and as many
        epochs as chose its checkpoint (its number of passes over the items). The model cannot be scored.
    devices
        Number of training processes, one per accelerator.
    ladder
        Before training, print a table of scores on classes held out of the training classes: raw pixels or rows, the
        features of a pretrained trunk, a closed form on them, a linear layer on them and, for images, all weights
        trained for a few batches; full trains the last stage of the trunk instead, and all weights for every split with
        the other settings. The table is kept in the run. By default yes for images of at least six training classes
        with a pretrained trunk, unless --rung or --recipe is given.
    rung
        The rung of that table to train: auto takes the one that the table recommends; frozen and whitened train
        nothing, and whitened adds the closed form that the training classes choose; head trains a linear layer on the
        frozen trunk; last-stage trains only the last layers; full trains with the other settings. By default auto after
        --ladder full or a table printed by default, otherwise full. Where the table recommends all weights after a
        few batches, of at most 3,000 images, these are trained on all training classes.
    """
    limit = None if minutes is None else time_limit(minutes, ladder, resume=resume, devices=devices)
    if devices != 1 and "LOCAL_RANK" not in os.environ:
        launch(devices)
    chosen = given(training, split, items, data=data, objective=objective, seed=seed, keep=keep)
    from ..workflows.training import train_and_score

    check_ladder_options(ladder, rung, resume=resume, devices=devices)
    progress = not quiet and is_first_process()
    with images_from(*items.images), trusting(*trust):
        config = None
        how: dict[str, Any] = {}
        if final is not None:
            others = {
                **chosen,
                "ladder": ladder,
                "rung": rung,
                "minutes": minutes,
                "set": training.settings or None,
                "recipe": training.recipe,
                "resume": resume or None,
            }
            refuse_beside_final(others, "has the settings of a scored run")
        elif not resume:
            config = make_config(chosen, training.recipe)
            if training.recipe is not None and ladder is None:
                ladder = "no"
            how = {"ladder": ladder, "rung": rung, "minutes": limit, **printers_of_ladder(quiet=quiet)}
        elif chosen or training.recipe:
            config = make_config(chosen, training.recipe, out)
        trained = train_and_score(
            config, out, resume=resume, final=final, devices=devices, progress=progress, trust=trust, **how
        )
        if not quiet and is_first_process():
            say(trained)


def compare(
    data: Annotated[str, ABOUT_DATA],
    *,
    objectives: Objectives = (),
    out: Out,
    table: Annotated[Path | None, Parameter(group=COMPARISON)] = None,
    overwrite: Annotated[bool, Parameter(group=COMPARISON, help="Replace an existing TABLE.")] = False,
    seeds: Annotated[int | None, Parameter(group=COMPARISON)] = None,
    jobs: Annotated[int, Parameter(group=RUN)] = 1,
    split: SplitOptions = SplitOptions(),
    items: ItemOptions = ItemOptions(),
    training: TrainingOptions = TrainingOptions(),
    only: Annotated[tuple[str, ...], Parameter(name="--only", show_default=False, group=COMPARISON)] = (),
    vary: Annotated[tuple[str, ...], Parameter(name="--vary", show_default=False, group=COMPARISON)] = (),
    ladder: Annotated[Literal["no", "yes"], Parameter(group=RUNGS)] = "no",
    trust: Trust = (),
    quiet: Quiet = False,
) -> None:
    """Train several objectives with several seeds, and print one table with intervals.

    If --recipe names a table or a figure of a paper, its rows are trained and printed next to the published
    figures: nearfar compare cub:CUB_200_2011 --recipe jrd/ablation --out runs/jrd-ablation

    Example: nearfar compare glyphs --objective "TripletLoss()" --objective "NPairLoss()" --seeds 3 --out runs/compare

    Parameters
    ----------
    objectives
        An objective. Repeat for each one. The tables of papers have their own objectives.
    out
        Folder for the runs. Finished runs in it are not repeated, interrupted ones are resumed.
    table
        Also write the table to this file: .csv for programs, .tex for LaTeX (booktabs), .md for Markdown.
    seeds
        Number of random seeds (0, 1, ...) that each objective is trained with; by default 3, and 1 for the tables of
        papers.
    jobs
        Number of runs at the same time, each with one thread.
    training.recipe
        Start from the settings of a paper, or train the rows of one of its tables, such as jrd/ablation;
        `nearfar list --recipes` lists both.
    only
        Train only these rows of a table of a paper: a name, or the beginning of names. Repeat for several.
    vary
        A value of a setting to try, as name=value. Repeat for further values and settings: every objective is trained
        with every combination, and the table begins with the scores on the validation classes, for the choice.
    ladder
        First print the table of `nearfar train --ladder`, with the settings that all objectives share.
    """
    from ..train.papers.paper_tables import is_table
    from ..train.rungs.climbing import watched_ladder
    from ..workflows.comparing import compare as compare_objectives
    from ..workflows.comparing import reproduce_table

    if table is not None:
        check_table(table, overwrite=overwrite)
    chosen = given(training, split, items, data=data)
    recipe = training.recipe
    if recipe is not None and is_table(recipe):
        refuse_beside_table({"objective": objectives, "vary": vary, "ladder": ladder == "yes", "table": table})
        numbers = range(1 if seeds is None else seeds)
        protocol = chosen.pop("protocol", "honest")
        reproduced = reproduce_table(recipe, chosen, out, protocol=protocol, seeds=numbers, jobs=jobs, only=only)
        if not quiet:
            say(reproduced)
        return
    if only:
        raise ValueError("--only: works only with --recipe TABLE, such as jrd/ablation, whose rows have names")
    varied = varied_settings(vary)
    with images_from(*items.images), trusting(*trust):
        config = make_config(chosen, recipe, varied=varied.keys())
        if ladder == "yes":
            printers = printers_of_ladder(quiet=quiet)
            found = watched_ladder(config, on_line=printers["on_line"])
            printers["on_ladder"](found)
        count = 3 if seeds is None else seeds
        comparison = compare_objectives(config, objectives, count, out, jobs=jobs, vary=varied, table_file=table)
    if not quiet:
        say(comparison)
