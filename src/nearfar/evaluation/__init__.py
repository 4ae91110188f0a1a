"""Scores of embeddings: exact at any size, and with their chance level."""

from .best_distance import best_distance
from .clustering import ami, cluster, nmi, pairwise_f1
from .few_shot import FewShot, few_shot, one_shot_accuracy
from .generalization import diversity, h_divergence, joint_error
from .graded import Graded, label_set_scores, ndcg_at_k
from .identification import Identification, identify
from .intervals import Interval, interval, subset_recall
from .local_matches import PlaceMatches, local_scores, matched_places, rerank_by_places
from .plots import plot_confusions, plot_map, plot_recall, plot_roc
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
from .rerank import Ranking, augment_gallery, csls, expand_queries, k_reciprocal
from .reranking import search_reranked
from .retrieval import Retrieval, retrieve
from .scores import Scores
from .storage import StoredScore, storage_scores
from .suspects import HardNegatives, Suspects, hard_negatives, pairs_across, suspects
from .threshold_curves import Verification
from .verification import verify, verify_distances, verify_pairs

__all__ = [
    "FewShot",
    "Graded",
    "HardNegatives",
    "Identification",
    "Interval",
    "PlaceMatches",
    "Ranking",
    "Retrieval",
    "Scores",
    "StoredScore",
    "Suspects",
    "Verification",
    "ami",
    "augment_gallery",
    "best_distance",
    "cluster",
    "clustering_scores",
    "csls",
    "diversity",
    "evaluate",
    "expand_queries",
    "few_shot",
    "h_divergence",
    "hard_negatives",
    "identify",
    "interval",
    "joint_error",
    "k_reciprocal",
    "label_set_scores",
    "local_scores",
    "map_at_r",
    "matched_places",
    "mean_average_precision",
    "mrr",
    "ndcg_at_k",
    "nmi",
    "one_shot_accuracy",
    "pairs_across",
    "pairwise_f1",
    "plot_confusions",
    "plot_map",
    "plot_recall",
    "plot_roc",
    "precision_at_k",
    "r_precision",
    "recall_at_k",
    "rerank_by_places",
    "retrieve",
    "search_reranked",
    "storage_scores",
    "subset_recall",
    "suspects",
    "verify",
    "verify_distances",
    "verify_pairs",
]
