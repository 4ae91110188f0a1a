"""The last step of a training: the network that was trained, or something cheaper that held-out classes prefer.

raw inputs -> a closed form on them -> features of the trunk before its training -> a closed form on these -> the
trained network -> weights between those before and after the training (Wortsman et al., Robust fine-tuning of zero-shot
models, CVPR 2022). All are scored on the same classes, from which none has learned. The best of the last two replaces
the best of the others if it is better by more than a standard error over the classes (`gain_and_error`), and a network
that began as the features themselves unless it is worse by as much. These classes have also chosen the epoch of the
trained network, its whitening and the share of the weights, so that each class scores what the others choose
(`left_out`).

What wins is then learned again from all training classes, also those that were held out: a closed form is fitted, and a
network that is trained in a short time, from random weights or on texts, is trained for as many epochs. Another network
keeps its weights: `train_final` trains it on all classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor, nn

from ...data import Task
from ...data.checks.columns import scale_warning
from ...data.readers.in_memory import GIVEN
from ...deep.networks.embedder import Embedder, device_of
from ...deep.networks.whiten import Whiten
from ...numerics.types import AnyArray, Array, Ints
from ...quoting import count_of
from ..checkpoint import in_checkpoint, load_tensors, preserve_random_state, read_about, save_tensors
from ..config import TrainConfig
from ..features import Floats
from ..metric import MetricChoice, embedded, fitted_whitening, whitened
from ..monitor import class_scores
from ..run import RunFolder, write_json
from ..task import items_of
from ..training_data import TrainingData
from .candidates import TRAINED_NAMES, Candidate, Choice, best_of
from .class_scores import ClassScores, optimism
from .closed_forms import FORMS, MAX_WIDTH, fitted
from .interpolation import SHARES, between, interpolates, title_of, weights_before
from .untrained import Learned, UntrainedModel

TRAINED = "trained network"


def may_choose(data: TrainingData) -> bool:
    """Return whether a run may keep something else than its network."""
    config = data.config
    if config.data == GIVEN:  # of an estimator, which keeps the network that it was asked for
        return False
    if data.plan.texts is not None:
        return False
    return config.protocol == "honest" and config.final is None and config.episodes == "none"


def can_compare(task: Task) -> bool:
    """Return whether candidates can be compared: on items of at least two classes that were held out.

    Of items with sets of labels, two different sets have to have something to find, and of queries those of two
    classes.
    """
    unseen = task.validation
    if unseen is None:
        return False
    if unseen.has_label_sets or unseen.asks is not None:
        return len(class_scores(np.zeros((len(unseen), 1), np.float32), unseen).counts) > 1
    return int((unseen.class_counts > 1).sum()) > 1


def keep_unchecked(embedder: Embedder, data: TrainingData, folder: RunFolder) -> Embedder:
    """Keep the cheapest model of a run that could hold nothing out, and return it.

    Nothing shows whether its network is better on new classes. It is kept if the run was asked for that (`keep` is
    "trained", or `validation` is 0), or if there is nothing cheaper; otherwise it is written into the checkpoint
    `trained`.
    """
    config = data.config
    model = None
    if config.keep == "best" and config.validation != 0:
        with preserve_random_state():
            model = cheapest(data, embedder.scale)
    if model is None:
        return embedder
    tensors, about = load_tensors(folder.best)
    save_tensors(folder.trained, tensors, about)
    kind = "frozen" if config.starts_pretrained else "raw"
    changes = {**model.about, "metric": None, "kept": kind, "kept_title": model.title, "unchecked": True}
    save_tensors(folder.best, in_checkpoint(model.embedder), {**about, **changes})
    sentence = (
        f"Kept: {model.title}, because {why_nothing_is_held_out(data.task, config)}, so that nothing shows whether "
        "the trained network is better on new items. --keep trained keeps it; more classes would decide."
    )
    folder.write_kept(kind, model.title, sentence)
    return model.embedder.to(device_of(embedder)).eval()


def cheapest(data: TrainingData, scale: nn.Module) -> UntrainedModel | None:
    """Return the features of the pretrained trunk, or raw inputs without one; None if there are neither."""
    config = data.config
    train = data.task.train
    if not config.starts_pretrained:
        return None if train.texts is not None else UntrainedModel.raw(train, config, scale)
    return frozen_model(data)


def frozen_model(data: TrainingData, sizes: Mapping[str, int | None] = MappingProxyType({})) -> UntrainedModel | None:
    """Return the trunk before the training; None if a resumed run no longer finds its weights."""
    try:
        return UntrainedModel.frozen(data.task.train, data.config, data.plan.start, sizes)
    except (ValueError, OSError, ImportError):
        return None


def why_nothing_is_held_out(task: Task, config: TrainConfig) -> str:
    """Return why the models of a run cannot be compared on items that none of them has learned from."""
    train = task.train
    if train.has_label_sets:
        return f"the held-out {items_of(train)} have too few labels in common to score"
    if task.validation is not None:
        return f"the held-out classes have too few {items_of(train)} to score"
    if config.split == "rows":
        return f"the classes have too few {items_of(train)} to hold some out"
    return f"{count_of(len(train.classes), 'training class')} are too few to hold some out"


def choose_model(
    embedder: Embedder,
    data: TrainingData,
    folder: RunFolder,
    *,
    evaluations: Sequence[Tensor] = (),
    whitening: MetricChoice | None = None,
    train_again: Callable[[float], dict[str, Tensor]] | None = None,
    frozen_sizes: Mapping[str, int | None] = MappingProxyType({}),
    in_haste: bool = False,
) -> Embedder:
    """Compare the trained network of a run with all that is cheaper, and keep the best one, or the trained one.

    What is kept is written into the checkpoint `best`. If this is not the trained network, that one is first written
    into the checkpoint `trained`.

    Parameters
    ----------
    embedder : Embedder
        The network that was trained, with the weights of its best epoch.
    data : TrainingData
        The data of the run.
    folder : RunFolder
        Its folder.
    evaluations : sequence of (2, C) tensor
        Of each evaluation, the scores of the held-out classes that chose the best epoch, and their MAP@R.
    whitening : MetricChoice, optional
        How the same classes have decided on a whitening.
    train_again : callable, optional
        Function from a number of epochs to the weights of the same network, trained on all training classes.
    frozen_sizes : mapping
        Sizes of the images of which the features before the training are computed, if they are not those of the run.
    in_haste : bool
        Whether weights between those before and after the training are left out, which take the most time.

    Returns
    -------
    Embedder
        The network that is kept. The candidates and their scores are written into the folder.
    """
    with preserve_random_state():
        compared = Candidates(embedder, data, evaluations, whitening)
        choice = compared.choice(frozen_sizes, in_haste=in_haste)
        if train_again is not None and choice.kept in TRAINED_NAMES and data.config.keep == "best":
            choice = replace(choice, again=True)
            kept = compared.keep_again(choice, train_again, folder)
        else:
            choice = compared.learn_again(choice)
            kept = compared.keep(choice, folder)
    write_json(folder.choice, choice.to_dict())
    return kept


class Candidates:
    """The candidates of one run: how they are made, and their scores."""

    def __init__(
        self, embedder: Embedder, data: TrainingData, evaluations: Sequence[Tensor], whitening: MetricChoice | None
    ) -> None:
        assert data.task.validation is not None
        self.embedder = embedder
        self.data = data
        self.config = data.config
        self.train = data.task.train
        self.unseen = data.task.validation
        self.device = device_of(embedder)
        self.found: list[Candidate] = []
        self.untrained: dict[str, UntrainedModel] = {}
        self.weights: dict[str, Tensor] = {}  # of the interpolated network
        self.whiten: Whiten | None = None
        self.share = 1.0
        self.evaluations = evaluations
        self.whitening = whitening

    def choice(self, frozen_sizes: Mapping[str, int | None], *, in_haste: bool) -> Choice:
        """Score all candidates."""
        config = self.config
        if self.train.texts is None:
            self._add_untrained("raw", UntrainedModel.raw(self.train, config, self.embedder.scale))
        frozen = frozen_model(self.data, frozen_sizes) if config.starts_pretrained else None
        if frozen is not None:
            self._add_untrained("frozen", frozen)
        found = self._scored(self._embedded())
        self._add("trained", TRAINED, found, self._optimism(found.counts))
        if frozen is not None and interpolates(config) and not in_haste:
            self._add_interpolated()
        best = best_of(self.found, began_as_features=frozen is not None and config.embedding_start == "features")
        return Choice(
            tuple(self.found),
            best=best,
            kept=best if config.keep == "best" else "trained",
            closed_set=self.unseen.has_label_sets or not set(self.train.classes).isdisjoint(self.unseen.classes),
            of_sets=self.unseen.has_label_sets,
            of_images=self.train.kind == "image",
            uneven=not config.standardize and bool(scale_warning(self.train)),
        )

    def learn_again(self, choice: Choice) -> Choice:
        """Fit what is kept, if it is a closed form, to all training classes, which choose this form once more."""
        before = self.untrained.get(choice.kept)
        if before is None:
            return choice
        model = before.learned_anew(self.train, self.unseen)
        self.untrained[choice.kept] = model
        title = "" if model.form == before.form else f"{model.title}, {FORMS[model.form].title}"
        return replace(choice, form_of_all=title)

    def keep(self, choice: Choice, folder: RunFolder) -> Embedder:
        """Write the network that is kept into the checkpoint, and return it."""
        if choice.kept == "trained":
            return self.embedder
        tensors, about = load_tensors(folder.best)
        if choice.kept == "interpolated":
            network = self.embedder
            network.metric = nn.Identity()
            network.load_state_dict(self.weights)
            network.metric = nn.Identity() if self.whiten is None else self.whiten
            changes: dict[str, Any] = {"share": self.share}
        else:
            model = self.untrained[choice.kept]
            network = model.embedder
            changes = {**model.about, "metric": None}
        save_tensors(folder.trained, tensors, about)
        save_tensors(
            folder.best,
            in_checkpoint(network),
            {**about, **changes, "kept": choice.kept, "kept_title": choice.kept_title},
        )
        return network.to(self.device).eval()

    def keep_again(
        self, choice: Choice, train_again: Callable[[float], dict[str, Tensor]], folder: RunFolder
    ) -> Embedder:
        """Write a network that was trained on all training classes into the checkpoint, and return it.

        If the choice is an interpolated one, so is this network.
        """
        weights = train_again(epochs_of_best(folder, self.config))
        tensors, about = load_tensors(folder.best)
        network = self.embedder
        is_whitened = isinstance(network.metric, Whiten)
        network.metric = nn.Identity()
        changes: dict[str, Any] = {"again": True}
        if choice.kept == "interpolated":
            weights = between(self._weights_before(), weights, self.share)
            changes |= {"share": self.share, "kept": choice.kept, "kept_title": choice.of(choice.kept).title}
        network.load_state_dict(weights)
        if is_whitened:
            everything = self.train.joined(self.unseen)
            network.metric = fitted_whitening(network, everything, self.config).to(self.device)
        save_tensors(folder.trained, tensors, about)
        save_tensors(folder.best, in_checkpoint(network), {**about, **changes})
        return network.eval()

    def _add_untrained(self, name: str, model: UntrainedModel) -> None:
        """Add features as they are, and with the closed form that classes within the training choose."""
        model.embedder.to(self.device)
        rows = model.features(self.unseen)
        self.untrained[name] = model
        self._add(name, model.title, self._scored(rows))
        if rows.shape[1] > MAX_WIDTH or self.unseen.has_label_sets:  # closed forms take one class of each item
            return
        learned = model.features(self.train)
        form = self._form_for(model, learned, rows)
        if form == "none":
            return
        self.untrained[f"{name}-form"] = model.with_form(form)
        title = f"{model.title}, {FORMS[form].title}"
        self._add(f"{name}-form", title, self._scored(fitted(form, learned, self.train.labels)(rows)))

    def _form_for(self, model: UntrainedModel, learned: Floats, rows: Floats) -> str:
        """Choose a closed form on classes that are held out of the training classes.

        These may be too few to hold any out. Then the classes on which candidates are scored help to choose the form,
        though they are not fitted: otherwise tables of a handful of classes would have no closed form at all.
        """
        chosen = model.choice_of(Learned.of(learned, (self.train,)))
        if chosen.map_at_r:
            return chosen.name
        return model.choice_of(Learned.of(np.concatenate([learned, rows]), (self.train, self.unseen))).name

    def _add_interpolated(self) -> None:
        """Add the best of the networks between the one before the training and the one after it."""
        metric = self.embedder.metric
        self.embedder.metric = nn.Identity()
        after = {key: value.detach().clone() for key, value in self.embedder.state_dict().items()}
        before = self._weights_before()
        try:
            scored = []
            for share in SHARES:
                self.embedder.load_state_dict(between(before, after, share))
                scored.append(self._scored(self._embedded()))
            by_share = np.stack([found.map_at_r for found in scored])  # (shares, C)
            counts = scored[0].counts
            self.share = SHARES[int(np.argmax(by_share @ counts))]
            self.weights = between(before, after, self.share)
            self.embedder.load_state_dict(self.weights)
            rows = self._embedded()
            if isinstance(metric, Whiten):
                self.whiten = fitted_whitening(self.embedder, self.data.train, self.config).to(self.device)
                rows = whitened(self.whiten, rows)
            too_high = optimism(by_share, counts) + self._optimism(counts)
            self._add("interpolated", title_of(self.share), self._scored(rows), too_high)
        finally:
            self.embedder.load_state_dict(after)
            self.embedder.metric = metric

    def _weights_before(self) -> dict[str, Tensor]:
        """Return the weights of the network before its training, by their names in the embedder."""
        network = weights_before(self.data).to(self.device)
        return network.state_dict()

    def _embedded(self) -> Floats:
        """Embed the held-out items."""
        assert self.data.unseen is not None
        return embedded(self.embedder, self.data.unseen, self.config)

    def _optimism(self, counts: Ints) -> Array:
        """Return by how much MAP@R of each held-out class is too high, because they chose epoch and whitening."""
        too_high = np.zeros(len(counts))
        if self.evaluations:
            deciding, scores = (np.stack([np.asarray(both[i]) for both in self.evaluations]) for i in (0, 1))
            too_high += optimism(deciding, counts, scores)
        if self.whitening is not None and self.whitening.optimism:
            too_high += self.whitening.optimism
        return too_high

    def _scored(self, rows: AnyArray) -> ClassScores:
        """Score embeddings of the held-out items."""
        return class_scores(rows, self.unseen)

    def _add(self, name: str, title: str, found: ClassScores, too_high: Array | float = 0.0) -> None:
        by_class = found.map_at_r - too_high
        self.found.append(
            Candidate(
                name=name,
                title=title,
                map_at_r=float(by_class.mean()),
                recall_at_1=float(found.recall_at_1.mean()),
                by_class=tuple(by_class.tolist()),
            )
        )


def epochs_of_best(folder: RunFolder, config: TrainConfig) -> float:
    """Return the length of the training that led to the best checkpoint; of a cosine schedule, the whole length."""
    about = read_about(folder.best)
    chosen = about if about["best"] is not None and config.schedule != "cosine" else read_about(folder.last)
    return float(chosen["step"] / chosen["steps_per_epoch"])
