"""Memory and time of a step on one large batch through a ResNet-50: at once, and a chunk of items at a time.

    python bench/chunks.py --batch 2048 --size 32 --chunks 0 256 32

Each size of a chunk runs in a separate process, whose peak memory is measured; 0 takes the whole batch at once. The
trunk has random weights, and its batch normalization uses fixed statistics, so that the gradients agree.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from nearfar import MultiSimilarityLoss
from nearfar.deep import backward_in_chunks

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # widths and numbers of the bottlenecks of a ResNet-50


class Bottleneck(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.body = nn.Sequential(
            *convolution(before, width, 1, 1),
            nn.ReLU(inplace=True),
            *convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *convolution(width, after, 1, 1),
        )
        if stride == 1 and before == after:
            self.shortcut: nn.Module = nn.Identity()
        else:
            self.shortcut = nn.Sequential(*convolution(before, after, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def convolution(before: int, after: int, size: int, stride: int) -> list[nn.Module]:
    convolved = nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)
    return [convolved, nn.BatchNorm2d(after)]


def resnet50(embedding_dim: int) -> nn.Module:
    parts = [*convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for stage, (width, number) in enumerate(STAGES):
        for k in range(number):
            parts.append(Bottleneck(before, width, 2 if stage and not k else 1))
            before = 4 * width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, embedding_dim))


def measure(batch: int, size: int, chunk: int) -> dict[str, float]:
    """Return the CPU seconds and the growth of the peak memory of one step, and a checksum of its gradient."""
    torch.manual_seed(0)
    network = resnet50(64).eval()
    images = torch.randn(batch, 3, size, size)
    labels = torch.arange(batch) // 4
    loss = MultiSimilarityLoss()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    if chunk:
        backward_in_chunks(network, images, lambda z: loss(z, labels), chunk=chunk)
    else:
        loss(network(images), labels).backward()
    seconds = time.process_time() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    norm = sum(float(p.grad.double().square().sum()) for p in network.parameters() if p.grad is not None) ** 0.5
    return {"seconds": seconds, "GiB": grown / 2**20, "norm of the gradient": norm}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--size", type=int, default=32, help="side of the images in pixels")
    parser.add_argument("--chunks", type=int, nargs="+", default=[0, 256, 32])
    parser.add_argument("--one", action="store_true", help="measure one way in this process")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.batch, given.size, given.chunks[0])))
        return
    print("| chunk | CPU seconds | GiB | norm of the gradient |\n|---|---|---|---|")
    for chunk in given.chunks:
        sizes = ["--batch", given.batch, "--size", given.size, "--chunks", chunk]
        command = [sys.executable, str(Path(__file__)), "--one", *map(str, sizes)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        cells = [f"{value:.6g}" for value in found.values()]
        print(f"| {chunk or 'whole batch'} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
