"""Whether scores are clearly worse than those of something simpler, and a phrase with both."""

from __future__ import annotations

from .scores import Scores

MOVED = 0.02  # smallest change of a score that is significant


def is_worse(scores: Scores, other: Scores | None) -> bool:
    """Return whether scores are clearly worse than others: by MAP@R, or by Recall@1 and not better by MAP@R."""
    if other is None:
        return False
    k = min(scores.recall_at)
    map_lost = other.map_at_r - scores.map_at_r
    recall_lost = other.recall_at[k] - scores.recall_at[k]
    return map_lost > MOVED or (recall_lost > MOVED and map_lost > 0)


def both_scores(scores: Scores, other: Scores) -> str:
    """Return Recall@1 and MAP@R of others and of these scores as text."""
    k = min(scores.recall_at)
    return (
        f"Recall@{k} {other.recall_at[k]:.3f} and MAP@R {other.map_at_r:.3f} "
        f"against {scores.recall_at[k]:.3f} and {scores.map_at_r:.3f}"
    )
