"""A small index of drawn pictures, and the application that serves it without a network."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
Image = pytest.importorskip("PIL.Image")

from nearfar.data.items import NamedReader
from nearfar.index import create, open_store, records_of
from nearfar.serve import Collection, Limits, WrongLabels, make_app

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
