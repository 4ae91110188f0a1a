"""The pictures of the pages, drawn whenever Sphinx runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measured import rows_of
from naming import DRAWINGS

from nearfar import LFDA
from nearfar.catalog import BY_NAME

COLORS = ("#2f6bc0", "#ab5a10", "#287a4f", "#a045a0", "#bf3a4f", "#6c7020")
GRAY = "#6b6b6b"
DARK_GRAY = "#555555"  # on colors
"""Legible as text on white (contrast 5 and more); in dark mode `style/tables.css` brightens the pictures."""

STYLE = {
    "font.family": "sans-serif",
    "font.size": 11,
    "svg.hashsalt": "nearfar",
    "text.color": GRAY,
    "axes.edgecolor": GRAY,
    "axes.labelcolor": GRAY,
}


def blank(axes: Axes) -> None:
    """No ticks, equal scales."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal", adjustable="datalim")
    axes.patch.set_alpha(0.0)


def classes_with_noise(per_class: int = 25) -> tuple[np.ndarray, np.ndarray]:
    """Six classes that two features tell apart, beside four louder features that say nothing."""
    rng = np.random.default_rng(3)
    y = np.repeat(np.arange(6), per_class)
    angle = 2 * np.pi * y / 6
    centers = 3.0 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    signal = centers + 0.8 * rng.normal(size=(len(y), 2))
    noise = 6.0 * rng.normal(size=(len(y), 4))
    mixing = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    return np.concatenate([signal, noise], axis=1) @ mixing, y


def before_and_after() -> Figure:
    """Classes that were not in training: their rows before, and after a map learned from other classes."""
    X, y = classes_with_noise()
    seen = y % 2 == 0
    learner = LFDA(n_components=2).fit(X[seen], y[seen])
    figure = Figure(figsize=(7.2, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    panels = ((left, X[:, :2], "two of six columns"), (right, learner.transform(X), "the learned embedding"))
    for axes, rows, title in panels:
        for k in (1, 3, 5):
            axes.scatter(*rows[y == k].T, s=18, color=COLORS[k], alpha=0.85, linewidths=0)
        axes.set_title(title, fontsize=11)
        blank(axes)
    return figure


def triplet() -> Figure:
    """An anchor, a positive and a negative, before and after a step."""
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    before = {"anchor": (0.0, 0.0), "positive": (1.9, 0.5), "negative": (-0.9, 0.7)}
    after = {"anchor": (0.0, 0.0), "positive": (0.8, 0.2), "negative": (-1.9, 1.1)}
    for axes, points, title in ((left, before, "before"), (right, after, "after")):
        anchor = np.array(points["anchor"])
        for name, color in (("positive", COLORS[0]), ("negative", COLORS[4])):
            end = np.array(points[name])
            axes.plot(*np.stack([anchor, end], axis=1), color=color, linewidth=2, zorder=1)
            axes.annotate(name, end, xytext=(0, 9), textcoords="offset points", ha="center", color=color)
        axes.annotate("anchor", anchor, xytext=(0, -19), textcoords="offset points", ha="center")
        axes.scatter(*np.array(list(points.values())).T, s=70, color=[COLORS[0], COLORS[0], COLORS[4]], zorder=2)
        axes.set_title(title, fontsize=11)
        axes.set_xlim(-2.6, 2.6)
        blank(axes)
    return figure


def proxies() -> Figure:
    """Samples and the proxies of their classes on the unit circle."""
    rng = np.random.default_rng(0)
    figure = Figure(figsize=(3.4, 3.4), layout="constrained")
    axes = figure.subplots()
    turn = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(turn), np.sin(turn), color=GRAY, linewidth=1)
    for k, angle in enumerate((0.4, 2.4, 4.4)):
        spread = angle + 0.25 * rng.normal(size=9)
        axes.scatter(np.cos(spread), np.sin(spread), s=30, color=COLORS[k], zorder=2)
        axes.scatter(np.cos(angle), np.sin(angle), s=260, marker="*", color=COLORS[k], edgecolor="white", zorder=3)
    axes.set_axis_off()
    blank(axes)
    return figure


def ranking() -> Figure:
    """Two queries, each with its ten nearest items, and the scores that follow."""
    lists = {"query of class A": "ABABAAABBB", "query of class B": "BBBAABAAAB"}
    figure = Figure(figsize=(7.2, 2.1), layout="constrained")
    axes = figure.subplots()
    for row, (name, found) in enumerate(lists.items()):
        own = name[-1]
        axes.text(-0.9, -row, name, ha="right", va="center")
        for place, letter in enumerate(found):
            right = letter == own
            axes.scatter(place, -row, s=420, marker="s", color=COLORS[2] if right else "none", edgecolor=GRAY)
            axes.text(place, -row, letter, ha="center", va="center", color="white" if right else GRAY)
    for place in range(10):
        axes.text(place, 0.62, str(place + 1), ha="center", va="center", fontsize=9)
    axes.text(-0.9, 0.62, "place", ha="right", va="center", fontsize=9)
    axes.set_xlim(-4.6, 9.6)
    axes.set_ylim(-1.5, 0.9)
    axes.set_axis_off()
    return figure


def classes_apart() -> Figure:
    """Which classes train, choose the checkpoint, and test."""
    figure = Figure(figsize=(7.2, 1.5), layout="constrained")
    axes = figure.subplots()
    parts = (("training classes", 8, COLORS[0]), ("validation classes", 3, COLORS[1]), ("test classes", 9, COLORS[2]))
    start = 0
    for name, count, color in parts:
        for k in range(start, start + count):
            axes.add_patch(mpl.patches.Rectangle((k + 0.08, 0), 0.84, 1, color=color, linewidth=0))
        axes.text(start + count / 2, -0.55, name, ha="center", va="center", color=color)
        start += count
    axes.set_xlim(0, start)
    axes.set_ylim(-1.0, 1.1)
    axes.set_axis_off()
    return figure


THINGS = {"milk": COLORS[0], "apple": COLORS[4], "juice": COLORS[1], "lime": COLORS[2]}


def products() -> Figure:
    """Drawn photos: things in front of shelves, each in three photos under other light."""
    rng = np.random.default_rng(1)
    figure = Figure(figsize=(7.2, 2.5), layout="constrained")
    panels = figure.subplots(2, 6).ravel()
    for k, (name, color) in enumerate(THINGS.items()):
        for axes in panels[3 * k : 3 * k + 3]:
            light = rng.uniform(0.55, 1.0)
            axes.set_facecolor(light * np.array([0.9, 0.88, 0.84]) * rng.uniform(0.85, 1.0, 3))
            for height in (0.18, 0.62):
                axes.axhline(height, color=str(0.5 * light), linewidth=2, zorder=0.5)
            place = rng.uniform(0.35, 0.65, 2)
            size = rng.uniform(0.16, 0.26)
            shade = light * np.array(mpl.colors.to_rgb(color))
            axes.add_patch(thing(name, place, size, rng.uniform(-25, 25), shade))
            axes.set_xlim(0, 1)
            axes.set_ylim(0, 1)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_aspect("equal")
    return figure


def thing(name: str, place: np.ndarray, size: float, angle: float, color: np.ndarray) -> mpl.patches.Patch:
    """A carton, or a round or a long fruit."""
    if name in ("milk", "juice"):
        wide = 0.9 * size if name == "milk" else 0.6 * size
        corner = place - np.array([wide / 2, size])
        return mpl.patches.Rectangle(corner, wide, 2 * size, angle=angle, rotation_point="center", color=color)
    tall = 1.5 * size if name == "apple" else 1.1 * size
    return mpl.patches.Ellipse(place, 1.5 * size, tall, angle=angle, color=color)


def rungs() -> Figure:
    """What each rung on a pretrained network is worth."""
    figure = Figure(figsize=(7.2, 2.2), layout="constrained")
    axes = figure.subplots()
    rows = rows_of("rungs")
    for place, row in enumerate(rows):
        score = float(row["MAP@R"])
        axes.barh(-place, score, color=COLORS[0], height=0.7)
        axes.text(score + 0.01, -place, f"{score:.2f}", va="center")
    axes.set_yticks([-place for place in range(len(rows))], [row["rung"] for row in rows])
    axes.tick_params(colors=GRAY)
    axes.set_xlabel("MAP@R on held-out classes")
    axes.spines[["top", "right"]].set_visible(False)
    axes.patch.set_alpha(0.0)
    return figure


WHICH_LOSS = (
    ("Pairs labeled as same or different,\ninstead of classes?", "ContrastiveLoss\nMultiSimilarityLoss"),
    ("No labels, but two views\nof each item?", "NTXentLoss\nVICRegLoss"),
    ("Similarities between 0 and 1\ninstead of classes?", "GeneralizedContrastiveLoss"),
    ("Thousands of classes,\nor a threshold to choose?", "ArcFaceLoss, AdaFaceLoss\nSubCenterArcFaceLoss"),
    ("Only two or three items\nof each class?", "TripletLoss or NPairLoss\nwith CrossBatchMemory"),
    ("Large batches, and Recall@K\nor average precision as the goal?", "RecallAtKLoss, SmoothAPLoss\nFastAPLoss"),
    ("Hundreds of classes,\nonly a few in each batch?", "AMSoftmaxLoss + JRS"),
)
OTHER_LOSS = "MultiSimilarityLoss\nSupConLoss"
WHICH_LEARNER = (
    ("A number to predict\ninstead of a class?", "MLKR"),
    ("No labels at all?", "CovarianceMetric"),
    ("Pairs labeled as same\nor different?", "ITML, GMML"),
    ("Triplets, or comparisons\nof two distances?", "SCML, LMNN\nLSML"),
    ("Groups of rows\nthat belong together?", "RCA, DCA"),
    ("Features of a pretrained network,\nand classes that come later?", "DiscriminantWhitening\nGMML(t=0.3)"),
    ("Classes that a linear map\ncannot separate?", "KernelNCA\nKernelDCA"),
    ("Little time, or many rows?", "LFDA\nITML"),
)
OTHER_LEARNER = "SCML, MCML\nNCA"
"""Questions, and what to begin with where the answer is yes; `objectives.md` and `learners.md` say why."""


def which(questions: tuple[tuple[str, str], ...], other: str) -> Figure:
    """Questions from top to bottom: yes leads to the answer below, no leads to the next question.

    The picture is as wide as the text of a page on a phone (3.55 inches are 341 pixels).
    """
    width = 3.55
    answers_left = 1.1
    rows = [(question, box_height(question), answer, box_height(answer)) for question, answer in questions]
    height = sum(asked + answered + 0.42 for _, asked, _, answered in rows) + box_height(other) + 0.1
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(-height, 0))  # in inches
    axes.axis("off")
    top = -0.05
    for question, asked, answer, answered in rows:
        box(axes, question, left=0.05, right=width - 0.05, top=top, edge=GRAY, color=GRAY)
        bottom = top - asked
        box(axes, answer, left=answers_left, right=width - 0.05, top=bottom - 0.16, edge=COLORS[0], color=COLORS[0])
        middle = bottom - 0.16 - answered / 2
        elbow = {"arrowstyle": "->", "color": GRAY, "connectionstyle": "angle,angleA=90,angleB=0,rad=4", "shrinkA": 0}
        axes.annotate("", (answers_left, middle), (0.62, bottom), arrowprops=elbow)
        axes.text(0.68, middle + 0.04, "yes", ha="left", va="bottom", fontsize=9)
        top = bottom - answered - 0.42
        axes.annotate("", (0.25, top), (0.25, bottom), arrowprops={"arrowstyle": "->", "color": GRAY, "shrinkA": 0})
        axes.text(0.31, middle + 0.04, "no", ha="left", va="bottom", fontsize=9)
    box(axes, other, left=0.05, right=width - 0.05, top=top, edge=COLORS[0], color=COLORS[0])
    return figure


def box_height(text: str) -> float:
    """The height in inches of a box with one or two lines of text."""
    return 0.16 + 0.17 * len(text.split("\n"))


def box(axes: Axes, text: str, *, left: float, right: float, top: float, edge: str, color: str) -> None:
    """A box with rounded corners, and text in its middle."""
    height = box_height(text)
    outline = mpl.patches.FancyBboxPatch(
        (left, top - height),
        right - left,
        height,
        boxstyle="round,pad=0,rounding_size=0.06",
        fill=False,
        edgecolor=edge,
    )
    axes.add_patch(outline)
    middle = ((left + right) / 2, top - height / 2)
    axes.text(*middle, text, ha="center", va="center", fontsize=10, color=color, linespacing=1.15)


def which_loss() -> Figure:
    """With which loss to begin."""
    return which(WHICH_LOSS, OTHER_LOSS)


def which_learner() -> Figure:
    """With which learner to begin."""
    return which(WHICH_LEARNER, OTHER_LEARNER)


class Gain(NamedTuple):
    """What a learner gains on the plain distance over eleven tables, in points of accuracy, and the time of a fit."""

    learner: str
    family: str
    mean: float
    worst: float
    best: float
    seconds: float


def gains_of_learners() -> list[Gain]:
    """Read what each learner gains, the largest mean first."""
    gains = []
    for row in rows_of("learners"):
        number, unit = row["fit"].split()
        seconds = float(number) * {"ms": 1e-3, "s": 1.0}[unit]
        family = BY_NAME[row["learner"]].at.split("/")[1]
        gains.append(Gain(row["learner"], family, float(row["mean"]), float(row["worst"]), float(row["best"]), seconds))
    return sorted(gains, key=lambda gain: -gain.mean)


def best_of_families(gains: list[Gain], many: int = 10) -> list[Gain]:
    """Return the learner of the largest mean of each family, the largest first."""
    found: dict[str, Gain] = {}
    for gain in gains:
        found.setdefault(gain.family, gain)
    return list(found.values())[:many]


def gain_against_time() -> Figure:
    """Mean gains of the learners against their times; lines go from the worst to the best table."""
    gains = [gain for gain in gains_of_learners() if gain.mean > -6]  # one is far below
    best = best_of_families(gains)
    figure = Figure(figsize=(7.2, 5.4), layout="constrained")
    axes = figure.subplots()
    axes.axhline(0, color=GRAY, linewidth=1, linestyle=":")
    others = [gain for gain in gains if gain not in best]
    axes.scatter([gain.seconds for gain in others], [gain.mean for gain in others], s=18, color=GRAY, alpha=0.6)
    for gain, color in zip(best, 2 * COLORS, strict=False):
        axes.plot((gain.seconds, gain.seconds), (gain.worst, gain.best), color=color, linewidth=1.6, alpha=0.5)
        axes.scatter(gain.seconds, gain.mean, s=42, color=color, linewidths=0, zorder=2)
        axes.annotate(
            gain.learner,
            (gain.seconds, gain.best),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=color,
            rotation=30,
            rotation_mode="anchor",
        )
    axes.set(xscale="log", xlabel="processor time of a fit, in seconds", ylabel="points over the plain distance")
    axes.tick_params(colors=GRAY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.patch.set_alpha(0.0)
    return figure


SETTINGS = (
    ("losses_omniglot", "MAP@R", "trained from scratch\non characters"),
    ("losses_frozen", "MAP@R beyond the whitening", "a linear layer on frozen\nfeatures of photos"),
    ("losses_finetuned", "MAP@R beyond the whitening", "a pretrained network,\nfine-tuned on photos"),
)
"""Tables of losses, the column that is drawn, and what was done."""


def scores_of_losses(table: str, column: str) -> dict[str, tuple[float, float]]:
    """Read the mean and the half-width of its interval for each single loss of a table, from its first row."""
    found: dict[str, tuple[float, float]] = {}
    for row in rows_of(table):
        loss = re.fullmatch(r"(\w+)\([^()]*\)", next(iter(row.values())))
        if loss and row[f"{column} ±"] and BY_NAME[loss[1]].kind in ("loss", "composition"):
            found.setdefault(loss[1], (float(row[column]), float(row[f"{column} ±"])))
    return found


def losses_compared() -> Figure:
    """The losses that were measured in all three settings: means and 95% intervals."""
    tables = [scores_of_losses(table, column) for table, column, _ in SETTINGS]
    names = sorted(set.intersection(*map(set, tables)), key=lambda name: tables[2][name][0])
    figure = Figure(figsize=(7.2, 0.9 + 0.27 * len(names)), layout="constrained")
    panels = figure.subplots(1, len(SETTINGS), sharey=True)
    for axes, table, (_, column, title), color in zip(panels, tables, SETTINGS, COLORS, strict=False):
        means, halves = np.array([table[name] for name in names]).T
        axes.errorbar(means, range(len(names)), xerr=halves, fmt="o", color=color, markersize=5, elinewidth=2)
        if "beyond" in column:
            axes.axvline(0, color=GRAY, linewidth=1, linestyle=":")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(column.replace("beyond the", "beyond\nthe"), fontsize=9)
        axes.tick_params(colors=GRAY, labelsize=9)
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.patch.set_alpha(0.0)
    panels[0].set_yticks(range(len(names)), names)
    return figure


def times_of_losses() -> Figure:
    """How many times as long the losses of pytorch-metric-learning take, by the size of the batch."""
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.subplots()
    shown = ("Triplet, all", "Triplet, hard", "Contrastive", "Margin, hard", "N-pair", "NCA loss")
    ends = {}
    for row, color in zip([row for row in rows_of("losses_peer") if row["loss"] in shown], COLORS, strict=True):
        name = row["loss"]
        values = [float(row[f"B = {size}"]) for size in ("128", "512", "2,048")]
        axes.plot([128, 512, 2048], values, color=color, marker="o", linewidth=1.8)
        ends[name] = (values[-1], color)
    height = -np.inf
    for name, (value, color) in sorted(ends.items(), key=lambda end: end[1][0]):
        height = max(np.log10(value), height + 0.1)  # so that names do not overlap
        axes.annotate(name, (2048, 10**height), xytext=(8, 0), textcoords="offset points", va="center", color=color)
    axes.axhline(1, color=GRAY, linewidth=1, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="items in a batch", ylabel="time of the peer / time of nearfar")
    axes.set_xticks([128, 512, 2048], ["128", "512", "2,048"])
    axes.set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
    axes.minorticks_off()
    axes.tick_params(colors=GRAY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.patch.set_alpha(0.0)
    return figure


COLUMNS_OF_SETS = {
    "raw": ("raw inputs", "o"),
    "frozen": ("frozen features", "s"),
    "closed form": ("closed form", "D"),
    "plain loop": ("plain loop of the same time", "x"),
    "default": ("the default", "o"),
}
"""Columns of the ladder over several sets, their names in the picture, and their marks."""


def ladder_of_sets() -> Figure:
    """What each rung of the ladder has on several sets, and what the default gains on a plain loop."""
    rows = rows_of("zoo")[::-1]
    figure = Figure(figsize=(7.2, 1.5 + 0.32 * len(rows)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    for (column, (name, mark)), color in zip(COLUMNS_OF_SETS.items(), (GRAY, *COLORS[1:4], COLORS[0]), strict=True):
        known = [(float(row[column]), place) for place, row in enumerate(rows) if row[column]]
        size = 70 if column == "default" else 32
        face = "none" if column == "default" else color
        marked = {"color": color} if mark == "x" else {"edgecolors": color, "facecolors": face}
        left.scatter(*zip(*known, strict=True), s=size, marker=mark, linewidths=1.6, label=name, zorder=2, **marked)
    for place, row in enumerate(rows):
        if not row["default - plain loop"]:  # the loop was not run
            continue
        half = float(row["default - plain loop ±"] or 0)
        mean = float(row["default - plain loop"])
        right.errorbar(mean, place, xerr=half or None, fmt="o", color=COLORS[0], markersize=5, elinewidth=2)
    right.axvline(0, color=GRAY, linewidth=1, linestyle=":")
    left.set_xlabel("MAP@R", fontsize=9)
    right.set_xlabel("MAP@R of the default - plain loop", fontsize=9)
    left.set_yticks(range(len(rows)), [row["set"] for row in rows])
    for axes in (left, right):
        axes.tick_params(colors=GRAY, labelsize=9)
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.patch.set_alpha(0.0)
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


FORMS_OF_ATLAS = (
    "centered",
    "PCA",
    "whitening without labels",
    "whitening",
    "whitening(shrinkage=0.2)",
    "whitening(emphasis=1)",
    "GMML(t=0.1)",
    "GMML(t=0.3)",
    "GMML(t=0.5)",
    "LDA",
    "LFDA",
    "RCA",
    "linear layer, cosine softmax",
    "linear layer, SupCon",
)
"""Columns of the map of gains, those of the atlas that are not merely another setting."""
LARGEST_GAIN = 0.15
"""Gain in MAP@R with the full color of the map."""


def atlas_map() -> Figure:
    """The gain of each form on each encoder and set: blue is a gain, orange a loss."""
    rows = rows_of("atlas")
    gains = np.array([[float(row[form] or "nan") for form in FORMS_OF_ATLAS] for row in rows])
    figure = Figure(figsize=(7.2, 1.9 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for (row, column), gain in np.ndenumerate(gains):
        if np.isnan(gain):
            continue
        color = COLORS[0] if gain > 0 else COLORS[1]
        strength = min(abs(gain) / LARGEST_GAIN, 1)
        box = mpl.patches.Rectangle((column - 0.5, row - 0.5), 1, 1, color=color, alpha=0.35 * strength, linewidth=0)
        axes.add_patch(box)
        best = gain == np.nanmax(gains[row])
        text = f"{100 * gain:+.0f}".replace("-", "\N{MINUS SIGN}")
        axes.text(
            column,
            row,
            text,
            ha="center",
            va="center",
            fontsize=8,
            weight="bold" if best else "normal",
            color=DARK_GRAY,
        )
    axes.set_xticks(range(len(FORMS_OF_ATLAS)), FORMS_OF_ATLAS, rotation=60, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(rows)), [f"{row['encoder']}, {row['set']} ({float(row['none']):.2f})" for row in rows])
    axes.set(xlim=(-0.5, len(FORMS_OF_ATLAS) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    axes.tick_params(colors=GRAY, labelsize=8, length=0)
    axes.spines[:].set_visible(False)
    axes.patch.set_alpha(0.0)
    return figure


GAINS_OF_ATLAS = {
    "whitening": "o",
    "whitening(emphasis=1)": "s",
    "RCA": "v",
    "GMML(t=0.1)": "D",
    "GMML(t=0.3)": "^",
    "linear layer, SupCon": "x",
}
"""Forms whose gains are drawn with intervals, and their marks."""


def atlas_gains() -> Figure:
    """The gain of the ladder's closed forms and of a linear layer on each encoder and set, with intervals."""
    rows = rows_of("atlas")[::-1]
    figure = Figure(figsize=(7.2, 1.0 + 0.4 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for k, ((form, mark), color) in enumerate(zip(GAINS_OF_ATLAS.items(), COLORS, strict=False)):
        known = [(place, row) for place, row in enumerate(rows) if row[form]]
        places = [place + 0.3 - 0.12 * k for place, _ in known]
        gains = [float(row[form]) for _, row in known]
        halves = [float(row[f"{form} ±"] or 0) for _, row in known]
        axes.errorbar(gains, places, xerr=halves, fmt=mark, color=color, markersize=4, elinewidth=1.4, label=form)
    axes.axvline(0, color=GRAY, linewidth=1, linestyle=":")
    axes.set_xlim(-0.14, 0.4)
    axes.set_yticks(range(len(rows)), [f"{row['encoder']}, {row['set']}" for row in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("gain in MAP@R on the features as they are", fontsize=9)
    axes.tick_params(colors=GRAY, labelsize=9)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.patch.set_alpha(0.0)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


FEW_OF_ATLAS = (("groceries", "MobileNet v1"), ("letter", "rows"), ("CLINC150", "MiniLM"), ("words", "GE2E"))
"""Sets and encoders whose gains from few classes and few items are drawn."""


def atlas_few() -> Figure:
    """The gain of closed forms and of a linear layer that learn from few classes, and from few items of each."""
    rows = rows_of("atlas_few")
    figure = Figure(figsize=(7.2, 0.7 + 1.9 * len(FEW_OF_ATLAS)), layout="constrained")
    panels = figure.subplots(len(FEW_OF_ATLAS), 2, sharey="row")
    whole = {(row["set"], row["encoder"]): row for row in rows_of("atlas")}
    for (name, encoder), pair in zip(FEW_OF_ATLAS, panels, strict=True):
        of = [row for row in rows if (row["set"], row["encoder"]) == (name, encoder)]
        all_of_it = whole[name, encoder]
        for axes, column, other, most in zip(
            pair,
            ("classes", "items a class"),
            ("items a class", "classes"),
            ("learned_classes", "per_class"),
            strict=True,
        ):
            drawn = [row for row in of if row[other] == "all"]
            numbers = [int(row[column]) for row in drawn] + [round(float(all_of_it[most]))]
            for (form, mark), color in zip(GAINS_OF_ATLAS.items(), COLORS, strict=False):
                gains = [float(row[form]) for row in (*drawn, all_of_it)]
                axes.plot(numbers, gains, color=color, marker=mark, markersize=4, linewidth=1.4, label=form)
            axes.axhline(0, color=GRAY, linewidth=1, linestyle=":")
            axes.set_xscale("log", base=2)
            axes.set_xticks(numbers, [str(number) for number in numbers])
            axes.minorticks_off()
            axes.set_xlabel(column, fontsize=9)
            axes.set_title(f"{name}, {encoder}", fontsize=9)
            axes.tick_params(colors=GRAY, labelsize=9)
            axes.spines[["top", "right"]].set_visible(False)
            axes.patch.set_alpha(0.0)
        pair[0].set_ylabel("gain in MAP@R", fontsize=9)
    handles = panels[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


LINE = {"markersize": 4, "linewidth": 1.4}
BAND = {"linewidth": 7, "alpha": 0.3, "zorder": 1}  # behind the lines that it follows


def few_photos() -> Figure:
    """The MAP@R of each rung that learns from few classes, and from few photos of each."""
    rows = rows_of("few")
    numbers = ("classes", "photos a class")
    most = {"classes": 40, "photos a class": 64}
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, column, other in zip(panels, numbers, reversed(numbers), strict=True):
        drawn = [row for row in rows if row[other] == "all"]
        places = [most[column] if row[column] == "all" else int(row[column]) for row in drawn]
        rungs = [name for name in rows[0] if name not in numbers]
        for rung, color, mark in zip(rungs, COLORS, "sovD^*", strict=False):
            scores = [float(row[rung]) for row in drawn]
            axes.plot(
                places, scores, color=color, label=rung, **(BAND if rung == "default" else LINE | {"marker": mark})
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(places, [row[column] for row in drawn])
        axes.minorticks_off()
        axes.set_xlabel(column, fontsize=9)
        axes.tick_params(colors=GRAY, labelsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.patch.set_alpha(0.0)
    panels[0].set_ylabel("MAP@R on unseen classes", fontsize=9)
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


def map_against_bytes() -> Figure:
    """The MAP@R of each way to store embeddings against the bytes that the search reads."""
    tables: dict[str, list[dict[str, str]]] = {}
    for row in rows_of("storage"):
        tables.setdefault(row["storage"], []).append(row)
    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    axes = figure.subplots()
    for (storage, rows), color in zip(tables.items(), COLORS, strict=False):
        sizes = [float(row["bytes searched"]) for row in rows]
        means = [float(row["MAP@R"]) for row in rows]
        halves = [float(row.get("MAP@R ±") or 0) for row in rows]
        axes.errorbar(sizes, means, yerr=halves, color=color, marker="o", markersize=5, elinewidth=2, label=storage)
    axes.set(xscale="log", xlabel="bytes of an embedding that the search reads", ylabel="MAP@R")
    axes.set_xticks([2, 4, 8, 16, 32, 64, 128, 256], ["2", "4", "8", "16", "32", "64", "128", "256"])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=9)
    axes.tick_params(colors=GRAY)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.patch.set_alpha(0.0)
    return figure


def two_processes(call: str, shards: bool = False) -> Figure:
    """Two processes that train one network: each embeds its part of a batch, and both see all embeddings."""
    figure = Figure(figsize=(4.0, 2.8), layout="constrained")
    axes = figure.subplots()
    arrow = {"arrowstyle": "->", "color": GRAY, "shrinkA": 2, "shrinkB": 2}
    for process, color in enumerate(COLORS[:2]):
        y = 1.5 - 1.2 * process
        axes.text(0.0, y + 0.42, f"process {process}", color=color, fontsize=10)
        for k in range(4):
            axes.add_patch(mpl.patches.Rectangle((0.28 * k, y - 0.15), 0.22, 0.32, color=color, linewidth=0))
        axes.add_patch(mpl.patches.Rectangle((1.75, y - 0.3), 1.0, 0.62, fill=False, edgecolor=color))
        if shards:  # each process keeps its half of every parameter
            axes.add_patch(mpl.patches.Rectangle((1.75 + 0.5 * process, y - 0.3), 0.5, 0.62, color=color, alpha=0.35))
        axes.text(2.25, y, "network", ha="center", va="center", fontsize=10)
        axes.annotate("", (1.75, y), (1.1, y), arrowprops=arrow)
        axes.annotate("", (3.3, 0.9), (2.75, y), arrowprops=arrow)
        for k in range(4):
            height = 1.5 - 0.16 * (4 * process + k)
            axes.scatter([3.45, 3.65, 3.85], 3 * [height], s=16, color=color, linewidths=0)
    axes.text(3.65, 1.72, "embeddings", ha="center", fontsize=10)
    axes.annotate("", (4.75, 0.9), (4.0, 0.9), arrowprops=arrow)
    axes.text(5.1, 0.9, "loss", ha="center", va="center", fontsize=10, bbox={"fc": "none", "ec": GRAY, "pad": 6})
    axes.text(2.7, -0.65, call, ha="center", va="center", family="monospace", fontsize=10)
    axes.set_xlim(-0.1, 5.6)
    axes.set_ylim(-0.9, 2.2)
    axes.set_axis_off()
    return figure


def loop_of_accelerate() -> Figure:
    """The picture of this example."""
    return two_processes("accelerator.prepare(step)")


def module_of_lightning() -> Figure:
    """The picture of this example."""
    return two_processes("LightningModule.training_step")


def trainer_of_transformers() -> Figure:
    """The picture of this example."""
    return two_processes("Trainer(model, arguments)")


def trainer_of_sentence_transformers() -> Figure:
    """The picture of this example."""
    return two_processes("SentenceTransformerTrainer(model)")


def distributed_data_parallel() -> Figure:
    """The picture of this example."""
    return two_processes("DistributedDataParallel(step)")


def sharded_by_fsdp2() -> Figure:
    """The picture of this example."""
    return two_processes("fully_shard(step)", shards=True)


FIGURES = {
    "which_loss": which_loss,
    "which_learner": which_learner,
    "gain_against_time": gain_against_time,
    "losses_compared": losses_compared,
    "times_of_losses": times_of_losses,
    "ladder_of_sets": ladder_of_sets,
    "atlas_map": atlas_map,
    "atlas_gains": atlas_gains,
    "atlas_few": atlas_few,
    "few_photos": few_photos,
    "map_against_bytes": map_against_bytes,
    "products": products,
    "rungs": rungs,
    "before_and_after": before_and_after,
    "triplet": triplet,
    "proxies": proxies,
    "ranking": ranking,
    "classes_apart": classes_apart,
    "loop_of_accelerate": loop_of_accelerate,
    "module_of_lightning": module_of_lightning,
    "trainer_of_transformers": trainer_of_transformers,
    "trainer_of_sentence_transformers": trainer_of_sentence_transformers,
    "distributed_data_parallel": distributed_data_parallel,
    "sharded_by_fsdp2": sharded_by_fsdp2,
}


def write(folder: Path) -> None:
    """Draw every picture as an SVG file with a transparent background."""
    folder.mkdir(exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, draw in FIGURES.items():
            with mpl.rc_context(
                {"svg.fonttype": "none"} if name in DRAWINGS else {}
            ):  # names stay text: they are links
                draw().savefig(folder / f"{name}.svg", transparent=True, metadata={"Date": None})
        before_and_after().savefig(folder / "example.png", facecolor="white")  # of examples without a picture
