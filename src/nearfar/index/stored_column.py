"""Columns of the items of a file: texts in one buffer, and blocks that are checked and decoded when they are needed.

An array of texts of NumPy would take four times the longest text for each of them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..labels import CHARACTER, NARROW, text_array
from ..numerics.types import AnyArray, Ints
from .blob_file import Unusable, check_blob, parsing
from .filters import Kind
from .records import missing

OFFSET = np.dtype("<u4")
NUMBER = np.dtype("<f8")
WHOLE = np.dtype("<i8")
Blocks = Mapping[int, tuple[int, bytes, bytes]]
"""Key, digest and content of the blobs of one column, by their blocks."""
ENDS = struct.Struct("<II")  # two neighbors of the offsets of packed texts


def packed_texts(texts: Sequence[str]) -> bytes:
    """Return texts as bytes: where each of them ends, after the number of texts, and then all of them in UTF-8."""
    encoded = [encoded_text(text) for text in texts]
    ends = np.cumsum([len(text) for text in encoded])
    return np.array([len(encoded), *ends], dtype=OFFSET).tobytes() + b"".join(encoded)


def encoded_text(text: str) -> bytes:
    """Return a text in UTF-8; names of files may have surrogates, for bytes that are no text."""
    return text.encode("utf-8", "surrogatepass")


class Texts:
    """Texts of which few are needed at a time.

    Parameters
    ----------
    data : bytes
        All texts in UTF-8.
    starts, ends : ndarray of int, shape (n,)
        Where each text begins and ends.
    """

    def __init__(self, data: bytes, starts: Ints, ends: Ints) -> None:
        self.data = data
        self.starts = starts
        self.ends = ends

    @classmethod
    def joined(cls, parts: Sequence[bytes]) -> Texts:
        """Return the texts of several results of `packed_texts`.

        Raises
        ------
        ValueError
            If a part is no such result.
        """
        starts = [np.empty(0, dtype=np.int64)]
        ends = [np.empty(0, dtype=np.int64)]
        pieces = []
        before = 0
        for part in parts:
            numbers = np.frombuffer(part[: len(part) // OFFSET.itemsize * OFFSET.itemsize], dtype=OFFSET)
            count = int(numbers[0]) if len(numbers) else -1
            if not 0 <= count < len(numbers):
                raise ValueError("there are fewer texts than their number")
            size = len(part) - OFFSET.itemsize * (count + 1)
            offsets = np.concatenate([[0], numbers[1 : count + 1]]).astype(np.int64)
            if offsets[-1] != size or (np.diff(offsets) < 0).any():
                raise ValueError("texts that do not end where they should")
            starts.append(before + offsets[:-1])
            ends.append(before + offsets[1:])
            pieces.append(part[OFFSET.itemsize * (count + 1) :])
            before += size
        return cls(b"".join(pieces), np.concatenate(starts), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: AnyArray) -> AnyArray:
        """Return the texts at row numbers, or where a mask is True, as `text_array` makes it."""
        return self.pick(rows).array()

    def pick(self, rows: AnyArray) -> Texts:
        """Return some of the texts in the same buffer."""
        return Texts(self.data, self.starts[rows], self.ends[rows])

    def tolist(self) -> list[str]:
        """Return the texts as a list."""
        data = self.data
        pairs = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        most = 2 * int((self.ends - self.starts).sum()) >= len(data)  # else it is faster to decode each of them
        if most and data.isascii():
            text = data.decode("ascii")
            return [text[start:end] for start, end in pairs]
        return [data[start:end].decode("utf-8", "surrogatepass") for start, end in pairs]

    def array(self) -> AnyArray:
        """Return all texts as `text_array` makes it."""
        lengths = self.ends - self.starts
        if CHARACTER * len(self) * int(lengths.max(initial=0)) <= NARROW:
            return np.array(self.tolist(), dtype=np.str_)
        return text_array(self.tolist())


class StoredColumn:
    """One column of the items of a file, as it was when the file was read.

    Parameters
    ----------
    blobs : Blocks
        Blobs of the blocks that have the column.
    kind : {"number", "text"}
    dtype : dtype
        Type of numbers, `WHOLE` or `NUMBER`.
    per_block : int
        Number of items of a full block.
    sizes : mapping of int to int
        Number of items of each block, with those that were removed, in the order of the blocks.
    numbers : ndarray of int64, shape (n,)
        Number of each item that is left, increasing.
    """

    def __init__(
        self,
        blobs: Blocks,
        kind: Kind,
        dtype: np.dtype[Any],
        per_block: int,
        sizes: Mapping[int, int],
        numbers: Ints,
    ) -> None:
        self.kind = kind
        self.dtype = dtype
        self._blobs = blobs
        self._per_block = per_block
        self._sizes = sizes
        self._numbers = numbers
        self._checked: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, items: Ints) -> AnyArray:
        """Return the values of some items; raise `Unusable` if a block of theirs is not what was written."""
        numbers = self._numbers[items]
        places = [*zip((numbers // self._per_block).tolist(), (numbers % self._per_block).tolist(), strict=True)]
        content = {block: self._block(block) for block, _ in places}
        if self.kind == "number":
            read = struct.Struct(f"<{self.dtype.char}").unpack_from
            size = self.dtype.itemsize
            values = [read(content[block], size * place)[0] for block, place in places]
            return np.array(values, dtype=self.dtype.newbyteorder("="))
        texts = []
        for block, place in places:
            # in packed texts, the number of texts comes first, and then where each of them ends
            begin, end = ENDS.unpack_from(content[block], OFFSET.itemsize * place)
            first = OFFSET.itemsize * (self._sizes[block] + 1)
            texts.append(content[block][first + (begin if place else 0) : first + end])
        with parsing():
            return text_array([text.decode("utf-8", "surrogatepass") for text in texts])

    def array(self) -> AnyArray:
        """Return the values of all items; raises as reading some of them does."""
        blocks = [self._block(block) for block in self._sizes]
        left = self._left()
        if self.kind == "text":
            with parsing():
                texts = Texts.joined(blocks)
                return (texts if left is None else texts.pick(left)).array()
        values = np.frombuffer(b"".join(blocks), dtype=self.dtype).astype(self.dtype.newbyteorder("="))
        return values if left is None else values[left]

    def _left(self) -> Ints | None:
        """Return the places of the items among those that the blocks have had; None if none was removed."""
        if sum(self._sizes.values()) == len(self):
            return None
        sizes = np.array([*self._sizes.values()])
        blocks = np.array([*self._sizes])
        at = np.searchsorted(blocks, self._numbers // self._per_block)  # which of the blocks each item is in, (n,)
        left: Ints = (np.cumsum(sizes) - sizes)[at] + self._numbers % self._per_block
        return left

    def _block(self, block: int) -> bytes:
        """Return the values of a block, which are checked when they are asked for first."""
        found = self._checked.get(block)
        if found is None:
            found = self._read(block)
            self._checked[block] = found
        return found

    def _read(self, block: int) -> bytes:
        size = self._sizes[block]
        if block not in self._blobs:  # it lacks the column
            return (
                packed_texts([""] * size) if self.kind == "text" else missing("number", size).astype(NUMBER).tobytes()
            )
        key, digest, data = self._blobs[block]
        check_blob(key, digest, data)
        if self.kind == "text":  # only their number, because few are read: `array` checks where each of them ends
            count = int.from_bytes(data[: OFFSET.itemsize], "little")
            fits = count == size and len(data) >= OFFSET.itemsize * (size + 1)
        else:
            count = len(data) // self.dtype.itemsize
            fits = len(data) == self.dtype.itemsize * size
        if not fits:
            raise Unusable(f"is damaged: a column has {count:,} values in block {block}, not {size:,}")
        return data
