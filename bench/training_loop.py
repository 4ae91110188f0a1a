"""Processor time of a training step, beside a plain loop of PyTorch with the same network, loss and items.

    python bench/training_loop.py                                    conv4 on glyphs, texts (two minutes)
    python bench/training_loop.py --trunks conv4 mobilenetv2_100     with photos, which need timm
    python bench/training_loop.py --text-model models/minilm         a text network from a folder

Both sides update all weights with AdamW and SupCon on batches of 4 items a class, in float32 on one thread, in the same
process. The plain loop does nothing else: it has no checks, no log, and no checkpoint. Images of conv4 are in memory,
photos are decoded and cropped by both sides (the plain loop as timm does), and the plain loop pads texts to the longest
of their batch, where nearfar computes texts of similar length together. Without `--text-model`, a network of random
weights has the size of MiniLM (6 layers of 384). The sides take turns: of each round counts the median step after the
first ones, and the table has the median over the rounds. A ratio below 1 says that nearfar is faster.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import torch
from photos import PlainBatches, PlainPhotos, drawn_photos, supcon
from torch import Tensor, nn

import nearfar
from nearfar.data import open_dataset
from nearfar.train import TrainConfig, Watcher, train
from nearfar.train.features import as_floats
from nearfar.train.network import make_embedder

SKIPPED = 2  # steps at the beginning of a round
PER_CLASS = 4
DIM = 128
PIXELS = 128


class Steps(Watcher):
    """Keeps the processor time at the end of each step."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step(self, step: int, epoch: int, record: Mapping[str, Any] | None) -> None:
        self.ends.append(process_time())

    def on_epoch(self, row: Mapping[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


def step_time(ends: list[float]) -> float:
    """Return the median milliseconds of a step."""
    return 1e3 * median(after - before for before, after in pairwise(ends[SKIPPED - 1 :]))


def our_step(settings: Mapping[str, Any], steps: int, batch: int) -> float:
    watcher = Steps()
    config = TrainConfig.of(
        validation=0.0,
        objective="SupConLoss(temperature=0.1)",
        embedding_dim=DIM,
        sampler=f"m_per_class:{PER_CLASS}",
        batch_size=batch,
        steps=steps,
        optimizer="adamw",
        lr=1e-4,
        workers=0,
        log_every=10_000,
        eval_every=10_000,
        **settings,
    )
    with tempfile.TemporaryDirectory() as out:
        train(config, Path(out) / "run", progress=False, watchers=[watcher])
    return step_time(watcher.ends)


def plain_step(model: nn.Module, batches: Iterator[tuple[Any, Tensor]]) -> float:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ends = []
    for items, labels in batches:
        optimizer.zero_grad(set_to_none=True)
        found = model(items)
        supcon(getattr(found, "embedding", found), labels).backward()
        optimizer.step()
        ends.append(process_time())
    return step_time(ends)


def conv4(steps: int, batch: int) -> tuple[dict[str, Any], Callable[[], float]]:
    """Glyphs in memory through a small network."""
    items = open_dataset("glyphs")
    images = torch.as_tensor(np.stack([items.read(i) for i in range(len(items))])).permute(0, 3, 1, 2)
    labels = torch.as_tensor(items.labels)
    config = TrainConfig.of(data="glyphs", trunk="conv4", embedding_dim=DIM)

    def ready() -> Iterator[tuple[Tensor, Tensor]]:
        for rows in PlainBatches(labels.tolist(), batch, steps):
            yield as_floats(images[rows]), labels[rows]

    def plain() -> float:
        model = make_embedder(config, tuple(images.shape[1:])).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # declared too narrowly
        return plain_step(model.train(), ready())

    return {"data": "glyphs", "trunk": "conv4"}, plain


def photos(trunk: str, folder: Path, steps: int, batch: int) -> tuple[dict[str, Any], Callable[[], float]]:
    """Drawn photos through a network of timm."""
    import timm
    from timm.data.transforms_factory import create_transform

    drawn_photos(folder)
    plain_crops = {"scale": (0.6, 1), "hflip": 0.5, "color_jitter": 0.0, "auto_augment": None, "re_prob": 0}
    transform = create_transform(PIXELS, is_training=True, **plain_crops)
    files = PlainPhotos(folder, transform)
    labels = [c for _, c in files.files]

    def plain() -> float:
        trunk_of_timm: Any = timm.create_model(trunk, pretrained=False, num_classes=0)
        model = nn.Sequential(trunk_of_timm, nn.Linear(trunk_of_timm.num_features, DIM))
        model.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]  # declared too narrowly
        loader = torch.utils.data.DataLoader(files, batch_sampler=PlainBatches(labels, batch, steps))
        return plain_step(model, iter(loader))

    ours = {"data": str(folder), "trunk": f"timm:{trunk}", "image_size": PIXELS}
    return ours | {"augment": "resized_crop(area=(0.6, 1)), mirror"}, plain


class MeanOfTokens(nn.Module):
    """A text network with a linear layer on the mean of its tokens."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        from transformers import AutoModel

        self.trunk: Any = AutoModel.from_pretrained(folder)
        self.layer = nn.Linear(self.trunk.config.hidden_size, DIM)

    def forward(self, tokens: Mapping[str, Tensor]) -> Tensor:
        hidden = self.trunk(**tokens).last_hidden_state
        mask = tokens["attention_mask"][:, :, None]
        return self.layer((hidden * mask).sum(1) / mask.sum(1))


def texts(folder: Path, model: Path | None, steps: int, batch: int) -> tuple[dict[str, Any], Callable[[], float]]:
    """Texts of 4 to 40 drawn words through a transformer."""
    from transformers import AutoTokenizer

    words = [f"word{k}" for k in range(2000)]
    model = model or drawn_text_model(folder / "model", words)
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 16)
    drawn = [" ".join(rng.choice(words, int(rng.integers(4, 40)))) for _ in labels]
    with (folder / "texts.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *zip(drawn, labels, strict=True)])

    def plain() -> float:
        tokenizer = AutoTokenizer.from_pretrained(model)

        def ready() -> Iterator[tuple[Any, Tensor]]:
            for rows in PlainBatches(labels.tolist(), batch, steps):
                tokens = tokenizer([drawn[i] for i in rows], padding=True, truncation=True, return_tensors="pt")
                yield tokens, torch.as_tensor(labels[rows])

        return plain_step(MeanOfTokens(model).train(), ready())

    return {"data": str(folder / "texts.csv"), "trunk": f"transformers:{model}"}, plain


def drawn_text_model(folder: Path, words: list[str]) -> Path:
    """Save a network of the size of MiniLM with random weights, and its tokenizer."""
    from transformers import BertConfig, BertModel, BertTokenizer

    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    BertTokenizer(str(folder / "vocab.txt"), model_max_length=128).save_pretrained(folder)
    shape: dict[str, Any] = {"num_hidden_layers": 6, "num_attention_heads": 12, "vocab_size": len(vocabulary)}
    BertModel(BertConfig(hidden_size=384, intermediate_size=1536, **shape)).save_pretrained(folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trunks", nargs="*", default=["conv4", "texts"], help="conv4, texts, models of timm")
    parser.add_argument("--text-model", type=Path, help="a folder with a model of transformers")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"nearfar {nearfar.__version__}, torch {torch.__version__}, 1 thread, batches of {given.batch}\n")
    print("trunk,nearfar ms,plain ms,ratio,least ratio,largest ratio")
    for trunk in given.trunks:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            makers: dict[str, Any] = {"conv4": conv4, "texts": partial(texts, folder, given.text_model)}
            maker = makers.get(trunk, partial(photos, trunk, folder / "photos"))
            settings, plain = maker(steps=given.steps, batch=given.batch)
            pairs = [(our_step(settings, given.steps, given.batch), plain()) for _ in range(given.rounds)]
            ours, theirs = (median(side) for side in zip(*pairs, strict=True))
            ratios = sorted(a / b for a, b in pairs)
            shown = f"{median(ratios):.2f},{ratios[0]:.2f},{ratios[-1]:.2f}"
            print(f"{trunk},{ours:.1f},{theirs:.1f},{shown}", flush=True)


if __name__ == "__main__":
    main()
