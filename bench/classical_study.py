"""Every classical learner on every table at hand: 3-NN accuracy on the same five folds, and paired tests over tables.

    python bench/classical_study.py study.jsonl                             scikit-learn's tables
    python bench/classical_study.py study.jsonl --data FOLDER               and every CSV table of FOLDER (class last)
    python bench/classical_study.py study.jsonl --only GMML RCA             some learners
    python bench/classical_study.py study.jsonl --read                      only the tables of what is there

Each line of the file is one learner on one table, and is written as soon as it is measured: the same command continues
an interrupted study. Columns are standardized on the training part; learners have their default settings and seed 0; a
table has at most `--rows` rows, by classes. A learner that has used `--seconds` of CPU on the five folds of a table is
ended there and has no result on it. `classical_worker.py` runs each in a separate process, on one thread.

Two learners are compared by their mean accuracies on the tables that both finished: Wilcoxon's signed-rank test,
two-sided and exact where no differences tie, and Holm's correction over all learners. With eleven tables the smallest
possible p is 0.001, which the correction for fifty learners turns into 0.05: no learner can be "significant" among so
many, and the plain p is for a learner that you had in mind before.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from classical import ask, sampled, tables
from paired import holm
from scipy.stats import wilcoxon

LAST = ("MLKR", "CDML", "KernelMCML")  # they take the longest, and are run when all others are done
LEFT_OUT = ("GrassmannGMML", "PrivilegedMetric")  # they need other data than a table
AGAINST = ("Euclidean", "LMNN")
HALF_A_POINT = 0.005

Results = dict[tuple[str, str], dict[str, Any]]  # (table, learner) -> a line of the file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="results, one JSON line for each learner on a table")
    parser.add_argument("--data", type=Path, help="folder of CSV tables (also .gz) with a header")
    parser.add_argument("--label", help="the label's column; default: the last")
    parser.add_argument("--only", nargs="+", help="learners to run")
    parser.add_argument("--rows", type=int, default=1000, help="most rows of a table")
    parser.add_argument("--seconds", type=int, default=15, help="CPU seconds for a learner on a table")
    parser.add_argument("--memory", type=float, default=4.0, help="GB that a learner may ask for")
    parser.add_argument("--quick", action="store_true", help="a smoke run on one small table")
    parser.add_argument("--read", action="store_true", help="only print what the file holds")
    arguments = parser.parse_args()
    if not arguments.read:
        run(arguments)
    results = read(arguments.file)
    print(as_table(results))


def read(file: Path) -> Results:
    """The lines of the file; of two with the same learner and table the later one counts."""
    if not file.exists():
        return {}
    lines = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
    return {(line["table"], line["name"]): line for line in lines}


def run(arguments: argparse.Namespace) -> None:
    """Measure what the file does not hold yet, and add it line by line."""
    arguments.given = False
    arguments.draws = 1
    arguments.least = 0.0  # one fit for each fold is enough for a median of five
    folds = 2 if arguments.quick else 5
    data = {name: sampled(table, arguments.rows)[0] for name, table in tables(arguments).items()}
    data = dict(sorted(data.items(), key=lambda item: item[1][0].size))
    for names in rounds(arguments.only):
        for table, (X, y) in data.items():
            done = {name for known, name in read(arguments.file) if known == table}
            missing = [name for name in names if name not in done]
            for library, own in (("scikit-learn", {"Euclidean"}), ("nearfar", set(missing) - {"Euclidean"})):
                wanted = [name for name in missing if name in own]
                for found in ask(sys.executable, library, (X, y), wanted, arguments, folds) if wanted else ():
                    with arguments.file.open("a") as file:
                        file.write(json.dumps({"table": table, "rows": len(X), "folds": folds, **found}) + "\n")


def rounds(only: list[str] | None) -> list[list[str]]:
    """The plain distance and the learners, and at the end those that take long."""
    from nearfar.catalog import METHODS

    names = [method.name for method in METHODS if method.kind == "learner"]
    names = [name for name in names if name not in LEFT_OUT and (only is None or name in only)]
    return [["Euclidean", *(name for name in names if name not in LAST)], [name for name in names if name in LAST]]


# --- The tables of a study


def as_table(results: Results) -> str:
    """Markdown: what each learner gains on the plain distance, over tables, and how sure that is."""
    names = list(dict.fromkeys(name for _, name in results))
    gains = {name: differences(results, name, "Euclidean") for name in names}
    all_tables = len(gains.get("Euclidean", ()))
    names = [name for name in names if name != "Euclidean"]
    rare = [f"{name} ({len(gains[name])})" for name in names if 2 * len(gains[name]) < all_tables]
    names = [name for name in names if 2 * len(gains[name]) >= all_tables > 0]
    corrected = {}
    for against in AGAINST:
        p_values = {name: p_value(results, name, against) for name in names}
        corrected[against] = holm({name: p for name, p in p_values.items() if p is not None})
    lines = [
        "| learner | mean | worst | best | better | worse | 1-NN | p, Euclidean | Holm | p, LMNN | Holm | fit |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name in sorted(names, key=lambda name: -gains[name].mean()):
        gain = gains[name]
        few = f" ({len(gain)} tables)" if len(gain) < all_tables else ""
        cells = [f"`{name}`{few}", *(f"{100 * value:+.1f}" for value in (gain.mean(), gain.min(), gain.max()))]
        cells += [str((gain > HALF_A_POINT).sum()), str((gain < -HALF_A_POINT).sum())]
        cells.append(f"{100 * differences(results, name, 'Euclidean', 'accuracy_1').mean():+.1f}")
        for against in AGAINST:
            p = p_value(results, name, against)
            cells += ["" if p is None else f"{p:.3f}", "" if p is None else f"{corrected[against][name]:.2f}"]
        cells.append(duration(float(np.median(np.concatenate([results[key]["fit"] for key in of(results, name)])))))
        lines.append(f"| {' | '.join(cells)} |")
    ended = [f"{name} on {table} ({line['note']})" for (table, name), line in results.items() if not whole(line)]
    about = f"{all_tables} tables. On fewer than half of them: {', '.join(rare) or 'none'}."
    return "\n".join([*lines, "", f"{about} No result: {'; '.join(ended) or 'none'}."])


def whole(line: dict[str, Any]) -> bool:
    """Whether all folds were finished."""
    return len(line["accuracy"]) == line["folds"]


def of(results: Results, name: str) -> list[tuple[str, str]]:
    return [(table, known) for table, known in results if known == name and whole(results[table, known])]


def differences(results: Results, name: str, other: str, key: str = "accuracy") -> np.ndarray:
    """Mean accuracy less that of another, for each table that both finished."""
    both = [table for table, _ in of(results, name) if (table, other) in of(results, other)]
    return np.array([np.mean(results[table, name][key]) - np.mean(results[table, other][key]) for table in both])


def p_value(results: Results, name: str, other: str) -> float | None:
    """Wilcoxon's signed-rank test over tables; None of a learner beside itself, or where too few tables differ."""
    gain = np.round(differences(results, name, other), 12)
    if name == other or np.count_nonzero(gain) < 2:
        return None
    return float(wilcoxon(gain, zero_method="wilcox").pvalue)


def duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 0.1 else f"{1000 * seconds:.2g} ms"


if __name__ == "__main__":
    main()
