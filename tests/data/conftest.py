"""Tiny images, folders and archives in the layouts of the real ones."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")

from PIL import Image


def png(value: int = 0, size: tuple[int, int] = (12, 10), mode: str = "RGB") -> bytes:
    """A (width, height) image whose pixels are `value`."""
    buffer = io.BytesIO()
    Image.new(mode, size, (value,) * 3 if mode == "RGB" else value).save(buffer, "PNG")
    return buffer.getvalue()


def torn() -> bytes:
    """The first half of an image file."""
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (10, 12, 3), np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()[:200]


def write(root: Path, content: dict[str, bytes | str]) -> Path:
    """Write files below a folder."""
    for name, data in content.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return root


def zipped(path: Path, content: dict[str, bytes | str]) -> Path:
    """Write files into a zip archive."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def marked(path: Path, *, encrypted: bool = False, method: int | None = None) -> Path:
    """Let the entries of an archive say that they are encrypted, or packed by another method."""
    data = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = -1
        while (start := data.find(mark, start + 1)) >= 0:
            data[start + at] |= encrypted
            data[start + at + 2] = data[start + at + 2] if method is None else method
    path.write_bytes(data)
    return path


def class_folders(classes: int = 4, images: int = 3) -> dict[str, bytes]:
    """Images whose gray value says their class (tens) and number (ones)."""
    return {f"class{c}/{i}.png": png(10 * c + i) for c in range(classes) for i in range(images)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "birds", class_folders())


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
