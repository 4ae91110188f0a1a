"""Compare random settings of the losses of pytorch-metric-learning with `nearfar.compat`: `python tools/fuzz_peer.py`.

Prints how many agree, and each setting that differs without being among the differences that docs/switching.md states.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.compat.peer_settings import drawn, outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    start = time.monotonic()
    counts: Counter[str] = Counter()
    meant: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.settings):
        setting = drawn(seed)
        word, details = outcome(setting)
        counts[word] += 1
        if word == "meant":
            meant[details] += 1
        if word == "differ":
            print(*setting, details, sep=" | ", flush=True)
    for words, number in meant.most_common():
        print(f"{number:5} {words}")
    print(f"{options.settings} settings in {time.monotonic() - start:.0f} s: {dict(counts.most_common())}")
    return 1 if counts["differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
