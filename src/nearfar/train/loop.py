"""The loop of a training: what updates the weights of a network with the batches of some data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from torch.optim import Optimizer

from ..deep.networks.tokens import Tokens
from ..deep.networks.transformers_trunk import TransformersTrunk, architecture_of
from .config import TrainConfig, TrainError
from .network import Trainable
from .optim import make_optimizer, param_groups
from .scale.many_classes import exclude_from_averaging
from .task import class_mark, item_shape, text_tokens
from .training_data import TrainingData
from .weight_averages import Averages


@dataclass
class Loop:
    """What updates the weights.

    Attributes
    ----------
    data : TrainingData
        Settings, items and batches.
    trainable : Trainable
        Network and objective.
    accelerator : Accelerator
        Device and processes.
    averages : Averages
        Moving averages of the weights, which are used in evaluation.
    weights : str
        One sentence on the origin of the trunk's weights.
    model : nn.Module or None
        `trainable` as the accelerator has prepared it; None before `prepare`.
    optimizer : Optimizer or None
        Its optimizer; None before `prepare`.
    """

    data: TrainingData
    trainable: Trainable
    accelerator: Accelerator
    averages: Averages
    weights: str = ""
    model: nn.Module | None = None
    optimizer: Optimizer | None = None

    @property
    def config(self) -> TrainConfig:
        """Settings of the training."""
        return self.data.config

    @property
    def about(self) -> dict[str, Any]:
        """Metadata of a checkpoint, from which the network can be built again, with its training items."""
        plan = self.data.plan
        train = plan.task.train
        about: dict[str, Any] = {
            "shape": item_shape(train, plan.config),
            "num_classes": len(train.classes),
            "columns": train.columns,
            "classes": class_mark(plan.task),
            "weights": self.weights,
            "steps_per_epoch": len(self.data.sampler),
        }
        if plan.config.final is not None:
            about["final"] = plan.config.final
        if train.kind == "sound":
            about["sounds"] = True
        if plan.texts is not None:
            about |= text_metadata(plan.texts.tokens)
            about["text_length"] = plan.texts.length
        elif train.texts is not None:
            about |= text_metadata(text_tokens(plan.config, plan.start))
        embedder = self.trainable.embedder
        for name, tower in (("architecture", embedder), ("text_architecture", embedder.text)):
            module = None if tower is None else getattr(tower.trunk, "module", tower.trunk)
            if isinstance(module, TransformersTrunk):
                about[name] = architecture_of(module)
        return about

    def prepare(self) -> None:
        """Move everything to the device, and wrap it for several processes. Load weights before this."""
        trainable = self.trainable
        if self.data.train.kind == "image":
            trainable.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # declared too narrowly
        groups = param_groups(trainable.embedder, trainable.objective, self.config)
        if not groups:
            raise TrainError(
                "nothing to train: the trunk is frozen, and neither embedding layer nor objective has parameters"
            )
        exclude_from_averaging(trainable, trainable.objective)
        self.model, self.optimizer = self.accelerator.prepare(trainable, make_optimizer(groups, self.config))
        self.averages.begin()


def text_metadata(tokens: Tokens) -> dict[str, Any]:
    """Return the metadata of a checkpoint from which its texts are tokenized."""
    prompts = {role: [*prompt] for role, prompt in tokens.prompts.items()}  # as they are read from JSON
    return {"tokenizer": tokens.content, "prompt": tokens.prompt, "prompts": prompts}
