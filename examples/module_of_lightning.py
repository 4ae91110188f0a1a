"""Use an objective with PyTorch Lightning
=======================================

    python examples/module_of_lightning.py
    torchrun --nproc_per_node 2 examples/module_of_lightning.py

The network and the objective are parts of the module, and `training_step` returns the loss. The sampler of nearfar
already gives each process its part of the batch, so tell Lightning not to split the batches again:
`use_distributed_sampler=False`. Both commands train the same weights. The script takes about 10 seconds on one core,
and needs pytorch-lightning.
"""

# sphinx_gallery_thumbnail_path = "pictures/module_of_lightning.svg"

import logging
import os
import warnings

import pytorch_lightning as lightning
import torch
from pytorch_lightning.strategies import DDPStrategy
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from nearfar import AMSoftmaxLoss, MPerClassSampler, TripletLoss

CLASSES = 10
DIM = 16


class Learner(lightning.LightningModule):
    """The network and the objective."""

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, DIM))
        self.objective = TripletLoss() + 0.1 * AMSoftmaxLoss(CLASSES, DIM)
        self.values = []
        self.lengths = []

    def training_step(self, batch, _):
        images, labels = batch
        value = self.objective(self.network(images), labels)
        self.values.append(float(value.detach()))
        return value

    def on_before_optimizer_step(self, _):
        gradients = [part.grad for part in self.parameters() if part.grad is not None]
        self.lengths.append(float(torch.stack([part.norm() for part in gradients]).norm()))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main():
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")  # of a loader without workers, and of a log that is not kept
    lightning.seed_everything(0, verbose=False)
    images, labels = (torch.as_tensor(part)[:1200] for part in load_digits(return_X_y=True))
    batches = MPerClassSampler(labels, m=8, batch_size=40, rounds=None)
    loader = DataLoader(TensorDataset(images.float() / 16, labels), batch_sampler=batches)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=processes,
        strategy=DDPStrategy(process_group_backend="gloo") if processes > 1 else "auto",
        use_distributed_sampler=False,
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    learner = Learner()
    trainer.fit(learner, loader)
    if trainer.is_global_zero:
        print(f"value of the first step: {learner.values[0]:.5f}")
        print(f"length of its gradient: {learner.lengths[0]:.5f}")
        print(f"value of the last step: {learner.values[-1]:.5f}")


if __name__ == "__main__":
    main()
