"""What the commands do with a run, a saved learner or an .npz of embeddings: score it, embed with it, show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data import Dataset, open_dataset
from ..data.arrays import read_gallery
from ..data.dataset import some
from ..data.items import UNKNOWN
from ..data.open import match_classes, same_classes
from ..evaluation import Scores
from ..evaluation import evaluate as evaluate_embeddings
from .learners import items_of, load_learner, remark
from .settings import check_out


@dataclass(frozen=True)
class Scored:
    """Embedded items and their scores.

    Attributes
    ----------
    title, protocol : heading, and one sentence on data and split
    embeddings : (n, d)
    dataset : the items
    scores, raw : of the embeddings, and of the items themselves where they can be compared
    gallery, searched : what the items search, where it is not each other; its embeddings
    """

    title: str
    protocol: str
    embeddings: np.ndarray[Any, Any]
    dataset: Dataset
    scores: Scores
    raw: Scores | None
    gallery: Dataset | None = None
    searched: np.ndarray[Any, Any] | None = None


class Searched(NamedTuple):
    """Items and their embeddings; and the same of a gallery, where they search one and not each other."""

    dataset: Dataset
    rows: np.ndarray[Any, Any]
    gallery: Dataset | None = None
    gallery_rows: np.ndarray[Any, Any] | None = None

    def about(self) -> str:
        """Say what there is."""
        there = "" if self.gallery is None else f", searching a gallery of {_size(self.gallery)}"
        return f"{self.dataset.name}, {_size(self.dataset)}{there}."


def is_run(source: Path) -> bool:
    """Return whether a source is the folder of a run."""
    return source.is_dir()


def is_embeddings(source: Path) -> bool:
    """Return whether a source is a file of embeddings."""
    return source.suffix in (".npz", ".npy")


def refuse_data(source: Path, data: str | None) -> None:
    """Refuse DATA beside embeddings: nothing would embed it."""
    if data is not None:
        raise ValueError(f"DATA: {source} holds embeddings already, so {data!r} must be left out")


def score(source: Path, data: str | None, classes: Sequence[str]) -> str:
    """Score a source and return the table to print; a run scored on its test classes also writes `scores.json`."""
    if is_run(source) and data is None and not classes:
        from ..train import evaluate_run

        result = evaluate_run(source)
        return _table(result.protocol, result.scores, result.raw)
    scored = scored_on(source, data, classes)
    return _table(scored.protocol, scored.scores, scored.raw)


def _table(protocol: str, scores: Scores, raw: Scores | None) -> str:
    lines = [protocol, "", str(scores)]
    if raw is not None:
        lines += ["", f"the items themselves: Recall@1 {raw.recall_at[1]:.4f}, MAP@R {raw.map_at_r:.4f}"]
    return "\n".join(lines)


def scored_on(source: Path, data: str | None, classes: Sequence[str]) -> Scored:
    """Embed and score data with a run or a learner, or score an .npz of embeddings.

    Raises
    ------
    ValueError
        If there is nothing to score, or the source is none of the three.
    """
    searched = searched_on(source, data, classes)
    if searched.dataset.classes == (UNKNOWN,):
        raise ValueError(f"{source}: its items have no class, so there is nothing to score them by")
    return _scored(source, searched)


def score_learner(source: Path, dataset: Dataset) -> str:
    """Score a saved learner on items, and return the table to print."""
    scored = _scored(source, Searched(dataset, embed_with(source, dataset)))
    return _table(scored.protocol, scored.scores, scored.raw)


def _scored(source: Path, searched: Searched) -> Scored:
    dataset, embedded, gallery, found = searched
    how: dict[str, Any] = {
        "distance": distance_of(source),
        "gallery_labels": None if gallery is None else gallery.labels,
    }
    scores = evaluate_embeddings(embedded, dataset.labels, gallery=found, **how)
    title, about, raw = source.stem, searched.about(), None
    if not is_embeddings(source):
        name = source.name if is_run(source) else repr(load_learner(source))
        title = f"{name} on {dataset.name}"
        items, there = _flat(dataset), None if gallery is None else _flat(gallery)
        if items is not None and (gallery is None or there is not None):
            raw = evaluate_embeddings(items, dataset.labels, gallery=there, **how, clustering=False)
        if not is_run(source):
            about += remark(load_learner(source), items_of(dataset), "these items")
    return Scored(title, about, embedded, dataset, scores, raw, gallery, found)


def _flat(dataset: Dataset) -> np.ndarray[Any, Any] | None:
    """Return the items themselves as rows, where they are in memory."""
    return None if dataset.array is None else dataset.array.reshape(len(dataset), -1)


def embedded_on(source: Path, data: str | None, classes: Sequence[str]) -> tuple[Dataset, np.ndarray[Any, Any]]:
    """Open data and embed it with a run or a learner, or read an .npz of embeddings; returns items and embeddings."""
    if is_embeddings(source):
        refuse_data(source, data)
        dataset = open_dataset(str(source), classes=classes)
        return dataset, rows_of(dataset, source)
    dataset = items_on(source, data, classes)
    return dataset, embed_with(source, dataset)


def searched_on(source: Path, data: str | None, classes: Sequence[str]) -> Searched:
    """As `embedded_on`, with the gallery that a run's test or an .npz has; labels number the classes of both."""
    if is_embeddings(source):
        dataset, rows = embedded_on(source, data, classes)
        gallery = read_gallery(source)
        there = None if gallery is None else rows_of(gallery, source)
    else:
        dataset, gallery = opened_on(source, data, classes)
        rows = embed_with(source, dataset)
        there = None if gallery is None else embed_with(source, gallery)
    if gallery is not None:
        dataset, gallery = same_classes(dataset, gallery)
    return Searched(dataset, rows, gallery, there)


def distance_of(source: Path) -> str:
    """Return the distance in which a source's embeddings are compared: learners learn a Euclidean one."""
    return "cosine" if is_run(source) or is_embeddings(source) else "euclidean"


def _size(dataset: Dataset) -> str:
    return f"{len(dataset)} items of {np.count_nonzero(dataset.class_counts)} classes"


def rows_of(dataset: Dataset, source: Path) -> np.ndarray[Any, Any]:
    """Return the rows of a data set of rows."""
    if dataset.kind != "row" or dataset.array is None:
        raise ValueError(f"{source}: expected embeddings or rows, got {dataset.kind}s")
    return dataset.array


def items_on(source: Path, data: str | None, classes: Sequence[str]) -> Dataset:
    """Open data, or where none is named the test classes of a run."""
    return opened_on(source, data, classes)[0]


def opened_on(source: Path, data: str | None, classes: Sequence[str]) -> tuple[Dataset, Dataset | None]:
    """Open data, or where none is named the test of a run: its items, and the gallery that they search."""
    if data is not None:
        return open_dataset(data, classes=classes), None
    check_there(source)
    if not is_run(source):
        raise ValueError(f"DATA: say what to score {source.name} on, for example an .npz of rows and labels")
    from ..train.finish import task_of

    task = task_of(source)
    test = task.test.only(match_classes(task.test, classes)) if classes else task.test
    return test, task.gallery


def check_there(source: Path) -> None:
    """Raise a FileNotFoundError where there is neither a run nor a learner."""
    if not source.exists():
        raise FileNotFoundError(f"{source}: neither a run nor a learner")


def embed_with(source: Path, dataset: Dataset) -> np.ndarray[Any, Any]:
    """Embed items with a run or a learner."""
    check_there(source)
    if is_run(source):
        from ..train import embed_run

        return embed_run(source, dataset)
    return np.asarray(load_learner(source).transform(items_of(dataset)))


def embed_to(source: Path, data: str, out: Path, skip_bad: bool) -> str:
    """Embed data and write an .npz; returns one line on what was written."""
    from ..core.storage import whole
    from ..data.items import open_items

    check_out(out)
    dataset = open_items(data, skip_bad=skip_bad)
    embeddings = embed_with(source, dataset)
    with whole(out) as file:
        names = np.asarray(dataset.names, dtype=np.str_)
        classes = np.asarray(dataset.classes, dtype=np.str_)
        np.savez_compressed(file, embeddings=embeddings, labels=dataset.labels, classes=classes, names=names)
    n, d = embeddings.shape
    return f"{out}: {n} embeddings of {d} dimensions, {len(dataset.classes)} classes{left_out(dataset)}"


def left_out(dataset: Dataset) -> str:
    """Say which images could not be decoded, as the end of a line."""
    return f"; {len(dataset.bad)} undecodable image(s) left out ({some(dataset.bad, 3)})" if dataset.bad else ""


def report_to(source: Path, data: str | None, out: Path | None) -> str:
    """Write the report of a run, a learner or an .npz; returns its path."""
    from ..report import Items, ReportContent, build_report, report_run

    if out is not None:
        check_out(out)
    if is_run(source) and data is None:
        return str(report_run(source, out, attention=attention_of(source)))
    scored = scored_on(source, data, ())
    items = Items(
        scored.embeddings, scored.dataset.labels, scored.dataset.classes, scored.dataset.names, scored.dataset.read
    )
    there, rows = scored.gallery, scored.searched
    content = ReportContent(
        scored.title,
        scored.protocol,
        scored.scores,
        scored.raw,
        baseline_name="raw pixels" if scored.dataset.kind == "image" else "raw rows",
        queries=items,
        gallery=None if there is None or rows is None else Items(rows, there.labels, there.classes, there.names),
        distance=scored.scores.distance,
    )
    beside = source / f"report-{scored.dataset.name}.html" if is_run(source) else source.with_suffix(".html")
    return str(build_report(content, out or beside))


def attention_of(run: Path) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]] | None:
    """Return what maps an (S, S, C) image to the last convolution (C', H, W) of a run's network, if it has one."""
    import torch

    from ..data.augment import to_float
    from ..data.decode import fit
    from ..train import TrainConfig, load_embedder

    config, embedder = TrainConfig.from_json(run / "config.json"), load_embedder(run)
    device = next(embedder.parameters(), torch.empty(0)).device

    def maps(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        pixels = fit(image, config.image_size or image.shape[0]).transpose(2, 0, 1)
        batch = to_float(torch.from_numpy(pixels[None].copy()))
        with torch.inference_mode():
            return np.asarray(embedder.feature_map(batch.to(device))[0].cpu())

    return maps if embedder.has_feature_map else None


def compare_to(config: Any, objectives: Sequence[str], seeds: Sequence[int], out: Path, jobs: int) -> str:
    """Run a comparison with a progress bar, write its page, and return its table."""
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    from ..report.compare import compare as tabulate
    from ..report.compare import write_comparison
    from ..train.compare import compare

    if not objectives:
        raise ValueError("--objective: give at least one, for example --objective 'TripletLoss()'")
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("training", total=len(objectives) * len(seeds))
        compared = compare(
            config, objectives, seeds, out, jobs=jobs, told=lambda trial, done, total: bar.update(task, completed=done)
        )
    many = f"{len(seeds)} seeds; mean ± half of the 95% t-interval." if len(seeds) > 1 else "1 seed."
    note = f"{compared.protocol} {many}"
    table = tabulate(compared.scores, baseline=compared.raw, baseline_name="the items themselves", note=note)
    page = write_comparison(table, out / "comparison.html")
    return f"{table.markdown()}\n\n{note}\n{page}"
