"""Processor time of embedding photos, texts and sounds, beside the bare forward pass of the same network.

    python bench/embedding_cost.py                      photos of 12 megapixels, texts, sounds (two minutes)
    python bench/embedding_cost.py --trunk resnet50     another network for the photos

The bare forward pass gets tensors that are ready: batches of the same sizes, in the same order. Ours begins with files
(JPEG) or texts: it reads, decodes and resizes, or orders and pads. Networks have random weights, and run on one thread.
Both sides take turns, and the table has the least processor time of `--rounds`, the ratio, and what decoding takes
alone, below which no library comes. Shrunk copies of photos are not kept, except in the rows "again".
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.data import open_dataset
from nearfar.data.decode import decode_square
from nearfar.data.loader import make_loader
from nearfar.data.shrunk import VARIABLE
from nearfar.train import TrainConfig
from nearfar.train.features import as_floats, embed, encode_texts
from nearfar.train.network import make_embedder

SIDE = 224
RESIZE = 256


def drawn_photos(folder: Path, number: int) -> Path:
    """Save smooth patterns with noise at 4,000 x 3,000 pixels as JPEG, 3 to 4 MB each as those of phones."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for k in range(number):
        path = folder / f"class{k % 4}"
        path.mkdir(parents=True, exist_ok=True)
        coarse = rng.integers(0, 256, size=(30, 40, 3), dtype=np.uint8)
        pixels = np.asarray(Image.fromarray(coarse).resize((4000, 3000), Image.Resampling.BICUBIC), dtype=np.int16)
        grain = rng.integers(-9, 10, size=(3000, 4000, 1), dtype=np.int16)
        Image.fromarray(np.clip(pixels + grain, 0, 255).astype(np.uint8)).save(path / f"{k:03}.jpg", quality=88)
    return folder


def cpu(work: Callable[[], Any]) -> float:
    begun = process_time()
    work()
    return process_time() - begun


def line(name: str, number: int, ours: list[float], bare: list[float], before: list[float]) -> str:
    least = [min(side) for side in (ours, bare, before)]
    ms = [f"{1e3 * value / number:.2f}" for value in least]
    return f"{name},{ms[0]},{ms[1]},{least[0] / least[1]:.2f},{ms[2]},{least[0] / (least[1] + least[2]):.2f}"


def photos(folder: Path, trunk: str, number: int, rounds: int) -> list[str]:
    """Photos that are decoded, and again from their shrunk copies."""
    items = open_dataset(str(drawn_photos(folder, number)))
    config = TrainConfig.of(data="digits", trunk=trunk, pretrained=False, image_size=SIDE, resize=RESIZE)
    embedder = make_embedder(config, (3, SIDE, SIDE)).eval()
    sizes: dict[str, Any] = {"image_size": SIDE, "resize": RESIZE}
    files = [path.read_bytes() for path in sorted(folder.rglob("*.jpg"))]
    os.environ[VARIABLE] = "0"
    batches = [as_floats(batch) for batch, _, _ in make_loader(items, batch_size=32, **sizes)]
    found = []
    for name, copies in (("photos", "0"), ("photos again", "1")):
        os.environ[VARIABLE] = copies
        items = open_dataset(str(folder))
        if copies != "0":
            embed(embedder, items, workers=0, **sizes)
        ours: list[float] = []
        bare: list[float] = []
        before: list[float] = []
        for _ in range(rounds):
            ours.append(cpu(partial(embed, embedder, items, workers=0, **sizes)))
            bare.append(cpu(lambda: forward(embedder, batches)))
            before.append(
                cpu(lambda: [decode_square(data, "", RESIZE, SIDE) for data in files]) if copies == "0" else 0.0
            )
        found.append(line(f"{name} {trunk}", number, ours, bare, before))
    return found


@torch.inference_mode()
def forward(network: Any, batches: list[Tensor]) -> None:
    for batch in batches:
        network(batch)


def texts(number: int, rounds: int) -> list[str]:
    """Rows of tokens of 4 to 120 words through a text network of the size of MiniLM (6 layers of 384)."""
    from transformers import BertConfig, BertModel

    rng = np.random.default_rng(0)
    shape: dict[str, Any] = {"num_hidden_layers": 6, "num_attention_heads": 12}
    model: Any = BertModel(BertConfig(hidden_size=384, intermediate_size=1536, **shape), add_pooling_layer=False)
    model.train(False)
    lengths = np.clip(rng.lognormal(3, 0.7, number).astype(int), 4, 120)
    rows = np.full((number, lengths.max()), -1)
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = rng.integers(5, 20_000, length)

    def mean_of_tokens(batch: Tensor) -> Tensor:
        mask = batch >= 0
        hidden = model(batch.clamp_min(0), attention_mask=mask.long()).last_hidden_state
        return (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)

    ready: list[Tensor] = []

    def collected(batch: Tensor) -> Tensor:
        ready.append(batch)
        return batch[:, :1].float()

    encode_texts(collected, rows)
    ours = []
    bare = []
    for _ in range(rounds):
        ours.append(cpu(lambda: encode_texts(mean_of_tokens, rows)))
        bare.append(cpu(lambda: forward(mean_of_tokens, ready)))
    return [line("texts (6 layers of 384)", number, ours, bare, [0.0])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trunk", nargs="+", default=["conv4", "bn_inception"])
    parser.add_argument("--photos", type=int, default=24)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("items,ms,bare forward ms,times bare,decoding alone ms,times both")
    for trunk in given.trunk:
        with tempfile.TemporaryDirectory() as scratch:
            for row in photos(Path(scratch), trunk, given.photos, given.rounds):
                print(row, flush=True)
    for row in texts(given.texts, given.rounds):
        print(row, flush=True)


if __name__ == "__main__":
    main()
