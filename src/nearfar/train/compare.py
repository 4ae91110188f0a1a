"""Comparison of several objectives or settings over several seeds, in one table."""

from __future__ import annotations

import json
import operator
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from ..children import isolate_children
from ..data.open import drawn_classes, open_source, reading_once
from ..deep.objective.parser import parse_objective
from ..evaluation.scores import Scores
from ..expressions import Call, ExpressionError, ValueSequence, parse, walk
from ..io.scores_file import baseline_of, damaged, read_scores
from ..quoting import quoted
from ..trust import named_by
from .config import FOUND, OF_THE_TASK, WITHOUT_EFFECT, TrainConfig, TrainError, plain_value, settings_with
from .interrupts import block_interrupts, stop_requested, unblock_interrupts
from .run import missing_folders, remove_empty, write_json
from .scoring import evaluate_run
from .training import train

TRIAL_CLASSES = 64  # number of classes to check objectives that do not set it
# equal in all runs, or given by other arguments
SHARED = (
    "objective",
    "seed",
    "data",
    "test",
    "test_classes",
    "select",
    "ks",
)

TASK_SETTINGS = settings_with(OF_THE_TASK)
FOUND_SETTINGS = settings_with(FOUND)


class Trial(NamedTuple):
    """One objective (with its settings as text) and one seed, and the folder of its run."""

    name: str
    config: TrainConfig
    folder: Path


class Compared(NamedTuple):
    """Result of a comparison.

    Attributes
    ----------
    protocol : str
        Data, classes, items and their split, of the first seed.
    scores : dict of str to list of dict
        Test scores of every seed by objective, as in `scores.json`.
    validation : dict of str to list of float or None
        Score on the validation classes that chose the checkpoint, of every seed; None without such classes.
    baseline : dict or None
        Scores of the pretrained trunk's features, otherwise of the raw inputs; None for pairs of images and texts.
    baseline_name : str
        Which of them.
    """

    protocol: str
    scores: dict[str, list[dict[str, Any]]]
    validation: dict[str, list[float | None]]
    baseline: dict[str, Any] | None
    baseline_name: str


def trials(
    base: TrainConfig,
    objectives: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    vary: Mapping[str, Sequence[Any]] | None = None,
) -> list[Trial]:
    """Return the runs of a comparison, each in its own folder: every objective with all settings and seeds."""
    vary = vary or {}
    for name in vary:
        if name in SHARED:
            raise TrainError(f"vary: {name} must be the same in all runs of a comparison; leave it out")
    made = []
    for objective, *values in product(objectives, *vary.values()):
        settings = dict(zip(vary, values, strict=True))
        name = ", ".join([objective, *(f"{field}={json.dumps(value)}" for field, value in settings.items())])
        for seed in seeds:
            config = base.replace(objective=objective, seed=seed, **settings)
            made.append(Trial(name, config, trial_folder(out, name, config)))
    return made


def trial_folder(out: Path, name: str, config: TrainConfig) -> Path:
    """Return the folder of a trial, which is another one for other settings and seeds."""
    return out / f"{slug(name)}-{config.digest[:8]}-seed{config.seed}"


def slug(name: str) -> str:
    """Return a readable folder name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")[:60]


def train_and_compare(
    base: TrainConfig,
    objectives: Sequence[str],
    seeds: Sequence[int],
    out: str | Path,
    *,
    vary: Mapping[str, Sequence[Any]] | None = None,
    jobs: int = 1,
    on_trial: Callable[[Trial, int, int], None] | None = None,
) -> Compared:
    """Train and score every objective with every seed, and write the result to `comparison.json` in the folder.

    Choose settings by the scores on validation classes; the scores on the test classes then measure the choice.

    Parameters
    ----------
    base : TrainConfig
        Settings that all runs share.
    objectives : sequence of str
        Objectives, as for `TrainConfig`.
    seeds : sequence of int
        Seeds of the weights, the batches, the augmentation and the validation classes.
    out : str or Path
        Folder for the runs. Finished runs in it are not repeated, and interrupted ones are resumed.
    vary : mapping of str to sequence, optional
        Settings to vary and their values, such as ``{"lr": [1e-3, 3e-3]}``: every objective is trained with every
        combination.
    jobs : int
        Number of runs at a time, each in a process of its own with one thread.
    on_trial : callable, optional
        Function that is called after each trial, with the trial, the number of finished trials and that of all trials.

    Returns
    -------
    Compared
        Scores of all runs.

    Raises
    ------
    ValueError
        If there is no objective, seed or job, an objective cannot be built, or a setting is not valid; nothing is
        trained then.

    Notes
    -----
    If the data have no split of their own, all seeds are tested on the classes that the seed of `base` draws. With
    ``split="rows"``, each seed draws the items of its own test.
    """
    vary = {name: [plain_value(name, value) for value in values] for name, values in (vary or {}).items()}
    seeds = [operator.index(seed) for seed in seeds]
    refuse_empty({"objectives": objectives, "seeds": seeds, **{f"vary: {name}": vary[name] for name in vary}}, jobs)
    objectives = list(dict.fromkeys(objectives))
    check_objectives(objectives, base)
    trials(base, objectives, seeds, Path(out), vary)  # refuses a wrong setting before the data are read
    with reading_once():
        base = with_test_classes(base)
        todo = trials(base, objectives, seeds, Path(out), vary)
        compared = _by_objective(todo, run_trials(todo, jobs, on_trial, Path(out)))
    about = {"config": base.to_dict(), "seeds": seeds, "vary": vary}
    write_json(Path(out) / "comparison.json", {**about, **compared._asdict()})
    return compared


def run_trials(
    todo: Sequence[Trial], jobs: int, on_trial: Callable[[Trial, int, int], None] | None, out: Path
) -> list[dict[str, Any]]:
    """Train and score all trials, and return the contents of their `scores.json`, in their order."""
    contents: dict[int, dict[str, Any]] = {}
    missing = missing_folders(out)
    try:
        for index, content in _run_each(todo, jobs):
            contents[index] = content
            if on_trial is not None:
                on_trial(todo[index], len(contents), len(todo))
    finally:
        remove_empty(missing)
    return [contents[index] for index in range(len(todo))]


def refuse_empty(lists: Mapping[str, Sequence[Any]], jobs: int) -> None:
    """Raise a ValueError if one of the lists is empty, or there is no job."""
    counts = {name: len(values) for name, values in lists.items()} | {"jobs": jobs}
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name}: expected at least one, got {count}")


def _by_objective(done: Sequence[Trial], contents: Sequence[dict[str, Any]]) -> Compared:
    """Group the scores of trials by objective; `contents` are their `scores.json`."""
    scores: dict[str, list[dict[str, Any]]] = {trial.name: [] for trial in done}
    validation: dict[str, list[float | None]] = {trial.name: [] for trial in done}
    for trial, content in zip(done, contents, strict=True):
        scores[trial.name].append(content["scores"])
        validation[trial.name].append(content.get("checkpoint", {}).get("validation"))
    name, baseline = baseline_of(contents[0])
    return Compared(_split(contents[0]), scores, validation, baseline, name)


def check_objectives(objectives: Sequence[str], base: TrainConfig) -> None:
    """Raise an error if an objective cannot be built, before any is trained; the number of classes is unknown."""
    for objective in objectives:
        with named_by(base.replace(objective=objective).origin):
            parse_objective(objective, num_classes=classes_in(objective), embedding_dim=base.embedding_dim)


def classes_in(objective: str) -> int:
    """Return the number of classes that an objective sets, or a default if it sets none."""
    try:
        nodes = list(walk(parse(objective)))
    except ExpressionError:  # building it will raise the error
        return TRIAL_CLASSES
    settings = [argument for node in nodes if isinstance(node, Call) for argument in node.arguments]
    counts = [
        len(one.value.items) for one in settings if one.name == "class_counts" and isinstance(one.value, ValueSequence)
    ]
    return counts[0] if counts else TRIAL_CLASSES


def with_test_classes(base: TrainConfig) -> TrainConfig:
    """Fix the test classes that would depend on the seed, so that all seeds are tested on the same classes."""
    if base.test is not None or base.test_classes or base.split == "rows":
        return base
    size = None if ":" in base.trunk else base.resize or base.image_size
    how: dict[str, Any] = {"label": base.label, "name": base.name, "skip_bad": base.skip_bad, "partial": base.partial}
    how["pairs"] = base.text_trunk is not None
    source = open_source(base.data, image_size=size, **how)
    if source.roles is not None:
        return base
    classes = source.items.classes
    held = drawn_classes(source.items, base.seed)
    return base.replace(test_classes=[name for name, test in zip(classes, held, strict=True) if test])


def _split(content: dict[str, Any]) -> str:
    """Return how the data of a comparison are split, from the scores of one run, without its seed and checkpoint."""
    split = content.get("split") or content["protocol"].partition(" The checkpoint of")[0]
    split = re.sub(r"(validation classes drawn .*) with seed \d+", r"\1 with the seed of each run", split)
    return re.sub(r"(of each held out) with seed \d+", r"\1 with the seed of each run", split)


def _run_each(todo: Sequence[Trial], jobs: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Run trials, `jobs` at a time; yield the number of each and the content of its `scores.json` when it is done."""
    if jobs == 1:
        yield from ((index, run_trial(trial)) for index, trial in enumerate(todo))
        return
    context = get_context("spawn")
    with isolate_children():  # multiprocessing starts a process to track the event
        stopped = context.Event()
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_process, initargs=(stopped,)) as pool:
        futures: dict[Future[dict[str, Any]], int] = {}
        try:
            with (
                isolate_children(),
                block_interrupts(),
            ):  # a process that is stopped during its imports would print a long traceback
                futures |= {pool.submit(_run_in_pool, trial): index for index, trial in enumerate(todo)}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException as error:
            stopped.set()
            pool.shutdown(cancel_futures=True)
            if isinstance(error, BrokenExecutor):
                ended = "a training process was killed, perhaps because memory ran out"
                raise ChildProcessError(
                    f"{ended}; run the same comparison again to continue, perhaps with fewer jobs"
                ) from error
            raise


class _Shared:
    """Shared state of the processes of a pool."""

    stopped: ClassVar[Any]  # event: no new trial begins, and running trials stop with a checkpoint
    busy: ClassVar[Any] = threading.Lock()  # held while a trial runs


def _start_process(stopped: Any) -> None:
    """Prepare a process of a pool: one thread, and an end with its parent or with the event `stopped`."""
    import torch

    torch.set_num_threads(1)
    _Shared.stopped = stopped
    if parent_process() is not None:
        threading.Thread(target=_stop_with_parent, daemon=True).start()
    try:
        unblock_interrupts()
    except KeyboardInterrupt:
        stopped.set()


def _stop_with_parent() -> None:
    """Stop if the comparison is stopped or its process no longer exists, because a pool would continue forever.

    A terminal sends a signal to all processes, but a service or a job queue only to the main process.
    """
    parent = parent_process()
    assert parent is not None
    while not _Shared.stopped.is_set() and parent.is_alive():
        time.sleep(1.0)  # not `wait`, because setting an event blocks if a waiting process was killed
    _Shared.stopped.set()
    stop_requested.set()
    parent.join()
    with _Shared.busy:
        os._exit(130)


def _run_in_pool(trial: Trial) -> dict[str, Any]:
    """Run a trial, unless the comparison was stopped: a pool assigns trials early, and cannot withdraw them."""
    if _Shared.stopped.is_set():
        raise KeyboardInterrupt
    try:
        with _Shared.busy:
            return run_trial(trial)
    except KeyboardInterrupt:
        _Shared.stopped.set()
        raise


def run_trial(trial: Trial) -> dict[str, Any]:
    """Train and score one trial, or read its scores if it is finished."""
    done = trial.folder / "scores.json"
    config = trial.folder / "config.json"
    if config.exists():
        refuse_other_settings(trial, TrainConfig.from_json(config))
    if not done.exists():
        resume = config.exists()
        run = train(trial.config, trial.folder, resume=resume, progress=False)
        evaluate_run(run)
    content = read_scores(done)
    try:
        for name in ("raw", "frozen", "images_to_texts"):
            if content[name] is not None:
                Scores.from_dict(content[name])
    except ValueError as error:
        raise ValueError(f"{done}: {damaged(error)}") from error
    return content


def refuse_other_settings(trial: Trial, found: TrainConfig) -> None:
    """Raise a TrainError if the run in the folder of a trial has other settings than the trial.

    Settings at their default do not count if a run takes them from its data, such as the trunk.
    """
    asked = trial.config.to_dict()
    defaults = TrainConfig.defaults()
    different = [
        f"{name}: {quoted(value)} / {quoted(asked[name])}"
        for name, value in found.to_dict().items()
        if value != asked[name]
        and name not in (*WITHOUT_EFFECT, *FOUND_SETTINGS)
        and (name in TASK_SETTINGS or name not in defaults or asked[name] != defaults[name])
    ]
    if different:
        why = f"holds a run with other settings (run's / given: {'; '.join(different)})"
        raise TrainError(f"{trial.folder}: {why}; choose another folder for the comparison, or remove this one")
