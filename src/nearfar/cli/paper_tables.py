"""``nearfar compare --recipe jrd/ablation``: the rows of a table of a paper, with the published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..progress import stage


def refuse_beside_table(given: Mapping[str, object]) -> None:
    """Refuse options beside a table of a paper, which says itself what is trained."""
    for name, value in given.items():
        if value:
            raise ValueError(f"--{name}: not with a table of a paper, which says what its rows are")


def reproduce_to(
    name: str,
    given: Mapping[str, Any],
    out: Path,
    *,
    protocol: str,
    seeds: int,
    jobs: int,
    only: Sequence[str],
) -> str:
    """Train the rows of a table, and return it as text with what the paper gives."""
    from ..train.paper_tables import reproduce

    with stage("training") as done:
        found = reproduce(
            name,
            given,
            out,
            protocol=protocol,
            seeds=range(seeds),
            jobs=jobs,
            only=only,
            told=lambda trial, number, total: done(1),
        )
    return f"{found.markdown()}\n\n{found.note}\n{out / 'table.json'}"
