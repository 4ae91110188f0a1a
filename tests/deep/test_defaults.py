"""Defaults of the papers and of their published code that no law shows, because they change nothing in a small batch.

What a formula is given by default is held against the formula's own defaults, in `tests/references`.
"""

from inspect import signature

import pytest

pytest.importorskip("torch")

import nearfar

DEFAULTS = {
    "AdversarialTriplet": {
        "loss": "TripletLoss(margin=1.0, normalize=False)",
        "lam1": 1.0,
        "lam2": 1.0,
        "alpha": 1.0,
        "hinge_sign": -1,
        "joint": False,
        "layers": 2,
    },
    "BatchSemiHard": {"fallback": "farthest", "window": None},
    "BayesianUpdating": {"loss": "triplet", "margin": 0.25, "decay": 1.0, "paper_literal": False},
    "CMLLoss": {"energy": 0.02, "diversity": 0.04},  # with triplets, on Cars
    "ContinuousSimilarityNet": {"alpha": 0.4, "beta": 0.6, "lam": 0.5},
    "CosFaceLoss": {"scale": 64.0, "margin": 0.35},
    "CrossBatchMemory": {"size": 8192, "weight": 1.0},
    "DistanceWeighted": {"cutoff": 0.5, "limit": 1.4},
    "EasyPositive": {"negative": "hard"},
    "EnergyConfusion": {"pairs": "all", "on": "raw"},
    "EpisodeSampler": {"n_way": 5, "k_shot": 1, "n_query": 15},
    "EpisodicTrainer": {"mode": "maml", "inner_steps": 1},
    "FacilityLocationLoss": {"refine": "paper", "greedy": "full", "nmi": "geometric", "decay": 0.94},
    "FisherContrastiveLoss": {"margin": 0.25, "lam": 0.01, "ridge": 1e-4},
    "FisherTripletLoss": {"margin": 0.25, "lam": 0.01, "ridge": 1e-4},
    "GroupAdversary": {"hidden": 512, "lam": 100.0},
    "HDMLLoss": {"window": 64},
    "HardNegativeContrastiveLoss": {"temperature": 0.5, "beta": 1.0, "tau_plus": 0.1, "alpha": 1.0},
    "JMMD": {"layers": ("pooled", "embedding", "class"), "kernel": "gaussian", "class_kernels": 1},
    "JRDLoss": {"alpha": 1.0, "scale": 20.0, "margin": 0.1},
    "JRS": {"layers": ("pooled", "embedding", "class"), "kernel": "gaussian", "class_kernels": 1},
    "LogEig": {"vector": True},
    "MarginLoss": {"margin": 0.2, "boundary": 1.2, "learn_boundary": True, "nu": 0.0},
    "PNPLoss": {"variant": "O"},
    "ReEig": {"eps": 1e-4},
    "RecallAtKLoss": {"ks": (1, 2, 4, 8, 16)},
    "TripletGlobalLoss": {"margin": 0.4, "weight": 0.8},
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_those_of_the_paper(name):
    parameters = signature(getattr(nearfar, name)).parameters
    assert {setting: parameters[setting].default for setting in DEFAULTS[name]} == DEFAULTS[name]
