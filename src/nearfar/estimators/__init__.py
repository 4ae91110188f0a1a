"""The scikit-learn side: shells of the learners, decisions on pairs of points, folds of pairs, weights of features."""

from .explanation import Explanation, explain
from .pair_classifier import PairClassifier
from .pair_folds import PairKFold

__all__ = ["Explanation", "PairClassifier", "PairKFold", "explain"]
