"""What the recipes for photographs, sounds and texts have in common: settings that suit a pretrained trunk."""

from typing import Any

PRETRAINED: dict[str, Any] = {
    "embedding_start": "whitening",
    "batch_size": 64,
    "optimizer": "adamw",
    "weight_decay": 1e-4,
    "schedule": "cosine",
    "warmup": 0.25,
    "metric": "auto",
    "precision": "auto",
}
