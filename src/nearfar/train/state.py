"""The state of a run at a step, saved and restored so that a resumed run equals an uninterrupted one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..deep.compositions.divide_and_conquer import DivideAndConquer
from ..deep.networks.text_settings import pooling_of
from ..deep.networks.transformers_trunk import IMAGE_POOLING, POOLING
from ..deep.samplers.clusters import ClusterSampler
from ..deep.samplers.embedded import EmbeddingSampler
from ..quoting import count_of
from .checkpoint import fitting, random_state, set_random_state
from .config import TrainError
from .loop import Loop
from .monitor import embed_both, from_first, refit_proxies
from .scale.many_classes import gather_proxies, sharded_parameters

RESUMED = "resume: the checkpoint"
CHANGED = "damaged, of another version, or of data that have changed since"


@dataclass
class Position:
    """Progress of a run.

    Attributes
    ----------
    step : int
        Number of finished batches.
    epoch : int
        The current epoch, counted from 0.
    batch : int
        Number of finished batches of this epoch.
    best : float or None
        Best validation score so far.
    best_epoch : int
        Its epoch, counted from 1; 0 if there is none yet.
    sums : dict of str to Tensor
        Sums of the loss and of its parts over the batches of this epoch.
    rows : list of dict
        Table of the finished epochs.
    by_class : list of Tensor
        Of each evaluation, the score that chooses the best and MAP@R of each held-out class, (2, C).
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    best: float | None = None
    best_epoch: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    by_class: list[Tensor] = field(default_factory=list)

    def since_best(self, score: str) -> int:
        """Return the number of evaluations after the best one, by the name of the score."""
        return sum(score in row and row["epoch"] > self.best_epoch for row in self.rows)


def split_weights(loop: Loop) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of embedder and objective, and the other parts of their states.

    The first process has all of the proxies that are distributed over the processes.
    """
    assert loop.model is not None
    state = loop.accelerator.get_state_dict(loop.model) | gather_proxies(loop.trainable.objective, "objective.")
    tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    return tensors, {key: value for key, value in state.items() if key not in tensors}


def snapshot(loop: Loop, position: Position, extra: dict[str, Any]) -> dict[str, Any]:
    """Return everything but the weights. Processes with whole optimizer states leave those to the first."""
    accelerator = loop.accelerator
    assert loop.optimizer is not None
    owns = accelerator.is_main_process or _is_sharded(loop)
    return {
        "config": loop.config.digest,
        "processes": accelerator.num_processes,
        "position": asdict(position),
        "extra": extra,
        "optimizer": loop.optimizer.state_dict() if owns else None,
        "averages": loop.averages.values if owns else None,
        "scaler": accelerator.scaler.state_dict() if accelerator.scaler is not None else None,
        "sampler": loop.data.sampler.state_dict(position.batch),
        "generators": {name: _generator_state(g) for name, g in _generators(loop.trainable.objective)},
        "random": random_state(),
    }


def restore_weights(
    loop: Loop, tensors: dict[str, Tensor], about: Mapping[str, Any], state: dict[str, Any]
) -> Position:
    """Restore the weights, before `Loop.prepare`; `about` is the metadata of their file."""
    now = loop.about
    if about["classes"] != now["classes"]:
        counts = f"{about['num_classes']} training classes in the run, {now['num_classes']} now"
        raise TrainError(f"resume: the data have other training classes than those of the run ({counts})")
    with fitting(RESUMED, CHANGED):
        check_same_pooling(about, now)
        return _weights_back(loop, tensors, state)


def check_same_pooling(about: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise a TrainError if a model of transformers makes features in another way now than in a checkpoint."""
    same = all(about.get(name) == now.get(name) for name in ("tokenizer", "prompt", "prompts"))
    for name in ("architecture", "text_architecture"):
        settings = now.get(name) or {}
        if POOLING in settings:
            same = same and pooling_of(about[name].get(POOLING)) == pooling_of(settings[POOLING])
        elif settings:
            same = same and about[name].get(IMAGE_POOLING) == settings[IMAGE_POOLING]
    if not same:
        raise TrainError(
            "resume: the folder of the model has another tokenizer, prompt or pooling than in the run; "
            "restore the folder, or start a new run"
        )


def _weights_back(loop: Loop, tensors: dict[str, Tensor], state: dict[str, Any]) -> Position:
    if state["processes"] != loop.accelerator.num_processes:
        raise TrainError(
            f"resume: expected {count_of(state['processes'], 'process')}, as in the run, "
            f"got {loop.accelerator.num_processes}"
        )
    position = Position(**state["position"])
    if position.batch:
        start_epoch(loop, position.epoch)
    loop.trainable.load_state_dict({**tensors, **state["extra"]})
    for name, generator in _generators(loop.trainable.objective):
        _set_generator(generator, state["generators"][name])
    return position


def restore_rest(loop: Loop, state: dict[str, Any], whole: dict[str, Any]) -> None:
    """Restore optimizer, loss scale and random states, after `Loop.prepare`; `whole` is that of the first process."""
    assert loop.optimizer is not None
    with fitting(RESUMED, CHANGED):
        loop.optimizer.load_state_dict(state["optimizer"] or whole["optimizer"])
        _lay_out_like_parameters(loop.optimizer.state)
        loop.averages.load(state["averages"] or whole["averages"])
        if state["scaler"] is not None and loop.accelerator.scaler is not None:
            loop.accelerator.scaler.load_state_dict(state["scaler"])
        loop.data.sampler.load_state_dict(_without_bad(loop, state["sampler"]))
        set_random_state(state["random"])


def _without_bad(loop: Loop, sampler: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the sampler for fewer items, if images that cannot be decoded are left out from now on.

    What it found in embeddings of the other items is left out, too.
    """
    fewer = sampler["settings"]["samples"] - loop.data.sampler.samples
    if not 0 < fewer <= len(loop.data.task.train.bad):
        return sampler
    state = sampler | {"settings": sampler["settings"] | {"samples": loop.data.sampler.samples}}
    return state | {"found": None} if "found" in state else state


def _lay_out_like_parameters(states: Mapping[Tensor, dict[str, Any]]) -> None:
    """Convert averages to the memory layout of their parameter, because fused optimizers use both in memory order."""
    for parameter, state in states.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape and value.ndim:
                state[name] = torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)


def start_epoch(loop: Loop, epoch: int) -> None:
    """Set the epoch of all parts of the objective with a schedule."""
    for module in loop.trainable.objective.modules():
        on_epoch: Callable[[int], None] | None = getattr(module, "on_epoch", None)
        if on_epoch is not None:
            on_epoch(epoch)


def begin_epoch(loop: Loop, position: Position) -> None:
    """Set schedules, computed proxies, and what the batches depend on, and put the network into training mode.

    Its trunk is held during the first `freeze_epochs`.
    """
    assert loop.model is not None
    if not position.batch:  # an interrupted epoch was started before, and its weights are restored
        start_epoch(loop, position.epoch)
        refit_proxies(loop)
    refit_sampler(loop, position.epoch)
    held = position.epoch < (loop.config.freeze_epochs or 0)
    loop.trainable.embedder.held = held
    if loop.trainable.embedder.text is not None:
        loop.trainable.embedder.text.held = held
    loop.model.train()


def refit_sampler(loop: Loop, epoch: int) -> None:
    """Give the embeddings of all training items to a sampler that needs them for an epoch, and the clusters to terms.

    The first process searches, and the others take what it found, so that all of them have the same batches.

    Raises
    ------
    TrainError
        If the embeddings are not finite.
    """
    sampler = loop.data.sampler
    if not isinstance(sampler, EmbeddingSampler):
        return
    sampler.set_epoch(epoch)
    if sampler.needs_embeddings():
        assert loop.model is not None
        loop.model.eval()
        rows = embed_both(loop, loop.data.train)
        if not np.isfinite(rows).all():  # here, where all processes see it
            raise TrainError(
                f"the network gives embeddings of {loop.data.train.name} that are not finite; lower the learning rate"
            )
        if loop.accelerator.is_main_process:
            sampler.refit(rows)
        sampler.load_state_dict(from_first(sampler.state_dict()))
    if isinstance(sampler, ClusterSampler):
        for term in loop.trainable.objective.modules():
            if isinstance(term, DivideAndConquer):
                term.assign(sampler.clusters)


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Return whether all numbers are finite, with a single synchronization of the device."""
    with torch.no_grad():
        return bool(torch.isfinite(torch.stack([tensor.float().sum() for tensor in tensors]).sum()))


def _is_sharded(loop: Loop) -> bool:
    """Return whether each process has optimizer states of its own."""
    from accelerate.utils import DistributedType

    if sharded_parameters(loop.trainable.objective):
        return True
    return loop.accelerator.distributed_type == DistributedType.FSDP


def _generators(objective: nn.Module) -> list[tuple[str, torch.Generator | np.random.Generator]]:
    """Find the random generators that parts of the objective own."""
    return [
        (f"{name}.{key}", value)
        for name, module in objective.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, (torch.Generator, np.random.Generator))
    ]


def _generator_state(generator: torch.Generator | np.random.Generator) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    return generator.bit_generator.state


def _set_generator(generator: torch.Generator | np.random.Generator, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state
