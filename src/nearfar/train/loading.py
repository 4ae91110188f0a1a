"""The trained parts of a run, loaded again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..deep.networks.embedder import Embedder
from ..deep.networks.weights import METRIC, NETWORK
from ..deep.networks.whiten import Whiten
from ..trust import modules_of
from .checkpoint import load_tensors, shape_of
from .config import TrainConfig, TrainError
from .devices import make_accelerator
from .run import Run, RunFolder, open_run
from .setup import Step, make_embedder, make_step
from .state import without_adapters

Network = TypeVar("Network", bound=nn.Module)


def folder_and_config(run: Run | str | Path, trust: str | Collection[str] = ()) -> tuple[RunFolder, TrainConfig]:
    """Return the folder of a run and its settings, whose texts may name trusted modules, and those of a `Run`."""
    if isinstance(run, Run):
        folder = open_run(run.folder)
        trust = (*modules_of(trust), *run.config.modules())
    else:
        folder = open_run(run)
    return folder, TrainConfig.from_json(folder.config, trust)


def load_embedder(run: Run | str | Path, which: str = "best", *, trust: str | Collection[str] = ()) -> Embedder:
    """Load the embedder of a run, in evaluation mode, on the device of its config.

    Parameters
    ----------
    run : Run, str or Path
        The run or its folder.
    which : {"best", "last"}
        Which checkpoint.
    trust : str or collection of str
        Modules of a user's own that the settings of the run may name; their code runs.

    Raises
    ------
    TrainError
        If there is no such run or checkpoint, or it is damaged.
    TrustError
        If its trunk is of a module that is not trusted.
    """
    folder, config = folder_and_config(run, trust)
    tensors, about = load_tensors(folder.checkpoint(which))
    tensors = without_adapters(tensors, config)  # which the last checkpoint keeps apart
    # no objective, which may be of a module that is not here
    embedder = make_embedder(config.without_weights(), shape_of(about), architecture=_architecture(about))
    own = {key.removeprefix(NETWORK): value for key, value in tensors.items() if key.startswith(NETWORK)}
    make_metric(embedder, tensors)
    _fill(embedder, own, folder.path)
    return _placed(embedder, config, about)


def load_step(run: Run | str | Path) -> Step:
    """Load embedder and objective of a run's best checkpoint, as `load_embedder` does the former alone."""
    folder, config = folder_and_config(run)
    tensors, about = load_tensors(folder.checkpoint("best"))
    step = make_step(config.without_weights(), shape_of(about), about["num_classes"], architecture=_architecture(about))
    make_metric(step.embedder, tensors)
    _fill(step, tensors, folder.path, needed=NETWORK)
    return _placed(step, config, about)


def make_metric(embedder: Embedder, tensors: Mapping[str, Tensor]) -> None:
    """Give the embedder the kind of metric whose tensors a checkpoint holds."""
    if any(name.startswith(METRIC) for name in tensors):
        embedder.metric = Whiten(embedder.embedding_dim)


def _architecture(about: dict[str, Any]) -> dict[str, Any] | None:
    """Return the settings of a model of transformers that a checkpoint tells, None where it tells none."""
    told = about.get("architecture")
    if told is not None and not (isinstance(told, dict) and isinstance(told.get("model_type"), str)):
        raise TrainError(f"checkpoint: the architecture of the trunk must be a mapping, got {told!r:.60}")
    return told


def _fill(module: nn.Module, tensors: dict[str, Tensor], path: Path, needed: str = "") -> None:
    try:
        missing, unknown = module.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise TrainError(f"{path}: weights and config.json do not belong together") from error
    if unknown or any(key.startswith(needed) for key in missing):
        raise TrainError(f"{path}: weights and config.json do not belong together")


def _placed(module: Network, config: TrainConfig, about: dict[str, Any]) -> Network:
    if len(about["shape"]) == 3:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch declares it too narrowly
    return module.to(make_accelerator(config).device).eval()
