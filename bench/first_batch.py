"""Processor time from the start of a training to its first batch, on a folder of many photos.

    python bench/first_batch.py                     a million photos in 10,000 classes (a minute)
    python bench/first_batch.py --photos 100000

The photos are hard links of 40 small files, so that the folder takes little space and is read from memory. The time
counts after the imports, and has parts: the folder is listed and its classes are numbered, then network and batches are
made, and the first batch is computed. Training items are read for their fingerprints only before the first checkpoint.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import nearfar
from nearfar.data import open_dataset
from nearfar.train import TrainConfig, Watcher, train

EACH = 100  # photos of a class
FILES = 40


class FirstBatch(Watcher):
    """Keeps the processor time at the end of the first batch."""

    def __init__(self) -> None:
        self.end = 0.0

    def on_step(self, step: int, epoch: int, record: Mapping[str, Any] | None) -> None:
        self.end = self.end or process_time()

    def on_epoch(self, row: Mapping[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


def linked_photos(folder: Path, photos: int) -> Path:
    """Draw some photos, and link each of them many times into class folders."""
    from PIL import Image

    rng = np.random.default_rng(0)
    files = []
    for number in range(FILES):
        files.append(folder / f"{number}.jpg")
        coarse = rng.integers(0, 256, size=(6, 8, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((160, 120), Image.Resampling.BICUBIC).save(files[-1], quality=85)
    root = folder / "photos"
    for number in range(photos):
        of_class = root / f"class{number // EACH:06}"
        of_class.mkdir(parents=True, exist_ok=True)
        os.link(files[number % FILES], of_class / f"{number % EACH:03}.jpg")
    return root


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = linked_photos(Path(scratch), given.photos)
        start = process_time()
        items = open_dataset(str(folder))
        opened = process_time() - start
        print(f"nearfar {nearfar.__version__}: {len(items):,} photos of {len(items.classes):,} classes")
        print(f"listed and numbered   {opened:6.1f} s CPU")
        sizes: dict[str, Any] = {"trunk": "conv4", "image_size": 64, "batch_size": 64, "steps": 2}
        rest: dict[str, Any] = {"objective": "SupConLoss()", "validation": 0.0, "workers": 0}
        watcher = FirstBatch()
        start = process_time()
        train(
            TrainConfig.of(data=str(folder), **sizes, **rest), Path(scratch) / "run", progress=False, watchers=[watcher]
        )
        print(f"to the first batch    {watcher.end - start:6.1f} s CPU")


if __name__ == "__main__":
    main()
