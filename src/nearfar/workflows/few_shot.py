"""Scores by few-shot episodes, random ones or the one-shot runs of Omniglot.

Episodes are classified by distances of embeddings, or with the classifier "scores" by the network of pairs of a run
(`MultiScaleRelationNet`, `ContinuousSimilarityNet`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..data import Dataset
from ..data.items import left_out
from ..data.readers.one_shot_runs import OneShotRun, read_one_shot_runs
from ..evaluation.few_shot import few_shot, one_shot_accuracy
from ..io.sources import SourceKind, kind_of
from ..models import load
from ..models.embedded import Selection, embed_source, items_of
from ..numerics.distances import unit_rows
from .outcome import Outcome


def score_few_shot(protocol: str, source: Path, selection: Selection, how: dict[str, Any]) -> Outcome:
    """Return the lines to print for the protocol "few-shot" or "one-shot-runs"."""
    if protocol == "one-shot-runs":
        return one_shot_runs_of(source, selection.data)
    return score_episodes(source, selection, how)


def score_episodes(source: Path, selection: Selection, how: dict[str, Any]) -> Outcome:
    """Return the scores of random episodes; for the test classes of a run, also write `few_shot.json`.

    Parameters
    ----------
    source, selection
        As for ``nearfar evaluate``.
    how : dict
        Keywords of `few_shot`; its classifier may also be "scores".
    """
    if how["classifier"] == "scores":
        from .pair_scores import few_shot_by_scores

        dataset = items_of(source, selection)
        found = few_shot_by_scores(source, dataset, **{key: how[key] for key in how if key != "classifier"})
    else:
        embedded = embed_source(source, selection, apart=False)
        dataset = embedded.dataset
        found = few_shot(embedded.rows, dataset.labels, **how, distance=embedded.distance)
    if kind_of(source) is SourceKind.RUN and selection.all_of_run:
        from ..train.run import write_json

        write_json(source / "few_shot.json", found.to_dict())
    if found.left_out:
        left = f", {found.left_out} left out with fewer than {found.shots + found.queries} items"
    else:
        left = ""
    about = f"{dataset.name}, {found.classes} classes{left}{left_out(dataset)}."
    return Outcome(f"{about}\n\n{found}", {"protocol": about, "scores": found.to_dict()})


def one_shot_runs_of(source: Path, data: str | None) -> Outcome:
    """Return the line on the one-shot runs in the folder or zip `data`, scored by the cosines of embeddings.

    Raises
    ------
    ValueError
        If the source is not a run, or no data is given.
    """
    if kind_of(source) is not SourceKind.RUN or data is None:
        raise ValueError("protocol=one-shot-runs: expected RUN and the folder or zip of the one-shot runs")
    from ..train import TrainConfig

    runs = read_one_shot_runs(data, image_size=TrainConfig.from_json(source / "config.json").image_size)
    found = one_shot_accuracy(_distances(source, runs), [run.answers for run in runs])
    sizes = f"{len(runs)} runs of {len(runs[0].training)}-way 1-shot classification"
    scores = {"accuracy": found.mean, "interval_95": found.half, "distance": "cosine"}
    text = f"{data}: {sizes}.\n\naccuracy {found} (nearest, cosine)"
    return Outcome(text, {"protocol": f"{data}: {sizes}.", "scores": scores})


def _distances(source: Path, runs: list[OneShotRun]) -> list[np.ndarray[Any, Any]]:
    """Return the (tests, training) cosine distances of every one-shot run."""
    images = np.concatenate([part for run in runs for part in (run.training, run.test)])
    embedded = load(source).embed(Dataset.from_array("one-shot runs", images, np.arange(len(images))))
    sizes = [len(part) for run in runs for part in (run.training, run.test)]
    parts = np.split(unit_rows(embedded), np.cumsum(sizes)[:-1])
    return [1 - test @ training.T for training, test in zip(parts[::2], parts[1::2], strict=True)]
