"""Checkpoints: nested states as safetensors, in files that are written completely or not at all.

A checkpoint is two files. ``state-STEP.RANK.safetensors`` (optimizer, sampler, random numbers) is written first; then
``last.safetensors`` (weights), whose metadata name the step, is renamed into place, and from this moment on the
checkpoint is valid. Older states are removed afterwards. A kill at any time leaves the old checkpoint or the new one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from ..deep.networks.adapters import merged
from ..deep.networks.text_settings import Role
from ..deep.networks.weights import NETWORK
from ..io import tensor_file
from ..io.atomic_files import atomic_write
from ..io.untrusted import parse_json
from ..quoting import PATH, quoted, shorten
from .config import TrainConfig, TrainError

MARK = "nearfar checkpoint 1"
LARGEST_SIZE = 2**31


def replace_file(path: Path, *content: bytes | memoryview) -> None:
    """Write a file from parts, completely or not at all.

    Raises
    ------
    TrainError
        If it cannot be written, for example on a full disk; an existing file is unchanged.
    """
    try:
        with atomic_write(path) as file:
            file.writelines(content)
    except OSError as error:
        raise TrainError(str(error)) from error


def save_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write named tensors and JSON metadata."""
    metadata = {"nearfar": MARK, **{key: json.dumps(value) for key, value in about.items()}}
    replace_file(path, *_in_order(save(_apart(tensors), metadata=metadata)))


def in_checkpoint(network: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a network by their names in a checkpoint, which has those of the objective, too."""
    return {NETWORK + name: value for name, value in network.state_dict().items()}


def _in_order(raw: bytes) -> tuple[bytes, memoryview]:
    """Return header and numbers, with the metadata sorted by name, because safetensors writes them in random order.

    So runs with the same seed have identical files, and an index recognizes the weights of one run in those of another.
    """
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, memoryview(raw)[end:]


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Move tensors to the CPU, contiguous and without shared memory, as the format requires."""
    seen: set[int] = set()
    found = {}
    for key, tensor in tensors.items():
        tensor = tensor.detach().to("cpu").contiguous()
        if tensor.numel() and tensor.untyped_storage().data_ptr() in seen:
            tensor = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
        found[key] = tensor
    return found


def read_about(path: Path) -> dict[str, Any]:
    """Read the metadata of a checkpoint.

    Raises
    ------
    TrainError
        If the file is missing, damaged, or not a checkpoint of nearfar.
    """
    with _opened(path) as file:
        return _about(path, file)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the metadata of a checkpoint."""
    with _opened(path) as file:
        about = _about(path, file)
        return {key: file.get_tensor(key) for key in file.keys()}, about  # noqa: SIM118  # no dict: it cannot be iterated


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if not path.is_file():
        raise TrainError(f"{path}: no such checkpoint")
    try:
        with tensor_file.opened(path, framework="pt") as (file, _):
            yield file
    except TrainError:  # of what is in the file
        raise
    except (ValueError, OSError) as error:
        raise TrainError(f"{path}: not a checkpoint of nearfar, or damaged ({shorten(str(error), PATH)})") from error


def _about(path: Path, file: Any) -> dict[str, Any]:
    metadata = dict(file.metadata() or {})
    if metadata.pop("nearfar", None) != MARK:
        raise TrainError(f"{path}: not a checkpoint of nearfar (another program wrote it)")
    with fitting(path):
        return About(path, {key: parse_json(value) for key, value in metadata.items()})


class About(dict[str, Any]):
    """Metadata of a checkpoint; a missing key raises a TrainError."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.path = path

    def __missing__(self, key: str) -> Any:
        raise TrainError(f"{self.path}: damaged, or of another version of nearfar ({key!r} is missing)")


@contextmanager
def fitting(what: Path | str, wrong: str = "damaged, or of another version") -> Iterator[None]:
    """Turn exceptions because of a damaged checkpoint into a TrainError that names it."""
    try:
        yield
    except TrainError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        why = shorten(" ".join(str(error).split()), 2 * PATH)
        raise TrainError(f"{what}: {wrong} ({type(error).__name__}: {why})") from error


def shape_of(about: dict[str, Any]) -> tuple[int, ...]:
    """Return the shape of an item of a network after checking that it consists of integers."""
    shape = about["shape"]
    if not isinstance(shape, list) or len(shape) not in (1, 3) or not all(map(is_size, shape)):
        raise TrainError(f"checkpoint: the shape of an item must be 1 or 3 positive integers, got {quoted(shape)}")
    return tuple(shape)


def classes_of(about: dict[str, Any]) -> int:
    """Return the number of training classes after checking that it is one."""
    number = about["num_classes"]
    if not is_size(number):
        raise TrainError(f"checkpoint: the number of classes must be a positive integer, got {quoted(number)}")
    return int(number)


def is_size(number: Any) -> bool:
    """Return whether something is a positive integer that may be the size of an array."""
    return type(number) is int and 0 < number < LARGEST_SIZE


def text_length_of(about: dict[str, Any]) -> int | None:
    """Return the number of tokens per text that the second tower of a network takes; None if it has one tower."""
    length = about.get("text_length")
    if length is not None and not is_size(length):
        raise TrainError(f"checkpoint: the length of texts must be a positive integer, got {quoted(length)}")
    return length


def prompt_of(about: dict[str, Any]) -> str:
    """Return the text that a network of texts puts in front of each of them; "" for most."""
    prompt = about["prompt"]
    if not isinstance(prompt, str):
        raise TrainError(f"checkpoint: the prompt of texts must be a text, got {quoted(prompt)}")
    return prompt


def prompts_of(about: dict[str, Any]) -> dict[Role, tuple[str, int]]:
    """Return the prompts of queries and documents, with the number of tokens that pooling leaves out; {} for most."""
    try:
        return msgspec.convert(about["prompts"], dict[Role, tuple[str, Annotated[int, msgspec.Meta(ge=0, le=2**20)]]])
    except msgspec.ValidationError as error:
        raise TrainError(f"checkpoint: the prompts of queries and documents are damaged ({error})") from error


def first_weights(about: dict[str, Any]) -> str:
    """Return the origin of the weights with which training started."""
    weights = about["weights"]
    if not isinstance(weights, str):
        raise TrainError(f"checkpoint: the origin of the initial weights must be a text, got {quoted(weights)}")
    return weights


def columns_of(about: dict[str, Any]) -> list[str]:
    """Return the names of the columns that a network takes; none if they have no names."""
    columns = about["columns"]
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise TrainError(f"checkpoint: the columns of the rows must be a list of text, got {quoted(columns)}")
    return columns


def save_tree(path: Path, tree: Any) -> None:
    """Write nested dicts, lists and tuples of tensors and plain values."""
    tensors: dict[str, Tensor] = {}
    packed = _pack(tree, tensors)
    save_tensors(path, tensors, {"tree": packed})


def load_tree(path: Path) -> Any:
    """Read what `save_tree` wrote."""
    tensors, about = load_tensors(path)
    with fitting(path):
        return _unpack(about["tree"], tensors)


def _pack(node: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(node, Tensor):
        name = str(len(tensors))
        tensors[name] = node
        return {"tensor": name}
    if isinstance(node, Mapping):
        return {"dict": [[key, _pack(value, tensors)] for key, value in node.items()]}
    if isinstance(node, (list, tuple)):
        return {type(node).__name__: [_pack(value, tensors) for value in node]}
    return {"value": node}


def _unpack(node: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    ((kind, content),) = node.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _unpack(value, tensors) for key, value in content}
    if kind in ("list", "tuple"):
        values = [_unpack(value, tensors) for value in content]
        return values if kind == "list" else tuple(values)
    return content


def seed_random_state(seed: int) -> None:
    """Seed torch, its accelerators, numpy and Python, as a trunk of your own may use any of them."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  # the generator that others draw from
    random.seed(seed)


def random_state() -> dict[str, Any]:
    """Return the states of the random numbers of torch, its accelerator, numpy and Python."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002  # the generator that others draw from
    state = {
        "torch": torch.get_rng_state(),
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype("int64")), *rest],
        "python": random.getstate(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Set what `random_state` returned."""
    torch.set_rng_state(state["torch"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype("uint32"), *rest))  # noqa: NPY002  # the generator that others draw from
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Restore the global random states at the end, because training seeds them."""
    before = random_state()
    try:
        yield
    finally:
        set_random_state(before)


def without_adapters(tensors: dict[str, Tensor], config: TrainConfig) -> dict[str, Tensor]:
    """Return the weights of a network without adapters; adapters of a run are merged into them."""
    return tensors if config.lora is None else merged(tensors, config.adapter_scale)
