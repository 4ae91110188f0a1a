"""What the commands do with a run, a saved learner or an .npz of embeddings: score it, show it, compare runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Dataset
from ..data.items import UNKNOWN
from ..evaluation import Scores
from ..evaluation import evaluate as evaluate_embeddings
from ..progress import stage
from .embedding import Chosen, Searched, distance_of, embed_with, is_embeddings, is_run, searched_on
from .learners import load_learner, remark


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


def score(source: Path, chosen: Chosen, ks: Sequence[int] = ()) -> str:
    """Score a source and return the table to print; a run scored on its test classes also writes `scores.json`."""
    if is_run(source) and chosen.all_of_run:
        from ..train import evaluate_run

        result = evaluate_run(source, ks=ks)
        return "\n".join([_table(result.protocol, result.scores, result.raw), *_listed(result.remarks)])
    scored = scored_on(source, chosen, ks)
    return _table(scored.protocol, scored.scores, scored.raw)


def _listed(remarks: Sequence[str]) -> list[str]:
    return ["", *(f"- {remark}" for remark in remarks)] if remarks else []


def _table(protocol: str, scores: Scores, raw: Scores | None) -> str:
    lines = [protocol, "", str(scores)]
    if raw is not None:
        lines += ["", f"the items themselves: Recall@1 {raw.recall_at[1]:.4f}, MAP@R {raw.map_at_r:.4f}"]
    return "\n".join(lines)


def scored_on(source: Path, chosen: Chosen, ks: Sequence[int] = ()) -> Scored:
    """Embed and score data with a run or a learner, or score an .npz of embeddings.

    Raises
    ------
    ValueError
        If there is nothing to score, or the source is none of the three.
    """
    searched = searched_on(source, chosen)
    if searched.dataset.classes == (UNKNOWN,):
        raise ValueError(f"{source}: its items have no class, so there is nothing to score them by")
    return _scored(source, searched, ks)


def score_learner(source: Path, dataset: Dataset, gallery: Dataset | None = None) -> str:
    """Score a saved learner on items, which search the gallery or each other, and return the table to print."""
    there = None if gallery is None else embed_with(source, gallery)
    scored = _scored(source, Searched(dataset, embed_with(source, dataset), gallery, there))
    return _table(scored.protocol, scored.scores, scored.raw)


def _scored(source: Path, searched: Searched, ks: Sequence[int] = ()) -> Scored:
    dataset, embedded, gallery, found = searched
    how: dict[str, Any] = {
        "distance": distance_of(source),
        "gallery_labels": None if gallery is None else gallery.labels,
    }
    if is_run(source):  # as its whole test is scored
        from ..train import TrainConfig

        config = TrainConfig.from_json(source / "config.json")
        how |= {"ks": config.ks, "seed": config.seed}
    if ks:
        how["ks"] = sorted({1, *ks})
    scores = evaluate_embeddings(embedded, dataset.labels, gallery=found, **how)
    title, about, raw = source.stem, searched.about(), None
    if not is_embeddings(source):
        name = source.name if is_run(source) else repr(load_learner(source))
        title = f"{name} on {dataset.name}"
        items, there = _flat(dataset), None if gallery is None else _flat(gallery)
        if items is not None and (gallery is None or there is not None):
            raw = evaluate_embeddings(items, dataset.labels, gallery=there, **how, clustering=False)
        if not is_run(source):
            about += remark(load_learner(source), dataset, "these items")
    return Scored(title, about, embedded, dataset, scores, raw, gallery, found)


def _flat(dataset: Dataset) -> np.ndarray[Any, Any] | None:
    """Return the items themselves as rows, where they are in memory."""
    return None if dataset.array is None else dataset.array.reshape(len(dataset), -1)


def _with_validation(scores: dict[str, Any], select: str, value: float | None) -> dict[str, Any]:
    """Scores of a run, and the one that chose its checkpoint; None where there are no validation classes."""
    return scores if value is None else {**scores, f"validation_{select}": value}


def compare_to(
    config: Any,
    objectives: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    jobs: int,
    vary: Mapping[str, Sequence[Any]],
) -> str:
    """Run a comparison, write its page, and return its table."""
    from ..report import compare, write_comparison
    from ..train.compare import train_and_compare

    if not objectives:
        raise ValueError("--objective: give at least one, for example --objective 'TripletLoss()'")
    runs = len(objectives) * len(seeds) * prod(map(len, vary.values()))
    with stage("training", runs) as done:
        compared = train_and_compare(
            config, objectives, seeds, out, vary=vary, jobs=jobs, told=lambda trial, number, total: done(1)
        )
    scores = {}
    for name, measured in compared.scores.items():
        chosen_by = compared.validation[name]
        scores[name] = [_with_validation(run, config.select, v) for run, v in zip(measured, chosen_by, strict=True)]
    many = f"{len(seeds)} seeds; mean ± half of the 95% t-interval." if len(seeds) > 1 else "1 seed."
    note = f"{compared.protocol} {many}"
    table = compare(scores, baseline=compared.raw, baseline_name="the items themselves", note=note)
    page = write_comparison(table, out / "comparison.html")
    return f"{table.markdown()}\n\n{note}\n{page}"
