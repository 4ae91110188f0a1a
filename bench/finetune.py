"""Fine-tune a pretrained network on photographs with several objectives, beside its features as they are and whitened.

    python bench/finetune.py photos/ --trunk timm:mobilenetv1_100 --pretrained true --splits 5 --out runs/finetune

Protocol: each split draws half of the classes as the test. The network starts from the pretrained weights, its
embedding layer from the closed-form whitening of their features, and all weights learn for `--steps` batches with the
settings of the recipe `photos/finetune`. These were chosen with `SupConLoss(temperature=0.1)` on validation classes,
and are the same for all objectives; class proxies learn with `--lr-proxies`. The last checkpoint is scored once on the
test classes. `--coarse FILE` adds a split whose test classes share no coarse class with those of the training; the file
is a table of `class,coarse`.

The table has means over splits, and the differences to the first objective and of a term to the same loss without it,
paired by split, with 95% t-intervals. `scores.jsonl` in the folder holds what is finished, which is not repeated.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from nearfar import DiscriminantWhitening
from nearfar.data import open_task
from nearfar.evaluation import evaluate
from nearfar.evaluation.intervals import interval
from nearfar.train import TrainConfig, evaluate_run, train
from nearfar.train.defaults import settle
from nearfar.train.recipes import recipe
from nearfar.train.rungs import frozen_features

OBJECTIVES = (
    "SupConLoss(temperature=0.1)",
    "MultiSimilarityLoss()",
    "TripletLoss()",
    "TripletLoss() + 0.00003*EnergyConfusion()",
    "AMSoftmaxLoss(scale=20, margin=0.1)",
    "AMSoftmaxLoss(scale=20, margin=0.1) + 1.0*JRS()",
    "ProxyAnchorLoss()",
)
FROZEN = "frozen features"
WHITENED = "frozen features, whitened"
COARSE = "coarse"  # the name of the split whose test classes share no coarse class with the training


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder of class folders")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trunk", default="timm:mobilenetv1_100")
    parser.add_argument("--pretrained", default="true", help="true, or a file of weights")
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--coarse", type=Path, help="a table of class,coarse for one more split")
    parser.add_argument("--steps", type=int, default=40, help="batches of a training")
    parser.add_argument("--lr-proxies", type=float, default=0.02)
    parser.add_argument("--precision", default="bf16", choices=("no", "bf16"))
    parser.add_argument("--only", nargs="*", default=OBJECTIVES, help="objectives; default: all")
    settings = parser.parse_args()
    settings.out.mkdir(parents=True, exist_ok=True)

    names = open_task(settings.data).train.classes + open_task(settings.data).test.classes
    splits = {str(seed): random_half(sorted(names), seed) for seed in range(settings.splits)}
    if settings.coarse is not None:
        splits[COARSE] = apart(settings.coarse)
    done = read_scores(settings.out)
    for split, unseen in splits.items():
        for name in (FROZEN, *settings.only):
            if not any(one["split"] == split and one["name"] == name for one in done):
                found = without_training if name == FROZEN else fine_tuned
                rows = found(name, split, unseen, settings)
                with (settings.out / "scores.jsonl").open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows)
                done += rows
    print(table(done))


def random_half(names: list[str], seed: int) -> tuple[str, ...]:
    """Draw half of the classes as the test."""
    order = np.random.default_rng(seed).permutation(len(names))
    return tuple(sorted(names[i] for i in order[: len(names) // 2]))


def apart(path: Path) -> tuple[str, ...]:
    """Return the classes of about half of the coarse classes."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [(row[0], row[1]) for row in csv.reader(file)][1:]
    coarse = sorted({of for _, of in rows})
    drawn = {coarse[i] for i in np.random.default_rng(0).permutation(len(coarse))[: len(coarse) // 2]}
    return tuple(sorted(name for name, of in rows if of in drawn))


def config_of(objective: str, unseen: tuple[str, ...], settings: argparse.Namespace) -> TrainConfig:
    fields: dict[str, Any] = recipe("photos/finetune")
    fields |= {
        "data": str(settings.data),
        "test_classes": unseen,
        "trunk": settings.trunk,
        "pretrained": True if settings.pretrained == "true" else settings.pretrained,
        "image_size": settings.image_size,
        "resize": settings.image_size,
        "objective": objective,
        "lr_proxies": settings.lr_proxies,
        "steps": settings.steps,
        "precision": settings.precision,
        "validation": 0.0,
        "metric": "none",
        "eval_every": 1000,
        "log_every": 1000,
    }
    del fields["epochs"]
    return TrainConfig.of(**fields)


def without_training(
    name: str, split: str, unseen: tuple[str, ...], settings: argparse.Namespace
) -> list[dict[str, Any]]:
    """Score the features of the pretrained network, and these after a whitening fitted to the training classes."""
    task, config = settle(config_of("SupConLoss()", unseen, settings))
    train_rows = np.asarray(frozen_features(task.train, config, None).array)
    clock = time.perf_counter()
    test_rows = np.asarray(frozen_features(task.test, config, None).array)
    rows = []
    whitening = DiscriminantWhitening().fit(train_rows, task.train.labels)
    for title, embedded in ((name, test_rows), (WHITENED, whitening.transform(test_rows))):
        scores = evaluate(embedded, task.test.labels)
        rows.append(row_of(title, split, scores, seconds=time.perf_counter() - clock))
    return rows


def fine_tuned(name: str, split: str, unseen: tuple[str, ...], settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Fine-tune the network, and score its embeddings of the test classes."""
    folder = settings.out / "run"
    shutil.rmtree(folder, ignore_errors=True)
    clock = time.perf_counter()
    train(config_of(name, unseen, settings), folder, progress=False)
    seconds = time.perf_counter() - clock
    return [row_of(name, split, evaluate_run(folder).scores, seconds)]


def row_of(name: str, split: str, scores: Any, seconds: float) -> dict[str, Any]:
    row = {
        "name": name,
        "split": split,
        "recall_at_1": float(scores.recall_at[1]),
        "map_at_r": float(scores.map_at_r),
        "nmi": float(scores.nmi),
        "seconds": seconds,
    }
    print(json.dumps(row), flush=True)
    return row


def read_scores(folder: Path) -> list[dict[str, Any]]:
    file = folder / "scores.jsonl"
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table in Markdown, the best MAP@R first."""
    drawn = [row for row in rows if row["split"] != COARSE]
    far = {row["name"]: row for row in rows if row["split"] == COARSE}
    splits = sorted({row["split"] for row in drawn})
    by_name: dict[str, list[dict[str, Any]]] = {}
    for name in {row["name"] for row in drawn}:
        of = {row["split"]: row for row in drawn if row["name"] == name}
        if len(of) == len(splits):
            by_name[name] = [of[split] for split in splits]
    means = {name: np.array([row["map_at_r"] for row in found]) for name, found in by_name.items()}
    lines = [
        f"| {len(splits)} splits | Recall@1 | MAP@R | NMI | MAP@R, no shared coarse class | beyond whitened |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in sorted(by_name, key=lambda one: -means[one].mean()):
        found = by_name[name]
        cells = [f"{np.mean([row[key] for row in found]):.3f}" for key in ("recall_at_1", "map_at_r", "nmi")]
        cells.append(f"{far[name]['map_at_r']:.3f}" if name in far else "")
        cells.append("" if name == WHITENED else difference(means[name], means[WHITENED]))
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    lines.append("")
    for name in by_name:
        loss = name.rsplit(" + ", 1)[0]
        if loss != name and loss in by_name:
            lines.append(f"`{name}`: MAP@R {difference(means[name], means[loss])} beyond the loss alone.")
    return "\n".join(lines)


def difference(ours: Any, theirs: Any) -> str:
    """Return the mean difference, paired by split, with the half-width of its 95% t-interval."""
    found = interval(ours - theirs)
    return f"{found.mean:+.3f} ± {found.half:.3f}"


if __name__ == "__main__":
    main()
