"""Shard the parameters of an objective with FSDP2
===============================================

    python examples/sharded_by_fsdp2.py
    torchrun --nproc_per_node 2 examples/sharded_by_fsdp2.py

Put the network and the objective into one module, and call `fully_shard` on it. Every process then keeps a part of each
parameter, including the proxies, and gathers the parts for each step. Both commands train the same weights. Between
steps, parameters are parts; `get_logits` gathers the proxies itself. The script takes about 5 seconds on one core.
"""

# sphinx_gallery_thumbnail_path = "pictures/sharded_by_fsdp2.svg"

import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

from nearfar import AMSoftmaxLoss, MarginLoss, MPerClassSampler
from nearfar.deep.distributed import leave

CLASSES = 10
DIM = 16


class Step(nn.Module):
    """The network and the objective in one module."""

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, DIM))
        self.objective = MarginLoss() + 0.1 * AMSoftmaxLoss(CLASSES, DIM)

    def forward(self, images, labels):
        return self.objective(self.network(images), labels)


def length(step):
    """Return the length of the gradient, of which every process holds a part."""
    squares = [part.grad.full_tensor().square().sum() for part in step.parameters()]
    return float(torch.stack(squares).sum().sqrt())


def main():
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    torch.manual_seed(0)
    step = Step()
    fully_shard(step, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.Adam(step.parameters(), lr=3e-3)
    images, labels = (torch.as_tensor(part)[:1200] for part in load_digits(return_X_y=True))
    batches = MPerClassSampler(labels, m=8, batch_size=40, rounds=None)
    loader = DataLoader(TensorDataset(images.float() / 16, labels), batch_sampler=batches)
    lengths = []
    values = []
    for _ in range(2):
        for items, classes in loader:
            value = step(items, classes)
            value.backward()
            values.append(float(value.detach()))
            if not lengths:
                lengths.append(length(step))
            optimizer.step()
            optimizer.zero_grad()
    logits = step.objective.terms[1].get_logits(torch.eye(DIM))
    if dist.get_rank() == 0:
        print(f"value of the first step: {values[0]:.5f}")
        print(f"length of its gradient: {lengths[0]:.5f}")
        print(f"value of the last step: {values[-1]:.5f}")
        print(f"largest logit of the axes: {float(logits.detach().max()):.3f}")
    leave()


if __name__ == "__main__":
    main()
