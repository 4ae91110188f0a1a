"""Everything that only a GPU can show, in at most eight minutes: tests, losses, training, evaluation, closed forms.

    make gpu-check                                     on a machine with a GPU of NVIDIA; needs no network
    python bench/gpu_check.py --only losses            one stage
    python bench/gpu_check.py --dry --out folder       all stages in miniature, on the processor

The stages run one after another, each in a process of its own and within its share of the time. A stage that fails or
is out of time is named at the end, and the others still run. `--out` keeps what every stage printed, `STAGE.txt`, and
the figures, `figures.jsonl`.

- tests: `pytest -m gpu`
- losses: milliseconds of a loss and its gradient, d = 128, in float32 and bfloat16, beside plain torch, the same
  compiled (B = 1,024), pytorch-metric-learning where it is installed, and the bare products; 11,318 classes
- training: images per second of a ResNet-50 on drawn photos, beside a plain loop, files decoded by both
- evaluation: all scores of 60,000 x 512, from tensors on the device, beside the bare products there
- closed forms: DiscriminantWhitening and RCA on 10^6 x 1,024, beside the bare product
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nearfar as nf
from nearfar.evaluation import evaluate

HERE = Path(__file__).resolve().parent
MINUTES = {"tests": 2.5, "losses": 2.0, "training": 1.5, "evaluation": 1.0, "closed-forms": 1.0}
NEEDS = {"training": ("timm", "torchvision", "msgspec", "PIL")}  # beside what nearfar and torch need
DIM = 128
PER_CLASS = 4
CLASSES = 11_318  # of Stanford Online Products, as trained on
TEMPERATURE = 0.1


class Size(NamedTuple):
    """How large the stages are: for a GPU, or in miniature."""

    batches: tuple[int, ...]
    compiled: int  # the batch for which plain torch is compiled
    compiler: str
    classes: int
    evaluated: tuple[int, int]
    fitted: tuple[int, int]
    seconds: float  # for which a timing repeats


FULL = Size((256, 1024, 4096, 16_384), 1024, "inductor", CLASSES, (60_000, 512), (1_000_000, 1024), 0.3)
SMALL = Size((16,), 16, "eager", 20, (200, 8), (400, 8), 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=MINUTES, default=list(MINUTES))
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-check"))
    parser.add_argument("--dry", action="store_true", help="in miniature, on the processor")
    parser.add_argument("--stage", choices=MINUTES, help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.stage is not None:
        run_here(settings.stage, settings.dry)
        return 0
    if not settings.dry and not torch.cuda.is_available():
        print("gpu-check: torch finds no GPU of CUDA here; --dry runs all stages in miniature on the processor")
        return 2
    settings.out.mkdir(parents=True, exist_ok=True)
    (settings.out / "figures.jsonl").unlink(missing_ok=True)
    failed = [stage for stage in settings.only if not passed(stage, settings)]
    print(f"failed or out of time: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def passed(stage: str, settings: argparse.Namespace) -> bool:
    """Run a stage in a process of its own, show and keep what it prints, and return whether it ended well."""
    command = [sys.executable, str(HERE / "gpu_check.py"), "--stage", stage, *(["--dry"] if settings.dry else [])]
    print(f"\n## {stage}", flush=True)
    missing = [name for name in NEEDS.get(stage, ()) if find_spec(name) is None]
    if missing:
        print(f"{stage}: not run, for want of {', '.join(missing)}; without a network, bring their wheels along")
        return settings.dry
    start = time.perf_counter()
    with (settings.out / f"{stage}.txt").open("w+") as log:
        try:
            code = subprocess.run(command, stdout=log, stderr=log, timeout=60 * MINUTES[stage], check=False).returncode
        except subprocess.TimeoutExpired:
            code = -1
        log.seek(0)
        lines = log.read().splitlines()
    figures = [line for line in lines if line.startswith("{")]
    with (settings.out / "figures.jsonl").open("a") as kept:
        kept.writelines(f"{line}\n" for line in figures)
    # a failure is explained by its last lines
    print("\n".join(lines if code == 0 else lines[-40:]))
    print(f"{stage}: {'ok' if code == 0 else f'exit status {code}'}, {time.perf_counter() - start:.0f} s", flush=True)
    return code == 0


def run_here(stage: str, dry: bool) -> None:
    device = torch.device("cpu" if dry else "cuda")
    size = SMALL if dry else FULL
    name = "processor" if dry else torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}, nearfar {nf.__version__}, {os.cpu_count()} cores")
    match stage:
        case "tests":
            command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/deep/test_gpu.py"]
            found = subprocess.run(command, cwd=HERE.parent, check=False).returncode
            if found not in ((0, 5) if dry else (0,)):  # 5: nothing was collected, as without a GPU
                sys.exit(found)
        case "losses":
            losses(device, size)
        case "training":
            training(dry)
        case "evaluation":
            evaluation(device, size)
        case "closed-forms":
            closed_forms(device, size)


def keep(stage: str, **figures: Any) -> None:
    print(json.dumps({"stage": stage, **figures}), flush=True)


def timed(work: Callable[[], Any], device: torch.device, seconds: float) -> float:
    """Return the median milliseconds of runs, of which there are as many as fit into some seconds, and at least 3."""
    for _ in range(2):
        work()
    took: list[float] = []
    until = time.perf_counter() + seconds
    while len(took) < 3 or (time.perf_counter() < until and len(took) < 200):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        took.append(1e3 * (time.perf_counter() - start))
    return statistics.median(took)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


# losses as they are written without a library: no blocks, no own gradients
def same_class(y: Tensor) -> tuple[Tensor, Tensor]:
    """Return positives and negatives of each anchor, (n, n)."""
    same = y[:, None] == y
    return same & ~torch.eye(len(y), dtype=torch.bool, device=y.device), ~same


def plain_contrastive(x: Tensor, y: Tensor) -> Tensor:
    z = F.normalize(x.float())
    distance = (2 - 2 * z @ z.T).clamp_min(1e-12)
    positive, negative = same_class(y)
    return distance[positive].mean() + (0.5 - distance[negative].sqrt()).relu().square().mean()


def plain_triplet(x: Tensor, y: Tensor) -> Tensor:
    z = F.normalize(x.float())
    distance = 2 - 2 * z @ z.T
    positive, negative = same_class(y)
    farthest = distance.masked_fill(~positive, -math.inf).amax(dim=1)
    nearest = distance.masked_fill(~negative, math.inf).amin(dim=1)
    return (farthest - nearest + 0.2).relu().mean()


def plain_supcon(x: Tensor, y: Tensor) -> Tensor:
    z = F.normalize(x.float())
    positive, _ = same_class(y)
    itself = torch.eye(len(y), dtype=torch.bool, device=y.device)
    logits = (z @ z.T / TEMPERATURE).masked_fill(itself, -math.inf)
    log_share = (logits - logits.logsumexp(dim=1, keepdim=True)).masked_fill(itself, 0)
    return -((log_share * positive).sum(dim=1) / positive.sum(dim=1)).mean()


class PlainArcFace(nn.Module):
    """ArcFace by its formula, with the angle of the right class enlarged."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(classes, DIM))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        cosine = F.normalize(x.float()) @ F.normalize(self.proxies).T
        angle = cosine.gather(1, y[:, None]).clamp(-1 + 1e-7, 1 - 1e-7).acos()
        return F.cross_entropy(64 * cosine.scatter(1, y[:, None], (angle + 0.5).cos()), y)


class PlainProxyAnchor(nn.Module):
    """ProxyAnchor by its formula."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(classes, DIM))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        cosine = F.normalize(x.float()) @ F.normalize(self.proxies).T
        of_class = F.one_hot(y, len(self.proxies)).bool()
        pull = (-32 * (cosine - 0.1)).exp().masked_fill(~of_class, 0).sum(dim=0).log1p()
        push = (32 * (cosine + 0.1)).exp().masked_fill(of_class, 0).sum(dim=0).log1p()
        return pull[of_class.any(dim=0)].mean() + push.mean()


class Case(NamedTuple):
    """A loss of nearfar, the same in plain torch, and its name in pytorch-metric-learning."""

    name: str
    ours: Callable[[int], Any]
    plain: Callable[[int], Any] | None
    peer: str | None
    proxies: bool = False


CASES = (
    Case("contrastive", lambda _: nf.ContrastiveLoss(normalize=True), lambda _: plain_contrastive, "ContrastiveLoss"),
    Case("triplet, hardest", lambda _: nf.TripletLoss(miner=nf.BatchHard()), lambda _: plain_triplet, None),
    Case("triplet, all", lambda _: nf.TripletLoss(), None, "TripletMarginLoss"),
    Case("multi-similarity", lambda _: nf.MultiSimilarityLoss(), None, "MultiSimilarityLoss"),
    Case("NT-Xent", lambda _: nf.NTXentLoss(), None, "NTXentLoss"),
    Case("SupCon", lambda _: nf.SupConLoss(), lambda _: plain_supcon, "SupConLoss"),
    Case("ProxyAnchor", lambda c: nf.ProxyAnchorLoss(c, DIM), PlainProxyAnchor, "ProxyAnchorLoss", proxies=True),
    Case("ArcFace", lambda c: nf.ArcFaceLoss(c, DIM), PlainArcFace, "ArcFaceLoss", proxies=True),
)


def losses(device: torch.device, size: Size) -> None:
    """Print the milliseconds of forward and backward of each loss, and of what it is compared with."""
    for n in size.batches:
        for dtype in (torch.float32, torch.bfloat16):
            x, y = labeled_rows(n, size.classes, device, dtype)
            floor = {
                proxies: timed(bare(x, size.classes if proxies else None), device, size.seconds)
                for proxies in (False, True)
            }
            for case in CASES:
                figures = {
                    name: loss_time(make, x, y, device, size.seconds) for name, make in contenders(case, size, n)
                }
                about = {"loss": case.name, "batch": n, "dtype": str(dtype).removeprefix("torch.")}
                keep("losses", **about, milliseconds={"bare": round(floor[case.proxies], 4), **figures})


def labeled_rows(n: int, classes: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) // PER_CLASS % classes
    x = torch.randn(n, DIM, generator=generator) + 0.5 * torch.randn(classes, DIM, generator=generator)[y]
    return x.to(device, dtype), y.to(device)


def contenders(case: Case, size: Size, n: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    classes = size.classes
    yield "nearfar", lambda: case.ours(classes)
    if case.plain is not None:
        plain = case.plain
        yield "plain", lambda: plain(classes)
        if n == size.compiled:
            # each shape and type takes seconds of compiling
            yield "compiled", lambda: torch.compile(plain(classes), backend=size.compiler)
    if case.peer is not None and find_spec("pytorch_metric_learning") is not None:
        from pytorch_metric_learning import losses as peers

        peer = getattr(peers, case.peer)
        proxies = {"num_classes": classes, "embedding_size": DIM} if case.proxies else {}
        yield "pytorch-metric-learning", lambda: peer(**proxies)


def loss_time(make: Callable[[], Any], x: Tensor, y: Tensor, device: torch.device, seconds: float) -> float | str:
    """Return the milliseconds of a loss and its gradient, or why there are none."""
    rows = x.clone().requires_grad_()
    try:
        loss = make()
        if isinstance(loss, nn.Module):
            loss.to(device)

        def step() -> None:
            rows.grad = None
            if isinstance(loss, nn.Module):
                loss.zero_grad(set_to_none=True)
            loss(rows, y).backward()

        return round(timed(step, device, seconds), 4)
    except torch.OutOfMemoryError:
        return "out of memory"
    except Exception as error:  # a compiler that is missing, a type that a peer does not take: the table goes on
        return f"{type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}"


def bare(x: Tensor, classes: int | None) -> Callable[[], None]:
    """Return the three products that no such loss can do without: similarities, and their gradients."""
    others = x if classes is None else torch.randn(classes, DIM, device=x.device, dtype=x.dtype)

    def products() -> None:
        likeness = x @ others.T
        to_rows = likeness @ others
        to_others = likeness.T @ x
        assert len(to_rows) == len(x)
        assert len(to_others) == len(others)

    return products


def training(dry: bool) -> None:
    """Print images per second of nearfar and of a plain loop, which decode the same files."""
    command = [sys.executable, str(HERE / "photos.py"), "--rounds", "1"]
    if dry:
        command += ["--trunk", "resnet10t", "--side", "32", "--batch", "8", "--steps", "5"]
    else:
        workers = str(max(1, (os.cpu_count() or 1) - 2))
        command += ["--trunk", "resnet50", "--side", "224", "--batch", "128", "--steps", "40", "--workers", workers]
    found = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    print(found.stdout)
    if found.returncode:
        sys.exit(found.returncode)
    for line in found.stdout.splitlines():
        cells = line.strip("| ").split(" | ")
        if cells[0] in ("train", "embed"):
            keep("training", job=cells[0], nearfar=float(cells[1]), plain=float(cells[2]), ratio=float(cells[3]))


def evaluation(device: torch.device, size: Size) -> None:
    n, d = size.evaluated
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(0)).to(device)
    labels = np.arange(n) // 5

    def products() -> None:
        for block in x.split(8192):
            (block @ x.T).topk(min(8, n), dim=1)

    milliseconds = timed(products, device, 0.0)
    keep("evaluation", rows=n, columns=d, what="bare products and top 8", seconds=round(milliseconds / 1e3, 3))
    for what, clustering in (("scores without clusters", False), ("scores with clusters", True)):
        start = time.perf_counter()
        evaluate(x, labels, clustering=clustering)
        keep("evaluation", rows=n, columns=d, what=what, seconds=round(time.perf_counter() - start, 3))


def closed_forms(device: torch.device, size: Size) -> None:
    n, d = size.fitted
    rows = torch.randn(n, d, generator=torch.Generator().manual_seed(0))
    on_device = rows.to(device)
    milliseconds = timed(lambda: on_device.T @ on_device, device, 0.0)
    keep("closed-forms", rows=n, columns=d, what="bare product on the device", seconds=round(milliseconds / 1e3, 3))
    X = rows.numpy()
    labels = np.arange(n) // 10
    for learner in (nf.DiscriminantWhitening(), nf.RCA()):
        start = time.perf_counter()
        learner.fit(X, labels)
        seconds = round(time.perf_counter() - start, 2)
        keep("closed-forms", rows=n, columns=d, what=f"{learner} on the processor", seconds=seconds)


if __name__ == "__main__":
    sys.exit(main())
