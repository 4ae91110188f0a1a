"""What a database keeps of a collection beside its items: read with care, as whoever writes there can change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..io.untrusted import parse_json
from ..numerics.distances import DISTANCES
from ..quoting import PATH, shorten
from .records import COLUMN_NAME, PLURAL

FORMAT = "nearfar collection 2"
Fields = Mapping[str, Callable[[Any], bool]]
"""What a state has, and for each of these fields, whether it may have a value, which is any that JSON can write."""


def one_of(*allowed: Any) -> Callable[[Any], bool]:
    return lambda value: value in allowed


def is_switch(value: Any) -> bool:
    return type(value) is bool


def is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def is_identifier(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier()


def are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def are_columns(value: Any) -> bool:
    """Return whether a value is a dict of the kinds of columns."""
    return are_texts(value) and all(COLUMN_NAME.fullmatch(name) and kind in PLURAL for name, kind in value.items())


FIELDS_OF_ALL: Fields = {
    "distance": one_of(*DISTANCES),
    "labels": one_of("", *PLURAL),
    "about": are_texts,
}


def parsed_state(text: str | bytes, where: str, fields: Fields) -> dict[str, Any]:
    """Parse the state of a collection; raise a ValueError if it is damaged, or of another version."""
    try:
        state = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{where}: damaged ({shorten(str(error), PATH)}); make the index again") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(f"{where} is not a collection of this version of nearfar; make the index again")
    check_fields(state, where, FIELDS_OF_ALL)
    check_fields(state, where, fields)
    return state


def check_fields(state: Mapping[str, Any], where: str, fields: Fields) -> None:
    """Raise a ValueError if a state lacks a field, or has a value in it that is not allowed."""
    if not all(is_allowed(state.get(name)) for name, is_allowed in fields.items()):
        raise ValueError(f"{where}: damaged (settings are missing or invalid); make the index again")
