r"""Deep metric learning via facility location (Oh Song et al., CVPR 2017).

    nearfar train cub:CUB_200_2011 --recipe facility_location/cub --protocol paper \
        --pretrained bn_inception-52deb4733.pth --out runs/fl-cub
    nearfar compare cub:CUB_200_2011 --recipe facility_location/table1 --protocol paper \
        --set pretrained=bn_inception-52deb4733.pth --out runs/fl-table1

Published NMI (geometric mean) and Recall@K (%), BN-Inception, 64 dimensions:

    CUB   NMI 59.2  @1 48.2  @2 61.4   @4 71.8
    Cars  NMI 59.0  @1 58.1  @2 70.6   @4 80.3
    SOP   NMI 89.5  @1 67.0  @10 83.7  @100 93.2

`cub_semihard`, `cub_lifted` and `cub_n_pair` are the methods that the paper compares with.

Weights of the trunk: `bn_inception-52deb4733.pth`, whose SHA-256 begins with 52deb4733. The paper does not name the
file of its weights, which were TensorFlow's.

The paper does not state the learning rate, gamma's first value (10 here) or its period (500 batches here, as in later
code: an epoch of CUB has 39, and gamma would be gone after a third of the steps), nor the margin of triplets (0.2 here)
and the weight of the norms in the N-pair loss (half of 0.002 here, as in TensorFlow's code).

What the default protocol does differently from the paper: it holds training classes out to choose the checkpoint, cuts
a central square where the paper brings both sides to 256 pixels, and takes PyTorch's constants of RMSprop.

What still differs with `--protocol paper`: PyTorch's RMSprop begins its mean of squared gradients at 0, TensorFlow's at
1, and adds eps outside of the root; batches of the baselines are those of the method, but for pairs in the N-pair loss;
batch normalization is trained with PyTorch's momentum.
"""

from typing import Any

from .tables import PaperTable, Row

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

DATASETS: dict[str, dict[str, Any]] = {
    "cub": {"sampler": "class_ratio:0.25", "steps": 10_000},
    "cars": {"sampler": "class_ratio:0.25", "steps": 20_000},
    "sop": {"sampler": "class_ratio:0.75", "steps": 20_000, "ks": [1, 10, 100]},
}

BASELINES: dict[str, dict[str, Any]] = {
    "": {},
    "_semihard": {"objective": "TripletLoss(margin=0.2, miner=BatchSemiHard())"},
    "_lifted": {"objective": "LiftedLoss(margin=1.0)"},
    "_n_pair": {"objective": "NPairLoss(reg=0.001)", "sampler": "m_per_class:2"},
}

RECIPES: dict[str, dict[str, Any]] = {
    f"{dataset}{baseline}": COMMON | settings | changes
    for baseline, changes in BASELINES.items()
    for dataset, settings in DATASETS.items()
}

PAPER: dict[str, dict[str, Any]] = {
    name: {"squash": True, "rmsprop_decay": 0.9, "eps": 1e-10, "momentum": 0.0, "freeze_bn": False} for name in RECIPES
}

COLUMNS = ("NMI geometric", "R@1", "R@2", "R@4", "R@8")
SOP_COLUMNS = ("NMI geometric", "R@1", "R@10", "R@100")
NAMES = {"_semihard": "triplet, semi-hard", "_lifted": "lifted structure", "_n_pair": "N-pair", "": "clustering"}


def _compared(dataset: str, columns: tuple[str, ...], *figures: str) -> dict[str, tuple[Row, ...]]:
    """Return the rows of a table: the three baselines and the method, with their published figures."""
    return {
        dataset: tuple(
            Row.of(name, f"{dataset}{baseline}", columns, published)
            for (baseline, name), published in zip(NAMES.items(), figures, strict=True)
        )
    }


TABLES = {
    "table1": PaperTable(
        "Table 1: CUB-200-2011",
        _compared(
            "cub",
            COLUMNS,
            "55.38 42.59 55.03 66.44 77.23",
            "56.50 43.57 56.55 68.59 79.63",
            "57.24 45.37 58.41 69.51 79.49",
            "59.23 48.18 61.44 71.83 81.92",
        ),
    ),
    "table2": PaperTable(
        "Table 2: Cars-196",
        _compared(
            "cars",
            COLUMNS,
            "53.35 51.54 63.78 73.52 82.41",
            "56.88 52.98 65.70 76.01 84.27",
            "57.79 53.90 66.76 77.75 86.35",
            "59.04 58.11 70.64 80.27 87.81",
        ),
    ),
    "table3": PaperTable(
        "Table 3: Stanford Online Products",
        _compared(
            "sop",
            SOP_COLUMNS,
            "89.35 66.67 82.39 91.85",
            "88.65 62.46 80.81 91.93",
            "89.37 66.41 83.24 93.00",
            "89.48 67.02 83.65 93.23",
        ),
    ),
}
