"""An HTML page on a run, a saved learner or a file of embeddings."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.checks.training_items import warnings_on_scores
from ..data.items import NamedReader, flat_rows
from ..data.table_columns import named_columns
from ..estimators.explanation import anatomy, explain
from ..io.sources import SourceKind, has_embeddings, kind_of, name_of
from ..models.embedded import Selection, recorded
from ..progress import stage
from .fitting import is_linear
from .search_results import ignore

if TYPE_CHECKING:
    from ..data import Dataset
    from ..models.embedded import Embedded
    from ..report import Items, Other
    from ..report.content import FeatureWeights, Reader

TRIED_NAMES = 100  # names to try as paths of images; if none is one, the page has no pictures
REFITS = 20  # fits on random halves of the rows, for the intervals of the weights of features
MOST_REFITTED = 1000  # maximum number of rows of these fits
MOST_WEIGHED = 200  # maximum number of features


def report(
    source: str | Path,
    selection: Selection | None = None,
    out: Path | None = None,
    against: Path | None = None,
    on_outside: Callable[[NamedReader], None] = ignore,
) -> Path:
    """Write the report of a run, a learner or a file of embeddings, and return its path."""
    from ..report import ReportContent, build_report, report_run
    from .scoring import score_data

    source = Path(source)
    selection = selection or Selection()
    whole_run = kind_of(source) is SourceKind.RUN and selection.data is None and selection.distance is None
    if whole_run and (against is None or kind_of(against) is SourceKind.RUN):
        from .attention import attention_of

        return report_run(source, out, attention=attention_of(source), against=against, defaults=default_settings())
    scored = score_data(source, selection)
    dataset = scored.embedded.dataset
    queries, gallery = report_items(scored.embedded, of=source, on_outside=on_outside)
    content = ReportContent(
        title=scored.title,
        protocol=scored.protocol,
        scores=scored.scores,
        baseline=scored.raw,
        baseline_name=dataset.title_of_raw,
        queries=queries,
        gallery=gallery,
        distance=scored.scores.distance,
        remarks=[*filter(None, [scored.scores.why_unscored()]), *warnings_on_scores(dataset)],
        other=None if against is None else score_other(against, selection),
        features=feature_weights(scored.embedded.model, dataset),
    )
    return build_report(content, out or beside(source, dataset, selection, against))


def default_settings() -> dict[str, Any]:
    """Return the default settings of a training."""
    from ..train import TrainConfig

    defaults = TrainConfig.of(data="digits").to_dict()
    del defaults["data"]
    return defaults


def feature_weights(learner: Any, dataset: Dataset) -> FeatureWeights | None:
    """Return the weights of the features of a table in a saved linear metric; None for anything else."""

    from ..report.content import FeatureWeights

    if dataset.kind != "row" or not is_linear(learner) or not hasattr(learner, "get_mahalanobis_matrix"):
        return None
    dataset = dataset.in_columns(named_columns(learner), "the learner")
    rows = np.asarray(flat_rows(dataset), dtype=np.float64)
    n, d = rows.shape
    if d > MOST_WEIGHED:
        return None
    if n > MOST_REFITTED:
        drawn = np.sort(np.random.default_rng(0).choice(n, MOST_REFITTED, replace=False))
        rows = rows[drawn]
        labels = dataset.labels[drawn]
    else:
        labels = dataset.labels
    names = [*dataset.columns] or [f"x{k}" for k in range(d)]
    # a learner that was fitted on standardized columns is fitted on standardized columns again
    scale = np.asarray(getattr(learner, "column_scale_", np.ones(d)))
    learner.components_ = learner.components_ * scale
    weights, _, _ = anatomy(learner.get_mahalanobis_matrix(), (rows / scale).std(axis=0), 1)
    try:
        with stage("weighing features"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the original fit has already given them
            found = explain(learner, rows / scale, labels, prefit=True, n_directions=1, n_fits=REFITS)
    except (ValueError, ArithmeticError):  # there are too few rows or classes for halves
        return FeatureWeights(names, weights)
    return FeatureWeights(names, found.weights, found.low, found.high, REFITS)


def score_other(source: Path, selection: Selection) -> Other:
    """Score the other run, learner or file of embeddings on the same data."""
    from ..report import Other
    from .scoring import score_data

    if has_embeddings(source):
        selection = replace(selection, data=None)
    scored = score_data(source, selection)
    return Other(short_name(source), scored.scores, *report_items(scored.embedded), scored.scores.distance)


def report_items(
    embedded: Embedded, of: Path | None = None, on_outside: Callable[[NamedReader], None] = ignore
) -> tuple[Items, Items | None]:
    """Return queries and gallery, if any; `of` is the source of the items, for their pictures."""
    from ..report import Items

    def items(dataset: Dataset, rows: np.ndarray[Any, Any]) -> Items:
        read = None if of is None else pictures_of(of, dataset, on_outside)
        return Items(
            embeddings=rows,
            labels=dataset.labels,
            classes=dataset.classes,
            names=dataset.names,
            read=read,
            groups=dataset.groups,
        )

    queries = embedded.dataset
    rows = embedded.rows
    gallery = embedded.gallery
    gallery_rows = embedded.gallery_rows
    if gallery is None or gallery_rows is None:
        return items(queries, rows), None
    return items(queries, rows), items(gallery, gallery_rows)


def pictures_of(source: Path, dataset: Dataset, on_outside: Callable[[NamedReader], None] = ignore) -> Reader:
    """Return a function that reads items for their pictures.

    Names in a file of embeddings may be paths of images, relative to the folder of the file, to the current folder, or
    to the folder in which `nearfar embed` found the images. Only files below the folder of the file and those of
    `images_from` are read.
    """
    if has_embeddings(source):
        folders = dict.fromkeys((str(source.parent), "", recorded(source, "folder")))
        for named in (NamedReader(dataset.names, folder=folder, below=source.parent) for folder in folders):
            if any(map(named.leads, range(min(len(dataset), TRIED_NAMES)))):
                on_outside(named)  # some of them may be outside of the folder
                return named
    return dataset.read


def beside(source: Path, dataset: Dataset, selection: Selection, against: Path | None) -> Path:
    """Return the default path of a page."""
    name = "report" if kind_of(source) is SourceKind.RUN else source.stem
    if selection.data is not None:
        name += f"-{dataset.name}"
    if against is not None:
        name += f"-against-{short_name(against)}"
    if kind_of(source) is SourceKind.RUN:
        return source / f"{name}.html"
    return source.with_name(f"{name}.html")


def short_name(source: Path) -> str:
    """Return the name of a run's folder, including dots, or that of a file without its ending."""
    return name_of(source) if source.is_dir() else source.stem
