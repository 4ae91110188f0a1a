"""Tables with gaps, categories, dates and texts as rows of numbers, in Python and through the commands."""

from __future__ import annotations

import csv
import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import nearfar
from nearfar.data import DataError, inspect_data, open_dataset
from nearfar.estimators import TableEncoder
from nearfar.workflows.fitting import fit
from tests.commands import run

WORDS = ["swift horse runs", "slow snail rests", "blue river flows", "cold moon shines"]


def people(n: int = 80) -> dict[str, list[Any]]:
    """A table with a column of each kind, and with missing cells."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 4
    table: dict[str, list[Any]] = {
        "label": [f"c{k}" for k in y],
        "age": [f"{30 + 9 * k + rng.normal():.1f}" for k in y],
        "city": [["Paris", "Rome", "Oslo"][k % 3] if rng.random() < 0.9 else "Bern" for k in y],
        "born": [str(date(1980 + 4 * int(k), 1, 1 + int(rng.integers(28)))) for k in y],
        "member": [["true", "false"][int(rng.integers(2))] for _ in y],
        "notes": [f"{WORDS[k]} {rng.choice(['here', 'there', 'above'])} {i}" for i, k in enumerate(y)],
        "code": [f"z{i}" for i in range(n)],
        "land": ["CH"] * n,
    }
    for name in ("age", "city", "born"):
        table[name][int(rng.integers(n))] = ""
    return table


PEOPLE = people()
COLUMNS = {name: cells for name, cells in PEOPLE.items() if name != "label"}


def written(path: Path, table: dict[str, list[Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    return path


def test_every_kind_of_column_becomes_numbers():
    encoder = TableEncoder().fit(COLUMNS)
    assert [column.kind for column in encoder.columns_] == [
        "numbers", "categories", "dates", "numbers", "texts", "not used", "not used",
    ]  # fmt: skip
    Z = encoder.transform(COLUMNS)
    names = list(encoder.get_feature_names_out())
    assert Z.shape == (80, len(names))
    assert names[:3] == ["age", "city_Bern", "city_Oslo"]
    assert np.isfinite(Z).all()
    assert encoder.describe().splitlines() == [
        "numbers, standardized: age (1 missing cell as the median), member",
        "dates, as standardized days: born (1 missing cell as the median)",
        "categories: city (4; 1 missing cell)",
        f"texts, TF-IDF: notes ({len(encoder.columns_[4].words)} words in 15 dimensions)",
        "not used: code (its texts hardly recur), land (all cells are equal)",
    ]


def test_columns_weigh_the_same():
    Z = TableEncoder().fit_transform({"a": np.arange(50) ** 2, "b": np.arange(50) % 5 * 1000})
    assert_allclose([(pdist(column[:, None]) ** 2).mean() * 49 / 50 for column in Z.T], 2)
    Z = TableEncoder().fit_transform({"city": ["x", "y", "z", "w"] * 9})
    distances = pdist(Z[:4]) ** 2
    assert_allclose(distances, 2)
    assert np.linalg.matrix_rank(Z - Z.mean(axis=0)) == Z.shape[1] == 3


def test_missing_and_new_cells():
    encoder = TableEncoder(max_categories=2).fit({"h": [1, 2, 9, None], "c": ["x", "x", "y", "y"]})
    with pytest.warns(UserWarning, match="column 'h': 1 cell of 4 cannot be read .* they count as missing: inf"):
        at = encoder.transform({"c": ["x", "y", "", "new"], "h": [2, "", "?", float("inf")], "more": [1, 2, 3, 4]})
    assert_allclose(at[:, 0], at[0, 0])  # 2 is the median
    middle = at[:2, 1].mean()
    assert_allclose(at[2:, 1], middle)  # as far from x as from y
    others = TableEncoder(max_categories=2).fit({"c": [*"xxxyyyzv"]})
    known = others.transform({"c": [*"zvq"]})
    assert_allclose(known, known[:1].repeat(3, axis=0))
    with pytest.raises(ValueError, match=r"X: lacks the column 'h' of the training table; it has 'c'"):
        encoder.transform({"c": ["x"]})


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1,5", "2,5", "3,5"], "numbers"),
        (["05/04/2024", "06/04/2024", "07/05/2024"], "not used"),
        (["17/04/2024", "06/04/2024", "07/05/2024"], "dates"),
        (["17.04.2024", "06.04.2024", ""], "dates"),
        ([date(2024, 4, 17), date(2024, 4, 18), None], "dates"),
        (["2024-04-17T10:00:00+02:00", "2024-04-17 11:00", ""], "dates"),
        ([True, False, None], "numbers"),
        ([*range(39), "broken"], "numbers"),
        ([*range(9), "broken"], "not used"),
        ([*range(9), "unknown"], "numbers"),
        ([[1, 2], [3]], "not used"),
        ([None, "", "NA"], "not used"),
        ([10**400, 1, 2], "not used"),
        ([1.0, 1.0, None], "not used"),
    ],
)
def test_what_cells_mean(cells, kind):
    n = len(cells)
    encoder = TableEncoder().fit({"cells": cells, "x": range(n)})
    assert encoder.columns_[0].kind == kind
    assert np.isfinite(encoder.transform({"cells": cells, "x": range(n)})).all()


def test_frames_give_what_columns_give():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COLUMNS)
    frame["born"] = pandas.to_datetime(frame["born"])
    days = pandas.DataFrame({"month": pandas.period_range("2024-01", periods=4, freq="M"), "x": range(4)})
    days["took"] = pandas.to_timedelta(days["x"], unit="h")
    encoder = TableEncoder().fit(days)
    assert [column.kind for column in encoder.columns_] == ["dates", "numbers", "numbers"]
    assert_allclose(encoder.transform(days)[:, 2], encoder.transform(days)[:, 1])
    days.columns = ["x", "x", "y"]
    with pytest.raises(ValueError, match=r"^TableEncoder: X has two columns of the name 'x'; rename one of them$"):
        TableEncoder().fit(days)
    frame["age"] = pandas.to_numeric(frame["age"])
    frame["city"] = frame["city"].replace("", None).astype("category")
    encoder = TableEncoder().fit(frame)
    assert_allclose(encoder.transform(frame), TableEncoder().fit_transform(COLUMNS), atol=1e-12)
    out = TableEncoder().set_output(transform="pandas").fit_transform(frame)
    assert list(out.columns) == list(encoder.get_feature_names_out())
    pipeline = make_pipeline(TableEncoder(), nearfar.LFDA()).fit(frame, PEOPLE["label"])
    assert pipeline.transform(frame).shape[0] == 80


def one_of(plain, kind):
    """The first saved column of a kind."""
    return next(column for column in plain["columns"] if column["kind"] == kind)


def test_what_is_saved_encodes_the_same():
    encoder = TableEncoder().fit(COLUMNS)
    plain = json.loads(json.dumps(encoder.as_plain()))
    again = TableEncoder.restored(plain)
    assert_allclose(again.transform(COLUMNS), encoder.transform(COLUMNS), rtol=0, atol=0)
    assert again.describe() == encoder.describe()
    for damaged in (
        {},
        {**plain, "columns": [{"kind": "numbers", "name": "x"}]},
        {**plain, "columns": [{**plain["columns"][0], "kind": "code"}]},
        {**plain, "columns": [{**plain["columns"][0], "scale": 0.0}]},
        {**plain, "settings": {"max_categories": 3, "more": 1}},
        *(
            {**plain, "columns": [{**column, **hostile}]}
            for column, hostiles in (
                (one_of(plain, "numbers"), ({"fill": 10**400}, {"center": "1"}, {"name": ["x"]}, {"missing": 1.5})),
                (one_of(plain, "dates"), ({"written": "%d%d"}, {"scale": True})),
                (
                    one_of(plain, "categories"),
                    ({"categories": ["a"], "others": False}, {"others": 10**9}, {"categories": [["a"], "b"]}),
                ),
                (
                    one_of(plain, "texts"),
                    ({"words": {"a": 0}}, {"words": ["a", "a"]}, {"components": [[1.0], [2.0, 3.0]]}),
                ),
            )
            for hostile in hostiles
        ),
    ):
        with pytest.raises(ValueError, match="the encoding of its table is damaged"):
            TableEncoder.restored(damaged)


def test_many_categories_of_a_stranger_fill_no_memory():
    """A file of 2 MB may name so many that the vertices of their simplex would take 300 GB."""
    column = {"kind": "categories", "name": "a", "categories": [str(k) for k in range(200_000)], "others": True}
    encoder = TableEncoder.restored({"settings": {}, "columns": [column]})
    assert encoder.transform({"a": ["7"]}).nonzero()[1].tolist() == [7]


def test_a_table_without_columns_to_learn_from_is_refused():
    with pytest.raises(ValueError, match=r"X has no column to learn from: a \(all cells are equal\)"):
        TableEncoder().fit({"a": ["x", "x"]})


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """The table, the learner that was saved, and what the command printed."""
    folder = tmp_path_factory.mktemp("people")
    table = written(folder / "people.csv", PEOPLE)
    said = fit(str(table), "LFDA()", folder / "lfda.safetensors", split="rows")
    return table, folder / "lfda.safetensors", said


def test_fit_reads_any_table_and_lists_what_became_of_it(fitted):
    _, _, said = fitted
    for line in ("- categories: city (4", "- dates, as standardized days: born", "- texts, TF-IDF: notes ("):
        assert line in said


@pytest.mark.slow
def test_commands_take_the_table_again(fitted, capsys, monkeypatch, tmp_path):
    table, learner, said = fitted
    code, out, err = run(capsys, monkeypatch, "evaluate", learner, table)
    assert (code, err) == (0, "")
    assert "40 of 80 rows were in the training" in out
    score = next(line for line in out.splitlines() if line.startswith("Recall@1"))
    assert score in said  # of the same rows
    for out in ("z.npz", "parts"):
        assert run(capsys, monkeypatch, "embed", learner, table, "-o", tmp_path / out)[0] == 0
    assert run(capsys, monkeypatch, "index", learner, table, "-o", tmp_path / "people.index")[0] == 0
    some = written(tmp_path / "new.csv", {**{name: cells[:2] for name, cells in COLUMNS.items()}, "city": ["Ulm", ""]})
    code, out, err = run(capsys, monkeypatch, "search", tmp_path / "people.index", some, "-k", "1")
    assert (code, err) == (0, "")
    lacking = written(tmp_path / "lacking.csv", {"age": [1, 2], "city": ["Rome", "Oslo"]})
    for words in (
        ("embed", learner, lacking, "-o", tmp_path / "x.npz"),
        ("search", tmp_path / "people.index", lacking),
    ):
        code, _, err = run(capsys, monkeypatch, *words)
        assert code == 2
        assert "lacks the columns 'born', 'member', 'notes' of the training table" in err
        assert err.count("\n") == 1


def test_a_saved_learner_takes_tables_frames_and_encoded_rows(fitted):
    pandas = pytest.importorskip("pandas")
    table, file, _ = fitted
    learner = nearfar.load(file)
    assert learner.takes == ("row", "table")
    Z = learner.embed(table)
    frame = pandas.DataFrame(COLUMNS)
    for given in (learner.embed(frame), learner.transform(frame), learner.transform(learner.encoder.transform(frame))):
        assert_allclose(given, Z, rtol=1e-3, atol=1e-3)
    assert learner.kneighbors(frame, frame[:1], n_neighbors=1, return_distance=False).tolist() == [[0]]


def test_only_training_rows_determine_the_encoding(tmp_path):
    frame = {"label": [*"aabb" * 5], "x": [*range(20)], "role": ["train"] * 10 + ["test"] * 10, "c": ["u", "v"] * 10}
    table = {("split" if name == "role" else name): cells for name, cells in frame.items()}
    table["x"] = [*range(10), *range(1000, 1010)]
    fit(str(written(tmp_path / "rows.csv", table)), "RCA()", tmp_path / "rca.safetensors")
    assert nearfar.load(tmp_path / "rca.safetensors").encoder.columns_[0].fill == 4.5


def test_other_readers_of_tables_name_the_column(fitted):
    table, _, _ = fitted
    with pytest.raises(DataError, match="column 'city' has 'Paris' in row 1, but features must be numbers"):
        open_dataset(table)


def test_inspect_reads_what_fit_reads(capsys, monkeypatch, tmp_path):
    copied = {name: [*cells, cells[0], cells[1]] for name, cells in PEOPLE.items()}
    copied["label"][-1] = "c2"  # of c1
    table = written(tmp_path / "people.csv", {**copied, "paid": ["1 kg", "5 g"] * 41})
    found = inspect_data(table, split="rows")
    assert not found.numeric
    assert {len(group) for group in (*found.copies, *found.conflicts)} | {len(found.leaked)} >= {2}
    code, out, err = run(capsys, monkeypatch, "inspect", table, "--split", "rows")
    assert (code, err) == (0, "")
    assert out.startswith("people: rows of 7 columns\n")  # all classes are of one land
    assert " are not numbers without gaps: `nearfar fit` encodes such columns" in out
    assert "- The numbers of the column 'paid' are not written in one way ('1 kg' and '5 g'), so that they are" in out
    assert "--time" not in out  # there is no training of it
    unlabeled = written(tmp_path / "unlabeled.csv", COLUMNS)
    assert "have no classes" in inspect_data(unlabeled).remarks[0]


def test_estimator_checks():
    check_estimator(TableEncoder(), on_skip=None)
