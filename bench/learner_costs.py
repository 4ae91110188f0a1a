"""What a fit costs: CPU seconds and memory of every learner as rows and features grow.

    python bench/learner_costs.py                       every learner that takes labels
    python bench/learner_costs.py --only GMML LMNN      some of them
    python bench/learner_costs.py --seconds 20          CPU seconds after which a fit is ended
    python bench/learner_costs.py --only LMNN --sizes 16000x20 1000000x20
    OMP_NUM_THREADS=2 python bench/learner_costs.py --wall    with two threads, in seconds of the clock

Rows are drawn: ten classes, each a normal cloud whose center lies in ten of the features, so that classes overlap and
half of the features are noise. Learners have their default settings, kernel forms whose default is more also 500
landmarks. Each fit runs in a separate process, forked from one that has imported the library, on one thread unless
OMP_NUM_THREADS is set. A number is the mean CPU time (user and system), or with `--wall` that of the clock, of as many
fits as take 0.2 s; MB what resident memory rose by at most with the largest rows that were fitted in time, the rows
themselves left out. "-" is a fit that did not end in time, and larger ones are not tried then.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), os.environ["OMP_NUM_THREADS"])

import numpy as np
from classical_worker import Fit, Result, about, forked, nearfar_learners

SIZES = ("1000x20", "4000x20", "16000x20", "1000x200")
CLASSES, TELLING = 10, 10
LANDMARKS = 500


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=(), help="nearfar's names of the learners to run")
    parser.add_argument("--seconds", type=int, default=60, help="CPU seconds for a fit")
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="ROWSxFEATURES", help="more rows after fewer")
    parser.add_argument("--wall", action="store_true", help="seconds of the clock, to compare numbers of threads")
    parser.add_argument("--memory", type=float, default=8.0, help="GB that a fit may ask for")
    args = parser.parse_args()
    print(about("nearfar"), flush=True)
    sizes = [(int(n), int(d)) for n, d in (size.split("x") for size in args.sizes)]
    print("\n| learner | " + " | ".join(f"{n:,} x {d}" for n, d in sizes) + " | MB |")
    print("|---|" + "---:|" * (len(sizes) + 1), flush=True)
    task = {"seconds": args.seconds, "memory": args.memory, "folds": 0, "draws": 1, "given": False, "least": 0.2}
    task["wall"] = args.wall
    drawn = [rows(n, d) for n, d in sizes]
    for name, fit in learners():
        if not args.only or name.split("(")[0] in args.only:
            print(f"| `{name}` | " + " | ".join(costs(name, fit, drawn, task)) + " |", flush=True)


def learners() -> Iterator[tuple[str, Fit]]:
    """Every learner with its defaults, and with landmarks those kernel forms that take more of them by default."""
    import nearfar

    def with_landmarks(kind: Any) -> Fit:
        return lambda A, a, weak, seed: kind(landmarks=LANDMARKS).fit(A, a)

    for name, fit in nearfar_learners(False).items():
        if "(" not in name:
            yield name, fit
            most = getattr(nearfar, name)().get_params().get("landmarks", 0)
            if most is None or most > LANDMARKS:
                yield f"{name}(landmarks={LANDMARKS})", with_landmarks(getattr(nearfar, name))


def rows(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels, as at the head."""
    rng = np.random.default_rng(0)
    y = rng.integers(CLASSES, size=n)
    X = rng.normal(size=(n, d))
    X[:, :TELLING] += rng.normal(size=(CLASSES, TELLING))[y]
    return X, y


def costs(name: str, fit: Fit, drawn: list[tuple[np.ndarray, np.ndarray]], task: dict[str, Any]) -> list[str]:
    """A cell for each size, and the memory of the largest that was fitted."""
    cells: list[str] = []
    late, mb = False, float("nan")
    first = drawn[0][0].shape[1]
    for X, y in drawn:
        d = X.shape[1]
        result: Result = {"fit": [], "note": ""}
        if not late or d > first:
            result = forked(fit, name, X, y, task)
        if result["fit"]:
            cells.append(seconds(result["fit"][0]))
            mb = result["mb"] if d == first else mb
        else:
            late = True
            note = result["note"]
            cells.append("-" if note in ("", "out of time") or note.startswith("MemoryError") else note)
    return [*cells, "-" if np.isnan(mb) else f"{mb:,.0f}"]


def seconds(value: float) -> str:
    """Two digits or so, in the unit that suits."""
    number, unit = (1000 * value, "ms") if value < 0.0995 else (value, "s")
    return f"{number:.0f} {unit}" if number >= 9.95 else f"{number:.2g} {unit}"


if __name__ == "__main__":
    main()
