"""The tables and figures of papers: their rows as recipes, with the published figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

MISSING = "-"


class Row(NamedTuple):
    """One row of a table: a method, or a point of a curve.

    Attributes
    ----------
    name : str
        What it is called in the paper.
    recipe : str or None
        The recipe of the paper, without the paper's name; None where only the published figures are shown.
    columns : tuple of str
        Scores, such as "R@1", "NMI" and "lambda".
    published : dict of str to str
        Figures of the paper by column, as it prints them.
    settings, paper : dict
        What differs from the recipe, and further in the protocol of the paper.
    """

    name: str
    recipe: str | None
    columns: tuple[str, ...]
    published: Mapping[str, str]
    settings: Mapping[str, Any]
    paper: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        name: str,
        recipe: str | None,
        columns: tuple[str, ...],
        figures: str = "",
        *,
        settings: Mapping[str, Any] | None = None,
        paper: Mapping[str, Any] | None = None,
    ) -> Row:
        """Return a row whose published figures are given in the order of the columns, "-" where there is none."""
        values = figures.split() or [MISSING] * len(columns)
        published = {column: value for column, value in zip(columns, values, strict=True) if value != MISSING}
        return cls(name, recipe, columns, published, settings or {}, paper or {})


class PaperTable(NamedTuple):
    """A table or a figure of a paper.

    Attributes
    ----------
    title : str
        What it shows.
    rows : dict of str to tuple of Row
        By dataset: cub, cars, sop, inshop.
    """

    title: str
    rows: Mapping[str, tuple[Row, ...]]
