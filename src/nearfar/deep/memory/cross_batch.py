"""Cross-batch memory (Wang, Zhang, Huang & Scott, 2020).

    L = L(batch, batch) + w L(batch, memory),   memory: the last M embeddings of earlier batches, without gradient

With a proxy loss, the embeddings in the memory are further anchors, which are compared with the proxies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from .. import distributed
from ..objective.batch import Batch
from ..objective.relations import UNKNOWN
from ..objective.terms import AnchorLoss, Term
from ..precision import kept
from ..proxies.class_proxies import ClassProxyLoss

Self = TypeVar("Self", bound="CrossBatchMemory")
REMEMBERED = ("features", "classes", "ids", "position", "steps")
"""What a memory saves in its state. These are no buffers, which an average of weights would mix with those of earlier
steps, and the width of the features may be known from the first batch only."""


def cross_batch(memory: Tensor, new: Tensor, position: Tensor) -> Tensor:
    """Return a copy of the ring `memory`, (M, ...), with the last M rows of `new` written at `position` and after."""
    size = len(memory)
    n = len(new)
    skipped = max(0, n - size)
    places = (position + torch.arange(skipped, n, device=memory.device)) % size
    return memory.index_copy(0, places, new[skipped:].to(memory.dtype))


class CrossBatchMemory(Term):
    """Loss that also compares each batch with the embeddings of earlier batches.

    Parameters
    ----------
    loss : AnchorLoss
        Any pair, triplet or proxy loss.
    size : int
        Number M of embeddings in the memory, at least 0; with 0, there is none.
    weight : float
        Weight w of the comparison with the memory.
    start : int
        Number of steps before the memory is used, at least 0; 1000 in the paper. It is filled from the first step on.
    embedding_dim : int, optional
        Number d of dimensions of the embeddings. By default, it is taken from the first batch.

    Attributes
    ----------
    features : Tensor of shape (M, d)
        Embeddings in the memory, a ring buffer.
    classes, ids : Tensor of shape (M,)
        Labels and sample numbers of the embeddings; -1 for an empty place or an unknown one.
    position : Tensor
        Place of the ring to write next.
    steps : Tensor
        Number of steps so far.

    Raises
    ------
    TypeError
        If `loss` is not a pair, triplet or proxy loss.
    ValueError
        If `size` or `start` is negative.

    Notes
    -----
    A batch is compared with earlier batches only, whereas the published code stores it first. If ``ids=`` is passed, as
    a training run does, an earlier embedding of the same sample is neither similar nor dissimilar to it. All processes
    store the global batch, in training mode only.

    What is remembered is saved by ``state_dict()``, but is not among ``buffers()``: an average of weights does not mix
    it, and DistributedDataParallel does not send it. Every process loads the state.

    Examples
    --------
    >>> from nearfar import ContrastiveLoss
    >>> memory = CrossBatchMemory(ContrastiveLoss(), size=6)
    >>> for label in (0, 1):
    ...     _ = memory(torch.eye(4), torch.full((4,), label))
    >>> memory.classes.tolist(), int(memory.position)
    ([1, 1, 0, 0, 1, 1], 2)
    """

    features: Tensor
    classes: Tensor
    ids: Tensor
    position: Tensor
    steps: Tensor

    def __init__(
        self, loss: Any, size: int = 8192, *, weight: float = 1.0, start: int = 0, embedding_dim: int | None = None
    ) -> None:
        super().__init__()
        if not isinstance(loss, AnchorLoss):
            raise TypeError(f"CrossBatchMemory: loss must be a pair, triplet or proxy loss, got {loss!r}")
        if min(size, start) < 0:
            raise ValueError(f"CrossBatchMemory: size and start must be at least 0, got {size} and {start}")
        if embedding_dim is None and isinstance(loss, ClassProxyLoss):
            embedding_dim = loss.proxies.shape[1]
        self.loss = loss
        self.size = size
        self.weight = weight
        self.start = start
        self.features = torch.zeros(size, embedding_dim or 0)
        self.classes = torch.full((size,), UNKNOWN)
        self.ids = torch.full((size,), UNKNOWN)
        self.position = torch.tensor(0)
        self.steps = torch.tensor(0)

    def publish(self, batch: Batch) -> Batch:
        return self.loss.publish(batch)

    def class_centers(self) -> Tensor | None:
        return self.loss.class_centers()

    def local_value(self, batch: Batch) -> Tensor:
        return self._with_memory(batch, self.loss.local_value, self.loss.compare)

    def local_sample_losses(self, batch: Batch) -> Tensor:
        if isinstance(self.loss, ClassProxyLoss):
            detail = "with a proxy loss, embeddings in the memory have losses, too"
            raise TypeError(f"CrossBatchMemory: its value is not a mean over the samples of a batch: {detail}")
        return self._with_memory(batch, self.loss.local_sample_losses, self.loss.compare_samples)

    def _with_memory(
        self, batch: Batch, value_of: Callable[[Batch], Tensor], compared: Callable[[Batch], Tensor]
    ) -> Tensor:
        """Return ``value_of(batch)`` + w ``compared(batch and memory)``, and store the batch in training mode."""
        if batch.ref is not None:
            raise ValueError("CrossBatchMemory: ref does not apply, because the memory is the reference")
        value = value_of(batch)
        if not self.size:
            return value
        self._fit(batch)
        in_use = (self.steps >= self.start).to(value.dtype)  # a tensor, so that nothing waits for the device
        remembered = compared(self._against(batch))
        if self.training:
            self._remember(batch)
        return value + self.weight * in_use * remembered

    def _fit(self, batch: Batch) -> None:
        """Bring the memory to the device of a batch, and give it the width of its embeddings, or raise."""
        dim = batch.x.shape[1]
        if self.features.device != batch.x.device:  # such as after `fully_shard`, which moves parameters and buffers
            for name in REMEMBERED:
                setattr(self, name, getattr(self, name).to(batch.x.device))
        if not self.features.shape[1]:
            self.features = batch.x.new_zeros(self.size, dim)
        if self.features.shape[1] != dim:
            raise ValueError(f"CrossBatchMemory: the memory holds {self.features.shape[1]} dimensions, got {dim}")

    def _against(self, batch: Batch) -> Batch:
        """Return the batch compared with the memory; for a proxy loss, the memory as anchors."""
        features = self.features.to(batch.x.dtype)
        if isinstance(self.loss, ClassProxyLoss):
            # every process compares an equal part of the memory
            first = self.size * distributed.rank() // distributed.world()
            end = self.size * (distributed.rank() + 1) // distributed.world()
            return Batch(features, self.classes, slice(first, end))
        batch.classes("CrossBatchMemory")
        ref_ids = None if batch.ids is None else self.ids
        return batch._replace(ref=features, ref_y=self.classes, ref_ids=ref_ids)

    @torch.no_grad()
    def _remember(self, batch: Batch) -> None:
        """Store the embeddings of a batch."""
        y = batch.classes("CrossBatchMemory")
        if batch.ids is None:
            ids = torch.full_like(y, UNKNOWN)
        else:
            ids = batch.ids
        # copies, because the loss just computed still needs the old memory for its gradient
        self.features = cross_batch(self.features, batch.x, self.position)
        self.classes = cross_batch(self.classes, y, self.position)
        self.ids = cross_batch(self.ids, ids, self.position)
        self.position = (self.position + len(y)) % self.size
        self.steps = self.steps + 1

    @torch.no_grad()
    def drift(self, embeddings: Tensor, ids: Tensor) -> float:
        """Return the mean squared distance of embeddings to those stored for the same samples, or NaN if none are."""
        known = ids.to(self.ids)[:, None]
        # (n, size): which places of the memory hold an earlier embedding of each sample
        sample, place = ((known == self.ids) & (known != UNKNOWN)).nonzero(as_tuple=True)
        if not len(sample):
            return float("nan")
        return float((embeddings[sample] - self.features[place].to(embeddings)).square().sum(1).mean())

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        for name in REMEMBERED:
            old = getattr(self, name)
            now = fn(old)
            dtype = kept(old.dtype, now.dtype)
            if now.dtype != dtype:
                now = old.to(now.device, dtype)  # as in `PreciseBuffers`
            setattr(self, name, now)
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in REMEMBERED:
            destination[prefix + name] = getattr(self, name).detach()

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name in REMEMBERED:
            key = prefix + name
            if key not in state_dict:
                missing_keys.append(key)
                continue
            if key in unexpected_keys:
                unexpected_keys.remove(key)
            saved = state_dict[key].detach()
            own = getattr(self, name)
            # without a batch, features have no columns yet
            any_width = saved.shape[:1] == own.shape[:1] and not (saved.numel() and own.numel())
            if saved.shape != own.shape and not any_width:
                error_msgs.append(f"{key}: the memory has shape {tuple(own.shape)}, got {tuple(saved.shape)}")
                continue
            dtype = kept(own.dtype, saved.dtype) if assign or any_width else own.dtype
            device = saved.device if assign else own.device
            setattr(self, name, saved.to(device, dtype, copy=not assign))

    @property
    def stats_(self) -> dict[str, float]:
        return self.loss.stats_
