"""Everything that a training needs, built from its config."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from ..data import Task
from ..deep.compositions.divide_and_conquer import DivideAndConquer
from ..deep.memory.distill import Distill
from ..deep.networks.standardize import Standardize
from ..deep.samplers.base import BatchSampler
from ..deep.samplers.clusters import ClusterSampler
from .checkpoint import seed_random_state
from .config import TrainConfig, TrainError
from .features import all_rows
from .listed_pairs import KnownPairs
from .loop import Loop
from .mirroring import with_or_without_mirror
from .network import Trainable, choose_trained, make_trainable, weights_note
from .pairs import check_objective
from .positives import check_batch_size, check_positives
from .scale.chunks import check_chunks
from .scale.devices import make_accelerator
from .scale.many_classes import check_many_classes
from .settle import Plan, sampler_of, settle
from .start import start_embedding
from .task import item_shape
from .teachers import ask_teachers
from .training_data import TrainingData
from .weight_averages import Averages


def build(
    config: TrainConfig,
    start: Path | None = None,
    *,
    resumed: bool = False,
    given: Task | None = None,
    known: KnownPairs | None = None,
    trains: bool = True,
) -> Loop:
    """Settle a config, whose data are opened unless they are `given`, and build what it describes.

    A resumed run has a folder in which it was started, `start`, and with a checkpoint, `resumed`, also its weights. If
    pairs of the given items are `known`, batches are made of these, whatever the classes. A run that `trains` nothing
    needs no positive pairs.

    Raises
    ------
    TrainError or ValueError
        If a part is not valid; the message is one line.
    """
    return build_loop(settle(config, start, given, known), resumed=resumed, trains=trains)


def build_loop(plan: Plan, *, resumed: bool = False, trains: bool = True) -> Loop:
    """Build the network, the objective and the batches of a plan, as `build`."""
    config = plan.config
    seed_random_state(config.seed)
    accelerator = make_accelerator(config)
    trainable = _new_trainable(plan, resumed)
    if trains and plan.texts is None and not plan.task.train.has_label_sets:
        check_positives(plan.task.train, trainable.objective, config)
    if trains and plan.texts is None and plan.known is None:
        check_batch_size(trainable.objective, config)
    if config.chunk is not None:
        check_chunks(config.chunk, config.batch_size, trainable.objective, accelerator)
    check_many_classes(config, accelerator)
    if accelerator.num_processes > 1 and accelerator.device.type == "cuda" and not config.freeze_bn:
        trainable = nn.SyncBatchNorm.convert_sync_batchnorm(trainable)
    if trains and not resumed and "augment" not in plan.asked.given and config.starts_pretrained:
        plan = with_or_without_mirror(plan, trainable.embedder, accelerator.device)
    data = TrainingData.of(plan, trainable.embedder, accelerator)
    if trains and config.embedding_start != "random" and not resumed:
        with accelerator.main_process_first():
            start_embedding(trainable.embedder.to(accelerator.device), data.train, config)
    taught = [term for term in trainable.objective.modules() if isinstance(term, Distill)]
    if taught:
        ask_teachers(taught, plan.task.train, config, plan.start)
    if config.patience is not None and data.unseen is None:
        raise TrainError("config: patience needs validation classes, and there are none; leave it out")
    check_clusters(trainable.objective, data.sampler)
    return Loop(
        data=data,
        trainable=trainable,
        accelerator=accelerator,
        averages=Averages(trainable.embedder, trainable.objective, config.ema),
        weights=weights_note(config, trainable.embedder),
    )


def _new_trainable(plan: Plan, resumed: bool) -> Trainable:
    """Build embedder and objective of a plan.

    A `resumed` run reads its weights from the checkpoint later; those of a frozen trunk give the features at once.
    """
    config = plan.config
    train = plan.task.train
    text_length = None if plan.texts is None else plan.texts.length
    later = resumed and not config.freeze_trunk and not config.trunk.startswith("transformers:")
    sizes = np.maximum(train.class_counts, 1).tolist()
    # samplers of classes draw all classes equally often
    counts = sizes if config.sampler.strip() == "random" else None
    shape = item_shape(train, config)
    trainable = make_trainable(
        config,
        shape,
        len(train.classes),
        plan.start,
        class_counts=counts,
        class_sizes=sizes,
        text_length=text_length,
        with_weights=not later,
    )
    scale = trainable.embedder.scale
    if (
        isinstance(scale, Standardize) and config.network_weights is None
    ):  # a trained network keeps the standardization of its own rows
        scale.learn(all_rows(train))
    choose_trained(trainable.embedder, config, shape)
    if text_length is not None:
        check_objective(trainable.objective)
    if train.class_labels is not None:
        check_objective(trainable.objective, "levels" if train.class_labels.levels else "label sets")
        trainable.levels = [  # none for label sets
            torch.from_numpy(train.class_labels.at_level(level, train.classes))
            for level in range(1, len(train.class_labels.levels))
        ]
    if trainable.episodes is not None:
        trainable.episodes.refuse(trainable.objective)
    return trainable


def steps_of_epochs(config: TrainConfig, epochs: float) -> int:
    """Return the number of batches that a number of epochs takes on the data of a config; this opens them."""
    plan = settle(config)
    return max(1, round(epochs * len(sampler_of(plan.config, plan.task.train, None))))


def check_clusters(objective: nn.Module, sampler: BatchSampler) -> None:
    """Raise a TrainError if an objective trains a group of dimensions for each cluster, and batches have no clusters.

    Raises
    ------
    TrainError
        If the sampler has no clusters, or not one for each group; the message is one line.
    """
    for term in objective.modules():
        if not isinstance(term, DivideAndConquer):
            continue
        if not isinstance(sampler, ClusterSampler):
            expected = f"ClusterSampler(clusters={term.number})"
            raise TrainError(f"config: sampler: DivideAndConquer needs {expected}, got {type(sampler).__name__}")
        if sampler.number != term.number:
            got = f"{sampler.number} clusters and {term.number} groups"
            raise TrainError(f"config: sampler: DivideAndConquer needs one cluster for each group, got {got}")


def checked(config: TrainConfig) -> TrainConfig:
    """Return the config, or raise a TypeError if it is not one."""
    if not isinstance(config, TrainConfig):
        raise TypeError(
            f"config: expected a TrainConfig, as TrainConfig.of(data=...) makes, got {type(config).__name__}"
        )
    return config
