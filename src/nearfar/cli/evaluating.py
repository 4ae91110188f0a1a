"""``nearfar evaluate``: retrieval, verification and few-shot scores."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from .settings import TestClasses


def evaluate(
    source: Path,
    data: str | None = None,
    *,
    classes: TestClasses = (),
    protocol: Literal["retrieval", "verification", "few-shot", "one-shot-runs"] = "retrieval",
    pairs: Path | None = None,
    ways: int = 5,
    shots: int = 1,
    queries: int = 15,
    episodes: int = 600,
    classifier: Literal["prototype", "nearest", "scores"] = "prototype",
    quiet: bool = False,
) -> None:
    """Score a run, a saved learner, or an .npz of embeddings.

    Example: nearfar evaluate runs/glyphs --protocol few-shot --ways 20 --shots 1

    Parameters
    ----------
    source
        The folder of a run (scored on its test classes), a learner saved as .safetensors, or an .npz with embeddings
        and labels.
    data
        What to score a learner on, or a run on instead of its test classes; for one-shot-runs their folder or zip.
    classes
        Score on these classes only: names, or the beginning of names. Repeat for several.
    protocol
        Retrieval and clustering; pairs told apart by one threshold; random few-shot episodes; Omniglot's one-shot runs.
    pairs
        Verify only the pairs in this .csv, with the columns left, right (names of items) and same (1 or 0).
    ways
        Classes of a few-shot episode.
    shots
        Support samples of each class.
    queries
        Query samples of each class.
    episodes
        Few-shot episodes.
    classifier
        Of few-shot queries: the nearest class mean, the nearest support sample, or the highest score of the network
        of pairs that the run has trained.
    quiet
        Print nothing but errors.
    """
    if pairs is not None and protocol != "verification":
        raise ValueError("--pairs: only with --protocol verification")
    if protocol == "retrieval":
        from .scoring import score

        lines = score(source, data, classes)
    elif protocol == "verification":
        from .verification import score_verification

        lines = score_verification(source, data, classes, pairs)
    else:
        from .few_shot import score_few_shot

        how = {"ways": ways, "shots": shots, "queries": queries, "episodes": episodes, "classifier": classifier}
        lines = score_few_shot(protocol, source, data, classes, how)
    if not quiet:
        print(lines)
