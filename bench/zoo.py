"""The default of `nearfar train` on many sets, compared with what is cheaper and with a plain loop of the same time.

    python bench/zoo.py digits glyphs letter.csv.gz texts.csv photos.zip --out runs/zoo
    python bench/zoo.py --out runs/zoo --read                               only the table of what is finished

A set is anything that `nearfar train` takes, with `NAME=` before it if the file is not called so; `sets.py` writes some
public ones as tables. Each split draws half of its classes as the test, from which nothing learns. In a table of
queries and documents, the queries of the test search its documents. The rows are, all on the same splits,

- raw: the items, images of at most 32 x 32 pixels, sounds as statistics of their log-mel spectra; not for texts
- frozen: features of the pretrained trunk, for photographs (`--photo-trunk`) and texts (`--text-trunk`)
- closed form: the form on either of them that is best on held-out training classes
- default: `TrainConfig.of(data=...)`, with the trunk where there is one, and nothing else
- minutes: the same in a number of minutes (`--minutes`), as `nearfar train --minutes 4` does
- plain loop: the network of the default from the same weights, AdamW and SupCon on batches of 16 classes of 4, without
  augmentation, schedule or choice, for the processor time of the default; it standardizes rows

`scores.jsonl` in the folder gets a line for each cell as soon as it is measured, and a run that was killed goes on
after the last one; features of frozen trunks are in nearfar's cache. Splits are the outer loop, so that all sets have
about as many. `--per-class` limits the items of each class, which are evenly spaced. The end prints the table and
whether the laws hold: on every set the MAP@R of the default, and that in a number of minutes, are at least that of each
cheaper row minus 0.01, and the default's mean over the sets is above that of the plain loop. The exit status is 1 if
one does not.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from finetune import random_half
from numpy.typing import NDArray
from paired import difference
from photos import supcon
from PIL import Image
from torch import nn

import nearfar
from nearfar.data import Dataset, Task, open_dataset
from nearfar.data.loader import make_loader
from nearfar.evaluation import evaluate
from nearfar.numerics.mel import SOUND_RATE
from nearfar.train import TrainConfig, climb, evaluate_run
from nearfar.train.checkpoint import read_about
from nearfar.train.defaults import is_of_photographs
from nearfar.train.features import as_floats, embed, sizes_of
from nearfar.train.network import make_embedder
from nearfar.train.rungs.closed_forms import MAX_WIDTH, choose_form, fitted
from nearfar.train.rungs.untrained import UntrainedModel
from nearfar.train.settle import settle
from nearfar.train.task import item_shape

CHEAPER = ("raw", "frozen", "closed form")
TRAINED = ("default", "minutes")
ROWS = (*CHEAPER, *TRAINED, "plain loop")
ALLOWED = 0.01  # MAP@R by which the default may be below a cheaper row, the noise of a few splits
RATES = {False: 1e-3, True: 1e-4}  # of the plain loop, from random and from pretrained weights
CLASSES = 16  # in a batch of the plain loop
PER_CLASS = 4
SCORES = "scores.jsonl"
Rows = NDArray[np.float32]


class Member(NamedTuple):
    """A set of the zoo: its items as files, the names of its classes, and settings that it needs."""

    name: str
    data: Path
    classes: tuple[str, ...]
    settings: dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="[NAME=]SET", help="anything that nearfar train takes")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--per-class", type=int, help="maximum number of items of a class; default: all")
    parser.add_argument("--most-classes", type=int, help="maximum number of classes of a set; default: all")
    parser.add_argument("--leave-out", nargs="*", default=("oos",), help="classes that are none; default: oos")
    parser.add_argument("--label", default="category", help="column of classes in tables of texts without `label`")
    parser.add_argument("--photo-trunk", help='such as "timm:mobilenetv1_100"; default: what nearfar train chooses')
    parser.add_argument("--pretrained", default="true", help="true, or a file of weights, for --photo-trunk")
    parser.add_argument("--image-size", type=int, help="of --photo-trunk; default: what nearfar train chooses")
    parser.add_argument("--text-trunk", help="such as transformers:FOLDER; without it, sets of texts are left out")
    parser.add_argument("--minutes", type=float, default=4.0, help="of the row of that name")
    parser.add_argument("--only", nargs="*", default=ROWS, choices=ROWS)
    parser.add_argument("--hours", type=float, default=6.0, help="after which no cell is begun")
    parser.add_argument("--read", action="store_true", help="only print what is finished")
    settings = parser.parse_args()
    settings.out.mkdir(parents=True, exist_ok=True)
    if not settings.read:
        measure(settings)
    report(read_cells(settings.out))


def measure(settings: argparse.Namespace) -> None:
    """Measure the cells that are not finished, until the time is over."""
    until = time.monotonic() + 3600 * settings.hours
    print(f"nearfar {nearfar.__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads", flush=True)
    members = [member for source in settings.sets if (member := prepared(source, settings)) is not None]
    done = {(cell["set"], cell["split"], cell["row"]) for cell in read_cells(settings.out)}
    for split in range(settings.splits):
        for member in members:
            for row in settings.only:
                if split >= number_of_halves(member) or (member.name, split, row) in done:
                    continue
                if time.monotonic() > until:
                    print(f"The {settings.hours:g} hours are over; the same command goes on.")
                    return
                found = measured(member, split, row, settings)
                if found is not None:
                    append(settings.out, {"set": member.name, "split": split, "row": row, **found})


def prepared(source: str, settings: argparse.Namespace) -> Member | None:
    """Write the items of a set that are used as files, once, and return it; None without a trunk for its texts."""
    name, _, path = source.rpartition("=")
    name = name or Path(path).name.split(".")[0]
    label = settings.label if settings.label in header(Path(path)) else None
    items = open_dataset(path, label=label)
    items = items.only([c for c in items.classes if c not in settings.leave_out][: settings.most_classes])
    items = items.subset(evenly(items.labels, settings.per_class))
    needed: dict[str, Any] = {}
    if items.texts is not None:
        if settings.text_trunk is None:
            print(f"{name} is left out: texts need --text-trunk.")
            return None
        needed = {"trunk": settings.text_trunk}
    elif is_of_photographs(items) and settings.photo_trunk is not None:
        pretrained = True if settings.pretrained == "true" else settings.pretrained
        needed = {"trunk": settings.photo_trunk, "pretrained": pretrained}
        if settings.image_size is not None:
            needed |= {"image_size": settings.image_size}
    write = {"image": write_images, "sound": write_sounds}.get(items.kind, write_table)
    data = settings.out / "sets" / (f"{name}.csv" if write is write_table else name)
    if not data.exists():
        begun = data.with_name(f"{data.name}.begun")
        shutil.rmtree(begun, ignore_errors=True)
        begun.parent.mkdir(parents=True, exist_ok=True)
        write(items, begun)
        begun.rename(data)
    classes = items.classes
    if write is not write_table:
        classes = tuple(folder_name(one) for one in classes)
    elif items.asks is not None:
        classes = open_dataset(str(data)).classes  # named by their items
    return Member(name, data, classes, needed)


def folder_name(name: str) -> str:
    return name.replace("/", "+")


def header(path: Path) -> list[str]:
    """Return the names of the columns of a CSV file; none of other sources."""
    if path.suffix != ".csv":
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file), [])


def evenly(labels: NDArray[Any], most: int | None) -> NDArray[np.bool_]:
    """Return which items are used: at most a number of each class, evenly spaced."""
    used = np.zeros(len(labels), bool)
    for c in np.unique(labels):
        places = np.flatnonzero(labels == c)
        count = len(places) if most is None else min(most, len(places))
        used[places[np.linspace(0, len(places) - 1, count).astype(int)]] = True
    return used


def write_images(items: Dataset, folder: Path) -> None:
    """Write a folder of class folders."""
    for i, label in enumerate(items.labels):
        file = folder / folder_name(items.classes[label]) / f"{i:06}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        image = items.read(i)
        Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(file)


def write_sounds(items: Dataset, folder: Path) -> None:
    """Write a folder of class folders."""
    import soundfile

    for i, label in enumerate(items.labels):
        file = folder / folder_name(items.classes[label]) / f"{i:06}.wav"
        file.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(file, items.read(i), SOUND_RATE)


def write_table(items: Dataset, path: Path) -> None:
    """Write a table of rows or texts, with the classes in the column `label`, or of queries and their documents."""
    names = [items.classes[label] for label in items.labels]
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        if items.asks is not None and items.listed is not None:
            texts = items.texts_given
            table.writerow(["query", "document"])
            for i, j in zip(items.listed.i, items.listed.j, strict=True):
                table.writerow([texts[j], texts[i]] if items.asks[j] else [texts[i], texts[j]])
        elif items.texts is not None:
            table.writerow(["text", "label"])
            table.writerows(zip(items.texts_given, names, strict=True))
        else:
            table.writerow([*items.columns, "label"])
            table.writerows([*items.read(i).tolist(), name] for i, name in enumerate(names))


def measured(member: Member, split: int, row: str, settings: argparse.Namespace) -> dict[str, Any] | None:
    """Return the scores of a cell and its processor time; None if the set has no such row."""
    start = time.process_time()
    if row in CHEAPER:
        found = untrained_cell(member, split, row)
    elif row == "plain loop":
        done = [one for one in read_cells(settings.out) if (one["set"], one["split"]) == (member.name, split)]
        budget = next((one["seconds"] for one in done if one["row"] == "default"), None)
        found = None if budget is None else plain_loop(member, split, budget)
    else:
        found = trained_cell(member, split, settings.minutes if row == "minutes" else None, settings.out / "run")
    return None if found is None else {"seconds": round(time.process_time() - start, 1), **found}


def config_of(member: Member, split: int) -> TrainConfig:
    """Return the default settings for a set, and the classes that a split keeps for the test."""
    unseen = test_halves(tuple(sorted(member.classes)), split + 1)[split]
    return TrainConfig.of(data=str(member.data), test_classes=unseen, **member.settings)


def number_of_halves(member: Member) -> int:
    return math.comb(len(member.classes), len(member.classes) // 2)


@cache
def test_halves(names: tuple[str, ...], count: int) -> list[tuple[str, ...]]:
    """Return the classes of the tests of the first splits, which differ although few classes have few halves.

    >>> len(set(test_halves(("a", "b", "c", "d"), 6)))
    6
    """
    drawn: dict[tuple[str, ...], None] = {}
    seed = 0
    while len(drawn) < count:
        drawn.setdefault(random_half(list(names), seed))
        seed += 1
    return list(drawn)


class Searched(NamedTuple):
    """Rows of the test with their classes, and those of what they search; None if they search each other."""

    rows: NDArray[Any]
    labels: NDArray[np.int64]
    gallery: NDArray[Any] | None
    gallery_labels: NDArray[np.int64] | None


class Parts(NamedTuple):
    """Rows of the training and of the test, and the closed forms that they may have."""

    forms: tuple[str, ...]
    learned: Rows
    train: Dataset
    test: Searched


@lru_cache(maxsize=2)
def untrained_rows(member_name: str, split: int, kind: str, config: TrainConfig) -> Parts | None:
    """Return raw items or frozen features; None if the set has none."""
    plan = settle(config.replace(validation=0.0))
    task = plan.task
    config = plan.config
    is_missing = task.train.texts is not None if kind == "raw" else not config.starts_pretrained
    if is_missing:
        return None
    if kind == "raw":
        scale = make_embedder(config, item_shape(task.train, config)).scale
        model = UntrainedModel.raw(task.train, config, scale)
    else:
        model = UntrainedModel.frozen(task.train, config, None)
    return Parts(model.forms, model.features(task.train), task.train, embedded_test(task, model.features))


def embedded_test(task: Task, embed_items: Callable[[Dataset], Rows]) -> Searched:
    """Embed the test, and the documents that it searches."""
    rows = embed_items(task.test)
    if task.gallery is None:
        return Searched(rows, task.test.labels, None, None)
    return Searched(rows, task.test.labels, embed_items(task.gallery), task.gallery.labels)


def untrained_cell(member: Member, split: int, row: str) -> dict[str, Any] | None:
    """Score raw items, frozen features, or the closed form on either of them that training classes choose."""
    config = config_of(member, split)
    if row != "closed form":
        parts = untrained_rows(member.name, split, row, config)
        return None if parts is None else scores(parts.test)
    choices = []
    for kind in ("raw", "frozen"):
        parts = untrained_rows(member.name, split, kind, config)
        if parts is not None and parts.learned.shape[1] <= MAX_WIDTH:
            chosen = choose_form(parts.learned, parts.train.labels, asks=parts.train.asks, forms=parts.forms)
            held_out = float(np.mean(chosen.map_at_r.get(chosen.name, 0.0)))
            choices.append((held_out, f"{kind}, {chosen.title}", chosen.name, parts))
    if not choices:
        return None
    _, title, form, parts = max(choices, key=lambda choice: choice[0])
    mapped = fitted(form, parts.learned, parts.train.labels)
    gallery = None if parts.test.gallery is None else mapped(parts.test.gallery)
    return {"form": title, **scores(parts.test._replace(rows=mapped(parts.test.rows), gallery=gallery))}


def trained_cell(member: Member, split: int, minutes: float | None, folder: Path) -> dict[str, Any]:
    """Train as a person would, and score what is kept; also the trained network if something else is kept."""
    shutil.rmtree(folder, ignore_errors=True)
    start = time.process_time()
    began = time.monotonic()
    run = climb(config_of(member, split), folder, progress=False, minutes=minutes)
    found: dict[str, Any] = {"seconds": round(time.process_time() - start, 1)}
    found |= scores_of(evaluate_run(run, clustering=False).scores)
    found |= {"wall_seconds": round(time.monotonic() - began, 1), "kept": kept_of(folder)}
    choice = json.loads((folder / "choice.json").read_text(encoding="utf-8"))
    if choice["classes"]:  # otherwise, the ladder has chosen, or nothing could be held out
        held_out = {one["name"]: [round(one["map_at_r"], 4), *one["gain"]] for one in choice["candidates"]}
        found |= {"held_out_classes": choice["classes"], "held_out": held_out}
        if choice["kept"] != "trained":
            trained = evaluate_run(folder, which="trained", clustering=False).scores
            found["trained"] = float(trained.map_at_r)
    shutil.rmtree(folder)
    return found


def kept_of(folder: Path) -> str:
    """Return what a run keeps, such as "frozen-form", as in its checkpoint; "trained" of a trained network."""
    return str(read_about(folder / "best.safetensors").get("kept", "trained"))


def plain_loop(member: Member, split: int, seconds: float) -> dict[str, Any]:
    """Train a network in a plain loop for so many seconds of processor time."""
    start = time.process_time()
    plan = settle(config_of(member, split).replace(validation=0.0))
    task = plan.task
    config = plan.config
    torch.manual_seed(0)
    network = make_embedder(config, item_shape(task.train, config))
    items = all_items(task.train, config)
    prepare = standardizing(items) if task.train.kind == "row" and task.train.texts is None else nn.Identity()
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATES[config.starts_pretrained])
    steps = 0
    network.train()
    for batch in batches(task.train.labels):
        optimizer.zero_grad()
        loss = supcon(network(prepare(as_floats(items[batch]))).embedding, torch.from_numpy(task.train.labels[batch]))
        loss.backward()
        optimizer.step()
        steps += 1
        if time.process_time() - start > seconds:
            break
    network.eval()
    network.scale = nn.Sequential(prepare, network.scale)
    return {"steps": steps, **scores(embedded_test(task, lambda items: embed(network, items, **sizes_of(config))))}


def all_items(items: Dataset, config: TrainConfig) -> torch.Tensor:
    """Return all items in memory: images as uint8, resized as for evaluation."""
    sizes = {key: value for key, value in sizes_of(config).items() if items.kind == "image" or key == "workers"}
    return torch.cat([batch for batch, _, _ in make_loader(items, batch_size=64, **sizes)])


def standardizing(rows: torch.Tensor) -> nn.Module:
    """Return a module that standardizes the columns of rows as those given."""
    layer = nn.BatchNorm1d(rows.shape[1], affine=False, momentum=1.0)
    layer(rows)
    return layer.eval()


def batches(labels: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Draw items of some classes without end, PER_CLASS of each."""
    rng = np.random.default_rng(0)
    places = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    while True:
        classes = rng.permutation(len(places))[:CLASSES]
        yield np.concatenate([rng.choice(places[c], min(PER_CLASS, len(places[c])), replace=False) for c in classes])


def scores(test: Searched) -> dict[str, float]:
    searched: dict[str, Any] = {"gallery": test.gallery, "gallery_labels": test.gallery_labels}
    return scores_of(evaluate(test.rows, test.labels, **searched, ks=(1,), clustering=False))


def scores_of(found: Any) -> dict[str, float]:
    return {"map_at_r": float(found.map_at_r), "recall_at_1": float(found.recall_at[1])}


def append(out: Path, cell: dict[str, Any]) -> None:
    line = json.dumps(cell)
    path = out / SCORES
    was_killed = path.is_file() and not path.read_bytes().endswith(b"\n")  # while it wrote a line
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if was_killed else "") + line + "\n")
    print(line, flush=True)


def read_cells(out: Path) -> list[dict[str, Any]]:
    path = out / SCORES
    if not path.is_file():
        return []
    cells = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with suppress(json.JSONDecodeError):  # the last line of a run that was killed
            cells.append(json.loads(line))
    return cells


def report(cells: list[dict[str, Any]]) -> None:
    """Print the table and the laws, and exit with status 1 if one does not hold."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for cell in cells:
        found.setdefault(cell["set"], {}).setdefault(cell["row"], {})[cell["split"]] = cell["map_at_r"]
    print(table(found))
    lines, holds = laws(found)
    print("\n" + "\n".join(lines))
    if not holds:
        sys.exit(1)


def table(found: dict[str, dict[str, dict[int, float]]]) -> str:
    """Return MAP@R of all sets and rows in Markdown: means over the splits that all rows of a set have."""
    rows = [row for row in ROWS if any(row in of for of in found.values())]
    lines = [f"| set | splits | {' | '.join(rows)} | default - best cheaper | default - plain loop |"]
    lines.append("|---|---:" + "|---:" * (len(rows) + 2) + "|")
    for name, of in found.items():
        shared = sorted(set.intersection(*(set(one) for one in of.values())))
        if not shared:
            continue
        means = {row: float(np.mean([one[split] for split in shared])) for row, one in of.items()}
        best = max((row for row in CHEAPER if row in of), key=lambda row: means[row], default="")
        cells = [name, str(len(shared)), *(f"{means[row]:.3f}" if row in of else "" for row in rows)]
        cells += [gain_text(of, best), gain_text(of, "plain loop")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def gains(of: dict[str, dict[int, float]], row: str, ours: str = "default") -> NDArray[np.float64]:
    """Return by how much the default, or another row of ours, is better than a row, on the splits that both have."""
    mine = of.get(ours, {})
    other = of.get(row, {})
    return np.array([mine[split] - other[split] for split in sorted(mine.keys() & other.keys())])


def gain_text(of: dict[str, dict[int, float]], row: str) -> str:
    """Return the mean gain with its interval, which takes two splits."""
    found = gains(of, row)
    if len(found) > 1:
        return difference(found)
    return f"{found[0]:+.3f}" if len(found) else ""


def laws(found: dict[str, dict[str, dict[int, float]]]) -> tuple[list[str], bool]:
    """Return a sentence for each law, and whether none is broken.

    >>> scored = {"raw": {0: 0.5, 1: 0.5}, "default": {0: 0.4, 1: 0.6}, "plain loop": {0: 0.3, 1: 0.3}}
    >>> laws({"digits": scored})[1], laws({"digits": scored | {"frozen": {0: 0.42}}})[1]
    (True, False)
    """
    lines = []
    holds = True
    for ours in TRAINED:
        losses = {}
        for name, of in found.items():
            for row in CHEAPER:
                gap = gains(of, row, ours)
                if len(gap):
                    losses[f"{name}: {row}"] = -float(gap.mean())
        broken = [f"{place} is better by {loss:.3f}" for place, loss in losses.items() if loss > ALLOWED]
        verdict = "; ".join(broken) or ("holds" if losses else "not measured")
        lines.append(f"Law: on every set, {ours} is at least each cheaper row minus {ALLOWED}: {verdict}.")
        holds = holds and not broken
    beside = [gains(of, "plain loop") for of in found.values()]
    compared = [gap.mean() for gap in beside if len(gap)]
    law = "Law: on the mean over the sets, the default is above the plain loop:"
    if not compared:
        return [*lines, f"{law} not measured."], holds
    mean = float(np.mean(compared))
    lines.append(f"{law} {'holds' if mean > 0 else 'fails'} ({mean:+.3f}).")
    return lines, holds and mean > 0


if __name__ == "__main__":
    main()
