"""Photographs and a pretrained network: what settings that are not given become, and three ways to train.

    nearfar train photos/ --trunk timm:mobilenetv1_100 --pretrained true --recipe photos/finetune --out runs/photos

`photos/finetune` trains all weights, `photos/lora` low-rank adapters of the trunk, `photos/frozen` a linear layer on
the features of the trunk as it is. All start the embedding layer from the closed-form whitening of these features.
They are also what settings become that are not given, where the trunk is pretrained and items are photographs.

Grocery photos at 128 pixels, 40 of 81 products unseen, features of the frozen `mobilenetv1_100`: Recall@1 0.950, MAP@R
0.300; whitened in closed form, MAP@R 0.425. On validation classes of the same data one epoch of fine-tuning from the
whitening (40 batches of 64, 512 dimensions, without random changes) ends at Recall@1 0.991 and MAP@R 0.731, with
`mobilenetv2_100` at 0.982 and 0.622. SupCon was chosen there among seven losses, its learning rate from 1e-4 to 1e-3,
with convolutional trunks only. Over five random splits into seen and unseen products, 40 batches of the recipe have a
MAP@R of 0.498, where the whitening alone has 0.429 (`bench/finetune.py`). In longer trainings the best checkpoint was
that of the first or second epoch. The settings of `photos/lora` were not measured.
"""

from typing import Any

COMMON: dict[str, Any] = {
    "objective": "SupConLoss(temperature=0.1)",
    "embedding_dim": 256,
    "embedding_start": "whitening",
    "batch_size": 64,
    "optimizer": "adamw",
    "weight_decay": 1e-4,
    "schedule": "cosine",
    "warmup": 0.25,
    "metric": "auto",
    "precision": "auto",
}

TUNED = COMMON | {
    "freeze_bn": True,
    "augment": "resized_crop(area=(0.6, 1)), mirror",
    "epochs": 8,
    "eval_every": 2,
}

RECIPES: dict[str, dict[str, Any]] = {
    "frozen": COMMON | {"freeze_trunk": True, "lr": 1e-3, "epochs": 4},
    "finetune": TUNED | {"lr": 2e-4, "layer_decay": 0.8},
    "lora": TUNED | {"lora": 16, "lr": 2e-3, "lr_embedding": 2e-4, "layer_decay": 0.8},
}
