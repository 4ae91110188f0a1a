"""Distance metric learning with joint representation diversification (Chu et al., ICML 2020).

    nearfar train cub:CUB_200_2011 --recipe jrd/cub --set trunk_weights=bn_inception.pth --out runs/jrd-cub

Published Recall@K (%) on the whole test split, BN-Inception, 512 dimensions:

    CUB   @1 67.9  @2 78.7  @4 86.2   @8 91.3
    Cars  @1 84.7  @2 90.7  @4 94.4   @8 97.2
    SOP   @1 79.2  @10 90.5  @100 96.0

On ten disjoint parts of the test split (mean and 95% interval) the paper gives 50.7 (1.1) for CUB and 61.2 (1.3) for
Cars: `nearfar.evaluation.subset_recall`. The two protocols must not be mixed.

What differs from the paper: it selected by ten-fold cross-validation, these recipes select by held-out training
classes. eps and weight decay are those of the paper's public code.
"""

from typing import Any

COMMON: dict[str, Any] = {
    "trunk": "bn_inception",
    "embedding_dim": 512,
    "freeze_bn": True,
    "image_size": 224,
    "resize": 256,
    "augment": "resized_crop(size=224), mirror",
    "sampler": "random",
    "optimizer": "adam",
    "eps": 0.01,
    "weight_decay": 1e-4,
    "lr": 1e-4,
    "lr_embedding": 1e-4,
    "lr_proxies": 1e-2,
    "schedule": "step",
    "lr_step": 20,
    "lr_gamma": 0.1,
    "epochs": 50,
}

RECIPES: dict[str, dict[str, Any]] = {
    "cub": COMMON | {"objective": "AMSoftmaxLoss(scale=20, margin=0.1) + 1.0*JRS()", "batch_size": 100},
    "cars": COMMON | {"objective": "AMSoftmaxLoss(scale=20, margin=0.05) + 1.0*JRS()", "batch_size": 50},
    "sop": COMMON
    | {
        "objective": "AMSoftmaxLoss(scale=20, margin=0.1) + 0.4*JRS()",
        "batch_size": 120,
        "lr_proxies": 1e-1,
        "lr_step": 40,
        "epochs": 80,
        "ks": [1, 10, 100],
    },
}
