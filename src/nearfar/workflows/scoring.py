"""Scores of a run, a saved learner or a file of embeddings, by nearest neighbors and clustering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..data import Dataset
from ..data.dataset import UNKNOWN_CLASS
from ..data.items import flat_rows
from ..data.located import local_embeddings
from ..evaluation import Scores
from ..evaluation import evaluate as evaluate_embeddings
from ..evaluation.reranking import read_reranking
from ..evaluation.storage import storage_scores, table_of
from ..evaluation.worse import both_scores, is_worse
from ..io.scores_file import RAW
from ..io.sources import SourceKind, kind_of, name_of
from ..models.embedded import Embedded, Selection, embed_source, reconstruction, usual_distance
from ..numerics.types import AnyArray
from ..train import TrainConfig
from .outcome import Outcome

if TYPE_CHECKING:
    from ..train import Run
    from ..train.rungs.closed_forms import FittedForm


@dataclass(frozen=True)
class Scored:
    """Embedded items and their scores.

    Attributes
    ----------
    title, protocol : heading, and one sentence on data and split
    embedded : the items, what they search, and the embeddings of both
    scores, raw : of the embeddings, and of the items themselves where they can be compared
    """

    title: str
    protocol: str
    embedded: Embedded
    scores: Scores
    raw: Scores | None


class Variant(NamedTuple):
    """Other ways to score embeddings, which are printed together with the usual scores.

    Attributes
    ----------
    rerank : method that re-ranks neighbors with the help of other items
    dims : numbers of leading dimensions
    storage : whether stored forms of the embeddings are compared
    """

    rerank: str | None = None
    dims: Sequence[int] = ()
    storage: bool = False

    def check(self) -> None:
        """Refuse options that do not work together, before anything is embedded."""
        if self.rerank is not None:
            read_reranking(self.rerank)
        if self.storage and self.rerank is not None:
            raise ValueError("storage: does not work with rerank=; give only one of them")
        if len(self.dims) > 1 and not self.storage:
            raise ValueError("dims: expected one length; several lengths work only with storage=")


def score(
    source: Path,
    selection: Selection,
    ks: Sequence[int] = (),
    variant: Variant | None = None,
    *,
    clustering: bool | str = True,
) -> Outcome:
    """Return the scores of a source; for a run on its test classes, also write `scores.json`.

    Scores of a variant are only printed, together with the usual scores. `clustering` is as for `evaluate`.
    """
    source = local_embeddings(source)
    if variant is not None and any(variant):
        return score_variant(source, selection, ks, variant)
    if kind_of(source) is SourceKind.RUN and selection.all_of_run:
        return score_run(source, ks, clustering=clustering)
    scored = score_data(source, selection, ks, clustering=clustering)
    text = _table(scored.protocol, scored.scores, scored.raw, name_of_raw(scored.embedded.dataset))
    return Outcome(text, _data(scored.protocol, scores=scored.scores, baseline=scored.raw))


def score_run(run: Run | Path, ks: Sequence[int] = (), *, clustering: bool | str = True) -> Outcome:
    """Score a run on its test classes, write `scores.json`, and return the table to print and its data."""
    from ..train import evaluate_run

    result = evaluate_run(run, ks=ks, clustering=clustering)
    in_table = result.scores.why_unscored()
    others = [remark for remark in result.remarks if remark != in_table]
    if result.images_to_texts is not None:
        tables = _pair_tables(result.protocol, result.scores, result.images_to_texts)
        found = _data(result.protocol, scores=result.scores, images_to_texts=result.images_to_texts)
    else:
        first = [result.kept] if result.kept else []
        tables = [*first, _table(result.protocol, result.scores, result.baseline, result.baseline_name)]
        found = _data(result.protocol, scores=result.scores, baseline=result.baseline)
    found |= {"kept": result.kept, "remarks": list(result.remarks)}
    return Outcome("\n".join([*tables, *_listed(others)]), found)


def _data(protocol: str, **scores: Scores | None) -> dict[str, Any]:
    """Return the protocol and the scores that there are as plain data."""
    return {"protocol": protocol} | {name: one.to_dict() for name, one in scores.items() if one is not None}


def _pair_tables(protocol: str, texts_to_images: Scores, images_to_texts: Scores) -> list[str]:
    """Return the lines of the scores of texts that search images, and of images that search texts."""
    first = ["text to image", str(texts_to_images)]
    second = ["image to text", str(images_to_texts)]
    return [protocol, "", *first, "", *second]


def score_variant(source: Path, selection: Selection, ks: Sequence[int], variant: Variant) -> Outcome:
    """Return the table of the scores of a variant, and a line with the usual scores."""
    variant.check()
    embedded = embed_source(source, selection)
    check_classes(source, embedded)
    dataset = embedded.dataset
    how = _keywords(source, embedded, ks) | {"gallery_labels": embedded.gallery_labels} | embedded.groups()
    how |= {"gallery": embedded.gallery_rows}
    if variant.storage:
        options = {name: value for name, value in how.items() if name not in ("ks", "seed")}
        found = storage_scores(embedded.rows, dataset.labels, dims=variant.dims, **options)
        rows = [one.to_dict() for one in found]
        about = embedded.about()
        data = {"protocol": about, "distance": embedded.distance, "storage": rows}
        return Outcome(f"{about}\n\n{table_of(found)}\n\n{embedded.distance} distance", data)
    how["clustering"] = False
    dims = variant.dims[0] if variant.dims else None
    scores = evaluate_embeddings(embedded.rows, dataset.labels, **how, rerank=variant.rerank, dims=dims)
    table = _table(embedded.about(), scores, None)
    if scores.why_unscored():
        return Outcome(table, _data(embedded.about(), scores=scores))
    plain = evaluate_embeddings(embedded.rows, dataset.labels, **how)
    what = "without re-ranking" if variant.rerank is not None else f"all {embedded.rows.shape[1]} dimensions"
    return Outcome(f"{table}\n\n{_beside(what, plain)}", _data(embedded.about(), scores=scores, plain=plain))


def check_classes(source: Path, embedded: Embedded) -> None:
    """Raise a ValueError if no item has a class."""
    if embedded.dataset.classes == (UNKNOWN_CLASS,):
        raise ValueError(f"{source}: its items have no class; expected labels, which scores need")


def _listed(remarks: Sequence[str]) -> list[str]:
    return ["", *(f"- {remark}" for remark in remarks)] if remarks else []


def _table(protocol: str, scores: Scores, baseline: Scores | None, name: str = RAW) -> str:
    lines = [protocol, "", str(scores)]
    if baseline is not None and not scores.why_unscored():
        lines += ["", _beside(f"baseline ({name})", baseline)]
    return "\n".join(lines)


def _beside(what: str, scores: Scores) -> str:
    return f"{what}: Recall@1 {scores.recall_at[1]:.4f}, MAP@R {scores.map_at_r:.4f} ({scores.distance} distance)"


def score_data(source: Path, selection: Selection, ks: Sequence[int] = (), *, clustering: bool | str = True) -> Scored:
    """Embed and score data with a run or a learner, or score a file of embeddings.

    Raises
    ------
    ValueError
        If there is nothing to score, or the source does not exist.
    """
    embedded = embed_source(source, selection)
    check_classes(source, embedded)
    how = _keywords(source, embedded, ks)
    return _scored(_title(source, embedded), embedded, how, clustering=clustering)


def _title(source: Path, embedded: Embedded) -> str:
    """Return what is scored: the name of a run or a file, or a learner with its settings."""
    kind = kind_of(source)
    if kind is SourceKind.EMBEDDINGS:
        return source.stem
    return repr(embedded.model) if kind is SourceKind.LEARNER else name_of(source)


def score_learner(
    learner: Any,
    dataset: Dataset,
    gallery: Dataset | None = None,
    deviations: AnyArray | None = None,
    form: FittedForm | None = None,
    *,
    standardized: bool = False,
) -> str:
    """Score a learner on items, which search the gallery or each other, and return the table to print.

    A line has the score of columns that are only divided by their `deviations`, if there are any, as they were before
    the learner if it is `standardized`; another one has that of a closed `form` which the training rows choose.
    """
    gallery_rows = None if gallery is None else learner.embed(gallery)
    embedded = Embedded(dataset, learner.embed(dataset), learner.distance, learner, gallery, gallery_rows)
    scored = _scored(repr(learner), embedded, {"distance": learner.distance})
    table = _table(scored.protocol, scored.scores, scored.raw, name_of_raw(dataset))
    if scored.scores.why_unscored():
        return table
    lines = [table]
    how: dict[str, Any] = {"gallery_labels": embedded.gallery_labels} | embedded.groups()
    rows = flat_rows(dataset)
    searched = None if gallery is None else flat_rows(gallery)
    remarks = []
    if not standardized:
        remarks += _worse(scored.scores, scored.raw, "Without the learner, the raw inputs give better neighbors")
    if deviations is not None:
        how["distance"] = "euclidean"  # of standardized columns, whose cosine depends on their means
        reached = None if searched is None else searched / deviations
        plain = evaluate_embeddings(rows / deviations, dataset.labels, gallery=reached, **how, clustering=False)
        lines.append(_beside("standardized, without a learner", plain))
        remarks += _worse(scored.scores, plain, "Without the learner, the standardized inputs give better neighbors")
    if form is not None:
        how["distance"] = "cosine"
        reached = None if searched is None else form.map(searched)
        simpler = evaluate_embeddings(form.map(rows), dataset.labels, gallery=reached, **how, clustering=False)
        title = f"{inputs_of(dataset)}, {form.title}"
        lines.append(_beside(f"closed form ({title})", simpler))
        remarks += _worse(scored.scores, simpler, f"A closed form ({title}) gives better neighbors", form.options)
    return "\n".join([*lines, *_listed(remarks)])


def name_of_raw(dataset: Dataset) -> str:
    """Return what the inputs of a learner are called: those of a table of cells are its encoded columns."""
    return RAW if dataset.cells is None else "encoded columns"


def inputs_of(dataset: Dataset) -> str:
    """Return what items are called that no model has embedded."""
    return dataset.title_of_raw


def _worse(scores: Scores, simpler: Scores | None, what: str, options: str = "") -> list[str]:
    """Return a remark on a learner that is worse than its inputs, or than a learner with other options, or nothing."""
    if simpler is None or not is_worse(scores, simpler):
        return []
    use = f"fit a learner like it (`nearfar fit DATA {options}`)" if options else "use these"
    others = f"{use}, or try another learner or other settings"
    return [f"{what} ({both_scores(scores, simpler)}): {others}."]


def _scored(title: str, embedded: Embedded, how: dict[str, Any], *, clustering: bool | str = True) -> Scored:
    dataset = embedded.dataset
    how = how | {"gallery_labels": embedded.gallery_labels} | embedded.groups()
    scores = evaluate_embeddings(
        embedded.rows, dataset.labels, gallery=embedded.gallery_rows, **how, clustering=clustering
    )
    scores = _with_relevance(scores, embedded, embedded.rows, embedded.gallery_rows)
    if embedded.model is None:
        return Scored(title, embedded.about(), embedded, scores, None)
    about = embedded.about() + reconstruction(embedded.model, dataset, "these items")
    how["distance"] = getattr(embedded.model, "distance_of_rows_", usual_distance(dataset))
    return Scored(f"{title} on {dataset.name}", about, embedded, scores, _raw_scores(embedded, how))


def _keywords(source: Path, embedded: Embedded, ks: Sequence[int]) -> dict[str, Any]:
    """Return the keywords of `evaluate` for a source; parts of a run's test are scored like the whole test."""
    how: dict[str, Any] = {"distance": embedded.distance}
    if kind_of(source) is SourceKind.RUN:
        config = TrainConfig.from_json(source / "config.json")
        how |= {"ks": config.ks, "seed": config.seed}
    return how | ({"ks": sorted({1, *ks})} if ks else {})


def _raw_scores(embedded: Embedded, how: dict[str, Any]) -> Scores | None:
    """Return the scores of the raw inputs; None if they are not in memory."""
    rows = _flat(embedded.dataset)
    gallery = None if embedded.gallery is None else _flat(embedded.gallery)
    if rows is None or (gallery is None) != (embedded.gallery is None):
        return None
    scores = evaluate_embeddings(rows, embedded.dataset.labels, gallery=gallery, **how, clustering=False)
    return _with_relevance(scores, embedded, rows, gallery)


def _with_relevance(scores: Scores, embedded: Embedded, rows: AnyArray, gallery_rows: AnyArray | None) -> Scores:
    """Return scores with those by labels in common, by level and of listed pairs, if items have these."""
    dataset = embedded.dataset
    if dataset.class_labels is None and dataset.listed is None:
        return scores
    from ..train.relevance import Searched, with_relevance  # for start-up time

    searched = None
    if embedded.gallery is not None and gallery_rows is not None:
        searched = Searched(embedded.gallery, gallery_rows)
    return with_relevance(scores, dataset, rows, searched)


def _flat(dataset: Dataset) -> np.ndarray[Any, Any] | None:
    """Return the raw inputs as rows if they are in memory, else None."""
    if dataset.array is None:
        return None
    return dataset.array.reshape(len(dataset), -1)
