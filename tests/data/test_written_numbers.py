"""Numbers as people write them: which notations a column has, and how a table decides between them."""

from __future__ import annotations

import _strptime
import doctest
import json
import warnings
from datetime import datetime

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nearfar.data import DataError, open_dataset, written_numbers
from nearfar.data.cells import FORMATS_OF_DATES, days_in, have_short_years, readings_of_dates
from nearfar.data.readers.text_encoding import rows_of
from nearfar.data.written_numbers import COMMA, LONGEST, NUMERALS, PLAIN, POINT, notations_of, numeral_of, written_in
from nearfar.estimators import TableEncoder

VALUES = [950.0, 12.5, -1234.0, 1234567.25, 0.5, 3.0]
UNITS = ["{}%", "{} %", "${}", "€ {}", "{} €", "CHF {}", "{} kg", "{}km", "{} km/h", "{}°C", "{} m²", "{} m2", "{}"]
SEPARATORS = {POINT: [",", " ", "'", "\u202f", "\u00a0", ""], COMMA: [".", " ", "\u202f", ""]}


def spelled(value: float, numeral: str, thousands: str) -> str:
    """A number with a decimal sign and a separator of thousands."""
    text = f"{value:,.2f}" if value % 1 else f"{value:,.0f}"
    return text.replace(",", "t").replace(".", numeral[-2]).replace("t", thousands)


@pytest.mark.parametrize("unit", UNITS)
def test_numbers_are_read_in_every_notation(unit):
    for numeral, separators in SEPARATORS.items():
        for thousands in separators:
            cells = [unit.format(spelled(value, numeral, thousands)) for value in VALUES]
            (notation,) = notations_of(cells)
            assert numeral_of(notation)[0] == numeral
            assert_allclose(written_in(cells, notation), VALUES)


@pytest.mark.parametrize(
    ("cells", "hours"),
    [(["1:30", "12:05", "0:00"], [1.5, 12 + 5 / 60, 0]), (["1:30:00", "0:00:36"], [1.5, 0.01])],
)
def test_times_are_hours(cells, hours):
    assert_allclose(written_in(cells, notations_of(cells)[0]), hours)


@pytest.mark.parametrize(
    "cells",
    [
        ["red", "2 kg"], ["2 kg", "500 g"], ["1,5", "1.5"], ["12", "$3"], ["59:30", "1:02:05"], ["1:75"], ["Q1", "Q2"],
        ["17.05.2024"], ["2024-05-17"], ["18-24", "25-34"], ["90+"], ["<5"], ["192.168.1.1"], ["1,2,3"], ["+-3"],
        ["12A5", "12B5"], ["2013FAIL", "2014FAIL"], ["(5)"], ["1,23,456"], ["0,123,456"],
        ["12B", "14"], ["", "1"], [".", "1"], ["9" * LONGEST + "9"],
    ],
)  # fmt: skip
def test_what_is_no_number_or_not_of_one_unit_has_no_notation(cells):
    assert notations_of(cells) == []


TABLES = [
    # decimal points elsewhere, or none at all: a comma is of thousands
    ({"a": ["1,234", "950", "2,000"]}, {"a": [1234, 950, 2000]}),
    ({"a": ["1,234", "950", "2,000"], "b": ["$3.50", "$1.25", "$7"]}, {"a": [1234, 950, 2000], "b": [3.5, 1.25, 7]}),
    # decimal commas elsewhere
    ({"a": ["1,234", "950", "2,000"], "b": ["3,5", "1,25", "7"]}, {"b": [3.5, 1.25, 7]}),
    ({"a": ["1,234", "3,950", "2,000"], "b": ["3,5", "1,25", "7"]}, {"a": [1.234, 3.95, 2], "b": [3.5, 1.25, 7]}),
    ({"a": ["1.234", "950", "2.000"], "b": ["3,5", "1,25", "7"]}, {"a": [1234, 950, 2000], "b": [3.5, 1.25, 7]}),
    # both elsewhere
    ({"a": ["1.234", "950"], "b": ["3,5", "7"], "c": ["3.5", "1"]}, {"b": [3.5, 7], "c": [3.5, 1]}),
    # no commas
    ({"a": ["1.234", "950", "2.000"]}, {"a": [1.234, 950, 2]}),
    # dashes, words and cells that are no text
    ({"a": ["-", "12%", "?", "3%"]}, {"a": [np.nan, 12, np.nan, 3]}),
    ({"a": ["$3", *["$5"] * 19, "free"]}, {"a": [3, *[5] * 19, np.nan]}),
    ({"a": ["1,234", 950, None]}, {"a": [1234, 950, np.nan]}),
    ({"a": ["$56.7M", "$300K", "-", "$1.5B"]}, {"a": [56.7e6, 3e5, np.nan, 1.5e9]}),
    ({"a": ["Unknown", "1990", "n.a.", "2001"]}, {"a": [np.nan, 1990, np.nan, 2001]}),
    ({"a": ["NaN", "1.5", "#DIV/0!", "2"]}, {"a": [np.nan, 1.5, np.nan, 2]}),
]  # fmt: skip


@pytest.mark.parametrize(("table", "expected"), TABLES)
def test_a_table_decides_how_its_columns_are_read(table, expected):
    n = len(table["a"])
    encoder = TableEncoder().fit({**table, "x": [{"no": 1}] * n})
    used = {column.name: column for column in encoder.columns_ if column.kind == "numbers"}
    assert used.keys() == expected.keys()
    for name, values in expected.items():
        assert_allclose(used[name].values(np.array(table[name], dtype=object)), values)
        assert used[name].missing == np.isnan(values).sum()
    assert len(encoder.remarks_) == len(table) - len(expected)


def test_numbers_in_brackets_are_below_zero():
    assert notations_of(["(1,234.50)", "3", "950"]) == [POINT]
    assert_allclose(written_in(["(1,234.50)", "950"], POINT), [-1234.5, 950])
    assert_allclose(written_in(["($5.00)", "$3.00"], f"${POINT}"), [-5, 3])
    assert notations_of(["(-5)", "3"]) == []
    assert notations_of(["(1,234.50)", "(7)"]) == [POINT]
    assert notations_of(["(5)", " (12) "]) == []


@pytest.mark.parametrize("written", FORMATS_OF_DATES[1:])
def test_dates_are_read_in_every_format(written):
    moments = [datetime(2024, 5, 17, 17, 30), datetime(1999, 12, 31, 0, 5)]
    assert have_short_years([moment.strftime(written.replace("%Y", "%y")) for moment in moments])
    assert readings_of_dates([f" {moments[0].strftime(written)} "])
    column = [moment.strftime(written) for moment in moments]
    (found, *others) = readings_of_dates(column)
    assert not others
    expected = [datetime.strptime(cell, written) for cell in column]
    assert_allclose(days_in(column, found), [(day - datetime(1970, 1, 1)).total_seconds() / 86400 for day in expected])


@pytest.mark.parametrize(
    "cells",
    [
        ["May 17 2024", "Sept 3, 2024", "september 30 2024", "Sep. 1st, 2024"],
        ["17 May 2024", "3 SEPT 2024", "30 September 2024", "1. sep 2024"],
        ["17-May-2024", "3-Sept-2024", "30-sep-2024", "01-Sep-2024"],
        ["17-05-2024", "3-9-2024", "30-09-2024", "01-09-2024"],
    ],
)
def test_what_is_a_date_without_doubt_is_read_in_every_locale(cells, monkeypatch):
    monkeypatch.setattr(_strptime, "_strptime_datetime", None)  # its names of months are those of the locale
    (written,) = readings_of_dates(cells)
    assert days_in(cells, written).tolist() == [19860, 19969, 19996, 19967]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["2024-05-17", "18/05/2024", "2024-05-19"], "'18/05/2024' is not written like '2024-05-17'"),
        (["17. Mai 2024", "3. Okt. 2024", "9. August 2024"], "'17. Mai 2024' is not written like '9. August 2024'"),
        (["17 de mayo de 2024", "3 de enero de 2024"], "'17 de mayo de 2024' is no date that can be read"),
        (["2024-05-17", "2024-05-18", "2024-05-32"], "'2024-05-32' is not written like '2024-05-17'"),
        (["2024-05-17", "2024-05-18", "soon"], "'soon' is not written like '2024-05-17'"),
    ],
)
def test_columns_of_dates_that_are_not_read_are_named(cells, said):
    table = {"day": [*cells, None], "x": range(len(cells) + 1)}
    encoder = TableEncoder().fit(table)
    (remark,) = encoder.remarks_
    assert remark == f"The column 'day' is not used as dates, because {said}: write all of its dates like 2024-05-17."
    assert encoder.columns_[0].why == "its dates are not all written in one way that can be read"
    assert not TableEncoder().fit({"words": ["born in May 2024", "May 17", "5 apples 20"], "x": [1, 2, 3]}).remarks_


def test_times_of_day_may_have_no_space():
    assert_allclose(days_in(["5/17/2024 5:30PM"], readings_of_dates(["5/17/2024 5:30PM"])[0]), 19860 + 17.5 / 24)


def test_columns_of_two_readings_are_named():
    encoder = TableEncoder().fit(
        {
            "people": ["1,234", "950", "2.5", "1,5"],
            "weight": ["2 kg", "500 g", "2 kg", "500 g"],
            "born": ["05/04/2024", "06/04/2024", "07/05/2024", "07/05/2024"],
            "code": ["12A", "red", "12A", "red"],
            "test": ["2013FAIL", "2012PASS", "2013FAIL", "2012PASS"],
            "shown": ["1/11/99", "1/12/99", "2/3/00", "2/3/00"],
            "x": [1, 2, 3, 4],
        }
    )
    people, weight, born, shown = encoder.remarks_
    assert "'people' are not written in one way ('2.5' and '1,5')" in people
    assert "'weight' are not written in one way ('2 kg' and '500 g'), so that they are read as words" in weight
    assert "'born' is not used, because its dates may be %d/%m/%Y or %m/%d/%Y" in born
    assert "'shown' is not used as dates, because its years have two digits" in shown


def test_new_rows_are_read_as_the_training_rows():
    """Whatever a notation would be for the new rows alone; what does not fit counts as missing, with a warning."""
    trained = {"a": ["1.234", "950", "2.000"], "b": ["3,5", "1,25", "7"], "c": ["$1", "$2", "$1.000"]}
    encoder = TableEncoder.restored(json.loads(json.dumps(TableEncoder().fit(trained).as_plain())))
    assert [column.written for column in encoder.columns_] == [COMMA, COMMA, f"${COMMA}"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = encoder.transform({"a": ["1.234", 1234], "b": ["3,5", 3.5], "c": ["$2", "2 $"]})
        assert_allclose(rows[0], rows[1])
        assert_allclose(encoder.transform({"a": ["-"], "b": [None], "c": ["?"]}), 0, atol=1)
    for other in ({"a": [1.234]}, {"a": [np.float32(1.234)]}, {"c": [2]}, {"c": ["2 EUR"]}):
        (name,) = other
        same = {"a": ["1.234"], "b": ["3,5"], "c": ["$2"]}
        with pytest.warns(UserWarning, match=f"column '{name}': 1 cell of 1 cannot be read as in the training table"):
            rows = encoder.transform({**same, **other})
        assert_allclose(rows, encoder.transform({**same, name: [None]}))


@pytest.mark.parametrize("written", ["", "kg", "1.2.3", "1234.5 kg", "$"])
def test_a_file_with_another_notation_is_damaged(written):
    plain = TableEncoder().fit({"a": [1, 2]}).as_plain()
    assert plain["columns"][0]["written"] == PLAIN
    plain["columns"][0]["written"] = written
    with pytest.raises(ValueError, match="damaged"):
        TableEncoder.restored(plain)


def test_a_hostile_cell_takes_no_time():
    for cell in ("1" * 10**6, " " * 10**6, "1 " * 10**5, "$" * 10**6, "1," * 10**5, "1" + "a" * 10**6):
        assert notations_of([cell]) == []


def test_every_numeral_is_read_as_itself():
    assert {numeral: notations_of([numeral])[0] for numeral in NUMERALS} == {numeral: numeral for numeral in NUMERALS}


def test_lines_above_a_header_are_named(tmp_path):
    (tmp_path / "rows.csv").write_text("# made by an archive\n#\nlabel,x\na,1\n")
    with pytest.raises(DataError, match="remove the lines above the header that begin with #"):
        open_dataset(tmp_path / "rows.csv")


def test_examples():
    assert doctest.testmod(written_numbers).failed == 0


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["0,5;red", "1,234;blue"], ["0.5;red", "1.234;blue"]),  # as everywhere where semicolons are
        (["1,234;red", "2,345;blue"], ["1.234;red", "2.345;blue"]),
        (["1,234;red", "950;blue"], ["1,234;red", "950;blue"]),  # 1234 or 1.234
        (["0,5;1.234", "2;950"], ["0,5;1.234", "2;950"]),  # 1234
        (["0,5;2,5 kg", "2;3 kg"], ["0,5;2,5 kg", "2;3 kg"]),  # for what encodes the table
        (["1,234;0.5", "2,345;0.7"], ["1,234;0.5", "2,345;0.7"]),  # 1234
        (["0,5;-", "2;0,7"], ["0.5;-", "2;0.7"]),
    ],
)
def test_decimal_commas_between_semicolons(rows, expected):
    found, sign = rows_of(["a;b", *rows], ",")
    assert sign == ";"
    assert [";".join(row) for row in found[1:]] == expected
