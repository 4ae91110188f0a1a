"""The names and calls of pytorch-metric-learning 2.9 on this engine.

    from nearfar.compat.pytorch_metric_learning import distances, losses, miners, reducers, samplers

A loss is called ``loss(embeddings, labels, indices_tuple, ref_emb, ref_labels)`` and a miner returns indices, as there.
No list of pairs or triplets is built unless a script passes one, and several processes share a batch without a wrapper.
What cannot be expressed raises a NotImplementedError at construction, with an alternative.
"""

__version__ = "2.9.0"  # whose names and calls these are

from typing import NoReturn

from . import distances, losses, miners, reducers, regularizers, samplers, utils
from .absent import refuse_module

MISSING = {
    "trainers": "train with `nearfar train` or nearfar.train.train, or write the loop around a loss yourself",
    "testers": "score with `nearfar evaluate` or nearfar.evaluation.evaluate, or with utils.accuracy_calculator",
    "datasets": "read data with nearfar.data.open_task, which knows the archives cub:, cars:, sop: and inshop:",
}
"""Modules of the other library that are missing, and what to use instead."""

__all__ = ["distances", "losses", "miners", "reducers", "regularizers", "samplers", "utils"]


def __getattr__(name: str) -> NoReturn:
    refuse_module(__name__, MISSING, name)
