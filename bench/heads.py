"""Every loss of the library as the objective of one linear layer on frozen features, under one small budget for all.

    nearfar embed runs/frozen photos/ -o features.npz
    python bench/heads.py features.npz --splits 5 --seeds 3 --start pca --out runs/heads

Protocol: each split draws half of the classes as the test; a third of the others are its validation classes. The layer
starts from the first principal directions of the features that it learns from, which nearly keep their distances, or
with `--start whitening` from their closed-form whitening, which is hard to beat. A loss is trained with each learning
rate of RATES on the classes that are neither, and takes the one with the highest MAP@R on the validation classes; then
it is trained again on all training classes with every seed, and scored once on the test classes. All settings of the
losses are their defaults; parameters of a loss (proxies) learn ten times as fast as the layer. Batches are 16 classes
of 4.

The table has means over splits and seeds, the difference to the whitening without training, paired by split, with its
95% t-interval, and the p-value of that difference after Holm's correction over all losses. A second table has what the
terms of `--only "LOSS" "LOSS + WEIGHT*TERM"` add to their loss. `scores.jsonl` in the folder holds what is finished,
which is not repeated.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from copy import deepcopy
from itertools import count, islice
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from paired import difference, holm, p_value
from torch import nn

from nearfar.catalog import METHODS
from nearfar.deep.objective.parser import parse_objective
from nearfar.deep.samplers.m_per_class import MPerClassSampler
from nearfar.evaluation import evaluate
from nearfar.train.start import whitening_layer

Rows = NDArray[Any]
WHITENING = "whitening alone"
UNWHITENED = "features without whitening"
RATES = (3e-4, 1e-3, 3e-3, 1e-2)
PROXY_FACTOR = 10
EXTRA = ("NTXentLoss(temperature=0.1)", "SupConLoss(temperature=0.1)", "TripletLoss(miner=BatchHard())")
LEFT_OUT = {"DivideAndConquer", "Matryoshka", "VICRegLoss"}  # wrap another loss; needs two views


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path, help="an .npz with embeddings (n, d) and labels (n,)")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100, help="batches of a training")
    parser.add_argument("--start", choices=("pca", "whitening"), default="pca", help="the layer before training")
    parser.add_argument("--dim", type=int, default=128, help="dimensions of the layer")
    parser.add_argument("--only", nargs="*", default=(), help="losses; default: all")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    settings.out.mkdir(parents=True, exist_ok=True)
    with np.load(settings.features) as file:
        rows = file["embeddings"].astype(np.float32)
        labels = file["labels"]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    study(rows, labels, settings)
    print(table(read_scores(settings.out)))


def study(rows: Rows, labels: Rows, settings: argparse.Namespace) -> None:
    """Train and score every loss on every split, but for those that are finished."""
    done = {(one["loss"], one["split"]) for one in read_scores(settings.out)}
    texts = settings.only or [
        *(f"{method.name}()" for method in METHODS if method.kind == "loss" and method.name not in LEFT_OUT),
        *EXTRA,
    ]
    for split in range(settings.splits):
        parts = divided(labels, split)
        whitening = whitening_start(rows[parts[2]], labels[parts[2]], settings.dim)
        if settings.start == "pca":
            starts = (pca_start(rows[parts[0]], settings.dim), pca_start(rows[parts[2]], settings.dim))
        else:
            starts = (whitening_start(rows[parts[0]], labels[parts[0]], settings.dim), whitening)
        for text in (UNWHITENED, WHITENING, *texts):
            if (text, split) in done:
                continue
            begun = process_time()
            result: dict[str, Any]
            try:
                if text == UNWHITENED:
                    result = {"rate": None, "scores": [score(rows[parts[3]], labels[parts[3]])]}
                elif text == WHITENING:
                    result = {"rate": None, "scores": [score(apply(whitening, rows[parts[3]]), labels[parts[3]])]}
                else:
                    result = score_loss(text, rows, labels, parts, starts, settings)
            except ValueError as error:  # a loss that needs another kind of data refuses this one
                result = {"error": str(error)}
            result |= {"loss": text, "split": split, "seconds": round(process_time() - begun, 2)}
            with (settings.out / "scores.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")


def divided(labels: Rows, split: int) -> tuple[Rows, Rows, Rows, Rows]:
    """Return the rows to try with, of the validation classes, of all training classes, and of the test classes."""
    rng = np.random.default_rng(split)
    classes = rng.permutation(np.unique(labels))
    test = classes[: len(classes) // 2]
    known = classes[len(classes) // 2 :]
    held_out = known[: len(known) // 3]
    inner = known[len(known) // 3 :]
    found = [np.flatnonzero(np.isin(labels, part)) for part in (inner, held_out, known, test)]
    return found[0], found[1], found[2], found[3]


def score_loss(
    text: str,
    rows: Rows,
    labels: Rows,
    parts: tuple[Rows, Rows, Rows, Rows],
    starts: tuple[nn.Linear, nn.Linear],
    settings: argparse.Namespace,
) -> dict[str, Any]:
    """Choose the learning rate on validation classes, train with every seed, and score the test classes.

    `starts` are the layers before training, for the rows to try with and for all training rows.
    """
    inner, validation, training, test = parts
    found = {}
    for rate in RATES:
        layer = trained(text, starts[0], rows[inner], labels[inner], rate, 0, settings)
        found[rate] = score(apply(layer, rows[validation]), labels[validation])[1]
    best = max(found, key=lambda rate: found[rate])
    scores = []
    for seed in range(settings.seeds):
        layer = trained(text, starts[1], rows[training], labels[training], best, seed, settings)
        scores.append(score(apply(layer, rows[test]), labels[test]))
    return {"rate": best, "validation": found, "scores": scores}


def whitening_start(rows: Rows, labels: Rows, dim: int) -> nn.Linear:
    """Return a layer that whitens features."""
    codes = np.unique(labels, return_inverse=True)[1]
    weight, bias = whitening_layer(rows, codes, dim)
    return layer_of(weight, bias)


def pca_start(rows: Rows, dim: int) -> nn.Linear:
    """Return a layer that projects features on their first principal directions, without centering."""
    weight = np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :dim].T
    return layer_of(weight, np.zeros(dim))


def layer_of(weight: Rows, bias: Rows) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight.copy()))
        layer.bias.copy_(torch.from_numpy(bias))
    return layer


def trained(
    text: str,
    untrained: nn.Linear,
    rows: Rows,
    labels: Rows,
    rate: float,
    seed: int,
    settings: argparse.Namespace,
) -> nn.Linear:
    """Return the layer after so many batches of Adam with a cosine schedule."""
    torch.manual_seed(seed)
    codes = np.unique(labels, return_inverse=True)[1]
    layer = deepcopy(untrained)
    counts = np.bincount(codes).tolist()
    loss = parse_objective(text, num_classes=len(counts), embedding_dim=settings.dim, class_counts=counts)
    groups: list[dict[str, Any]] = [{"params": list(layer.parameters()), "lr": rate}]
    if list(loss.parameters()):
        groups.append({"params": list(loss.parameters()), "lr": PROXY_FACTOR * rate})
    optimizer = torch.optim.Adam(groups)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    x = torch.from_numpy(rows)
    y = torch.from_numpy(codes)
    for batch in islice(batches(codes, seed), settings.steps):
        value = loss(layer(x[batch]), y[batch])
        optimizer.zero_grad()
        if not value.requires_grad:  # a batch without a comparison
            continue
        value.backward()
        optimizer.step()
        schedule.step()
    return layer


def batches(codes: Rows, seed: int) -> Iterator[list[int]]:
    """Yield batches of 16 classes of 4 without end; of fewer classes where there are fewer."""
    per_batch = min(16, len(np.unique(codes)))
    sampler = MPerClassSampler(codes, m=4, batch_size=4 * per_batch, seed=seed)
    for epoch in count():
        sampler.set_epoch(epoch)
        yield from sampler


def apply(layer: nn.Linear, rows: Rows) -> Rows:
    with torch.no_grad():
        return layer(torch.from_numpy(rows)).numpy()


def score(rows: Rows, labels: Rows) -> tuple[float, float]:
    """Return Recall@1 and MAP@R by the cosine."""
    if not np.isfinite(rows).all():
        raise ValueError("the embeddings are not finite")
    found = evaluate(rows, labels, ks=(1,), clustering=False)
    return float(found.recall_at[1]), float(found.map_at_r)


def read_scores(folder: Path) -> list[dict[str, Any]]:
    file = folder / "scores.jsonl"
    if not file.is_file():
        return []
    results = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for one in results:
        if one["loss"] == "features as they are":  # the former name of the row
            one["loss"] = UNWHITENED
    return results


def table(results: list[dict[str, Any]]) -> str:
    """Return two tables in Markdown: losses, the best MAP@R first, and what each term adds to its loss."""
    by_loss: dict[str, dict[int, Rows]] = {}  # Recall@1 and MAP@R of each split, averaged over seeds
    for one in results:
        if "error" not in one:
            by_loss.setdefault(one["loss"], {})[one["split"]] = np.mean(one["scores"], axis=0)
    splits = sorted(by_loss[WHITENING])
    scores = {name: np.array([of[split] for split in splits]) for name, of in by_loss.items() if len(of) == len(splits)}
    gains = {
        name: of[:, 1] - scores[WHITENING][:, 1] for name, of in scores.items() if name not in (WHITENING, UNWHITENED)
    }
    corrected = holm({name: p_value(gain) for name, gain in gains.items()})
    lines = ["| loss | Recall@1 | MAP@R | MAP@R beyond the whitening | p (Holm) |", "|---|---:|---:|---:|---:|"]
    for name in sorted(scores, key=lambda one: -scores[one][:, 1].mean()):
        recall, precision = scores[name].mean(axis=0)
        if name in gains:
            cells = [
                f"`{name}`",
                f"{recall:.3f}",
                f"{precision:.3f}",
                difference(gains[name]),
                f"{corrected[name]:.2g}",
            ]
        else:
            cells = [name, f"{recall:.3f}", f"{precision:.3f}", "", ""]
        lines.append(f"| {' | '.join(cells)} |")

    added = {name: of - scores[loss_of(name)] for name, of in scores.items() if loss_of(name) in scores.keys() - {name}}
    corrected = holm({name: p_value(of[:, 1]) for name, of in added.items()})
    lines += ["", "| loss and term | Recall@1 | MAP@R | p (Holm) |", "|---|---:|---:|---:|"]
    for name, of in added.items():
        lines.append(f"| `{name}` | {difference(of[:, 0])} | {difference(of[:, 1])} | {corrected[name]:.2g} |")
    errors = {one["loss"]: one["error"] for one in results if "error" in one}
    lines += [f"\n`{name}` is left out: {error}" for name, error in errors.items()]
    return "\n".join(lines)


def loss_of(name: str) -> str:
    """Return the loss of an objective without its terms."""
    return name.split(" + ")[0]


if __name__ == "__main__":
    main()
