"""Files that are not what their ending says, and tables in forms that other programs write."""

import gzip
import json
import shutil
import zipfile

import numpy as np
import pytest

from nearfar.cli import each_once
from nearfar.data import DataError
from nearfar.data.open import open_source
from nearfar.io.formats import PLAIN_TABLES
from nearfar.io.other_formats import BEGINNINGS, OTHER_ENDINGS, mistaken
from tests.commands import run

LINES = "label,a,b\n" + "".join(f"c{k % 4},{k},{k * k % 7}\n" for k in range(12))
ROWS = [{"label": f"c{k % 4}", "a": k, "b": k * k % 7} for k in range(12)]


def read(path):
    items = open_source(str(path)).items
    return items.columns, items.array.tolist(), [items.classes[k] for k in items.labels]


def expected(tmp_path):
    (tmp_path / "expected.csv").write_text(LINES)
    return read(tmp_path / "expected.csv")


@pytest.mark.parametrize("ending", [*PLAIN_TABLES, ".npz", ".new"])
@pytest.mark.parametrize("begins", BEGINNINGS, ids=lambda one: one[1])
def test_every_foreign_file_is_named_with_what_to_do(begins, ending, tmp_path):
    beginning, what, own, advice = begins
    if ending == own:
        return
    path = tmp_path / f"rows{ending}"
    path.write_bytes(beginning + bytes(range(200)))
    if ending in (".parquet", ".feather", ".xlsx"):
        pytest.importorskip("openpyxl" if ending == ".xlsx" else "pyarrow")
    with pytest.raises(DataError) as error:
        open_source(str(path))
    assert str(error.value) == f"{path}: is {what}; {advice}"


@pytest.mark.parametrize("ending", [ending for endings in OTHER_ENDINGS for ending in endings])
def test_a_file_of_another_kind_is_refused_with_what_to_do(ending, tmp_path):
    path = tmp_path / f"rows{ending.upper()}"
    path.write_text("a b\n")
    with pytest.raises(DataError, match=r"files of this type are not read; \w+"):
        open_source(str(path))


@pytest.mark.parametrize("name", ["PAR1,x\n1,2\n", "BZh,x\n1,2\n", "[a],x\n1,2\n"])
def test_names_of_columns_are_no_kinds_of_files(name, tmp_path):
    (tmp_path / "rows.csv").write_text(name)
    assert mistaken(tmp_path / "rows.csv", text=True) == ""


def test_the_case_of_an_ending_does_not_matter(tmp_path):
    wanted = expected(tmp_path)
    (tmp_path / "ROWS.CSV").write_text(LINES)
    (tmp_path / "ROWS.TSV").write_text(LINES.replace(",", "\t"))
    (tmp_path / "ROWS.JSON").write_text(json.dumps(ROWS))
    (tmp_path / "ROWS.JSONL").write_text("\n".join(map(json.dumps, ROWS)))
    (tmp_path / "ROWS.CSV.GZ").write_bytes(gzip.compress(LINES.encode()))
    with zipfile.ZipFile(tmp_path / "ROWS.ZIP", "w") as archive:
        archive.writestr("ROWS.CSV", LINES)
    for path in tmp_path.glob("ROWS.*"):
        assert read(path) == wanted, path.name
    np.savez(tmp_path / "rows.npz", X=np.eye(4), y=np.arange(4))
    shutil.copy(tmp_path / "rows.npz", tmp_path / "ARRAYS.NPZ")
    assert read(tmp_path / "ARRAYS.NPZ") == read(tmp_path / "rows.npz")


def test_other_tables_in_upper_case(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    feather = pytest.importorskip("pyarrow.feather")
    table = pyarrow.Table.from_pylist(ROWS)
    parquet.write_table(table, tmp_path / "ROWS.PARQUET")
    feather.write_feather(table, str(tmp_path / "ROWS.FEATHER"))
    assert read(tmp_path / "ROWS.PARQUET") == read(tmp_path / "ROWS.FEATHER") == expected(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        {"columns": ["label", "a", "b"], "index": [*range(12)], "data": [[*row.values()] for row in ROWS]},
        {"columns": ["label", "a", "b"], "data": [[*row.values()] for row in ROWS]},
        {"schema": {"fields": []}, "data": ROWS},
        {str(k): row for k, row in enumerate(ROWS)},
        {name: {str(k): row[name] for k, row in enumerate(ROWS)} for name in ROWS[0]},
        {name: [row[name] for row in ROWS] for name in ROWS[0]},
    ],
    ids=["split", "split without index", "table", "index", "columns", "list"],
)
def test_every_form_of_json_that_pandas_writes_is_the_same_table(content, tmp_path):
    (tmp_path / "rows.json").write_text(json.dumps(content))
    assert read(tmp_path / "rows.json") == expected(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"count": 12, "items": ROWS}, "is one object, whose 'items' is a list of 12 objects; save this list alone"),
        ({"label": ["a", "b"], "x": [1, 2, 3]}, r"its columns have different lengths \(label: 2, x: 3\)"),
        ({"columns": ["a", "b"], "data": [[1, 2], [3]]}, "expected rows in 'data' with one cell for each"),
    ],
)
def test_json_that_would_be_one_row_of_lists_is_refused(content, message, tmp_path):
    (tmp_path / "rows.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        open_source(str(tmp_path / "rows.json"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Sales report,,\n" + LINES, r"names only 1 of 3 columns \(Sales report\); remove the lines above the line"),
        ("Sales report\n" + LINES, "row 1 after the header has 3 values for 1 column; remove the lines above"),
        (LINES.replace("c1", "c\0"), "line 3 holds the character NUL"),
        ('{"label": "c1", "x": 1}\n', "is JSON; rename it to .jsonl"),
        ("<table><tr>\n", "is HTML or XML; save it as .csv"),
    ],
)
def test_a_text_that_would_be_read_wrongly_is_refused(content, message, tmp_path):
    (tmp_path / "rows.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        open_source(str(tmp_path / "rows.csv"))


def test_wide_characters_without_a_mark_are_refused(tmp_path):
    (tmp_path / "rows.csv").write_bytes(LINES.encode("utf-16-le"))
    with pytest.raises(DataError, match=r"line 1 holds the character NUL, as in UTF-16 .*; save it as a text in UTF-8"):
        open_source(str(tmp_path / "rows.csv"))


def test_the_line_by_which_excel_knows_the_separator_is_no_header(tmp_path):
    (tmp_path / "rows.csv").write_text("sep=;\n" + LINES.replace(",", ";"))
    assert read(tmp_path / "rows.csv") == expected(tmp_path)


def test_a_column_without_a_name_is_told_unless_it_is_the_index_of_pandas(tmp_path, recwarn):
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"{k},{line}\n" if k else f",{line}\n" for k, line in enumerate(LINES.splitlines())))
    assert read(path) == expected(tmp_path)
    assert not recwarn.list
    path.write_text("".join(f"{line},{k or ''}\n" for k, line in enumerate(LINES.splitlines())))
    with pytest.warns(UserWarning, match="rows.csv: column 4 has no name, and is not used"):
        assert read(path) == expected(tmp_path)


def workbook(path, *sheets):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets:
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_a_cover_sheet_names_the_sheets_behind_it(tmp_path):
    path = workbook(tmp_path / "rows.xlsx", ("Cover", [["see Data"]]), ("Data", [["label", "x"], ["a", 1]]))
    with pytest.raises(
        DataError, match=r"its first sheet holds no table; move the one to read \('Data'\) to the front"
    ):
        open_source(str(path))


def test_formulas_without_results_are_told(tmp_path):
    rows = [["label", "x", "sum"], *(["ab"[k % 2], k, f"=B{k + 2}*2"] for k in range(4))]
    path = workbook(tmp_path / "rows.xlsx", ("Data", rows))
    with pytest.warns(
        UserWarning, match="'sum' holds formulas without results, so it is empty; open and save the file"
    ):
        open_source(str(path))


def test_a_warning_is_printed_once_per_command():
    as_line = each_once()
    lines = [as_line(text, UserWarning, "file.py", 1) for text in ("one", "two", "one")]
    assert lines == ["nearfar: warning: one\n", "nearfar: warning: two\n", ""]


def test_folders_named_like_options_stay_paths(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "label=c0"
    folder.mkdir()
    (folder / "rows.csv").write_text(LINES)
    code, _, errors = run(capsys, monkeypatch, "inspect", tmp_path)
    assert code == 2
    assert "/label=c0/rows.csv" in errors
