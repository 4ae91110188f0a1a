"""Scores of a run, a learner or a file of embeddings by any protocol."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ..models.embedded import Selection
from . import theory as theories
from .outcome import Outcome

EvaluationProtocol = Literal["retrieval", "subsets", "verification", "identification", "few-shot", "one-shot-runs"]


def evaluate(
    source: str | os.PathLike[str],
    selection: Selection | None = None,
    *,
    protocol: EvaluationProtocol = "retrieval",
    ks: Sequence[int] = (),
    rerank: str | None = None,
    dims: Sequence[int] = (),
    storage: bool = False,
    theory: bool = False,
    clustering: bool | str = True,
    fars: Sequence[float] = (),
    pairs: Path | None = None,
    ways: int = 5,
    shots: int = 1,
    queries: int = 15,
    episodes: int = 600,
    classifier: Literal["prototype", "nearest", "scores"] = "prototype",
) -> Outcome:
    """Score a run, a saved learner or a file of embeddings, as `nearfar evaluate` does.

    Parameters
    ----------
    source : path-like
        The folder of a run, a learner saved as .safetensors, or a file of embeddings and labels.
    selection : Selection, optional
        Which items are scored, such as ``Selection(data="photos/")``. By default, the test classes of a run, or all
        items of a file.
    protocol : str
        "retrieval" scores nearest neighbors and clustering, "subsets" Recall@K of ten disjoint parts, "verification"
        and "identification" distances by thresholds, "few-shot" random episodes, and "one-shot-runs" those of Omniglot.
    ks : sequence of int
        K of Recall@K besides 1, for "retrieval" and "subsets".
    rerank, dims, storage, theory
        Other scores for "retrieval": neighbors that are re-ranked, leading dimensions alone, stored forms, and the
        generalization of a run.
    clustering : bool or "plain"
        Whether "retrieval" clusters the embeddings, for NMI, AMI and F1, which takes about half of the time.
    fars : sequence of float
        False accept rates, for "verification" and "identification".
    pairs : Path, optional
        File of the pairs to verify.
    ways, shots, queries, episodes, classifier
        As for `nearfar.evaluation.few_shot`; "scores" classifies by the pair network of a run.

    Returns
    -------
    Outcome
        The `text` that the command prints, and the same scores as `data`.

    Examples
    --------
    >>> print(evaluate("runs/photos").text)  # doctest: +SKIP
    """
    from . import few_shot, scoring, verification

    path = Path(source)
    chosen = selection or Selection()
    if protocol == "retrieval":
        found = scoring.score(path, chosen, ks, scoring.Variant(rerank, dims, storage), clustering=clustering)
        if not theory:
            return found
        more = theories.score_theory(path)
        return Outcome(f"{found.text}\n\n{more.text}", found.data | {"theory": more.data})
    if protocol == "subsets":
        return theories.score_subsets(path, chosen, ks)
    if protocol == "verification":
        return verification.score_verification(path, chosen, pairs, fars)
    if protocol == "identification":
        return verification.score_identification(path, chosen, fars)
    settings = {"ways": ways, "shots": shots, "queries": queries, "episodes": episodes, "classifier": classifier}
    return few_shot.score_few_shot(protocol, path, chosen, settings)
