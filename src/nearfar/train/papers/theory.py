"""Measures from the theory of the founding papers: how far the unseen classes of a run are from the seen ones.

    error on unseen <= error on seen + d_H + lambda                       (the bound that Chu et al., 2020, quote)

d_H is the divergence of seen and unseen embeddings, lambda the error of one classifier of all classes on both; the
diversity is the trace of the covariance of raw embeddings, of seen and of unseen classes (Chen et al., 2022). With it
stands Recall@K of ten disjoint parts of the test, the protocol of the JRD paper for its intervals.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...data import Dataset
from ...evaluation.generalization import diversity, h_divergence, joint_error
from ...evaluation.intervals import PARTS, Interval, subset_recall
from ...numerics.types import AnyArray
from ..config import TrainConfig
from ..estimator import DeepMetric
from ..loading import folder_and_config
from ..run import Run, write_json
from ..scoring import task_of

THEORY = "theory.json"
RANDOM_HALVES = 10  # number of random splits into halves
TITLES = {
    "h_divergence": "H-divergence d_H of seen and unseen classes",
    "joint_error": "joint error lambda of seen and unseen classes",
    "diversity_seen": "diversity of seen classes",
    "diversity_unseen": "diversity of unseen classes",
}


@dataclass(frozen=True)
class Theory:
    """Generalization quantities of a run.

    Attributes
    ----------
    recalls : dict of int to Interval
        Recall@K of ten disjoint parts of the test items; empty if a class has too few items for them.
    why_no_recalls : str
        Reason if there are none.
    h_divergence : Interval
        In [0, 1]: about 1/2 if seen and unseen embeddings cannot be distinguished, 1 if they can.
    joint_error : Interval
        In [0, 2]; 0 if one nearest-neighbor rule separates all classes.
    diversity_seen : float
        Trace of the covariance of raw embeddings of seen classes.
    diversity_unseen : float
        Trace of the covariance of raw embeddings of unseen classes.
    """

    recalls: dict[int, Interval]
    why_no_recalls: str
    h_divergence: Interval
    joint_error: Interval
    diversity_seen: float
    diversity_unseen: float

    def rows(self) -> list[tuple[str, float, float | None]]:
        """Return (title, value, half-width of the 95% interval or None) of every quantity."""
        found: list[tuple[str, float, float | None]] = [
            (f"Recall@{k} of {PARTS} disjoint parts of the test", one.mean, one.half) for k, one in self.recalls.items()
        ]
        for name in ("h_divergence", "joint_error"):
            one = getattr(self, name)
            found.append((TITLES[name], one.mean, one.half))
        for name in ("diversity_seen", "diversity_unseen"):
            found.append((TITLES[name], getattr(self, name), None))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: the rows as lists under "rows", and why there are no recalls of parts, if so."""
        return {"rows": [list(row) for row in self.rows()], "why_no_recalls": self.why_no_recalls}

    def __str__(self) -> str:
        """Return a table with one quantity a line."""
        width = max(len(title) for title, _, _ in self.rows())
        lines = []
        for title, value, half in self.rows():
            spread = "" if half is None else f" ± {half:.4f}"
            lines.append(f"{title:<{width}}  {value:.4f}{spread}")
        if self.why_no_recalls:
            lines.append(f"No recalls of parts: {self.why_no_recalls}.")
        return "\n".join(lines)


def theory_of_run(run: Run | str | Path, *, which: str = "best", seed: int = 0, trust: Any = ()) -> Theory:
    """Compute H-divergence, joint error, diversities and recalls of parts of a run, and write `theory.json`.

    The file is written into the folder of the run. The items that it was trained on are the seen ones, those of its
    test, or its queries, the unseen ones. Neighbors are compared by cosine. Classes with a single item are left out of
    the joint error, which learns from one half of each class.

    Parameters
    ----------
    run : Run, str or Path
        The run or its folder.
    which : {"best", "last"}
        Checkpoint to use.
    seed : int
        Seed of the generator that draws halves and parts.
    trust : str or collection of str
        Modules of your own that the settings of the run may name; their code is run.

    Returns
    -------
    Theory
        The quantities.

    Raises
    ------
    TrainError
        If there is no such run, or its data cannot be found.
    """
    folder, config = folder_and_config(run, trust)
    task = task_of(run)
    network = DeepMetric.load(run, which=which, trust=trust)
    seen = network.embed(task.train)
    unseen = network.embed(task.test)
    found = _measured(seen, task.train, unseen, task.test, config, seed)
    write_json(folder.path / THEORY, found.to_dict())
    return found


def _measured(
    seen: AnyArray, train: Dataset, unseen: AnyArray, test: Dataset, config: TrainConfig, seed: int
) -> Theory:
    recalls: dict[int, Interval] = {}
    why = ""
    try:
        recalls = subset_recall(unseen, test.labels, ks=config.ks, parts=PARTS, seed=seed)
    except ValueError as error:
        why = str(error).removeprefix("parts: ")
    paired_seen = _of_two(train.labels)
    paired_unseen = _of_two(test.labels)
    return Theory(
        recalls=recalls,
        why_no_recalls=why,
        h_divergence=h_divergence(seen, unseen, splits=RANDOM_HALVES, distance="cosine", seed=seed),
        joint_error=joint_error(
            seen[paired_seen],
            train.labels[paired_seen],
            unseen[paired_unseen],
            test.labels[paired_unseen],
            splits=RANDOM_HALVES,
            distance="cosine",
            seed=seed,
        ),
        diversity_seen=diversity(seen),
        diversity_unseen=diversity(unseen),
    )


def _of_two(labels: AnyArray) -> AnyArray:
    """Return which items have a class of two or more, (n,) bool."""
    return np.bincount(labels)[labels] >= 2
