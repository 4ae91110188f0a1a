"""Many texts in one buffer, as a file of an index has them: an array of NumPy takes four times the longest for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..labels import CHARACTER, NARROW, text_array
from ..numerics.types import AnyArray, Ints

OFFSET = np.dtype("<u4")


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
