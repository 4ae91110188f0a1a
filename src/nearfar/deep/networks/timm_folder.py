"""Folders of timm, `config.json` beside `model.safetensors`, as a trunk with its file of weights.

The folder may be that of a stranger: the model is looked up in timm by its name, and its arguments are checked when it
is built. This module imports neither timm nor torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...expressions import Call, ExpressionError, parse, settings_of
from ...io.untrusted import parse_json, read_file

START = "timm:"
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
LARGEST_CONFIG = 2**20
MOMENTS = ("mean", "std")


def trunk_of_folder(trunk: str) -> tuple[str, str] | None:
    """Return a trunk ``timm:NAME(...)`` and its file of weights for ``timm:FOLDER``; None for other trunks.

    Options of the user take precedence over those in the folder.

    Raises
    ------
    ValueError
        If a file of the folder is missing or damaged.
    """
    try:
        call = parse(trunk, "a trunk")
    except ExpressionError:  # where the trunk is built, the error names it
        return None
    if not isinstance(call, Call) or not (Path(call.name.removeprefix(START)) / CONFIG).is_file():
        return None
    folder = Path(call.name.removeprefix(START))
    weights = folder / WEIGHTS
    if not weights.is_file():
        raise ValueError(f"trunk {call.name}: the folder has no {WEIGHTS}; weights in other files may run code")
    try:
        content = parse_json(read_file(folder / CONFIG, LARGEST_CONFIG).decode("utf-8"))
        options = {**_options_in(content), **settings_of(call, {}, hands_on=True)}
        name = content["architecture"]
    except (OSError, ValueError) as error:
        raise ValueError(f"trunk {call.name}: {CONFIG}: {error}") from error
    settings = ", ".join(f"{option}={value!r}" for option, value in options.items())
    return f"{START}{name}({settings})" if settings else f"{START}{name}", str(weights)


def _options_in(content: Any) -> dict[str, Any]:
    """Return the options of a trunk for the config of a folder: arguments of the model, and how images are prepared."""
    if not isinstance(content, dict):
        raise ValueError(f"expected a JSON object, got {content!r:.60}")
    name = content.get("architecture")
    if not isinstance(name, str) or not name.replace(".", "_").isidentifier():
        raise ValueError(f"architecture: expected the name of a model of timm, got {name!r:.60}")
    options = content.get("model_args") or {}
    data = content.get("pretrained_cfg") or {}
    if not isinstance(options, dict) or not isinstance(data, dict):
        raise ValueError("model_args and pretrained_cfg: expected JSON objects")
    if not all(option.isidentifier() and _is_plain(value) for option, value in options.items()):
        raise ValueError(f"model_args: expected numbers, texts and lists of numbers, got {options!r:.60}")
    return {**{name: value for name, value in options.items() if name != "num_classes"}, **_preparing(data)}


def _preparing(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return mean, standard deviation and interpolation, whose values are checked where they are used."""
    found: dict[str, Any] = {}
    for name in MOMENTS:
        if isinstance(data.get(name), list) and all(isinstance(value, int | float) for value in data[name]):
            found[name] = tuple(data[name])
    for name, key in {"interpolation": "interpolation", "crop": "crop_pct"}.items():
        if _is_plain(data.get(key)) and data[key] is not None:
            found[name] = data[key]
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(one, bool | int | float) for one in value)
    return value is None or isinstance(value, bool | int | float | str)
