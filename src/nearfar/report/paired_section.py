"""The section that compares a model with another on the same items."""

from __future__ import annotations

from typing import Any

from .content import ReportContent
from .paired_models import Against, Difference
from .retrieval import QueryNeighbors
from .score_rows import flat_scores, score_rows
from .sections import Drawings, Section, neighbor, query_values

PAIRED_NEIGHBORS = 6  # neighbors of a query that are shown for each model


def compared(content: ReportContent, against: Against | None, drawings: Drawings) -> Section | None:
    """Return the scores of both models, and queries that only one of them answers correctly."""
    if against is None or content.other is None:
        return None
    other = content.other
    both, gained, lost, neither = against.counts()
    values = {
        "name": other.name,
        "rows": _rows(content, against),
        "n": len(against.this.kept),
        "both": both,
        "gained": gained,
        "lost": lost,
        "neither": neither,
        "only_this": [_query(against, int(row), drawings) for row in against.gained],
        "only_other": [_query(against, int(row), drawings) for row in against.lost],
    }
    return Section("against", f"Against {other.name}", values)


def verdict(against: Against, content: ReportContent) -> str:
    """Return one sentence on which of the two models is better."""
    assert content.other is not None
    difference = against.differences["recall_at_1"]
    direction = "better" if difference.size > 0 else "worse"
    judged = f"clearly {direction}" if difference.clear else "no clear difference"
    return f"Against {content.other.name}: Recall@1 {difference.size:+.3f}{_within(difference)}, {judged}."


def _within(difference: Difference) -> str:
    if difference.interval is None:
        return ""
    low, high = difference.interval
    return f" (95% interval over classes {low:+.3f} to {high:+.3f})"


def _rows(content: ReportContent, against: Against) -> list[dict[str, Any]]:
    assert content.other is not None
    other_scores = flat_scores(content.other.scores)
    return [
        {
            "name": s.name,
            "meaning": s.meaning,
            "this": s.value,
            "other": other_scores[s.key],
            "difference": against.differences.get(s.key),
        }
        for s in score_rows(content)
        if s.key in other_scores
    ]


def _query(against: Against, row: int, drawings: Drawings) -> dict[str, Any]:
    return {
        **query_values(against.this, row, drawings),
        "this": _line(against.this, row, drawings),
        "other": _line(against.other, row, drawings),
    }


def _line(retrieved: QueryNeighbors, row: int, drawings: Drawings) -> list[dict[str, Any]]:
    return [neighbor(retrieved, row, place, drawings) for place in range(min(PAIRED_NEIGHBORS, retrieved.depth))]
