"""Images per second of training and of embedding photographs, beside a plain PyTorch loop with timm's transforms.

    python bench/photos.py [--data FOLDER] [--trunk resnet18] [--side 128] [--batch 64] [--steps 12] [--rounds 3]

Both sides train the same model of timm with random weights, the same loss (SupCon, with frozen statistics of batch
normalization), AdamW, crops and mirrors, in float32, with as many loader processes; then they embed all photographs.
They run in turn, `--rounds` times each, and the fastest round counts: what else the machine does can only slow one
down. The first steps of a round are left out, for they also start the loader's processes. Without `--data`,
photographs are drawn: 40 classes of 16 at 320 x 240 pixels, as JPEG.

Needs timm, and a torchvision that goes with the torch that is installed. A ratio above 1 says that nearfar is faster.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nearfar
from nearfar.data import open_task
from nearfar.train import DeepMetric, TrainConfig, Watcher, train

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DIM = 128
TEMPERATURE = 0.1
SKIPPED = 3  # steps at the beginning of a round
PER_CLASS = 4  # photographs of a class in a batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder of class folders")
    parser.add_argument("--trunk", default="resnet18", help="a model of timm")
    parser.add_argument("--side", type=int, default=128, help="pixels")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=12, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0, help="loader processes of either side")
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        data = settings.data or drawn_photos(Path(scratch) / "photos")
        torch_version = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
        print(f"nearfar {nearfar.__version__}, {torch_version}, {settings.trunk} at {settings.side} px\n")
        rates: dict[str, list[float]] = {}
        for turn in range(settings.rounds):
            run = Path(scratch) / f"run{turn}"
            rates.setdefault("train, nearfar", []).append(our_training(data, run, settings))
            rates.setdefault("train, plain", []).append(plain_training(data, settings))
            rates.setdefault("embed, nearfar", []).append(our_embedding(data, run))
            rates.setdefault("embed, plain", []).append(plain_embedding(data, settings))
    print("| job | nearfar images/s | plain images/s | ratio |")
    print("|---|---:|---:|---:|")
    for job in ("train", "embed"):
        ours = max(rates[f"{job}, nearfar"])
        plain = max(rates[f"{job}, plain"])
        print(f"| {job} | {ours:.1f} | {plain:.1f} | {ours / plain:.2f} |")


def drawn_photos(folder: Path, classes: int = 40, each: int = 16) -> Path:
    """Draw colored patterns with noise, one of each class for every file."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for c in range(classes):
        (folder / f"class{c:02}").mkdir(parents=True)
        base = rng.uniform(0, 255, size=(6, 8, 3))
        for k in range(each):
            coarse = np.clip(base + rng.normal(scale=25, size=base.shape), 0, 255).astype(np.uint8)
            image = Image.fromarray(coarse).resize((320, 240), Image.Resampling.BICUBIC)
            image.save(folder / f"class{c:02}" / f"{k:03}.jpg", quality=90)
    return folder


class Clock(Watcher):
    """Keeps when each step ended, on a GPU when it was given to it; exact for the first that counts, and the last."""

    def __init__(self, steps: int) -> None:
        self.ends: list[float] = []
        self.exact = (SKIPPED, steps)

    def tick(self) -> None:
        if DEVICE.type == "cuda" and len(self.ends) + 1 in self.exact:
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())

    def on_step(self, step: int, epoch: int, record: Mapping[str, Any] | None) -> None:
        self.tick()

    def on_epoch(self, row: Mapping[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


def rate(ends: list[float], batch: int) -> float:
    """Images per second after the first steps."""
    return batch * (len(ends) - SKIPPED) / (ends[-1] - ends[SKIPPED - 1])


def our_training(data: Path, out: Path, settings: argparse.Namespace) -> float:
    clock = Clock(settings.steps)
    config = TrainConfig.of(
        data=str(data),
        validation=0.0,
        trunk=f"timm:{settings.trunk}",
        objective=f"SupConLoss(temperature={TEMPERATURE})",
        embedding_dim=DIM,
        image_size=settings.side,
        augment="resized_crop(area=(0.6, 1)), mirror",
        sampler=f"m_per_class:{PER_CLASS}",
        batch_size=settings.batch,
        steps=settings.steps,
        optimizer="adamw",
        lr=1e-4,
        freeze_bn="statistics",
        workers=settings.workers,
        log_every=10_000,
        eval_every=10_000,
    )
    train(config, out, progress=False, watchers=[clock])
    return rate(clock.ends, settings.batch)


class PlainPhotos(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Files of class folders, of all classes or of those named, decoded and transformed as timm does."""

    def __init__(self, data: Path, transform: Any, classes: Collection[str] | None = None) -> None:
        folders = sorted(path for path in data.iterdir() if path.is_dir() and (classes is None or path.name in classes))
        self.files = [(path, c) for c, folder in enumerate(folders) for path in sorted(folder.iterdir())]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        from PIL import Image

        path, c = self.files[i]
        with Image.open(path) as image:
            return self.transform(image.convert("RGB")), c


class PlainBatches(torch.utils.data.Sampler[list[int]]):
    """Batches of as many photographs of each of some classes."""

    def __init__(self, labels: list[int], batch: int, steps: int) -> None:
        self.rows = [np.flatnonzero(np.array(labels) == c) for c in range(max(labels) + 1)]
        self.batch = batch
        self.steps = steps

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng(0)
        for _ in range(self.steps):
            classes = rng.choice(len(self.rows), self.batch // PER_CLASS, replace=False)
            yield [int(i) for c in classes for i in rng.choice(self.rows[c], PER_CLASS, replace=False)]


def plain_model(settings: argparse.Namespace) -> nn.Module:
    import timm

    trunk: Any = timm.create_model(settings.trunk, pretrained=False, num_classes=0)
    return nn.Sequential(trunk, nn.Linear(trunk.num_features, DIM))


def supcon(x: Tensor, y: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """SupCon (Khosla et al., 2020) over one batch, the mean of positives outside of the logarithm."""
    z = F.normalize(x)
    diagonal = torch.eye(len(y), dtype=torch.bool, device=y.device)
    logits = (z @ z.T / temperature).masked_fill(diagonal, -torch.inf)
    log_share = (logits - logits.logsumexp(dim=1, keepdim=True)).masked_fill(diagonal, 0)
    positive = (y[:, None] == y) & ~diagonal
    return -((log_share * positive).sum(dim=1) / positive.sum(dim=1)).mean()


def plain_training(data: Path, settings: argparse.Namespace) -> float:
    from timm.data.transforms_factory import create_transform

    transform = create_transform(
        settings.side, is_training=True, scale=(0.6, 1), hflip=0.5, color_jitter=0.0, auto_augment=None, re_prob=0
    )
    photos = PlainPhotos(data, transform)
    batches = PlainBatches([c for _, c in photos.files], settings.batch, settings.steps)
    loader = torch.utils.data.DataLoader(
        photos, batch_sampler=batches, num_workers=settings.workers, pin_memory=DEVICE.type == "cuda"
    )
    model = plain_model(settings).to(DEVICE)
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    clock = Clock(settings.steps)
    for images, labels in loader:
        optimizer.zero_grad(set_to_none=True)
        found = model(images.to(DEVICE, non_blocking=True))
        supcon(found, labels.to(DEVICE, non_blocking=True)).backward()
        optimizer.step()
        clock.tick()
    return rate(clock.ends, settings.batch)


def our_embedding(data: Path, run: Path) -> float:
    items = open_task(str(data), validation=0.0).train
    embedder = DeepMetric.load(run, which="last").embed
    embedder(items.subset(np.arange(8)))
    start = time.perf_counter()
    embedder(items)
    return len(items) / (time.perf_counter() - start)


def plain_embedding(data: Path, settings: argparse.Namespace) -> float:
    from timm.data.transforms_factory import create_transform

    photos = PlainPhotos(data, create_transform(settings.side, is_training=False))
    loader = torch.utils.data.DataLoader(photos, batch_size=settings.batch, num_workers=settings.workers)
    model = plain_model(settings).to(DEVICE).eval()
    start = time.perf_counter()
    with torch.inference_mode():
        for images, _ in loader:
            F.normalize(model(images.to(DEVICE, non_blocking=True))).cpu()
    return len(photos) / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
