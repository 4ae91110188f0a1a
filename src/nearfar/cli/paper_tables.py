"""``nearfar compare --recipe jrd/ablation``: the rows of a table of a paper, with the published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..progress import stage


def refuse_beside_table(given: Mapping[str, object]) -> None:
    """Refuse options with a table of a paper, which determines what is trained."""
    for name, value in given.items():
        if value:
            raise ValueError(f"--{name}: does not work with a table of a paper, which defines its rows; leave it out")


def reproduce_to(
    name: str,
    given: Mapping[str, Any],
    out: Path,
    *,
    protocol: str,
    seeds: Sequence[int],
    jobs: int,
    only: Sequence[str],
) -> str:
    """Train the rows of a table, and return it as text with the published figures."""
    from ..train.paper_tables import reproduce

    with stage("training") as done:
        found = reproduce(
            name,
            given,
            out,
            protocol=protocol,
            seeds=seeds,
            jobs=jobs,
            only=only,
            on_trial=lambda trial, number, total: done(1),
        )
    return f"{found.markdown()}\n\n{found.note}\n{out / 'table.json'}"
