"""The data of a run, and the settings that depend on them."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ..data import DataNotFoundError, Dataset, Task, open_task
from ..data.augment import transforms_of
from ..data.checks.training_items import marks_of
from ..data.dataset import ArrayReader, some
from ..data.decode import read_shape
from ..data.open import open_whole, read_levels, resolve_source, with_levels, with_pairs
from ..data.readers.in_memory import GIVEN
from ..data.sounds import durations, in_pieces
from ..data.transforms.geometry import ResizedCrop
from ..data.transforms.symmetries import with_more_classes
from ..deep.networks.ge2e import WINDOW_SECONDS
from ..deep.networks.preprocessing import Preprocessing
from ..deep.networks.tokens import NO_TOKEN, Tokens
from ..deep.networks.trunks import NAMED, SOUND_TRUNKS, find_preprocessing, parse_trunk
from ..io.training_marks import TrainingMarks
from ..numerics.mel import SOUND_RATE
from ..quoting import count_of
from ..trust import named_by
from .config import TrainConfig, TrainError
from .text_trunks import TEXT_TRUNKS, cached_text_trunk

TRANSFORMERS = re.compile(r"(\s*transformers:)([^()\s]+)")
SMALL_TRUNKS = ("conv4", "mlp", "identity", "spd")  # trunks that are commonly used with photographs of 84x84 pixels
NEARLY_ALL = 0.9  # share of the sounds of a training that are no longer than a piece
FEWEST_SECONDS = 0.2  # default length of a piece of sounds, at least
MOST_SECONDS = 4.0  # and at most
SIZE_SAMPLE = 1000  # maximum number of images of a set whose sizes are read from their headers


def open_data(
    config: TrainConfig, start: Path | None = None, tokens: Tokens | None = None, *, as_stored: bool = False
) -> Task:
    """Open the task of a config. Relative paths that do not exist in the current folder refer to `start`.

    Texts are tokenized by `tokens`, or by default by the tokenizer in the folder of the trunk. Images `as_stored` have
    their own sizes, and no turned ones are added.
    """
    if config.data == GIVEN:
        raise TrainError("the network was fitted on items in memory, which were not saved; give the data to score")
    try:
        task = _opened(config, start, image_size=None if as_stored else size_when_opened(config))
    except DataNotFoundError as error:
        if start:
            nor = f"; it is not in {start}, where the run was started, either"
        else:
            nor = ""
        raise DataNotFoundError(f"{error}{nor}") from None
    if task.train.kind == "text":
        task = with_tokens(task, text_tokens(config, start) if tokens is None else tokens)
    elif task.train.columns and config.trunk.startswith("transformers:"):
        given = f"rows of {count_of(len(task.train.columns), 'number')} ({some(task.train.columns, 3)})"
        expected = "texts (a table with a column 'text' and no columns of numbers) or images"
        raise TrainError(f"config: trunk: got {given} for {config.trunk}; expected {expected}")
    if task.train.kind == "sound" and config.seconds is not None:
        task = with_pieces(task, config)
    if as_stored or config.symmetries == "none":
        return task
    return with_more_classes(task, config.symmetries)


def with_tokens(task: Task, tokens: Tokens) -> Task:
    """Return a task of texts with rows of token numbers instead.

    Rows are as long as the longest text, up to the limit of tokenizer and model.
    """
    task = task.mapped(lambda part: tokenized(part, tokens))
    length = max(part.read(0).size for part in task.parts.values() if len(part))
    return task.mapped(lambda part: _padded(part, length))


def _padded(dataset: Dataset, length: int) -> Dataset:
    """Return rows of token numbers with more padding, up to a length."""
    rows = dataset.array
    assert rows is not None
    rows = np.pad(rows, ((0, 0), (0, length - rows.shape[1])), constant_values=NO_TOKEN)
    return replace(dataset, read=ArrayReader(rows), array=rows)


def with_pieces(task: Task, config: TrainConfig) -> Task:
    """Return a task of sounds that are cut into pieces as long as a config sets."""
    assert config.seconds is not None
    samples = round(config.seconds * SOUND_RATE)
    return task.mapped(lambda part: in_pieces(part, samples))


def chosen_seconds(config: TrainConfig, task: Task) -> dict[str, float]:
    """Return how long pieces of sounds are, as a setting; none for other items, and where it was given."""
    if task.train.kind != "sound" or config.seconds is not None:
        return {}
    usual = float(np.quantile(durations(task.train), NEARLY_ALL, method="lower"))
    least = WINDOW_SECONDS if parse_trunk(config.trunk)[0] == "ge2e" else FEWEST_SECONDS
    return {"seconds": float(np.clip(np.ceil(10 * usual) / 10, least, MOST_SECONDS))}


def text_tokens(config: TrainConfig, start: Path | None = None) -> Tokens:
    """Return the tokenizer of a config, with the prompt that its folder or the options of its trunk give."""
    folder = tokenizer_folder(config, start)
    return Tokens.of_folder(folder, parse_trunk(given_text_trunk(config))[1])


def given_text_trunk(config: TrainConfig) -> str:
    """Return the trunk of the texts of a config; for "auto", the model in the cache of the hub if there is one."""
    given = config.text_trunk or config.trunk
    return (cached_text_trunk() or given) if given == "auto" else given


def tokenizer_folder(config: TrainConfig, start: Path | None = None) -> Path:
    """Return the folder with the tokenizer of a config: that of its text trunk, or of its only one.

    Raises
    ------
    TrainError
        If that trunk is not a model of transformers in a folder.
    """
    setting = "trunk" if config.text_trunk is None else "text_trunk"
    given = given_text_trunk(config)
    if given == "auto":
        models = some(TEXT_TRUNKS)
        detail = f"for texts, auto is the first of these models that is in the cache of the hub, and none is: {models}"
        raise TrainError(f"config: {setting}: {detail}; download one, or give trunk=transformers:FOLDER")
    kind, _, name = parse_trunk(given)[0].partition(":")
    folder = Path(resolve_source(name, start)) if name else None
    if kind != "transformers" or folder is None or not folder.is_dir():
        items = "the items are texts, which" if config.text_trunk is None else "texts"
        named = f"{setting}=transformers:FOLDER"
        detail = f"{items} need a tokenizer: {named}, of a model with its tokenizer"
        raise TrainError(f"config: {setting}: {detail}; got {given}")
    return folder


def with_resolved_folder(trunk: str, start: Path | None) -> str:
    """Return a trunk of transformers in a folder, which refers to `start` if it does not exist here."""
    match = TRANSFORMERS.match(trunk)
    if match is None:
        return trunk
    return f"{match[1]}{resolve_source(match[2], start)}{trunk[match.end() :]}"


def tokenized(dataset: Dataset, tokens: Tokens) -> Dataset:
    """Return a set of texts as rows of token numbers, as long as the longest text."""
    rows, cut_off = tokens.read(dataset.texts_given)
    if cut_off:
        verb = "has" if cut_off == 1 else "have"
        longer = (
            f"{count_of(cut_off, 'text')} of {len(dataset):,} {verb} more than the {tokens.max_tokens:,} tokens that"
        )
        warnings.warn(f"{dataset.name}: {longer} the model takes; what follows is not read", stacklevel=2)
    return replace(dataset, kind="row", read=ArrayReader(rows), array=rows)


def own_preprocessing(config: TrainConfig, start: Path | None = None) -> dict[str, Any]:
    """Return how the trunk of a config prepares images, as a setting; none if it was given, or there is none.

    It comes before `open_data`, which leaves images of such a trunk as they are.
    """
    if config.preprocessing is not None or ":" not in config.trunk:
        return {}
    weights = None if config.weights_file is None else resolve_source(config.weights_file, start)
    with named_by(config.origin):
        record = find_preprocessing(config.trunk, pretrained=config.pretrained is True, weights=weights)
    return {} if record is None else {"preprocessing": record}


def _opened(config: TrainConfig, start: Path | None, image_size: int | None) -> Task:
    """Open and split the data of a config; for a final model, all items are training items."""
    how: dict[str, Any] = {
        "test": None if config.test is None else resolve_source(config.test, start),
        "label": config.label,
        "name": config.name,
        "image_size": image_size,
        "skip_bad": config.skip_bad,
        "partial": config.partial,
        "pairs": config.text_trunk is not None,
    }
    source = resolve_source(config.data, start)
    levels = None
    if config.levels:  # before the items, of which contradictions would spoil some
        tables = [resolve_source(name, start) for name in (config.data, config.test) if name is not None]
        levels = read_levels(tables, config.label or "label", config.levels)
    if config.final is not None:
        task = open_whole(source, **how)
    else:
        task = open_task(
            source,
            test_classes=config.test_classes,
            validation=config.validation,
            seed=config.seed,
            split=config.split,
            **how,
        )
    if levels is not None:
        task = with_levels(task, levels)
    if config.pairs is None:
        return task
    return with_pairs(task, resolve_source(config.pairs, start), skip_bad=config.skip_bad)


def size_when_opened(config: TrainConfig) -> int | None:
    """Return the side to which images are resized when they are opened; None keeps their sizes."""
    if config.preprocessing is not None:  # images are resized for the trunk when batches are read
        return None
    if config.squash or whole_crop(config) is not None:  # opening at a fixed size would crop a central square first
        return None
    return config.resize or config.image_size


def whole_crop(config: TrainConfig) -> ResizedCrop | None:
    """Return the random crop that is applied to the original photographs in training, if any."""
    for part in transforms_of(config.augment):
        if isinstance(part, ResizedCrop) and part.whole:
            return part
    return None


def protocol_note(config: TrainConfig, task: Task) -> str:
    """Return a sentence on the protocol of a run; "" if there is nothing to say."""
    if config.protocol == "paper":
        return "Protocol of the paper: the network is trained on all training classes, and the last checkpoint is kept."
    if config.final is not None or task.validation is None:
        return ""
    known = set(task.train.classes) & set(task.validation.classes)
    held_out = "training items" if known else "training classes"
    return f"Honest protocol: held-out {held_out} choose the checkpoint."


def items_of(dataset: Dataset) -> str:
    """Return what the items of a set are called: "images", "texts" or "rows"."""
    return "texts" if dataset.texts is not None else f"{dataset.kind}s"


def class_mark(task: Task) -> str:
    """Return a digest of the training classes of a task."""
    return sha256("\0".join(task.train.classes).encode(errors="surrogateescape")).hexdigest()[:16]


def training_items(config: TrainConfig, task: Task, start: Path | None = None) -> TrainingMarks:
    """Return the fingerprints of the items that a run trains on, and of those that choose its checkpoint."""
    resized = (config.image_size or config.resize) and task.train.array is not None and task.train.stored is None
    if config.data != GIVEN and task.train.kind == "image" and (resized or config.symmetries != "none"):
        task = open_data(config, start, as_stored=True)
    return marks_of(task.train, task.validation, final=config.final is not None)


def check_data(config: TrainConfig, task: Task) -> None:
    """Refuse data that a config cannot be used with.

    Raises
    ------
    TrainError
        If there are a text trunk and no texts; if what is trained on and what is tested are not both images, or both
        rows of one length; if images are to be standardized; or if rows have an image size.
    """
    parts = [*task.parts.values()]
    _check_alike(parts)
    if config.text_trunk is not None and not all(part.are_pairs for part in parts):
        detail = (
            f"{task.train.name} has {task.train.kind}s without texts, but a text trunk needs pairs of images and texts"
        )
        raise TrainError(f"config: text_trunk: {detail}")
    kind = task.train.kind
    if config.standardize and kind != "row":
        raise TrainError(f"config: standardize works only with rows, got {kind}s; leave it out")
    if config.image_size is not None and kind in ("row", "sound"):
        raise TrainError(f"config: image_size works only with images, got {kind}s; leave it out")
    if config.augment and kind == "sound":
        raise TrainError("config: augment works only with images, got sounds; leave it out")
    if config.seconds is not None and kind != "sound":
        raise TrainError(f"config: seconds works only with sounds, got {kind}s; leave it out")
    _check_trunk_of_sounds(config, kind)


def _check_trunk_of_sounds(config: TrainConfig, kind: str) -> None:
    """Raise a TrainError for a trunk of this library that takes other items."""
    name = parse_trunk(config.trunk)[0]
    of_sounds = ", ".join((*SOUND_TRUNKS, "transformers:NAME_OR_FOLDER"))
    if kind == "sound" and ((name in NAMED and name not in SOUND_TRUNKS) or name.startswith("timm:")):
        raise TrainError(f"config: trunk: {name} does not take sounds; expected one of {of_sounds}")
    if kind != "sound" and name in SOUND_TRUNKS:
        raise TrainError(f"config: trunk: {name} takes sounds, got {kind}s")


def chosen_sizes(config: TrainConfig, task: Task) -> dict[str, int]:
    """Return the sizes of images as settings; none for rows, and where a size was given or none is needed.

    Raises
    ------
    TrainError
        If the trunk takes images of another size only.
    """
    found: dict[str, int] = {}
    if config.image_size is None and config.resize is None and task.train.kind == "image":
        sizes = [sizes_in(part) for part in task.parts.values()]
        if config.preprocessing is None:
            found = _image_sizes(config.trunk, sizes)
        else:
            found = _sizes_of_trunk(config.preprocessing, sizes, config.trunk)
    _check_fixed_size(config, found.get("image_size", config.image_size))
    return found


def _check_fixed_size(config: TrainConfig, size: int | None) -> None:
    """Raise a TrainError for a size that a trunk with a fixed grid of patches does not support."""
    record = config.preprocessing
    if record is None or size is None or not record.fixed_size or record.image_size == (size, size):
        return
    raise TrainError(
        f"config: image_size: the trunk {config.trunk} takes images of {record.image_size[0]} pixels only, because its "
        f"grid of patches is fixed, got {size}; leave image_size out, or try dynamic_img_size=True in the trunk"
    )


def _sizes_of_trunk(record: Preprocessing, sizes: list[set[tuple[int, ...]]], trunk: str) -> dict[str, int]:
    """Choose `image_size` and `resize` for a trunk with its own preprocessing: those that it was trained with.

    Small images are enlarged, because the trunk recognizes details best at the scale of its pretraining. Unlike with
    the preprocessing of the trunk, their borders are not cropped, unless the text of the `trunk` has the option `crop`.
    """
    found = set().union(*sizes)
    if found == {record.image_size}:
        return {}
    side = record.image_size[0]
    crop_is_given = "crop" in parse_trunk(trunk)[1]
    if all(min(size) < record.resize for size in found) and not crop_is_given:
        return {"image_size": side, "resize": side}
    return {"image_size": side, "resize": record.resize}


def _image_sizes(trunk: str, sizes: list[set[tuple[int, ...]]]) -> dict[str, int]:
    """Choose `image_size` and `resize` from the sizes of the images of each part, those of the training first."""
    of_train, *others = sizes
    height, width = next(iter(of_train))
    too_small = trunk.startswith("conv4") and min(height, width) < 16  # conv4 halves the size four times
    of_one_size = len(of_train) == 1
    if of_one_size and all(other == of_train for other in others):
        return {"image_size": 28} if too_small else {}
    if of_one_size and height == width:  # only evaluated images differ, and are resized to that size, too
        return {"image_size": 28 if too_small else height}
    if trunk.startswith(SMALL_TRUNKS):
        return {"image_size": 84}
    return {"image_size": 224, "resize": 256}


def _check_alike(parts: list[Dataset]) -> None:
    """Raise a TrainError at the start if the test items cannot be scored by the network."""
    kinds = [_described(part) for part in parts]
    for part, kind in zip(parts, kinds, strict=True):
        if kind != kinds[0]:
            raise TrainError(f"{part.name}: expected items like those of the training, {kinds[0]}, got {kind}")


def _described(part: Dataset) -> str:
    """Return what the items of a set are, with the length of rows."""
    if part.kind in ("image", "sound"):
        return f"{'an' if part.kind == 'image' else 'a'} {part.kind}"
    return f"a row of {part.read(0).size} numbers"


def sampled_sizes(dataset: Dataset) -> list[tuple[int, ...]]:
    """Return the heights and widths of all images, or of a random sample of 1,000, which is always the same."""
    if dataset.array is not None:
        return [dataset.array.shape[1:3]] * min(len(dataset), SIZE_SAMPLE)
    count = min(len(dataset), SIZE_SAMPLE)
    chosen = np.random.default_rng(0).choice(len(dataset), count, replace=False)
    return [read_shape(dataset.read, int(i)) for i in np.sort(chosen)]


def sizes_in(dataset: Dataset) -> set[tuple[int, ...]]:
    """Return the different sizes of `sampled_sizes`."""
    return set(sampled_sizes(dataset))


def item_shape(dataset: Dataset, config: TrainConfig) -> tuple[int, ...]:
    """Return the shape of the network's inputs: (C, H, W), (d,), or (samples,) of one piece of a sound."""
    if dataset.kind == "sound":
        assert config.seconds is not None
        return (round(config.seconds * SOUND_RATE),)
    item = dataset.read(0)
    if item.ndim == 1:
        return item.shape
    height, width, channels = item.shape
    size = config.image_size
    if size is None:
        return (channels, height, width)
    return (channels, size, size)
