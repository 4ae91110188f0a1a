"""Weights of trunks from local files: `.safetensors`, or `.pth` where PyTorch reads it without executing it."""

from __future__ import annotations

import re
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor, nn

from ...quoting import PATH, in_brief

HEADS = ("last_linear.", "fc.", "classifier.", "head.", "logits.")  # classifiers that a metric has no use for

TRUNK = "embedder.trunk."  # in the checkpoint of a run
NETWORK = "embedder."  # the trunk and its embedding layer
METRIC = "embedder.metric."  # fitted to embeddings after the training of the network that gives them
NAMES = {TRUNK: "trunk", NETWORK: "network"}
SAFE_PICKLES = (2, 10)  # the first PyTorch without known ways around `weights_only`
WRAPPERS = ("module.", "inner.")  # of processes that train together, and of trunks from elsewhere


class TrunkError(ValueError):
    """A trunk or its weights cannot be built or loaded; the message is one line."""


def pickles_are_safe() -> bool:
    """Return whether `torch.load(weights_only=True)` runs no code of a file.

    Before PyTorch 2.10 a crafted file could make it: CVE-2025-32434, CVE-2026-24747.
    """
    major, minor = re.findall(r"\d+", torch.__version__)[:2]
    return (int(major), int(minor)) >= SAFE_PICKLES


def load_weights(module: nn.Module, path: str | Path, part: str = TRUNK) -> None:
    """Load a local state dict into a module.

    From the checkpoint of a run, its trunk or another part is taken. Classifiers and the prefixes of wrappers are
    dropped, and the (1, C) statistics of old files are flattened; everything else must fit.

    Raises
    ------
    TrunkError
        If the file is missing, is no state dict, or does not fit.
    """
    own = module.state_dict()
    state = _tidy(_read_state(Path(path)), own, part)
    foreign = sorted(key for key in state.keys() - own.keys() if not key.startswith(HEADS))
    lacking = sorted(key for key in own.keys() - state.keys() if not key.endswith("num_batches_tracked"))
    wrong = [f"{verb} {keys[0]!r}" for verb, keys in (("lacks", lacking), ("has", foreign)) if keys]
    if wrong:
        counts = f"{len(lacking)} missing, {len(foreign)} foreign"
        raise TrunkError(f"{path}: does not fit this {NAMES[part]}: it {' and '.join(wrong)} ({counts})")
    fitting = {key: _fit(path, key, value, own[key], part) for key, value in state.items() if key in own}
    module.load_state_dict(fitting, strict=False)


def _fit(path: str | Path, key: str, value: Tensor, own: Tensor, part: str) -> Tensor:
    shaped = value.flatten() if own.ndim == 1 else value
    if shaped.shape != own.shape:
        sizes = f"{tuple(value.shape)}, expected {tuple(own.shape)}"
        raise TrunkError(f"{path}: does not fit this {NAMES[part]}: {key} is {sizes}")
    return shaped


def _tidy(state: dict[str, Tensor], own: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    """Take the part of a run, and drop prefixes that all names have but the module's own names lack."""
    state = {key: value for key, value in state.items() if not key.startswith(METRIC)}
    state = {key.removeprefix(part): value for key, value in state.items() if key.startswith(part)} or state
    for prefix in WRAPPERS:
        if all(key.startswith(prefix) for key in state) and not all(key.startswith(prefix) for key in own):
            state = {key.removeprefix(prefix): value for key, value in state.items()}
    return state


def _read_state(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise TrunkError(f"{path}: no such file of weights")
    if path.suffix != ".safetensors" and not pickles_are_safe():
        needed = ".".join(map(str, SAFE_PICKLES))
        told = f"a file of this kind can run code in PyTorch {torch.__version__}; use PyTorch {needed} or newer"
        raise TrunkError(f"{path}: {told}, or weights as .safetensors")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # both readers raise nearly anything on a foreign file
        # torch's text explains how to run what is in the file
        foreign = isinstance(error, (UnpicklingError, LookupError))
        if foreign:
            reason = "holds something other than tensors"
        else:
            reason = in_brief(str(error).partition("\n")[0], PATH)
        raise TrunkError(f"{path}: not readable as weights ({reason})") from error
    if isinstance(found, dict):
        found = found.get("state_dict", found)
    else:
        found = found
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise TrunkError(f"{path}: holds no state dict (a mapping from names to tensors)")
    return found
