"""The closed-form metric of a trained network: fitted to the embeddings of its training items, and kept if it helps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ..data import Dataset
from ..deep.networks.embedder import Embedder, device_of
from ..deep.networks.weights import METRIC
from ..deep.networks.whiten import Whiten
from .checkpoint import load_tensors, save_tensors
from .config import TrainConfig, TrainError
from .features import Floats, embed, encode, sizes_of
from .monitor import class_scores
from .run import RunFolder
from .rungs.class_scores import optimism
from .training_data import TrainingData

FITTED_ON = 50_000  # maximum number of training items, enough to estimate a covariance in a few hundred dimensions


class MetricChoice(NamedTuple):
    """Result of fitting a metric.

    Attributes
    ----------
    kept : bool
        Whether embeddings pass it.
    score, without : float or None
        MAP@R on the validation classes with it and without it; None without such classes.
    optimism : tuple of float
        By how much MAP@R of each of these classes is too high, because they have chosen between the two.
    """

    kept: bool
    score: float | None
    without: float | None
    optimism: tuple[float, ...] = ()

    def __str__(self) -> str:
        """Return a sentence on the fitted metric, and whether it is kept."""
        if self.score is None or self.without is None:
            return "A whitening, fitted to the training items, follows the network; its effect was not measured."
        scores = f"MAP@R on the validation classes {self.score:.4f} with it, {self.without:.4f} without it"
        if self.kept:
            return f"A whitening, fitted to the training items, follows the network: {scores}."
        return f"A whitening, fitted to the training items, was left out: {scores}."


def add_metric(embedder: Embedder, data: TrainingData, folder: RunFolder) -> MetricChoice | None:
    """Fit the metric of a config to the network of the best checkpoint; return None if it has no metric.

    If it is kept, it is written into the checkpoint and added to the network.
    """
    config = data.config
    if config.metric == "none" or (config.metric == "auto" and data.unseen is None):
        return None
    earlier = embedder.metric  # the metric from an earlier end of a resumed run
    embedder.metric = nn.Identity()
    whiten = fitted_whitening(embedder, data.train, config)
    choice = _compared(embedder, whiten, data)
    if config.metric == "auto" and choice.score is None:
        embedder.metric = earlier
        return None
    _write(folder, whiten if choice.kept else None, choice)
    if choice.kept:
        embedder.metric = whiten.to(device_of(embedder)).eval()
    return choice


def fitted_whitening(embedder: Embedder, train: Dataset, config: TrainConfig) -> Whiten:
    """Return a whitening of the embeddings of the training items, which are not augmented.

    Raises
    ------
    TrainError
        If embeddings are not finite.
    """
    if len(train) > FITTED_ON:
        train = train.subset(np.linspace(0, len(train) - 1, FITTED_ON).astype(int))
    rows = embedded(embedder, train, config)
    if not np.isfinite(rows).all():
        raise TrainError(f"the network gives embeddings of {train.name} that are not finite; lower the learning rate")
    whiten = Whiten(rows.shape[1])
    whiten.learn(rows, train.labels)
    return whiten


def embedded(embedder: Embedder, dataset: Dataset, config: TrainConfig) -> Floats:
    """Embed the items of a run, which are the features of a frozen trunk where a run has that."""
    if not config.freeze_trunk:
        return embed(embedder, dataset, **sizes_of(config))
    return encode(lambda features: embedder.head(features).embedding, dataset, device=device_of(embedder))


def whitened(whiten: nn.Module, rows: Floats) -> Floats:
    """Return embeddings (n, d) after a whitening, on the device of the whitening."""
    device = next(whiten.buffers()).device
    with torch.inference_mode():
        rows_after: Floats = whiten(torch.from_numpy(rows).to(device)).cpu().numpy()
    return rows_after


def _compared(embedder: Embedder, whiten: Whiten, data: TrainingData) -> MetricChoice:
    """Compare MAP@R on the validation classes with and without a metric, if there are any, and decide."""
    is_asked = data.config.metric == "whitening"
    if data.unseen is None:
        return MetricChoice(is_asked, None, None)
    rows = embedded(embedder, data.unseen, data.config)
    by_class = [class_scores(each, data.unseen) for each in (rows, whitened(whiten, rows))]
    if not len(by_class[0].counts):  # all items are alone in their class
        return MetricChoice(is_asked, None, None)
    without, score = (each.mean(each.map_at_r) for each in by_class)
    too_high: tuple[float, ...] = ()
    if not is_asked and len(by_class[0].counts) > 1:
        scores = np.stack([each.map_at_r for each in by_class])  # (2, C)
        too_high = tuple(optimism(scores, by_class[0].counts).tolist())
    return MetricChoice(is_asked or score > without, score, without, too_high)


def _write(folder: RunFolder, whiten: Whiten | None, choice: MetricChoice) -> None:
    """Rewrite the best checkpoint atomically, with this metric instead of an earlier one."""
    tensors, about = load_tensors(folder.best)
    tensors = {name: value for name, value in tensors.items() if not name.startswith(METRIC)}
    if whiten is not None:
        tensors |= {METRIC + name: value for name, value in whiten.state_dict().items()}
    written = {"kept": choice.kept, "score": choice.score, "without": choice.without}
    save_tensors(folder.best, tensors, {**about, "metric": written})


def whitening_note(about: dict[str, Any]) -> str:
    """Return the sentence on the metric in the metadata of a checkpoint; "" if none was fitted."""
    choice = about.get("metric")
    if not isinstance(choice, dict):
        return ""
    return str(MetricChoice(bool(choice.get("kept")), choice.get("score"), choice.get("without")))
