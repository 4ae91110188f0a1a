"""Whether local descriptors of a frozen network help to re-rank the first hits on classes that nothing has seen.

    python bench/local_matches.py photos.zip --splits 5 --cache runs/maps.npz --out runs/local \\
        --encoder "timm:mobilenetv1_100(pad_type='same', pretrained='weights.safetensors')"

Protocol: the splits are those of `heads.py`. A layer, principal directions or the closed-form whitening, embeds a
photo; the descriptors of its places go through this layer, too, so that their mean is the embedding. The first
`--depth` hits by the cosine are ranked again by `rerank_by_places`; those after them stay. The weight is the one of
WEIGHTS with the highest MAP@R on validation classes, with a layer of the others; 0 is among them. Then the layer is
learned from all training classes, and the test classes are scored once, also with a fixed weight of a half.

Scores are means over splits, with paired differences to the ranking by the cosine and 95% t-intervals. Times are
processor time of one thread: of the matches of a query, and of the network on an image.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from heads import apply, divided, pca_start, whitening_start
from numpy.typing import NDArray
from paired import difference
from zoo import append, evenly, read_cells

import nearfar
from nearfar.data import open_dataset
from nearfar.evaluation import local_scores, rerank_by_places
from nearfar.neighbors.nearest import nearest
from nearfar.train.encoder import load_encoder

Rows = NDArray[Any]
WEIGHTS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
FIXED = 0.5
ALIKE = {"in any arrangement": 100, "in one arrangement": 1}  # tolerance: above the size of a map, offsets are free
FEATURES = "principal directions"
WHITENED = "whitening"


class Photos(NamedTuple):
    """Embeddings (n, c), and descriptors of places (n, h, w, c), of which they are the mean."""

    rows: Rows
    maps: Rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", help="anything that nearfar train takes")
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--most", type=int, default=20, help="photos of a class")
    parser.add_argument("--depth", type=int, default=30, help="hits that are ranked again")
    parser.add_argument("--dim", type=int, default=128, help="dimensions of the embedding, and of the descriptors")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--cache", type=Path, required=True, help="an .npz for the maps")
    parser.add_argument("--out", type=Path, required=True)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    settings.out.mkdir(parents=True, exist_ok=True)
    print(f"nearfar {nearfar.__version__}, NumPy {np.__version__}, torch {torch.__version__}", flush=True)
    maps, labels = maps_of(settings)
    done = {(line["split"], line["of"]) for line in read_cells(settings.out)}
    for split in range(settings.splits):
        inner, validation, training, test = divided(labels, split)
        for of in (FEATURES, WHITENED):
            if (split, of) in done:
                continue
            tried = ranked(
                mapped(of, maps, labels, inner, validation, settings.dim), labels[validation], settings.depth
            )
            asked = ranked(mapped(of, maps, labels, training, test, settings.dim), labels[test], settings.depth)
            scores = {"none": list(asked["none"][0.0])}
            for how in ALIKE:
                chosen = max(WEIGHTS, key=lambda weight: tried[how][weight][1])
                scores |= {f"{how}, chosen": list(asked[how][chosen]), f"{how}, {FIXED}": list(asked[how][FIXED])}
                scores[f"{how}, weight"] = [chosen]
            append(settings.out, {"split": split, "of": of, "scores": scores, "seconds": asked["seconds"]})
    print(table(read_cells(settings.out)))


def maps_of(settings: Namespace) -> tuple[Rows, Rows]:
    """Return the maps (n, h, w, c) of all photos whose mean has unit length, and their classes (n,)."""
    if not settings.cache.is_file():
        items = open_dataset(settings.photos)
        items = items.subset(evenly(items.labels, settings.most))
        encoder = load_encoder(settings.encoder)
        start = process_time()
        maps = encoder.embed(items, layer="places")
        print(f"{1000 * (process_time() - start) / len(items):.1f} ms for each photo", flush=True)
        np.savez(settings.cache, maps=maps.astype(np.float16), labels=items.labels)
    with np.load(settings.cache) as stored:
        maps = stored["maps"].astype(np.float32)
        maps /= np.linalg.norm(maps.mean(axis=(1, 2)), axis=1)[:, None, None, None]
        return maps, stored["labels"]


def mapped(of: str, maps: Rows, labels: Rows, learned: Rows, asked: Rows, dim: int) -> Photos:
    """Return what is asked, through a layer that is made of other photos: principal directions, or the whitening."""
    rows = maps[learned].mean(axis=(1, 2))
    layer = whitening_start(rows, labels[learned], dim) if of == WHITENED else pca_start(rows, dim)
    of_asked = maps[asked]
    places = apply(layer, of_asked.reshape(-1, maps.shape[3])).reshape(*of_asked.shape[:3], dim)
    return Photos(places.mean(axis=(1, 2)), places)


def ranked(photos: Photos, labels: Rows, depth: int) -> dict[str, Any]:
    """Return Recall@1 and MAP@R of each way to match and each weight, and the seconds of a query."""
    distances, candidates = nearest(photos.rows, photos.rows, depth, distance="cosine", exclude_self=True)
    found: dict[str, Any] = {"none": {0.0: scores_of(candidates, labels)}}
    for how, tolerance in ALIKE.items():
        start = process_time()
        local = local_scores(photos.maps, photos.maps, candidates, tolerance=tolerance)
        found["seconds"] = (process_time() - start) / len(labels)
        again = partial(rerank_by_places, 1 - distances, local, candidates)
        found[how] = {weight: scores_of(again(weight=weight).indices, labels) for weight in WEIGHTS}
    return found


def scores_of(hits: Rows, labels: Rows) -> tuple[float, float]:
    """Return Recall@1, and MAP@R of a list of hits that is at least as long as each class."""
    right = labels[hits] == labels[:, None]  # (n, depth)
    R = np.bincount(labels, minlength=labels.max() + 1)[labels] - 1  # (n,)
    within = np.arange(hits.shape[1]) < R[:, None]
    precision = np.cumsum(right, axis=1) / np.arange(1, hits.shape[1] + 1)
    average = np.where(right & within, precision, 0).sum(axis=1) / np.maximum(R, 1)
    return round(float(right[:, 0].mean()), 5), round(float(average.mean()), 5)


def table(cells: list[dict[str, Any]]) -> str:
    """Return the means over splits, and the paired differences to the ranking by the cosine."""
    lines = ["| embedding | first hits ranked again | Recall@1 | MAP@R | weights |", "|---|---|---:|---:|---|"]
    for of in (FEATURES, WHITENED):
        splits = [cell["scores"] for cell in cells if cell["of"] == of]
        without = np.array([scores["none"] for scores in splits])
        recall, precision = without.mean(axis=0)
        lines.append(f"| {of} | no | {recall:.3f} | {precision:.3f} | |")
        for how in ALIKE:
            weights = " ".join(f"{scores[f'{how}, weight'][0]:g}" for scores in splits)
            for which, shown in (("chosen", weights), (str(FIXED), f"{FIXED:g}")):
                gains = np.array([scores[f"{how}, {which}"] for scores in splits]) - without
                lines.append(f"| {of} | {how} | {difference(gains[:, 0])} | {difference(gains[:, 1])} | {shown} |")
    seconds = np.mean([cell["seconds"] for cell in cells])
    return "\n".join([*lines, "", f"{1000 * seconds:.1f} ms for the matches of a query"])


if __name__ == "__main__":
    main()
