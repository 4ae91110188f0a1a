"""The scikit-learn side: shells of the learners, decisions on pairs of points, and folds of pairs."""

from .pair_classifier import PairClassifier
from .pair_folds import PairKFold

__all__ = ["PairClassifier", "PairKFold"]
