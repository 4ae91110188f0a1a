"""Run the commands on damaged input: `python tools/fuzz.py --cases 5000 --seed 0`.

Prints how many cases failed, which kinds, and the first failing seed; `--seed S --cases 1 --keep FOLDER` repeats one of
them and keeps its files.
"""

import argparse
import faulthandler
import sys
import time
from collections import Counter
from itertools import count, islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fuzz.cases import KINDS, kind_of
from tests.fuzz.runner import corpus, run_case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--kind", choices=sorted(KINDS), help="only cases of one kind of file")
    parser.add_argument("--keep", type=Path, help="a new folder for the files of the last case")
    options = parser.parse_args()
    faulthandler.enable()
    start, failures = time.monotonic(), []
    with corpus() as valid:
        wanted = (seed for seed in count(options.seed) if options.kind in (None, kind_of(seed)))
        for done, seed in enumerate(islice(wanted, options.cases), start=1):
            failure = run_case(seed, valid, options.keep if done == options.cases else None)
            if failure is not None:
                failures.append(failure)
                print(failure, flush=True)
            if done % 500 == 0:
                print(f"... {done} cases, {len(failures)} failed", file=sys.stderr, flush=True)
    took = time.monotonic() - start
    print(f"{options.cases} cases in {took:.0f} s: {len(failures)} failed")
    if failures:
        print(f"by kind: {dict(Counter(failure.kind for failure in failures))}")
        print(f"first failing seed: {failures[0].seed}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
