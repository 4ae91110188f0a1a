r"""Confusion-based metric learning, energy and diversity confusion (Chen et al., TNNLS 2022).

    nearfar train cars:CARS_196 --recipe cml/cars_binomial --protocol paper --pretrained bvlc_googlenet.caffemodel \
        --out runs/cml-cars
    nearfar compare cars:CARS_196 --recipe cml/table2 --protocol paper \
        --set pretrained=bvlc_googlenet.caffemodel --out runs/cml-table2

Published Recall@1 (%) without and with both confusions, 512 dimensions, mean of five runs:

              triplet       N-pair        binomial
    Cars      68.4 -> 83.0  74.5 -> 81.2  74.2 -> 85.1
    CUB       48.9 -> 55.3  51.2 -> 54.6  53.1 -> 56.7
    SOP       57.8 -> 66.3  68.0 -> 70.5  68.5 -> 72.2
    In-Shop   64.6 -> 70.4  77.9 -> 79.6  82.0 -> 84.4

`cars_binomial_none` and the like are without confusion; `_energy` is the paper's CML-e, `_diversity` its CML-d.

Weights of the trunk in the protocol of the paper: `bvlc_googlenet.caffemodel`, with the SHA-1
405fc5acd08a3bb12de8ee5e23a96bec22f08204, the GoogLeNet of the public code. The default protocol takes BN-Inception,
`bn_inception-52deb4733.pth`.

What the default protocol does differently from the paper: it holds training classes out to choose the checkpoint; its
trunk is BN-Inception; it cuts a central square where the paper brings both sides to 256 pixels; it averages where
equations 12 to 14 add up, so that the published weights of the confusions weigh some hundred times more beside the
loss; it takes the mean energy of all pairs of classes, which is the expectation of that of one pair; and `NPairLoss`
has its weight of the norms.

What still differs with `--protocol paper`: equation 12 does not say which negative a triplet has, here it is a random
one for every positive pair (the public code takes at most 120 that violate the margin, half of them the hardest); both
items of a pair are anchors; Caffe's rate of biases, twice that of weights and without decay, is not kept; the public
code has batches of 130 and descends the logarithm of the energy on the embedding layer alone (EnergyConfusion(mode=
"ecaml_code", layer="embedding")), the article does not.
"""

from typing import Any

from .tables import PaperTable, Row

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

SUMS = {
    "triplet": 'TripletLoss(margin=0.1, miner=RandomNegative(), reduction="sum")',
    "n_pair": 'NPairLoss(reg=0.0, reduction="sum")',
    "binomial": 'BinomialDevianceLoss(alpha=2, beta=0.5, eta=25, reduction="sum")',
}
"""The losses as equations 12 to 14 add them up."""

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

TERMS = {"": (True, True), "_energy": (True, False), "_diversity": (False, True), "_none": (False, False)}
"""Which of the two confusions a recipe has, by the end of its name."""


def confused(loss: str, energy: float = 0.0, diversity: float = 0.0, *, sums: bool = False) -> str:
    """Return a base loss with confusions of these weights as text; with `sums` as the paper writes it."""
    parts = [SUMS[loss] if sums else LOSSES[loss]]
    if energy:
        parts.append(f"{energy}*EnergyConfusion({_pairs(sums)})")
    if diversity:
        parts.append(f"{diversity}*DiversityConfusion()")
    return " + ".join(parts)


def _pairs(sums: bool) -> str:
    return 'pairs="one"' if sums else ""


def _objective(dataset: str, loss: str, terms: tuple[bool, bool], *, sums: bool = False) -> str:
    energy = ENERGY[dataset][loss] if terms[0] else 0.0
    diversity = DIVERSITY[dataset][loss] if terms[1] else 0.0
    return confused(loss, energy, diversity, sums=sums)


RECIPES: dict[str, dict[str, Any]] = {
    f"{dataset}_{loss}{end}": COMMON | settings | {"objective": _objective(dataset, loss, terms)}
    for end, terms in TERMS.items()
    for dataset, settings in DATASETS.items()
    for loss in LOSSES
}

PAPER: dict[str, dict[str, Any]] = {
    f"{dataset}_{loss}{end}": {
        "trunk": "googlenet",
        "squash": True,
        "objective": _objective(dataset, loss, terms, sums=True),
    }
    for end, terms in TERMS.items()
    for dataset in DATASETS
    for loss in LOSSES
}

SHORT = {"triplet": "Tri", "n_pair": "N-Pair", "binomial": "Binomial"}
ALONE = {"triplet": "Triplet", "n_pair": "N-Pair", "binomial": "Binomial"}
METHODS = {"_none": "", "_energy": "CML-e", "_diversity": "CML-d", "": "CML"}


def _method(loss: str, end: str) -> str:
    return f"{METHODS[end]} ({SHORT[loss]})" if METHODS[end] else ALONE[loss]


def _published(dataset: str, columns: tuple[str, ...], others: dict[str, str], figures: str) -> dict[str, Any]:
    """Return the rows of one of Tables II to V: other methods, then twelve rows of figures of one line each."""
    lines = iter(figures.strip().splitlines())
    rows = [Row.of(name, None, columns, values) for name, values in others.items()]
    for loss in LOSSES:
        for end in METHODS:
            rows.append(Row.of(_method(loss, end), f"{dataset}_{loss}{end}", columns, next(lines)))
    return {dataset: tuple(rows)}


CARS = _published(
    "cars",
    ("R@1", "R@2", "R@4", "NMI", "F1"),
    {
        "Lifted": "49.0 60.3 72.1 55.1 21.5",
        "Clustering": "58.1 70.6 80.3 59.0 -",
        "Angular": "71.3 80.7 87.0 62.4 31.8",
        "ALMN": "71.6 81.3 88.2 62.0 29.4",
        "DAML": "75.1 83.8 89.7 66.0 36.4",
        "HORDE": "80.7 88.1 92.6 67.9 37.2",
    },
    """
    68.4±0.15 78.3±0.07 86.2±0.01 58.8±0.25 26.7±0.18
    81.2±0.17 88.0±0.06 92.8±0.00 66.0±0.19 32.8±0.23
    82.4±0.14 89.5±0.07 93.5±0.00 67.8±0.25 36.9±0.16
    83.0±0.16 89.7±0.03 93.8±0.00 67.7±0.12 38.3±0.07
    74.5±0.26 83.7±0.11 90.2±0.08 60.7±0.26 29.7±0.22
    80.3±0.18 88.2±0.06 92.4±0.00 64.7±0.15 32.2±0.08
    78.9±0.14 86.9±0.07 91.9±0.00 66.3±0.12 36.1±0.10
    81.2±0.15 88.6±0.05 92.7±0.00 66.7±0.17 36.6±0.13
    74.2±0.12 83.1±0.04 86.7±0.00 61.7±0.09 28.8±0.04
    84.4±0.12 90.4±0.05 93.8±0.00 68.4±0.11 38.2±0.05
    83.4±0.14 89.7±0.02 93.6±0.00 68.4±0.09 37.2±0.14
    85.1±0.14 90.8±0.04 94.0±0.00 69.3±0.14 39.1±0.08
    """,
)
SOP = _published(
    "sop",
    ("R@1", "R@10", "R@100", "NMI", "F1"),
    {
        "Lifted": "62.1 79.8 91.3 87.4 24.7",
        "Clustering": "67.0 83.7 93.2 89.5 -",
        "Angular": "70.9 85.0 93.5 87.8 26.5",
        "ALMN": "69.9 84.8 92.8 - -",
        "DAML": "68.4 83.5 92.3 89.4 32.4",
        "HORDE": "71.4 85.6 93.6 89.7 32.5",
    },
    """
    57.8±0.03 75.6±0.01 88.5±0.00 86.8±0.05 20.8±0.04
    64.9±0.02 80.0±0.01 90.5±0.00 86.8±0.06 23.4±0.07
    65.1±0.01 80.2±0.01 90.7±0.00 87.2±0.12 23.0±0.05
    66.3±0.01 80.8±0.00 91.0±0.00 87.3±0.05 24.3±0.07
    68.0±0.01 84.0±0.00 93.1±0.00 87.5±0.08 25.8±0.02
    69.8±0.01 84.7±0.00 93.2±0.00 88.1±0.03 27.5±0.06
    69.8±0.00 85.1±0.00 93.4±0.00 88.1±0.01 27.8±0.00
    70.5±0.01 85.2±0.00 93.4±0.00 88.1±0.02 28.0±0.03
    68.5±0.02 84.0±0.00 93.1±0.00 88.5±0.08 29.9±0.05
    71.3±0.03 85.6±0.01 93.6±0.01 89.9±0.16 32.7±0.14
    71.2±0.02 85.4±0.01 93.5±0.00 89.7±0.15 32.6±0.09
    72.2±0.05 85.9±0.02 93.7±0.01 89.9±0.11 32.6±0.05
    """,
)
CUB = _published(
    "cub",
    ("R@1", "R@2", "R@4", "NMI", "F1"),
    {
        "Lifted": "47.2 58.9 70.2 56.2 22.7",
        "Clustering": "48.2 61.4 71.8 59.2 -",
        "Angular": "53.6 65.0 75.3 61.0 30.2",
        "ALMN": "52.4 64.8 75.4 60.7 28.5",
        "DAML": "52.7 65.4 75.5 61.3 29.5",
        "HORDE": "55.7 66.9 77.0 61.8 31.1",
    },
    """
    48.9±0.24 62.1±0.18 73.0±0.07 56.9±0.33 24.7±0.25
    53.8±0.22 64.6±0.13 75.2±0.08 59.4±0.14 27.0±0.21
    55.2±0.19 66.8±0.09 76.3±0.04 60.8±0.22 29.0±0.27
    55.3±0.13 67.1±0.04 76.5±0.01 61.5±0.25 29.2±0.18
    51.2±0.27 63.1±0.15 73.8±0.03 58.4±0.34 26.8±0.19
    53.4±0.22 65.0±0.10 75.5±0.05 60.1±0.21 28.6±0.18
    53.3±0.24 65.8±0.14 76.4±0.05 60.3±0.22 28.6±0.16
    54.6±0.17 66.1±0.10 76.8±0.03 60.9±0.23 29.3±0.21
    53.1±0.13 65.1±0.09 75.3±0.02 59.4±0.28 26.5±0.24
    55.7±0.17 66.5±0.08 76.7±0.04 61.8±0.25 30.5±0.16
    56.2±0.16 66.9±0.04 76.9±0.01 61.3±0.18 31.1±0.12
    56.7±0.13 67.3±0.02 77.1±0.00 62.8±0.12 31.7±0.09
    """,
)
INSHOP = _published(
    "inshop",
    ("R@1", "R@10", "R@20", "R@30", "R@40"),
    {
        "Joints": "41 64 68 71 73",
        "Poselets": "42 65 70 72 74",
        "FashionNet": "53 73 76 77 79",
        "HDC": "62.1 84.9 89.0 91.2 92.3",
        "BIER": "76.9 92.8 95.2 96.2 96.7",
        "HORDE": "83.9 94.8 96.5 97.5 97.7",
    },
    """
    64.6±0.17 87.3±0.10 90.9±0.05 92.7±0.04 93.9±0.01
    68.3±0.22 90.0±0.14 93.3±0.04 94.8±0.01 95.7±0.00
    69.6±0.17 90.2±0.09 94.1±0.04 95.4±0.01 95.8±0.01
    70.4±0.15 90.6±0.04 94.2±0.03 95.4±0.01 95.8±0.00
    77.9±0.18 94.0±0.09 96.1±0.06 96.9±0.02 97.4±0.00
    79.5±0.21 94.6±0.16 96.1±0.11 97.0±0.01 97.4±0.00
    78.7±0.13 94.0±0.08 95.9±0.03 96.9±0.03 97.3±0.00
    79.6±0.17 94.5±0.13 96.2±0.08 97.1±0.04 97.5±0.01
    82.0±0.23 94.6±0.14 96.2±0.08 97.2±0.02 97.6±0.01
    83.9±0.17 95.2±0.11 96.5±0.06 97.3±0.05 97.7±0.02
    83.2±0.22 95.0±0.15 96.4±0.11 97.3±0.06 97.7±0.02
    84.4±0.18 95.3±0.14 96.7±0.06 97.5±0.04 97.7±0.00
    """,
)


def _table6() -> tuple[Row, ...]:
    columns = ("R@1", "R@2", "R@4", "R@8")
    dropout = {
        0.1: "73.3±0.26 82.2±0.18 88.7±0.07 92.5±0.04",
        0.25: "74.8±0.31 83.6±0.24 85.9±0.15 92.6±0.10",
        0.4: "72.3±0.44 81.0±0.27 87.3±0.22 92.4±0.16",
    }
    rows = [Row.of("Binomial", "cars_binomial_none", columns, "74.2±0.12 83.1±0.04 86.7±0.00 92.9±0.00")]
    for share, figures in dropout.items():
        settings = {"dropout": share}
        rows.append(Row.of(f"Dropout {share:g}", "cars_binomial_none", columns, figures, settings=settings))
    rows += [
        Row.of("CML-e", "cars_binomial_energy", columns, "84.4±0.12 90.4±0.05 93.8±0.00 96.6±0.00"),
        Row.of("CML-d", "cars_binomial_diversity", columns, "83.4±0.14 89.7±0.02 93.6±0.00 96.2±0.00"),
        Row.of("CML", "cars_binomial", columns, "85.1±0.14 90.8±0.04 94.0±0.00 96.7±0.00"),
    ]
    return tuple(rows)


def _weights(term: str, published: dict[str, str]) -> tuple[Row, ...]:
    """Return the rows of Tables VII and VIII: weights of one confusion, and Recall@1."""
    rows = []
    for loss, text in published.items():
        for entry in text.split():
            weight, figure = entry.split(":")
            energy = float(weight) if term == "energy" else 0.0
            diversity = float(weight) if term == "diversity" else 0.0
            rows.append(
                Row.of(
                    f"{ALONE[loss]}, {term} {weight}",
                    f"cars_{loss}_none",
                    ("R@1",),
                    figure,
                    settings={"objective": confused(loss, energy, diversity)},
                    paper={"objective": confused(loss, energy, diversity, sums=True)},
                )
            )
    return tuple(rows)


TABLE7 = _weights(
    "energy",
    {
        "triplet": "0:68.3 0.001:74.6 0.01:80.1 0.02:81.2 0.1:72.3 1:59.3",
        "n_pair": "0:74.3 0.1:77.4 0.2:79.6 0.3:80.3 0.4:78.6 0.5:73.7",
        "binomial": "0:74.2 0.01:76.3 0.1:83.1 0.13:84.4 0.15:84.3 0.5:69.7",
    },
)
TABLE8 = _weights(
    "diversity",
    {
        "triplet": "0:68.3 0.01:80.5 0.02:81.3 0.03:82.0 0.04:82.4 0.05:81.4",
        "n_pair": "0:74.3 0.01:77.0 0.02:78.9 0.03:78.1 0.04:76.7 0.05:73.4",
        "binomial": "0:74.2 0.01:78.4 0.02:82.2 0.03:83.4 0.04:80.1 0.05:79.5",
    },
)


def _table9() -> tuple[Row, ...]:
    columns = ("R@1", "R@2", "R@4", "NMI")
    figures = {
        128: ("70.4±0.23 80.6±0.10 87.2±0.06 60.8±0.21", "79.7±0.26 87.7±0.11 91.9±0.05 64.5±0.17"),
        256: ("73.3±0.19 82.4±0.04 88.5±0.01 61.5±0.15", "82.8±0.23 88.9±0.02 92.7±0.01 66.9±0.14"),
        384: ("74.0±0.15 82.5±0.03 88.8±0.01 61.9±0.18", "84.0±0.12 90.1±0.06 93.9±0.02 67.7±0.15"),
        512: ("74.2±0.12 83.1±0.04 86.7±0.00 61.7±0.09", "85.1±0.14 90.8±0.04 94.0±0.00 69.3±0.14"),
    }
    rows = []
    for size, (plain, whole) in figures.items():
        settings = {"embedding_dim": size}
        rows.append(Row.of(f"Binomial, {size}", "cars_binomial_none", columns, plain, settings=settings))
        rows.append(Row.of(f"CML (Binomial), {size}", "cars_binomial", columns, whole, settings=settings))
    return tuple(rows)


def _table10() -> tuple[Row, ...]:
    columns = ("diversity, seen", "diversity, unseen", "R@1")
    return (
        Row.of("Binomial", "cars_binomial_none", columns, "1.67 1.24 74.2"),
        Row.of("CML-d (Binomial)", "cars_binomial_diversity", columns, "1.54 1.49 83.5"),
    )


def _table11() -> tuple[Row, ...]:
    columns = ("R@1", "R@2", "R@4", "R@8", "NMI", "F1")
    erasing = {"augment": f"{COMMON['augment']}, erasing(area=(0.02, 0.4), aspect=(0.3, 3.33))"}
    return (
        Row.of(
            "RE",
            "cars_binomial_none",
            columns,
            "82.1±0.29 89.3±0.15 93.5±0.02 96.0±0.01 68.4±0.23 37.9±0.17",
            settings=erasing,
        ),
        Row.of("CML", "cars_binomial", columns, "85.1±0.14 90.8±0.04 94.0±0.00 96.7±0.00 69.3±0.14 39.1±0.08"),
        Row.of(
            "CML+RE",
            "cars_binomial",
            columns,
            "86.8±0.20 91.0±0.13 94.0±0.01 96.7±0.00 69.7±0.21 39.5±0.17",
            settings=erasing,
        ),
    )


TABLES = {
    "table2": PaperTable("Table II: Cars-196", CARS),
    "table3": PaperTable("Table III: Stanford Online Products", SOP),
    "table4": PaperTable("Table IV: CUB-200-2011", CUB),
    "table5": PaperTable("Table V: In-Shop Clothes", INSHOP),
    "ablation": PaperTable("Tables II to V: CML-e, CML-d and CML", {**CARS, **SOP, **CUB, **INSHOP}),
    "table6": PaperTable("Table VI: dropout", {"cars": _table6()}),
    "table7": PaperTable("Table VII: weights of the energy confusion", {"cars": TABLE7}),
    "table8": PaperTable("Table VIII: weights of the diversity confusion", {"cars": TABLE8}),
    "table9": PaperTable("Table IX: embedding sizes", {"cars": _table9()}),
    "table10": PaperTable("Table X: diversity of seen and of unseen classes", {"cars": _table10()}),
    "table11": PaperTable("Table XI: random erasing", {"cars": _table11()}),
}
