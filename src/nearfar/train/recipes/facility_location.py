"""Deep metric learning via facility location (Oh Song et al., CVPR 2017).

    nearfar train cub:CUB_200_2011 --recipe facility_location/cub --set trunk_weights=bn_inception.pth --out runs/fl-cub

Published NMI (geometric mean) and Recall@K (%), BN-Inception, 64 dimensions:

    CUB   NMI 59.2  @1 48.2  @2 61.4   @4 71.8
    Cars  NMI 59.0  @1 58.1  @2 70.6   @4 80.3
    SOP   NMI 89.5  @1 67.0  @10 83.7  @100 93.2

The paper does not state the learning rate, gamma's first value (10 here) or its period (500 batches here, as in later
code: an epoch of CUB has 39, and gamma would be gone after a third of the steps).
"""

from typing import Any

COMMON: dict[str, Any] = {
    "objective": "FacilityLocationLoss(gamma=10.0, decay=0.94, period=500)",
    "trunk": "bn_inception",
    "embedding_dim": 64,
    "image_size": 227,
    "resize": 256,
    "augment": "crop(size=227), mirror",
    "batch_size": 128,
    "optimizer": "rmsprop",
    "lr": 1e-5,
    "lr_embedding": 1e-4,
}

RECIPES: dict[str, dict[str, Any]] = {
    "cub": COMMON | {"sampler": "class_ratio:0.25", "steps": 10_000},
    "cars": COMMON | {"sampler": "class_ratio:0.25", "steps": 20_000},
    "sop": COMMON | {"sampler": "class_ratio:0.75", "steps": 20_000, "ks": [1, 10, 100]},
}
