"""Tables that spreadsheets open hold no formulas, and are read as they were meant."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nearfar
from nearfar import workflows
from nearfar.data.readers.text_tables import read_text_table
from nearfar.index import Index
from nearfar.io.cells import escaped, unescaped

FORMULAS = ["=1+1", "+1+1", "-2+3", "@SUM(A1)", "\tx", "\rx", "=cmd|' /C calc'!A0", "＝1+1", "-", "--1", "+e5", "-1.5%"]
NUMBERS = ["-1.5", "+3", "-.5e-3", "0", "-7", "1E+9"]


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_become_text(text):
    assert escaped(text) == f"'{text}"
    assert unescaped(escaped(text)) == text


@pytest.mark.parametrize("cell", [*NUMBERS, *map(float, NUMBERS), float("-inf"), -1, None, "", "cat", "a=b", "'tis"])
def test_other_cells_stay(cell):
    assert escaped(cell) is cell


@given(st.text(alphabet="'=-+@.15e\t＝a", max_size=6))
def test_every_text_is_read_as_it_was_written(text):
    cell = escaped(text)
    assert unescaped(cell) == text
    assert cell[:1] not in {*"=+-@\t\r"} or float(cell) is not None


def test_tables_of_a_search_hold_no_formulas(tmp_path):
    names = [*(text for text in FORMULAS if text.strip() == text), *NUMBERS, "'=1", "''-x", "cat"]
    rows = np.repeat(np.random.default_rng(0).normal(size=(1, 3)), len(names), axis=0)
    Index(rows, names=names, labels=names).save(tmp_path / "x.index")
    workflows.duplicates(tmp_path / "x.index", out=tmp_path / "found.csv", within=0.1)
    with (tmp_path / "found.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert [cell for cell in cells if cell[:1] in {*"=+-@＝"} and cell not in NUMBERS] == []
    found = read_text_table(tmp_path / "found.csv")
    assert found["name"] == found["class"] == names


def test_all_tables_are_written_in_one_place():
    writers = re.compile(r"csv\.(?:writer|DictWriter)|\.to_csv\(|savetxt")
    home = Path(nearfar.__file__).parent
    assert [path.name for path in home.rglob("*.py") if writers.search(path.read_text())] == ["cells.py"]
