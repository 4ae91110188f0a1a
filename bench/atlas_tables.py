"""The tables of the atlas: gains of each form, on the same set, on others and from few classes, and rules that choose.

    python bench/atlas.py --out runs/atlas --read --write docs/measured

The last table judges what chooses a form of the ladder without trying it on unseen classes: a constant, one or two
questions about statistics of the features, both chosen on half of the sets and judged on the others, and scores on
classes that are held out of those that learn. Regret is the distance in MAP@R to the best form of each encoder and set.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nearfar.evaluation.intervals import interval

NONE = "none"
LADDER = (NONE, "whitening", "whitening(emphasis=1)", "GMML(t=0.1)", "GMML(t=0.3)")
"""The closed forms from which the ladder chooses."""
FIRST_HALF = {"CLINC150", "groceries", "Omniglot", "letter", "digits"}
"""Sets on which a rule is chosen that is judged on the others, and the reverse."""
STATISTICS = ("learned_classes", "per_class", "d", "spectrum", "within", "mean")


class Cell(NamedTuple):
    """One measurement: a form on a half of the classes, scored on a set; learned from a number of classes and items."""

    set: str
    encoder: str
    split: int
    form: str
    on: str
    classes: int = 0  # 0: all
    items: int = 0


def cell_of(line: dict[str, Any]) -> Cell:
    return Cell(*(line[field] for field in Cell._fields))


def report(lines: list[dict[str, Any]], folder: Path | None) -> None:
    """Print the tables, and write them and all cells into a folder."""
    tables = {"atlas": atlas_of(lines), "atlas_elsewhere": elsewhere_of(lines), "atlas_few": few_of(lines)}
    tables["atlas_rules"] = rules_of(lines)
    for name, rows in tables.items():
        if not rows:
            continue
        columns = [*dict.fromkeys(column for row in rows for column in row)]
        print(f"\n{name}\n{' | '.join(columns)}")
        print("\n".join(" | ".join(str(row.get(column, "")) for column in columns) for row in rows))
        if folder is not None:
            with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
                table = csv.DictWriter(file, columns, restval="", lineterminator="\n")
                table.writeheader()
                table.writerows(rows)
    if folder is not None:
        write_cells(lines, folder / "atlas.parquet")


def write_cells(lines: list[dict[str, Any]], file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [*Cell._fields, "map_at_r", "recall_at_1", "seconds", *STATISTICS, "why"]
    pq.write_table(pa.Table.from_pylist([{field: line.get(field) for field in fields} for line in lines]), file)


def scores_of(lines: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, dict[int, float]]]:
    """Return MAP@R by what was measured, form and split."""
    found: dict[tuple[Any, ...], dict[str, dict[int, float]]] = {}
    for line in lines:
        if "map_at_r" in line:
            key = (line["set"], line["encoder"], line["on"], line["classes"], line["items"])
            found.setdefault(key, {}).setdefault(line["form"], {})[line["split"]] = line["map_at_r"]
    return found


def gains_of(scores: dict[str, dict[int, float]], none: dict[int, float]) -> dict[str, str]:
    """Return MAP@R of none, and the mean gain of each form on it with half of its interval."""
    cells = {NONE: f"{np.mean([*none.values()]):.3f}"}
    for form, of in scores.items():
        gains = [score - none[split] for split, score in of.items() if split in none]
        if form != NONE and gains:
            found = interval(gains)
            cells[form] = f"{found.mean:+.3f}"
            cells[f"{form} ±"] = f"{found.half:.3f}" if len(gains) > 1 else ""
    return cells


def atlas_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the table of gains on unseen classes of the same set, sorted by encoder."""
    about = {(line["set"], line["encoder"]): line for line in lines if "spectrum" in line}
    rows = []
    for (name, encoder, on, classes, items), of in scores_of(lines).items():
        if on == name and not classes and not items:
            known = {column: about[name, encoder][column] for column in STATISTICS}
            rows.append({"encoder": encoder, "set": name, "splits": len(of[NONE]), **known, **gains_of(of, of[NONE])})
    return sorted(rows, key=lambda row: (row["encoder"], row["set"]))


def elsewhere_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the table of gains on a set of what was learned on another."""
    found = scores_of(lines)
    return [
        {"learned on": name, "scored on": on, "encoder": encoder, **gains_of(of, found[on, encoder, on, 0, 0][NONE])}
        for (name, encoder, on, _, _), of in found.items()
        if on != name
    ]


def few_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the table of gains of what was learned from few classes, or from few items of each."""
    found = scores_of(lines)
    rows = []
    for (name, encoder, on, classes, items), of in found.items():
        if classes or items:
            row = {"set": name, "encoder": encoder, "classes": classes or "all", "items a class": items or "all"}
            rows.append({**row, **gains_of(of, found[name, encoder, on, 0, 0][NONE])})
    return rows


class Known(NamedTuple):
    """Features of a set: the statistics before learning, and MAP@R of each form by split, also on held-out classes."""

    set: str
    about: dict[str, float]
    scores: dict[str, dict[int, float]]
    held_out: dict[int, dict[str, list[float]]]


Choice = Callable[[Known], dict[int, str]]
"""What chooses a form for each split of some features."""


def known_of(lines: list[dict[str, Any]]) -> list[Known]:
    """Return all features whose held-out classes were scored."""
    found = []
    for (name, encoder, on, classes, items), scores in scores_of(lines).items():
        if on != name or classes or items:
            continue
        own = [line for line in lines if (line["set"], line["encoder"], line["on"]) == (name, encoder, name)]
        about = [line for line in own if "spectrum" in line]
        means = {column: float(np.mean([line[column] for line in about])) for column in STATISTICS}
        means["rows per d"] = means["learned_classes"] * means["per_class"] / means["d"]
        held_out = {line["split"]: line["held_out"] for line in own if "held_out" in line}
        found.append(Known(name, means, scores, held_out))
    return [one for one in found if one.held_out]


def regret(known: list[Known], choice: Choice) -> float:
    """Return the mean distance in MAP@R to the form of the ladder that is best on the mean over the splits."""
    lost = []
    for one in known:
        chosen = choice(one)
        reached = np.mean([one.scores[form][split] for split, form in chosen.items()])
        lost.append(max(np.mean([one.scores[form][split] for split in chosen]) for form in LADDER) - reached)
    return float(np.mean(lost))


def always(form: str) -> Choice:
    return lambda one: dict.fromkeys(one.held_out, form)


def by_question(question: tuple[str, float], below: Choice, above: Choice) -> Choice:
    column, bound = question
    return lambda one: below(one) if one.about[column] < bound else above(one)


def by_held_out(preferred: str) -> Choice:
    """Choose the form that is best on held-out classes, if it is better than one by more than a standard error."""

    def choice(one: Known) -> dict[int, str]:
        chosen = {}
        for split, found in one.held_out.items():
            best = max(LADDER, key=lambda form: float(np.nanmean(found[form])))
            gains = np.subtract(found[best], found[preferred])
            error = np.std(gains, ddof=1) / np.sqrt(len(gains))
            chosen[split] = best if np.mean(gains) > error else preferred
        return chosen

    return choice


def best_tree(known: list[Known], questions: int) -> tuple[float, str, Choice]:
    """Return the sum of regrets, the text and the choice of the best rule of so many questions about statistics."""
    candidates = [(len(known) * regret(known, always(form)), form, always(form)) for form in LADDER]
    best = min(candidates, key=lambda one: one[0])
    for column in (*STATISTICS, "rows per d") if questions else ():
        values = sorted({one.about[column] for one in known})
        for bound in (float(np.sqrt(low * high)) for low, high in pairwise(values)):
            parts = [[one for one in known if (one.about[column] < bound) is side] for side in (True, False)]
            below, above = (best_tree(part, 0) for part in parts)
            if questions > 1:  # the second question is about the part that loses more
                if below[0] > above[0]:
                    below = best_tree(parts[0], 1)
                else:
                    above = best_tree(parts[1], 1)
            lost = below[0] + above[0]
            if lost < best[0] - 1e-9:
                text = f"({below[1]} if {column} < {bound:.3g} else {above[1]})"
                best = (lost, text, by_question((column, bound), below[2], above[2]))
    return best


def rules_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the regrets of what chooses a form: chosen on one half of the sets, judged on the other."""
    known = known_of(lines)
    rows = []
    for first in (True, False):
        mine = [one for one in known if (one.set in FIRST_HALF) is first]
        others = [one for one in known if (one.set in FIRST_HALF) is not first]
        if not mine or not others:
            return []
        trees = [best_tree(mine, questions)[1:] for questions in range(3)]
        fixed = trees[0][0]
        choices = {
            f"always {fixed}": trees[0][1],
            f"one question: {trees[1][0]}": trees[1][1],
            f"two questions: {trees[2][0]}": trees[2][1],
            "held-out classes, before none": by_held_out(NONE),
            f"held-out classes, before {fixed}": by_held_out(fixed),
        }
        rows += [
            {
                "chosen on": "first half" if first else "second half",
                "choice": name,
                "regret there": f"{regret(mine, choice):.4f}",
                "regret on the other half": f"{regret(others, choice):.4f}",
            }
            for name, choice in choices.items()
        ]
    return rows
