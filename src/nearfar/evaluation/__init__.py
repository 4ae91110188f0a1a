"""Scores of embeddings: exact, blocked, with their chance level; arrays or tensors, labels of any hashable kind."""

from .accepting import Verification
from .clustering import ami, cluster, nmi, pairwise_f1
from .few_shot import FewShot, few_shot, one_shot_accuracy
from .generalization import diversity, h_divergence, joint_error
from .identification import Identification, identify
from .intervals import Interval, interval, subset_recall
from .protocol import (
    clustering_scores,
    evaluate,
    map_at_r,
    mean_average_precision,
    mrr,
    precision_at_k,
    r_precision,
    recall_at_k,
)
from .retrieval import Retrieval, retrieve
from .scores import Scores
from .verification import verify, verify_pairs

__all__ = [
    "FewShot",
    "Identification",
    "Interval",
    "Retrieval",
    "Scores",
    "Verification",
    "ami",
    "cluster",
    "clustering_scores",
    "diversity",
    "evaluate",
    "few_shot",
    "h_divergence",
    "identify",
    "interval",
    "joint_error",
    "map_at_r",
    "mean_average_precision",
    "mrr",
    "nmi",
    "one_shot_accuracy",
    "pairwise_f1",
    "precision_at_k",
    "r_precision",
    "recall_at_k",
    "retrieve",
    "subset_recall",
    "verify",
    "verify_pairs",
]
