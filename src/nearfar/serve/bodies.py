"""The JSON bodies of requests as typed records, from which their checks and the description of the API follow."""

from __future__ import annotations

import base64
import binascii
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from ..quoting import quoted

Body = TypeVar("Body")
LARGEST = 1e30  # number in a body; squares of larger ones leave the range of float32
MOST_AT_ONCE = 1000  # items, names, vectors or inputs in a body
PLAIN = {str: ("string", "a text"), float: ("number", "a number"), int: ("integer", "a whole number")}


def about(text: str) -> dict[str, str]:
    """Return what a field of a record keeps: its description."""
    return {"description": text}


@dataclass(frozen=True)
class NewItem:
    """An item, with one of vector, row, text and image."""

    name: str = field(metadata=about("Its name; an item of this name is replaced."))
    vector: list[float] | None = field(metadata=about("Its embedding."), default=None)
    row: list[float] | None = field(metadata=about("Numbers that the model embeds."), default=None)
    text: str | None = field(metadata=about("A text that the model embeds."), default=None)
    image: str | None = field(metadata=about("An image that the model embeds, as a data URL."), default=None)
    class_: str | int | None = field(metadata=about("Its class, if items have one."), default=None)
    columns: dict[str, float | str | None] = field(metadata=about("Its columns."), default_factory=dict)


@dataclass(frozen=True)
class NewItems:
    """Items that are added or replaced, all of them or none."""

    items: list[NewItem]


@dataclass(frozen=True)
class Names:
    """Names of items."""

    names: list[str]


@dataclass(frozen=True)
class Vectors:
    """Embeddings that are searched at once."""

    vectors: list[list[float]]


@dataclass(frozen=True)
class EmbeddingInput:
    """What is embedded, as the API of OpenAI has it."""

    input: str | list[str] = field(metadata=about("Texts, or images as data URLs in base64."))
    model: str = field(metadata=about("Not needed: there is one model."), default="")
    encoding_format: str = field(metadata=about("float or base64."), default="float")
    input_type: str = field(metadata=about("document, or query for what is searched for."), default="document")
    dimensions: int | None = field(metadata=about("Must be the number that the index has."), default=None)
    user: str | None = field(metadata=about("Ignored."), default=None)


BODIES = (NewItem, NewItems, Names, Vectors, EmbeddingInput)


def read_body(kind: type[Body], body: dict[str, Any]) -> Body:
    """Return a JSON object as a record; raise a ValueError that names the part which is not as expected.

    >>> read_body(Names, {"names": ["a", 3]})
    Traceback (most recent call last):
    ValueError: names[1]: expected a text, got 3
    """
    return cast(Body, _read(kind, body, ""))


def _read(kind: Any, value: Any, at: str) -> Any:
    if is_dataclass(kind):
        return _read_record(kind, value, at)
    choices = get_args(kind) if get_origin(kind) in (UnionType,) else (kind,)
    if value is None and NoneType in choices:
        return None
    for choice in choices:
        if get_origin(choice) is list and isinstance(value, list):
            if len(value) > MOST_AT_ONCE and get_args(choice) != (float,):
                raise ValueError(f"{at}: expected up to {MOST_AT_ONCE:,}, got {len(value):,}")
            return [_read(get_args(choice)[0], part, f"{at}[{place}]") for place, part in enumerate(value)]
        if get_origin(choice) is dict and isinstance(value, dict):
            return {name: _read(get_args(choice)[1], part, f"{at}.{name}") for name, part in value.items()}
        if choice in PLAIN and _is_plain(choice, value):
            return value
    expected = " or ".join(_called(choice, value) for choice in choices if choice is not NoneType)
    raise ValueError(f"{at}: expected {expected}, got {quoted(value)}")


def _read_record(kind: Any, value: Any, at: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{at}: expected an object, got {quoted(value)}")
    hints = get_type_hints(kind)
    known = {one.name.rstrip("_"): one for one in fields(kind)}
    unknown = next((name for name in value if name not in known), None)
    if unknown is not None:
        raise ValueError(f"{at or 'body'}: there is no {quoted(unknown)}; there are {', '.join(known)}")
    found = {}
    for name, one in known.items():
        place = f"{at}.{name}" if at else name
        if name in value:
            found[one.name] = _read(hints[one.name], value[name], place)
        elif is_required(one):
            raise ValueError(f"{place}: is missing")
    return kind(**found)


def is_required(one: Any) -> bool:
    """Return whether a field has no default."""
    return one.default is MISSING and one.default_factory is MISSING


def _is_plain(kind: Any, value: Any) -> bool:
    if kind is float:
        return type(value) in (int, float) and abs(value) < LARGEST
    return type(value) is kind


def _called(kind: Any, value: Any) -> str:
    if kind is float and type(value) in (int, float) and abs(value) >= LARGEST:
        return f"a number from -{LARGEST:g} to {LARGEST:g}"
    if kind in PLAIN:
        return PLAIN[kind][1]
    return "a list" if get_origin(kind) is list else "an object"


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a record, or of what one of its fields holds.

    >>> schema_of(list[str])
    {'type': 'array', 'items': {'type': 'string'}, 'maxItems': 1000}
    """
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        properties = {}
        for one in fields(kind):
            properties[one.name.rstrip("_")] = {**_reference(hints[one.name]), **one.metadata}
        required = [one.name for one in fields(kind) if is_required(one)]
        found = {"type": "object", "description": kind.__doc__, "properties": properties}
        return {**found, "required": required, "additionalProperties": False}
    if get_origin(kind) is UnionType:
        return {"anyOf": [_reference(choice) for choice in get_args(kind)]}
    if get_origin(kind) is list:
        most = {} if get_args(kind) == (float,) else {"maxItems": MOST_AT_ONCE}
        return {"type": "array", "items": _reference(get_args(kind)[0]), **most}
    if get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": _reference(get_args(kind)[1])}
    return {"type": "null" if kind is NoneType else PLAIN[kind][0]}


def _reference(kind: Any) -> dict[str, Any]:
    if is_dataclass(kind):
        return {"$ref": f"#/components/schemas/{cast(type, kind).__name__}"}
    return schema_of(kind)


def image_in(url: str) -> bytes | None:
    """Return the content of a data URL of an image; None for any other text.

    >>> image_in("data:image/png;base64,iVBORw=="), image_in("a red shoe")
    (b'\\x89PNG', None)

    Raises
    ------
    ValueError
        If its content is not base64.
    """
    if not url.startswith("data:image/"):
        return None
    head, _, content = url.partition(",")
    try:
        if not head.endswith(";base64"):
            raise ValueError("no base64")
        return base64.b64decode(content, validate=True)
    except (ValueError, binascii.Error):
        raise ValueError(f"expected data:image/...;base64,..., got {quoted(url)}") from None
