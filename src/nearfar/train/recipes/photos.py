"""Photographs and a pretrained network: what settings that are not given become, and three ways to train.

    nearfar train photos/ --trunk timm:mobilenetv1_100 --pretrained true --recipe photos/finetune --out runs/photos

`photos/finetune` trains all weights, `photos/lora` low-rank adapters of the trunk, `photos/frozen` a linear layer on
the features of the trunk as it is. All start the embedding layer from the closed-form whitening of these features.
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
