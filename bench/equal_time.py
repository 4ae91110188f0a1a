"""MAP@R on unseen products of a fine-tuned network, and of one fine-tuned by a plain PyTorch loop in the same time.

    python bench/equal_time.py photos/ --model mobilenetv1_100 --splits 3

Both sides start from the same pretrained network of timm, see photos at `--side` pixels, keep the statistics of batch
normalization, and learn with SupCon at temperature 0.2, 4 photos of each of 16 classes in a batch, AdamW, a cosine
schedule, crops, mirrors and bfloat16. nearfar trains with the recipe `photos/finetune`, and its processor time is the
budget of the plain loop, which makes as many steps as fit into it. The plain loop takes the best of four learning
rates on validation classes, a third of the training classes of the first split. Each split draws half of the classes as
the test.

`--weights FILE` loads a file instead of timm's own weights, `--model-args` and `--mean` and `--std` say how it is used.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from finetune import random_half
from photos import PlainPhotos, supcon
from safetensors.torch import load_file
from timm.data.transforms_factory import create_transform
from torch import nn

import nearfar
from nearfar.evaluation import evaluate
from nearfar.evaluation.intervals import interval
from nearfar.train import TrainConfig, evaluate_run, train
from nearfar.train.recipes import recipe

RATES = (7e-6, 2e-5, 6e-5, 2e-4)  # of the network in the plain loop
HEAD_FACTOR = 10.0  # the layer on top is new, and learns faster
DIM = 512
TEMPERATURE = 0.2
BATCH = 64
PER_CLASS = 4  # photos of a class in a batch
WARMUP = 0.25  # share of the first epoch, as in the recipe
TRIAL_STEPS = 4  # that tell how long a step takes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder of class folders")
    parser.add_argument("--model", default="mobilenetv1_100", help="a model of timm")
    parser.add_argument("--model-args", type=json.loads, default={}, help='such as {"pad_type": "same"}')
    parser.add_argument("--weights", type=Path, help="a file of weights; without it, those of timm")
    parser.add_argument("--mean", type=float, default=0.5, help="of each channel")
    parser.add_argument("--std", type=float, default=0.5, help="of each channel")
    parser.add_argument("--side", type=int, default=128, help="pixels")
    parser.add_argument("--splits", type=int, default=3)
    settings = parser.parse_args()

    print(f"nearfar {nearfar.__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    names = sorted(path.name for path in settings.data.iterdir() if path.is_dir())
    seconds, _ = recipe_on(random_half(names, 0), settings)
    rate = best_rate(names, random_half(names, 0), seconds, settings)
    print(f"plain loop: learning rate {rate:g}")
    gains = []
    for split in range(settings.splits):
        unseen = random_half(names, split)
        seconds, ours = recipe_on(unseen, settings)
        seen = [name for name in names if name not in unseen]
        plain, steps = plain_loop(seen, unseen, rate, seconds, settings)
        gains.append(ours - plain)
        print(f"split {split}, {seconds:.0f} s: nearfar {ours:.3f}, plain loop {plain:.3f} ({steps} steps)", flush=True)
    if len(gains) > 1:
        difference = interval(np.array(gains))
        print(f"difference: {difference.mean:+.3f} ± {difference.half:.3f} (95% t-interval over splits)")


def recipe_on(unseen: tuple[str, ...], settings: argparse.Namespace) -> tuple[float, float]:
    """Train with the recipe; return the processor time of the training and the MAP@R on unseen classes."""
    arguments = {**settings.model_args, "mean": settings.mean, "std": settings.std}
    text = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    fields = recipe("photos/finetune") | {
        "data": str(settings.data),
        "test_classes": unseen,
        "trunk": f"timm:{settings.model}({text})",
        "pretrained": True if settings.weights is None else str(settings.weights),
        "image_size": settings.side,
        "resize": settings.side,
        "precision": "bf16",
        "validation": 0.0,
        "metric": "none",
        "log_every": 10_000,
        "eval_every": 10_000,
    }
    folder = Path(tempfile.mkdtemp())
    start = time.process_time()
    train(TrainConfig.of(**fields), folder / "run", progress=False)
    seconds = time.process_time() - start
    score = float(evaluate_run(folder / "run").scores.map_at_r)
    shutil.rmtree(folder)
    return seconds, score


def best_rate(names: list[str], unseen: tuple[str, ...], seconds: float, settings: argparse.Namespace) -> float:
    """Return the learning rate with which the plain loop is best on a third of the training classes."""
    seen = [name for name in names if name not in unseen]
    held_out = [seen[i] for i in np.random.default_rng(0).permutation(len(seen))[: len(seen) // 3]]
    rest = [name for name in seen if name not in held_out]
    scores = {}
    for rate in RATES:
        scores[rate], _ = plain_loop(rest, tuple(held_out), rate, seconds, settings)
        print(f"plain loop, validation: learning rate {rate:g}, MAP@R {scores[rate]:.3f}", flush=True)
    return max(RATES, key=lambda rate: scores[rate])


def plain_loop(
    seen: list[str], unseen: tuple[str, ...], rate: float, seconds: float, settings: argparse.Namespace
) -> tuple[float, int]:
    """Train a plain loop for as many steps as fit into the seconds; return its MAP@R on unseen classes, and them."""
    torch.manual_seed(0)
    photos = PlainPhotos(settings.data, transform_of(settings, is_training=True), seen)
    labels = np.array([c for _, c in photos.files])
    start = time.process_time()
    train_plainly(*new_network(settings, rate), photos, labels, steps=TRIAL_STEPS, epoch=1)
    steps = int(seconds / ((time.process_time() - start) / TRIAL_STEPS))
    network, optimizer = new_network(settings, rate)
    train_plainly(network, optimizer, photos, labels, steps=steps, epoch=len(photos) // BATCH)

    test = PlainPhotos(settings.data, transform_of(settings, is_training=False), list(unseen))
    loader = torch.utils.data.DataLoader(test, batch_size=32)
    network.eval()
    with torch.inference_mode():
        rows = torch.cat([network(images) for images, _ in loader])
    return float(evaluate(rows, np.array([c for _, c in test.files])).map_at_r), steps


def transform_of(settings: argparse.Namespace, *, is_training: bool) -> Any:
    """Return timm's transforms."""
    statistics = {"mean": (settings.mean,) * 3, "std": (settings.std,) * 3}
    if not is_training:
        return create_transform(settings.side, is_training=False, crop_pct=1.0, **statistics)
    return create_transform(
        settings.side,
        is_training=True,
        scale=(0.6, 1),
        hflip=0.5,
        color_jitter=0.0,
        auto_augment=None,
        re_prob=0,
        **statistics,
    )


def new_network(settings: argparse.Namespace, rate: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a pretrained network with a linear layer, and its optimizer."""
    trunk: Any = timm.create_model(
        settings.model, pretrained=settings.weights is None, num_classes=0, **settings.model_args
    )
    if settings.weights is not None:
        trunk.load_state_dict(load_file(settings.weights))
    head = nn.Linear(trunk.num_features, DIM)
    groups = [
        {"params": trunk.parameters(), "lr": rate},
        {"params": head.parameters(), "lr": HEAD_FACTOR * rate},
    ]
    network: Any = nn.Sequential(trunk, head)
    return network.to(memory_format=torch.channels_last), torch.optim.AdamW(groups, weight_decay=1e-4)


def train_plainly(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    photos: PlainPhotos,
    labels: np.ndarray[Any, Any],
    *,
    steps: int,
    epoch: int,
) -> None:
    """Train for a number of steps."""
    network.train()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    warmup = max(1, round(WARMUP * epoch))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / warmup) * (1 + math.cos(math.pi * step / steps)) / 2
    )
    loader = torch.utils.data.DataLoader(photos, batch_sampler=list(batches(labels, steps)))
    for images, classes in loader:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            embeddings = network(images.contiguous(memory_format=torch.channels_last))
        supcon(embeddings.float(), classes, TEMPERATURE).backward()
        optimizer.step()
        schedule.step()


def batches(labels: np.ndarray[Any, Any], steps: int) -> Iterator[list[int]]:
    """Draw batches with PER_CLASS photos of each class."""
    rng = np.random.default_rng(0)
    rows = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    for _ in range(steps):
        classes = rng.choice(len(rows), BATCH // PER_CLASS, replace=False)
        yield [int(i) for c in classes for i in rng.choice(rows[c], PER_CLASS, replace=False)]


if __name__ == "__main__":
    main()
