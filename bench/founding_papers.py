"""What the three founding papers add to a linear layer on frozen features of texts, sounds or photos.

    python bench/atlas.py CLINC150=clinc150.csv words=spoken.csv --texts MiniLM=transformers:minilm \\
        --sounds GE2E=ge2e:pretrained.pt --most 3000 --extract --cache runs/features --out runs/atlas
    python bench/founding_papers.py "runs/features/CLINC150, MiniLM.npz" "runs/features/words, GE2E.npz" \\
        --out runs/founding --write docs/measured/founding_papers.csv

The papers are JRD (JRS, JMMD and JIntra, here beside AM-softmax), CML (energy and diversity confusion beside triplet,
N-pair and binomial losses) and facility location (compared with semi-hard triplets, lifted structure and N-pairs).

Protocol: splits, budget and the layer are those of `heads.py`: half of the classes are the test, and a third of the
others validate. The layer starts from principal directions and learns for 100 batches of 16 classes of 4. Each
objective takes the learning rate, and a term also its weight, with the highest MAP@R on the validation classes, learns
again from all training classes with each seed, and is scored once on the test classes.

A line of the table is a paired difference: of a loss with a term to the loss alone, or of facility location to another
loss. Scores are means over seeds; intervals are 95% t-intervals over splits, and p-values of MAP@R are corrected by
Holm's method over all lines of all sets. `scores.jsonl` in the folder holds what is finished, which is not repeated.
"""

from __future__ import annotations

import argparse
import csv
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from heads import RATES, apply, divided, pca_start, score, trained
from numpy.typing import NDArray
from paired import difference, holm, p_value
from torch import nn
from zoo import append, read_cells

import nearfar
from nearfar.evaluation import evaluate

Rows = NDArray[Any]
SCORES = ("Recall@1", "MAP@R", "NMI")
SOFTMAX = "AMSoftmaxLoss(scale=20, margin=0.1)"
FACILITY = "FacilityLocationLoss()"
COMPARED = ("TripletLoss(miner=BatchSemiHard())", "LiftedLoss()", "NPairLoss()")
"""What facility location is compared with in its paper."""
CONFUSED = ("TripletLoss()", "NPairLoss()", "BinomialDevianceLoss()")
WITHIN = "layers=('embedding', 'class')"  # a linear layer on frozen features has no other
TERMS = {  # each term with its loss, and the weights from which validation classes choose
    **{f"{SOFTMAX} + {{}}*{name}({WITHIN})": (0.1, 1.0, 10.0) for name in ("JRS", "JMMD", "JIntra")},
    **{
        f"{loss} + {{}}*{name}()": (0.02, 0.2, 2.0)
        for loss in CONFUSED
        for name in ("EnergyConfusion", "DiversityConfusion")
    },
}
OBJECTIVES = dict.fromkeys((FACILITY, *COMPARED, SOFTMAX, *CONFUSED), (1.0,)) | TERMS


class Line(NamedTuple):
    """A paired difference: the scores of one objective minus those of another."""

    title: str
    of: str
    to: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="*", type=Path, help="files that atlas.py --extract has written")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100, help="batches of a training")
    parser.add_argument("--dim", type=int, default=128, help="dimensions of the layer")
    parser.add_argument("--write", type=Path, help="the table as a file")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    settings.out.mkdir(parents=True, exist_ok=True)
    print(f"nearfar {nearfar.__version__}, NumPy {np.__version__}, torch {torch.__version__}", flush=True)
    known = {file.stem: read(file) for file in settings.features}
    for split in range(settings.splits):
        for name, (rows, labels) in known.items():
            measure(name, rows, labels, split, settings)
    table = [*lines_of(read_cells(settings.out))]
    print("\n".join(f"| {' | '.join(cells)} |" for cells in table))
    if settings.write is not None:
        with settings.write.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(table)


def read(file: Path) -> tuple[Rows, Rows]:
    """Return features of unit length and labels."""
    with np.load(file) as stored:
        rows = stored["rows"].astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True), stored["labels"]


def measure(name: str, rows: Rows, labels: Rows, split: int, settings: Namespace) -> None:
    """Train and score every objective on a split, but for those that are finished."""
    done = {cell["objective"] for cell in read_cells(settings.out) if (cell["set"], cell["split"]) == (name, split)}
    inner, validation, training, test = divided(labels, split)
    first = pca_start(rows[inner], settings.dim)
    start = pca_start(rows[training], settings.dim)
    for template, weights in OBJECTIVES.items():
        if template in done:
            continue
        begun = process_time()
        found = {
            (weight, rate): score(
                apply(
                    learned(template.format(weight), first, rows, labels, inner, rate, 0, settings), rows[validation]
                ),
                labels[validation],
            )[1]
            for weight in weights
            for rate in RATES
        }
        weight, rate = max(found, key=lambda one: found[one])
        scores = []
        for seed in range(settings.seeds):
            layer = learned(template.format(weight), start, rows, labels, training, rate, seed, settings)
            scores.append(all_scores(apply(layer, rows[test]), labels[test]))
        cell = {"set": name, "split": split, "objective": template, "weight": weight, "rate": rate, "scores": scores}
        append(settings.out, cell | {"seconds": round(process_time() - begun, 2)})


def learned(
    text: str, start: nn.Linear, rows: Rows, labels: Rows, part: Rows, rate: float, seed: int, settings: Namespace
) -> nn.Linear:
    return trained(text, start, rows[part], labels[part], rate, seed, settings)


def all_scores(rows: Rows, labels: Rows) -> list[float]:
    """Return Recall@1, MAP@R and NMI by the cosine."""
    found = evaluate(rows, labels, ks=(1,))
    assert found.nmi is not None  # clustering is on
    return [round(float(one), 5) for one in (found.recall_at[1], found.map_at_r, found.nmi)]


def lines() -> Iterator[Line]:
    """Yield the comparisons of the papers."""
    for template in TERMS:
        loss, term = template.split(" + {}*")
        yield Line(f"`{loss} + {term.partition('(')[0]}`", template, loss)
    for loss in COMPARED:
        yield Line(f"`{FACILITY}` instead of `{loss}`", FACILITY, loss)


def lines_of(cells: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield the table: a line for each comparison and set whose splits are all finished."""
    means: dict[tuple[str, str, int], Rows] = {
        (cell["set"], cell["objective"], cell["split"]): np.mean(cell["scores"], axis=0) for cell in cells
    }
    weights = {(cell["set"], cell["objective"], cell["split"]): cell["weight"] for cell in cells}
    found: dict[str, tuple[Line, str, list[int], Rows]] = {}
    for line in lines():
        for name in dict.fromkeys(cell["set"] for cell in cells):
            splits = sorted(split for (one, of, split) in means if (one, of) == (name, line.of))
            gains = [means[name, line.of, i] - means[name, line.to, i] for i in splits if (name, line.to, i) in means]
            if len(gains) > 1 and len(gains) == len(splits):
                found[f"{name}: {line.title}"] = (line, name, splits, np.array(gains))
    corrected = holm({key: p_value(gains[:, 1]) for key, (*_, gains) in found.items()})
    yield ["set", "comparison", "MAP@R of the other", *SCORES, "p (Holm)", "weights"]
    for key, (line, name, splits, paired) in found.items():
        without = np.mean([means[name, line.to, split][1] for split in splits])
        chosen = " ".join(f"{weights[name, line.of, split]:g}" for split in splits) if line.of in TERMS else ""
        differences = [difference(paired[:, column]) for column in range(len(SCORES))]
        yield [name, line.title, f"{without:.3f}", *differences, f"{corrected[key]:.2g}", chosen]


if __name__ == "__main__":
    main()
