"""Confusion-based metric learning, energy and diversity confusion (Chen et al., TNNLS 2022).

    nearfar train cars:CARS_196 --recipe cml/cars_binomial --set trunk_weights=bn_inception.pth --out runs/cml-cars

Published Recall@1 (%) without and with both confusions, 512 dimensions, mean of five runs:

              triplet       N-pair        binomial
    Cars      68.4 -> 83.0  74.5 -> 81.2  74.2 -> 85.1
    CUB       48.9 -> 55.3  51.2 -> 54.6  53.1 -> 56.7
    SOP       57.8 -> 66.3  68.0 -> 70.5  68.5 -> 72.2
    In-Shop   64.6 -> 70.4  77.9 -> 79.6  82.0 -> 84.4

What differs from the paper: its trunk is GoogLeNet v1; these recipes take BN-Inception.
"""

from typing import Any

COMMON: dict[str, Any] = {
    "trunk": "bn_inception",
    "embedding_dim": 512,
    "image_size": 227,
    "resize": 256,
    "augment": "crop(size=227), mirror",
    "sampler": "m_per_class:2",
    "batch_size": 128,
    "optimizer": "adam",
    "lr": 1e-5,
    "lr_embedding": 1e-4,
    "weight_decay": 2e-4,
}

LOSSES = {
    "triplet": "TripletLoss(margin=0.1)",
    "n_pair": "NPairLoss()",
    "binomial": "BinomialDevianceLoss(alpha=2, beta=0.5, eta=25)",
}

DATASETS: dict[str, dict[str, Any]] = {
    "cub": {"steps": 5_000},
    "cars": {"steps": 10_000},
    "sop": {"steps": 20_000, "ks": [1, 10, 100]},
    "inshop": {"steps": 20_000, "ks": [1, 10, 20, 30, 40]},
}

ENERGY = {
    "cub": {"triplet": 0.02, "n_pair": 0.3, "binomial": 0.13},
    "cars": {"triplet": 0.02, "n_pair": 0.3, "binomial": 0.13},
    "sop": {"triplet": 0.002, "n_pair": 0.03, "binomial": 0.013},
    "inshop": {"triplet": 0.002, "n_pair": 0.03, "binomial": 0.013},
}

DIVERSITY = {
    "cub": {"triplet": 0.01, "n_pair": 0.02, "binomial": 0.03},
    "cars": {"triplet": 0.04, "n_pair": 0.02, "binomial": 0.03},
    "sop": {"triplet": 0.01, "n_pair": 0.02, "binomial": 0.01},
    "inshop": {"triplet": 0.01, "n_pair": 0.02, "binomial": 0.01},
}


def confused(dataset: str, loss: str) -> str:
    """Return a base loss with both confusions, as text."""
    energy = ENERGY[dataset][loss]
    diversity = DIVERSITY[dataset][loss]
    return f"{LOSSES[loss]} + {energy}*EnergyConfusion() + {diversity}*DiversityConfusion()"


RECIPES: dict[str, dict[str, Any]] = {
    f"{dataset}_{loss}": COMMON | settings | {"objective": confused(dataset, loss)}
    for dataset, settings in DATASETS.items()
    for loss in LOSSES
}
