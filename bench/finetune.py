"""Fine-tune a pretrained network on photographs with many objectives, compared with its features, plain and whitened.

    python bench/finetune.py photos/ --trunk timm:mobilenetv1_100 --pretrained true --splits 5 --out runs/finetune

Protocol: each split draws half of the classes as the test. The network starts from the pretrained weights, its
embedding layer from the closed-form whitening of their features, and learns for `--steps` batches with the settings of
the recipe (by default, `photos/finetune`), but for the learning rate. Of RATES, every loss takes the one with the
highest MAP@R on validation classes: a third of the training classes of the first split. A term takes one of two weights
in the same way, with the learning rate of its loss. Class proxies learn with `--lr-proxies`. The network of the last
step is scored once on the test classes.

`--fixed` trains further objectives without any choice, with `--factor` times the learning rate of the recipe: a curve
over weights, kernels, or other settings of a term.

`--coarse FILE` adds a split whose test classes share no coarse class with those of the training; the file is a table of
`class,coarse`. `--seeds` repeats each training.

The table has means over splits and seeds, and the differences to the whitening and of a term to its loss, paired by
split and seed, with 95% t-intervals and p-values after Holm's correction. `scores.jsonl` and `chosen.jsonl` in the
folder hold what is finished, which is not repeated.
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
from numpy.typing import NDArray
from paired import difference, holm, p_value

from nearfar import DiscriminantWhitening
from nearfar.data import open_task
from nearfar.evaluation import evaluate
from nearfar.train import TrainConfig, evaluate_run, train
from nearfar.train.recipes import recipe
from nearfar.train.rungs.frozen import frozen_features
from nearfar.train.settle import settle

LOSSES = (
    "SupConLoss(temperature=0.1)",
    "TripletLoss()",
    "AMSoftmaxLoss(scale=20, margin=0.1)",
    "NPairLoss()",
    "BinomialDevianceLoss()",
    "MultiSimilarityLoss()",
    "ProxyAnchorLoss()",
    "CircleLoss()",
    "FacilityLocationLoss()",
    "TripletLoss(miner=BatchSemiHard())",
    "LiftedLoss()",
)
TERMS = {  # loss and term, and weights: the term is then about 3% or 30% of the loss when training starts
    "TripletLoss() + {}*EnergyConfusion()": (6e-6, 6e-5),
    "TripletLoss() + {}*DiversityConfusion()": (1.2e-5, 1.2e-4),
    "NPairLoss() + {}*EnergyConfusion()": (6e-5, 6e-4),
    "NPairLoss() + {}*DiversityConfusion()": (1.2e-4, 1.2e-3),
    "BinomialDevianceLoss() + {}*EnergyConfusion()": (4e-5, 4e-4),
    "BinomialDevianceLoss() + {}*DiversityConfusion()": (8e-5, 8e-4),
    "AMSoftmaxLoss(scale=20, margin=0.1) + {}*JRS()": (1.0, 10.0),
    "AMSoftmaxLoss(scale=20, margin=0.1) + {}*JMMD()": (0.3, 3.0),
    "AMSoftmaxLoss(scale=20, margin=0.1) + {}*JIntra()": (0.3, 3.0),
}
RATES = (0.33, 1.0, 3.0)  # times the learning rate of the recipe
VALIDATION = 1 / 3  # share of the training classes of the first split, to choose rates and weights
FROZEN = "frozen features"
WHITENED = "frozen features, whitened"
SCORES = "scores.jsonl"
CHOSEN = "chosen.jsonl"
COARSE = "coarse"  # the name of the split whose test classes share no coarse class with the training


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder of class folders")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trunk", default="timm:mobilenetv1_100")
    parser.add_argument("--pretrained", default="true", help="true, or a file of weights")
    parser.add_argument("--recipe", default="photos/finetune", help="settings of the trainings")
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--coarse", type=Path, help="a table of class,coarse for one more split")
    parser.add_argument("--steps", type=int, default=40, help="batches of a training")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--per-class", type=int, default=4, help="photos of each class in a batch")
    parser.add_argument("--chunk", type=int, help="photos that pass through the network at a time; default: a batch")
    parser.add_argument("--embedding-dim", type=int, default=256)
    parser.add_argument("--lr-proxies", type=float, default=0.02)
    parser.add_argument("--precision", default="bf16", choices=("no", "bf16"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--only", nargs="*", default=(*LOSSES, *TERMS), help="losses, and terms as in TERMS; default: all"
    )
    parser.add_argument("--fixed", nargs="*", default=(), help="objectives that are trained without any choice")
    parser.add_argument("--factor", type=float, default=1.0, help="times the learning rate of the recipe, for --fixed")
    settings = parser.parse_args()
    settings.out.mkdir(parents=True, exist_ok=True)

    names = open_task(settings.data).train.classes + open_task(settings.data).test.classes
    splits = {str(seed): random_half(sorted(names), seed) for seed in range(settings.splits)}
    if settings.coarse is not None:
        splits[COARSE] = apart(settings.coarse)
    done = read_rows(settings.out / SCORES)
    for split, unseen in splits.items():
        if not any(row["split"] == split and row["name"] == FROZEN for row in done):
            done += append(settings.out / SCORES, without_training(split, unseen, settings))
    chosen = {name: choose(name, splits["0"], settings) for name in settings.only}
    chosen |= {text: (text, settings.factor) for text in settings.fixed}
    for seed in range(settings.seeds):
        for split, unseen in splits.items():
            for name in chosen:
                key = {"name": name, "split": split, "seed": seed}
                if not any(key.items() <= row.items() for row in done):
                    text, factor = chosen[name]
                    row = fine_tuned(text, factor, unseen, settings, seed=seed)
                    done += append(settings.out / SCORES, [key | {"objective": text} | row])
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


def choose(name: str, unseen: tuple[str, ...], settings: argparse.Namespace) -> tuple[str, float]:
    """Return the objective and the factor of the learning rate that are best on validation classes.

    The classes `unseen` are the test of the first split: used neither for training nor for this choice.
    """
    if name in TERMS:
        _, factor = choose(loss_of(name), unseen, settings)
        candidates = [(name.format(weight), factor) for weight in TERMS[name]]
    else:
        candidates = [(name, factor) for factor in RATES]
    done = read_rows(settings.out / CHOSEN)
    found = []
    for text, factor in candidates:
        key = {"objective": text, "factor": factor}
        row = next((row for row in done if key.items() <= row.items()), None)
        if row is None:
            config = config_of(text, factor, unseen, settings, seed=0)
            run = train(config.replace(validation=VALIDATION), new_folder(settings), progress=False)
            row = key | {"map_at_r": run.best}
            append(settings.out / CHOSEN, [row])
        found.append((row["map_at_r"], text, factor))
    _, text, factor = max(found)
    return text, factor


def config_of(
    objective: str, factor: float, unseen: tuple[str, ...], settings: argparse.Namespace, *, seed: int
) -> TrainConfig:
    fields: dict[str, Any] = recipe(settings.recipe)
    fields |= {
        "data": str(settings.data),
        "test_classes": unseen,
        "trunk": settings.trunk,
        "pretrained": True if settings.pretrained == "true" else settings.pretrained,
        "image_size": settings.image_size,
        "resize": settings.image_size,
        "objective": objective,
        "embedding_dim": settings.embedding_dim,
        "lr": factor * fields["lr"],
        "lr_proxies": settings.lr_proxies,
        "steps": settings.steps,
        "batch_size": settings.batch_size,
        "sampler": f"m_per_class:{settings.per_class}",
        "chunk": settings.chunk,
        "precision": settings.precision,
        "validation": 0.0,
        "metric": "none",
        "eval_every": 1000,
        "log_every": 1000,
        "seed": seed,
    }
    del fields["epochs"]
    return TrainConfig.of(**fields)


def new_folder(settings: argparse.Namespace) -> Path:
    folder = Path(settings.out) / "run"
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def without_training(split: str, unseen: tuple[str, ...], settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Score the features of the pretrained network, and these after a whitening fitted to the training classes."""
    plan = settle(config_of(LOSSES[0], 1.0, unseen, settings, seed=0))
    task = plan.task
    config = plan.config
    train_rows = np.asarray(frozen_features(task.train, config, None).array)
    test_rows = np.asarray(frozen_features(task.test, config, None).array)
    whitening = DiscriminantWhitening().fit(train_rows, task.train.labels)
    rows = []
    for name, embedded in ((FROZEN, test_rows), (WHITENED, whitening.transform(test_rows))):
        scores = evaluate(embedded, task.test.labels)
        rows.append({"name": name, "split": split, "seed": 0} | figures(scores))
    return rows


def fine_tuned(
    objective: str, factor: float, unseen: tuple[str, ...], settings: argparse.Namespace, *, seed: int
) -> dict[str, Any]:
    """Fine-tune the network, and score its embeddings of the test classes."""
    folder = new_folder(settings)
    clock = time.process_time()
    train(config_of(objective, factor, unseen, settings, seed=seed), folder, progress=False)
    seconds = time.process_time() - clock
    return {"factor": factor, "cpu_seconds": round(seconds, 1)} | figures(evaluate_run(folder).scores)


def figures(scores: Any) -> dict[str, float]:
    return {
        "recall_at_1": float(scores.recall_at[1]),
        "map_at_r": float(scores.map_at_r),
        "nmi": float(scores.nmi),
    }


def append(path: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Append the rows to a file, print them, and return them."""
    with path.open("a", encoding="utf-8") as file:
        for row in rows:
            line = json.dumps(row)
            file.write(line + "\n")
            print(line, flush=True)
    return rows


def read_rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table(rows: list[dict[str, Any]]) -> str:
    """Return two tables in Markdown: objectives, the best MAP@R first, and what each term adds to its loss."""
    splits = sorted({row["split"] for row in rows} - {COARSE})
    scores = {name: means_of(name, rows, splits) for name in dict.fromkeys(row["name"] for row in rows)}
    scores = {name: of for name, of in scores.items() if len(of) == len(splits)}
    far = {name: means_of(name, rows, [COARSE]) for name in scores}
    objectives = {row["name"]: row["objective"] for row in rows if "objective" in row}
    gains = {
        name: of[:, 1] - scores[WHITENED][:, 1]
        for name, of in scores.items()
        if name not in (FROZEN, WHITENED) and loss_of(name) == name
    }
    corrected = holm({name: p_value(of) for name, of in gains.items()})
    lines = [
        "| objective | Recall@1 | MAP@R | NMI | MAP@R beyond whitened | p (Holm) | MAP@R, no shared coarse class |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in sorted(scores, key=lambda one: -scores[one][:, 1].mean()):
        cells = [f"`{objectives[name]}`" if name in objectives else name]
        cells += [f"{mean:.3f}" for mean in scores[name].mean(axis=0)]
        cells.append(difference(gains[name]) if name in gains else "")
        cells.append(f"{corrected[name]:.2g}" if name in gains else "")
        cells.append(f"{far[name][0, 1]:.3f}" if len(far[name]) else "")
        lines.append(f"| {' | '.join(cells)} |")

    added = {
        name: gains_of(name, rows, splits)
        for name in sorted(scores)
        if loss_of(name) != name and loss_of(name) in scores
    }
    corrected = holm({name: p_value(of[:, 1]) for name, of in added.items()})
    lines += ["", "| loss and term | Recall@1 | MAP@R | p (Holm) |", "|---|---:|---:|---:|"]
    for name, of in added.items():
        lines.append(
            f"| `{objectives[name]}` | {difference(of[:, 0])} | {difference(of[:, 1])} | {corrected[name]:.2g} |"
        )
    return "\n".join(lines)


def loss_of(name: str) -> str:
    return name.split(" + ")[0]


def means_of(name: str, rows: list[dict[str, Any]], splits: list[str]) -> NDArray[np.float64]:
    """Return Recall@1, MAP@R and NMI (splits, 3), averaged over seeds, for the splits that have them."""
    means = []
    for split in splits:
        of = [row for row in rows if row["name"] == name and row["split"] == split]
        if of:
            means.append([np.mean([row[key] for row in of]) for key in ("recall_at_1", "map_at_r", "nmi")])
    return np.array(means)


def gains_of(name: str, rows: list[dict[str, Any]], splits: list[str]) -> NDArray[np.float64]:
    """Return what a term adds to Recall@1 and MAP@R of its loss (splits, 2), averaged over the seeds that both have."""
    scores = {(row["name"], row["split"], row["seed"]): np.array([row["recall_at_1"], row["map_at_r"]]) for row in rows}
    gains = []
    for split in splits:
        seeds = [row["seed"] for row in rows if row["name"] == name and row["split"] == split]
        pairs = [((name, split, seed), (loss_of(name), split, seed)) for seed in seeds]
        gains.append(np.mean([scores[term] - scores[loss] for term, loss in pairs if loss in scores], axis=0))
    return np.array(gains)


if __name__ == "__main__":
    main()
