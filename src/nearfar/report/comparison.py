"""Table of objectives and their scores over seeds: means with 95% t-intervals, as text, Markdown and HTML.

mean +- t_{0.975, n-1} s / sqrt(n),  s^2 = sum (x - mean)^2 / (n - 1)
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..evaluation import interval
from ..io.atomic_files import atomic_write
from ..io.cells import write_rows
from ..quoting import quoted
from .interval_plot import draw_intervals
from .plots import Html, Plotter
from .score_rows import BY, describe, flat_scores

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = ("recall_at_1", "map_at_r", "r_precision", "nmi", "f1")
CHOSEN_BY = "validation_"
"""Prefix of the names of scores on validation classes. These are for choosing settings, and are the first columns."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Scores of several objectives over several seeds.

    Parameters
    ----------
    objectives : tuple of str
        Objectives, one per row.
    scores : tuple of str
        Names of scores such as "recall_at_1", one per column.
    values : dict
        Values of the seeds, (n,), by (objective, score).
    note : str
        How the scores were measured.
    """

    objectives: tuple[str, ...]
    scores: tuple[str, ...]
    values: Mapping[tuple[str, str], NDArray[np.float64]]
    note: str = ""

    def mean(self, objective: str, score: str) -> float:
        """Return the mean over the seeds; NaN if there are none."""
        values = self.values[objective, score]
        if len(values) == 0:
            return float("nan")
        return float(values.mean())

    def half(self, objective: str, score: str) -> float:
        """Return the half-width of the 95% confidence interval; NaN for fewer than two seeds."""
        values = self.values[objective, score]
        if len(values) == 0:
            return float("nan")
        return interval(values).half

    def best(self, score: str) -> str | None:
        """Return the objective with the highest mean."""
        known = [o for o in self.objectives if np.isfinite(self.mean(o, score))]
        return max(known, key=lambda o: self.mean(o, score), default=None)

    def cell(self, objective: str, score: str) -> str:
        """Return mean and half-width as text."""
        mean = self.mean(objective, score)
        half = self.half(objective, score)
        if not np.isfinite(mean):
            return "-"
        if not np.isfinite(half):  # a single seed gives no interval
            return f"{mean:.3f}"
        return f"{mean:.3f} ± {half:.3f}"

    def seeds(self, objective: str) -> int:
        """Return the number of seeds of an objective."""
        return max(len(self.values[objective, score]) for score in self.scores)

    def markdown(self) -> str:
        """Return the table in Markdown, with the best mean of each score in bold."""
        head = ["Objective", *map(score_name, self.scores), "Seeds"]
        lines = [head, ["---", *["---:"] * (len(head) - 1)]]
        for objective in self.objectives:
            cells = [self._marked(objective, score) for score in self.scores]
            lines.append([_markdown_cell(objective), *cells, str(self.seeds(objective))])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def latex(self) -> str:
        """Return the table in LaTeX, for the package booktabs, with the best mean of each score in bold."""
        columns = "l" + "r" * (len(self.scores) + 1)
        head = ["Objective", *(_latex_cell(score_name(score)) for score in self.scores), "Seeds"]
        lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", " & ".join(head) + r" \\", r"\midrule"]
        for objective in self.objectives:
            cells = [_latex_cell(objective)]
            for score in self.scores:
                cell = self.cell(objective, score).replace("±", r"$\pm$")
                if objective == self.best(score):
                    cell = rf"\textbf{{{cell}}}"
                cells.append(cell)
            lines.append(" & ".join([*cells, str(self.seeds(objective))]) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])

    def rows(self) -> list[list[str]]:
        """Return the table as rows of text for a .csv: column names, then means and half-widths in full precision."""
        head = ["objective"]
        for score in self.scores:
            head += [score, f"{score}_half_interval"]
        table = [[*head, "seeds"]]
        for objective in self.objectives:
            cells = [objective]
            for score in self.scores:
                for value in (self.mean(objective, score), self.half(objective, score)):
                    cells.append(repr(float(value)) if np.isfinite(value) else "")
            table.append([*cells, str(self.seeds(objective))])
        return table

    def write(self, path: str | Path) -> Path:
        """Write the table to a file.

        Parameters
        ----------
        path : str or Path
            A file that ends in .csv, .tex or .md.

        Raises
        ------
        ValueError
            If the file has another ending.
        """
        path = Path(path)
        if path.suffix == ".csv":
            buffer = io.StringIO()
            write_rows(buffer, self.rows(), lineterminator="\n")
            text = buffer.getvalue()
        elif path.suffix == ".tex":
            text = f"{self.latex()}\n"
        elif path.suffix == ".md":
            text = f"{self.markdown()}\n"
        else:
            raise ValueError(f"{path}: expected a file that ends in .csv, .tex or .md")
        with atomic_write(path) as file:
            file.write(text.encode())
        return path

    def _marked(self, objective: str, score: str) -> str:
        """Return a cell of the table in Markdown, in bold if it is the best of its column."""
        cell = self.cell(objective, score)
        if objective == self.best(score):
            return f"**{cell}**"
        return cell

    def table(self) -> Table:
        """Return the table for a terminal."""
        from rich.table import Table
        from rich.text import Text

        table = Table("Objective", box=None, header_style="bold", caption=self.note or None)
        for score in self.scores:
            table.add_column(score_name(score), justify="right", no_wrap=True)
        for objective in self.objectives:
            cells = []
            for score in self.scores:
                style = "bold green" if objective == self.best(score) else ""
                cells.append(Text(self.cell(objective, score), style=style))
            table.add_row(Text(objective), *cells)
        return table

    def html(self) -> Html:
        """Return a section for a report: a chart of the first score, and the table."""
        from .page import template

        charts = self._charts()
        return Html(template("compare").render(comparison=self, charts=charts, name=score_name))

    @property
    def drawn(self) -> str:
        """The score that the chart shows: the first that is not a validation score."""
        return next((s for s in self.scores if not s.startswith(CHOSEN_BY)), self.scores[0])

    def _charts(self) -> list[Html]:
        """Return two charts of the same values, for wide and for narrow pages; none if there are no values."""
        score = self.drawn
        shown = sorted((o for o in self.objectives if len(self.values[o, score])), key=lambda o: -self.mean(o, score))
        if not shown:
            return []
        alt = f"{score_name(score)} of {len(shown)} objectives, best first: {shown[0]}"
        halves = np.array([self.half(o, score) for o in shown])
        values = [self.values[o, score] for o in shown]
        plotter = Plotter()
        unit = score_name(score)
        return [
            draw_intervals(plotter, shown, values, halves, alt=alt, unit=unit, narrow=narrow)
            for narrow in (False, True)
        ]


def compare(
    runs: Mapping[str, Sequence[Any]],
    *,
    scores: Sequence[str] = (),
    baseline: Any = None,
    baseline_name: str = "raw pixels",
    note: str = "",
) -> Comparison:
    """Collect the scores of several objectives.

    Parameters
    ----------
    runs : mapping of str to sequence of Scores or mapping
        For each objective, the scores of its seeds.
    scores : sequence of str
        Names of scores such as "recall_at_1". By default, the main ones that all runs have.
    baseline : Scores or mapping, optional
        Scores without training, shown as the first row.
    baseline_name : str
        Name of that row.
    note : str
        How the scores were measured.

    Returns
    -------
    Comparison
        The table.

    Raises
    ------
    ValueError
        If there is no objective, or no run has one of the scores.

    Examples
    --------
    >>> table = compare({"a": [{"recall_at": {1: 0.5}}, {"recall_at": {1: 0.7}}], "b": [{"recall_at": {1: 0.4}}]})
    >>> print(table.markdown())
    | Objective | Recall@1 | Seeds |
    | --- | ---: | ---: |
    | a | **0.600 ± 1.271** | 2 |
    | b | 0.400 | 1 |
    """
    rows: dict[str, Sequence[Any]] = {}
    if baseline is not None:
        rows[baseline_name] = [baseline]
    rows.update(runs)
    flat = {name: [flat_scores(run) for run in seeds] for name, seeds in rows.items()}
    if not flat:
        raise ValueError("runs: expected at least one objective, got none")
    known = {score for seeds in flat.values() for run in seeds for score in run}
    by = dict.fromkeys(score for seeds in flat.values() for run in seeds for score in run if BY in score)
    usual = [*(CHOSEN_BY + score for score in SHOWN), *SHOWN, *by]
    columns = tuple(scores) or tuple(score for score in usual if score in known)
    if not columns:
        raise ValueError(f"runs: have none of the scores {', '.join(SHOWN)}; expected at least one")
    for score in columns:
        if score not in known:
            raise ValueError(f"scores: no run has {quoted(score)}; expected {', '.join(sorted(known)) or 'none'}")
    values = {}
    for objective, seeds in flat.items():
        for score in columns:
            values[objective, score] = np.array([run[score] for run in seeds if score in run])
    return Comparison(tuple(flat), columns, values, note)


def score_name(score: str) -> str:
    """The printed name of a score.

    Examples
    --------
    >>> score_name("recall_at_1"), score_name("validation_map_at_r")
    ('Recall@1', 'MAP@R, validation')
    """
    described = describe(score.removeprefix(CHOSEN_BY))
    if not described:
        return score
    if score.startswith(CHOSEN_BY):
        return f"{described[0]}, validation"
    return described[0]


LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
"""Characters that are written as a command in LaTeX; other special characters only need a backslash."""


def _latex_cell(text: str) -> str:
    """Escape a text for LaTeX.

    >>> print(_latex_cell("a_1 & 5%"))
    a\\_1 \\& 5\\%
    """
    escaped = []
    for char in text:
        if char in "&%$#_{}":
            escaped.append(f"\\{char}")
        else:
            escaped.append(LATEX.get(char, char))
    return "".join(escaped)


def _markdown_cell(text: str) -> str:
    """Return a name for Markdown. Objectives are written as code, because two `*` would make italics between them."""
    text = text.replace("|", "\\|")
    if "(" in text:
        return f"`{text}`"
    return text


def write_comparison(comparison: Comparison, path: str | Path, *, title: str = "Objectives compared") -> Path:
    """Write a comparison as one self-contained HTML file.

    Parameters
    ----------
    comparison : Comparison
        The table.
    path : str or Path
        File to write.
    title : str
        Heading.
    """
    from .page import script_of, template, write

    values = {"title": title, "section": comparison.html(), "note": comparison.note, **script_of("tables")}
    page = template("comparison").render(**values)
    return write(Path(path), page.encode(errors="replace"))
