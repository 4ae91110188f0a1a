"""What a training does, settled once before it begins: all of its settings, and its data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..data import Dataset, Task
from ..deep.samplers.base import BatchSampler
from ..deep.samplers.resolve import make_sampler
from ..trust import TrustError, named_by
from .config import TrainConfig, TrainError
from .listed_pairs import KnownPairBatches, KnownPairs
from .pairs import TextRows


@dataclass(frozen=True)
class Plan:
    """A training whose settings and data are settled: nothing of it changes afterwards.

    Attributes
    ----------
    config : TrainConfig
        Settings, resolved.
    task : Task
        The data.
    start : Path or None
        Folder in which a resumed run was started, to which relative paths refer.
    note : str
        One sentence on the values of settings that were not given; empty if there is nothing to say.
    known : KnownPairs or None
        Pairs of training items that are used instead of classes.
    texts : TextRows or None
        Texts of the training items, if these are pairs of an image and a text.
    """

    config: TrainConfig
    task: Task
    start: Path | None = None
    note: str = ""
    known: KnownPairs | None = None
    texts: TextRows | None = None


def sampler_of(config: TrainConfig, train: Dataset, known: KnownPairs | None) -> BatchSampler:
    """Return what draws the batches of a config.

    Raises
    ------
    TrainError
        If the sampler does not exist, or does not fit the items.
    """
    try:
        if known is not None:
            return KnownPairBatches(known, config.batch_size, config.seed)
        with named_by(config.origin):
            return make_sampler(config.sampler, train.labels, config.batch_size, config.seed)
    except TrustError:
        raise
    except ValueError as error:
        raise TrainError(str(error)) from error
