"""Use an objective with Hugging Face accelerate
=============================================

    python examples/loop_of_accelerate.py
    torchrun --nproc_per_node 2 examples/loop_of_accelerate.py

Put the network and the objective into one module and prepare that, so that the proxies of the objective are trained,
too. Each process draws its part of every batch, and the objective sees the whole batch. So both commands train the same
weights. The script learns from 1,200 images of digits, and scores the other 597. It takes about 5 seconds on one core.
"""

# sphinx_gallery_thumbnail_path = "pictures/loop_of_accelerate.svg"

import os

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from nearfar import AMSoftmaxLoss, MPerClassSampler, TripletLoss
from nearfar.evaluation import evaluate

CLASSES = 10
TRAINED = 1200
DIM = 16


class Step(nn.Module):
    """The network and the objective in one module: its value is what the optimizer lowers."""

    def __init__(self, network, objective):
        super().__init__()
        self.network = network
        self.objective = objective

    def forward(self, images, labels):
        return self.objective(self.network(images), labels)


def digits():
    """Return images in [0, 1] and labels, of those to learn from and of the others."""
    images, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    images = images.float() / 16
    return (images[:TRAINED], labels[:TRAINED]), (images[TRAINED:], labels[TRAINED:])


def train(epochs=2):
    """Return Recall@1 of the other images before and after, the value of each step, and the first gradient's length."""
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    known, others = digits()
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, DIM))
    step = Step(network, TripletLoss() + 0.1 * AMSoftmaxLoss(CLASSES, DIM))
    optimizer = torch.optim.Adam(step.parameters(), lr=3e-3)
    before = score(network, *others)
    step, optimizer = accelerator.prepare(step, optimizer)
    batches = MPerClassSampler(known[1], m=8, batch_size=40, rounds=None)
    loader = DataLoader(TensorDataset(*known), batch_sampler=batches)  # not prepared: the sampler knows the processes
    values = []
    length = 0.0
    for _ in range(epochs):
        for images, labels in loader:
            value = step(images, labels)
            accelerator.backward(value)
            if not values:
                length = float(torch.cat([part.grad.flatten() for part in step.parameters()]).norm())
            values.append(float(value.detach()))
            optimizer.step()
            optimizer.zero_grad()
    return before, score(network, *others), values, length


@torch.no_grad()
def score(network, images, labels):
    return evaluate(network(images), labels, ks=(1,), clustering=False).recall_at[1]


def main():
    before, after, values, length = train()
    if int(os.environ.get("RANK", "0")) == 0:
        print(f"value of the first step: {values[0]:.5f}")
        print(f"length of its gradient: {length:.5f}")
        print(f"value of the last step: {values[-1]:.5f}")
        print(f"Recall@1 of images that were not trained, before: {before:.3f}")
        print(f"                                           after: {after:.3f}")


if __name__ == "__main__":
    main()
