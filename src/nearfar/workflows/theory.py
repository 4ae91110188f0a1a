"""Measures of generalization, and recalls of test parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..evaluation.intervals import PARTS, subset_recall
from ..io.sources import SourceKind, kind_of
from ..models.embedded import Selection, embed_source
from .outcome import Outcome

NOT_WHOLE = "Each part is searched separately, so do not compare these recalls with those of the whole test."


def score_theory(source: Path) -> Outcome:
    """Return H-divergence, joint error and diversities of a run, and write them into its folder."""
    from ..train.papers.theory import theory_of_run

    found = theory_of_run(source)
    return Outcome(str(found), found.to_dict())


def score_subsets(source: Path, selection: Selection, ks: Sequence[int]) -> Outcome:
    """Return Recall@K of ten disjoint parts of the items, each with every class, as a mean with its 95% interval."""
    embedded = embed_source(source, selection)
    if embedded.gallery is not None:
        raise ValueError("protocol=subsets: does not work if queries search a gallery; use protocol=retrieval")
    wanted = sorted({1, *ks}) if ks else _ks_of(source)
    found = subset_recall(
        embedded.rows,
        embedded.dataset.labels,
        ks=tuple(wanted),
        parts=PARTS,
        distance=embedded.distance,
    )
    lines = [f"Recall@{k:<4} {one}" for k, one in found.items()]
    how = f"{PARTS} disjoint parts, mean and 95% interval, {embedded.distance} distance."
    about = f"{embedded.about()} {how}"
    recalls = {f"Recall@{k}": {"mean": one.mean, "interval_95": one.half} for k, one in found.items()}
    data = {"protocol": about, "scores": recalls | {"distance": embedded.distance}}
    return Outcome("\n".join([about, "", *lines, "", NOT_WHOLE]), data)


def _ks_of(source: Path) -> Sequence[int]:
    if kind_of(source) is not SourceKind.RUN:
        return (1, 2, 4, 8)
    from ..train import TrainConfig

    return TrainConfig.from_json(source / "config.json").ks
