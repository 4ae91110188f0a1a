"""Train on several GPUs with DistributedDataParallel
=====================================================

    python examples/distributed_data_parallel.py
    torchrun --nproc_per_node 2 examples/distributed_data_parallel.py

Put the network and the objective into one module, and wrap it in DistributedDataParallel. Each process draws its part
of every batch, and the objective compares all items of the batch, also those of other processes. So both commands train
the same weights. The script uses one GPU per process if there are enough GPUs, and CPUs otherwise. It learns from 1,200
images of digits, scores the other 597, and takes about 5 seconds on one core.
"""

# sphinx_gallery_thumbnail_path = "pictures/distributed_data_parallel.svg"

import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from nearfar import AMSoftmaxLoss, MPerClassSampler, TripletLoss
from nearfar.deep.distributed import leave
from nearfar.evaluation import evaluate

CLASSES = 10
TRAINED = 1200
DIM = 16


class Step(nn.Module):
    """The network and the objective in one module."""

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, DIM))
        self.objective = TripletLoss() + 0.1 * AMSoftmaxLoss(CLASSES, DIM)

    def forward(self, images, labels):
        return self.objective(self.network(images), labels)


def start():
    """Join the process group if torchrun has started several processes, and return the device of this process."""
    rank, processes = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    on_gpus = torch.cuda.device_count() >= processes
    if on_gpus:
        torch.cuda.set_device(rank)
    if processes > 1:
        dist.init_process_group("nccl" if on_gpus else "gloo")
    return torch.device("cuda", rank) if on_gpus else torch.device("cpu")


def train(device, epochs=2):
    """Return the trained network, the value of each step, and the length of the first gradient."""
    torch.manual_seed(0)  # the same weights in every process
    step = Step().to(device)
    network = step.network
    if dist.is_initialized():
        step = DistributedDataParallel(step)
    optimizer = torch.optim.Adam(step.parameters(), lr=3e-3)
    images, labels = (torch.as_tensor(part)[:TRAINED] for part in load_digits(return_X_y=True))
    batches = MPerClassSampler(labels, m=8, batch_size=40, rounds=None)  # 40 items in all processes together
    loader = DataLoader(TensorDataset(images.float() / 16, labels), batch_sampler=batches)
    values, length = [], None
    for _ in range(epochs):
        for items, classes in loader:
            value = step(items.to(device), classes.to(device))
            value.backward()
            values.append(float(value.detach()))
            if length is None:
                length = float(torch.cat([part.grad.flatten() for part in step.parameters()]).norm())
            optimizer.step()
            optimizer.zero_grad()
    return network, values, length


@torch.no_grad()
def score(network, device):
    images, labels = (torch.as_tensor(part)[TRAINED:] for part in load_digits(return_X_y=True))
    return evaluate(network(images.float().to(device) / 16), labels, ks=(1,), clustering=False).recall_at[1]


def main():
    device = start()
    network, values, length = train(device)
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(f"value of the first step: {values[0]:.5f}")
        print(f"length of its gradient: {length:.5f}")
        print(f"value of the last step: {values[-1]:.5f}")
        print(f"Recall@1 of other images: {score(network, device):.3f}")
    leave()


if __name__ == "__main__":
    main()
