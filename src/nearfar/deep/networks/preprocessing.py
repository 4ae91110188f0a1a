"""How images are prepared for a trunk: size, interpolation, mean and standard deviation, in one record of a run.

`of_timm` and `of_processor` read the settings of timm and of the image processors of transformers. This module imports
neither of the two, nor torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from math import floor, isfinite
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
Pool = Literal["model", "pooler", "cls", "avg", "gem"]
Side = Annotated[int, Meta(ge=1, le=8192)]

FROM_HEADER = "from the header of"
"""Words in the source of a record some of whose values a file of weights has stated."""
OVERRIDES = ("mean", "std", "interpolation", "crop", "pool")
"""Options in the text of a trunk that set this record instead of the model."""
INTERPOLATIONS: dict[int, Interpolation] = {
    0: "nearest",
    1: "lanczos",
    2: "bilinear",
    3: "bicubic",
    4: "box",
    5: "hamming",
}
"""Filters by Pillow's numbers, which the files of image processors contain."""


class Preprocessing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How images are prepared for a trunk.

    Attributes
    ----------
    mean, std : tuple of float
        Mean and standard deviation of each channel: x in [0, 1] becomes (x - mean) / std.
    channels : int
        Number of channels that the trunk takes. Gray images are repeated, and the channels of color images are
        averaged.
    image_size : (int, int)
        Height and width in pixels that the trunk was made for.
    fixed_size : bool
        Whether the trunk takes no other size.
    resize : int
        Length in pixels of the shorter side of an image before the central crop to `image_size`.
    squash : bool
        Whether both sides are resized to `resize`, which changes the aspect ratio, instead of keeping it.
    round_down : bool
        Whether the corner of the central crop is rounded down if it lies between two pixels, as in image processors of
        transformers. torchvision, and therefore timm, round to the even pixel.
    interpolation : {"nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"}
        Filter of Pillow for resizing, with antialiasing.
    pool : {"model", "cls", "avg", "gem", "pooler"}
        How features are computed from the last map or tokens; "model" is the model's own way. For a model of
        transformers, it is determined when the model is built: "pooler", its own module, if that is trained, else "cls"
        or "avg".
    source : str
        Origin of this record.

    Examples
    --------
    >>> record = Preprocessing(mean=(0.5,), std=(0.25,), channels=1, image_size=(32, 32), resize=36)
    >>> record.interpolation, record.resize_for(64)
    ('bicubic', 72)
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    channels: Annotated[int, Meta(ge=1, le=1024)] = 3
    image_size: tuple[Side, Side] = (224, 224)
    fixed_size: bool = False
    resize: Side = 256
    squash: bool = False
    round_down: bool = False
    interpolation: Interpolation = "bicubic"
    pool: Pool = "model"
    source: str = ""

    def __post_init__(self) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != self.channels:
                raise ValueError(f"{name}: expected {self.channels} numbers, one per channel, got {list(values)}")
            if not all(isfinite(value) for value in values):
                raise ValueError(f"{name}: expected finite numbers, got {list(values)}")
        if not all(value > 0 for value in self.std):
            raise ValueError(f"std: expected numbers above 0, got {list(self.std)}")
        if min(self.image_size) > self.resize:
            raise ValueError(f"resize: expected at least image_size, {min(self.image_size)}, got {self.resize}")

    def resize_for(self, size: int) -> int:
        """Return the length of the shorter side before a crop to another size, in the same proportion."""
        return max(size, floor(size * self.resize / self.image_size[0]))

    def changed(self, options: Mapping[str, Any]) -> Preprocessing:
        """Return a copy of the record with the values that the options of a trunk's text give.

        Parameters
        ----------
        options : mapping
            Some of `OVERRIDES`: mean and std are one number or one per channel, and crop is the share of the shorter
            side that the central crop keeps.

        Raises
        ------
        ValueError
            If an option is invalid; the message is one line that names it.
        """
        fields = {name: value for name, value in options.items() if name in ("interpolation", "pool")}
        for name in ("mean", "std"):
            if name in options:
                fields[name] = per_channel(name, options[name], self.channels)
                if any(abs(value) > 1 for value in fields[name]):
                    raise ValueError(
                        f"{name}: expected values for pixels in [0, 1], got {options[name]!r:.60}; divide by 255"
                    )
        if "crop" in options:
            fields["resize"] = _resize(self.image_size[0], options["crop"])
        if not fields:
            return self
        fields["source"] = f"{self.source}; {', '.join(sorted(options))} as given"
        return make({**msgspec.to_builtins(self), **fields})

    def of_weights(self, header: Mapping[str, str], file: str, options: Mapping[str, Any]) -> Preprocessing:
        """Return a copy of the record with the values that the header of a file of weights states.

        A value that is not valid is left out, with a warning. If the text of the trunk gives another number of
        channels, no value is read: the weights do not fit, which is an error as soon as they are loaded.

        Parameters
        ----------
        header : mapping
            Metadata of a .safetensors file. Read are mean, std and input_size, in the spelling of timm's data config:
            numbers, as "0.5,0.5,0.5" or "[3, 224, 224]".
        file : str
            Name of the file.
        options : mapping
            Options in the text of the trunk; what they give takes precedence.
        """
        if "in_chans" in options and _channels_in_header(header) not in (None, self.channels):
            return self
        record = self
        used = []
        for name in ("mean", "std", "input_size"):
            if name not in header or name in options or (name == "input_size" and "img_size" in options):
                continue
            try:
                fields = _fields_of_header(record, name, header[name])
                changed = make({**msgspec.to_builtins(record), **fields})
            except ValueError as error:
                warnings.warn(f"{file}: the {name} in its header is not used: {error}", stacklevel=2)
                continue
            if changed != record:
                record = changed
                used.append(name)
        if not used:
            return self
        return msgspec.structs.replace(record, source=f"{self.source}; {', '.join(used)} {FROM_HEADER} {file}")

    def with_channels(self, channels: int) -> Preprocessing:
        """Return the record for another number of channels, all with the average mean and standard deviation."""
        if channels == self.channels:
            return self
        mean, std = (sum(values) / len(values) for values in (self.mean, self.std))
        return msgspec.structs.replace(self, channels=channels, mean=(mean,) * channels, std=(std,) * channels)


def make(fields: Mapping[str, Any]) -> Preprocessing:
    """Return a validated record of these fields.

    Raises
    ------
    ValueError
        If a field is invalid; the message is one line that names it.
    """
    try:
        return msgspec.convert(dict(fields), Preprocessing)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$.")
        field = where.rstrip("`").partition("[")[0]
        if field == "interpolation":
            text = f"expected one of {', '.join(INTERPOLATIONS.values())}, got {fields[field]!r:.60}"
        elif field == "pool":
            text = f"expected model, cls, avg or gem, got {fields[field]!r:.60}"
        raise ValueError(f"{field}: {text}" if field else text) from None


def per_channel(name: str, value: Any, channels: int) -> tuple[float, ...]:
    """Return a number for each channel; a single number applies to all."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
        raise ValueError(f"{name}: expected a number or one per channel, got {value!r:.60}")
    if len(values) == 1:
        values = values * channels
    if len(values) != channels:
        raise ValueError(f"{name}: expected one number or {channels}, one per channel, got {value!r:.60}")
    return tuple(float(one) for one in values)


def _channels_in_header(header: Mapping[str, str]) -> int | None:
    """Return the number of channels that the header of a file of weights states; None if it states none."""
    with suppress(KeyError, ValueError):
        return int(header["input_size"].strip().strip("[]()").split(",")[0])
    return None


def _fields_of_header(record: Preprocessing, name: str, text: str) -> dict[str, Any]:
    """Return the fields of a record that an entry in the header of a file of weights gives.

    Raises
    ------
    ValueError
        If the entry is not valid for this trunk.
    """
    try:
        numbers = [float(word) for word in text.strip().strip("[]()").split(",")]
    except ValueError:
        raise ValueError(f"expected numbers separated by commas, got {text!r:.60}") from None
    if name != "input_size":
        return {name: per_channel(name, numbers, record.channels)}
    # channels, height and width
    if len(numbers) != 3 or numbers[0] != record.channels or numbers[1] != numbers[2] or not numbers[2].is_integer():
        raise ValueError(f"expected {record.channels},SIDE,SIDE, got {text!r:.60}")
    side = int(numbers[2])
    if record.fixed_size and (side, side) != record.image_size:
        raise ValueError(f"the network takes images of {record.image_size[0]} pixels only, got {text!r:.60}")
    return {"image_size": (side, side), "resize": record.resize_for(side)}


def _resize(size: int, crop: Any) -> int:
    if not isinstance(crop, int | float) or isinstance(crop, bool) or not 0 < crop <= 1:
        raise ValueError(f"crop: expected a share of the side above 0 and at most 1, got {crop!r:.60}")
    return floor(size / crop)


def of_factory(config: Any, source: str) -> Preprocessing:
    """Return the record in the attribute `preprocessing` of a factory of trunks.

    Parameters
    ----------
    config : Preprocessing or mapping
        Fields of `Preprocessing`, where mean and std may be one number for all channels, and image_size one side.
    source : str
        Name of the factory in error messages.
    """
    if isinstance(config, Preprocessing):
        return config
    if not isinstance(config, Mapping):
        raise ValueError(f"{source}.preprocessing: expected a dict of mean, std, image_size, ..., got {config!r:.60}")
    fields = {"channels": 3, "source": f"{source}.preprocessing", **config}
    size = fields.get("image_size")
    if isinstance(size, int):
        fields["image_size"] = (size, size)
        fields.setdefault("resize", size)
    missing = [name for name in ("mean", "std") if name not in fields]
    if missing:
        raise ValueError(f"{source}.preprocessing: expected a dict with mean and std, {missing[0]} is missing")
    try:
        for name in ("mean", "std"):
            fields[name] = per_channel(name, fields[name], fields["channels"])
        return make(fields)
    except ValueError as error:
        raise ValueError(f"{source}.preprocessing: {error}") from None


def of_timm(config: Mapping[str, Any], *, fixed_size: bool, source: str) -> Preprocessing:
    """Return the record of a data config of timm, as `timm.data.resolve_model_data_config` gives it."""
    channels, height, width = config["input_size"]
    mode = config.get("crop_mode", "center")
    if mode not in ("center", "squash"):
        raise ValueError(f"crop_mode {mode!r} of its data config is not supported; expected center or squash")
    if height != width:
        raise ValueError(f"it takes images of {height} x {width} pixels; only squares are supported: give img_size")
    fields = {
        "mean": config["mean"],
        "std": config["std"],
        "channels": channels,
        "image_size": (height, width),
        "fixed_size": fixed_size,
        "resize": _resize(height, config["crop_pct"]),
        "squash": mode == "squash",
        "interpolation": config["interpolation"],
        "source": source,
    }
    return make(fields)


def of_processor(config: Mapping[str, Any], overrides: Mapping[str, Any], source: str) -> Preprocessing:
    """Return the record of an image processor of transformers, from its JSON file.

    Parameters
    ----------
    config : mapping
        Content of `preprocessor_config.json`.
    overrides : mapping
        Values of the user that take precedence (`OVERRIDES`).
    source : str
        Name of the file in error messages.
    """
    mean, std = _moments(config, overrides, source)
    fields = {
        "mean": mean,
        "std": std,
        "channels": _count(config, overrides),
        "fixed_size": True,
        "round_down": True,
        "interpolation": INTERPOLATIONS.get(config.get("resample", 2), "bilinear"),
        "source": source,
        **_sizes(config, source),
    }
    for name in ("mean", "std"):
        fields[name] = per_channel(name, fields[name], fields["channels"])
    return make(fields).changed(overrides)


def _moments(
    config: Mapping[str, Any], overrides: Mapping[str, Any], source: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, for x in [0, 1].

    A processor computes (255 f x - o - mean) / std = (x - (mean + o) / (255 f)) / (std / (255 f)).
    """
    # f and o of the docstring: the rescale factor, 1/255 unless another is stated, and the offset, 1 or 0
    f = 1.0
    if config.get("do_rescale", True):
        f = float(config.get("rescale_factor") or 1 / 255)
    o = 1.0 if config.get("rescale_offset") else 0.0
    normalizes = config.get("do_normalize", True)
    stated: dict[str, tuple[float, ...]] = {}
    if not normalizes:
        stated = {"mean": (0.0,), "std": (1.0,)}
    for name in ("mean", "std"):
        if normalizes and config.get(f"image_{name}") is not None:
            stated[name] = per_channel(f"{source}: image_{name}", config[f"image_{name}"], _count(config, overrides))
        if name not in stated and name not in overrides:
            raise ValueError(
                f"{source} has no image_{name}, so it is not known how to normalize images; give mean= and std="
            )
    mean = tuple((value + o) / (255 * f) for value in stated.get("mean", (0.0,)))
    std = tuple(value / (255 * f) for value in stated.get("std", (1.0,)))
    return mean, std


def _count(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> int:
    """Return the number of channels, which is that of the listed means or standard deviations; 3 if none are listed."""
    for values in (config.get("image_mean"), config.get("image_std"), overrides.get("mean"), overrides.get("std")):
        if isinstance(values, list | tuple) and values:
            return len(values)
    return 3


def _sizes(config: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the fields `image_size`, `resize` and `squash`."""
    crops = config.get("do_center_crop", "crop_size" in config)
    crop = config.get("crop_size") if crops else None
    cut = None if crop is None else _side(crop, source)
    size = config.get("size", 224)
    if isinstance(size, Mapping) and "height" in size:
        resize = _side(size, source)
        squash = True
    elif isinstance(size, Mapping) and "shortest_edge" in size:
        resize = int(size["shortest_edge"])
        squash = False
        if config.get("crop_pct"):
            # ConvNeXT: images of fewer than 384 pixels are cropped from larger ones, other images are squashed
            cut = resize
            squash = resize >= 384
            if not squash:
                resize = int(resize / config["crop_pct"])
    elif isinstance(size, int):
        resize = size
        squash = cut is None
    else:
        raise ValueError(f"{source}: expected a size with height and width or shortest_edge, got {size!r:.60}")
    side = cut or resize
    return {"image_size": (side, side), "resize": max(side, resize), "squash": squash}


def _side(size: Any, source: str) -> int:
    if isinstance(size, int):
        return size
    if isinstance(size, Mapping) and "height" in size and size["height"] == size.get("width"):
        return int(size["height"])
    if isinstance(size, Mapping) and "shortest_edge" in size:
        return int(size["shortest_edge"])
    raise ValueError(f"{source}: only squares are supported, got a size of {size!r:.60}")
