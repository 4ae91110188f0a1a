"""A report of the folder of a run, from its files and the pictures of its test items."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data import DataError, Dataset, open_task
from ..data.dataset import images_once, some
from ..data.open import resolve_source
from ..data.readers.arrays import read_arrays
from ..data.readers.in_memory import GIVEN
from ..evaluation import Scores
from ..io.scores_file import baseline_of, read_scores
from ..io.untrusted import parse_json, read_json
from ..quoting import PATH, quoted, shorten, without_folders
from . import sections
from .content import Attention, Curve, Items, Other, ReportContent
from .page import build_report

SPLITS = ("seen", "unseen")
LOSS = "whole objective"


class ReportError(ValueError):
    """No report can be made from a folder. The message is one line."""


def report_run(
    run: str | Path,
    path: str | Path | None = None,
    *,
    test: Dataset | None = None,
    gallery: Dataset | None = None,
    title: str = "",
    attention: Attention | None = None,
    against: str | Path | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Path:
    """Write the report of a run.

    Parameters
    ----------
    run : str or Path
        Folder of an evaluated run, with scores.json and test.npz.
    path : str or Path, optional
        File to write. By default, `report.html` in the folder of the run, or `report-against-NAME.html` with `against`.
    test : Dataset, optional
        The test items. By default, they are opened from the data set that config.json names. If they cannot be opened,
        the report shows names instead of pictures, and gives the reason.
    gallery : Dataset, optional
        The gallery items, if the test has a gallery.
    title : str
        Heading. By default, the objective and the data.
    attention : callable, optional
        Function from a square uint8 image (S, S, C) to the last convolutional map (C', H, W).
    against : str or Path, optional
        Folder of another run, evaluated on the same test items: the report shows which queries only one of the two
        solves.
    defaults : mapping, optional
        Default settings of a training; settings of the run that differ from them are marked.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ReportError
        If a folder holds no run, or the run was not evaluated.
    ValueError
        If the other run was tested on other items.
    """
    folder = Path(run)
    with naming_damage(folder):
        content = read_run(folder, test=test, gallery=gallery, title=title, attention=attention)
    if defaults is not None:
        content = replace(content, defaults=defaults)
    name = "report.html"
    if against is not None:
        content = replace(content, other=other_run(against))
        name = f"report-against-{run_name(against)}.html"
    return build_report(content, path or folder / name)


def other_run(run: str | Path) -> Other:
    """Read a run as the model to compare with."""
    folder = Path(run)
    with naming_damage(folder):
        content = read_run(folder, pictures=False)
    assert content.queries is not None
    return Other(run_name(folder), content.scores, content.queries, content.gallery, content.distance)


@contextmanager
def naming_damage(folder: Path) -> Iterator[None]:
    """Turn exceptions because of damaged files of a run into a ReportError that names its folder."""
    try:
        yield
    except (ReportError, DataError):
        raise
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
        why = shorten(f"{type(error).__name__}: {error}", PATH)
        raise ReportError(
            f"{folder}: a file of the run is damaged, or of another version of nearfar ({why})"
        ) from error


def run_name(folder: str | Path) -> str:
    """Return the name of the folder of a run, which a path such as "." does not contain."""
    return os.path.basename(os.path.abspath(folder))


def read_run(
    folder: Path,
    *,
    test: Dataset | None = None,
    gallery: Dataset | None = None,
    title: str = "",
    attention: Attention | None = None,
    pictures: bool = True,
) -> ReportContent:
    """Read everything that a report of a run shows; parameters as in `report_run`.

    Errors because of damaged files are those of Python, which `naming_damage` turns into a ReportError.
    """
    config = read_object(folder / "config.json")
    evaluated = _evaluated(folder, config)
    environment = read_object(folder / "environment.json", needed=False)
    notes: tuple[str, ...] = ()
    if test is None and pictures:
        test, gallery, notes = _open_test(config, environment)
    arrays = _arrays(folder / "test.npz")
    queries, missing = _items(arrays, "", test)
    searched = None
    if "gallery_embeddings" in arrays:
        searched, _ = _items(arrays, "gallery_", gallery)
    rows = _table(folder / "metrics.csv")
    baseline_name, baseline = baseline_of(evaluated, _raw_name(test))
    content = ReportContent(
        title=title or _title(config, folder, evaluated),
        protocol=evaluated.get("protocol", ""),
        scores=evaluated["scores"],
        baseline=baseline,
        baseline_name=baseline_name,
        queries=queries,
        gallery=searched,
        distance=evaluated["scores"].get("distance", "cosine"),
        losses=_losses(_log(folder / "log.jsonl"), rows),
        recalls=_recalls(rows),
        map_at_r=_splits(rows, "map_at_r"),
        best_epoch=evaluated.get("checkpoint", {}).get("epoch"),
        attention=attention,
        settings=without_folders(config),
        environment=without_folders(environment),
        command=without_folders(" " + _text(folder / "command.txt")).strip(),
        remarks=[
            *choice_of(folder),
            *_scores_of_images(evaluated),
            *(str(remark) for remark in evaluated.get("remarks") or ()),
        ],
        notes=[*notes, *([missing] if missing else [])],
        ladder=read_object(folder / "ladder.json", needed=False),
        theory=read_object(folder / "theory.json", needed=False),
        seed=int(config.get("seed", 0)),
    )
    # raises the errors of these two files here: the page would read them only after everything else
    sections.ladder(content)
    sections.theory(content)
    return content


def _raw_name(test: Dataset | None) -> str:
    return "raw pixels" if test is None else test.title_of_raw


def choice_of(folder: Path) -> list[str]:
    """Return the sentence on which model a training has kept, and how much better or worse the cheaper ones were."""
    choice = read_object(folder / "choice.json", needed=False)
    return [str(choice["sentence"])] if choice else []


def _scores_of_images(evaluated: Mapping[str, Any]) -> list[str]:
    """Return a sentence on how well images find their texts, if the scores are those of texts that search images."""
    if evaluated.get("images_to_texts") is None:
        return []
    scores = Scores.from_dict(evaluated["images_to_texts"])
    recalls = ", ".join(f"Recall@{k} {recall:.4f}" for k, recall in scores.recall_at.items())
    return [
        f"The queries are texts that search images. In the other direction, images find their texts with {recalls}."
    ]


def _evaluated(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    if config.get("data") == GIVEN:
        raise ReportError(f"{folder}: was fitted on items in memory, which were not saved; give the DATA to report on")
    if config.get("final") is not None:
        raise ReportError(
            f"{folder}: is a final model, which has no test; report {quoted(config['final'], PATH)}, the run whose "
            "settings it has, or give the DATA to report on"
        )
    if not (folder / "scores.json").is_file() or not (folder / "test.npz").is_file():
        raise ReportError(
            f"{folder}: was not evaluated yet (it has no scores.json and test.npz); run `nearfar evaluate {folder}`"
        )
    try:
        return read_scores(folder / "scores.json")
    except ValueError as error:
        raise ReportError(str(error)) from error


def _open_test(
    config: Mapping[str, Any], environment: Mapping[str, Any]
) -> tuple[Dataset | None, Dataset | None, tuple[str, ...]]:
    """Open the test part of the data. If that fails, the report has no pictures, and gives the reason."""
    names = ("test_classes", "validation", "seed", "split", "label", "name", "skip_bad", "partial")
    folder = environment.get("folder")
    test = config.get("test")
    start = Path(folder) if isinstance(folder, str) else None
    settings = {name: config[name] for name in names if name in config}
    pairs = config.get("text_trunk") is not None
    try:
        task = open_task(
            resolve_source(config["data"], start), test=test and resolve_source(test, start), pairs=pairs, **settings
        )
    except (DataError, OSError, KeyError) as error:
        return None, None, (f"The report has no pictures, because the test items could not be opened: {error}",)
    if pairs:  # the queries are texts
        return None, images_once(task.test), task.notes
    return task.test, task.gallery, task.notes


def _items(arrays: Mapping[str, NDArray[Any]], prefix: str, dataset: Dataset | None) -> tuple[Items, str]:
    """Return the embedded items, with pictures if the opened items are the same."""
    labels = arrays[f"{prefix}labels"].astype(np.int64)
    names = [str(name) for name in arrays.get(f"{prefix}names", ())]
    same = dataset is not None and len(dataset) == len(labels) and (not names or list(dataset.names) == names)
    classes = arrays.get(f"{prefix}classes", np.arange(labels.max(initial=0) + 1))
    items = Items(
        embeddings=arrays[f"{prefix}embeddings"],
        labels=labels,
        classes=[str(name) for name in classes],
        names=names,
        read=dataset.read if dataset is not None and same else None,
        groups=arrays.get(f"{prefix}groups"),
        columns=dataset.columns if dataset is not None and same else (),
    )
    changed = dataset is not None and not same
    return items, "The report has no pictures, because the data have changed since the evaluation." if changed else ""


def _title(config: Mapping[str, Any], folder: Path, evaluated: Mapping[str, Any]) -> str:
    """Return the objective and the data, or the model and the data if nothing trained was scored."""
    data = Path(config.get("data", "its data")).name
    what = config.get("objective", run_name(folder))
    kept = kept_instead(folder)
    if is_untrained(config, folder):
        what = "Features of " + str(config.get("trunk", "the network")).partition("(")[0]
    elif kept and evaluated.get("checkpoint", {}).get("which") == "best":
        what = kept[0].upper() + kept[1:]
    return f"{what} on {data}"


def kept_instead(folder: Path) -> str:
    """Return what a run keeps instead of the network that was trained; "" if it keeps that."""
    choice = read_object(folder / "choice.json", needed=False)
    if not choice or choice["kept"] == "trained":
        return ""
    return next(str(one["title"]) for one in choice["candidates"] if one["name"] == choice["kept"])


def is_untrained(config: Mapping[str, Any], folder: Path) -> bool:
    """Return whether a run is a trunk that nothing was trained on: it has an environment, but no log of a training."""
    is_complete = (folder / "environment.json").is_file()  # unlike a run that was loaded from a hub
    return bool(config.get("freeze_trunk")) and is_complete and not (folder / "log.jsonl").is_file()


def _losses(log: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, float]]) -> list[Curve]:
    """Return the curves of the objective, its parts and the shares of active anchors, over (fractional) epochs."""
    if not log:
        return []
    epochs = _epochs(log, rows)
    parts = _names(log, "parts")
    if len(parts) > 1:
        columns = [(LOSS, [record.get("loss") for record in log])]
    else:
        columns = []
    columns += [(name, _column(log, "parts", name)) for name in parts]
    columns += [(f"active share, {name}", _column(log, "active", name)) for name in _names(log, "active")]
    curves = [_curve(name, epochs, values) for name, values in columns]
    return [curve for curve in curves if len(curve.values)]


def _epochs(log: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, float]]) -> NDArray[np.float64]:
    """Return the (fractional) epoch of each record of the log, from the steps at which epochs ended, if known."""
    ends = [(row["step"], row["epoch"]) for row in rows if "step" in row]
    if not ends:
        return np.array([record.get("epoch", record["step"]) for record in log], dtype=float)
    steps, epochs = np.array([(0.0, 0.0), *ends]).T
    return np.interp(np.array([record["step"] for record in log], dtype=float), steps, epochs)


def _names(log: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    """Return the names under "parts" or "active" in the log, in the order of their first occurrence."""
    return list(dict.fromkeys(name for record in log for name in record.get(kind, {})))


def _column(log: Sequence[Mapping[str, Any]], kind: str, name: str) -> list[float | None]:
    return [record.get(kind, {}).get(name) for record in log]


def _recalls(rows: Sequence[Mapping[str, float]]) -> dict[int, list[Curve]]:
    """Return the curves of Recall@K on seen and unseen classes, from columns such as `unseen_recall_at_1`."""
    columns = {name for row in rows for name in row}
    ks = sorted({int(name.rpartition("_")[2]) for name in columns if "_recall_at_" in name})
    return {k: _splits(rows, f"recall_at_{k}") for k in ks}


def _splits(rows: Sequence[Mapping[str, float]], score: str) -> list[Curve]:
    """Return the curves of a score on seen and unseen classes, as far as they exist."""
    epochs = np.array([row["epoch"] for row in rows], dtype=float)
    curves = [_curve(split, epochs, [row.get(f"{split}_{score}") for row in rows]) for split in SPLITS]
    return [curve for curve in curves if len(curve.values)]


def _curve(name: str, epochs: NDArray[np.float64], values: Sequence[float | None]) -> Curve:
    measured = np.array([np.nan if value is None else value for value in values], dtype=float)
    finite = np.isfinite(measured)
    return Curve(name, epochs[finite], measured[finite])


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        arrays = read_arrays(path)
    except ValueError as error:
        raise ReportError(f"{path}: cannot be read ({error})") from error
    missing = {"embeddings", "labels"} - set(arrays)
    if missing:
        raise ReportError(f"{path}: expected embeddings and labels, got {some([*arrays]) or 'no arrays'}")
    for prefix in ("", "gallery_"):
        _check_kind(path, arrays, f"{prefix}embeddings", "finite numbers (n, d)", kinds="f", ndim=2)
        _check_kind(path, arrays, f"{prefix}labels", "whole numbers (n,)", kinds="iu", ndim=1)
    return arrays


def _check_kind(
    path: Path, arrays: Mapping[str, NDArray[Any]], name: str, expected: str, *, kinds: str, ndim: int
) -> None:
    """Raise a ReportError if an array has another kind of dtype or number of dimensions, or is not finite."""
    array = arrays.get(name, np.empty((0,) * ndim, dtype=kinds[0] + "8"))
    if array.dtype.kind not in kinds or array.ndim != ndim or not np.isfinite(array).all():
        got = f"shape {array.shape} of {array.dtype}"
        raise ReportError(f"{path}: {name} must be {expected}, got {got}; evaluate the run again")


def read_object(path: Path, needed: bool = True) -> dict[str, Any]:
    """Read a JSON object of a run folder; return {} if it does not exist and is not `needed`."""
    if not needed and not path.is_file():
        return {}
    try:
        read = read_json(path)
    except OSError as error:
        raise ReportError(f"{path.parent}: is not the folder of a run ({path.name}: {error.strerror})") from error
    except ValueError as error:
        raise ReportError(f"{path}: is not JSON ({error})") from error
    if not isinstance(read, dict):
        raise ReportError(f"{path}: expected a JSON object, got {quoted(read)}")
    return read


def _text(path: Path) -> str:
    if path.is_file():
        return path.read_text("utf-8", errors="replace").strip()
    return ""


def _log(path: Path) -> list[dict[str, Any]]:
    """Return the records of the log, without an incomplete last line of an interrupted training."""
    records = []
    for line in _text(path).splitlines():
        try:
            records.append(parse_json(line))
        except ValueError:
            continue
    return [record for record in records if isinstance(record, dict)]


def _table(path: Path) -> list[dict[str, float]]:
    """Return the rows of the table of epochs, without empty cells."""
    if not path.is_file():
        return []
    try:
        with path.open(newline="") as file:
            return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]
    except (ValueError, TypeError, csv.Error) as error:
        raise ReportError(f"{path}: is not a table of numbers ({error})") from error
