"""Check that there are positive pairs, if the objective needs them."""

from __future__ import annotations

from ..data import Dataset
from ..deep.objective.terms import Sum
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
