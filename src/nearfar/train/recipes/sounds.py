"""Sounds and a pretrained encoder: what settings that are not given become, and three ways to train.

    nearfar train voices/ --trunk ge2e --pretrained pretrained.pt --recipe sounds/finetune --out runs/voices

`sounds/finetune` trains all weights, `sounds/lora` low-rank adapters of the trunk, `sounds/frozen` a linear layer on
the features of the trunk as it is. All start the embedding layer from the closed-form whitening of these features. They
are also what settings become that are not given, where an encoder of sounds starts from pretrained weights.

Settings follow `texts/...`: they were not chosen on sounds. The features of `ge2e` as it is have Recall@1 0.985 and
MAP@R 0.198 on the spoken digits 5 to 9 of six speakers, statistics of the spectrogram 0.976 and 0.219.
"""

from typing import Any

from .pretrained import PRETRAINED

COMMON: dict[str, Any] = PRETRAINED | {"objective": "SupConLoss(temperature=0.1)", "embedding_dim": 256}

RECIPES: dict[str, dict[str, Any]] = {
    "frozen": COMMON | {"freeze_trunk": True, "lr": 1e-3, "epochs": 4},
    "finetune": COMMON | {"lr": 1e-4, "lr_embedding": 2e-4, "layer_decay": 0.8, "epochs": 4},
    "lora": COMMON | {"lora": 16, "lr": 5e-4, "lr_embedding": 2e-4, "layer_decay": 0.8, "epochs": 4},
}
