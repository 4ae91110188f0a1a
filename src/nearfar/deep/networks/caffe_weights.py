"""Weights from a `.caffemodel`: the blobs of its layers, read from the wire format of protocol buffers.

    NetParameter     layer (100), or in older files layers (2)
    LayerParameter   name (1) and blobs (7), or in older files name (4) and blobs (6)
    BlobProto        data (5), shape (7) or num, channels, height, width (1 to 4)

Only these fields are read. Nothing in such a file is code.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of protocol buffers; the other types are obsolete."""
LONGEST_VARINT = 10  # maximum number of bytes of a 64-bit number
MAX_DIMENSIONS = 8
PARTS = ("weight", "bias")
"""Names of the blobs of a convolution or a linear layer, in their order."""


class CaffeFileError(ValueError):
    """A file is not a `.caffemodel`, or is damaged. The message is one line."""


class LayerFields(NamedTuple):
    """Field numbers of a layer, which differ between the two generations of the format."""

    name: int
    blobs: int


LAYERS = {2: LayerFields(name=4, blobs=6), 100: LayerFields(name=1, blobs=7)}
"""Field numbers of a layer, by the number of the field in which the network holds its layers."""


def read_caffe_weights(data: bytes) -> dict[str, Tensor]:
    """Return the weights and biases of all layers, as a state dict.

    Parameters
    ----------
    data : bytes
        Content of the file.

    Returns
    -------
    dict of str to Tensor
        State dict. The layer ``conv1/7x7_s2`` of the file becomes ``conv1_7x7_s2.weight`` and ``conv1_7x7_s2.bias``.

    Raises
    ------
    CaffeFileError
        If the file is truncated or of another kind.
    """
    state: dict[str, Tensor] = {}
    for number, value in _fields(memoryview(data)):
        if number not in LAYERS or isinstance(value, int):
            continue
        name, blobs = _layer(value, LAYERS[number])
        for part, blob in zip(PARTS, blobs, strict=False):
            state[f"{name.replace('/', '_').replace('.', '_')}.{part}"] = blob
    if not state:
        raise CaffeFileError("contains no layer with weights")
    return state


def _layer(data: memoryview, fields: LayerFields) -> tuple[str, list[Tensor]]:
    name = ""
    blobs = []
    for number, value in _fields(data):
        if isinstance(value, int):
            continue
        if number == fields.name:
            name = bytes(value).decode(errors="replace")
        elif number == fields.blobs:
            blobs.append(_blob(value))
    return name, blobs


def _blob(data: memoryview) -> Tensor:
    """Return the numbers of a blob as a tensor of its shape."""
    pieces: list[bytes] = []
    shape: list[int] = []
    older: dict[int, int] = {}
    for number, value in _fields(data):
        if number == 5 and not isinstance(value, int):
            pieces.append(bytes(value))
        elif number == 7 and not isinstance(value, int):
            shape = _dimensions(value)
        elif number <= 4 and isinstance(value, int):
            older[number] = value
    content = b"".join(pieces)
    if len(content) % 4:
        raise CaffeFileError("a blob is truncated")
    numbers = np.frombuffer(content, dtype="<f4").astype(np.float32)
    sizes = shape or [older.get(place, 1) for place in (1, 2, 3, 4)]
    # if one side is 0, the others may be too long for an array
    if len(sizes) > MAX_DIMENSIONS or prod(sizes) != len(numbers) or max(sizes) > len(numbers):
        raise CaffeFileError(f"a blob of shape {tuple(sizes)} holds {len(numbers)} numbers")
    return torch.from_numpy(numbers.reshape(sizes))


def _dimensions(data: memoryview) -> list[int]:
    sizes: list[int] = []
    for number, value in _fields(data):
        if number != 1:
            continue
        if isinstance(value, int):
            sizes.append(value)
            continue
        place = 0
        while place < len(value):
            size, place = _varint(value, place)
            sizes.append(size)
    return sizes


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and the value of every field of a message; the value is a number or bytes."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        kind = key & 7
        if kind == VARINT:
            value, place = _varint(data, place)
            yield key >> 3, value
            continue
        if kind == BYTES:
            length, place = _varint(data, place)
        elif kind in (FIXED32, FIXED64):
            length = 4 if kind == FIXED32 else 8
        else:
            raise CaffeFileError("is not a Caffe network")
        if place + length > len(data):
            raise CaffeFileError("is truncated, or is not a Caffe network")
        yield key >> 3, data[place : place + length]
        place += length


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    """Return a number of variable length, and the position after it."""
    value = 0
    for shift in range(LONGEST_VARINT):
        if place >= len(data):
            raise CaffeFileError("is truncated, or is not a Caffe network")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, place
    raise CaffeFileError("is not a Caffe network")
