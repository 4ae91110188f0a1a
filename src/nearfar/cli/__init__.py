"""The command line.

``nearfar data | inspect | train | fit | evaluate | embed | index | search | duplicates | suspects | adapt | report |
card | compare | export | list | doctor``.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Literal, NoReturn

from cyclopts import App, CycloptsError, Group, Parameter

from .. import __version__
from ..children import end_with, isolate_children
from ..extras import NEEDS, hint, require
from ..io.untrusted import DEEPEST, images_from
from ..progress import listening
from ..quoting import PATH, shorten
from ..trust import trusting
from . import (
    adapting,
    describing,
    diagnosing,
    evaluating,
    exporting,
    fetching,
    fitting,
    indexing,
    inspecting,
    listing,
    reporting,
    searching,
    serving,
    suspecting,
)
from .bars import progress_bars
from .encoding import WRITABLE, printable, say
from .misspelled import parser_message, suggest_near_path
from .options import (
    COMPARISON,
    HOW_TO_CONTINUE,
    LAUNCHER,
    RUN,
    STEPS,
    TRAINING,
    Augmentation,
    BatchSize,
    EmbeddingDim,
    Epochs,
    HowScored,
    HowSplit,
    Images,
    ImageSize,
    Label,
    LearningRate,
    Name,
    Objective,
    Out,
    Overwrite,
    Partial,
    Pretrained,
    Quiet,
    Recipe,
    Sampler,
    Seed,
    Settings,
    SkipBad,
    Standardize,
    TestClasses,
    TestData,
    TextTrunk,
    Trunk,
    Trust,
    check_table,
    given_settings,
    importing_own_modules,
    is_first_process,
    launch,
    leave_message,
    make_config,
    memory_advice,
    print_message,
    refuse_beside_final,
    skip_bad_advice,
    true_or_text,
    varied_settings,
    with_setting,
)
from .own_code import cause_in_own_code, message_on_own_code
from .signals import Stopping, exit_code
from .steps import time_limit

MAX_MESSAGE_LENGTH = 1500
"""Maximum number of characters of a message. Our errors shorten what they quote; those of libraries are cut here."""

LEAST_COLUMNS = 40
"""Minimum number of characters of a line of help and tables."""

MAX_PARSER_MESSAGE_LENGTH = 500
"""Maximum number of characters of a message of the command-line parser, which quotes its whole input."""

app = App(
    name="nearfar",
    default_parameter=Parameter(negative=()),  # no --no-quiet
    version=__version__,
    help=(
        "Metric learning: learn a distance from labeled images, rows or embeddings, score it, and search with it.\n\n"
        "nearfar COMMAND --help shows the options of a command, and an example."
    ),
    help_format="markdown",
    suppress_keyboard_interrupt=False,  # `main` handles it, and says how to continue
)

Objectives = Annotated[tuple[str, ...], Parameter(name="--objective", show_default=False, group=TRAINING)]

CHECK = Group("Data", sort_key=0)
TRAIN = Group("Train", sort_key=1)
EVALUATE = Group("Evaluate", sort_key=2)
SEARCH = Group("Embed and search", sort_key=3)
SHARE = Group("Share", sort_key=4)
INFORM = Group("Help", sort_key=5)

app.command(fetching.data, group=CHECK)
app.command(inspecting.inspect, group=CHECK)
app.command(fitting.fit, group=TRAIN)
app.command(evaluating.evaluate, group=EVALUATE)
app.command(reporting.report, group=EVALUATE)
app.command(suspecting.suspects, group=EVALUATE)
app.command(indexing.index, group=SEARCH)
app.command(searching.search, group=SEARCH)
app.command(searching.duplicates, group=SEARCH)
app.command(serving.serve, group=SEARCH)
app.command(adapting.adapt, group=SEARCH)
app.command(describing.card, group=SHARE)
app.command(exporting.export, group=SHARE)
app.command(listing.list_methods, name="list", group=INFORM)
app.command(diagnosing.doctor, group=INFORM)
for flag in ("--help", "--version"):
    app[flag].group = INFORM


def main() -> None:
    """Run the command line. Bad input prints one line and exits with 2; Ctrl-C exits with 130, SIGTERM with 143."""
    if LAUNCHER in os.environ:
        end_with(int(os.environ.pop(LAUNCHER)))
    widen_narrow_output()
    usual = warnings.formatwarning
    warnings.formatwarning = one_line
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors=WRITABLE)  # names of files may not be UTF-8, and nor may the terminal
    try:
        with isolate_children(), Stopping(), listening(progress_bars(sys.argv[1:])):
            check_words(sys.argv[1:])
            if not {"--help", "-h"} & set(sys.argv[1:]):
                require(*NEEDS.get(next(iter(sys.argv[1:]), ""), ()))
            with importing_own_modules(sys.argv[1:]):
                app(sys.argv[1:], exit_on_error=False, print_error=False)
    except KeyboardInterrupt as stopped:
        _stop("stopped" + HOW_TO_CONTINUE.get(next(iter(sys.argv[1:]), ""), ""), exit_code(stopped))
    except CycloptsError as error:
        command = next(iter(sys.argv[1:]), "")
        message = shorten(parser_message(error, sys.argv[1:]), MAX_PARSER_MESSAGE_LENGTH)
        _stop(with_setting(message, command), 2)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        known = message_of(error, next(iter(sys.argv[1:]), ""))
        if known is not None and not os.environ.get("NEARFAR_DEBUG"):
            _stop(suggest_near_path(known, sys.argv[2:]), 2)
        if leave_message(traceback.format_exc()):
            sys.exit(1)
        raise
    finally:
        warnings.formatwarning = usual


def widen_narrow_output() -> None:
    """Write lines of at least 40 characters, because the printer of tables does not end in no columns."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) < LEAST_COLUMNS:
        os.environ["COLUMNS"] = str(LEAST_COLUMNS)


def check_words(words: Sequence[str]) -> None:
    """Refuse words with so many brackets that the command-line parser, which reads them as JSON, would crash."""
    for word in words:
        if max(word.count("["), word.count("{")) > DEEPEST:
            raise ValueError(f"{shorten(word)}: expected at most {DEEPEST} opening brackets in a word")


def message_of(error: Exception, command: str) -> str | None:
    """Return one line on an error of the user; None for a bug in nearfar, whose traceback should be printed."""
    message = memory_advice(error, command) or message_on_own_code(error)
    if message is None and isinstance(error, (ValueError, OSError, ImportError)):
        if isinstance(error, ModuleNotFoundError):
            message = hint(error, command)
        else:
            message = text_of(error)
        message += cause_in_own_code(error) + skip_bad_advice(error, command)
    if message is None:
        return None
    return " ".join(message.split()) or type(error).__name__


def text_of(error: Exception) -> str:
    """Return the text of an error, with the names of files shortened if the error is one of the system."""
    # a subclass that writes its own text, such as that of a library, keeps it
    if isinstance(error, OSError) and type(error).__str__ is OSError.__str__ and isinstance(error.filename, str):
        return f"{shorten(error.filename, PATH)}: {error.strerror}"
    return str(error)


def one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Format a warning without the position in the code, which does not help users of the command line."""
    return f"nearfar: warning: {printable(' '.join(str(message).split()))}\n"


def _stop(message: str, code: int) -> NoReturn:
    print_message(shorten(message, MAX_MESSAGE_LENGTH))
    sys.exit(code)


@app.command(group=TRAIN)
def train(
    data: str | None = None,
    *,
    out: Out,
    objective: Objective = None,
    recipe: Recipe = None,
    protocol: HowScored = None,
    test: TestData = None,
    test_classes: TestClasses = (),
    split: HowSplit = None,
    label: Label = None,
    name: Name = None,
    trunk: Trunk = None,
    text_trunk: TextTrunk = None,
    pretrained: Pretrained = None,
    embedding_dim: EmbeddingDim = None,
    sampler: Sampler = None,
    batch_size: BatchSize = None,
    minutes: Annotated[float | None, Parameter(group=TRAINING)] = None,
    epochs: Epochs = None,
    lr: LearningRate = None,
    augment: Augmentation = None,
    image_size: ImageSize = None,
    standardize: Standardize = False,
    seed: Seed = None,
    settings: Settings = (),
    images: Images = (),
    skip_bad: SkipBad = False,
    partial: Partial = False,
    resume: Annotated[bool, Parameter(group=RUN)] = False,
    final: Annotated[Path | None, Parameter(group=RUN)] = None,
    devices: Annotated[int, Parameter(group=RUN)] = 1,
    ladder: Annotated[Literal["no", "yes", "full"] | None, Parameter(group=STEPS)] = None,
    step: Annotated[
        Literal["auto", "frozen", "whitened", "head", "last-stage", "full"] | None, Parameter(group=STEPS)
    ] = None,
    keep: Annotated[Literal["auto", "best", "trained"] | None, Parameter(group=STEPS)] = None,
    trust: Trust = (),
    quiet: Quiet = False,
) -> None:
    """Train an embedder, and score it on classes that it has never seen.

    Defaults: SupConLoss(), 64 dimensions, batches of 128, 20 epochs, learning rate 0.001, seed 0. For images and a
    pretrained trunk, the defaults are those of the recipe photos/finetune; for texts, of texts/finetune.

    Example: nearfar train glyphs --objective "TripletLoss(margin=0.2) + 0.02*EnergyConfusion()" --out runs/glyphs

    Parameters
    ----------
    data
        A folder, .zip or .tar of class folders, a .csv, .tsv, .jsonl or .parquet table, an .npz, an Omniglot .zip,
        "digits", "glyphs", or cub:PATH, cars:PATH, sop:PATH, inshop:PATH.
    out
        Folder of the run, for its settings, log, weights and scores.
    objective
        Losses and regularizers by name, in a weighted sum; package.module:Name for a class that you wrote.
    recipe
        Start from the settings of a paper; `nearfar list --recipes` lists them.
    protocol
        honest: choose the checkpoint on classes held out of the training classes; paper: train on all of them and keep
        the last checkpoint. With a recipe of a founding paper, paper also follows it in everything else.
    test
        Test on this data set instead of on half of the classes of DATA.
    test_classes
        Test on these classes only: a name, or the beginning of names. Repeat for several.
    split
        classes: test on classes that are not seen in training; rows: test on half of the items of every class, for data
        whose classes are fixed.
    label
        Column of a table that holds the classes. By default `label`; in a table of numbers also `class`, `target`
        or `y`.
    name
        Column of a table that holds the names of its rows. By default `name`, or a column such as id, sku, item_id or
        uid, if its cells are different.
    trunk
        conv4, mlp, identity, bn_inception, googlenet, resnet50, spd, timm:NAME, transformers:NAME or
        package.module:factory.
    text_trunk
        A second network for the texts of images, transformers:FOLDER of a text model with its tokenizer: DATA is then a
        table of pairs, with the columns path and text, and photos are found by words.
    pretrained
        Pretrained weights of the trunk: true for those of timm or transformers, from the local cache or the hub; or a
        .safetensors, .pth or .caffemodel file.
    embedding_dim
        Number of dimensions of the embedding.
    sampler
        auto, random, m_per_class:M, class_ratio:R, a name such as SmartMiningSampler(), or package.module:Name.
    batch_size
        Items per batch, summed over all devices.
    minutes
        Time for the whole command, such as 4: after a few timed batches, the length of the training and the size of
        images are chosen so that all of it ends in time, with its scores. Ctrl-C before that keeps the best checkpoint.
    epochs
        Number of passes over the training data; with --minutes, at most.
    lr
        Learning rate.
    augment
        Random augmentation of training images, such as "affine(degrees=15), erasing".
    image_size
        Side in pixels of the square images that the network gets. For images of several sizes, the default is 84 for
        conv4 and 224 for larger trunks.
    standardize
        Standardize each column to mean 0 and standard deviation 1; the scaling is saved with the model.
    seed
        Random seed for weights, batches, augmentation and the split.
    settings
        Any other setting as name=value, such as --set schedule=cosine --set lr_proxies=0.01. Repeat for several.
    images
        Also read images from this folder, if the paths in a table, or links, lead out of the folder of DATA. Repeat for
        several.
    skip_bad
        Skip images that cannot be decoded; their number is reported. Also allowed with --resume.
    partial
        For a trial, accept an incomplete official archive (cub:, cars:, sop:, inshop:); its counts are not checked.
    resume
        Resume the run in OUT from its last checkpoint, bit for bit as if it had not been interrupted. Its settings need
        not be repeated.
    final
        Train on all classes, including the test classes, with the data and settings of this evaluated run, and as many
        epochs as chose its checkpoint (its number of passes over the items). The model cannot be scored.
    devices
        Number of training processes, one per accelerator.
    ladder
        Before training, print a table of scores on classes held out of the training classes: raw pixels or rows, the
        features of a pretrained trunk, a closed form on them, a linear layer on them and, for images, the last stage of
        the trunk; full also trains all weights for every split. The table is kept in the run. By default yes for images
        or texts of at least six training classes with a pretrained trunk, unless --step or --recipe is given.
    step
        The step of that table to train: auto takes the one that the table recommends; frozen and whitened train
        nothing, and whitened adds the closed form that the training classes choose; head trains a linear layer on the
        frozen trunk; last-stage trains only the last layers; full trains with the other settings. By default auto after
        --ladder full or a table printed by default, otherwise full.
    keep
        What the run keeps at its end: best keeps something cheaper, such as the frozen features with a closed form, if
        the network is not clearly better on held-out classes; trained keeps the network. By default best, and
        trained if --objective or --recipe names one.
    trust
        Allow the settings of a resumed run to import your module, such as mylosses; its code is executed.
        Modules named on the command line need no permission. Repeat for several modules.
    quiet
        Print errors only.
    """
    limit = None if minutes is None else time_limit(minutes, ladder, resume=resume, devices=devices)
    if devices != 1 and "LOCAL_RANK" not in os.environ:
        launch(devices)
    chosen = {
        "data": data,
        "objective": objective,
        "test": test,
        "test_classes": test_classes or None,
        "split": split,
        "label": label,
        "name": name,
        "trunk": trunk,
        "text_trunk": text_trunk,
        "pretrained": true_or_text(pretrained),
        "embedding_dim": embedding_dim,
        "sampler": sampler,
        "batch_size": batch_size,
        "epochs": epochs,
        "lr": lr,
        "augment": augment,
        "image_size": image_size,
        "standardize": standardize or None,
        "seed": seed,
        "skip_bad": skip_bad or None,
        "partial": partial or None,
        "keep": keep,
    }
    from ..train import train as run_training
    from ..train.final import final_summary, train_final
    from .scoring import score_run
    from .steps import check_step_options, train_by_steps

    check_step_options(ladder, step, resume=resume, devices=devices)
    with images_from(*images), trusting(*trust):
        if final is not None:
            others = {
                **chosen,
                "ladder": ladder,
                "step": step,
                "minutes": minutes,
                "set": settings or None,
                "recipe": recipe,
                "protocol": protocol,
                "resume": resume or None,
            }
            refuse_beside_final(others, "has the settings of a scored run")
            run = train_final(final, out, progress=not quiet and is_first_process(), trust=trust)
        else:
            config = make_config(chosen, settings, recipe, out if resume else None, protocol=protocol)
            asks_for_steps = ladder in ("yes", "full") or step is not None
            may_need_steps = ladder is None and not (resume or recipe or devices > 1)
            if asks_for_steps or may_need_steps:
                run = train_by_steps(config, out, ladder=ladder, step=step, quiet=quiet, limit=limit)
            else:
                progress = not quiet and is_first_process()
                run = run_training(config, out, resume=resume, progress=progress, minutes=limit)
        if is_first_process() and run.config.final is not None:
            if not quiet:
                say(final_summary(run))
        elif is_first_process():
            table = score_run(run)  # uses the data and the network that are in memory
            if not quiet:
                say(table.text)


@app.command(group=SEARCH)
def embed(
    run: Path,
    data: str,
    *,
    out: Out,
    texts: Annotated[bool, Parameter(negative=(), group=RUN)] = False,
    dims: Annotated[int | None, Parameter(group=RUN)] = None,
    label: Label = None,
    name: Name = None,
    images: Images = (),
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    trust: Trust = (),
) -> None:
    """Embed data with the network of a run, or with a saved learner.

    Example: nearfar embed runs/glyphs photos/ -o photos.npz

    Parameters
    ----------
    run
        The folder of a run, or a learner saved as .safetensors.
    data
        A folder, .zip or .tar of class folders, a .csv, .tsv, .jsonl or .parquet table, an .npz, an Omniglot .zip,
        "digits", "glyphs", or cub:PATH, cars:PATH, sop:PATH, inshop:PATH;
        or single images.
    out
        The .npz to write: embeddings (n, d), labels (n,), classes, names, and the distance for comparing them.
    texts
        Embed the texts of a table with the columns path and text. By default, its photos are embedded. Both files have
        the same rows in the same order. A table with a column text and no column path does not need this option.
    dims
        Keep only this many leading dimensions, such as one of the lengths of Matryoshka.
    label
        Column of a table that holds the classes. By default `label`; in a table of numbers also `class`, `target`
        or `y`.
    name
        Column of a table that holds the names of its rows. By default `name`, or a column such as id, sku, item_id or
        uid, if its cells are different.
    images
        Also read images from this folder, if the paths in a table, or links, lead out of the folder of DATA. Repeat for
        several.
    skip_bad
        Skip images that cannot be decoded; their number is reported.
    overwrite
        Replace an existing OUT.
    trust
        Allow a run to import your module, such as mynets; its code is executed. Repeat for several modules.
    """
    from .embedding import embed_to

    with images_from(*images), trusting(*trust):
        say(embed_to(run, data, out, skip_bad, label, dims, name=name, texts=texts, overwrite=overwrite))


@app.command(group=TRAIN)
def compare(
    data: str,
    *,
    objectives: Objectives = (),
    out: Annotated[Path, Parameter(group=RUN)],
    table: Annotated[Path | None, Parameter(name=["--table", "-o"], group=COMPARISON)] = None,
    seeds: Annotated[int | None, Parameter(group=COMPARISON)] = None,
    jobs: Annotated[int, Parameter(group=RUN)] = 1,
    recipe: Recipe = None,
    protocol: HowScored = None,
    only: Annotated[tuple[str, ...], Parameter(name="--only", show_default=False, group=COMPARISON)] = (),
    vary: Annotated[tuple[str, ...], Parameter(name="--vary", show_default=False, group=COMPARISON)] = (),
    test: TestData = None,
    test_classes: TestClasses = (),
    split: HowSplit = None,
    label: Label = None,
    name: Name = None,
    trunk: Trunk = None,
    text_trunk: TextTrunk = None,
    pretrained: Pretrained = None,
    embedding_dim: EmbeddingDim = None,
    sampler: Sampler = None,
    batch_size: BatchSize = None,
    epochs: Epochs = None,
    lr: LearningRate = None,
    augment: Augmentation = None,
    image_size: ImageSize = None,
    standardize: Standardize = False,
    settings: Settings = (),
    images: Images = (),
    skip_bad: SkipBad = False,
    partial: Partial = False,
    ladder: Annotated[Literal["no", "yes"], Parameter(group=STEPS)] = "no",
    trust: Trust = (),
    quiet: Quiet = False,
) -> None:
    """Train several objectives with several seeds, and print one table with intervals.

    If --recipe names a table or a figure of a paper, its rows are trained and printed next to the published
    figures: nearfar compare cub:CUB_200_2011 --recipe jrd/ablation --out runs/jrd-ablation

    Example: nearfar compare glyphs --objective "TripletLoss()" --objective "NPairLoss()" --seeds 3 --out runs/compare

    Parameters
    ----------
    data
        A folder, .zip or .tar of class folders, a .csv, .tsv, .jsonl or .parquet table, an .npz, an Omniglot .zip,
        "digits", "glyphs", or cub:PATH, cars:PATH, sop:PATH, inshop:PATH.
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
    recipe
        Start from the settings of a paper, or train the rows of one of its tables, such as jrd/ablation;
        `nearfar list --recipes` lists both.
    protocol
        honest: choose the checkpoint on classes held out of the training classes; paper: train on all of them.
    only
        Train only these rows of a table of a paper: a name, or the beginning of names. Repeat for several.
    test
        Test on this data set instead of on half of the classes of DATA.
    test_classes
        Test on these classes only: a name, or the beginning of names. Repeat for several.
    split
        classes: test on classes that are not seen in training; rows: test on half of the items of every class, for data
        whose classes are fixed.
    label
        Column of a table that holds the classes. By default `label`; in a table of numbers also `class`, `target`
        or `y`.
    name
        Column of a table that holds the names of its rows. By default `name`, or a column such as id, sku, item_id or
        uid, if its cells are different.
    trunk
        conv4, mlp, identity, bn_inception, googlenet, resnet50, spd, timm:NAME, transformers:NAME or
        package.module:factory.
    text_trunk
        A second network for the texts of images, transformers:FOLDER of a text model with its tokenizer: DATA is then a
        table of pairs, with the columns path and text, and photos are found by words.
    pretrained
        Pretrained weights of the trunk: true for those of timm or transformers, from the local cache or the hub; or a
        .safetensors, .pth or .caffemodel file.
    embedding_dim
        Number of dimensions of the embedding.
    sampler
        auto, random, m_per_class:M, class_ratio:R, a name such as SmartMiningSampler(), or package.module:Name.
    batch_size
        Items per batch, summed over all devices.
    epochs
        Number of passes over the training data.
    lr
        Learning rate.
    augment
        Random augmentation of training images, such as "affine(degrees=15), erasing".
    image_size
        Side in pixels of the square images that the network gets. For images of several sizes, the default is 84 for
        conv4 and 224 for larger trunks.
    standardize
        Standardize each column to mean 0 and standard deviation 1; the scaling is saved with the model.
    settings
        Any other setting as name=value, such as --set schedule=cosine --set lr_proxies=0.01. Repeat for several.
    images
        Also read images from this folder, if the paths in a table, or links, lead out of the folder of DATA. Repeat for
        several.
    skip_bad
        Skip images that cannot be decoded; their number is reported.
    partial
        For a trial, accept an incomplete official archive (cub:, cars:, sop:, inshop:); its counts are not checked.
    vary
        A value of a setting to try, as name=value. Repeat for further values and settings: every objective is trained
        with every combination, and the table begins with the scores on the validation classes, for the choice.
    ladder
        First print the table of `nearfar train --ladder`, with the settings that all objectives share.
    trust
        Allow the settings of a recipe to import your module, such as mylosses; its code is executed. Modules named on
        the command line need no permission. Repeat for several modules.
    quiet
        Print errors only.
    """
    from ..train.paper_tables import is_table
    from .paper_tables import refuse_beside_table, reproduce_to
    from .scoring import compare_to
    from .steps import table as table_of_steps

    if table is not None:
        check_table(table)
    chosen = {
        "data": data,
        "test": test,
        "test_classes": test_classes or None,
        "split": split,
        "label": label,
        "name": name,
        "trunk": trunk,
        "text_trunk": text_trunk,
        "pretrained": true_or_text(pretrained),
        "embedding_dim": embedding_dim,
        "sampler": sampler,
        "batch_size": batch_size,
        "epochs": epochs,
        "lr": lr,
        "augment": augment,
        "image_size": image_size,
        "standardize": standardize or None,
        "skip_bad": skip_bad or None,
        "partial": partial or None,
    }
    if recipe is not None and is_table(recipe):
        given = given_settings(chosen, settings)
        refuse_beside_table({"objective": objectives, "vary": vary, "ladder": ladder == "yes", "table": table})
        numbers = range(1 if seeds is None else seeds)
        reproduced = reproduce_to(
            recipe, given, out, protocol=protocol or "honest", seeds=numbers, jobs=jobs, only=only
        )
        if not quiet:
            say(reproduced)
        return
    if only:
        raise ValueError("--only: works only with --recipe TABLE, such as jrd/ablation, whose rows have names")
    varied = varied_settings(vary)
    with images_from(*images), trusting(*trust):
        config = make_config(chosen, settings, recipe, varied=varied.keys(), protocol=protocol)
        if ladder == "yes":
            steps = table_of_steps(config, full=False, quiet=quiet)
            if not quiet:
                say(f"{steps}\n", flush=True)
        numbers = range(3 if seeds is None else seeds)
        comparison = compare_to(config, objectives, numbers, out, jobs=jobs, vary=varied, table_file=table)
    if not quiet:
        say(comparison)
