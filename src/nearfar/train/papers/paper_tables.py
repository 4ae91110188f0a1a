"""Reproduce the tables and figures of the founding papers, and print the results with the published figures."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ...evaluation.intervals import PARTS, interval
from ...io.formats import ARCHIVES
from ...io.untrusted import read_json
from ...quoting import count_of
from ..compare import Trial, refuse_empty, run_trials, trial_folder, with_test_classes
from ..config import TrainConfig, TrainError
from ..recipes import PAPERS, recipe
from ..recipes.tables import PaperTable, Row
from ..run import write_json
from .theory import THEORY, TITLES, theory_of_run

OF_THEORY = {
    "lambda": TITLES["joint_error"],
    "d_H": TITLES["h_divergence"],
    "diversity, seen": TITLES["diversity_seen"],
    "diversity, unseen": TITLES["diversity_unseen"],
}
OF_SCORES = {"NMI": "nmi", "NMI geometric": "nmi_geometric", "F1": "f1"}
MISSING = "-"


class Reproduced(NamedTuple):
    """A table of a paper, and the values that were reproduced.

    Attributes
    ----------
    name : str
        Name by which the table is requested.
    title : str
        What it shows.
    dataset : str
        Data set of the table.
    rows : tuple of Row
        Rows of the table.
    values : mapping
        For every row that was run, the values of each column, one per seed; scores are in percent.
    note : str
        Data, protocol and seeds.
    """

    name: str
    title: str
    dataset: str
    rows: tuple[Row, ...]
    values: Mapping[str, Mapping[str, Sequence[float]]]
    note: str

    def markdown(self) -> str:
        """Return the table in Markdown: in each cell the reproduced value, and that of the paper in parentheses."""
        columns = self.rows[0].columns
        lines = [
            f"| {self.title} | " + " | ".join(columns) + " |",
            "| --- |" + " ---: |" * len(columns),
        ]
        for row in self.rows:
            cells = [self._cell(row, column) for column in columns]
            lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def _cell(self, row: Row, column: str) -> str:
        values = self.values.get(row.name, {}).get(column, ())
        published = row.published.get(column)
        reproduced = _formatted(values, decimals=3 if column in OF_THEORY else 1)
        return reproduced if published is None else f"{reproduced} ({published})"


def _formatted(values: Sequence[float], decimals: int) -> str:
    """Return the mean, with half of its 95% interval for several seeds."""
    if not values:
        return MISSING
    found = interval(values)
    text = f"{found.mean:.{decimals}f}"
    return f"{text} ± {found.half:.{decimals}f}" if len(values) > 1 else text


def table_names() -> dict[str, str]:
    """Return the titles of all tables and figures by name, such as "jrd/table2"."""
    return {f"{paper}/{name}": table.title for paper in PAPERS for name, table in _tables(paper).items()}


def is_table(name: str | None) -> bool:
    """Return whether a name is that of a table of a paper."""
    return name is not None and name in table_names()


def find_table(name: str) -> PaperTable:
    """Return a table by its name.

    Raises
    ------
    TrainError
        If the name is unknown; the error suggests the closest one.
    """
    paper, _, table = name.partition("/")
    if name not in table_names():
        near = get_close_matches(name, table_names(), n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(table_names())}"
        raise TrainError(f"unknown table {name!r}; {hint}")
    return _tables(paper)[table]


def _tables(paper: str) -> Mapping[str, PaperTable]:
    module = import_module(f"nearfar.train.recipes.{paper}")
    found: Mapping[str, PaperTable] = getattr(module, "TABLES", {})
    return found


def dataset_of(table: PaperTable, name: str, data: str) -> str:
    """Return the key of the rows of a table for the data: that of the archive, or the only one of the table."""
    kind, colon, _ = data.partition(":")
    known = ", ".join(table.rows)
    if colon and kind in ARCHIVES:
        if kind not in table.rows:
            raise TrainError(f"DATA: {name} is a table of {known}, got {kind}")
        return kind
    return next(iter(table.rows))


def row_config(name: str, row: Row, protocol: str, given: Mapping[str, Any]) -> TrainConfig:
    """Return the settings of a row: those of its recipe, overridden by the row and then by `given`."""
    paper = name.partition("/")[0]
    fields = recipe(f"{paper}/{row.recipe}", protocol) | dict(row.settings)
    if protocol == "paper":
        fields |= row.paper
    fields |= given
    if "epochs" in given:
        fields["steps"] = None
    return TrainConfig.of(**fields)


def reproduce(
    name: str,
    given: Mapping[str, Any],
    out: str | Path,
    *,
    protocol: str = "honest",
    seeds: Sequence[int] = (0,),
    jobs: int = 1,
    only: Sequence[str] = (),
    on_trial: Callable[[Trial, int, int], None] | None = None,
) -> Reproduced:
    """Train and score every row of a table with every seed, and write the results to `table.json` in the folder.

    Parameters
    ----------
    name : str
        Name of the table, such as "jrd/ablation".
    given : mapping
        Settings that override those of the recipes; `data` is required.
    out : str or Path
        Folder for the runs. Finished runs in it are not repeated, and interrupted ones are resumed.
    protocol : {"honest", "paper"}
        How the checkpoint is chosen, as for `recipe`.
    seeds : sequence of int
        Seeds of the runs of each row.
    jobs : int
        Number of runs at a time.
    only : sequence of str
        Names of the rows to run, or beginnings of their names. By default, all.
    on_trial : callable, optional
        Function that is called after each trial, as in `train_and_compare`.

    Returns
    -------
    Reproduced
        The table.

    Raises
    ------
    TrainError
        If the table or a row is unknown, or the data are not those of the table.
    ValueError
        If there is no seed or job.
    """
    seeds = [operator.index(seed) for seed in seeds]
    refuse_empty({"seeds": seeds}, jobs)
    table = find_table(name)
    dataset = dataset_of(table, name, str(given["data"]))
    rows = _chosen(table.rows[dataset], only)
    configs = {row.name: row_config(name, row, protocol, given) for row in rows if row.recipe is not None}
    if not configs:
        raise TrainError(f"only: none of these rows of {name} can be run; expected a row with a recipe")
    first = with_test_classes(next(iter(configs.values())))
    held = {"test_classes": first.test_classes} if first.test_classes else {}
    todo = []
    for row_name, row_settings in configs.items():
        for seed in seeds:
            config = row_settings.replace(seed=seed, **held)
            todo.append(Trial(row_name, config, trial_folder(Path(out), row_name, config)))
    contents = run_trials(todo, jobs, on_trial, Path(out))
    theory = any(_needs_theory(column) for column in rows[0].columns)
    values: dict[str, dict[str, list[float]]] = {}
    for trial, content in zip(todo, contents, strict=True):
        measured = _theory(trial.folder) if theory else {}
        for column in rows[0].columns:
            value = _value(column, content["scores"], measured)
            if value is not None:
                values.setdefault(trial.name, {}).setdefault(column, []).append(value)
    spread = "; mean ± half of the 95% t-interval" if len(seeds) > 1 else ""
    repeats = f"{count_of(len(seeds), 'seed')}{spread}."
    note = f"{contents[0]['protocol']} {repeats} Figures of the paper are in parentheses."
    write_json(
        Path(out) / "table.json",
        {
            "table": name,
            "title": table.title,
            "dataset": dataset,
            "protocol": protocol,
            "seeds": list(seeds),
            "note": note,
            "published": {row.name: dict(row.published) for row in rows},
            "values": values,
        },
    )
    return Reproduced(name=name, title=table.title, dataset=dataset, rows=rows, values=values, note=note)


def _chosen(rows: tuple[Row, ...], only: Sequence[str]) -> tuple[Row, ...]:
    if not only:
        return rows
    for name in only:
        if not any(row.name.startswith(name) for row in rows):
            raise TrainError(f"only: no row begins with {name!r}; there are {', '.join(row.name for row in rows)}")
    exact = [row for row in rows if row.name in only]
    return tuple(exact) or tuple(row for row in rows if row.name.startswith(tuple(only)))


def _needs_theory(column: str) -> bool:
    return column in OF_THEORY or column.endswith(" parts")


def _theory(folder: Path) -> dict[str, float]:
    """Return the measures of theory of a run by title, and compute them if necessary."""
    path = folder / THEORY
    if not path.is_file():
        theory_of_run(folder)
    return {str(title): float(value) for title, value, _ in read_json(path)["rows"]}


def _value(column: str, scores: Mapping[str, Any], theory: Mapping[str, float]) -> float | None:
    """Return the value of a column: a score in percent, or a quantity of the theory; None where it was not measured."""
    if column in OF_THEORY:
        return theory.get(OF_THEORY[column])
    if column in OF_SCORES:
        found = scores.get(OF_SCORES[column])
        return None if found is None else 100 * float(found)
    k = re.fullmatch(r"R@(\d+)( parts)?", column)
    assert k is not None
    if k[2]:
        found = theory.get(f"Recall@{k[1]} of {PARTS} disjoint parts of the test")
    else:
        found = scores["recall_at"].get(k[1])
    return None if found is None else 100 * float(found)
