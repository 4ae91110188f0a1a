"""Decode sounds with libsndfile, and put those that are small enough into memory.

Every sound is brought to one channel and to 16,000 samples per second. A stranger's file may claim any length, so its
header is checked before memory is allocated, and it is read in pieces.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics.mel import SOUND_RATE, log_mel
from ..progress import counted
from .dataset import BadItemError, DataError, Dataset, Source, number_labels, unwrapped
from .readers.files import ReadsFiles

SOUNDS = (".aif", ".aifc", ".aiff", ".au", ".caf", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".w64", ".wav")
"""Endings of the sounds that are read."""
EXPECTED_SOUNDS = ".wav, .flac, .ogg, .mp3 or another format that libsndfile opens"
RATES = (1000, 768_000)
"""Fewest and most samples per second of a file: below are no sounds, above is no recorder."""
LONGEST_SOUND = 600.0
"""Seconds. Longer recordings are cut into pieces by the user, because a label of a whole day says little."""
MOST_CHANNELS = 64
PIECE_OF_SOUND = 2**16
"""Samples of each channel that are decoded at a time."""
SOUND_MEMORY_BYTES = 2**28
"""Sets of sounds that take at most this many bytes, 70 minutes, are kept in memory."""
SAMPLED_SOUNDS = 256
"""Number of sounds of a set whose headers are read to estimate how long its sounds are."""
PIECES = 3
"""Number of pieces of a longer sound whose features are averaged."""

Wave = NDArray[np.float32]
Read = Callable[[int], NDArray[Any]]


UNRECOGNIZED = "not recogni"
"""In the messages of libsndfile, which is British, on files of other kinds."""


class BadSoundError(BadItemError):
    """A sound cannot be read or decoded. The message names it."""


def decode_sound(data: bytes, name: str) -> Wave:
    """Decode one sound.

    Parameters
    ----------
    data : bytes
        Content of the file.
    name : str
        Name of the sound in errors.

    Returns
    -------
    ndarray of float32, shape (n,)
        The mean of its channels, at `SOUND_RATE` samples per second.

    Raises
    ------
    BadSoundError
        If the file is no sound, damaged, empty or longer than ten minutes, or has an impossible rate.
    """
    with _Opened(data, name) as file:
        mono = np.concatenate([*file.pieces()])
        rate = file.rate
    if not np.isfinite(mono).all():
        raise BadSoundError(f"{name}: has samples that are not finite numbers")
    return resampled(mono, rate)


def seconds_of(data: bytes, name: str) -> float:
    """Return how long a sound is, decoding only its header."""
    with _Opened(data, name) as file:
        return file.seconds


def resampled(wave: Wave, rate: int) -> Wave:
    """Return a sound of `rate` samples per second at `SOUND_RATE`, without the frequencies that this cannot hold."""
    if rate == SOUND_RATE:
        return wave
    from scipy.signal import resample_poly

    common = gcd(rate, SOUND_RATE)
    found: Wave = resample_poly(wave, SOUND_RATE // common, rate // common).astype(np.float32)
    return found


class _Opened:
    """A file of libsndfile in a context in which all errors become a `BadSoundError`."""

    def __init__(self, data: bytes, name: str) -> None:
        try:
            import soundfile
        except (ImportError, OSError) as error:  # OSError without libsndfile
            raise DataError(f"{name}: sounds need soundfile; pip install 'nearfar[sounds]'") from error
        self.name = name
        if not data:
            raise BadSoundError(f"{name}: cannot be decoded (the file is empty)")
        try:
            self.file = soundfile.SoundFile(io.BytesIO(data))
        except Exception as error:  # libsndfile raises nearly anything on a damaged file
            raise BadSoundError(f"{name}: cannot be decoded ({_reason(error)})") from error
        self.rate = int(self.file.samplerate)
        self.seconds = self.file.frames / max(self.rate, 1)

    def __enter__(self) -> _Opened:
        fewest, most = RATES
        problem = ""
        if not fewest <= self.rate <= most:
            problem = f"has {self.rate:,} samples per second; expected {fewest:,} to {most:,}"
        elif self.file.channels > MOST_CHANNELS:
            problem = f"has {self.file.channels} channels; expected at most {MOST_CHANNELS}"
        elif self.file.frames <= 0:
            problem = "has no samples"
        elif self.seconds > LONGEST_SOUND:
            limit = f"cut it into pieces of at most {LONGEST_SOUND / 60:.0f} minutes"
            problem = f"lasts {self.seconds / 60:,.0f} minutes by its header; {limit}"
        if problem:
            self.file.close()
            raise BadSoundError(f"{self.name}: {problem}")
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def pieces(self) -> list[Wave]:
        """Return the mean of the channels in pieces; raise a BadSoundError where fewer come than are in the header."""
        found: list[Wave] = []
        count = 0
        try:
            while count < self.file.frames:
                piece = self.file.read(PIECE_OF_SOUND, dtype="float32", always_2d=True)
                if not len(piece):
                    break
                found.append(piece.mean(axis=1))
                count += len(piece)
        except Exception as error:
            raise BadSoundError(f"{self.name}: cannot be decoded ({_reason(error)})") from error
        if count < self.file.frames and not self._is_estimated:
            there, said = (frames / self.rate for frames in (count, self.file.frames))
            raise BadSoundError(f"{self.name}: is cut off after {there:.2f} of {said:.2f} seconds")
        if not count:
            raise BadSoundError(f"{self.name}: has no samples")
        return found

    @property
    def _is_estimated(self) -> bool:
        """Whether the length in the header is an estimate."""
        return str(self.file.format) in ("MP3", "MPEG")


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    _, _, said = text.rpartition(": ")
    return "not a sound of a known format" if UNRECOGNIZED in text else said


def wave_of(read: Callable[[int], NDArray[Any]], i: int) -> Wave | None:
    """Return item i of a reader if it is a sound, otherwise None."""
    inner, at = unwrapped(read, i)
    if isinstance(inner, PieceReader):
        inner, at = unwrapped(inner.read, at)
    if isinstance(inner, SoundReader | SoundsInMemory):
        return inner(at)
    names: Sequence[str] = getattr(inner, "names", ())  # of items by their names
    return inner(at) if at < len(names) and names[at].lower().endswith(SOUNDS) else None


def encoded_sound(wave: Wave, seconds: float) -> bytes:
    """Return the beginning of a sound as an MP3, which every browser plays."""
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, wave[: int(seconds * SOUND_RATE)], SOUND_RATE, format="MP3")
    return buffer.getvalue()


@dataclass(frozen=True, eq=False)
class SoundReader(ReadsFiles):
    """Read item i from a sound of a folder or an archive."""

    bad = BadSoundError

    def __call__(self, i: int) -> Wave:
        return decode_sound(self._data(i), self._name(i))

    def seconds(self, i: int) -> float:
        """Return how long item i is."""
        return seconds_of(self._data(i), self._name(i))

    def small(self, i: int, side: int) -> NDArray[np.uint8]:
        """Return a picture of item i for display."""
        return picture_of(self(i))


@dataclass(frozen=True, eq=False)
class SoundsInMemory:
    """Item i of sounds that are decoded: samples `ends[i - 1]` to `ends[i]` of one array."""

    samples: Wave
    ends: NDArray[np.int64]

    def __call__(self, i: int) -> Wave:
        begin = int(self.ends[i - 1]) if i else 0
        return self.samples[begin : int(self.ends[i])]

    def seconds(self, i: int) -> float:
        """Return how long item i is."""
        return len(self(i)) / SOUND_RATE

    def small(self, i: int, side: int) -> NDArray[np.uint8]:
        """Return a picture of item i for display."""
        return picture_of(self(i))


@dataclass(frozen=True, eq=False)
class PieceReader:
    """Pieces of `length` samples of each sound of a reader, evenly from its begin to its end, one after the other.

    A shorter sound is repeated until it has this length. With one piece, it is the middle of the sound.
    """

    read: Read
    length: int
    pieces: int = 1

    def __call__(self, i: int) -> Wave:
        wave = self.read(i)
        spare = len(wave) - self.length
        if spare <= 0:
            return np.tile(np.resize(wave, self.length), self.pieces)
        begins = np.round(np.linspace(0, spare, self.pieces)).astype(int) if self.pieces > 1 else [spare // 2]
        return np.concatenate([wave[begin : begin + self.length] for begin in begins])

    def at_random(self, i: int, rng: np.random.Generator) -> Wave:
        """Return one piece from a random place."""
        wave = self.read(i)
        spare = len(wave) - self.length
        begin = int(rng.integers(0, abs(spare) + 1))
        if spare <= 0:  # begin anywhere in the repeated sound
            return np.roll(np.resize(wave, self.length), begin)
        return wave[begin : begin + self.length]

    def small(self, i: int, side: int) -> NDArray[np.uint8]:
        """Return a picture of item i for display."""
        return picture_of(self.read(i))


@dataclass(frozen=True, eq=False)
class WholeReader:
    """Whole sounds of a reader of pieces."""

    read: Read

    def __call__(self, i: int) -> Wave:
        reader, at = self._behind(i)
        return reader(at)

    def seconds(self, i: int) -> float:
        """Return how long item i is."""
        return seconds_at(*self._behind(i))

    def _behind(self, i: int) -> tuple[Read, int]:
        reader, at = unwrapped(self.read, i)
        if isinstance(reader, PieceReader):
            return unwrapped(reader.read, at)
        return reader, at


def picture_of(wave: Wave) -> NDArray[np.uint8]:
    """Return the log-mel spectrogram of a sound as a gray picture, (64, 64, 3), low frequencies at the bottom."""
    spectrogram = log_mel(wave)
    columns = np.linspace(0, spectrogram.shape[1] - 1, len(spectrogram)).round().astype(int)
    shown = spectrogram[::-1, columns]
    low, high = float(shown.min()), float(shown.max())
    gray = (255 * (shown - low) / max(high - low, 1e-6)).astype(np.uint8)
    return np.repeat(gray[..., None], 3, axis=2)


def sound_source(
    name: str,
    reader: SoundReader,
    labels: Sequence[Any] | NDArray[Any],
    *,
    roles: Sequence[str] | NDArray[np.str_] | None = None,
    split: str = "",
    groups: NDArray[Any] | None = None,
    skip_bad: bool = False,
) -> Source:
    """Make a `Source` of sounds, as `nearfar.data.decode.image_source` does of images."""
    classes, indices = number_labels(labels)
    items = Dataset(
        name=name,
        labels=indices,
        classes=classes,
        kind="sound",
        read=reader,
        names=tuple(reader.paths),
        groups=groups,
        stored=reader,
    )
    if skip_bad:
        items, roles = _without_bad(items, roles)
    if durations(items).mean() * len(items) * SOUND_RATE * 4 <= SOUND_MEMORY_BYTES:
        items = replace(items, read=in_memory(items.read, len(items)))
    return Source(items, None if roles is None else np.asarray(roles, dtype=np.str_), split)


def in_memory(read: Read, n: int) -> SoundsInMemory:
    """Decode sounds into one array."""
    waves = [read(i) for i in counted(range(n), "reading", n)]
    return SoundsInMemory(np.concatenate(waves), np.cumsum([len(wave) for wave in waves]))


def are_in_memory(items: Dataset) -> bool:
    """Return whether items are sounds that are decoded already."""
    if items.kind != "sound" or not len(items):
        return False
    reader: Any
    reader, at = unwrapped(items.read, 0)
    while isinstance(reader, PieceReader | WholeReader):
        reader, at = unwrapped(reader.read, at)
    return isinstance(reader, SoundsInMemory)


def durations(items: Dataset) -> NDArray[np.float64]:
    """Return the seconds of all sounds, or of 256 of them, evenly chosen."""
    chosen = np.unique(np.linspace(0, len(items) - 1, SAMPLED_SOUNDS).astype(int))
    return np.array([seconds_at(items.read, int(i)) for i in chosen])


def seconds_at(read: Read, i: int) -> float:
    """Return how long sound i of a reader is."""
    reader: Any
    reader, at = unwrapped(read, i)
    if isinstance(reader, PieceReader):
        return seconds_at(reader.read, at)
    return float(reader.seconds(at)) if hasattr(reader, "seconds") else len(reader(at)) / SOUND_RATE


def in_pieces(items: Dataset, length: int) -> Dataset:
    """Return sounds of one length in samples: one piece of each, or several that follow each other if any is longer.

    The embedding of a sound is then the average over its pieces, so that it is the same in every set. Sounds that are
    in pieces already are cut again.
    """
    if len(items) and isinstance(unwrapped(items.read, 0)[0], PieceReader):
        items = replace(items, read=WholeReader(items.read))
    longest = max((seconds_at(items.read, i) for i in range(len(items))), default=0)
    pieces = PIECES if longest * SOUND_RATE > length else 1
    return replace(items, read=PieceReader(items.read, length, pieces))


def random_piece(read: Read, i: int, rng: np.random.Generator) -> Wave:
    """Return one piece from a random place of sound i of a reader of pieces."""
    reader, at = unwrapped(read, i)
    assert isinstance(reader, PieceReader)
    return reader.at_random(at, rng)


def _without_bad(items: Dataset, roles: Any) -> tuple[Dataset, NDArray[np.str_] | None]:
    """Return the sounds that can be decoded, with the names of the others in `bad`."""
    n = len(items)
    problems = [_why_unreadable(items.read, i) for i in counted(range(n), "reading", n)]
    good = np.array([not why for why in problems])
    if not good.any():
        raise DataError(f"{items.name}: none of its {n} sounds can be decoded; {problems[0]}")
    bad = tuple(items.names[i] for i in np.flatnonzero(~good))
    return replace(items.subset(good), bad=bad), None if roles is None else np.asarray(roles)[good]


def _why_unreadable(read: Read, i: int) -> str:
    """Return why a sound cannot be read, or "" if it can."""
    try:
        read(i)
    except BadSoundError as error:
        return str(error)
    return ""
