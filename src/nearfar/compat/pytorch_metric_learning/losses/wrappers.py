"""Losses around losses: two views, sums, and a queue of earlier batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ....deep import distributed
from ..indices import Indices, of_all_processes
from ..mismatch import Mismatch
from ..utils import common_functions
from ..utils import loss_and_miner_utils as lmu

OF_TWO_VIEWS = (
    "AngularLoss",
    "CircleLoss",
    "ContrastiveLoss",
    "GeneralizedLiftedStructureLoss",
    "IntraPairVarianceLoss",
    "LiftedStructureLoss",
    "MultiSimilarityLoss",
    "NCALoss",
    "NTXentLoss",
    "SignalToNoiseRatioContrastiveLoss",
    "SupConLoss",
    "TripletMarginLoss",
    "TupletMarginLoss",
)


class BaseLossWrapper(nn.Module):
    """A loss around another one.

    Parameters
    ----------
    loss : Module
        Of one of the classes that `supported_losses` names, or of one derived from them.
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        bases = {base.__name__ for base in type(loss).__mro__}
        if not bases & set(self.supported_losses()):
            self.check_loss_support(type(loss).__name__)
        self.loss = loss

    @staticmethod
    def supported_losses() -> Sequence[str]:
        raise NotImplementedError

    @classmethod
    def check_loss_support(cls, loss_name: str) -> None:
        """Raise unless losses of this name are supported."""
        if loss_name not in cls.supported_losses():
            raise Mismatch(f"{cls.__name__} not supported for {loss_name}")


class SelfSupervisedLoss(BaseLossWrapper):
    """Two or more views of the same samples, each sample a class of its own.

    Parameters
    ----------
    loss : Module
    symmetric : bool
        Compare all views with one another; otherwise the first with the others.
    """

    def __init__(self, loss: nn.Module, symmetric: bool = True) -> None:
        super().__init__(loss)
        self.symmetric = symmetric

    @staticmethod
    def supported_losses() -> Sequence[str]:
        return list(OF_TWO_VIEWS)

    def forward(self, embeddings: Tensor, ref_emb: Tensor, *other_views: Tensor) -> Tensor:
        labels = torch.arange(len(embeddings), device=embeddings.device)
        others = torch.cat([ref_emb, *other_views])
        of_others = labels.repeat(1 + len(other_views))
        if self.symmetric:
            value: Tensor = self.loss(torch.cat([embeddings, others]), torch.cat([labels, of_others]))
        else:
            value = self.loss(embeddings, labels, ref_emb=others, ref_labels=of_others)
        return value


class MultipleLosses(nn.Module):
    """A weighted sum of losses, each with a miner of its own."""

    def __init__(
        self,
        losses: Sequence[nn.Module] | dict[str, nn.Module],
        miners: Sequence[Any] | dict[str, Any] | None = None,
        weights: Sequence[float] | dict[str, float] | None = None,
    ) -> None:
        super().__init__()
        if isinstance(losses, dict):
            miners = _by_name(losses, miners)
            weights = _by_name(losses, weights, default=1.0)
            losses = list(losses.values())
        self.losses = nn.ModuleList(losses)
        self.mined = miners is not None
        self.miners = [None] * len(losses) if miners is None else list(miners)
        self.weights = [1.0] * len(losses) if weights is None else list(weights)
        if not len(self.losses) == len(self.miners) == len(self.weights):
            raise Mismatch("losses, miners and weights must be of equal length")

    def forward(self, embeddings: Tensor, labels: Tensor, indices_tuple: Indices | None = None) -> Tensor:
        if self.mined and indices_tuple is not None:
            raise Mismatch("indices_tuple: the losses already have miners; pass indices_tuple or miners, not both")
        total = embeddings.sum() * 0
        for loss, miner, weight in zip(self.losses, self.miners, self.weights, strict=True):
            found = indices_tuple if miner is None else miner(embeddings, labels)
            total = total + weight * loss(embeddings, labels, found)
        return total


def _by_name(losses: dict[str, nn.Module], others: Any, default: Any = None) -> Any:
    """Return what belongs to each of the named losses, in their order, and a default where there is nothing."""
    if others is None:
        return None
    unknown = set(others) - set(losses)
    if unknown:
        raise Mismatch(f"unknown loss {sorted(unknown)[0]!r}; expected one of {sorted(losses)}")
    return [others.get(name, default) for name in losses]


class CrossBatchMemory(BaseLossWrapper):
    """A loss against a queue of the embeddings of the last batches, of which the present one is a part.

    With several processes, the queue holds the batches of all of them.

    Parameters
    ----------
    loss : Module
    embedding_size, memory_size : int
        The shape of the queue.
    miner : Module, optional
        It mines pairs or triplets of samples with the queue.
    """

    embedding_memory: Tensor
    label_memory: Tensor

    def __init__(self, loss: nn.Module, embedding_size: int, memory_size: int = 1024, miner: Any = None) -> None:
        super().__init__(loss)
        self.miner = miner
        self.memory_size = memory_size
        self.embedding_size = embedding_size
        self.reset_queue()

    @staticmethod
    def supported_losses() -> Sequence[str]:
        return sorted([*OF_TWO_VIEWS, "MarginLoss"])

    def reset_queue(self) -> None:
        """Forget all batches."""
        self.register_buffer("embedding_memory", torch.zeros(self.memory_size, self.embedding_size))
        self.register_buffer("label_memory", torch.zeros(self.memory_size, dtype=torch.int64))
        self.curr_batch_idx = torch.zeros(0, dtype=torch.int64)
        self.queue_idx = 0
        self.has_been_filled = False

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Indices | None = None,
        enqueue_mask: Tensor | None = None,
    ) -> Any:
        """Return the loss of a batch against the queue.

        Parameters
        ----------
        embeddings, labels : (n, d) float tensor, (n,) integers
        indices_tuple : 3 or 4 tensors, optional
            More pairs or triplets, whose references are places in the queue.
        enqueue_mask : (n,) booleans, optional
            These samples only enter the queue, and the others are only compared with it.
        """
        if indices_tuple is not None and enqueue_mask is not None:
            raise Mismatch("indices_tuple and enqueue_mask are mutually exclusive")
        labels = labels.to(embeddings.device)
        if distributed.world() > 1:
            if indices_tuple is not None:  # their references are places in the queue, which is the same everywhere
                indices_tuple = of_all_processes(indices_tuple, len(embeddings), 0)
            if enqueue_mask is not None:
                enqueue_mask = distributed.gather_rows(enqueue_mask.to(embeddings.device))
            embeddings = distributed.gather_rows(embeddings)
            labels = distributed.gather_rows(labels)
        with distributed.local():  # every process holds the batch of all
            return self._of_batch(embeddings, labels, indices_tuple, enqueue_mask)

    def _of_batch(
        self, embeddings: Tensor, labels: Tensor, indices_tuple: Indices | None, enqueue_mask: Tensor | None
    ) -> Any:
        entering = (embeddings, labels)
        if enqueue_mask is not None:  # masked samples enter the queue and are no anchors; the others are, and stay out
            if len(enqueue_mask) != len(embeddings):
                raise Mismatch(f"enqueue_mask: {len(enqueue_mask)} entries for {len(embeddings)} embeddings")
            mask = enqueue_mask.to(embeddings.device)
            entering = (embeddings[mask], labels[mask])
            embeddings = embeddings[~mask]
            labels = labels[~mask]
        number = len(entering[0])
        if number > self.memory_size:
            raise Mismatch(f"CrossBatchMemory: a batch of {number} does not fit into memory_size={self.memory_size}")
        self.embedding_memory = self.embedding_memory.to(embeddings)
        self.label_memory = self.label_memory.to(labels)
        self.add_to_memory(*entering, number)
        size = self.memory_size if self.has_been_filled else self.queue_idx
        # copies, because the next batch overwrites the queue before the backward pass of this one may be over
        memory = self.embedding_memory[:size].clone()
        known = self.label_memory[:size].clone()
        found = self.create_indices_tuple(embeddings, labels, memory, known, indices_tuple, enqueue_mask is None)
        return self.loss(embeddings, labels, found, memory, known)

    def add_to_memory(self, embeddings: Tensor, labels: Tensor, batch_size: int) -> None:
        """Put a batch into the queue, in the place of the oldest one."""
        places = self.queue_idx + torch.arange(batch_size, device=labels.device)
        self.curr_batch_idx = places % self.memory_size
        self.embedding_memory[self.curr_batch_idx] = embeddings.detach()
        self.label_memory[self.curr_batch_idx] = labels.detach()
        self.has_been_filled = self.has_been_filled or self.queue_idx + batch_size >= self.memory_size
        self.queue_idx = (self.queue_idx + batch_size) % self.memory_size

    def create_indices_tuple(
        self,
        embeddings: Tensor,
        labels: Tensor,
        E_mem: Tensor,
        L_mem: Tensor,
        input_indices_tuple: Indices | None,
        do_remove_self_comparisons: bool,
    ) -> tuple[Tensor, ...]:
        """Return the pairs or triplets of a batch with the queue, and those that are given."""
        if self.miner is None:
            found: tuple[Tensor, ...] = lmu.get_all_pairs_indices(labels, L_mem)
        else:
            found = self.miner(embeddings, labels, E_mem, L_mem)
        if do_remove_self_comparisons:
            found = lmu.remove_self_comparisons(found, self.curr_batch_idx, self.memory_size)
        if input_indices_tuple is None:
            return found
        if len(found) == 4:
            return common_functions.concatenate_indices_tuples(found, lmu.convert_to_pairs(input_indices_tuple, labels))
        return common_functions.concatenate_indices_tuples(found, lmu.convert_to_triplets(input_indices_tuple, labels))
