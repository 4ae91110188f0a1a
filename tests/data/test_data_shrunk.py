"""Shrunk copies of large photos: exactly what decoding gives, within a budget."""

import io
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nearfar.data import open_dataset
from nearfar.data.decode import ImageReader, Resizing, decode_square, read_square
from nearfar.data.readers.files import FolderFiles
from nearfar.data.shrunk import HEAD, VARIABLE, ShrunkCopies, budget, open_copies

from .conftest import zipped

PIL = pytest.importorskip("PIL.Image")


def photo(seed, size=(96, 72), kind="JPEG"):
    """A noisy photo, so that its file is larger than small copies of it."""
    rng = np.random.default_rng(seed)
    buffer = io.BytesIO()
    PIL.fromarray(rng.integers(0, 256, (size[1], size[0], 3), np.uint8)).save(buffer, kind)
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    root = tmp_path / "photos"
    root.mkdir()
    for i in range(6):
        (root / f"{i}.jpg").write_bytes(photo(i))
    return root


def reader(root):
    return ImageReader(FolderFiles(str(root)), tuple(f"{i}.jpg" for i in range(6)))


def kept(tmp_path):
    return sorted((tmp_path / "cache" / "shrunk").glob("*.pixels"))


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="this system has no owners of files")
def test_a_link_in_the_place_of_copies_is_not_followed(folder, tmp_path):
    expected = read_square(reader(folder), 0, 24, 16)
    (file,) = kept(tmp_path)
    file.unlink()
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    file.symlink_to(target)
    np.testing.assert_array_equal(read_square(reader(folder), 0, 24, 16), expected)
    assert target.read_bytes() == b"mine"


@pytest.mark.parametrize("how", [(24, 16, None), (16, None, None), (24, 16, Resizing("bicubic"))])
def test_a_copy_is_what_decoding_gives(how, folder, tmp_path, monkeypatch):
    expected = [decode_square((folder / f"{i}.jpg").read_bytes(), str(i), *how) for i in range(6)]
    first = [read_square(reader(folder), i, *how) for i in range(6)]
    (file,) = kept(tmp_path)
    assert file.stat().st_size == 6 * (HEAD.size + 16 * 16 * 3)
    monkeypatch.setattr(FolderFiles, "read", lambda self, name: pytest.fail("was decoded again"))
    second = [read_square(reader(folder), i, *how) for i in range(6)]
    for i in range(6):
        np.testing.assert_array_equal(first[i], expected[i])
        np.testing.assert_array_equal(second[i], expected[i])


def test_a_changed_photo_is_decoded_anew(folder):
    before = read_square(reader(folder), 2, 16)
    (folder / "2.jpg").write_bytes(photo(99))
    os.utime(folder / "2.jpg", ns=(1, 1))
    after = read_square(reader(folder), 2, 16)
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(after, decode_square((folder / "2.jpg").read_bytes(), "2", 16))
    (folder / "2.jpg").unlink()
    with pytest.raises(ValueError, match=r"2\.jpg"):
        read_square(reader(folder), 2, 16)


def test_a_damaged_copy_is_made_anew(folder, tmp_path):
    expected = read_square(reader(folder), 0, 16)
    (file,) = kept(tmp_path)
    content = bytearray(file.read_bytes())
    content[HEAD.size + 5] ^= 255
    file.write_bytes(content)
    np.testing.assert_array_equal(read_square(reader(folder), 0, 16), expected)
    file.write_bytes(file.read_bytes()[:100])
    np.testing.assert_array_equal(read_square(reader(folder), 0, 16), expected)


def test_sizes_channels_and_boxes_have_copies_of_their_own(folder, tmp_path):
    files, paths = FolderFiles(str(folder)), tuple(f"{i}.jpg" for i in range(6))
    readers = [
        ImageReader(files, paths),
        ImageReader(files, paths, channels=1),
        ImageReader(files, paths, invert=True),
        ImageReader(files, paths, boxes=[(0, 0, 40, 40)] * 6),
        ImageReader(files, paths[1:]),
    ]
    os.environ[VARIABLE] = "0"
    plain = [one.square(0, 16) for one in readers]
    os.environ.pop(VARIABLE)
    fresh = [ImageReader(one.files, one.paths, one.channels, one.boxes, one.size, one.invert) for one in readers]
    for _ in range(2):
        for one, expected in zip(fresh, plain, strict=True):
            np.testing.assert_array_equal(one.square(0, 16), expected)
    assert len(kept(tmp_path)) == 5


def test_small_files_and_no_budget_keep_nothing(folder, tmp_path, monkeypatch):
    for i in range(6):
        (folder / f"{i}.jpg").write_bytes(photo(i, (20, 20)))
    read_square(reader(folder), 0, 64)
    assert sum(file.stat().st_size for file in kept(tmp_path)) == 0
    monkeypatch.setenv(VARIABLE, "0")
    read_square(reader(folder), 0, 16)
    assert sum(file.stat().st_size for file in kept(tmp_path)) == 0
    for wrong in ("much", "-1", "inf", "nan"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(ValueError, match="expected a number of gigabytes, 0 for no copies, got"):
            budget()


def test_copies_stay_within_the_budget_and_the_oldest_go_first(folder, tmp_path, monkeypatch):
    slot = HEAD.size + 16 * 16 * 3
    monkeypatch.setenv(VARIABLE, str(4.5 * slot / 1e9))
    for i in range(6):
        read_square(reader(folder), i, 16)
    (file,) = kept(tmp_path)
    assert file.stat().st_size == 4 * slot  # of the first four photos
    cache = tmp_path / "cache" / "shrunk"
    for name, age in (("old.pixels", 10), ("new.pixels", 20)):
        (cache / name).write_bytes(bytes(8192))
        os.utime(cache / name, (age, age))
    monkeypatch.setenv(VARIABLE, str(22_000 / 1e9))
    assert open_copies("elsewhere", ["a"] * 4, (32, 32, 1), ()) is not None
    assert [path.name for path in kept(tmp_path) if len(path.name) < 20] == ["new.pixels"]


def test_all_processes_and_threads_share_them(folder, tmp_path):
    shared = reader(folder)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: shared.square(i % 6, 16), range(60)))
    for i in range(60):
        np.testing.assert_array_equal(found[i], found[i % 6])
    again = pickle.loads(pickle.dumps(shared))
    np.testing.assert_array_equal(again.square(3, 16), found[3])


def test_a_full_disk_keeps_none_and_reading_goes_on(folder, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    expected = decode_square((folder / "0.jpg").read_bytes(), "0", 16)
    np.testing.assert_array_equal(read_square(reader(folder), 0, 16), expected)


def test_photos_of_an_archive_have_copies_too(tmp_path, monkeypatch):
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    content = {f"{c}/{i}.jpg": photo(10 * c + i, (700 + 10 * i, 560)) for c in range(2) for i in range(2)}
    path = zipped(tmp_path / "set.zip", content)
    items = open_dataset(path)
    assert items.array is None
    first = [read_square(items.read, i, 64) for i in range(4)]
    (file,) = kept(tmp_path)
    again = open_dataset(path)
    for i in range(4):
        np.testing.assert_array_equal(read_square(again.subset([3, 2, 1, 0]).read, 3 - i, 64), first[i])
    assert file.stat().st_size == 4 * (HEAD.size + 64 * 64 * 3)


def test_a_slot_holds_what_was_put(tmp_path):
    copies = ShrunkCopies(tmp_path / "a.pixels", (2, 3, 1), 5)
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)
    assert copies.get(4, (1, 2)) is None
    copies.put(4, (1, 2), pixels)
    copies.put(5, (1, 2), pixels)
    np.testing.assert_array_equal(copies.get(4, (1, 2)), pixels)
    assert copies.get(4, (1, 3)) is None
    assert copies.get(0, (1, 2)) is None
    assert copies.get(5, (1, 2)) is None
