"""The data of a run, opened, and the settings that depend on them."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import DataNotFoundError, Dataset, Task, open_task
from ..data.augment import Augment
from ..data.checks.training_items import TrainingItems
from ..data.dataset import ArrayReader
from ..data.decode import read_shape
from ..data.open import located, open_whole
from ..data.readers.in_memory import GIVEN
from ..data.transforms.geometry import ResizedCrop
from ..data.transforms.symmetries import with_more_classes
from ..deep.networks.preprocessing import Preprocessing
from ..trust import named_by
from .config import TrainConfig, TrainError

if TYPE_CHECKING:
    from ..deep.networks.tokens import Tokens

SMALL_TRUNKS = ("conv4", "mlp", "identity", "spd")  # trunks that the field feeds with 84x84 images of photographs
SMALLEST_PHOTO = 64  # pixels of the shorter side that a network for larger images still sees something in
SIZE_SAMPLE = 16  # images whose sizes are read, of a set


def open_data(config: TrainConfig, start: Path | None = None) -> Task:
    """Open the task of a config; relative paths that lead to nothing from here begin in `start`."""
    if config.data == GIVEN:
        raise TrainError("the network was fitted on items given in Python, which are not kept; name the data to score")
    try:
        task = _opened(config, start)
    except DataNotFoundError as error:
        if start:
            nor = f"; nor is it in {start}, where the run was started"
        else:
            nor = ""
        raise DataNotFoundError(f"{error}{nor}") from None
    task = with_tokens(task, config, start)
    if config.symmetries == "none":
        return task
    return with_more_classes(task, config.symmetries)


def with_tokens(task: Task, config: TrainConfig, start: Path | None = None) -> Task:
    """Return a task of texts with rows of token numbers in their place; other tasks as they are.

    Rows are as long as the longest text of the training, up to the limit of tokenizer and model.
    """
    if task.train.kind != "text":
        return task
    from ..deep.networks.tokens import Tokens

    tokens = Tokens.of_folder(tokenizer_folder(config, start))
    length = tokens.rows(task.train.texts_given).shape[1]
    return replace(
        task,
        train=tokenized(task.train, tokens, length),
        validation=None if task.validation is None else tokenized(task.validation, tokens, length),
        test=tokenized(task.test, tokens, length),
        gallery=None if task.gallery is None else tokenized(task.gallery, tokens, length),
    )


def tokenizer_folder(config: TrainConfig, start: Path | None = None) -> Path:
    """Return the folder with the tokenizer of a config: that of its text trunk, or of its only one.

    Raises
    ------
    TrainError
        If that trunk is no model of transformers in a folder.
    """
    from ..deep.networks.trunks import parse_trunk

    setting = "trunk" if config.text_trunk is None else "text_trunk"
    given = config.text_trunk or config.trunk
    kind, _, name = parse_trunk(given)[0].partition(":")
    folder = Path(located(name, start)) if name else None
    if kind != "transformers" or folder is None or not folder.is_dir():
        items = "the items are texts, which" if config.text_trunk is None else "texts"
        option = f"--{setting.replace('_', '-')} transformers:FOLDER"
        detail = f"{items} need a tokenizer: {option}, of a model with its tokenizer"
        raise TrainError(f"config: {setting}: {detail}; got {given}")
    return folder


def tokenized(dataset: Dataset, tokens: Tokens, length: int) -> Dataset:
    """Return a set of texts as rows of token numbers, (n, length)."""
    rows = tokens.rows(dataset.texts_given, length)
    return replace(dataset, kind="row", read=ArrayReader(rows), array=rows)


def open_resolved(
    config: TrainConfig, start: Path | None = None, opened: Task | None = None
) -> tuple[Task, TrainConfig]:
    """Open the task of a config, which may be `opened` already, and fill in what depends on it.

    Images are of the size that is then settled, as a run that goes on reads them, and who scores it.
    """
    task = opened or open_data(config, start)
    resolved = resolve(config, task)
    if _size_when_opened(resolved) != _size_when_opened(config):
        task = open_data(resolved, start)
    return task, resolved


def with_preprocessing(config: TrainConfig, start: Path | None = None) -> TrainConfig:
    """Return the config with the record of how images reach its trunk, where that brings one.

    It comes before `open_data`, which leaves images of such a trunk as they are.
    """
    if config.preprocessing is not None or ":" not in config.trunk:
        return config
    from ..deep.networks.trunks import find_preprocessing

    weights = None if config.weights_file is None else located(config.weights_file, start)
    with named_by(config.origin):
        record = find_preprocessing(config.trunk, pretrained=config.pretrained is True, weights=weights)
    return config.replace(preprocessing=record)


def _opened(config: TrainConfig, start: Path | None) -> Task:
    """Open the data that a config names, split, or of a final model all as the training."""
    how: dict[str, Any] = {
        "test": None if config.test is None else located(config.test, start),
        "label": config.label,
        "image_size": _size_when_opened(config),
        "skip_bad": config.skip_bad,
        "partial": config.partial,
        "pairs": config.text_trunk is not None,
    }
    source = located(config.data, start)
    if config.final is not None:
        return open_whole(source, **how)
    return open_task(
        source,
        test_classes=config.test_classes,
        validation=config.validation,
        seed=config.seed,
        split=config.split,
        **how,
    )


def _size_when_opened(config: TrainConfig) -> int | None:
    """Return the side to which images are brought as they are opened; None leaves them as they are."""
    if config.preprocessing is not None:  # its own way of resizing is that of batches, when they are read
        return None
    if config.squash or whole_crop(config) is not None:  # a central square would be cut first
        return None
    return config.resize or config.image_size


def whole_crop(config: TrainConfig) -> ResizedCrop | None:
    """Return the random crop of training images that is cut from photographs as they are, where there is one."""
    for part in Augment.parse(config.augment).parts:
        if isinstance(part, ResizedCrop) and part.whole:
            return part
    return None


def protocol_told(config: TrainConfig) -> str:
    """Say by which protocol a run is trained."""
    if config.protocol == "paper":
        return "Protocol of the paper: all training classes are learned from, and the last checkpoint is kept."
    if config.final is not None:
        return ""
    return "Honest protocol: training classes that are held out choose the checkpoint." if config.validation else ""


def class_mark(task: Task) -> str:
    """Return what tells the training classes of a task from others."""
    return sha256("\0".join(task.train.classes).encode(errors="surrogateescape")).hexdigest()[:16]


def training_items(config: TrainConfig, task: Task, start: Path | None = None) -> TrainingItems:
    """Mark the items that a run learns from, and those that choose its checkpoint, as their files hold them."""
    resized = (config.image_size or config.resize) and task.train.array is not None and task.train.stored is None
    if config.data != GIVEN and task.train.kind == "image" and (resized or config.symmetries != "none"):
        task = open_data(config.replace(image_size=None, resize=None, symmetries="none"), start)
    return TrainingItems.of(task.train, task.validation, final=config.final is not None)


def resolve(config: TrainConfig, task: Task) -> TrainConfig:
    """Fill in what depends on the data.

    Raises
    ------
    TrainError
        If there are a text trunk and no texts; if what is trained on and what is tested are not both images, or both
        rows of one length; or if images are to be standardized.
    """
    parts = [part for part in (task.train, task.validation, task.test, task.gallery) if part is not None]
    _check_alike(parts)
    if config.text_trunk is not None and not all(part.are_pairs for part in parts):
        detail = f"{task.train.name} has {task.train.kind}s without texts, and pairs of images and texts are needed"
        raise TrainError(f"config: text_trunk: {detail}")
    if config.standardize and task.train.kind != "row":
        raise TrainError("config: standardize is for the columns of rows, got images")
    if config.trunk == "auto":
        config = config.replace(trunk="mlp" if task.train.kind == "row" else "conv4")
    if config.image_size is None and config.resize is None and task.train.kind == "image":
        sizes = [sizes_in(part) for part in parts]
        if config.preprocessing is None:
            config = config.replace(**_image_sizes(config.trunk, sizes))
        else:
            config = config.replace(**_sizes_of_trunk(config.preprocessing, sizes))
    _check_fixed_size(config)
    return config


def _check_fixed_size(config: TrainConfig) -> None:
    """Refuse a size that a trunk with a fixed grid of patches does not take, before it fails within the model."""
    record = config.preprocessing
    size = config.image_size
    if record is None or size is None or not record.fixed_size or record.image_size == (size, size):
        return
    raise TrainError(
        f"config: image_size: the trunk {config.trunk} takes images of {record.image_size[0]} pixels only, for its "
        f"grid of patches is fixed, got {size}; leave image_size out (dynamic_img_size=True may free it)"
    )


def _sizes_of_trunk(record: Preprocessing, sizes: list[set[tuple[int, ...]]]) -> dict[str, int]:
    """Choose `image_size` and `resize` for a trunk with its own preprocessing: those that it was trained with.

    Small images are enlarged: details at the scale of the pretraining are found better. They keep their borders, which
    the crop of the trunk's own pipeline would cut off.
    """
    found = set().union(*sizes)
    if found == {record.image_size}:
        return {}
    side = record.image_size[0]
    if all(min(size) < record.resize for size in found):
        return {"image_size": side, "resize": side}
    return {"image_size": side, "resize": record.resize}


def _image_sizes(trunk: str, sizes: list[set[tuple[int, ...]]]) -> dict[str, int]:
    """Choose `image_size` and `resize` from the sizes of the images of each part, those of the training first."""
    of_train, *others = sizes
    height, width = next(iter(of_train))
    too_small = trunk.startswith("conv4") and min(height, width) < 16  # it halves the size four times
    of_one_size = len(of_train) == 1
    if of_one_size and all(other == of_train for other in others):
        return {"image_size": 28} if too_small else {}
    if of_one_size and height == width:  # only evaluated images differ: they are seen at that size too
        return {"image_size": 28 if too_small else height}
    if trunk.startswith(SMALL_TRUNKS):
        return {"image_size": 84}
    return {"image_size": 224, "resize": 256}


def _check_alike(parts: list[Dataset]) -> None:
    """Refuse at the start what could only fail when the run is scored."""
    kinds = ["an image" if part.kind == "image" else f"a row of {part.read(0).size} numbers" for part in parts]
    for part, kind in zip(parts, kinds, strict=True):
        if kind != kinds[0]:
            raise TrainError(f"{part.name}: an item is {kind}, in training it is {kinds[0]}")


def sizes_in(dataset: Dataset) -> set[tuple[int, ...]]:
    """Return the heights and widths of some of the images, evenly chosen."""
    if dataset.array is not None:
        return {dataset.array.shape[1:3]}
    chosen = np.unique(np.linspace(0, len(dataset) - 1, SIZE_SAMPLE).astype(int))
    return {read_shape(dataset.read, int(i)) for i in chosen}


def item_shape(dataset: Dataset, config: TrainConfig) -> tuple[int, ...]:
    """Return the shape of the network's inputs: (C, H, W) or (d,)."""
    item = dataset.read(0)
    if item.ndim == 1:
        return item.shape
    height, width, channels = item.shape
    size = config.image_size
    if size is None:
        return (channels, height, width)
    return (channels, size, size)
