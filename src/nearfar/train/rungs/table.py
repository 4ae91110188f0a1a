"""The table of the ladder: scores of each rung on held-out classes, and which rung is worth its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ...evaluation.intervals import interval
from ..run import RunFolder, write_json

RUNGS = ("raw", "frozen", "whitened", "head", "last-stage", "full")
UNTRAINED = ("raw", "frozen", "whitened")
"""Rungs that train nothing, and so can be scored on many splits."""
SCORES = ("recall_at_1", "map_at_r")
LADDER = "ladder.json"
SPLITS_OF_INTERVAL = 5
"""Minimum number of splits for an interval: with 3 splits, which hold out a third of the classes, its half-width is 3.9
standard deviations (with 5 splits 2.3, with 20 splits 1.6)."""
HELD_OUT_CLASSES = 1 / 3  # share of the classes that a split holds out


@dataclass(frozen=True)
class Rung:
    """One rung of the ladder.

    Attributes
    ----------
    name : str
        One of `RUNGS`.
    title : str
        What it is, for tables.
    recall_at_1 : tuple of float
        Recall@1 on the held-out classes of every split that the rung was scored on, which are the first ones.
    map_at_r : tuple of float
        MAP@R on the same.
    seconds : float
        Time of the rung for all of its splits together, without what the rungs before it have computed for it.
    forms : tuple of str
        Closed form of each split, if the rung has one: that which the classes that are not held out have chosen.
    """

    name: str
    title: str
    recall_at_1: tuple[float, ...]
    map_at_r: tuple[float, ...]
    seconds: float
    forms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ladder:
    """Scores of the rungs from raw inputs to fine-tuning, and which rung is worth its time.

    Attributes
    ----------
    protocol : str
        The data, and how classes were held out.
    rows : tuple of Rung
        Rungs, from the cheapest to the most expensive.
    worth : str
        The last rung that was better than all before it, as `last_worthwhile_rung` decides.
    weights : str
        Where the weights of the trunk come from.
    ratio : float
        Number of held-out classes over the number of the others in each split, for the intervals.

    Notes
    -----
    Rungs that train nothing are scored on more splits than the others. So that all means can be compared, the mean of a
    rung with fewer splits is that of the last rung that trains nothing, plus their mean difference on the splits that
    they share: their scores on one split resemble each other more than those of raw inputs. An
    interval is that of the scores on the rung's own splits, see `mean_and_half`. Fewer than five splits give none.
    """

    protocol: str
    rows: tuple[Rung, ...]
    worth: str
    weights: str = ""
    ratio: float = 0.0

    @property
    def sentence(self) -> str:
        """Which rung is worth it, and whether another one has a higher score that may be due to chance."""
        best = self._row(self.worth)
        name = best.title[0].upper() + best.title[1:]
        if len(self.rows) == 1:
            return f"{name}: {self.scores}. Nothing else was compared."
        cheaper = self._cheaper
        if cheaper is None:
            name = f"No rung is better than {best.title} by more than chance"
        sentence = f"{name}: {self.scores}."
        if cheaper is not None:
            gains = differences(best, cheaper)
            mean, half = mean_and_half(gains, self.ratio)
            if np.isfinite(half) and mean <= half:
                gain = _gain_text(gains, self.ratio)
                sentence += f" On new classes, {cheaper.title} may be as good: the gain is {gain}."
        if any(mean_difference(row, best) > 0 for row in self.rows):
            sentence += " The higher scores of other rungs may be due to chance."
        return sentence

    @property
    def scores(self) -> str:
        """MAP@R of the rung that is worth it, and of the others."""
        best = f"MAP@R {self.mean(self._row(self.worth)):.3f} on held-out classes"
        others = "; ".join(f"{row.title} {self.mean(row):.3f}" for row in self.rows if row.name != self.worth)
        return f"{best} ({others})" if others else best

    @property
    def gain(self) -> str:
        """By how much the rung that is worth it is better than the best of the cheaper ones; "" if there are none."""
        cheaper = self._cheaper
        if cheaper is None:
            return ""
        gain = _gain_text(differences(self._row(self.worth), cheaper), self.ratio)
        return f"The gain over {cheaper.title} is {gain}."

    @property
    def _cheaper(self) -> Rung | None:
        """The rung that would be worth it without the one that is, and without those that cost more."""
        before = self.rows[: self.rows.index(self._row(self.worth))]
        return self._row(last_worthwhile_rung(before)) if before else None

    def _row(self, rung: str) -> Rung:
        return next(row for row in self.rows if row.name == rung)

    def mean(self, row: Rung, score: str = "map_at_r") -> float:
        """Return the mean over all splits, corrected for splits that the row does not have."""
        most = len(self.rows[0].map_at_r)
        *_, reference = (other for other in self.rows if len(other.map_at_r) == most)
        return float(np.mean(getattr(reference, score))) + mean_difference(row, reference, score)

    def _interval(self, row: Rung, score: str) -> tuple[float, float]:
        """Return the mean over all splits and the half-width of its interval, NaN for fewer than five splits."""
        values = getattr(row, score)
        half = mean_and_half(values, self.ratio)[1] if len(values) >= SPLITS_OF_INTERVAL else np.nan
        return self.mean(row, score), half

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: `protocol`, `rows`, `worth`, `weights` and `sentence`.

        Half-widths of intervals are NaN for fewer than five splits.
        """
        rows = []
        for row in self.rows:
            plain = {**asdict(row), "splits": len(row.map_at_r)}
            for score in SCORES:
                plain[f"{score}_mean"], plain[f"{score}_half_width"] = self._interval(row, score)
            rows.append(plain)
        return {
            "protocol": self.protocol,
            "rows": rows,
            "worth": self.worth,
            "weights": self.weights,
            "sentence": self.sentence,
        }

    def __str__(self) -> str:
        """Return the table as text."""
        width = max(len(row.title) for row in self.rows)
        lines = [self.weights] if self.weights else []
        head = f"{'rung':<{width}}  {'splits':>6}  {'Recall@1':>15}  {'MAP@R':>15}  {'seconds':>8}"
        lines += [self.protocol, "", head]
        for row in self.rows:
            recall, map_at_r = (as_text(*self._interval(row, score)) for score in SCORES)
            splits = len(row.map_at_r)
            lines.append(f"{row.title:<{width}}  {splits:>6}  {recall:>15}  {map_at_r:>15}  {row.seconds:>8.1f}")
        return "\n".join([*lines, "", f"Worth it: {self.sentence}"])


def mean_and_half(values: Sequence[float], ratio: float = 0.0) -> tuple[float, float]:
    """Return the mean over the splits and the half-width of its 95% interval; NaN for one split.

    With the ratio of held-out to other classes, the interval allows for the overlap of the splits, which have most of
    their classes in common (Nadeau and Bengio, Inference for the generalization error, 2003).

    >>> mean, half = mean_and_half([0.5, 0.6, 0.7], ratio=0.5)
    >>> round(mean, 3), round(half, 3)
    (0.6, 0.393)
    """
    found = interval(values)
    # t_{0.975, J-1} s sqrt(1/J + ratio); `interval` has the same without the ratio
    return found.mean, found.half * float(np.sqrt(1.0 + len(values) * ratio))


def as_text(mean: float, half: float) -> str:
    """Return a mean and its half-width as text.

    >>> as_text(0.6, 0.248)
    '0.600 ± 0.248'
    """
    return f"{mean:.3f} ± {half:.3f}" if np.isfinite(half) else f"{mean:.3f}"


def _gain_text(gains: Sequence[float], ratio: float) -> str:
    """Return the mean gain with its interval, or with the smallest and the largest gain of a few splits."""
    mean, half = mean_and_half(gains, ratio)
    if len(gains) >= SPLITS_OF_INTERVAL:
        return as_text(mean, half)
    return f"{mean:.3f} on average, and {min(gains):.3f} to {max(gains):.3f} in single splits"


def differences(one: Rung, other: Rung, score: str = "map_at_r") -> list[float]:
    """Return the differences of a score, one minus the other, on the splits that both rungs have."""
    ours = getattr(one, score)
    theirs = getattr(other, score)
    shared = min(len(ours), len(theirs))
    return np.subtract(ours[:shared], theirs[:shared]).tolist()


def mean_difference(one: Rung, other: Rung, score: str = "map_at_r") -> float:
    """Return the mean of `differences`."""
    return float(np.mean(differences(one, other, score)))


def last_worthwhile_rung(rungs: Sequence[Rung]) -> str:
    """Return the last rung that is better by MAP@R than the best before it, by more than the chance of the splits.

    The mean difference is taken on the splits that both rungs have. For a layer or a last stage that is trained, it
    must be larger than the half-width of its 95% interval. A rung that trains nothing costs nothing, so that one
    standard error is enough. So it is for all weights, which are tried for a few batches, and gain more in the many of
    the training that follows. A closed form is what other classes have preferred to the features as they are, and
    follows them unless it is worse by one standard error that is corrected for the overlap.

    The others are those of random splits of these classes, and are not corrected for their overlap: for a few classes,
    a corrected interval is so wide that hardly any rung is ever chosen.
    """
    best = rungs[0]
    for before, rung in pairwise(rungs):
        gains = differences(rung, best)
        mean, half = mean_and_half(gains)
        error = float(np.std(gains, ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else 0.0
        if rung.name == "whitened" and best is before:
            needed = -error * float(np.sqrt(1.0 + len(gains) * HELD_OUT_CLASSES / (1.0 - HELD_OUT_CLASSES)))
        elif rung.name in (*UNTRAINED, "full") or len(gains) == 1:
            needed = error
        else:
            needed = half
        if mean > needed:
            best = rung
    return best.name


def write_ladder(found: Ladder, run: str | Path) -> None:
    """Write the table into the folder of a run, whose report shows it."""
    write_json(Path(run) / LADDER, found.to_dict())


def write_ladder_choice(found: Ladder, folder: RunFolder, name: str, title: str, then: str) -> None:
    """Write that a run keeps what the ladder has chosen, with the scores of all rungs.

    Parameters
    ----------
    name, title : str
        Of what is kept, as in its checkpoint; its closed form was fitted to all classes, and may be another one.
    then : str
        What follows in the sentence.
    """
    rows = [
        {
            "name": name if row.name == found.worth else row.name,
            "title": title if row.name == found.worth else row.title,
            "map_at_r": found.mean(row),
            "recall_at_1": found.mean(row, "recall_at_1"),
        }
        for row in found.rows
    ]
    sentences = (f"Kept: {title}, {found.scores}.", found.gain, then)
    folder.write_kept(name, title, " ".join(filter(None, sentences)), candidates=rows)
