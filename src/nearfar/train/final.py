"""Final models: trained on all classes, with the settings and the number of epochs of an evaluated run."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from math import ceil
from pathlib import Path

import msgspec

from ..data.open import reading_once, resolve_source
from ..expressions import STRING, Call, Literal, parse, walk
from ..io.untrusted import read_json
from ..quoting import count_of
from .checkpoint import read_about
from .config import TrainConfig, TrainError
from .loading import folder_and_config
from .run import Run, RunFolder
from .rungs.choice import epochs_of_best
from .rungs.untrained import save_untrained
from .settle import settle
from .setup import steps_of_epochs
from .task import with_resolved_folder
from .training import train_plan
from .watchers import Watcher

PATHS = ("data", "test", "pretrained", "network_weights")
"""Settings that may be paths, relative to the folder in which the run was started."""


def train_final(
    run: Run | str | Path,
    out: str | Path,
    *,
    progress: bool = True,
    watchers: Sequence[Watcher] = (),
    trust: str | Collection[str] = (),
) -> Run:
    """Train on all classes of the data of a run, with the settings of that run.

    The scores of the run show what to expect for new classes. The final model is also trained on its validation and
    test classes, so it cannot be scored on them: `evaluate_run` refuses it.

    Parameters
    ----------
    run : Run, str or Path
        An evaluated run, whose settings are used.
    out : str or Path
        Folder of the final model; it must be new or empty.
    progress : bool
        Print progress.
    watchers : sequence of Watcher
        Objects that are notified of steps and epochs.
    trust : str or collection of str
        Modules of your own that the settings of the run may name; their code is run.

    Returns
    -------
    Run
        The final model.

    Raises
    ------
    TrainError
        If the run was not evaluated or is a final model itself, or the training fails.

    Notes
    -----
    It is trained for as many epochs as the best checkpoint of the run, which the validation classes chose. Without
    validation classes, or with the schedule "cosine", whose learning rates reach 0 at the end, it is trained for as
    many epochs as the run, up to its end or to where `patience` or Ctrl-C stopped it. Each item is so seen as often as
    in the run; as there are more items, an epoch has more batches. A part of an epoch, with which a run with `steps`
    may end, is repeated as a part. The last checkpoint is kept. A whitening is fitted if the run has kept one, and a
    frozen trunk that was not trained stays frozen. If the run keeps something else than its trained network, so does
    the final model: its closed form is fitted to all classes, or its weights are as far between those before and after.

    Examples
    --------
    >>> train_final("runs/photos", "runs/photos-final")  # doctest: +SKIP
    """
    folder, _ = folder_and_config(run, trust)
    with reading_once():
        config = final_config(run, trust)
        about = read_about(folder.best)
        kind, _, is_mapped = str(about.get("kept", "")).partition("-")
        if kind in ("raw", "frozen"):
            form = str(about["form"]) if is_mapped else "none"
            return save_untrained(config, out, kind=kind, form=form, progress=progress)
        RunFolder(out).check_free()  # before the data are opened
        plan = settle(config)
    return train_plan(plan, out, progress=progress, watchers=watchers)


def final_config(run: Run | str | Path, trust: str | Collection[str] = ()) -> TrainConfig:
    """Return the settings of the final model of a run."""
    folder, config = folder_and_config(run, trust)
    if config.final is not None:
        raise TrainError(f"{folder.path}: is a final model itself; use {config.final}, the run whose settings it has")
    if not (folder.path / "scores.json").is_file():
        raise TrainError(f"{folder.path}: was not evaluated yet; run `nearfar evaluate` first")
    about = read_about(folder.best)
    epochs = epochs_of_best(folder, config)
    paths = {name: getattr(config, name) for name in PATHS}
    led = {name: resolve_source(path, folder.start) for name, path in paths.items() if isinstance(path, str)}
    metric = config.metric
    if metric == "auto":  # a final model has no validation classes, so use what those of the run have decided
        found = about.get("metric")
        metric = "whitening" if isinstance(found, dict) and found.get("kept") else "none"
    share = about["share"] if about.get("kept") == "interpolated" else None
    changes = {"patience": None, "metric": metric, "final": os.fspath(folder.path), "interpolation": share}
    final = config.replace(epochs=max(1, ceil(epochs)), steps=None, **led, **changes)
    if not epochs.is_integer():
        final = final.replace(steps=steps_of_epochs(final, epochs))
    # not by `replace`, which would trust the modules that these settings name
    return msgspec.structs.replace(
        final,
        objective=with_resolved_teachers(config.objective, folder.start),
        trunk=with_resolved_folder(config.trunk, folder.start),
        text_trunk=None if config.text_trunk is None else with_resolved_folder(config.text_trunk, folder.start),
    )


def with_resolved_teachers(objective: str, start: Path | None) -> str:
    """Return an objective whose relative paths of teachers refer to `start` if they do not exist here."""
    calls = [node for node in walk(parse(objective)) if isinstance(node, Call) and node.name == "Distill"]
    values = [argument.value for call in calls for argument in call.arguments if argument.name == "teacher"]
    paths = [value for value in values if isinstance(value, Literal) and isinstance(value.value, str)]
    for path in sorted(paths, key=lambda path: path.at, reverse=True):  # from the end, so that places stay valid
        quoted_path = STRING.match(objective, path.at)
        assert quoted_path is not None
        resolved = repr(resolve_source(str(path.value), start))
        objective = objective[: quoted_path.start()] + resolved + objective[quoted_path.end() :]
    return objective


def final_summary(run: Run) -> str:
    """Return a description of a final model, with the scores of the run that has its settings."""
    config = run.config
    kept = read_about(RunFolder(run.folder).best).get("kept_title")
    if kept:
        made = f"{kept}, of all classes"
    elif run.epoch == 0:
        made = "the pretrained network, followed by a transformation that was fitted to all classes"
    else:
        made = f"trained on all classes for {count_of(run.epoch, 'epoch')}, {count_of(run.step, 'batch')} in all"
    lines = [f"{run.folder}: a final model, {made}; it cannot be scored."]
    try:
        scores = read_json(Path(str(config.final)) / "scores.json")["scores"]
        recall = float(scores["recall_at"]["1"])
        map_at_r = float(scores["map_at_r"])
        detail = f"Recall@1 {recall:.4f}, MAP@R {map_at_r:.4f}"
        lines.append(f"{config.final} has the same settings: {detail} on its test classes.")
    except (OSError, ValueError, LookupError, TypeError):  # that run was moved or removed
        lines.append(f"Its settings are those of {config.final}.")
    return "\n".join(lines)
