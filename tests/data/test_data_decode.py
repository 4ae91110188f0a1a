"""Decoding, and what becomes of images that cannot be decoded."""

import io
import struct
import zipfile
import zlib

import numpy as np
import pytest

from nearfar.data import DataError, DataNotFoundError, open_dataset, open_task
from nearfar.data.decode import BadImageError, Resizing, decode, fit, load, part_that_fits
from nearfar.data.items import as_items, open_items
from nearfar.data.readers.arrays import read_npz
from nearfar.data.readers.files import locate, open_files

from .conftest import class_folders, marked, png, torn, write, zipped

Image = pytest.importorskip("PIL.Image")


def encoded(image, kind: str = "PNG", **settings) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **settings)
    return buffer.getvalue()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_every_mode_decodes_to_bytes(mode, channels):
    image = Image.new(mode, (5, 4))
    pixels = decode(encoded(image, "JPEG" if mode == "CMYK" else "PNG"), "x", channels=channels)
    assert pixels.shape == (4, 5, channels)
    assert pixels.dtype == np.uint8


MODES = {  # every mode of Pillow, and how far colors or grays may be from the picture
    **dict.fromkeys(("L", "LA", "La", "RGB", "RGBX", "RGBA", "RGBa", "CMYK", "HSV", "I", "F"), 1),
    **dict.fromkeys(("I;16", "I;16L", "I;16B", "I;16N"), 1),
    **dict.fromkeys(("1", "P", "PA"), 0),  # compared with what is left of the picture in this mode
    "YCbCr": 4,
    "LAB": 30,
}
CUT_OFF = {("WEBP", "I;16"), ("GIF", "I;16"), ("WEBP", "F"), ("GIF", "F"), ("PPM", "I")}
"""Formats that Pillow writes without most of the values of a mode."""


def picture_of_mode(mode):
    """Return red, green, blue and nearly white squares in a mode, and what a reader should see of them."""
    squares = np.array([[(255, 0, 0), (0, 200, 0)], [(30, 30, 240), (250, 250, 250)]], np.uint8)
    colors = Image.fromarray(squares.repeat(8, axis=0).repeat(8, axis=1))
    gray = colors.convert("L")
    values = np.asarray(gray)
    if mode == "LAB":
        cms = pytest.importorskip("PIL.ImageCms")
        profiles = [cms.createProfile(name) for name in ("sRGB", "LAB")]
        return cms.profileToProfile(colors, *profiles, outputMode="LAB"), colors
    if mode.startswith("I;16"):
        kind = ">u2" if mode.endswith("B") else "<u2"
        return Image.frombytes(mode, gray.size, (values.astype(kind) * 257).astype(kind).tobytes()), gray
    if mode in ("I", "F"):
        return Image.fromarray(values.astype(np.int32) if mode == "I" else values.astype(np.float32) / 255), gray
    image = colors.convert({"La": "LA", "RGBa": "RGBA", "PA": "P"}.get(mode, mode)).convert(mode)
    if mode in ("1", "P", "PA"):
        return image, image.convert("RGB")
    return image, gray if mode in ("L", "LA", "La") else colors


@pytest.mark.parametrize("mode", MODES)
def test_a_picture_of_every_mode_is_read_as_it_looks(mode):
    image, seen = picture_of_mode(mode)
    expected = np.asarray(seen.convert("RGB")).astype(int)
    assert np.abs(as_items([image]).read(0) - expected).max() <= MODES[mode]
    written = 0
    for kind in ("PNG", "TIFF", "BMP", "GIF", "WEBP", "PPM", "TGA", "JPEG2000"):
        how = {"lossless": True} if kind == "WEBP" else {}
        try:
            data = encoded(image, kind, **how)
        except (OSError, KeyError, ValueError):  # it has no such mode
            continue
        if (kind, "I;16" if mode.startswith("I;16") else mode) not in CUT_OFF:
            written += 1
            assert np.abs(decode(data, kind) - expected).max() <= MODES[mode], kind
    assert written or mode in ("La", "I;16N")


def test_a_picture_in_memory_stays_as_it_is_and_is_turned_upright():
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = np.array([[10, 20, 30], [40, 50, 60]], np.uint8)
    image = Image.open(io.BytesIO(encoded(Image.fromarray(pixels), exif=exif)))
    assert as_items([image]).read(0)[..., 0].tolist() == [[40, 10], [50, 20], [60, 30]]
    assert image.size == (3, 2)
    wide = Image.fromarray(np.full((2, 2), 1e6, np.float32))
    with pytest.raises(
        DataError, match=r"^images\[0\]: cannot be read \(its pixels of 32 bits have values from 1e\+06 to"
    ):
        as_items([wide])


@pytest.mark.parametrize(
    ("image", "settings"),
    [
        (Image.new("RGBA", (2, 2), (9, 9, 9, 0)), {}),
        (Image.new("LA", (2, 2), (9, 0)), {}),
        (Image.new("RGB", (2, 2), (9, 9, 9)), {"transparency": (9, 9, 9)}),  # one color stands for none
        (Image.new("L", (2, 2), 9), {"transparency": 9}),
        (Image.new("P", (2, 2), 0), {"transparency": 0}),
    ],
    ids=lambda value: getattr(value, "mode", ""),
)
def test_transparent_pixels_are_white(image, settings):
    assert decode(encoded(image, **settings), "x").min() == 255


@pytest.mark.parametrize("most", [65535, 4095, 255])
def test_gray_of_any_depth_of_a_pgm_spans_black_to_white(most):
    gray = (np.linspace(0, most, 9).round()).astype(">u2" if most > 255 else np.uint8)
    pixels = decode(b"P5 3 3 %d\n" % most + gray.tobytes(), "x", channels=1).ravel()
    assert np.abs(pixels - np.linspace(0, 255, 9)).max() <= 1


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_animated_images_the_first_is_taken(kind):
    frames = [Image.new("RGB", (6, 4), (value, value, value)) for value in (250, 10, 90)]
    how = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **how)
    assert decode(data, "x").shape == (4, 6, 3)
    assert np.abs(decode(data, "x").astype(int) - 250).max() <= 1


@pytest.mark.parametrize("ink", [(0, 0, 0, 0), (0, 255, 255, 0), (255, 0, 255, 0), (0, 0, 0, 255)])
@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_inks_become_colors(ink, kind):
    cyan, magenta, yellow, black = ink
    expected = [(255 - part) * (255 - black) // 255 for part in (cyan, magenta, yellow)]
    pixels = decode(encoded(Image.new("CMYK", (8, 8), ink), kind), "x").astype(int)
    assert np.abs(pixels - expected).max() <= 3


def test_colors_of_16_bits_become_eight():
    colors = np.full((4, 5, 3), (65535, 32768, 0), dtype=np.uint16)
    row = b"".join(b"\0" + line.astype(">u2").tobytes() for line in colors)
    head = (5).to_bytes(4, "big") + (4).to_bytes(4, "big") + bytes([16, 2, 0, 0, 0])
    data = b"\x89PNG\r\n\x1a\n"
    for name, content in ((b"IHDR", head), (b"IDAT", zlib.compress(row)), (b"IEND", b"")):
        data += len(content).to_bytes(4, "big") + name + content + zlib.crc32(name + content).to_bytes(4, "big")
    assert decode(data, "x")[0, 0].tolist() == [255, 128, 0]


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_pixels_of_32_bits_in_an_unknown_range_are_refused(kind):
    data = encoded(Image.fromarray(70_000 * np.arange(9).reshape(3, 3).astype(kind)), "TIFF")
    with pytest.raises(BadImageError, match=r"its pixels of 32 bits have values from 0 to 560000; expected 0 to"):
        decode(data, "x")


def test_sixteen_bits_become_eight():
    image = Image.fromarray(np.full((3, 3), 256 * 77, np.uint16))
    assert decode(encoded(image), "x", channels=1)[0, 0, 0] == 77


def test_orientation_is_followed_and_then_the_box():
    image = Image.fromarray(np.array([[10, 20, 30], [40, 50, 60]], np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by a quarter clockwise to see it upright
    data = encoded(image, exif=exif)
    upright = decode(data, "x", channels=1)[..., 0]
    assert upright.tolist() == [[40, 10], [50, 20], [60, 30]]
    assert decode(data, "x", channels=1, box=(1, 0, 9, 2))[..., 0].tolist() == [[10], [20]]


def test_a_box_outside_is_an_error():
    with pytest.raises(BadImageError, match=r"x.png: the crop box \(20, 0, 30, 5\) holds no pixel of the 12x10"):
        decode(png(), "x.png", box=(20, 0, 30, 5))


@pytest.mark.parametrize("data", [b"", b"hello", torn()[:30], torn(), png().replace(b"IDAT", b"IDAX")])
def test_corrupt_images_are_named(data):
    with pytest.raises(BadImageError, match=r"^birds/a.png: cannot be decoded \(.+\)$"):
        decode(data, "birds/a.png")


def test_a_truncated_jpeg_is_named():
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8))
    data = encoded(noise, "JPEG")
    with pytest.raises(BadImageError, match="truncated"):
        decode(data[: len(data) // 2], "a.jpg")


@pytest.mark.parametrize("shape", [(10, 20, 3), (20, 10, 1), (7, 7, 3), (5, 31, 1)])
def test_fit_is_square_and_keeps_values(shape):
    square = fit(np.full(shape, 93, np.uint8), 9)
    assert square.shape == (9, 9, shape[2])
    assert set(square.ravel().tolist()) == {93}
    assert fit(np.zeros(shape, np.uint8), 12, 8).shape == (8, 8, shape[2])


@pytest.mark.parametrize("resizing", [None, Resizing("bicubic"), Resizing(squash=True)])
@pytest.mark.parametrize(("width", "height"), [(120, 80), (80, 120), (200, 60)])
def test_the_part_that_fits_is_what_is_kept(width, height, resizing):
    left, top, right, bottom = part_that_fits(width, height, 40, 32, resizing)
    across = np.broadcast_to(np.arange(width), (height, width))
    down = np.broadcast_to(np.arange(height)[:, None], (height, width))
    kept = fit(np.stack([across, down, down], axis=2).astype(np.uint8), 40, 32, resizing).astype(float)
    # the middle of a pixel is half a pixel from its border
    x = left + (np.arange(32) + 0.5) * (right - left) / 32 - 0.5
    y = top + (np.arange(32) + 0.5) * (bottom - top) / 32 - 0.5
    np.testing.assert_allclose(kept[16, 2:-2, 0], x[2:-2], atol=1)
    np.testing.assert_allclose(kept[2:-2, 16, 1], y[2:-2], atol=1)


@pytest.mark.parametrize("resizing", [None, Resizing("bicubic", round_down=True)])
@pytest.mark.parametrize("shape", [(3, 400, 3), (401, 2, 1)])
def test_a_very_long_image_is_cut_before_it_is_resized(monkeypatch, shape, resizing):
    pixels = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    found = fit(pixels, 20, 16, resizing)
    monkeypatch.setattr("nearfar.data.decode.LONG_SIDES", np.inf)
    assert np.abs(fit(pixels, 20, 16, resizing).astype(int) - found).max() <= 1
    monkeypatch.undo()
    assert fit(pixels[:1, :1].repeat(60_000, axis=0), 224).shape == (224, 224, shape[2])  # 40 GB as a whole


def test_fit_cuts_the_middle():
    image = np.repeat(np.arange(30, dtype=np.uint8), 10).reshape(30, 10, 1)
    assert fit(image, 10)[:, 0, 0].tolist() == list(range(10, 20))


def test_only_sets_of_one_small_shape_are_loaded():
    def sized(i):
        return np.zeros((2, 2 + (i == 3), 1), np.uint8)

    assert load(sized, 3).shape == (3, 2, 2, 1)
    assert load(sized, 5) is None
    assert load(sized, 3, memory=11) is None


def test_a_corrupt_image_stops_or_is_skipped(tmp_path):
    root = write(tmp_path / "set", class_folders() | {"class1/bad.png": torn()})
    with pytest.raises(DataError, match=r"class1/bad.png: cannot be decoded"):
        open_task(str(root))
    task = open_task(str(root), skip_bad=True, validation=0)
    assert len(task.train) + len(task.test) == 12
    assert "1 undecodable image left out of set (class1/bad.png)" in task.protocol
    assert open_dataset(str(root), skip_bad=True).bad == ("class1/bad.png",)


def test_an_image_that_is_far_too_large_stops_or_is_skipped(tmp_path, monkeypatch):
    write(tmp_path, class_folders() | {"class0/huge.png": png(size=(40, 30))})
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200)  # Pillow refuses twice as many
    with pytest.raises(DataError, match=r"huge\.png: cannot be decoded"):
        open_dataset(str(tmp_path))
    assert open_dataset(str(tmp_path), skip_bad=True).bad == ("class0/huge.png",)


def test_bad_images_keep_their_roles_apart(tmp_path):
    content = {f"{role}/{role}{name}": data for role in ("train", "test") for name, data in class_folders(2).items()}
    root = write(tmp_path / "set", content | {"train/trainclass0/bad.png": b"no"})
    task = open_task(str(root), skip_bad=True)
    assert [len(task.train), len(task.test)] == [6, 6]


def test_images_of_many_sizes_are_read_when_asked_for(tmp_path):
    sizes = {f"c{i % 2}/{i}.png": png(i, (10 + i, 12)) for i in range(4)}
    root = write(tmp_path / "set", sizes | {"c0/zbad.png": b"no"})
    lazy = open_dataset(str(root))
    assert lazy.array is None
    assert lazy.read(1).shape == (12, 12, 3)
    with pytest.raises(DataError, match=r"zbad.png"):
        lazy.read(lazy.names.index("c0/zbad.png"))
    assert open_dataset(str(root), skip_bad=True, image_size=6).array.shape == (4, 6, 6, 3)


def test_nothing_decodable_is_an_error_even_when_skipping(tmp_path):
    root = write(tmp_path / "set", {"a/0.png": b"x", "b/1.png": b"y"})
    with pytest.raises(DataError, match="none of its 2 images can be decoded"):
        open_dataset(str(root), skip_bad=True)


def test_gray_images_have_one_channel_and_mixed_ones_three(tmp_path):
    gray = {f"c{i % 2}/{i}.png": png(i, mode="L") for i in range(6)}
    assert open_dataset(str(write(tmp_path / "gray", gray))).array.shape[3] == 1
    assert open_dataset(str(write(tmp_path / "mixed", gray | {"c1/x.png": png()}))).array.shape[3] == 3


def test_files_errors(tmp_path):
    with pytest.raises(DataNotFoundError, match="no such file or folder"):
        open_files(tmp_path / "nowhere")
    write(tmp_path, {"a.tar.bz2": b"x", "a.bin": b"x", "broken.zip": b"PK\x05\x06" + b"\0" * 10})
    with pytest.raises(DataError, match="unpack it first"):
        open_files(tmp_path / "a.tar.bz2")
    for name in ("a.bin", "broken.zip"):
        with pytest.raises(DataError, match="neither a folder nor a zip"):
            open_files(tmp_path / name)
    with pytest.raises(DataNotFoundError, match=r"has no list.txt"):
        locate(open_files(tmp_path), "list.txt")


@pytest.mark.parametrize(
    ("change", "words"),
    [({"encrypted": True}, "encrypted"), ({"method": 9}, "not supported"), ({"method": 8}, "decompressing")],
)
def test_archives_that_cannot_be_unpacked_are_one_clear_error(tmp_path, change, words):
    archive = open_files(marked(zipped(tmp_path / "a.zip", class_folders()), **change))
    with pytest.raises(DataError, match=rf"a.zip/class0/0.png: cannot be read \(.*{words}"):
        archive.read("class0/0.png")
    np.savez(tmp_path / "a.npz", X=np.eye(4), y=np.arange(4))
    marked(tmp_path / "a.npz", **change)
    for read in (read_npz, open_items):
        with pytest.raises(DataError, match=r"a.npz: not a readable .npz file"):
            read(str(tmp_path / "a.npz"))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_an_archive_has_twice_is_one_file(tmp_path):
    path = zipped(tmp_path / "a.zip", {"c/1.png": b"old", "c/2.png": b"2"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("c/1.png", b"new")
    files = open_files(path)
    assert files.names() == ["c/1.png", "c/2.png"]
    assert files.read("c/1.png") == b"new"


def test_folder_and_zip_list_the_same_visible_files(tmp_path):
    content = {"top/a/1.png": b"1", "top/b/2.png": b"2", "top/.hidden": b"", "__MACOSX/top/a/1.png": b""}
    folder = open_files(write(tmp_path / "f", content))
    archive = open_files(zipped(tmp_path / "f.zip", content))
    for files in (folder, archive):
        assert files.names() == ["top/a/1.png", "top/b/2.png"]
        assert files.top_folders() == ["top"]
        assert files.read("top/b/2.png") == b"2"
        assert "top/a/1.png" in files
        assert "top/a" not in files
        with pytest.raises(DataNotFoundError):
            files.read("top/c.png")


def tiff(channels, side=4):
    """A TIFF of any number of channels, written tag by tag."""
    pixels = bytes(side * side * channels)
    bits = struct.pack(f"<{channels}H", *[8] * channels)
    fields = [(256, 3, 1, side), (257, 3, 1, side), (258, 3, channels, 8 + len(pixels)), (259, 3, 1, 1), (262, 3, 1, 1)]
    fields += [(273, 4, 1, 8), (277, 3, 1, channels), (278, 3, 1, side), (279, 4, 1, len(pixels))]
    start = 8 + len(pixels) + len(bits)
    entries = b"".join(struct.pack("<HHII", *field) for field in fields)
    return b"II*\0" + struct.pack("<I", start) + pixels + bits + struct.pack("<H", len(fields)) + entries + bytes(4)


def test_the_channels_of_a_microscope_are_named():
    with pytest.raises(BadImageError, match=r"cells.tif: cannot be decoded \(it has 7 channels; save those that"):
        decode(tiff(7), "cells.tif")
    with pytest.raises(BadImageError, match=r"cut.tif: cannot be decoded \(not an image\)"):
        decode(tiff(7)[:60], "cut.tif")
    assert decode(
        tiff(3).replace(struct.pack("<HHII", 262, 3, 1, 1), struct.pack("<HHII", 262, 3, 1, 2)), "a.tif"
    ).shape
