"""What a run could keep: scores on the held-out classes, and which of the candidates is the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

PRIOR_DEVIATION = 0.1  # of the gains in MAP@R of single classes, as usual
PRIOR_CLASSES = 3
TRAINED_NAMES = ("trained", "interpolated")


@dataclass(frozen=True)
class Candidate:
    """A model that could be kept, with its scores on the held-out classes.

    Attributes
    ----------
    name : str
        "raw", "raw-form", "frozen", "frozen-form", "trained" or "interpolated".
    title : str
        The same in words.
    map_at_r, recall_at_1 : float
        Means over the held-out classes.
    by_class : tuple of float
        MAP@R of each held-out class, for the uncertainty of differences. If these classes have chosen something about
        the model, such as its epoch, MAP@R is what to expect of what the other classes choose.
    """

    name: str
    title: str
    map_at_r: float
    recall_at_1: float
    by_class: tuple[float, ...]


@dataclass(frozen=True)
class Choice:
    """Which candidate is the best, and which one the run keeps.

    Attributes
    ----------
    candidates : tuple of Candidate
        From the cheapest to the most expensive.
    best : str
        Name of the best one, as `best_of` decides.
    kept : str
        Name of the one in the checkpoint: the best one, or "trained".
    again : bool
        Whether the trained network was trained again, also on the held-out classes.
    closed_set : bool
        Whether training has seen other items of the held-out classes.
    of_sets : bool
        Whether the items have sets of labels, and are similar by labels in common.
    of_images : bool
        Whether the items are images, for which there are pretrained trunks.
    uneven : bool
        Whether the network sees columns whose sizes differ by orders of magnitude.
    form_of_all : str
        Title of the kept model with the closed form that all training classes prefer, if it is another one than that
        which was scored.
    """

    candidates: tuple[Candidate, ...]
    best: str
    kept: str
    again: bool = False
    closed_set: bool = False
    of_sets: bool = False
    of_images: bool = False
    uneven: bool = False
    form_of_all: str = ""

    @property
    def kept_title(self) -> str:
        """What is in the checkpoint, in words."""
        return self.form_of_all or self.of(self.kept).title

    def of(self, name: str) -> Candidate:
        return next(candidate for candidate in self.candidates if candidate.name == name)

    @property
    def sentence(self) -> str:
        """Which model is kept, and by how much the best one is better or worse than the trained network."""
        kept = self.of(self.kept)
        held_out = f"{len(kept.by_class)} held-out classes"
        if self.of_sets:
            held_out = f"held-out items with {len(kept.by_class)} sets of labels"
        elif self.closed_set:
            held_out = f"held-out items of {len(kept.by_class)} classes"
        others = "; ".join(f"{one.title} {one.map_at_r:.3f}" for one in self.candidates if one.name != self.kept)
        beside = f" ({others})" if others else ""
        line = f"Kept: {kept.title}, MAP@R {kept.map_at_r:.3f} on {held_out}{beside}."
        best = self.of(self.best)
        if self.kept != self.best:
            return f"{line} {best.title[0].upper()}{best.title[1:]} would be {self._verdict}; --keep best keeps it."
        if self._verdict:
            line += f" It is {self._verdict}."
        if self.form_of_all:
            line += f" All training classes together prefer {self.form_of_all}, which is saved."
        units = "items" if self.closed_set else "classes"
        if self.again:
            return f"{line} Then it was trained again, for as many epochs, also on these {units}."
        if best.name in TRAINED_NAMES:
            return f"{line} --final trains it again, on all {units}."
        helps = f"Standardized columns (--standardize), more {units}" if self.uneven else f"More {units}"
        if self.of_images and all(one.name != "frozen" for one in self.candidates):
            helps += ", a pretrained trunk"
        return f"{line} {helps} or a lower learning rate may help the training."

    @property
    def _verdict(self) -> str:
        """How the best one compares with the trained network, or this with the best of what is cheaper."""
        best = self.of(self.best)
        if best.name == "trained":
            cheaper = self.candidates[: self.candidates.index(best)]
            if not cheaper:
                return ""
            other = self.of(best_of(cheaper))
        else:
            other = self.of("trained")
        name = "the trained network" if other.name == "trained" else other.title
        gain, error = gain_and_error(best, other)
        is_same = best.by_class == other.by_class
        over = "sets" if self.of_sets else "classes"
        detail = f"{abs(gain):.3f} ± {error:.3f} MAP@R (standard error over the {over})"
        if gain > 0:
            return f"better than {name} by {detail}"
        perhaps = f"by only {detail}, which may be due to chance"
        if best.name == "trained":  # it began as features
            return f"as good as {name}" if is_same else f"worse than {name} {perhaps}"
        return f"cheaper, and {name} is {'equally good' if is_same else f'better {perhaps}'}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without the scores of single classes."""
        rows = []
        for one in self.candidates:
            row = asdict(one)
            del row["by_class"]
            rows.append({**row, "gain": gain_and_error(one, self.of("trained"))})
        classes = len(self.candidates[0].by_class)
        return {
            "candidates": rows,
            "best": self.best,
            "kept": self.kept,
            "classes": classes,
            "sentence": self.sentence,
        }


def gain_and_error(one: Candidate, other: Candidate) -> tuple[float, float]:
    """Return by how much a candidate is better in MAP@R, one minus the other, and the standard error over classes.

    Two or three classes may agree by chance, so that the variance of the gains g of C classes is moderated (Smyth,
    Linear models and empirical Bayes methods, 2004): by a usual one, which counts as much as that of a few classes,

        v = (PRIOR_CLASSES PRIOR_DEVIATION^2 + sum_c (g_c - mean g)^2) / (PRIOR_CLASSES + C - 1),   error = sqrt(v / C)
    """
    gains = np.subtract(one.by_class, other.by_class)
    mean = float(np.mean(gains))
    squares = PRIOR_CLASSES * PRIOR_DEVIATION**2 + float(np.sum((gains - mean) ** 2))
    return mean, float(np.sqrt(squares / (PRIOR_CLASSES + len(gains) - 1) / len(gains)))


def best_of(candidates: Sequence[Candidate], *, began_as_features: bool = False) -> str:
    """Return the name of the best candidate that is not trained, or of the best one that is, if that is clearly better.

    It is if the mean gain in MAP@R over the classes is larger than its standard error. Classes within the training have
    preferred a closed form to the features as they are, so that these count only if they are better by as much.

    A network that `began_as_features` and made small steps is not often worse than they are, and costs as much to use.
    It is the best unless it is worse by a standard error: a few held-out classes are found so easily that there is
    little to gain on them, and more among many.

    >>> raw, form, unclear, better = (
    ...     Candidate(name, name, 0, 0, by_class)
    ...     for name, by_class in (
    ...         ("raw", (0.5, 0.7, 0.4)),
    ...         ("raw-form", (0.4, 0.8, 0.3)),
    ...         ("trained", (0.6, 0.7, 0.3)),
    ...         ("trained", (0.6, 1.0, 0.5)),
    ...     )
    ... )
    >>> best_of([raw, form]), best_of([raw, form, unclear]), best_of([raw, form, better])
    ('raw-form', 'raw-form', 'trained')
    """
    forms = {one.name.removesuffix("-form"): one for one in candidates if one.name.endswith("-form")}
    cheaper = [
        one
        for one in candidates
        if one.name not in TRAINED_NAMES and (one.name not in forms or _is_clearly_better(one, forms[one.name]))
    ]
    trained = [one for one in candidates if one.name in TRAINED_NAMES]
    if not (cheaper and trained):
        return _highest(cheaper or trained).name
    gain, error = gain_and_error(_highest(trained), _highest(cheaper))
    is_worth_it = gain > (-error if began_as_features else error)
    return _highest(trained if is_worth_it else cheaper).name


def _is_clearly_better(one: Candidate, other: Candidate) -> bool:
    """Return whether the mean gain in MAP@R is larger than its standard error."""
    gain, error = gain_and_error(one, other)
    return gain > error


def _highest(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate with the largest mean over the classes; of equal ones, the cheapest."""
    return max(candidates, key=lambda one: float(np.mean(one.by_class)))
