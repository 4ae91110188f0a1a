"""MAP@R on unseen classes of each rung of the ladder, trained on few classes, or on few photos of each.

    python bench/few.py photos/ --pretrained mobilenetv1_100.safetensors --out runs/few

`photos` is a folder of class folders. Each split draws half of the classes as the test. Of the others, the first 4 or
16 in a random order are learned with all of their photos, or all of them with 2 or 8 photos, evenly from each.
The rungs are those that `nearfar train --rung NAME` trains: frozen features, the closed form that held-out training
classes choose, a linear layer on frozen features (150 batches), the last stage, and all weights (four epochs, and 64
batches at least). The default is `nearfar train` with the same network and no other setting.

`scores.jsonl` in the folder gets a line for each cell as soon as it is measured; a run that was killed goes on after
the last one. `--write FILE` writes the table of the page.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from finetune import random_half
from zoo import append, read_cells

from nearfar.data import images_from, open_dataset
from nearfar.train import TrainConfig, climb, evaluate_run
from nearfar.train.rungs.rung_settings import FINAL_BATCHES, HEAD_STEPS, UNCHECKED, plan_of_ladder

FEW_CLASSES = (4, 16)
FEW_PHOTOS = (2, 8)
EPOCHS = 4
BATCH = 64
FROZEN = "frozen"
RUNGS = {
    FROZEN: "frozen features",
    "whitened": "closed form",
    "head": "linear layer",
    "last-stage": "last stage",
    "full": "all weights",
}
DEFAULT = "default"
SET = "table.csv"


class Part(NamedTuple):
    """What is learned in a split: the first classes, and the number of photos of each; None for all."""

    classes: int | None
    photos: int | None


ALL = Part(classes=None, photos=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder of class folders")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trunk", default="timm:mobilenetv1_100(pad_type='same')")
    parser.add_argument("--pretrained", default="true", help="true, or a file of weights")
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=(*RUNGS, DEFAULT), choices=(*RUNGS, DEFAULT))
    parser.add_argument("--write", type=Path, help="also write the table to this file")
    settings = parser.parse_args()
    settings.out.mkdir(parents=True, exist_ok=True)
    done = read_cells(settings.out)
    for rung in settings.only:
        for split in range(settings.splits):
            for part in parts() if rung != FROZEN else [ALL]:
                key = {"rung": rung, "split": split, **part._asdict()}
                if not any(key.items() <= line.items() for line in done):
                    with images_from(settings.data):
                        line = key | measured(rung, split, part, settings)
                    append(settings.out, line)
                    done.append(line)
    rows = table(done, settings.splits)
    if settings.write is not None:
        with settings.write.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    for row in rows:
        print(f"| {' | '.join(row)} |")


def parts() -> Iterator[Part]:
    yield from (Part(classes=classes, photos=None) for classes in FEW_CLASSES)
    yield from (Part(classes=None, photos=photos) for photos in FEW_PHOTOS)
    yield ALL


def measured(rung: str, split: int, part: Part, settings: argparse.Namespace) -> dict[str, Any]:
    """Train the rung on a part of the training classes, and score it on the test classes."""
    unseen = write_table(split, part, settings)
    config = TrainConfig.of(
        data=str(settings.out / SET),
        test_classes=unseen,
        trunk=settings.trunk,
        pretrained=True if settings.pretrained == "true" else settings.pretrained,
        image_size=settings.image_size,
        seed=split,
    )
    photos = len(plan_of_ladder(config).task.train)
    steps = {"head": HEAD_STEPS, "last-stage": FINAL_BATCHES, "full": max(FINAL_BATCHES, EPOCHS * photos // BATCH)}
    folder = settings.out / "run"
    shutil.rmtree(folder, ignore_errors=True)
    start = time.process_time()
    if rung == DEFAULT:
        climb(config, folder, progress=False)
    else:
        trained = config.replace(**UNCHECKED, steps=steps[rung], keep="trained") if rung in steps else config
        climb(trained, folder, rung=rung, ladder="no", progress=False)
    found = evaluate_run(folder).scores
    return {
        "photos learned": photos,
        "map_at_r": round(float(found.map_at_r), 5),
        "recall_at_1": round(float(found.recall_at[1]), 5),
        "seconds": round(time.process_time() - start, 1),
    }


def write_table(split: int, part: Part, settings: argparse.Namespace) -> tuple[str, ...]:
    """Write the photos that are learned and those of the test as a table, and return the classes of the test."""
    items = open_dataset(settings.data)
    unseen = random_half(sorted(items.classes), split)
    known = [name for name in sorted(items.classes) if name not in unseen]
    learned = [known[i] for i in np.random.default_rng(split).permutation(len(known))][: part.classes]
    with (settings.out / SET).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        for name in (*learned, *unseen):
            files = sorted((settings.data / name).iterdir())
            most = part.photos if name in learned and part.photos is not None else len(files)
            places = np.linspace(0, len(files) - 1, min(most, len(files))).astype(int)
            writer.writerows([str(files[i].resolve()), name] for i in places)
    return unseen


def table(done: list[dict[str, Any]], splits: int) -> list[list[str]]:
    """Return the MAP@R of each rung, means over the splits; no mean where some were not measured."""
    rungs = [name for name in (*RUNGS, DEFAULT) if any(line["rung"] == name for line in done)]
    rows = [["classes", "photos a class", *(RUNGS.get(name, name) for name in rungs)]]
    for part in parts():
        row = [str(part.classes or "all"), str(part.photos or "all")]
        for rung in rungs:
            of = ALL if rung == FROZEN else part
            scores = [
                line["map_at_r"]
                for line in done
                if line["rung"] == rung and (line["classes"], line["photos"]) == of and line["split"] < splits
            ]
            row.append(f"{np.mean(scores):.3f}" if len(scores) == splits else "")
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
