"""Texts and a pretrained text model: what settings that are not given become, and three ways to train.

    nearfar train things.csv --trunk transformers:models/minilm --recipe texts/finetune --out runs/things

`texts/finetune` trains all weights, `texts/lora` low-rank adapters of the trunk, `texts/frozen` a linear layer on the
features of the trunk as it is. All start the embedding layer from the closed-form whitening of these features, so that
the trunk is not spoiled by a random one, and layers near the input learn more slowly. They are also what settings
become that are not given, where a text model of transformers is trained. The run prints Recall@1 and MAP@R of the model
before the training beside its own.
"""

from typing import Any

from .pretrained import PRETRAINED

COMMON: dict[str, Any] = PRETRAINED | {"objective": "SupConLoss(temperature=0.1)", "embedding_dim": 384}

RECIPES: dict[str, dict[str, Any]] = {
    "frozen": COMMON | {"freeze_trunk": True, "lr": 1e-3, "epochs": 4},
    "finetune": COMMON | {"lr": 5e-5, "lr_embedding": 2e-4, "layer_decay": 0.8, "epochs": 2},
    "lora": COMMON | {"lora": 16, "lr": 5e-4, "lr_embedding": 2e-4, "layer_decay": 0.8, "epochs": 2},
}
