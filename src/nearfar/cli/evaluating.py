"""``nearfar evaluate``: retrieval, verification and few-shot scores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ..trust import trusting
from .options import (
    DATA,
    FEW_SHOTS,
    RETRIEVAL,
    VERIFICATION,
    Label,
    Quiet,
    SkipBad,
    TestClasses,
    Trust,
    option,
)

FEW_SHOT = {"ways": 5, "shots": 1, "queries": 15, "episodes": 600, "classifier": "prototype"}

ONLY_WITH = {
    "pairs": ("verification",),
    "far": ("verification", "identification"),
    "ks": ("retrieval", "subsets"),
    "theory": ("retrieval",),
    "rerank": ("retrieval",),
    "group-by": ("retrieval",),
    "dims": ("retrieval",),
    "storage": ("retrieval",),
}


def few_shot(name: str) -> Parameter:
    """Return how an option of few-shot episodes is shown: in their group, with what holds where it is not given."""
    return option(name, FEW_SHOTS, FEW_SHOT)


def evaluate(
    source: Path,
    data: str | None = None,
    *,
    classes: TestClasses = (),
    label: Label = None,
    protocol: Literal[
        "retrieval", "subsets", "verification", "identification", "few-shot", "one-shot-runs"
    ] = "retrieval",
    ks: Annotated[tuple[int, ...], Parameter(name="--ks", show_default=False, group=RETRIEVAL)] = (),
    fars: Annotated[tuple[float, ...], Parameter(name="--far", show_default=False, group=VERIFICATION)] = (),
    pairs: Annotated[Path | None, Parameter(group=VERIFICATION)] = None,
    ways: Annotated[int | None, few_shot("ways")] = None,
    shots: Annotated[int | None, few_shot("shots")] = None,
    queries: Annotated[int | None, few_shot("queries")] = None,
    episodes: Annotated[int | None, few_shot("episodes")] = None,
    classifier: Annotated[Literal["prototype", "nearest", "scores"] | None, few_shot("classifier")] = None,
    skip_bad: SkipBad = False,
    seen_too: Annotated[bool, Parameter(name="--all", group=DATA)] = False,
    rerank: Annotated[str | None, Parameter(group=RETRIEVAL)] = None,
    group_by: Annotated[str | None, Parameter(group=RETRIEVAL)] = None,
    group_score: Annotated[Literal["best", "mean"], Parameter(group=RETRIEVAL)] = "best",
    dims: Annotated[tuple[int, ...], Parameter(name="--dims", show_default=False, group=RETRIEVAL)] = (),
    storage: Annotated[bool, Parameter(group=RETRIEVAL)] = False,
    theory: bool = False,
    trust: Trust = (),
    quiet: Quiet = False,
) -> None:
    """Score a run, a saved learner, or a file of embeddings.

    Example: nearfar evaluate runs/glyphs --protocol few-shot --ways 20 --shots 1

    Parameters
    ----------
    source
        The folder of a run (scored on its test classes), a learner saved as .safetensors, or an .npz, .parquet or
        .csv of embeddings and labels.
    data
        What to score a learner on, or a run on instead of its test classes; for one-shot-runs their folder or zip.
    classes
        Score on these classes only: names, or the beginning of names. Repeat for several.
    label
        The column that holds the classes of a table; by default `label`, or of rows also `class`, `target` or `y`.
    protocol
        Retrieval and clustering; Recall@K of ten disjoint parts with an interval, as in the JRD paper (subsets); pairs
        told apart by one threshold; queries named or rejected as of no class of the gallery; random few-shot episodes;
        Omniglot's one-shot runs.
    ks
        The K of Recall@K and precision@K, beside 1. Repeat for several; where not given those of the run, or
        1, 2, 4, 8.
    fars
        The false accept rates of verification and of identification. Repeat for several; where not given 0.1, 0.01 and
        0.001.
    pairs
        Verify only the pairs in this .csv, with the columns left, right (names of items), same (1 or 0) and perhaps
        fold; or in a pairs.txt of LFW.
    ways
        Classes of a few-shot episode.
    shots
        Support samples of each class.
    queries
        Query samples of each class.
    episodes
        Few-shot episodes.
    classifier
        Classify few-shot queries by the nearest class mean, the nearest support sample, or the highest score of
        the pair network that the run has trained.
    skip_bad
        Leave out images of DATA that cannot be decoded, and count them.
    seen_too
        Score the items of DATA too that were in the training of the run or the learner, which are otherwise left out.
    rerank
        Order the neighbors of each query with the help of other items: expand_queries, augment_gallery, k_reciprocal or
        csls, perhaps with settings, such as "k_reciprocal(k1=30)". Scores of a run are then not kept in it.
    group_by
        The column of the table that says of which product each photo is: queries rank products, not photos.
    group_score
        A product is as near as its best photo, or as its photos are in the mean.
    dims
        Score the first so many dimensions, such as one of the lengths of Matryoshka. Scores of a run are then not kept
        in it. With --storage repeat it for several lengths.
    storage
        Score the embeddings as they would be stored: as float32, float16, numbers of 8 bits and signs, and prefixes of
        them; against the bytes that each takes.
    theory
        Of a run, also print the H-divergence and the joint error of seen and unseen classes, their diversity, and
        Recall@K of ten disjoint parts of the test; its report then shows them.
    trust
        Modules of your own that the settings of a run may name, such as mynets: their code runs. Repeat for several.
    quiet
        Print nothing but errors.
    """
    options: dict[str, object] = {"pairs": pairs, "far": fars, "ks": ks, "rerank": rerank, "group-by": group_by}
    check_protocol(protocol, options | {"dims": dims, "storage": storage, "theory": theory})
    if theory and data is not None:
        raise ValueError("--theory: compares the training classes of a run with its test classes; leave DATA out")
    if label is not None and protocol == "one-shot-runs":
        raise ValueError("--label: not with --protocol one-shot-runs, which are no table")
    from .embedding import choose

    given = {"ways": ways, "shots": shots, "queries": queries, "episodes": episodes, "classifier": classifier}
    given = {name: value for name, value in given.items() if value is not None}
    if given and protocol != "few-shot":
        raise ValueError(f"--{next(iter(given))}: only with --protocol few-shot")
    how: dict[str, Any] = {"seen_too": seen_too, "group_by": group_by, "group_score": group_score}
    chosen = choose(data, classes, label=label, skip_bad=skip_bad, files=[source], **how)
    with trusting(*trust):
        if protocol == "retrieval":
            from .scoring import Variant, score

            lines = score(source, chosen, ks, Variant(rerank, dims, storage))
            if theory:
                from .theory import score_theory

                lines = f"{lines}\n\n{score_theory(source)}"
        elif protocol == "subsets":
            from .theory import score_subsets

            lines = score_subsets(source, chosen, ks)
        elif protocol == "verification":
            from .verification import score_verification

            lines = score_verification(source, chosen, pairs, fars)
        elif protocol == "identification":
            from .verification import score_identification

            lines = score_identification(source, chosen, fars)
        else:
            from .few_shot import score_few_shot

            lines = score_few_shot(protocol, source, chosen, FEW_SHOT | given)
    if not quiet:
        print(lines)


def check_protocol(protocol: str, given: Mapping[str, object]) -> None:
    """Refuse options that are given and that a protocol has no use for."""
    for name, value in given.items():
        if value and protocol not in ONLY_WITH[name]:
            raise ValueError(f"--{name}: only with --protocol {' or '.join(ONLY_WITH[name])}")
