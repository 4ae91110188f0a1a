"""A small index of drawn pictures, and the application that serves it without a network."""

from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
Image = pytest.importorskip("PIL.Image")

from nearfar.data import Dataset
from nearfar.data.items import NamedReader
from nearfar.index import create, open_store, records_of
from nearfar.serve import Collection, Limits, WrongLabels, make_app

SIDE = 4  # places of an image in each direction
COLORS = {"red": (200, 40, 40), "green": (40, 160, 60), "blue": (40, 70, 200)}


def mean_color(dataset):
    """An embedding that a test understands: the mean color of each picture."""
    return np.stack([dataset.read(i).reshape(-1, 3).mean(axis=0) for i in range(len(dataset))]) - 128


def embeds(**by_kind):
    """A model that embeds each kind of items by a function."""
    return SimpleNamespace(takes=tuple(by_kind), embed=lambda items, prompt: by_kind[items.kind](items))


@pytest.fixture
def folder(tmp_path):
    """Eight pictures of each color, and their index with a price and a product."""
    rng = np.random.default_rng(0)
    names, rows, labels = [], [], []
    for label, color in COLORS.items():
        (tmp_path / label).mkdir()
        for k in range(8):
            pixels = np.clip(
                np.array(color) + rng.integers(-25, 26, size=3) + rng.integers(-9, 10, (40, 60, 3)), 0, 255
            )
            names.append(f"{label}/{k}.png")
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / names[-1])
            rows.append(pixels.reshape(-1, 3).mean(axis=0) - 128)
            labels.append(label)
    columns = {"price": np.arange(24.0), "product": [f"p{k // 2}" for k in range(24)]}
    records = records_of(rows, names, labels=labels, columns=columns)
    create(tmp_path / "colors.index", records, distance="euclidean", about={"threshold": "60.0"}).close()
    return tmp_path


@pytest.fixture
def build(folder):
    """Make the application, with other settings where they are given."""

    def made(**how):
        path = folder / "colors.index"
        collection = Collection(
            path,
            lambda: open_store(path),
            read_pictures=lambda names, about: NamedReader(names, folder=folder),
            model=how.pop("model", embeds(image=mean_color)),
        )
        limits = how.pop("limits", Limits(upload_bytes=300_000, upload_pixels=1_000_000, upload_seconds=0.5))
        return make_app(collection, WrongLabels(folder / "colors.wrong.csv"), limits=limits, **how)

    return made


class Patches:
    """A network of images whose places are the mean colors of their parts, and whose embedding is the mean of these."""

    takes = ("image",)
    table_columns = SimpleNamespace(read=lambda *_: {})

    def __init__(self):
        self.read = []  # names of the images whose places were asked for, together

    def embed(self, items, *, layer="embedding", prompt=None):
        means = np.stack([self._means(items.read(i)) for i in range(len(items))]) - 128
        if layer == "places":
            self.read.append(items.names)
            return means
        return means.mean(axis=(1, 2))

    @staticmethod
    def _means(pixels):
        left, top, right, bottom = map(int, Patches.seen_part(pixels.shape[1], pixels.shape[0]))
        square = pixels[top:bottom, left:right].astype(np.float64)
        side = len(square) // SIDE
        return square[: SIDE * side, : SIDE * side].reshape(SIDE, side, SIDE, side, 3).mean(axis=(1, 3))

    @staticmethod
    def seen_part(width, height):
        side = min(width, height)
        return (width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2


def drawn(number, size=(48, 32)):
    """A picture of random colors, the same for each number."""
    colors = np.random.default_rng(number).integers(0, 256, (SIDE, 6, 3), dtype=np.uint8)
    return Image.fromarray(colors).resize(size, Image.Resampling.NEAREST)


def as_bytes(image):
    out = BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Twelve pictures and their index, by cosine."""
    monkeypatch.chdir(tmp_path)
    network = Patches()
    names = [f"photos/{number:02}.png" for number in range(12)]
    (tmp_path / "photos").mkdir()
    for number, name in enumerate(names):
        drawn(number).save(tmp_path / name)
    images = Dataset.from_array("photos", np.stack([np.asarray(Image.open(name)) for name in names]), None)
    columns = {"price": np.arange(12.0), "shop": [f"s{number // 2}" for number in range(12)]}
    create("photos.index", records_of(network.embed(images), names, columns=columns), distance="cosine").close()
    return tmp_path


@pytest.fixture
def app_of(photos):
    """Make the application, with another model, index or limits where they are given."""

    def made(model=None, index="photos.index", read=True, **limits):
        path = photos / index
        pictures = (lambda names, about: NamedReader(names, folder=photos)) if read else None
        collection = Collection(path, lambda: open_store(path), pictures, Patches() if model is None else model)
        return make_app(collection, WrongLabels(photos / "wrong.csv"), limits=Limits(**limits))

    return made
