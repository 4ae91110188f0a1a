"""Training with very many classes: proxies that are sampled in each step, or distributed over the processes.

Both kinds of proxies are left out of DistributedDataParallel. The gradient of distributed ones is complete in their
process, and that of drawn ones is sparse: its rows are averaged here, and only these rows are updated (partial FC; An
et al., 2021).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ...deep import distributed
from ...deep.objective.terms import Sum, Term
from ...deep.proxies.divided_classes import DivisibleClasses
from ...deep.proxies.heads import HeadLoss
from ...deep.proxies.sampled_classes import SampledClasses
from ...deep.proxies.sharded_classes import ShardedClasses
from ..config import TrainConfig, TrainError

if TYPE_CHECKING:
    from accelerate import Accelerator


def with_many_classes(objective: Sum, config: TrainConfig) -> Sum:
    """Return an objective whose losses with class proxies draw their classes, or distribute them over the processes.

    Raises
    ------
    TrainError
        If the objective has no such loss, one that cannot do so, or terms that read all proxies of another.
    """
    setting = many_classes_setting(config)
    if setting is None:
        return objective
    parts = [(weight, _with_many_classes(term, setting, config)) for weight, term in objective.parts()]
    if not any(_is_wrapped(term) for _, term in parts):
        detail = f"needs a loss with class proxies, such as CosFaceLoss(), got {objective!r}"
        raise TrainError(f"config: {setting}: {detail}")
    for _, term in parts:
        if config.shard_classes and (term.reads_scores or term.reads_centers):
            detail = "reads all class proxies of another loss, of which each process has a part; train without it"
            raise TrainError(f"config: shard_classes: {type(term).__name__} {detail}")
    return Sum(parts)


def many_classes_setting(config: TrainConfig) -> str | None:
    """Return the name of the setting for sampled or distributed classes; None if neither is set."""
    if config.shard_classes:
        return "shard_classes"
    return None if config.sample_classes is None else "sample_classes"


def _with_many_classes(term: Term, setting: str, config: TrainConfig) -> Term:
    if not isinstance(term, DivisibleClasses):
        if isinstance(term, HeadLoss):
            detail = f"{type(term).__name__} needs the outputs of all classes; with very many classes, use"
            raise TrainError(f"config: {setting}: {detail} CrossEntropyHead() or AMSoftmaxLoss()")
        return term
    share = 1.0 if config.sample_classes is None else config.sample_classes
    sparse = config.sample_classes is not None
    try:
        if config.shard_classes:
            return ShardedClasses(term, share=share, sparse=sparse)
        return SampledClasses(term, share=share, sparse=sparse)
    except (TypeError, ValueError) as error:
        detail = str(error).partition(": ")[2].removeprefix("loss: ")
        raise TrainError(f"config: {setting}: {detail}") from error


def _is_wrapped(module: nn.Module) -> bool:
    return isinstance(module, ShardedClasses | SampledClasses)


def check_many_classes(config: TrainConfig, accelerator: Accelerator) -> None:
    """Refuse kinds of several processes in which classes are not drawn or distributed.

    Raises
    ------
    TrainError
        With one line that names the setting.
    """
    setting = many_classes_setting(config)
    if setting is None or accelerator.num_processes == 1:
        return
    kind = accelerator.distributed_type
    from .devices import PLAIN  # for start-up time: accelerate takes 0.3 s

    if kind not in PLAIN:
        raise TrainError(f"config: {setting}: does not work with {kind.value}, which shards parameters itself")
    if config.precision == "fp16":
        detail = "does not work with precision=fp16, whose loss scale would differ between processes; use bf16"
        raise TrainError(f"config: {setting}: {detail}")


def sharded_terms(objective: nn.Module) -> Iterator[tuple[str, ShardedClasses]]:
    """Yield the terms whose classes are distributed, with their names in the objective."""
    for name, module in objective.named_modules():
        if isinstance(module, ShardedClasses):
            yield name, module


def own_parameters(objective: nn.Module) -> list[nn.Parameter]:
    """Return the parameters whose gradients are not averaged over processes as those of the network are."""
    return [parameter for module in objective.modules() if _is_wrapped(module) for parameter in module.parameters()]


def sharded_parameters(objective: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of which each process has a part."""
    return [parameter for _, term in sharded_terms(objective) for parameter in term.parameters()]


def everywhere(objective: nn.Module, holds: bool, device: torch.device) -> bool:
    """Return whether something that may depend on distributed proxies holds in all processes."""
    if not sharded_parameters(objective):
        return holds
    return not bool(distributed.total(torch.tensor(float(not holds), device=device)))


def exclude_from_averaging(module: nn.Module, objective: nn.Module) -> None:
    """Keep DistributedDataParallel from averaging the gradients of the objective's drawn and distributed proxies.

    `module` holds the network and the objective.
    """
    own = {id(parameter) for parameter in own_parameters(objective)}
    names = [name for name, parameter in module.named_parameters() if id(parameter) in own]
    if names:
        nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)


def average_drawn(objective: nn.Module) -> None:
    """Average the gradients of drawn proxies that every process has over the processes, which drew the same ones."""
    if distributed.world() == 1:
        return
    sharded = {id(parameter) for parameter in sharded_parameters(objective)}
    for parameter in own_parameters(objective):
        if id(parameter) not in sharded and parameter.grad is not None:
            rows = _rows(parameter.grad)
            rows.copy_(distributed.total(rows) / distributed.world())


def clip_gradients(model: nn.Module, objective: nn.Module, accelerator: Accelerator, most: float) -> None:
    """Scale the gradients of all parameters down to a norm of at most `most`, over all processes.

    `model` is the network with the objective, as the accelerator has prepared them.
    """
    own = own_parameters(objective)
    if not own:
        accelerator.clip_grad_norm_(model.parameters(), most)
        return
    accelerator.unscale_gradients()
    sharded = {id(parameter) for parameter in sharded_parameters(objective)}
    every = [parameter for parameter in model.parameters() if parameter.grad is not None]
    device = accelerator.device
    shared = _square_sum([parameter for parameter in every if id(parameter) not in sharded], device)
    partial = distributed.total(_square_sum([parameter for parameter in every if id(parameter) in sharded], device))
    factor = (most / ((shared + partial).sqrt() + 1e-6)).clamp_max(1.0)
    for parameter in every:
        assert parameter.grad is not None
        _rows(parameter.grad).mul_(factor)


def _square_sum(parameters: list[nn.Parameter], device: torch.device) -> Tensor:
    squares = [_rows(parameter.grad).square().sum() for parameter in parameters if parameter.grad is not None]
    return torch.stack(squares).sum() if squares else torch.zeros((), device=device)


def _rows(grad: Tensor) -> Tensor:
    """Return the numbers of a gradient, those of its rows if it is sparse."""
    return grad._values() if grad.is_sparse else grad


def gather_proxies(objective: nn.Module, prefix: str) -> dict[str, Tensor]:
    """Return the parameters of all classes by their names in a state, in the first process; in others their own."""
    return {
        f"{prefix}{name}.loss.{key}": whole
        for name, term in sharded_terms(objective)
        for key, whole in term.whole_in_first().items()
    }
