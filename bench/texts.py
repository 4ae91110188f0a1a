"""Compare the time to embed texts with that of sentence-transformers, on the same model and the same texts.

    python bench/texts.py models/minilm clinc150.csv banking77.csv

Both read the folder of the model and embed the column `text` of each table, in turns, so that other programs disturb
both alike. A set with long texts is made of the first table: in every 50 texts, one is 25 of them in a row. The ratio
is the median over the rounds of the CPU time of nearfar divided by that of sentence-transformers: below 1, nearfar is
faster.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import nearfar

LONG_ONES = 50  # one text of so many is long
PARTS = 25  # texts that a long one is made of


def main() -> None:
    """Print a line for each set of texts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a text model")
    parser.add_argument("tables", nargs="+", type=Path, help=".csv tables with the column `text`")
    parser.add_argument("--texts", type=int, default=500, help="number of texts of each table, drawn at random")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    settings = parser.parse_args()
    from sentence_transformers import SentenceTransformer, __version__

    torch.set_num_threads(settings.threads)
    own = nearfar.load(f"transformers:{settings.model}")
    peer = SentenceTransformer(settings.model, device="cpu")
    ways: dict[str, Callable[[list[str]], Any]] = {
        "nearfar": lambda texts: own.embed(texts),
        "peer": lambda texts: peer.encode(texts, show_progress_bar=False),
    }
    print(f"| texts | nearfar, CPU s | sentence-transformers {__version__}, CPU s | ratio | largest difference |")
    print("|---|---|---|---|---|")
    for name, texts in sets_of(settings.tables, settings.texts):
        times: dict[str, list[float]] = {way: [] for way in ways}
        found = {}
        for _ in range(settings.rounds):
            for way, embed in ways.items():
                begin = time.process_time()
                found[way] = embed(texts)
                times[way].append(time.process_time() - begin)
        ratio = np.median(np.divide(times["nearfar"], times["peer"]))
        off = np.abs(found["nearfar"] - found["peer"]).max()
        shown = " | ".join(f"{np.median(seconds):.2f}" for seconds in times.values())
        print(f"| {name}, {len(texts):,} | {shown} | {ratio:.2f} | {off:.0e} |", flush=True)


def sets_of(tables: list[Path], count: int) -> list[tuple[str, list[str]]]:
    """Return the texts of each table, and those of the first one with some long ones among them."""
    rng = np.random.default_rng(0)
    sets = []
    for table in tables:
        with table.open(encoding="utf-8", newline="") as file:
            texts = [row["text"] for row in csv.DictReader(file)]
        chosen = rng.permutation(len(texts))[:count]
        sets.append((table.stem, [texts[i] for i in chosen]))
    name, texts = sets[0]
    mixed = list(texts)
    for i in range(0, len(mixed), LONG_ONES):
        mixed[i] = " ".join(texts[i : i + PARTS])
    return [*sets, (f"{name} with long texts", mixed)]


if __name__ == "__main__":
    main()
