"""``nearfar evaluate``: retrieval, verification and few-shot scores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ..io.atomic_files import atomic_write
from ..io.untrusted import images_from
from ..trust import trusting
from .encoding import say
from .options import (
    DATA,
    FEW_SHOTS,
    MEASURED,
    RETRIEVAL,
    RUN,
    VERIFICATION,
    Distance,
    ItemOptions,
    Overwrite,
    Quiet,
    Trust,
    with_default,
)
from .outputs import check_out

Measured = Literal["retrieval", "subsets", "verification", "identification", "few-shot", "one-shot-runs"]

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
    "no-clustering": ("retrieval",),
    "plain-clustering": ("retrieval",),
    **dict.fromkeys(FEW_SHOT, ("few-shot",)),
}
"""The protocols that use an option."""


group_score_help = with_default("best", RETRIEVAL)


def few_shot(name: str) -> Parameter:
    """Return the help of an option of few-shot episodes: its group, and its default."""
    return with_default(FEW_SHOT[name], FEW_SHOTS) if name in FEW_SHOT else Parameter(group=FEW_SHOTS)


def evaluate(
    source: Path,
    data: str | None = None,
    *,
    classes: Annotated[tuple[str, ...], Parameter(name="--test-class", show_default=False, group=DATA)] = (),
    items: ItemOptions = ItemOptions(),
    protocol: Annotated[Measured, Parameter(group=MEASURED)] = "retrieval",
    distance: Distance = None,
    ks: Annotated[tuple[int, ...], Parameter(name="--ks", show_default=False, group=RETRIEVAL)] = (),
    fars: Annotated[tuple[float, ...], Parameter(name="--far", show_default=False, group=VERIFICATION)] = (),
    pairs: Annotated[Path | None, Parameter(group=VERIFICATION)] = None,
    ways: Annotated[int | None, few_shot("ways")] = None,
    shots: Annotated[int | None, few_shot("shots")] = None,
    queries: Annotated[int | None, few_shot("queries")] = None,
    episodes: Annotated[int | None, few_shot("episodes")] = None,
    classifier: Annotated[Literal["prototype", "nearest", "scores"] | None, few_shot("classifier")] = None,
    seen_too: Annotated[bool, Parameter(name="--all", group=DATA)] = False,
    rerank: Annotated[str | None, Parameter(group=RETRIEVAL)] = None,
    group_by: Annotated[str | None, Parameter(group=RETRIEVAL)] = None,
    group_score: Annotated[Literal["best", "mean"] | None, group_score_help] = None,
    dims: Annotated[tuple[int, ...], Parameter(name="--dims", show_default=False, group=RETRIEVAL)] = (),
    storage: Annotated[bool, Parameter(group=RETRIEVAL)] = False,
    theory: Annotated[bool, Parameter(group=RETRIEVAL)] = False,
    clustering: Annotated[bool, Parameter(negative="--no-clustering", group=RETRIEVAL)] = True,
    plain_clustering: Annotated[bool, Parameter(negative="", group=RETRIEVAL)] = False,
    trust: Trust = (),
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], group=RUN)] = None,
    overwrite: Overwrite = False,
    json: Annotated[bool, Parameter(group=RUN)] = False,
    quiet: Quiet = False,
) -> None:
    """Score a run, a saved learner, or a file of embeddings.

    Example: nearfar evaluate runs/glyphs --protocol few-shot --ways 20 --shots 1

    Parameters
    ----------
    source
        The folder of a run (scored on its test classes), a learner saved as .safetensors, or an .npz, .parquet,
        .csv or a folder of embeddings and labels.
    data
        Data to score a learner on, or to use instead of the test classes of a run; for one-shot-runs, their folder or
        zip.
    classes
        Score these classes only: a name, or the beginning of names. Repeat for several.
    protocol
        retrieval: nearest neighbors and clustering; subsets: Recall@K of ten disjoint parts with an interval, as in the
        JRD paper; verification: same class or not, by one threshold; identification: queries are assigned to a class
        of the gallery, or rejected; few-shot: random episodes; one-shot-runs: those of Omniglot.
    distance
        Compare embeddings by this distance: cosine or euclidean. By default, a learner has the one that `nearfar fit`
        chose for it, runs and embeddings cosine, and tables with one column per measurement euclidean.
    ks
        K of Recall@K and precision@K, besides 1. Repeat for several; by default those of the run, or 1, 2, 4, 8.
    fars
        False accept rate of verification and identification. Repeat for several; by default 0.1, 0.01 and 0.001.
    pairs
        Verify only the pairs in this .csv, with the columns left and right (names of items), same (1 or 0) and
        optionally fold; in a pairs.txt like that of LFW; or in a list of trials, such as "1 left right" or "left right
        target" in each line. The items then need no classes.
    ways
        Number of classes of a few-shot episode.
    shots
        Number of support items of each class.
    queries
        Number of query items of each class.
    episodes
        Number of few-shot episodes.
    classifier
        Classify few-shot queries by the nearest class mean, the nearest support item, or the highest score of the
        pair network of the run.
    seen_too
        Include items of DATA that the run or the learner was trained on; by default they are left out.
    rerank
        Re-rank the neighbors of each query with the help of other items: expand_queries, augment_gallery, k_reciprocal
        or csls, with settings if needed, such as "k_reciprocal(k1=30)". These scores are not stored in the run.
    group_by
        Column of the table that says which product each photo shows: queries rank products instead of photos.
    group_score
        Distance of a product: that of its nearest photo (best), or the mean over its photos (mean).
    dims
        Score only this many leading dimensions, such as one of the lengths of Matryoshka. These scores are not stored
        in the run. Repeat for several lengths with --storage.
    storage
        Compare the scores and the bytes per item of stored forms of the embeddings: float32, float16, int8 and binary
        codes, and prefixes of them.
    theory
        For a run, also print and add to its report the H-divergence and the joint error of seen and unseen classes,
        their diversity, and Recall@K of ten disjoint parts of the test.
    clustering
        Also cluster the embeddings, for NMI, AMI and F1; --no-clustering takes about half of the time.
    plain_clustering
        Cluster by k-means without the steps that improve it, as most papers do.
    out
        Also write the scores, their protocol and the scores of the raw rows to this .json file.
    json
        Print these as JSON instead of a table.
    """
    if out is not None:
        check_json_file(out, overwrite=overwrite)
    options: dict[str, Any] = {"pairs": pairs, "far": fars, "ks": ks, "rerank": rerank, "group-by": group_by}
    options |= {"dims": dims, "storage": storage, "theory": theory, "no-clustering": not clustering}
    check_protocol(protocol, options | {"plain-clustering": plain_clustering})
    if plain_clustering and not clustering:
        raise ValueError("--plain-clustering: does not work with --no-clustering")
    if group_score is not None and group_by is None:
        raise ValueError("--group-score: works only with --group-by COLUMN, which names the products")
    if theory:
        check_theory(source, data)
    check_distance(distance, protocol, classifier)
    if items.label is not None and protocol == "one-shot-runs":
        raise ValueError("--label: does not work with --protocol one-shot-runs, which does not read a table")
    from ..workflows.evaluating import evaluate as score
    from ..workflows.outcome import as_json
    from .selecting import select_items

    episode_options = {"ways": ways, "shots": shots, "queries": queries, "episodes": episodes, "classifier": classifier}
    given = {name: value for name, value in episode_options.items() if value is not None}
    check_protocol(protocol, given)
    how: dict[str, Any] = {"seen_too": seen_too, "distance": distance}
    how |= {"group_by": group_by, "group_score": group_score or "best"}
    selection = select_items(
        data, classes, label=items.label, name=items.name, skip_bad=items.skip_bad, files=[source], **how
    )
    chosen: dict[str, Any] = {
        "clustering": "plain" if plain_clustering else clustering,
        "ks": ks,
        "rerank": rerank,
        "dims": dims,
        "storage": storage,
        "theory": theory,
    }
    chosen |= {"fars": fars, "pairs": pairs, **given}
    with images_from(*items.images), trusting(*trust):
        found = score(source, selection, protocol=protocol, **chosen)
    if out is not None:
        with atomic_write(out) as file:
            file.write(f"{as_json(found.data)}\n".encode())
    if not quiet:
        say(as_json(found.data) if json else found.text)


def check_json_file(out: Path, *, overwrite: bool) -> None:
    """Refuse a file for the scores that cannot be written, before anything is scored."""
    if out.suffix != ".json":
        raise ValueError(f"--out: {out}: expected a file that ends in .json")
    check_out(out, overwrite=overwrite)


def check_theory(source: Path, data: str | None) -> None:
    """Refuse the measures of theory for anything but the test of a run."""
    from ..io.sources import SourceKind, kind_of

    if kind_of(source) is not SourceKind.RUN:
        raise ValueError(f"--theory: expected a run, which has seen and unseen classes, got {source}")
    if data is not None:
        raise ValueError("--theory: compares the training classes of a run with its test classes, so leave DATA out")


def check_distance(distance: str | None, protocol: str, classifier: str | None) -> None:
    """Refuse a distance where none is used, or where it is that of the published protocol."""
    if distance is None:
        return
    if protocol == "one-shot-runs":
        raise ValueError("--distance: does not work with --protocol one-shot-runs, which compares by cosine")
    if classifier == "scores":
        raise ValueError("--distance: does not work with --classifier scores, which is a network and no distance")


def check_protocol(protocol: str, given: Mapping[str, object]) -> None:
    """Refuse given options that a protocol does not use."""
    for name, value in given.items():
        if value and protocol not in ONLY_WITH[name]:
            raise ValueError(f"--{name}: works only with --protocol {' or '.join(ONLY_WITH[name])}")
