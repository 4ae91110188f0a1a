"""Several objectives or the rows of a table of a paper, trained and compared in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..evaluation import Scores
from ..extras import hint
from ..progress import stage

if TYPE_CHECKING:
    from ..train import TrainConfig


def compare(
    config: TrainConfig,
    objectives: Sequence[str],
    seeds: int,
    out: str | Path,
    *,
    jobs: int = 1,
    vary: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    table_file: Path | None = None,
) -> str:
    """Run a comparison, write its page and optionally its table, and return the table as text."""
    from ..report import compare as compared_in_table
    from ..report import write_comparison
    from ..train.compare import train_and_compare

    if not objectives:
        raise ValueError("objectives: expected at least one, for example objectives='TripletLoss()'")
    out = Path(out)
    runs = len(objectives) * seeds * prod(map(len, vary.values()))
    with stage("training", runs) as done:
        compared = train_and_compare(
            config, objectives, range(seeds), out, vary=vary, jobs=jobs, on_trial=lambda trial, number, total: done(1)
        )
    scores = {}
    for name, measured in compared.scores.items():
        chosen_by = compared.validation[name]
        scores[name] = [_with_validation(run, config.select, v) for run, v in zip(measured, chosen_by, strict=True)]
    if seeds > 1:
        many = f"{seeds} seeds; mean ± half of the 95% t-interval."
    else:
        many = "1 seed."
    why = "" if compared.baseline is None else Scores.from_dict(compared.baseline).why_unscored()
    note = " ".join(filter(None, [compared.protocol, many, why]))
    table = compared_in_table(
        scores, baseline=compared.baseline, baseline_name=f"baseline ({compared.baseline_name})", note=note
    )
    if table_file is not None:
        table.write(table_file)
    try:
        page = str(write_comparison(table, out / "comparison.html"))
    except ModuleNotFoundError as error:  # a missing package must not lose a table that took hours
        page = f"No page was written: {hint(error)}"
    return f"{table.markdown()}\n\n{note}\n{page}"


def reproduce_table(
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
    from ..train.papers.paper_tables import reproduce

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


def _with_validation(scores: dict[str, Any], select: str, value: float | None) -> dict[str, Any]:
    """Add the validation score that chose the checkpoint to the scores of a run, if there is one."""
    if value is None:
        return scores
    return {**scores, f"validation_{select}": value}
