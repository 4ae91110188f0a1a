"""The served collection: an index, the model that embeds queries for it, and the pictures of its items."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from math import isfinite, isnan
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..data import Dataset
from ..data.dataset import BadItemError
from ..data.decode import ImageReader, Resizing, guess_channels, read_shape, read_small, read_square
from ..data.readers.media import FileKind
from ..data.readers.texts import text_items
from ..data.sounds import SoundReader, seconds_of
from ..index import Hits, QueryAdapter, Records, Store, open_store, places
from ..index.collection_file import graph_of
from ..index.index_lock import index_lock
from ..index.searching import first_dims
from ..io.uris import collection_name, is_address, is_folder
from ..models import Model
from ..numerics.mel import SOUND_RATE
from ..numerics.types import AnyArray, Ints
from ..quoting import quoted

# no others, because Pillow starts other programs for some formats
FORMATS = (
    "JPEG",
    "PNG",
    "WEBP",
    "GIF",
    "BMP",
    "TIFF",
)
Prompt = Literal["query", "document"]
WRITE_WAIT = 5.0  # seconds for other processes that change the index
LOOK_EVERY = 1.0  # seconds between checks whether the index has changed on disk
OPEN_WAIT = 1.0  # seconds that the request which finds a change waits until the index is opened again
UPLOAD = "upload"
MAX_RATIO = 100  # of the sides of an upload
ADDRESS = re.compile(r"(?:postgresql|postgres):/[^\s#]*(?:#[\w.]*)?")
TRIED_PICTURES = 8  # items of which one must have a picture


class NotAnImageError(ValueError):
    """The upload is not an image of a supported format."""


class TooManyPixelsError(ValueError):
    """The uploaded image has too many pixels, or is too narrow."""


class UnreadableError(ValueError):
    """The picture of an item is gone, damaged, or outside of the folder of the index.

    Parameters
    ----------
    name : str
        The item.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"rerank: the picture of {quoted(name)} cannot be read; leave out rerank")


class OtherModelError(RuntimeError):
    """The index was made again with another model than the one that embeds the queries."""


@dataclass(frozen=True, eq=False)
class Served:
    """What answers one request from its beginning to its end: an index, and the model that embeds queries for it.

    Attributes
    ----------
    store : Store
    model : Model or None
    adapter : QueryAdapter or None
    made_by : tuple of str
        What made the index for which the model was loaded; see `maker_of`.
    """

    store: Store
    model: Model | None
    adapter: QueryAdapter | None
    made_by: tuple[str, ...]

    def check_model(self, store: Store | None = None) -> None:
        """Raise an error if the index is that of another model, so that its distances to queries would mean nothing."""
        if maker_of(store or self.store) != self.made_by:
            raise OtherModelError("the index was made again with another model; start the server again to load it")


class Uploaded:
    """A single file in memory, with the interface of `Files`."""

    root = ""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def names(self) -> list[str]:
        return [UPLOAD]

    def folders(self) -> list[str]:
        return []

    def top_folders(self) -> list[str]:
        return [UPLOAD]

    def __contains__(self, name: str) -> bool:
        return name == UPLOAD

    def read(self, name: str) -> bytes:
        return self.data


class MeasuredReader:
    """Reads the pictures of items, and keeps their sizes: width and height of each item that was read.

    Parameters
    ----------
    names : sequence of str
        Names of the items.
    read : callable
        Function from i to item i.
    """

    def __init__(self, names: Sequence[str], read: Callable[[int], AnyArray]) -> None:
        self.names = names
        self.read = read
        self.sizes: dict[int, tuple[int, int]] = {}

    def __call__(self, i: int) -> AnyArray:
        """Return item i, (H, W, C); raise an UnreadableError if it has no picture that can be read."""
        with self._readable(i):
            pixels = self.read(i)
            self._keep_size(i, pixels.shape[:-1])
        return pixels

    def square(self, i: int, resize: int, size: int | None = None, resizing: Resizing | None = None) -> AnyArray:
        """Return item i as a network sees it, of which no more is decoded; the errors are those of a call."""
        with self._readable(i):
            self._keep_size(i, read_shape(self.read, i))
            return read_square(self.read, i, resize, size, resizing)

    def shape(self, i: int) -> tuple[int, int]:
        """Return height and width of item i, which has been read."""
        width, height = self.sizes[i]
        return height, width

    def _keep_size(self, i: int, shape: tuple[int, ...]) -> None:
        height, width = shape  # a ValueError for a row, which has no two sides
        self.sizes[i] = width, height

    @contextmanager
    def _readable(self, i: int) -> Iterator[None]:
        try:
            yield
        except (ValueError, OSError) as error:
            raise UnreadableError(self.names[i]) from error


class Collection:
    """An index that is searched by many threads while other processes may change it.

    Parameters
    ----------
    path : Path
        File or folder of the index.
    open_store : callable
        Function that opens the index.
    read_pictures : callable, optional
        Function from names of items to a reader of their images, such as `nearfar.data.items.NamedReader`.
    model : Model, optional
        What embeds the queries. Without it, only items and embeddings can be queries.
    adapter : QueryAdapter, optional
        Map from embeddings of `model` to those of the model that made the index.
    load_model : callable, optional
        Function from an index that another model has made again to that model and its adapter. Without it, the server
        refuses queries that it would have to embed.
    """

    def __init__(
        self,
        path: Path,
        open_store: Callable[[], Store],
        read_pictures: Callable[[Sequence[str], Mapping[str, str]], Any] | None = None,
        model: Model | None = None,
        adapter: QueryAdapter | None = None,
        load_model: Callable[[Store], tuple[Model | None, QueryAdapter | None]] | None = None,
    ) -> None:
        self.path = path
        self.open_store = open_store
        self.read_pictures = read_pictures
        self.load_model = load_model
        self._lock = threading.Lock()  # one thread looks whether the index has changed
        self._opening: threading.Thread | None = None
        self._write_lock = threading.Lock()
        self._network_lock = threading.Lock()  # one forward pass at a time, because several would only need more memory
        store = open_store()
        self._served = Served(store, model, adapter, maker_of(store))
        self._seen = self._stamp()
        self._looked = time.monotonic()
        self._classes: dict[tuple[int, int], dict[str, int]] = {}
        self._pictured: dict[int, bool] = {}
        self._placed: dict[tuple[int, int], bool] = {}

    @property
    def name(self) -> str:
        """The name of the index in answers, without its folder or its address, which may hold a password."""
        return collection_name(self.path) if is_address(self.path) else self.path.name

    def without_address(self, message: str) -> str:
        """Return a message with the name of the index in the place of where it is: clients need not know a server."""
        for place in (self._served.store.uri, str(self.path), os.path.abspath(self.path)):
            message = message.replace(place, self.name)
        return ADDRESS.sub(self.name, message)

    @property
    def takes(self) -> tuple[str, ...]:
        """Kinds of items that can be queries besides those of the index: some of "row", "image" and "text"."""
        model = self._served.model
        return () if model is None else model.takes

    @property
    def adapter(self) -> QueryAdapter | None:
        """The map from embeddings of the model to those of the index, if there is one."""
        return self._served.adapter

    def store(self) -> Store:
        """Return the index, which is opened again if it has changed on disk."""
        return self.served().store

    def served(self) -> Served:
        """Return what answers a request; the index is opened again if it has changed on disk.

        If that takes long, or a new model has to be loaded, requests are answered by what was open before meanwhile.
        They still are if it fails, for example because the index was deleted.
        """
        if time.monotonic() - self._looked >= LOOK_EVERY and self._lock.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._lock.release()
        return self._served

    def _look(self) -> None:
        self._looked = time.monotonic()
        stamp = self._stamp()
        if stamp == self._seen or (self._opening is not None and self._opening.is_alive()):
            return
        self._seen = stamp
        self._opening = threading.Thread(target=self._reopen, daemon=True)
        self._opening.start()
        self._opening.join(timeout=OPEN_WAIT)

    def _reopen(self) -> None:
        before = self._served
        try:
            store = self.open_store()
            made_by = maker_of(store)
            if made_by == before.made_by or self.load_model is None:
                self._served = replace(before, store=store)
            else:
                model, adapter = self.load_model(store)
                self._served = Served(store, model, adapter, made_by)
        except (OSError, ValueError, ImportError) as error:
            if sys.stderr is not None:
                print(
                    f"nearfar: the index that was opened before is still served: {error}", file=sys.stderr, flush=True
                )
            return
        self._classes = {}
        self._pictured = {}
        self._placed = {}

    def check_image(self, data: bytes, max_pixels: int) -> int:
        """Return the number of pixels of an upload, or of samples of a sound; only its header is decoded.

        Raises
        ------
        NotAnImageError, TooManyPixelsError
        """
        if "sound" in self.takes:
            return _samples_of(data)
        if "image" not in self.takes:
            raise NotAnImageError(
                'this index has no model that embeds images; search it by its items, or by {"vector": [...]} as JSON'
            )
        return pixels_of(data, max_pixels)

    def embedded_image(self, served: Served, data: bytes, *, prompt: Prompt = "query") -> AnyArray:
        """Embed an uploaded image or sound, (1, d), which is decoded once.

        Raises
        ------
        NotAnImageError, OtherModelError
        """
        try:
            return self.embedded(served, self.uploaded(data), prompt=prompt)
        except BadItemError as error:
            raise NotAnImageError(str(error)) from error

    def uploaded(self, data: bytes) -> Dataset:
        """Return an uploaded image or sound as an item."""
        files = Uploaded(data)
        kind: FileKind = "sound" if "sound" in self.takes else "image"
        if kind == "sound":
            reader: Any = SoundReader(files, (UPLOAD,))
        else:
            reader = ImageReader(files, (UPLOAD,), guess_channels(files, (UPLOAD,)))
        return Dataset(
            name=UPLOAD, labels=np.zeros(1, np.int64), classes=("",), kind=kind, read=reader, names=(UPLOAD,)
        )

    def embedded_text(self, served: Served, text: str) -> AnyArray:
        """Embed a text, (1, d)."""
        return self.embedded(served, text_items(UPLOAD, [text], [""]))

    def embedded_row(self, served: Served, numbers: Sequence[float], *, prompt: Prompt = "query") -> AnyArray:
        """Embed a row of numbers, (1, d)."""
        row = np.array([numbers], dtype=np.float32)
        return self.embedded(served, Dataset.from_array(UPLOAD, row, None), prompt=prompt)

    def embedded(self, served: Served, items: Dataset, *, prompt: Prompt = "query") -> AnyArray:
        """Embed as the index has its items: mapped by the adapter, and with the dimensions that it keeps, (n, d)."""
        assert served.model is not None
        served.check_model()
        with self._network_lock:
            rows = served.model.embed(items, prompt=prompt)
        if served.adapter is not None:
            rows = served.adapter.transform(rows)
        return first_dims(rows, served.store.about)

    @contextmanager
    def writing(self, served: Served) -> Iterator[Store]:
        """Open the index to change it, after other changes of it; raise a TimeoutError if these take long."""
        held = index_lock(self.path, wait=WRITE_WAIT)
        with self._write_lock, held, open_store(self.path, "w", lock=False) as store:
            served.check_model(store)
            yield store

    def checked_vector(self, served: Served, numbers: Sequence[float]) -> AnyArray:
        """Return an embedding, (1, d); raise a ValueError if the index has other dimensions."""
        dimensions = served.store.dimensions
        if len(numbers) != dimensions:
            raise ValueError(
                f"vector: expected {dimensions} numbers, as the embeddings of the index have, got {len(numbers)}"
            )
        return np.array([numbers], dtype=np.float32)

    def picture(self, name: str, side: int) -> bytes | None:
        """Return a small JPEG of an item of the index; None if the item does not exist or has no picture."""
        store = self.store()
        if self.read_pictures is None or not len(store.get([name])):
            return None
        reader = self.read_pictures([name], store.about)
        try:
            pixels = read_small(reader, 0, side)
        except (ValueError, OSError):
            return None
        return jpeg(pixels, side) if pixels.ndim == 3 else None

    def has_pictures(self) -> bool:
        """Return whether items have pictures, from a few of them; those of an index of embeddings have none."""
        store = self.store()
        known = self._pictured.get(id(store))
        if known is None:
            known = any(self.picture(name, 16) is not None for name in some_names(store))
            self._pictured = {id(store): known}
        return known

    def has_places(self) -> bool:
        """Return whether hits can be compared with an image place by place, from the picture of an item."""
        served = self.served()
        key = id(served.store), id(served.model)
        known = self._placed.get(key)
        if known is None:
            known = self.has_pictures() and self._describes_pictures(served)
            self._placed = {key: known}
        return known

    def _describes_pictures(self, served: Served) -> bool:
        try:
            self.check_places(served)
            names = [name for name in some_names(served.store) if self.picture(name, 16) is not None]
            self.described(served, self.pictures(served, names[:1]))
        except (ValueError, OSError, RuntimeError):  # the last also from a network, which takes no such image
            return False
        return True

    def check_places(self, served: Served) -> None:
        """Raise an error if hits cannot be compared with an image place by place.

        Raises
        ------
        ValueError
            If the index has another distance or no pictures, or its model no places of images.
        OtherModelError
            If the index was made again with another model.
        """
        places.check_places(served.store, served.model)
        if self.read_pictures is None:
            raise ValueError("rerank: places needs the pictures of the items, and this index has none")
        served.check_model()

    def pictures(self, served: Served, names: Sequence[str]) -> Dataset:
        """Return items of an index as images."""
        assert self.read_pictures is not None
        return places.images_named(names, MeasuredReader(names, self.read_pictures(names, served.store.about)), UPLOAD)

    def described(self, served: Served, images: Dataset) -> AnyArray:
        """Return the descriptors (n, h, w, c) of the places of images."""
        with self._network_lock:
            return places.described(served.model, images)

    def classes(self) -> dict[str, int]:
        """Return the number of items of each class, sorted by name."""
        store = self.store()
        key = (id(store), store.count())  # an open folder or server shows changes by other processes
        known = self._classes.get(key)
        if known is None:
            known = store.classes()
            self._classes = {key: known}
        return known

    def _stamp(self) -> list[tuple[Any, ...]]:
        if is_address(self.path):
            return [maker_of(self._served.store)]  # a server always answers with its current content
        if is_folder(self.path):
            return [stamp_of(self.path / "collection.json")]
        return [stamp_of(self.path), stamp_of(graph_of(self.path))]


def some_names(store: Store) -> list[str]:
    """Return the names of a few items."""
    # a search reads few items, and a column reads all, which takes long from a server
    hits = store.search(np.ones((1, store.dimensions)), TRIED_PICTURES)
    return hits.names[0][: hits.counts[0]].tolist()


def stamp_of(file: Path) -> tuple[int, int, int]:
    """Return what changes if a file is changed or replaced; zeros if there is none."""
    try:
        status = os.stat(file)
    except OSError:
        return (0, 0, 0)
    return status.st_mtime_ns, status.st_ino, status.st_size


def maker_of(store: Store) -> tuple[str, ...]:
    """Return what must stay the same for queries to be compared with an index: the model and its dimensions."""
    about = store.about
    return about.get("weights", ""), about.get("dims", ""), str(store.dimensions), store.distance


def _samples_of(data: bytes) -> int:
    """Return the number of samples of an uploaded sound; raise an error if it is none, or too long."""
    try:
        return round(seconds_of(data, UPLOAD) * SOUND_RATE)
    except BadItemError as error:
        raise NotAnImageError(f"the body is not a sound that can be searched; {error}") from error


def pixels_of(data: bytes, max_pixels: int) -> int:
    """Return the number of pixels of an upload; raise an error if it is no supported image, too large or too narrow."""
    from PIL import Image

    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
    except Image.DecompressionBombError:
        raise TooManyPixelsError(f"the image has more than {max_pixels / 1e6:.0f} million pixels") from None
    except Exception as error:  # decoders raise nearly anything on a corrupt file
        raise NotAnImageError(f"the body cannot be decoded; expected an image ({', '.join(FORMATS)})") from error
    if width * height > max_pixels:
        detail = f"{width:,} x {height:,} pixels; expected up to {max_pixels / 1e6:.0f} million"
        raise TooManyPixelsError(f"the image has {detail}")
    if max(width, height) > MAX_RATIO * min(width, height):
        detail = f"{width:,} x {height:,} pixels; expected sides of which one is up to {MAX_RATIO} times the other"
        raise TooManyPixelsError(f"the image has {detail}")
    return int(width * height)


def jpeg(pixels: AnyArray, side: int) -> bytes:
    """Encode (H, W, 1 or 3) pixels as a JPEG whose longer side is at most `side`."""
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    image.thumbnail((side, side))
    out = BytesIO()
    image.save(out, "JPEG", quality=85)
    return out.getvalue()


def plain_neighbors(
    hits: Hits, right: Callable[[str], str | None], threshold: float | None, query: int = 0
) -> list[dict[str, Any]]:
    """Return the neighbors of one query as plain data; what only words found has no distance."""
    there = hits.positions[query] >= 0
    neighbors = plain_items(hits.records, hits.positions[query][there], right)
    for item, distance in zip(neighbors, hits.distances[query][there].tolist(), strict=True):
        far = None if isnan(distance) else float(f"{distance:.6g}")
        item["distance"] = far
        item["match"] = threshold is None or far is None or distance <= threshold
    return neighbors


def plain_items(records: Records, rows: Ints, right: Callable[[str], str | None]) -> list[dict[str, Any]]:
    """Return the items of some rows as plain data; missing values are None."""
    names = records.names[rows].tolist()
    labels = [None] * len(names) if records.labels is None else map(str, records.labels[rows].tolist())
    columns = {name: map(_plain, values[rows].tolist()) for name, values in records.columns.items()}
    return [
        {
            "name": name,
            "class": label,
            "columns": {column: next(values) for column, values in columns.items()},
            "marked": right(name),
        }
        for name, label in zip(names, labels, strict=True)
    ]


def _plain(value: float | str) -> float | str | None:
    """Return a value of a column; None if it is missing."""
    missing = value == "" or (isinstance(value, float) and not isfinite(value))  # JSON has no NaN and no infinity
    return None if missing else value


def one_item(store: Store, name: str) -> Records:
    """Return an item by its name; raise a KeyError if there is none."""
    item = store.get([name])
    if not len(item):
        raise KeyError(f"no item is named {quoted(name)}")
    return item
