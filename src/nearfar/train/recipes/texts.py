"""Texts and a pretrained text model: what settings that are not given become, and three ways to train.

    nearfar train things.csv --trunk transformers:models/minilm --recipe texts/finetune --out runs/things

`texts/finetune` trains all weights, `texts/lora` low-rank adapters of the trunk, `texts/frozen` a linear layer on the
features of the trunk as it is. They are also what settings become that are not given, where a text model of
transformers is trained. The run prints Recall@1 and MAP@R of the model before the training beside its own.

`texts/finetune` starts from the features as they are: the model has learned from many texts how to compare them, and a
whitening of few texts spoils that, before the training and after it. Embeddings are as wide as the features, and the
number of epochs depends on the number of texts, so that neither is part of this recipe. The others start from the
closed-form whitening of the features.
"""

from typing import Any

from .pretrained import PRETRAINED

COMMON: dict[str, Any] = PRETRAINED | {"objective": "SupConLoss(temperature=0.1)"}
WIDTH: dict[str, Any] = {"embedding_dim": 384}

RECIPES: dict[str, dict[str, Any]] = {
    "frozen": COMMON | WIDTH | {"freeze_trunk": True, "lr": 1e-3, "epochs": 4},
    "finetune": COMMON | {"embedding_start": "features", "lr": 4e-5, "metric": "none"},
    "lora": COMMON | WIDTH | {"lora": 16, "lr": 5e-4, "lr_embedding": 2e-4, "layer_decay": 0.8, "epochs": 2},
}
