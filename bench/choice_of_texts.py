"""Which rule should keep a fine-tuned text model, where few held-out classes compare it with a closed form?

    python bench/choice_of_texts.py clinc150.csv --skip 60 --learn 30 --held-out 8 --per-class 12 --text-trunk FOLDER
    python bench/choice_of_texts.py banking77.csv --skip 40 --learn 18 --held-out 6 --per-class 12 --text-trunk FOLDER
    python bench/choice_of_texts.py shops.csv --learn 448 --held-out 53 --text-trunk FOLDER

`--skip` leaves out the first classes by name, which tests of `zoo.py` draw. Of the others, `--learn` are drawn for the
training with the default settings, and for the closed form of the features before it. All that remain tell which of the
two models is better. Then `--held-out` of them are drawn many times, and each rule chooses by their scores alone: how
much MAP@R does it give away on the mean, compared with the better model?
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from zoo import evenly, header, write_table

from nearfar.data import Dataset, open_dataset
from nearfar.train import TrainConfig, train
from nearfar.train.features import embed, sizes_of
from nearfar.train.loading import load_trainable
from nearfar.train.rungs.candidates import Candidate, gain_and_error
from nearfar.train.rungs.class_scores import ClassScores, search
from nearfar.train.rungs.closed_forms import choose_form, fitted
from nearfar.train.rungs.untrained import UntrainedModel
from nearfar.train.settle import settle

RULES = {"any gain": 0.0, "a gain of a standard error": 1.0, "no loss of a standard error": -1.0}
"""By how many standard errors the trained model has to be better."""
DRAWS = 150


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", type=Path, help="table of texts with their classes, or of queries and documents")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--learn", type=int, required=True)
    parser.add_argument("--held-out", type=int, required=True)
    parser.add_argument("--per-class", type=int)
    parser.add_argument("--label", default="category", help="column of classes in tables without `label`")
    parser.add_argument("--text-trunk", required=True)
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    with TemporaryDirectory() as folder:
        report(*models(settings, Path(folder)), settings)


class Model(NamedTuple):
    """A model's embeddings of the remaining classes, with queries in front of the documents if it has both."""

    title: str
    rows: NDArray[np.float32]
    labels: NDArray[np.int64]
    asks: NDArray[np.bool_] | None

    def scores(self, classes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return MAP@R of each of these classes, searched among themselves."""
        used = np.isin(self.labels, classes)
        found = search(self.rows[used], self.labels[used], asks=None if self.asks is None else self.asks[used])
        return ClassScores.of(*found).map_at_r


def models(settings: argparse.Namespace, folder: Path) -> tuple[Model, Model]:
    """Return the closed form and the trained model."""
    config = config_of(settings, folder)
    run = train(config, folder / "run", progress=False)
    plan = settle(config)
    task = plan.task
    before = UntrainedModel.frozen(task.train, plan.config, None)
    rows = before.features(task.train)
    form = choose_form(rows, task.train.labels, asks=task.train.asks).name
    mapped = fitted(form, rows, task.train.labels)
    embedder = load_trainable(run).embedder
    parts: list[Dataset] = [task.test] if task.gallery is None else [task.test, task.gallery]
    labels = np.concatenate([part.labels for part in parts])
    asks = None if task.gallery is None else np.arange(len(labels)) < len(task.test)
    return (
        Model(form, np.concatenate([mapped(before.features(part)) for part in parts]), labels, asks),
        Model(
            "trained", np.concatenate([embed(embedder, part, **sizes_of(run.config)) for part in parts]), labels, asks
        ),
    )


def config_of(settings: argparse.Namespace, folder: Path) -> TrainConfig:
    """Write the classes that are used, and return the default settings that learn from some of them."""
    label = settings.label if settings.label in header(settings.set) else None  # of queries and documents
    items = open_dataset(str(settings.set), label=label)
    items = items.only(sorted(name for name in items.classes if name != "oos")[settings.skip :])
    items = items.subset(evenly(items.labels, settings.per_class))
    data = folder / "texts.csv"
    write_table(items, data)
    names = open_dataset(str(data)).classes
    order = np.random.default_rng(settings.seed).permutation(len(names))
    others = tuple(names[place] for place in order[settings.learn :])
    return TrainConfig.of(
        data=str(data), test_classes=others, trunk=settings.text_trunk, validation=0.0, keep="trained"
    )


def report(form: Model, trained: Model, settings: argparse.Namespace) -> None:
    """Print the scores of both models on all remaining classes, and what each rule gives away."""
    classes = np.unique(form.labels)
    truth = np.array([form.scores(classes).mean(), trained.scores(classes).mean()])
    print(f"{len(classes)} classes: closed form ({form.title}) {truth[0]:.4f}, trained {truth[1]:.4f} MAP@R")
    rng = np.random.default_rng(settings.seed)
    found = np.array([gain(form, trained, rng.choice(classes, settings.held_out, replace=False)) for _ in range(DRAWS)])
    print(
        f"{DRAWS} draws of {settings.held_out} classes: gain {found[:, 0].mean():+.4f}, error {found[:, 1].mean():.4f}"
    )
    for title, errors in RULES.items():
        keeps = (found[:, 0] > errors * found[:, 1]).astype(int)
        print(f"{title}: trained in {keeps.mean():.0%}, gives away {truth.max() - truth[keeps].mean():.4f} MAP@R")


def gain(form: Model, trained: Model, classes: NDArray[np.int64]) -> tuple[float, float]:
    """Return by how much the trained model is better on some classes, and the standard error."""
    scored = (Candidate(one.title, one.title, 0, 0, tuple(one.scores(classes))) for one in (trained, form))
    return gain_and_error(*scored)


if __name__ == "__main__":
    main()
