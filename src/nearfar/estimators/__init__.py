"""The scikit-learn side: shells of the learners, tables, decisions on pairs, folds of pairs, weights of features."""

from .explanation import Explanation, explain
from .pair_classifier import PairClassifier
from .table_encoder import TableEncoder
from .tuple_folds import TupleKFold

__all__ = ["Explanation", "PairClassifier", "TableEncoder", "TupleKFold", "explain"]
