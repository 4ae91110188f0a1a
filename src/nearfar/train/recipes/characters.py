"""Characters of 28x28 pixels with a small network: minutes on two cores, no files to fetch for the glyphs.

    nearfar train glyphs --recipe characters/glyphs --out runs/glyphs

    nearfar train images_background_small1.zip --recipe characters/omniglot --test images_background_small2.zip
        --test-class "Japanese_(katakana)" --test-class Sanskrit --test-class Tagalog --out runs/omniglot

Additive-margin softmax (Wang et al., 2018) on the 64 dimensions of conv4, and nothing else. On the unseen classes:

    glyphs     Recall@1 0.77, MAP@R 0.37   (pixels: 0.30, 0.04)
    omniglot   Recall@1 0.84, MAP@R 0.47   (pixels: 0.37, 0.06)
"""

from typing import Any

COMMON: dict[str, Any] = {
    "objective": "AMSoftmaxLoss(scale=20, margin=0.1)",
    "trunk": "conv4",
    "embedding_dim": 64,
    "sampler": "m_per_class:4",
    "batch_size": 128,
    "lr": 2e-3,
    "schedule": "cosine",
    "select": "map_at_r",
}

RECIPES: dict[str, dict[str, Any]] = {
    "glyphs": COMMON | {"augment": "affine", "epochs": 30, "eval_every": 2},
    "omniglot": COMMON
    | {
        "augment": "affine(degrees=20, scale=(0.7, 1.3), shear=20, translate=0.1)",
        "epochs": 60,
        "eval_every": 5,
    },
}
