"""Embedding of whole data sets, and features of frozen trunks, which are cached on disk."""

from __future__ import annotations

import hashlib
import io
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data.augment import to_float
from ..data.dataset import ArrayReader, Dataset, unwrapped
from ..data.decode import DECODING, ImageReader, Resizing
from ..data.loader import make_loader
from ..data.readers.files import file_behind
from ..data.sounds import PieceReader, SoundReader
from ..data.transforms.symmetries import TurnedReader
from ..deep.networks.embedder import Embedder, device_of
from ..deep.networks.tokens import NO_TOKEN
from ..deep.networks.transformers_text_trunk import TransformersTextTrunk, batches_by_length, token_budget
from ..io.atomic_files import atomic_write
from ..io.cache import private_folder, read_entry
from ..progress import counted
from .config import TrainConfig

Floats = NDArray[np.float32]

FEATURES = "features"
"""Folder of the cache with the features of frozen trunks."""
ON_ACCELERATOR = 256  # batch size that uses a GPU fully
IMAGES_ON_PROCESSOR = (
    32  # batch size on a CPU: the activations of more do not fit into its cache, which halves the speed of a MobileNet
)


def sizes_of(config: TrainConfig) -> dict[str, Any]:
    """Return how a config reads items for evaluation, as keywords of `embed`."""
    return {**image_sizes_of(config), "workers": config.workers}


def image_sizes_of(config: TrainConfig) -> dict[str, Any]:
    """Return how images are resized for evaluation, as keywords of `make_loader`."""
    return {"image_size": config.image_size, "resize": config.resize, "resizing": resizing_of(config)}


def resizing_of(config: TrainConfig) -> Resizing | None:
    """Return how images are resized for the trunk or with `squash`; None for the default."""
    record = config.preprocessing
    if record is None and config.squash:
        return Resizing(squash=True)
    return None if record is None else Resizing(record.interpolation, record.squash or config.squash, record.round_down)


def as_floats(items: Tensor) -> Tensor:
    """Convert uint8 images to floats in [0, 1] with channels last in memory, for faster convolutions; keep rows."""
    return to_float(items).contiguous(memory_format=torch.channels_last) if items.ndim == 4 else items


def encode(
    forward: Callable[[Tensor], Tensor],
    dataset: Dataset,
    *,
    device: torch.device | str = "cpu",
    image_size: int | None = None,
    resize: int | None = None,
    resizing: Resizing | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
) -> Floats:
    """Apply a function to all items of a data set, in order, without gradients.

    Parameters
    ----------
    forward : callable
        Function from (b, C, H, W) floats in [0, 1], or (b, d) rows, to (b, k).
    dataset : Dataset
        The items.
    device : device or str
        Device of the computation.
    image_size : int, optional
        Side of the square images, as for `nearfar.data.loader.make_loader`.
    resize : int, optional
        Length of the shorter side before the center crop, as for `make_loader`.
    resizing : Resizing, optional
        How images are resized, as for `make_loader`.
    batch_size : int, optional
        Number of items at a time. By default, 32 images on a processor, and 256 items otherwise.
    workers : int, optional
        Number of processes that decode images. By default, as the machine allows.

    Returns
    -------
    ndarray of float32, shape (n, k)
        Outputs of the function.
    """
    sizes: dict[str, Any] = {}
    if dataset.kind == "image":
        sizes = {"image_size": image_size, "resize": resize, "resizing": resizing}
    if batch_size is None:
        large_on_processor = dataset.kind in ("image", "sound") and torch.device(device).type == "cpu"
        batch_size = IMAGES_ON_PROCESSOR if large_on_processor else ON_ACCELERATOR
    loader = make_loader(dataset, batch_size=batch_size, workers=workers, **sizes)
    with torch.inference_mode():
        batches = counted(loader, "embedding", len(loader))
        parts = [forward(as_floats(items.to(device))).float().cpu() for items, _, _ in batches]
    return torch.cat(parts).numpy() if parts else np.empty((0, 0), np.float32)


def encode_texts(
    forward: Callable[[Tensor], Tensor], rows: NDArray[Any], *, device: torch.device | str = "cpu"
) -> Floats:
    """Apply a function to rows of token numbers, in order, without gradients.

    Texts of similar length are computed together, so that few places are padding.

    Parameters
    ----------
    forward : callable
        Function from (b, L) rows, padded with -1, to (b, k).
    rows : ndarray of shape (n, L)
        Token numbers, padded with -1.
    device : device or str
        Device of the computation.

    Returns
    -------
    ndarray of float32, shape (n, k)
        Outputs of the function.
    """
    batches = batches_by_length((rows > NO_TOKEN).sum(1), token_budget(torch.device(device)))
    found: Floats | None = None
    with torch.inference_mode():
        for places, length in counted(batches, "embedding", len(batches)):
            part = forward(torch.from_numpy(rows[places, :length]).to(device)).float().cpu().numpy()
            if found is None:
                found = np.empty((len(rows), part.shape[1]), np.float32)
            found[places] = part
    return np.empty((0, 0), np.float32) if found is None else found


def embed(
    embedder: Embedder,
    dataset: Dataset,
    *,
    layer: str = "embedding",
    image_size: int | None = None,
    resize: int | None = None,
    resizing: Resizing | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
) -> Floats:
    """Embed all items of a data set, in order, on the device of the network and in evaluation mode.

    Parameters
    ----------
    embedder : Embedder
        The network; for a run, ``load_embedder(run)``.
    dataset : Dataset
        The items.
    layer : {"embedding", "pooled", "places"}
        Output of the network to return; of "places", (n, h, w, c).
    image_size : int, optional
        Side of the square images, as for `encode`. Other sizes give other embeddings; `embed_run` uses those of the
        training.
    resize : int, optional
        Length of the shorter side before the center crop.
    resizing : Resizing, optional
        How images are resized.
    batch_size : int, optional
        Number of items at a time. By default, 32 images on a processor, and 256 items otherwise.
    workers : int, optional
        Number of processes that decode images. By default, as the machine allows.

    Returns
    -------
    ndarray of float32, shape (n, d)
        Embeddings, not normalized.
    """
    device = device_of(embedder)
    training = embedder.training
    forward = {"pooled": embedder.features, "places": embedder.places}.get(
        layer, lambda items: embedder(items).embedding
    )
    embedder.eval()
    try:
        if isinstance(getattr(embedder.trunk, "module", None), TransformersTextTrunk):
            return encode_texts(forward, all_rows(dataset), device=device)
        return encode(
            forward,
            dataset,
            device=device,
            image_size=image_size,
            resize=resize,
            resizing=resizing,
            batch_size=batch_size,
            workers=workers,
        )
    finally:
        embedder.train(training)


def cached_features(
    embedder: Embedder,
    dataset: Dataset,
    *,
    image_size: int | None = None,
    resize: int | None = None,
    resizing: Resizing | None = None,
    workers: int | None = None,
) -> Dataset:
    """Replace the items of a data set by the features of a frozen trunk.

    They are computed once for the same items, trunk and resizing, and stored in the cache. If it cannot be used, they
    are computed again.
    """
    network = digest_of_network(embedder.trunk) + digest_of_network(embedder.scale)
    sizes: dict[str, Any] = {"image_size": image_size, "resize": resize, "resizing": resizing}
    key = "-".join((digest_of_items(dataset), network, str(sizes), DECODING))
    name = f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npy"
    rows = _stored(name, len(dataset))
    if rows is None:
        rows = embed(embedder, dataset, layer="pooled", workers=workers, **sizes)
        _store(name, rows)
    return with_rows(dataset, rows)


def _stored(name: str, n: int) -> Floats | None:
    """Return the features in a file of the cache; None if there is none that can be used."""
    try:
        with read_entry(private_folder(FEATURES) / name) as file:
            rows: Floats = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return rows if rows.ndim == 2 and len(rows) == n and rows.dtype == np.float32 else None


def _store(name: str, rows: Floats) -> None:
    """Write features into the cache; warn if that is not possible."""
    buffer = io.BytesIO()
    np.save(buffer, rows, allow_pickle=False)
    try:
        with atomic_write(private_folder(FEATURES) / name) as file:
            file.write(buffer.getvalue())
    except OSError as error:
        warnings.warn(f"the features of the frozen trunk are not kept: {error}", stacklevel=2)


def with_rows(dataset: Dataset, rows: Floats) -> Dataset:
    """Return the data set with its items replaced by rows."""
    return replace(dataset, kind="row", read=ArrayReader(rows), array=rows, stored=None)


def all_rows(dataset: Dataset) -> NDArray[Any]:
    """Return the items of a set of rows as one array (n, d)."""
    return np.stack([dataset.read(i) for i in range(len(dataset))]) if dataset.array is None else dataset.array


def are_recognized(dataset: Dataset) -> bool:
    """Return whether `digest_of_items` changes with the items, and not only with their names."""
    return dataset.array is not None or None not in list(_stamps(dataset))


def digest_of_items(dataset: Dataset) -> str:
    """Return a digest of the items of a data set: of their values, or of the names, sizes and dates of files."""
    digest = hashlib.sha256("\n".join((dataset.name, *dataset.names)).encode(errors="surrogateescape"))
    if dataset.array is not None:
        digest.update(str(dataset.array.shape).encode())
        digest.update(np.ascontiguousarray(dataset.array).data)
    else:
        digest.update(repr(list(_stamps(dataset))).encode())
    return digest.hexdigest()


def _stamps(dataset: Dataset) -> Iterator[Any]:
    """Yield how the file behind each item is read, with its size and date."""
    for i in range(len(dataset)):
        read: Any
        read, place = unwrapped(dataset.read, i)
        if isinstance(read, PieceReader):
            yield read.length, read.pieces
            read, place = unwrapped(dataset.stored or read.read, i if dataset.stored else place)
        if isinstance(read, SoundReader):
            found = file_behind(read.files, read.paths[place]).stat()
            yield found.st_size, found.st_mtime_ns
            continue
        while isinstance(read, TurnedReader):  # the names of items include their turns
            read, place = unwrapped(read.read, place % read.n)
        if not isinstance(read, ImageReader):
            yield None  # a reader of a user, who may change what it reads
            continue
        found = file_behind(read.files, read.paths[place]).stat()
        box = None if read.boxes is None else read.boxes[place]
        yield read.channels, read.size, read.invert, found.st_size, found.st_mtime_ns, box


def digest_of_network(module: nn.Module) -> str:
    """Return a digest of a network: its layers with their settings, the code of their classes, and their weights."""
    layers = re.sub(r" at 0x[0-9a-f]+", "", repr(module))
    digest = hashlib.sha256(f"{type(module).__qualname__} {layers}".encode())
    for file in sorted({_file_of(type(part)) for part in module.modules()} - {""}):
        digest.update(Path(file).read_bytes())
    for name, value in as_bytes(module).items():
        digest.update(name.encode())
        digest.update(value.data)
    return digest.hexdigest()


def as_bytes(module: nn.Module) -> dict[str, NDArray[np.uint8]]:
    """Return the bytes of every tensor of a network, by name."""
    tensors = module.state_dict()
    return {
        name: value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy() for name, value in tensors.items()
    }


def _file_of(kind: type) -> str:
    """Return the file with the code of a class; "" if it was typed into an interpreter, or is compiled."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return file if Path(file).is_file() else ""
