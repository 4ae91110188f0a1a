"""Use an objective with the Trainer of transformers
=================================================

    python examples/trainer_of_transformers.py
    torchrun --nproc_per_node 2 examples/trainer_of_transformers.py

Put the network and the objective into one module that returns the loss as `loss`, and pass it to the Trainer as its
model. The sampler of nearfar already gives each process its part of the batch, so the Trainer uses the loader as it is.
Both commands train the same weights. The script takes about 10 seconds on one core, and needs transformers and
accelerate.
"""

# sphinx_gallery_thumbnail_path = "pictures/trainer_of_transformers.svg"

import os
import tempfile

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import PrinterCallback, Trainer, TrainingArguments, set_seed

from nearfar import AMSoftmaxLoss, MPerClassSampler, TripletLoss

CLASSES = 10
DIM = 16


class Digits(Dataset):
    """Images of digits with their labels, as the Trainer passes them to the model."""

    def __init__(self):
        images, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
        self.images = images[:1200].float() / 16
        self.labels = labels[:1200]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"images": self.images[i], "labels": self.labels[i]}


class Model(nn.Module):
    """The network and the objective in one module."""

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, DIM))
        self.objective = TripletLoss() + 0.1 * AMSoftmaxLoss(CLASSES, DIM)

    def forward(self, images, labels):
        return {"loss": self.objective(self.network(images), labels)}


class ClassTrainer(Trainer):
    """A Trainer whose batches hold some images of each of some classes."""

    def get_train_dataloader(self):
        batches = MPerClassSampler(self.train_dataset.labels, m=8, batch_size=40, rounds=None)
        return DataLoader(self.train_dataset, batch_sampler=batches)


def main():
    set_seed(0)
    backend = "gloo" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else None
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=60,
            logging_steps=1,
            learning_rate=3e-3,
            use_cpu=True,
            ddp_backend=backend,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = ClassTrainer(Model(), arguments, train_dataset=Digits())
        trainer.remove_callback(PrinterCallback)  # which prints a line for every step
        trainer.train()
    log = [record for record in trainer.state.log_history if "grad_norm" in record]
    if trainer.is_world_process_zero():
        print(f"value of the first step: {log[0]['loss']:.5f}")
        print(f"length of its gradient: {log[0]['grad_norm']:.5f}")
        print(f"value of the last step: {log[-1]['loss']:.5f}")


if __name__ == "__main__":
    main()
