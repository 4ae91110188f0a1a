"""Every loss and miner shared with pytorch-metric-learning, beside it in the same run: value, gradient, time, memory.

    python bench/losses.py                        all, B = 128, 512, 2048 (about five minutes)
    python bench/losses.py --sizes 128 512 --only Triplet Lifted

One thread, 4 samples per class, 128 dimensions, forward and backward in float32. Time is the least CPU time (user and
system) of some runs. "bare" is what no pair loss can do without: the similarity matrix and the two products of its
gradient. Memory is the peak above the start of the call, also in matrices of B x B float32. "equal" is the largest
difference of value and gradient in float64 at B = 128, relative to the largest entry, where the two mean the same;
where not, the note says why. Each measurement runs in a separate process, with at most a minute and 8 GB. Afterwards:
all triplets and NT-Xent of 16,384 samples in blocks, the losses with class proxies at 11,318 classes and 512 samples
("bare" is then the three products with the proxies), and the whole table on a GPU where there is one.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import resource
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from pytorch_metric_learning import distances, losses, miners, reducers
from threadpoolctl import threadpool_info, threadpool_limits
from torch import Tensor

import nearfar as nf

DIM, PER_CLASS, CLASSES, MANY = 128, 4, 100, 11_318
SECONDS, BYTES = 60, 8 << 30
Value = Callable[[Tensor, Tensor], Tensor]


class Case(NamedTuple):
    """Ours and theirs under one heading; `note` is why they differ, "" that they are equal."""

    name: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    note: str = ""
    classes: int | None = None
    proxies: int = 0


def squared() -> distances.LpDistance:
    return distances.LpDistance(power=2)


class Mined:
    """A loss of pytorch-metric-learning with its miner, as one thing to call."""

    def __init__(self, loss: Any, miner: Any) -> None:
        self.loss, self.miner = loss, miner

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return self.loss(x, y, self.miner(x, y))


class Scaled:
    """A loss that does not normalize some of the vectors, on unit vectors."""

    def __init__(self, loss: Any) -> None:
        self.loss = loss

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return self.loss(torch.nn.functional.normalize(x), y)


class OnePair:
    """A loss of anchors against positives, one pair of each class, as the N-pair paper forms its batches."""

    def __init__(self, loss: Any) -> None:
        self.loss = loss

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        anchors, others = slice(0, None, PER_CLASS), slice(1, None, PER_CLASS)
        return self.loss(x[anchors], y[anchors], ref=x[others], ref_labels=y[others])


class Views:
    """A loss of two views of each sample, the first half of the batch and the second; `numbered` if it reads labels."""

    def __init__(self, loss: Any, numbered: bool) -> None:
        self.loss, self.numbered = loss, numbered

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        a, b = x.chunk(2)
        n = torch.arange(len(a), device=x.device)
        return self.loss(a, n, ref=b, ref_labels=n) if self.numbered else self.loss(a, ref_emb=b)


class Remembered:
    """A cross-batch memory that is full of other samples."""

    def __init__(self, memory: Any) -> None:
        self.memory, self.full = memory, False

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.full:
            with torch.no_grad():
                for _ in range(max(1, 4096 // len(x))):
                    self.memory(torch.randn_like(x), y)
            self.full = True
        return self.memory(x, y)


def triplet(miner: Any = None, power: int = 2) -> Any:
    loss = losses.TripletMarginLoss(margin=0.2, distance=distances.LpDistance(power=power))
    return loss if miner is None else Mined(loss, miner)


def pairs() -> Any:
    return losses.ContrastiveLoss(0, 0.25, distance=squared(), reducer=reducers.MeanReducer())


def noise() -> Any:
    return losses.SignalToNoiseRatioContrastiveLoss(reducer=reducers.MeanReducer())


def pair_of_each() -> Any:
    return losses.NPairsLoss(distance=distances.DotProductSimilarity(normalize_embeddings=False))


class Proxies(NamedTuple):
    """Two losses with class proxies, `centers` of each class."""

    name: str
    ours: dict[str, Any]
    theirs: dict[str, Any]
    their_name: str = ""
    centers: int = 1

    def case(self, classes: int) -> Case:
        one, other = getattr(nf, self.name), getattr(losses, self.their_name or self.name)
        return Case(
            self.name.removesuffix("Loss"),
            lambda: one(classes, DIM, **self.ours),
            lambda: other(num_classes=classes, embedding_size=DIM, **self.theirs),
            classes=classes,
            proxies=classes * self.centers,
        )


PROXIES = [
    Proxies("ProxyNCAPlusPlusLoss", {}, {"softmax_scale": 9}, "ProxyNCALoss"),
    Proxies("ProxyAnchorLoss", {}, {}),
    Proxies("SoftTripleLoss", {"tau": 0.0}, {}, centers=10),
    Proxies("ArcFaceLoss", {}, {"margin": math.degrees(0.5)}),
    Proxies("SubCenterArcFaceLoss", {}, {"margin": math.degrees(0.5)}, centers=3),
    Proxies("CosFaceLoss", {}, {}),
    Proxies("SphereFaceLoss", {}, {}),
    Proxies("CrossEntropyHead", {"normalize": True, "temperature": 0.05}, {}, "NormalizedSoftmaxLoss"),
]


CASES = [
    Case("Contrastive", lambda: nf.ContrastiveLoss(form="survey", normalize=True, reduction="balanced"), pairs),
    Case("Contrastive, signal to noise", lambda: nf.SNRContrastiveLoss(normalize=True), noise),
    Case("Triplet, all", nf.TripletLoss, triplet),
    Case("Triplet, hard", lambda: nf.TripletLoss(miner=nf.BatchHard()), lambda: triplet(miners.BatchHardMiner())),
    Case(
        "Triplet, semi-hard",
        lambda: nf.TripletLoss(miner=nf.BatchSemiHard("skip", window=0.2)),
        lambda: triplet(miners.TripletMarginMiner(0.2, "semihard", distance=squared())),
        "theirs keeps all semi-hard negatives, ours the nearest",
    ),
    Case(
        "Triplet, easy positive",
        lambda: nf.TripletLoss(miner=nf.EasyPositive("hard")),
        lambda: triplet(miners.BatchEasyHardMiner("easy", "hard")),
    ),
    Case(
        "Margin, distance-weighted",
        lambda: nf.MarginLoss(miner=nf.DistanceWeighted()),
        lambda: Mined(losses.MarginLoss(), miners.DistanceWeightedMiner()),
        "random draws",
    ),
    Case(
        "Margin, hard",
        lambda: nf.MarginLoss(miner=nf.BatchHard()),
        lambda: Mined(losses.MarginLoss(), miners.BatchHardMiner()),
    ),
    Case("N-pair", lambda: OnePair(nf.NPairLoss(reg=0.0)), pair_of_each),
    Case(
        "N-pair, all pairs",
        lambda: nf.NPairLoss(reg=0.0),
        pair_of_each,
        "theirs takes one pair of each class: a 16th of the products",
    ),
    Case("NCA", lambda: nf.NCALoss(normalize=True), losses.NCALoss),
    Case("Lifted", lambda: nf.LiftedLoss(normalize=True), losses.LiftedStructureLoss),
    Case(
        "Lifted, generalized",
        lambda: nf.GeneralizedLiftedLoss(normalize=True),
        losses.GeneralizedLiftedStructureLoss,
    ),
    Case("Angular", lambda: nf.AngularLoss(40, form="softmax"), lambda: Scaled(losses.AngularLoss())),
    Case("NT-Xent", nf.NTXentLoss, losses.NTXentLoss),
    Case("SupCon", nf.SupConLoss, lambda: losses.SupConLoss(temperature=0.1)),
    Case("Multi-similarity", nf.MultiSimilarityLoss, losses.MultiSimilarityLoss),
    Case(
        "Multi-similarity, mined",
        lambda: nf.MultiSimilarityLoss(epsilon=0.1),
        lambda: Mined(losses.MultiSimilarityLoss(), miners.MultiSimilarityMiner(epsilon=0.1)),
    ),
    Case("VICReg", lambda: Views(nf.VICRegLoss(variance=12.5), True), lambda: Views(losses.VICRegLoss(), False)),
    Case("Circle", nf.CircleLoss, losses.CircleLoss),
    Case("Tuplet margin", lambda: nf.TupletMarginLoss(margin=math.radians(5.73)), losses.TupletMarginLoss),
    Case("Intra-pair variance", nf.IntraPairVarianceLoss, losses.IntraPairVarianceLoss),
    Case("Threshold-consistent", nf.ThresholdConsistentMarginLoss, losses.ThresholdConsistentMarginLoss),
    Case(
        "Ranked list",
        nf.RankedListLoss,
        lambda: losses.RankedListLoss(0.4, 10, alpha=1.2),
        "theirs differentiates weights",
    ),
    Case("Histogram", lambda: nf.HistogramLoss(64), lambda: losses.HistogramLoss(64)),
    Case("FastAP", nf.FastAPLoss, losses.FastAPLoss),
    Case("PNP", lambda: nf.PNPLoss("Dq"), lambda: losses.PNPLoss(variant="Dq"), "theirs counts the query itself"),
    Case("Smooth-AP", nf.SmoothAPLoss, losses.SmoothAPLoss, "theirs ranks the query itself and groups by place"),
    *(pair.case(CLASSES) for pair in PROXIES),
    Case(
        "Memory of 4096, contrastive",
        lambda: Remembered(nf.CrossBatchMemory(nf.ContrastiveLoss(form="survey", normalize=True), size=4096)),
        lambda: Remembered(losses.CrossBatchMemory(pairs(), DIM, memory_size=4096)),
        "theirs remembers the batch before it compares",
    ),
]


def data(
    n: int, classes: int | None = None, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    y = torch.arange(n) // PER_CLASS
    y = y if classes is None else y % classes
    x = torch.randn(n, DIM, generator=g) + 0.5 * torch.randn(n, DIM, generator=g)[y]
    return x.to(device, dtype).requires_grad_(), y.to(device)


def share_proxies(ours: Any, theirs: Any, dtype: torch.dtype, device: str) -> None:
    """Give theirs the proxies of ours: class by class, as rows or columns, under one of three names."""
    proxies = getattr(ours, "proxies", None)
    if proxies is None:
        return
    rows = proxies.detach().to(device, dtype).unflatten(0, (-1, CLASSES)).transpose(0, 1).flatten(0, 1)
    name = next(name for name in ("proxies", "W", "fc") if hasattr(theirs, name))
    getattr(theirs, name).data = rows if name == "proxies" else rows.T.contiguous()


def step(loss: Any, x: Tensor, y: Tensor) -> Tensor:
    x.grad = None
    if isinstance(loss, torch.nn.Module):
        loss.zero_grad()
    value = loss(x, y)
    value.backward()
    return value


def placed(thing: Any, dtype: torch.dtype, device: str) -> Any:
    return thing.to(device, dtype) if isinstance(thing, torch.nn.Module) else thing


def difference(case: Case, n: int = 128) -> str:
    """The largest relative difference of value and gradient in float64."""
    if case.note:
        return "-"
    x, y = data(n, case.classes, torch.float64)
    ours, theirs = placed(case.ours(), torch.float64, "cpu"), case.theirs()
    share_proxies(ours, theirs, torch.float64, "cpu")
    a, grad_a = step(ours, x, y).detach(), x.grad
    b, grad_b = step(theirs, x, y).detach(), x.grad
    assert grad_a is not None
    assert grad_b is not None
    apart = max((a - b).abs() / b.abs(), (grad_a - grad_b).abs().max() / grad_b.abs().max())
    return f"{float(apart):.0e}"


def bare(n: int, device: str, proxies: int = 0) -> Callable[[], None]:
    x, _ = data(n, device=device)
    z = x.detach()
    w = torch.randn(proxies, DIM, device=device) if proxies else z
    slope = torch.randn(n, len(w), device=device)

    def products() -> None:
        similarity = z @ w.T
        assert len(similarity) == n
        to_x, to_w = slope @ w, slope.T @ z
        if w is z:
            to_x.add_(to_w)

    return products


def timed(run: Callable[[], Any], device: str, budget: float = 4.0) -> float:
    """The least time of up to 15 runs, in seconds: of the processor, or on a GPU the wall's."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    best, spent = float("inf"), 0.0
    for k in range(16):
        start = clock()
        run()
        if device != "cpu":
            torch.cuda.synchronize()
        took = clock() - start
        spent += took
        if k or took > budget:  # the first warms up
            best = min(best, took)
        if spent > budget:
            break
    return best


def measured(make: Callable[[], Any], n: int, classes: int | None, device: str) -> tuple[float, float]:
    """Seconds and peak bytes above the start."""
    x, y = data(n, classes, device=device)
    loss = placed(make(), torch.float32, device)
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step(loss, x, y)
        peak = torch.cuda.max_memory_allocated() - before
        return timed(lambda: step(loss, x, y), device), float(peak)
    small, small_y = data(8, classes)
    step(loss, small, small_y) if not isinstance(loss, Remembered) else None
    before = resident()
    step(loss, x, y)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    return timed(lambda: step(loss, x, y), device), float(max(peak, 0))


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def apart(work: Callable[[], Any], seconds: int = SECONDS) -> Any:
    """Run in a forked process, within some seconds and 8 GB; returns what it returned, or why it did not."""
    gc.collect()
    out, into = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(seconds)  # a limit of processor time would make the clock coarse
        resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
        try:
            found = work()
        except (RuntimeError, MemoryError) as error:
            found = "out of memory" if "alloc" in str(error) or isinstance(error, MemoryError) else str(error)
        os.write(into, json.dumps(found).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else "over time"


def row(case: Case, n: int, device: str, least: float, equal: str) -> str:
    def both(make: Callable[[], Any]) -> Any:
        if device != "cpu":
            try:
                return measured(make, n, case.classes, device)
            except torch.OutOfMemoryError:
                return "out of memory"
        return apart(lambda: measured(make, n, case.classes, device))

    ours, theirs = both(case.ours), both(case.theirs)
    if isinstance(ours, str):
        return f"| {case.name} | {n} | {equal} | {ours} | | | | | | {case.note} |"
    cells = [f"{ours[0] * 1e3:.1f}", f"{ours[0] / least:.1f}", f"{ours[1] / 2**20:.0f}", f"{ours[1] / (4 * n * n):.1f}"]
    if isinstance(theirs, str):
        cells += [theirs, "", ""]
    else:
        cells += [f"{theirs[0] * 1e3:.1f}", f"{theirs[0] / ours[0]:.2f}", f"{theirs[1] / 2**20:.0f}"]
    return f"| {case.name} | {n} | {equal} | " + " | ".join(cells) + f" | {case.note} |"


def print_head() -> None:
    heads = ["ours, ms", "times bare", "MB", "B x B", "theirs, ms", "theirs / ours", "MB"]
    print("| loss | B | equal | " + " | ".join(heads) + " | note |")
    print("|---" * 11 + "|")


def table(sizes: list[int], only: list[str], device: str) -> None:
    cases = [case for case in CASES if not only or any(word.lower() in case.name.lower() for word in only)]
    floor = {n: timed(bare(n, device), device, 2.0) for n in sizes}
    print("\nbare: " + ", ".join(f"B = {n}: {seconds * 1e3:.2f} ms" for n, seconds in floor.items()) + "\n")
    print_head()
    for case in cases:
        equal = apart(partial(difference, case))
        for n in sizes:
            print(row(case, n, device, floor[n], equal), flush=True)


def many(only: list[str], n: int = 512) -> None:
    """The losses with class proxies where classes are many."""
    print(f"\n{MANY:,} classes, against the bare products with their proxies:\n")
    print_head()
    for pair in PROXIES:
        case = pair.case(MANY)
        if not only or any(word.lower() in case.name.lower() for word in only):
            print(row(case, n, "cpu", timed(bare(n, "cpu", case.proxies), "cpu", 2.0), "-"), flush=True)


def blocks(n: int = 16_384, block: int = 512) -> None:
    """All triplets and NT-Xent of a large batch in blocks: seconds and the process's whole peak."""
    print(f"\nB = {n:,} in blocks of {block}, forward and backward, in a separate process:")
    for name, loss in (("all triplets", nf.TripletLoss(block=block)), ("NT-Xent", nf.NTXentLoss(block=block))):

        def work(loss: Any = loss) -> tuple[float, float]:
            x, y = data(n)
            start = time.process_time()
            step(loss, x, y)
            return time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

        found = apart(work, 600)
        print(f"{name}: {found if isinstance(found, str) else f'{found[0]:.1f} s, {found[1]:.2f} GB resident at most'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 512, 2048])
    parser.add_argument("--only", nargs="*", default=[], help="words of the names of losses")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        describe()
        table(arguments.sizes, arguments.only, "cpu")
        many(arguments.only)
        if not arguments.only:
            blocks()
    if not torch.cuda.is_available():
        print("\nno GPU here: its table is skipped")
        return
    print(f"\n{torch.cuda.get_device_name()}")
    table([*arguments.sizes, 8192], arguments.only, "cuda")


def describe() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread, {torch.backends.cpu.get_cpu_capability()}")
    coretype = os.environ.get("OPENBLAS_CORETYPE", "unset")
    load = f"load of the machine: {os.getloadavg()[0]:.1f}"
    print(f"MKL: {torch.backends.mkl.is_available()}; OPENBLAS_CORETYPE: {coretype}; {load}")
    for pool in threadpool_info():
        kernel = f", kernel {pool['architecture']}" if "architecture" in pool else ""
        print(f"{pool['internal_api']} {pool['version'] or ''}: {pool['num_threads']} thread{kernel}")


if __name__ == "__main__":
    main()
