"""The atlas: which closed form helps which features on unseen classes, how much, and what it costs.

    python bench/atlas.py digits glyphs faces=faces.zip rows.csv.gz questions=questions.csv words=words/ \\
        --images "MobileNet=timm:mobilenetv1_100(pad_type='same', pretrained='weights.safetensors')" \\
        --texts MiniLM=transformers:minilm --sounds GE2E=ge2e:pretrained.pt --cache runs/features --out runs/atlas
    python bench/atlas.py --out runs/atlas --read --write docs/measured     only the tables of what is finished

A set is anything that `nearfar train` takes, with `NAME=` before it if the file is not called so. Its encoders are
those of its kind, named as for `nearfar.load`, and what needs no training: thumbnails of 24 x 24 shades, TF-IDF of
words in 256 dimensions, statistics of the log-mel spectrogram, and rows as they are and standardized. An encoder may be
the folder of a run; the sets that it has learned from are left out for it, because none of their classes is unseen.
Stages:

- features: an encoder on a set, at most `--most` items, evenly of all classes, as a float32 `.npz` in `--cache`; more
  than `--dimensions` are then projected to the first singular directions of all sets of the encoder
- cells: a form on features, learned from half of the classes and scored on the others, over `--splits` halves; closed
  forms are also scored on other sets of the encoder, and learned from few classes or few items of each
- summary: the tables, and with `--write` the files of the pages

`scores.jsonl` in the folder gets a line for each cell as soon as it is measured; a run that was killed goes on after
the last one. Rows get unit length, forms see them centered, and scores are by cosine. Solvers (ITML, NCA, LMNN, SCML)
see the first 64 principal components; a form that takes more than `--seconds` on features is left out for them. The
linear layers have ten times the median time of the closed forms on the same rows, and at least a second, in which they
also choose their learning rate on held-out classes. Seconds are processor time of a fit on one thread.
"""

from __future__ import annotations

import argparse
import signal
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from atlas_tables import NONE, Cell, cell_of, report
from heads import RATES, apply, pca_start, trained
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from zoo import append, evenly, header, read_cells, test_halves

import nearfar
from nearfar import ITML, LFDA, LMNN, NCA, RCA, SCML, CovarianceMetric, DiscriminantWhitening, FisherMetric
from nearfar.data import Dataset, open_dataset
from nearfar.data.checks.training_items import among
from nearfar.evaluation import evaluate
from nearfar.numerics import psd, scatter
from nearfar.numerics.constraints import LabelPairs
from nearfar.numerics.mel import log_mel_statistics
from nearfar.numerics.standard_columns import standard
from nearfar.numerics.whitening import unit_rows
from nearfar.train.rungs.closed_forms import CHOOSING_SPLITS, PRIOR, held_out_score

Rows = NDArray[Any]
Map = Callable[[Rows], Rows]
COMPONENTS = 64  # principal components that solvers see
TF_IDF = "TF-IDF"
WORDS = 256  # dimensions of TF-IDF, whose axes are those of a set
SMALLEST = 16  # pixels of an image that pretrained encoders see
STANDARDIZED = "standardized rows"


class Geodesic:
    """The point t of `GMML` as the ladder has it, which keeps the directions in which no two rows differ.

    M = S #_t D,   S and D with a prior of p tr(S) / d each
    """

    def __init__(self, t: float, prior: float = PRIOR) -> None:
        self.t = t
        self.prior = prior

    def fit(self, X: Rows, labels: Rows) -> Geodesic:
        S, D = scatter.pair_scatters(X, LabelPairs(labels, "pairs")).mean()
        prior = self.prior * float(np.trace(S)) / len(S) * np.eye(len(S))
        self.components = psd.sharp_factors(S + prior, D + prior, (self.t,))[0]
        return self

    def transform(self, X: Rows) -> Rows:
        return X @ self.components.T


CLOSED: dict[str, Callable[[], Any]] = {
    "whitening without labels": lambda: CovarianceMetric(shrinkage=0.5),
    "whitening": DiscriminantWhitening,
    "whitening(shrinkage=0.2)": lambda: DiscriminantWhitening(shrinkage=0.2),
    "whitening(shrinkage=0.05)": lambda: DiscriminantWhitening(shrinkage=0.05),
    "whitening(shrinkage=0.8)": lambda: DiscriminantWhitening(shrinkage=0.8),
    "whitening(emphasis=1)": lambda: DiscriminantWhitening(emphasis=1.0),
    "whitening(emphasis=12)": lambda: DiscriminantWhitening(emphasis=12.0),
    "GMML(t=0.1)": lambda: Geodesic(0.1),
    "GMML(t=0.2)": lambda: Geodesic(0.2),
    "GMML(t=0.3)": lambda: Geodesic(0.3),
    "GMML(t=0.5)": lambda: Geodesic(0.5),
    "GMML(t=0.1), prior 0.01": lambda: Geodesic(0.1, prior=0.01),
    "GMML(t=0.3), prior 0.01": lambda: Geodesic(0.3, prior=0.01),
    "LDA": FisherMetric,
    "LFDA": LFDA,
    "RCA": lambda: RCA(random_state=0),
}
SOLVERS: dict[str, Callable[[], Any]] = {
    "ITML": lambda: ITML(random_state=0),
    "NCA": lambda: NCA(random_state=0),
    "LMNN": lambda: LMNN(random_state=0),
    "SCML": lambda: SCML(random_state=0),
}
SUPCON = "linear layer, SupCon"
LAYERS = {
    "linear layer, cosine softmax": "AMSoftmaxLoss(margin=0)",
    SUPCON: "SupConLoss(temperature=0.1)",
}
CENTERED = "centered"
PCA = "PCA"
FORMS = (NONE, CENTERED, PCA, *CLOSED)
HELD_OUT = "held out"
"""Scores of all closed forms on classes that are held out of those that learn, by which the ladder chooses."""
ELSEWHERE = ("whitening", "whitening(emphasis=1)", "GMML(t=0.1)", "GMML(t=0.3)", "RCA", "LDA")
"""Forms that are also scored on other sets, and learned from few classes and few items."""
FEW_CLASSES = (4, 8, 16, 32)
FEW_ITEMS = (2, 4, 8, 16)
TIMES = 10  # the median time of closed forms that a linear layer has
LEAST = 1.0  # seconds of a linear layer, because closed forms of few features take milliseconds


class Features(NamedTuple):
    """Items of a set as an encoder sees them, (n, d), and their classes (n,)."""

    set: str
    encoder: str
    rows: Rows
    labels: Rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="[NAME=]SET", help="anything that nearfar train takes")
    parser.add_argument("--out", type=Path, required=True, help="folder of the scores")
    parser.add_argument("--cache", type=Path, help="folder of the features; default: in --out")
    parser.add_argument("--images", nargs="*", default=(), metavar="NAME=ENCODER", help="encoders of images")
    parser.add_argument("--texts", nargs="*", default=(), metavar="NAME=ENCODER", help="encoders of texts")
    parser.add_argument("--sounds", nargs="*", default=(), metavar="NAME=ENCODER", help="encoders of sounds")
    parser.add_argument("--most", type=int, default=1200, help="items of a set")
    parser.add_argument("--dimensions", type=int, default=384, help="dimensions of features")
    parser.add_argument("--leave-out", nargs="*", default=("oos",), help="classes that are none; default: oos")
    parser.add_argument("--label", default="category", help="column of classes in tables of texts without `label`")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument(
        "--few", nargs="*", default=(), metavar="SET, ENCODER", help="features of which few are learned"
    )
    parser.add_argument("--held-splits", type=int, default=5, help="splits with scores of held-out classes")
    parser.add_argument("--few-splits", type=int, default=3, help="splits with all but closed forms on all classes")
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time after which a form is left out")
    parser.add_argument("--extract", action="store_true", help="only write the features")
    parser.add_argument("--read", action="store_true", help="only print what is finished")
    parser.add_argument("--write", type=Path, help="folder that gets atlas.csv and atlas.parquet")
    settings = parser.parse_args()
    warnings.simplefilter("ignore")  # of singular scatters, and of solvers that stop early
    settings.out.mkdir(parents=True, exist_ok=True)
    if settings.extract:
        extracted(settings)
        return
    if not settings.read:
        print(f"nearfar {nearfar.__version__}, NumPy {np.__version__}, torch {torch.__version__}", flush=True)
        measure(extracted(settings), settings)
    report(read_cells(settings.out), settings.write)


def extracted(settings: Namespace) -> list[Features]:
    """Return the features of all sets, from the cache where they are in it."""
    folder = settings.cache or settings.out / "features"
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for source in settings.sets:
        name, _, path = source.rpartition("=")
        name = name or Path(path).name.split(".")[0]
        label = settings.label if settings.label in header(Path(path)) else None
        items = open_dataset(path, label=label)
        items = items.only([c for c in items.classes if c not in settings.leave_out])
        items = items.subset(evenly(items.labels, max(2, settings.most // len(items.classes))))
        for encoder, embed in encoders(items, settings):
            file = folder / f"{name}, {encoder}.npz"
            if not file.is_file():
                start = time.process_time()
                rows = embed(items)
                if rows is None:
                    print(f"{name}, {encoder}: left out, because the encoder has learned from items of it", flush=True)
                    continue
                begun = file.with_suffix(".begun")
                with begun.open("wb") as stream:
                    np.savez(stream, rows=rows.astype(np.float32), labels=items.labels)
                begun.rename(file)
                print(f"{name}, {encoder}: {time.process_time() - start:.1f} s", flush=True)
            with np.load(file) as stored:
                found.append(Features(name, encoder, stored["rows"], stored["labels"]))
    return [*projected(found, settings.dimensions)]


def projected(known: list[Features], dimensions: int) -> Iterator[Features]:
    """Project features of many dimensions to the first singular directions of all sets of an encoder."""
    for one in known:
        if one.rows.shape[1] <= dimensions:
            yield one
            continue
        together = unit_rows(np.concatenate([other.rows for other in known if other.encoder == one.encoder]))
        V = np.linalg.eigh(together.T @ together)[1][:, ::-1][:, :dimensions]
        rows = unit_rows(one.rows) @ V
        print(f"{one.set}, {one.encoder}: kept {np.mean(np.sum(rows**2, axis=1)):.4f} of the squares", flush=True)
        yield one._replace(rows=rows)


def encoders(items: Dataset, settings: Namespace) -> Iterator[tuple[str, Callable[[Dataset], Rows | None]]]:
    """Yield the names of the encoders of some items, and what embeds these."""
    given: dict[str, str] = {}
    if items.texts is not None:
        yield TF_IDF, words
        given = named(settings.texts)
    elif items.kind == "image":
        given = {"pixels": "pixels"} | (named(settings.images) if len(items.read(0)) >= SMALLEST else {})
    elif items.kind == "sound":
        yield "log-mel statistics", lambda those: np.stack([log_mel_statistics(wave) for wave in each(those)])
        given = named(settings.sounds)
    else:
        yield "rows", lambda those: np.stack([*each(those)])
        yield STANDARDIZED, lambda those: np.stack([*each(those)])
    for name, text in given.items():
        yield name, partial(pretrained, text)


def pretrained(encoder: str, items: Dataset) -> Rows | None:
    """Embed items by a pretrained encoder or a run, unless it has learned from some of them."""
    model = nearfar.load(encoder)
    marks = model.trained_on
    if marks is not None and among(marks, items).any():
        return None
    return np.asarray(model.embed(items))


def each(items: Dataset) -> Iterator[Rows]:
    return (items.read(i) for i in range(len(items)))


def named(pairs: tuple[str, ...]) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in pairs)


def words(items: Dataset) -> Rows:
    """Return TF-IDF of words and pairs of words, projected to its first singular directions."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    counted = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit_transform(items.texts_given)
    return np.asarray(TruncatedSVD(WORDS, random_state=0).fit_transform(counted))


def measure(known: list[Features], settings: Namespace) -> None:
    """Measure the cells that are not finished."""
    by_name = {(one.set, one.encoder): one for one in known}
    lines = read_cells(settings.out)
    done = {cell_of(line) for line in lines}
    left_out = {(line["set"], line["encoder"], line["form"]) for line in lines if "why" in line}
    for cell in cells(known, settings):
        if cell in done or (cell.set, cell.encoder, cell.form) in left_out:
            continue
        found = measured(cell, by_name, lines, settings.seconds)
        if "why" in found:
            left_out.add((cell.set, cell.encoder, cell.form))
        line = {**cell._asdict(), **found}
        append(settings.out, line)
        lines.append(line)


def cells(known: list[Features], settings: Namespace) -> Iterator[Cell]:
    """Yield all cells split by split, so that all sets have about as many, and the fastest ones first."""
    for forms, splits in (
        (FORMS, settings.splits),
        ((HELD_OUT,), min(settings.splits, settings.held_splits)),
        (tuple(LAYERS), settings.few_splits),
    ):
        for split in range(splits):
            for one in known:
                yield from (Cell(one.set, one.encoder, split, form, one.set) for form in forms)
    for split in range(settings.few_splits):
        for one in known:
            yield from elsewhere(one, known, split)
            if not settings.few or f"{one.set}, {one.encoder}" in settings.few:
                yield from few(one, split)
    for split in range(settings.few_splits):
        for one in known:
            yield from (Cell(one.set, one.encoder, split, form, one.set) for form in SOLVERS)


def elsewhere(one: Features, known: list[Features], split: int) -> Iterator[Cell]:
    """Yield what is learned on a set and scored on the others of the same encoder."""
    for other in known if one.encoder != TF_IDF else ():
        if other.encoder == one.encoder and other.set != one.set and other.rows.shape[1] == one.rows.shape[1]:
            for form in ELSEWHERE:
                yield Cell(one.set, one.encoder, split, form, other.set)


def few(one: Features, split: int) -> Iterator[Cell]:
    """Yield what is learned from few classes, and from few items of each."""
    for form in (*ELSEWHERE, SUPCON):
        for classes in FEW_CLASSES:
            if 2 * classes < number_of_classes(one):
                yield Cell(one.set, one.encoder, split, form, one.set, classes=classes)
        for items in FEW_ITEMS:
            if items < len(one.labels) / number_of_classes(one):
                yield Cell(one.set, one.encoder, split, form, one.set, items=items)


def number_of_classes(one: Features) -> int:
    return len(np.unique(one.labels))


class Parts(NamedTuple):
    """Rows of unit length to learn from and to score, with their classes."""

    learned: Rows
    known: Rows
    asked: Rows
    unseen: Rows


def divided(one: Features, split: int) -> Parts:
    """Draw the half of the classes that learn; standardize by it what is to be standardized."""
    names = tuple(f"{c:04}" for c in np.unique(one.labels))
    unseen = [int(name) for name in test_halves(names, split + 1)[split]]
    out = np.isin(one.labels, unseen)
    rows = one.rows.astype(np.float64)
    if one.encoder == STANDARDIZED:
        mean, deviation = standard(rows[~out])
        rows = (rows - mean) / deviation
    rows = unit_rows(rows)
    return Parts(rows[~out], one.labels[~out], rows[out], one.labels[out])


def fewer(parts: Parts, classes: int, items: int) -> Parts:
    """Learn from the first of the classes, or from the first items of each."""
    kept = np.isin(parts.known, np.unique(parts.known)[:classes]) if classes else np.ones(len(parts.known), bool)
    if items:
        order = np.argsort(parts.known, kind="stable")
        starts = np.searchsorted(parts.known[order], parts.known[order])
        kept[order] &= np.arange(len(order)) - starts < items
    return parts._replace(learned=parts.learned[kept], known=parts.known[kept])


def measured(
    cell: Cell, known: dict[tuple[str, str], Features], lines: list[dict[str, Any]], seconds: float
) -> dict[str, Any]:
    """Return the scores of a cell and the processor time of its fit, or why there are none."""
    parts = divided(known[cell.set, cell.encoder], cell.split)
    about = statistics(parts.learned, parts.known) if cell.form == NONE else {}
    if cell.on != cell.set:
        other = divided(known[cell.on, cell.encoder], cell.split)
        parts = parts._replace(asked=other.asked, unseen=other.unseen)
    parts = fewer(parts, cell.classes, cell.items)
    codes = np.unique(parts.known, return_inverse=True)[1]
    signal.signal(signal.SIGVTALRM, _end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    start = time.process_time()
    try:
        if cell.form == HELD_OUT:
            return {"held_out": held_out_scores(parts.learned, codes)}
        if cell.form in LAYERS:
            mapped = linear_layer(cell.form, parts.learned, codes, max(LEAST, TIMES * median_seconds(cell, lines)))
        else:
            mapped = fitted(cell.form, parts.learned, codes)
    except (TimeoutError, ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        return {"why": str(error).splitlines()[0] if str(error) else f"over {seconds:g} seconds"}
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    took = time.process_time() - start
    found = evaluate(mapped(parts.asked), parts.unseen, ks=(1,), clustering=False)
    scores = {"map_at_r": round(float(found.map_at_r), 5), "recall_at_1": round(float(found.recall_at[1]), 5)}
    return {"seconds": round(took, 4), **scores, **about}


def _end(*_: Any) -> None:
    raise TimeoutError


def fitted(form: str, rows: Rows, codes: Rows) -> Map:
    """Fit a form to rows and return what maps others."""
    if form == NONE:
        return lambda those: those
    mean = rows.mean(axis=0)
    if form == CENTERED:
        return lambda those: those - mean
    if form in CLOSED:
        learner = CLOSED[form]().fit(rows - mean, codes)
        return lambda those: learner.transform(those - mean)
    V = np.linalg.svd(rows - mean, full_matrices=False)[2][:COMPONENTS].T
    if form == PCA:
        return lambda those: (those - mean) @ V
    solver = SOLVERS[form]().fit((rows - mean) @ V, codes)
    return lambda those: solver.transform((those - mean) @ V)


def held_out_scores(rows: Rows, codes: Rows) -> dict[str, list[float]]:
    """Return MAP@R of each form on halves of the classes that learn, after learning from the other half.

    The halves are those of `choose_form`.
    """
    rng = np.random.default_rng(0)
    count = int(codes.max()) + 1
    found: dict[str, list[float]] = {form: [] for form in (NONE, *CLOSED)}
    for split in range(CHOOSING_SPLITS):
        if split % 2 == 0:
            order = rng.permutation(count)
        out = np.isin(codes, order[: count // 2] if split % 2 == 0 else order[count // 2 :])
        inner = np.unique(codes[~out], return_inverse=True)[1]
        for form, scores in found.items():
            scores.append(round(held_out_score(fitted(form, rows[~out], inner)(rows[out]), codes[out]), 5))
    return found


def median_seconds(cell: Cell, lines: list[dict[str, Any]]) -> float:
    """Return the median time of the closed forms on the features of a cell."""
    those = [line for line in lines if (line["set"], line["encoder"]) == (cell.set, cell.encoder)]
    return float(np.median([line["seconds"] for line in those if line["form"] in CLOSED and not line["classes"]]))


def linear_layer(form: str, rows: Rows, codes: Rows, seconds: float) -> Map:
    """Train a linear layer by Adam for so long, its choice of a learning rate included.

    A third of the classes choose the rate, from which the last layer learns, too.
    """
    rows = rows.astype(np.float32)
    dim = rows.shape[1]  # fewer lose directions in which unseen classes differ
    start = pca_start(rows, dim)
    steps = Namespace(steps=10, dim=dim)
    begun = time.process_time()
    trained(LAYERS[form], start, rows, codes, RATES[0], 0, steps)
    step = (time.process_time() - begun) / steps.steps
    steps.steps = max(10, int(seconds / step / (len(RATES) + 1)))
    out = codes % 3 == 0
    inner = np.unique(codes[~out], return_inverse=True)[1]
    found = {}
    for rate in RATES:
        layer = trained(LAYERS[form], start, rows[~out], inner, rate, 0, steps)
        found[rate] = evaluate(apply(layer, rows[out]), codes[out], ks=(1,), clustering=False).map_at_r
    layer = trained(LAYERS[form], start, rows, codes, max(found, key=lambda rate: found[rate]), 0, steps)
    return lambda those: apply(layer, those.astype(np.float32))


def statistics(rows: Rows, labels: Rows) -> dict[str, float]:
    """Return what is known of features before anything is learned from them.

    `spectrum` is the participation ratio (sum e)^2 / sum e^2 of the eigenvalues e of their covariance, `within` the
    share of the variance that is within classes, and `mean` the squared length of the mean of rows of unit length.
    """
    codes = np.unique(labels, return_inverse=True)[1]
    Z = rows - rows.mean(axis=0)
    C = Z.T @ Z / len(Z)
    means = scatter.class_means(Z, codes)
    within = float(np.sum((Z - means[codes]) ** 2) / max(np.sum(Z**2), 1e-300))
    e = np.trace(C)
    return {
        "learned_classes": int(codes.max()) + 1,
        "per_class": round(len(codes) / (int(codes.max()) + 1), 2),
        "d": rows.shape[1],
        "spectrum": round(float(e**2 / np.sum(C**2)), 3),
        "within": round(within, 4),
        "mean": round(float(np.sum(rows.mean(axis=0) ** 2)), 4),
    }


if __name__ == "__main__":
    with threadpool_limits(1):
        torch.set_num_threads(1)
        main()
