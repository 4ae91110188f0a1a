"""The settings of a run from the words of a command."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..extras import require
from ..io.untrusted import parse_json
from ..quoting import quoted
from .options import TEXTS

if TYPE_CHECKING:
    from ..train import TrainConfig


def given(*groups: Any, **others: Any) -> dict[str, Any]:
    """Return the settings of a run that a user has given: in groups of options, others, and by --set, which wins."""
    values = {
        field.name: getattr(group, field.name)
        for group in groups
        for field in fields(group)
        if field.name in TEXTS and getattr(group, field.name) != field.default
    }
    values |= {name: value for name, value in others.items() if value is not None}
    if "pretrained" in values:
        values["pretrained"] = {"true": True, "false": False}.get(values["pretrained"].lower(), values["pretrained"])
    for group in groups:
        values |= named_values(getattr(group, "settings", ()))
    return values


def named_values(texts: Sequence[str]) -> dict[str, Any]:
    """Return the values that are given as name=value."""
    return dict(_setting(text) for text in texts)


def make_config(
    chosen: Mapping[str, Any], recipe: str | None, resumed: Path | None = None, varied: Collection[str] = ()
) -> TrainConfig:
    """Return the settings of a recipe, overridden by those that are given.

    A `resumed` run has its own settings. Given ones override them, so that training refuses those that differ. Epochs
    that are given, or `varied`, replace the steps of a recipe or of a run.

    Raises
    ------
    ValueError
        If there is no data, or both epochs and steps are given.
    """
    from ..train import TrainConfig

    base = None if resumed is None else TrainConfig.from_json(resumed / "config.json")
    settings = dict(chosen)
    if recipe:
        from ..train import recipe as read_recipe

        settings = read_recipe(recipe, chosen.get("protocol", "honest")) | settings
    if "epochs" in chosen or "epochs" in varied:
        if chosen.get("steps") is not None or "steps" in varied:
            raise ValueError("epochs and steps: both set the length of training; give only one of them")
        settings["steps"] = None
    if base is None and "data" not in settings:
        raise ValueError("DATA: expected the data to train on, for example `nearfar train glyphs --out runs/glyphs`")
    config = TrainConfig.of(**settings) if base is None else base.replace(**settings)
    require(*(["timm"] if config.trunk.startswith("timm:") else []))
    return config


def refuse_beside_final(chosen: Mapping[str, Any], what_final_does: str) -> None:
    """Refuse options that contradict --final, such as settings other than those of the run that was scored."""
    given = [name for name, value in chosen.items() if value is not None]
    if given:
        option = {"data": "DATA"}.get(given[0], f"--{given[0].replace('_', '-')}")
        raise ValueError(f"{option}: does not work with --final, which {what_final_does}; leave it out")


def refuse_beside_table(given: Mapping[str, object]) -> None:
    """Refuse options with a table of a paper, which determines what is trained."""
    for name, value in given.items():
        if value:
            raise ValueError(f"--{name}: does not work with a table of a paper, which defines its rows; leave it out")


def varied_settings(vary: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return the distinct values of every setting that is given as name=value."""
    found: dict[str, list[Any]] = {}
    for name, value in (_setting(text, "--vary") for text in vary):
        values = found.setdefault(name, [])
        if value not in values:
            values.append(value)
    return found


def _setting(text: str, option: str = "--set") -> tuple[str, Any]:
    """Split name=value; the value is read as JSON if possible (0.1, true, [1, 2]), else as text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{option}: expected name=value, got {quoted(text)}")
    try:
        return name, parse_json(value)
    except ValueError:
        return name, value
