"""Deep metric learning in PyTorch: the parts of an objective, the networks, and the batches that they learn from.

What losses, miners and samplers of your own are made of is here; it loads on first use:

>>> from nearfar.deep import LabelSets, RowLoss, Rows, SetTerm, Term
"""

from __future__ import annotations

from typing import Any

from ..lazy_names import lazy_name

HOMES = {
    "BatchSampler": "samplers.base",
    "ClassProxyLoss": "proxies.class_proxies",
    "EmbeddingSampler": "samplers.embedded",
    "LabelSets": "objective.relations",
    "Miner": "miners.base",
    "RowLoss": "pairwise.row_loss",
    "Rows": "pairwise.comparison",
    "SampledClasses": "proxies.sampled_classes",
    "ShardedClasses": "proxies.sharded_classes",
    "SetTerm": "objective.terms",
    "StiefelSGD": "networks.spd",
    "Sum": "objective.terms",
    "Term": "objective.terms",
    "average_gradients": "chunks",
    "backward_in_chunks": "chunks",
    "mine_offline": "miners.offline",
    "of_pairs": "objective.relations",
    "other_parameters": "networks.spd",
    "parse_objective": "objective.parser",
    "split_episode": "episodes",
    "stiefel_parameters": "networks.spd",
}
__all__ = sorted(HOMES)


def __getattr__(name: str) -> Any:
    return lazy_name(__name__, HOMES, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
