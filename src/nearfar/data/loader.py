"""Batches for torch: a `Dataset` as tensors, in memory or decoded by worker processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, default_collate, get_worker_info
from torch.utils.data import Dataset as TorchDataset

from ..children import isolate_children
from .dataset import DataError, Dataset, some, unwrapped
from .decode import ImageReader, Resizing, fit, read_square
from .sounds import are_in_memory, random_piece
from .transforms.geometry import ResizedCrop

MIN_ITEMS_FOR_WORKERS = 512
"""Smaller sets are decoded faster than worker processes start."""
MAX_WORKERS = 8
"""Maximum default number of worker processes, each of which holds batches in memory."""
START_METHODS = multiprocessing.get_all_start_methods()
"""Methods to start a process, the preferred one first."""

ItemBatch = tuple[Tensor, Tensor, Tensor]
"""Items, labels, indices."""


class DrawnItem(NamedTuple):
    """An item of a batch, and the seed of its random numbers: seed of the batches, batch, and place in it."""

    item: int
    seed: tuple[int, ...]


class TaggedBatches(Sampler[list[DrawnItem]]):
    """Batches of a sampler with a seed for each item, so that the results do not depend on the number of workers.

    Parameters
    ----------
    sampler : BatchSampler
        Yields lists of items, and has a `state_dict` with the next batch and its epoch.
    seed : tuple of int
        Seed of the run and number of the process.
    """

    def __init__(self, sampler: Any, seed: tuple[int, ...]) -> None:
        self.sampler = sampler
        self.seed = seed

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[list[DrawnItem]]:
        for batch in self.sampler:
            state = self.sampler.state_dict()
            step = state["epoch"] * len(self.sampler) + state["batch"]
            yield [DrawnItem(item, (*self.seed, step, place)) for place, item in enumerate(batch)]


class TorchItems(TorchDataset[tuple[Tensor, Tensor, int]]):
    """A `Dataset` as a torch data set.

    Item i is a tuple of a uint8 image (C, H, W), a float32 row (d,) or float32 samples of a sound, its label, and i. A
    data set in memory returns a whole batch at once.

    Parameters
    ----------
    dataset : Dataset
        The items.
    image_size : int, optional
        Side in pixels of the square that is cropped from the center of every image. By default, images are kept as they
        are.
    resize : int, optional
        Length in pixels to which the shorter side is resized before the crop. By default, `image_size`.
    resizing : Resizing, optional
        How images are resized, for a pretrained network; see `nearfar.data.decode.fit`.
    crop : ResizedCrop, optional
        Crop images of `image_size` at random from the original photographs instead; the indices are then those of
        `TaggedBatches`, as for sounds of which random pieces are read.
    """

    def __init__(
        self,
        dataset: Dataset,
        image_size: int | None = None,
        resize: int | None = None,
        resizing: Resizing | None = None,
        crop: ResizedCrop | None = None,
    ) -> None:
        if image_size is not None and resize is not None and resize < image_size:
            raise DataError(f"resize must be at least image_size, got resize={resize}, image_size={image_size}")
        self.dataset = dataset
        self.image_size = image_size
        self.resize = resize or image_size
        self.resizing = resizing
        self.crop = crop
        self.labels = torch.from_numpy(dataset.labels)
        if dataset.array is None or crop is not None:
            self.array = None
        else:
            self.array = self._in_memory(dataset.array)

    def _in_memory(self, array: np.ndarray) -> Tensor:
        if array.ndim == 2:
            return torch.from_numpy(array)
        if self.image_size is not None and {*array.shape[1:3], self.resize} != {self.image_size}:
            resize = self.resize or self.image_size
            array = np.stack([fit(image, resize, self.image_size, self.resizing) for image in array])
        return torch.from_numpy(np.ascontiguousarray(array)).permute(0, 3, 1, 2)  # (n, C, H, W)

    def _read(self, i: int) -> np.ndarray:
        if self.image_size is None or self.dataset.kind != "image":
            return self.dataset.read(i)
        return read_square(self.dataset.read, i, self.resize or self.image_size, self.image_size, self.resizing)

    def __len__(self) -> int:
        return len(self.dataset)

    def _cut(self, drawn: DrawnItem) -> np.ndarray:
        """Return a random piece of a photograph or of a sound, always the same for one draw."""
        rng = np.random.default_rng(drawn.seed)
        if self.dataset.kind == "sound":
            return random_piece(self.dataset.read, drawn.item, rng)
        assert self.crop is not None
        assert self.image_size is not None
        return self.crop.cut(self.dataset.read(drawn.item), self.image_size, rng)

    def __getitem__(self, index: int | DrawnItem) -> tuple[Tensor, Tensor, int]:
        i = index.item if isinstance(index, DrawnItem) else index
        if self.array is not None:
            return self.array[i].contiguous(), self.labels[i], i
        item = self._cut(index) if isinstance(index, DrawnItem) else self._read(i)
        if self.dataset.kind == "image":
            item = np.moveaxis(item, 2, 0)
        # torch would warn that decoded pixels are not writable
        return torch.from_numpy(np.require(item, requirements=["C", "W"])), self.labels[i], i

    def _decoding_threads(self) -> int:
        """Return how many images of files to decode at a time; readers of users may not be made for threads."""
        if len(self) == 0 or get_worker_info() is not None:  # a worker process is one of several
            return 1
        from_files = isinstance(unwrapped(self.dataset.read, 0)[0], ImageReader)
        return min(MAX_WORKERS, available_cores()) if from_files else 1

    def __getitems__(self, indices: Sequence[int | DrawnItem]) -> ItemBatch | list[tuple[Tensor, Tensor, int]]:
        if self.array is None:
            numbers = [index if isinstance(index, DrawnItem) else int(index) for index in indices]
            threads = min(self._decoding_threads(), len(numbers))
            if threads < 2:
                return [self[number] for number in numbers]
            with ThreadPoolExecutor(threads) as pool:
                return list(pool.map(self.__getitem__, numbers))
        index = torch.as_tensor(indices, dtype=torch.int64)
        return self.array[index].contiguous(), self.labels[index], index


class Loader(DataLoader[tuple[Tensor, Tensor, int]]):
    """A loader of torch that raises the errors of its workers as one line, also if a worker was killed."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # torch declares its own private iterator
        try:
            with isolate_children():
                batches = super().__iter__()
            yield from batches
        except DataError as error:
            # torch appends the worker's traceback; its last line is "module.Type: message"
            last = str(error).strip().splitlines()[-1]
            raise type(error)(last.partition("Error: ")[2] or last) from error
        except RuntimeError as error:
            if not str(error).startswith("DataLoader worker"):
                raise
            ended = "a worker process that reads items was killed, perhaps because memory or shared memory ran out"
            raise ChildProcessError(f"{ended} ({str(error).rstrip('. ')}); use fewer workers") from error


def make_loader(
    dataset: Dataset,
    *,
    batch_sampler: Any = None,
    batch_size: int = 128,
    shuffle: bool = False,
    image_size: int | None = None,
    resize: int | None = None,
    resizing: Resizing | None = None,
    crop: ResizedCrop | None = None,
    workers: int | None = None,
    pin_memory: bool = False,
    seed: int = 0,
) -> Loader:
    """Make a loader of batches (items, labels, indices).

    Parameters
    ----------
    dataset : Dataset
        The items.
    batch_sampler : iterable of lists of int, optional
        Chooses the items of each batch. By default, batches are `batch_size` items in order, or shuffled, the last one
        shorter.
    batch_size : int
        Number of items per batch, without a `batch_sampler`.
    shuffle : bool
        Whether to shuffle the items, without a `batch_sampler`.
    image_size : int, optional
        Side in pixels of the square that is cropped from the center of every image. By default, images are kept as they
        are. For evaluation at 224, image_size=224 and resize=256 are customary; for training with a random crop to 224,
        image_size=256.
    resize : int, optional
        Length in pixels to which the shorter side is resized before the crop. By default, `image_size`.
    resizing : Resizing, optional
        How images are resized, for a network that was trained elsewhere; see `nearfar.data.decode.fit`.
    crop : ResizedCrop, optional
        Crop images of `image_size` at random from the original photographs instead; the indices are then those of
        `TaggedBatches`.
    workers : int, optional
        Number of processes that decode images; with 0, this process decodes them. By default, the number that
        `usual_workers` returns. The batches do not depend on it.
    pin_memory : bool
        Put batches into page-locked memory, for faster copies to a GPU.
    seed : int
        Seed of the shuffling and, through torch, of every worker. The global torch generator is not used.

    Returns
    -------
    DataLoader
        Yields items, uint8 of shape (b, C, H, W) or float32 of shape (b, d), labels (b,) int64 and indices (b,) int64.
    """
    if workers is None:
        workers = usual_workers(dataset)
    chosen: dict[str, Any] = {"batch_sampler": batch_sampler}
    if batch_sampler is None:
        chosen = {"batch_size": batch_size, "shuffle": shuffle}
    return Loader(
        TorchItems(dataset, image_size, resize, resizing, crop),
        **chosen,
        num_workers=workers,
        pin_memory=pin_memory,
        collate_fn=collate,
        generator=torch.Generator().manual_seed(seed),
        persistent_workers=workers > 0,
    )


def usual_workers(dataset: Dataset) -> int:
    """Return the default number of processes that decode images: the cores that the computation leaves, from 1 to 8.

    It is 0 for data sets in memory or with fewer than 512 items, on a single core, and if processes are not started by
    forking (on Windows and macOS, and in Python 3.14), where a script would have to guard its main part for them.
    """
    process = multiprocessing.current_process()
    forks = (multiprocessing.get_start_method(allow_none=True) or START_METHODS[0]) == "fork"
    in_memory = dataset.array is not None or are_in_memory(dataset)
    if in_memory or len(dataset) < MIN_ITEMS_FOR_WORKERS or process.daemon or not forks:
        return 0
    cores = available_cores()
    if cores < 2:
        return 0
    # several training processes on this machine share its cores
    share = cores // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    computing = 1 if torch.cuda.is_available() else torch.get_num_threads()
    return min(MAX_WORKERS, max(1, share - computing))


def available_cores() -> int:
    """Return the processor cores on which this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def collate(items: Any) -> ItemBatch:
    """Stack items into a batch; a batch is returned unchanged."""
    if isinstance(items, tuple):
        return items
    shapes = {tuple(item[0].shape) for item in items}
    if len(shapes) > 1:
        raise DataError(f"items of one batch differ in shape ({some([*map(str, sorted(shapes))])}); give image_size")
    batch = default_collate(items)
    return batch[0], batch[1], batch[2]
