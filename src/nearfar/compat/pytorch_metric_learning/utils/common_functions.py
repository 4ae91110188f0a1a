"""Small functions that scripts take from the other library's module of this name."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

LOGGER_NAME = "PML"
LOGGER = logging.getLogger(LOGGER_NAME)
COLLECT_STATS = False  # the value of `collect_stats=None`


def set_logger_name(name: str) -> None:
    """Log under another name from now on."""
    global LOGGER_NAME, LOGGER
    LOGGER_NAME = name
    LOGGER = logging.getLogger(name)


def collects_stats(given: bool | None) -> bool:
    """Return whether statistics are asked for, with a warning where a call asks: none are collected here."""
    if given:
        detail = "no statistics are collected here; the losses of nearfar have `collect_stats` and `stats_`"
        warnings.warn(f"collect_stats: {detail}", UserWarning, stacklevel=3)
    return COLLECT_STATS if given is None else given


def pos_inf(dtype: torch.dtype) -> float:
    """Return the largest number of a floating-point type."""
    return torch.finfo(dtype).max


def neg_inf(dtype: torch.dtype) -> float:
    """Return the smallest number of a floating-point type."""
    return torch.finfo(dtype).min


def small_val(dtype: torch.dtype) -> float:
    """Return a number that is added under a root so that its slope is finite, as `SparseCenters` does."""
    return 1e-3 if dtype == torch.float16 else 1e-5


def is_list_or_tuple(x: Any) -> bool:
    return isinstance(x, list | tuple)


def torch_arange_from_size(input: Tensor, size_dim: int = 0) -> Tensor:  # the name of their parameter
    """Return 0, 1, ... up to a size of a tensor."""
    return torch.arange(input.shape[size_dim], device=input.device)


def to_device(
    x: Tensor, tensor: Tensor | None = None, device: torch.device | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return x on the device of another tensor, or on the named one, in a type if one is given."""
    where = device if tensor is None else tensor.device
    return x.to(device=where, dtype=dtype)


def to_dtype(x: Tensor, tensor: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Return x in the type of another tensor, or in the named one."""
    return x.to(dtype=dtype if tensor is None else tensor.dtype)


def concatenate_indices_tuples(it1: Sequence[Tensor], it2: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Append the pairs or triplets of one tuple of indices to those of another."""
    return tuple(torch.cat([x, y.to(x.device)]) for x, y in zip(it1, it2, strict=True))


def shift_indices_tuple(indices_tuple: Sequence[Tensor], batch_size: int) -> tuple[Tensor, ...]:
    """Let the references of a tuple of indices start at `batch_size`."""
    if len(indices_tuple) == 3:
        a, p, n = indices_tuple
        return a, p + batch_size, n + batch_size
    a1, p, a2, n = indices_tuple
    return a1, p + batch_size, a2, n + batch_size


def try_next_on_generator(gen: Iterator[Any], iterable: Any) -> tuple[Iterator[Any], Any]:
    """Return the next item of an iterator; at its end, restart it."""
    try:
        return gen, next(gen)
    except StopIteration:
        gen = iter(iterable)
        return gen, next(gen)


def torch_standard_scaler(x: Tensor) -> Tensor:
    """Return the columns of x with mean 0 and standard deviation 1."""
    return (x - x.mean(0)) / x.std(0, unbiased=False)


def safe_random_choice(input_data: Any, size: int) -> Any:
    """Draw from a sequence, with replacement only where it is shorter than `size`."""
    return np.random.choice(input_data, size=size, replace=len(input_data) < size)


class EmbeddingDataset(Dataset[Any]):
    """A data set of embeddings and their labels."""

    def __init__(self, embeddings: Any, labels: Any) -> None:
        self.embeddings = embeddings
        self.labels = labels

    def __len__(self) -> int:
        return len(self.embeddings)

    def __getitem__(self, idx: Any) -> tuple[Any, Any]:
        return self.embeddings[idx], self.labels[idx]


class TorchInitWrapper:
    """A function of `torch.nn.init` with its settings, for ``weight_init_func=``."""

    def __init__(self, init_func: Callable[..., Any], **kwargs: Any) -> None:
        self.init_func = init_func
        self.kwargs = kwargs

    def __call__(self, tensor: Tensor) -> None:
        self.init_func(tensor, **self.kwargs)
