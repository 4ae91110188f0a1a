"""What the README and the documentation show is true: their Python runs, their generated parts are up to date."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WIDEST = 106  # characters of code that a page shows beside its menu
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
    if "photos" not in block  # the reader's own data
]


# Runs each block in a process of its own, forked from one that has imported what takes long and most blocks import.
FORKING = """
import json, os, sys, traceback, types
import numpy, sklearn.base, torch

for line in sys.stdin:
    block, folder, said = json.loads(line)
    child = os.fork()
    if child == 0:
        output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        code = 1
        try:
            exec(compile(block, "block", "exec"), main.__dict__)
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture(scope="module")
def forking():
    with subprocess.Popen([sys.executable, "-c", FORKING], stdin=PIPE, stdout=PIPE, text=True) as server:
        yield server
        server.stdin.close()


@pytest.mark.slow  # a process for each block
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks a process for each block")
@pytest.mark.parametrize("block", BLOCKS)
def test_python_of_the_pages_runs(block, tmp_path, forking):
    (tmp_path / "folder").mkdir()
    said = tmp_path / "said.txt"
    forking.stdin.write(json.dumps([block, str(tmp_path / "folder"), str(said)]) + "\n")
    forking.stdin.flush()
    assert forking.stdout.readline() == "0\n", said.read_text()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks a process for each block")
def test_a_block_that_fails_is_found(tmp_path, forking):
    for block in ("1 / 0", "raise SystemExit(2)", "import os; os._exit(3)", "print(json)"):  # names are the block's own
        forking.stdin.write(json.dumps([block, str(tmp_path), str(tmp_path / "said.txt")]) + "\n")
        forking.stdin.flush()
        assert int(forking.stdout.readline()) != 0
    assert "ZeroDivisionError" in (tmp_path / "said.txt").read_text()


def test_code_of_the_pages_fits_into_them():
    for page in PAGES[1:]:
        for code in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.S | re.M):
            assert max(map(len, code.splitlines())) <= WIDEST, f"{page.name}: {max(code.splitlines(), key=len)}"


def test_generated_files_are_up_to_date():
    command = [sys.executable, ROOT / "tools" / "generate.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_readme_has_the_two_commands():
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"    make {command} " in text
        assert re.search(rf"^{command}:", makefile, re.M)
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_every_command_in_the_readme_exists():
    shown = subprocess.run([sys.executable, "-m", "nearfar", "--help"], capture_output=True, text=True).stdout
    for command in set(re.findall(r"^    nearfar (\w+)", (ROOT / "README.md").read_text(), re.M)):
        assert command in shown
