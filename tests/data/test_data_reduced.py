"""Large JPEGs are decoded at reduced size, and nobody sees the difference."""

import io
from functools import cache

import numpy as np
import pytest

from nearfar.data import open_dataset
from nearfar.data.dataset import PickedReader
from nearfar.data.decode import (
    BadImageError,
    ImageReader,
    decode,
    decode_small,
    decode_square,
    fit,
    load,
    read_shape,
    read_small,
    read_square,
)
from nearfar.data.items import NamedReader, open_items
from nearfar.data.loader import TorchItems
from nearfar.data.readers.files import FolderFiles
from nearfar.report.content import Items
from nearfar.report.pictures import Thumbnails
from nearfar.serve.collection import MeasuredReader

from .conftest import write, zipped

Image = pytest.importorskip("PIL.Image")


@cache
def photo(width=1201, height=903, seed=0):
    """A photograph drawn on the spot: soft hills, hard edges and fine grain."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 255, (9, 12, 3), np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    pixels = np.asarray(coarse).astype(np.int16)
    pixels[height // 3 : height // 2, width // 4 : width // 2] = (240, 30, 60)
    pixels[:, ::97] = 10
    pixels += rng.integers(-12, 13, pixels.shape, dtype=np.int16)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def encoded(image, kind="JPEG", **settings):
    buffer = io.BytesIO()
    image.save(buffer, kind, **{"quality": 92, **settings})
    return buffer.getvalue()


def oriented(image, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(image, exif=exif)


def differences(data, resize, size=None, channels=3):
    reduced = decode_square(data, "x", resize, size, channels=channels).astype(int)
    whole = fit(decode(data, "x", channels=channels), resize, size).astype(int)
    assert reduced.shape == whole.shape
    return np.abs(reduced - whole)


KINDS = {
    "baseline": lambda: encoded(photo()),
    "progressive": lambda: encoded(photo(), progressive=True),
    "full color": lambda: encoded(photo(), subsampling=0),
    "gray": lambda: encoded(photo().convert("L")),
    "CMYK": lambda: encoded(photo().convert("CMYK")),
    "upright": lambda: encoded(photo(903, 1201)),
    "several pictures": lambda: encoded(photo(), "MPO", save_all=True, append_images=[photo(seed=1)]),
}


@pytest.mark.parametrize("sizes", [(64, None), (256, 224), (100, 84)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_reduced_photos_differ_by_less_than_one_gray_level(kind, sizes):
    difference = differences(KINDS[kind](), *sizes)
    assert difference.mean() < 1
    assert np.quantile(difference, 0.999) <= 16  # at edges between pure colors


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_reduced_photos_are_upright_and_in_place(orientation, channels):
    # 1603 and 1205 are no multiples of 2, 4 or 8: the last pixels stand for less than one
    difference = differences(oriented(photo(1203, 905), orientation), 64, 60, channels)
    assert difference.mean() < 1


def test_reduction_stops_at_twice_the_side():
    data = encoded(photo(1600, 1200))
    assert decode_small(data, "x", 75).shape == (150, 200, 3)
    assert decode_small(data, "x", 76).shape == (300, 400, 3)
    assert decode_small(data, "x", 301).shape == (1200, 1600, 3)


@pytest.mark.parametrize(
    ("size", "kind", "side"),
    [((640, 512), "JPEG", 64), ((1200, 900), "PNG", 64), ((1201, 903), "JPEG", 226)],
    ids=["small", "PNG", "hardly larger than asked for"],
)
def test_others_are_decoded_whole(size, kind, side):
    assert differences(encoded(photo(*size), kind), side).max() == 0


def test_a_truncated_large_jpeg_is_named():
    data = encoded(photo())
    for read in (decode_square, decode_small):
        with pytest.raises(BadImageError, match=r"^a.jpg: cannot be decoded \(.*truncated"):
            read(data[: len(data) // 2], "a.jpg", 64)


def folders():
    return {f"c{i % 2}/{i}.jpg": oriented(photo(700 + 8 * i, 600, seed=i), 1 + i % 8) for i in range(6)}


def test_training_evaluation_and_embedding_see_the_same_pixels(tmp_path):
    root = write(tmp_path / "set", folders())
    archive = zipped(tmp_path / "set.zip", folders())
    known = TorchItems(open_dataset(str(root), image_size=64), 64)  # as a run opens its data
    found = TorchItems(open_dataset(str(root)), 64)  # as a run whose size follows from the data
    picked = TorchItems(open_dataset(str(root)).subset([3, 1]), 64)
    packed = TorchItems(open_items(str(archive)), 64)
    alone = TorchItems(open_items(str(root / "c1" / "1.jpg")), 64)
    for i in range(6):
        assert known[i][0].equal(found[i][0])
        assert known[i][0].equal(packed[i][0])
    names = list(open_dataset(str(root)).names)
    assert alone[0][0].equal(found[names.index("c1/1.jpg")][0])
    assert picked[0][0].equal(found[3][0])
    cut = TorchItems(open_dataset(str(root), image_size=80), 64, 80)
    later = TorchItems(open_dataset(str(root)), 64, 80)
    assert all(cut[i][0].equal(later[i][0]) for i in range(6))


def test_a_box_is_cut_from_the_whole_image(tmp_path):
    write(tmp_path, {"a.jpg": encoded(photo())})
    reader = ImageReader(FolderFiles(str(tmp_path)), ("a.jpg",), boxes=[(100, 50, 1100, 850)])
    whole = decode(encoded(photo()), "a.jpg", box=(100, 50, 1100, 850))
    assert np.array_equal(read_square(reader, 0, 64), fit(whole, 64))
    assert np.array_equal(read_small(reader, 0, 64), whole)
    assert read_shape(reader, 0) == (800, 1000)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_shape_is_known_from_the_head(tmp_path, orientation):
    data = oriented(photo(80, 60), orientation)
    write(tmp_path, {"a.jpg": data[: len(data) // 2]})
    reader = ImageReader(FolderFiles(str(tmp_path)), ("a.jpg",))
    assert read_shape(reader, 0) == decode(data, "x").shape[:2]


def test_sets_of_large_photos_are_not_kept_in_memory():
    assert load(lambda i: np.zeros((600, 513, 3), np.uint8), 3) is None
    assert load(lambda i: np.zeros((600, 512, 3), np.uint8), 3) is not None


def test_every_reader_of_files_decodes_no_more_than_a_network_sees(tmp_path, monkeypatch):
    data = oriented(photo(), 6)
    write(tmp_path, {"a.jpg": data})
    zipped(tmp_path / "photos.zip", {"b/a.jpg": data, "c/a.jpg": data})
    from_files = ImageReader(FolderFiles(str(tmp_path)), ("a.jpg",))
    by_names = NamedReader(["a.jpg", "photos.zip/b/a.jpg"], folder=tmp_path)
    measured = MeasuredReader(by_names.names, by_names)
    monkeypatch.setattr("nearfar.data.items.decode", None)  # which decodes whole
    monkeypatch.setattr("nearfar.data.decode.decode", None)
    for reader, i in ((from_files, 0), (by_names, 0), (by_names, 1), (measured, 1), (PickedReader(by_names, [1]), 0)):
        assert np.array_equal(read_square(reader, i, 64, 48), decode_square(data, "x", 64, 48))
        assert read_shape(reader, i) == (1201, 903)
    assert measured.sizes == {1: (903, 1201)}


def test_thumbnails_decode_no_more_than_they_show(tmp_path, monkeypatch):
    write(tmp_path, {"a.jpg": encoded(photo())})
    named = NamedReader(["a.jpg"], folder=tmp_path)
    assert min(named.small(0, 112).shape[:2]) < 320
    assert named(0).shape == (903, 1201, 3)
    monkeypatch.setattr("nearfar.data.items.decode", None)  # which decodes whole
    thumbnails = Thumbnails(Items(np.zeros((1, 2)), np.zeros(1, int), ["c"], ["a.jpg"], named))
    assert thumbnails(0).uri.startswith("data:image/")
