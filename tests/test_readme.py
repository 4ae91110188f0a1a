"""What the README and the documentation show is true: their Python runs, their generated parts are up to date."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from . import forking

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN_AS_NOTEBOOKS = ("first", "own_loop")
RUN_ELSEWHERE = (*RUN_AS_NOTEBOOKS, "interchange")  # tests/test_interchange.py makes what the latter reads
WIDEST = 106  # characters of code that a page shows beside its menu
# Run before a block that trains or draws glyphs: networks of images have a tenth of their operations, there are 52
# glyphs six times, and 400 digits if the block counts none. These take the most time, and nobody asks for scores here.
SMALLER = """
def be_small(few_digits):
    import sklearn.datasets
    from nearfar.data.synthetic import glyphs
    from nearfar.deep.networks.conv4 import Conv4

    Conv4.__init__.__defaults__ = (1, 8)  # channels, width
    glyphs.read_glyphs.__kwdefaults__["per_class"] = 6
    glyphs.RANGES = ((0x41, 0x5A), (0x61, 0x7A))
    if few_digits:
        digits = sklearn.datasets.load_digits()
        digits.images, digits.target = digits.images[:400], digits.target[:400]
        sklearn.datasets.load_digits = lambda: digits

be_small({few_digits})
"""
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
    if page.stem not in RUN_ELSEWHERE
    and "photos" not in block
    and ".onnx" not in block  # the reader's own data; tests/models/test_export.py runs the latter
]


@pytest.mark.slow  # a process for each block
@pytest.mark.parametrize("block", BLOCKS[1:])  # the first one prints the scores of its comments, see below
def test_python_of_the_pages_runs(block, tmp_path):
    smaller = SMALLER.format(few_digits="load_digits" not in block)
    code = smaller + block if "nearfar.train" in block or "glyphs" in block else block
    ended = forking.run("-c", code, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN_AS_NOTEBOOKS)
def test_notebooks_run_from_top_to_bottom(page, tmp_path):
    cells = json.loads((ROOT / "docs" / "notebooks" / f"{page}.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 2
    ended = forking.run("-c", "\n".join(code), cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.slow
def test_the_notebook_of_results_draws_every_picture_of_their_pages():
    folder = ROOT / "docs" / "notebooks"
    cells = json.loads((folder / "results.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    pages = [page.read_text() for page in (ROOT / "docs").glob("results*.md")]
    pictures = {name for page in pages for name in re.findall(r"\(pictures/(\w+)\.svg\)", page)}
    assert set(code[1:]) == {f'Picture("{name}")' for name in pictures}
    shown = [f"assert {cell}._repr_svg_().rstrip().endswith('</svg>')" for cell in code[1:]]
    ended = forking.run("-c", "\n".join([code[0], *shown]), cwd=folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.slow
def test_the_first_example_prints_the_scores_of_its_comments(tmp_path):
    example = BLOCKS[0].values[0]
    promised = [float(number) for number in re.findall(r"(0\.\d\d) with", example)]
    ended = forking.run("-c", example, cwd=tmp_path)
    assert len(promised) == 3
    assert [float(line) for line in ended.stdout.split()] == pytest.approx(promised, abs=0.01), ended.stderr


@pytest.mark.parametrize("block", ["1 / 0", "raise SystemExit(2)", "import os; os._exit(3)", "print(json)"])
def test_a_block_that_fails_is_found(block, tmp_path):  # names are the block's own
    assert forking.run("-c", block, cwd=tmp_path).returncode != 0


def test_what_a_block_says_is_told(tmp_path):
    ended = forking.run("-c", "print('before')\n1 / 0", cwd=tmp_path)
    assert ended.stdout == "before\n"
    assert ended.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_code_of_the_pages_fits_into_them():
    for page in PAGES[1:]:
        for kind, code in re.findall(r"^```([^\n]*)\n(.*?)^```", page.read_text(), re.S | re.M):
            widest = "" if kind.startswith("{") else max(code.splitlines(), key=len, default="")
            assert len(widest) <= WIDEST, f"{page.name}: {widest}"


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


@pytest.mark.slow
def test_every_command_in_the_readme_exists():
    shown = subprocess.run([sys.executable, "-m", "nearfar", "--help"], capture_output=True, text=True).stdout
    for command in set(re.findall(r"^    nearfar (\w+)", (ROOT / "README.md").read_text(), re.M)):
        assert command in shown
