"""Charts as inline SVG with the colors of the page, so that one drawing works in light and in dark mode."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..evaluation import Verification
from .content import Curve
from .pair_distances import PairDistances
from .spectrum import Spectrum

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Drawn color -> CSS variable of the page, which replaces it.
THEME = {
    "#010101": "--ink",
    "#020202": "--muted",
    "#030303": "--line",
    "#040404": "--accent",
    "#050505": "--second",
}
INK, MUTED, LINE, ACCENT, SECOND = THEME
SIZE = (4.9, 3.0)  # inches
MAX_LINE_POINTS = 240  # maximum number of points of a line
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.labelcolor": MUTED,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.major.size": 0,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "ytick.major.size": 0,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
}


class Html(str):
    """Text that is HTML already, which templates do not escape."""

    def __html__(self) -> str:
        return str(self)


class Chart:
    """A chart while it is drawn (`axes`), and its SVG afterwards (`svg`)."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.svg = Html()


class Plotter:
    """Draws charts for one page; their element ids never clash."""

    def __init__(self) -> None:
        self._number = count(1)

    @contextmanager
    def chart(self, alt: str, size: tuple[float, float] = SIZE) -> Iterator[Chart]:
        """Open a chart with an alternative text; leaving the block turns it into SVG."""
        from io import StringIO

        from matplotlib import rc_context
        from matplotlib.figure import Figure

        prefix = f"chart{next(self._number)}"
        style: Any = {**STYLE, "svg.hashsalt": prefix}  # matplotlib lists all keys of a style as literals
        with rc_context(style):
            figure = Figure(figsize=size, layout="constrained")
            chart = Chart(figure.add_subplot())
            yield chart
            text = StringIO()
            figure.savefig(text, format="svg", transparent=True)
        chart.svg = page_svg(text.getvalue(), prefix, alt)

    def lines(
        self, curves: Sequence[Curve], *, alt: str, unit: str, best: float | None = None, share: bool = False
    ) -> Html:
        """Lines over epochs: the first in the accent color, the second orange and dashed, each named at its end."""
        ends = [curve.values[-1] if len(curve.values) else -np.inf for curve in curves]
        with self.chart(alt) as chart:
            for at, curve in enumerate(curves):
                above = at == ends.index(max(ends))  # so that the names of lines that end close together do not overlap
                _line(chart.axes, curve, LINES[at % 4], DASHES[at % 4], named=len(curves) > 1, above=above)
            if best is not None:
                _mark(chart.axes, best, "chosen", low=share)
            if share:
                _share_axis(chart.axes, curves)
            chart.axes.set(xlabel="epoch", ylabel=unit)
            _whole_numbers(chart.axes)
            chart.axes.margins(x=0.02)
        return chart.svg

    def histograms(self, pairs: PairDistances, *, alt: str, unit: str, threshold: float) -> Html:
        """Densities of similar (filled) and dissimilar (outlined) distances and the threshold of equal errors."""
        with self.chart(alt) as chart:
            both = (pairs.similar, pairs.dissimilar)
            edges = pairs.edges(70)
            for distances, color, style, name in zip(both, (ACCENT, SECOND), ("-", "--"), NAMES, strict=True):
                heights = np.histogram(distances, edges)[0] / len(distances)
                chart.axes.stairs(heights, edges, color=color, fill=True, alpha=0.16)
                chart.axes.stairs(heights, edges, color=color, linewidth=1.6, linestyle=style, label=name)
            _mark(chart.axes, threshold, f"equal errors at {threshold:.3g}")
            chart.axes.set(xlabel=unit, ylabel="share of pairs per bin")
            chart.axes.yaxis.set_major_formatter(_percent)
            _legend(chart.axes)
        return chart.svg

    def accepts(self, verification: Verification, *, alt: str) -> Html:
        """Share of accepted pairs of one class over the share of accepted pairs of two classes."""
        with self.chart(alt) as chart:
            far, tar = verification.curve
            chart.axes.plot(far, tar, color=ACCENT)
            chart.axes.plot(far, far, color=MUTED, linewidth=1, linestyle=":")
            for rate, share in verification.tar_at.items():
                chart.axes.plot([rate], [share], "o", color=ACCENT, markersize=4)
            chart.axes.set(xscale="log", xlim=(max(far[0], 1e-5), 1), ylim=(0, 1.03))
            chart.axes.set(xlabel="different classes accepted", ylabel="same class accepted")
            chart.axes.xaxis.set_major_formatter(_percent)
            chart.axes.yaxis.set_major_formatter(_percent)
            chart.axes.minorticks_off()
            chart.axes.tick_params(axis="x", pad=8)  # away from the 0% of the other axis
        return chart.svg

    def precision_recall(self, verification: Verification, *, alt: str) -> Html:
        """Share of pairs of one class among the accepted pairs, over the share of pairs of one class accepted."""
        with self.chart(alt) as chart:
            recall, precision = precision_and_recall(verification)
            share = verification.n_similar / (verification.n_similar + verification.n_dissimilar)
            chart.axes.plot(recall, precision, color=ACCENT)
            chart.axes.axhline(share, color=MUTED, linewidth=1, linestyle=":")
            chart.axes.set(xlim=(0, 1.01), ylim=(0, 1.03), xlabel="recall: same class accepted", ylabel="precision")
            chart.axes.tick_params(axis="x", pad=8)  # away from the 0% of the other axis
            chart.axes.xaxis.set_major_formatter(_percent)
            chart.axes.yaxis.set_major_formatter(_percent)
        return chart.svg

    def spectrum(self, spectrum: Spectrum, *, alt: str) -> Html:
        """Share of the variance along each direction (bars) and accumulated (line)."""
        with self.chart(alt) as chart:
            shares = spectrum.shares
            number = np.arange(1, len(shares) + 1)
            edges = np.arange(len(shares) + 1) + 0.5
            chart.axes.stairs(shares, edges, fill=True, color=ACCENT, alpha=0.75, label="each direction")
            total = Curve("accumulated", number.astype(float), np.cumsum(shares))
            _line(chart.axes, total, SECOND, "-", named=False)
            _legend(chart.axes)
            _whole_numbers(chart.axes)
            chart.axes.set(xlabel="direction, largest first", ylabel="share of the variance", ylim=(0, 1.04))
            chart.axes.yaxis.set_major_formatter(_percent)
        return chart.svg

    def class_recall(self, recall: NDArray[np.float64], mean: float, *, alt: str) -> Html:
        """Recall@1 of every class, hardest first."""
        with self.chart(alt) as chart:
            edges = np.arange(len(recall) + 1) + 0.5
            chart.axes.stairs(np.sort(recall), edges, fill=True, color=ACCENT, alpha=0.75)
            chart.axes.axhline(mean, color=INK, linewidth=1, linestyle=":")
            chart.axes.annotate(
                f"all queries {mean:.3f}", (edges[0], mean), (3, 3), textcoords="offset points", color=INK
            )
            _whole_numbers(chart.axes)
            chart.axes.set(xlabel="class, hardest first", ylabel="Recall@1", ylim=(0, 1.08), xlim=(edges[0], edges[-1]))
        return chart.svg


LINES = (ACCENT, SECOND, MUTED, INK)
DASHES = ("-", "--", ":", "-.")
NAMES = ("same class", "different classes")
# Okabe and Ito's color-blind-safe colors, in an order that keeps neighbors apart.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#8c6bb1")


def precision_and_recall(verification: Verification) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the recall, ascending, and the precision of the pairs that thresholds accept.

    precision = t S / (t S + f D)        t, f: shares accepted of the S pairs of one class and of the D pairs of two
    """
    far, tar = np.asarray(verification.curve)
    right = tar * verification.n_similar
    wrong = far * verification.n_dissimilar
    accepted = (right + wrong) > 0
    return tar[accepted], right[accepted] / (right + wrong)[accepted]


def _percent(value: float, _: Any = None) -> str:
    return f"{100 * value:.3g}%"


def _line(axes: Axes, curve: Curve, color: str, style: str, *, named: bool, above: bool = True) -> None:
    epochs, values = average_neighboring_points(curve)
    axes.plot(
        epochs,
        values,
        color=color,
        linestyle=style,
        label=curve.name,
        marker="o" if len(epochs) < 3 else "",
        markersize=4,
    )
    finite = np.flatnonzero(np.isfinite(values))
    if named and len(finite):
        end = (epochs[finite[-1]], values[finite[-1]])
        shift, side = ((0, 5), "bottom") if above else ((0, -6), "top")
        axes.annotate(
            curve.name, end, shift, textcoords="offset points", color=color, ha="right", va=side, weight="bold"
        )


def _legend(axes: Axes) -> None:
    """Draw a legend above the axes."""
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0)


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))


def _mark(axes: Axes, at: float, text: str, *, low: bool = False) -> None:
    """Draw a dotted line at a place, with its text at the top or at the bottom."""
    axes.axvline(at, color=INK, linewidth=1, linestyle=":")
    end, up, side = (0, 3, "bottom") if low else (1, -2, "top")
    left, right = axes.dataLim.intervalx
    across, ha = (-3, "right") if at > (left + right) / 2 else (3, "left")
    frame = ("data", "axes fraction")
    axes.annotate(text, (at, end), (across, up), xycoords=frame, textcoords="offset points", color=INK, va=side, ha=ha)


def _share_axis(axes: Axes, curves: Sequence[Curve]) -> None:
    """Limit the axis to the range of the values within [0, 1], with room for the names."""
    values = np.concatenate([c.values[np.isfinite(c.values)] for c in curves] or [np.zeros(0)])
    if len(values):
        room = max(0.12 * np.ptp(values), 0.02)
        # there may be two names below
        low = max(0, values.min() - 2 * room)
        high = min(1.03, values.max() + room)
        axes.set_ylim(low, high)
        axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= min(high, 1 + 1e-9)])


def average_neighboring_points(
    curve: Curve, most: int = MAX_LINE_POINTS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Average a long curve over runs of neighboring points, so that at most `most` points remain."""
    n = len(curve.values)
    if n <= most:
        return curve.epochs, curve.values
    starts = np.linspace(0, n, most, endpoint=False).astype(int)
    sizes = np.diff([*starts, n])
    return np.add.reduceat(curve.epochs, starts) / sizes, np.add.reduceat(curve.values, starts) / sizes


def page_svg(svg: str, prefix: str, alt: str) -> Html:
    """Prepare a Matplotlib SVG for a page: its colors and fonts, unique ids, and only the drawing."""
    from html import escape

    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.S)
    box = re.search(r'viewBox="([^"]+)"', body)
    body = body[body.index(">") + 1 :]
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", body)
    body = re.sub(r'(?:xlink:)?href="#([^"]+)"', rf'href="#{prefix}-\1"', body)
    body = body.replace("'DejaVu Sans'", "var(--sans)")
    for drawn, variable in THEME.items():
        body = body.replace(drawn, f"var({variable})")
    title = escape(alt)
    view = box.group(1) if box else "0 0 100 100"
    return Html(f'<svg class="chart" role="img" aria-label="{title}" viewBox="{view}"><title>{title}</title>{body}')
