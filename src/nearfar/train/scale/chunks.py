"""A training step whose network sees the batch in chunks (see `nearfar.deep.chunks`)."""

from __future__ import annotations

import torch
from accelerate import Accelerator, DistributedType
from torch import Tensor, nn

from ...deep import distributed
from ...deep.chunks import average_gradients, backward_in_chunks
from ...deep.networks.embedder import Features
from ...deep.networks.pair_terms import MultiScaleRelationTerm
from ...deep.objective.network_layers import WatchesLayers
from ..config import TrainError
from ..loop import Loop
from ..pairs import PairBatch, PairFeatures
from .devices import PLAIN
from .many_classes import own_parameters


def check_chunks(chunk: int, batch_size: int, objective: nn.Module, accelerator: Accelerator) -> None:
    """Raise a TrainError if a batch cannot be split: a term reads the maps of a whole batch, or the batch is too small.

    Raises
    ------
    TrainError
        If a batch cannot be split; the message is one line.
    """
    if accelerator.distributed_type not in (DistributedType.NO, *PLAIN):
        raise TrainError(
            f"config: chunk: does not work with {accelerator.distributed_type.value}, which shards the parameters"
        )
    share = batch_size // distributed.world()
    if chunk > share:
        detail = f"{chunk} items at a time are more than the {share} items of a batch that each process has"
        raise TrainError(f"config: chunk: {detail}")
    for part in objective.modules():
        if isinstance(part, MultiScaleRelationTerm):
            raise TrainError(f"config: chunk: {part.title} reads the maps of a whole batch; train it without chunk")
        if isinstance(part, WatchesLayers) and part.watched_names:
            detail = f"{type(part).__name__} reads {part.watched_names[0]} of a whole batch; train it without chunk"
            raise TrainError(f"config: chunk: {detail}")


def backward_of_chunks(loop: Loop, items: Tensor | PairBatch, labels: Tensor, ids: Tensor) -> Tensor:
    """Add the gradient of a whole batch to all parameters, and return the value of the objective."""
    trainable = loop.trainable  # unwrapped, because DistributedDataParallel would average the gradients of each chunk
    chunk = loop.config.chunk
    assert chunk is not None
    _share_statistics(trainable.embedder)

    def objective(features: Features | PairFeatures) -> Tensor:
        return trainable.value(features, items, labels, ids)

    value = backward_in_chunks(trainable, items, objective, chunk=chunk, backward=loop.accelerator.backward)
    own = {id(parameter) for parameter in own_parameters(trainable.objective)}
    average_gradients(parameter for parameter in trainable.parameters() if id(parameter) not in own)
    return value


def _share_statistics(embedder: nn.Module) -> None:
    """Begin with the statistics of the first process, as DistributedDataParallel does."""
    if distributed.world() == 1:
        return
    with torch.no_grad():
        for buffer in embedder.buffers():
            buffer.copy_(distributed.of_first(buffer))
