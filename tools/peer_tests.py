"""Run the own tests of pytorch-metric-learning, with that library or through `nearfar.compat`.

    python tools/peer_tests.py FOLDER --through theirs --output theirs.json tests/losses tests/miners
    python tools/peer_tests.py FOLDER --through ours --output ours.json tests/losses tests/miners
    python tools/peer_tests.py --compare theirs.json ours.json

FOLDER holds a copy of the folder `tests` of a checkout of that library, and no `src`. The first two commands write the
outcome of each test function; the last prints a table of counts per folder, and the functions that pass with the
library itself and not through ours. Only float32 on the processor is tested.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

# A module of their name that imports all of ours and lists it under theirs. It is a file of a folder on PYTHONPATH
# rather than a plugin of pytest, so that the processes that a test starts find it, too.
ALIAS = """
import importlib
import pkgutil
import sys

OURS = "nearfar.compat.pytorch_metric_learning"
package = importlib.import_module(OURS)
for found in pkgutil.walk_packages(package.__path__, OURS + "."):
    importlib.import_module(found.name)
for name in [name for name in sys.modules if name == OURS or name.startswith(OURS + ".")]:
    sys.modules["pytorch_metric_learning" + name[len(OURS):]] = sys.modules[name]
"""

# A plugin of pytest that writes the outcome of each function as soon as it is known, so that a run that is stopped is
# not lost, and adds to what earlier runs have written. A function with subtests passes where all of them do.
PLUGIN = """
import json
import os
from pathlib import Path

output = Path(os.environ["PEER_TESTS_OUTPUT"])
outcomes = json.loads(output.read_text()) if output.exists() else {}


def pytest_runtest_logstart(nodeid):
    outcomes[nodeid] = "not finished"


def pytest_runtest_logreport(report):
    if report.failed:
        outcomes[report.nodeid] = "failed"
    elif report.skipped:
        outcomes[report.nodeid] = "skipped"
    elif report.when == "call" and outcomes[report.nodeid] == "not finished":
        outcomes[report.nodeid] = "passed"
    output.write_text(json.dumps(outcomes, indent=1, sort_keys=True))
"""


def run(folder: Path, library: str, output: Path, arguments: list[str]) -> int:
    """Run pytest in `folder` with one of the two libraries, and write the outcome of each function to `output`."""
    with tempfile.TemporaryDirectory() as made:
        Path(made, "peer_tests_plugin.py").write_text(PLUGIN)
        if library == "ours":
            Path(made, "pytorch_metric_learning.py").write_text(ALIAS)
        environment = {"TEST_DTYPES": "float32", "TEST_DEVICE": "cpu", **os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [made, os.environ.get("PYTHONPATH")]))
        environment["PEER_TESTS_OUTPUT"] = str(output.resolve())
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "peer_tests_plugin"]
        command += ["--continue-on-collection-errors", *arguments]
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def compare(theirs: dict[str, str], ours: dict[str, str]) -> None:
    """Print how many functions pass per folder, and those that pass with the library itself and not through ours."""
    passed = [name for name, outcome in sorted(theirs.items()) if outcome == "passed"]
    missing = [name for name in passed if ours.get(name) != "passed"]
    all_of = Counter(name.split("/")[1] for name in passed)
    lost_of = Counter(name.split("/")[1] for name in missing)
    print("| folder | passed by the library itself | passed by ours |\n|---|---|---|")
    for folder, number in all_of.items():
        print(f"| {folder} | {number} | {number - lost_of[folder]} |")
    print(f"| all | {len(passed)} | {len(passed) - len(missing)} |")
    for name in missing:
        print(f"{ours.get(name, 'not collected')}: {name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="the folder that holds their `tests`")
    parser.add_argument("--through", choices=("theirs", "ours"), default="ours")
    parser.add_argument("--output", type=Path, help="the file of the outcomes")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("THEIRS", "OURS"))
    options, arguments = parser.parse_known_args()
    if options.compare:
        theirs, ours = (json.loads(path.read_text()) for path in options.compare)
        compare(theirs, ours)
        return 0
    if options.folder is None or options.output is None:
        parser.error("a folder and --output are needed, or --compare with two files")
    return run(options.folder, options.through, options.output, arguments)


if __name__ == "__main__":
    sys.exit(main())
