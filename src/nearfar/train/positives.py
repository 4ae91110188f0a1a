"""Check that an objective that compares items has items to compare."""

from __future__ import annotations

from torch import nn

from ..data import Dataset
from ..deep.objective.terms import SetTerm, Sum
from ..deep.pairwise.row_loss import RowLoss
from ..deep.proxies.class_proxies import ClassProxyLoss
from ..deep.proxies.heads import HeadLoss
from .config import TrainConfig, TrainError


def check_positives(train: Dataset, objective: Sum, config: TrainConfig) -> None:
    """Raise an error if an objective compares items of one class, but no class has two and nothing is augmented."""
    if config.augment or train.class_counts.max() > 1:
        return
    alone = [term for term in objective.terms if isinstance(term, ClassProxyLoss | HeadLoss)]
    comparing = [term for term in objective.terms if isinstance(term, RowLoss)]
    if comparing and not alone:
        needs = f"which {type(comparing[0]).__name__} needs; use a loss with class proxies, or set augment"
        raise TrainError(f"{train.name}: no training class has two items, {needs}")


def check_batch_size(objective: Sum, config: TrainConfig) -> None:
    """Raise an error if batches have one item, and every term of the objective only compares items of a batch."""
    if config.batch_size > 1 or not all(_only_compares(term) for term in objective.terms):
        return
    name = type(objective.terms[0]).__name__
    raise TrainError(
        f"config: batch_size: {name} compares the items of a batch, so one item trains nothing; expected at least 2, "
        "or a loss with class proxies"
    )


def _only_compares(term: nn.Module) -> bool:
    """Return whether a term needs several items: it compares them, and learns no class centers of its own."""
    return isinstance(term, RowLoss | SetTerm) and not any(True for _ in term.parameters())
