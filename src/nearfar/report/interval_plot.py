"""Charts of the scores of several objectives, as dots, rings and bars, for wide and for narrow pages."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .plots import ACCENT, INK, MUTED, Html, Plotter


def draw_intervals(
    plotter: Plotter,
    names: Sequence[str],
    values: Sequence[NDArray[np.float64]],
    halves: NDArray[np.float64],
    *,
    alt: str,
    unit: str,
    narrow: bool = False,
) -> Html:
    """One line per name: the values of the seeds as rings, their mean as a dot, the interval as a bar.

    A narrow chart has the names above their lines, so that its text remains large enough on a phone.
    """
    wrapped = [fill(name, 56) for name in names]
    if narrow:
        each = 0.62
    else:
        each = max(0.36, 0.06 + 0.18 * max(name.count("\n") + 1 for name in wrapped))
    size = (4.2 if narrow else 9.6, 0.8 + each * len(names))
    with plotter.chart(alt, size) as chart:
        rows = np.arange(len(names))[::-1]
        means = np.array([v.mean() for v in values])
        chart.axes.errorbar(means, rows, xerr=np.nan_to_num(halves), fmt="o", color=ACCENT, markersize=5, linewidth=2)
        for row, seeds in zip(rows, values, strict=True):
            chart.axes.plot(seeds, np.full(len(seeds), row), "o", mfc="none", mec=MUTED, markersize=4, mew=0.9)
        chart.axes.set_yticks(rows, [""] * len(names) if narrow else wrapped, color=INK)
        chart.axes.set_ylim(-0.5, len(names) - (0.2 if narrow else 0.5))
        if narrow:
            for row, name in zip(rows, names, strict=True):
                place: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "bottom"}
                shown = name if len(name) <= 44 else f"{name[:43]}…"
                chart.axes.annotate(shown, (0, row), (0, 6), color=INK, **place)
        left, right = chart.axes.get_xlim()
        chart.axes.set(xlabel=unit, xlim=(max(left, -0.01), min(right, 1.01)))  # scores lie between 0 and 1
        chart.axes.grid(axis="x")
    return chart.svg
