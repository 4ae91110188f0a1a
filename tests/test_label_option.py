"""Every command that reads tables takes the column of the classes by its name."""

import json

import numpy as np
import pytest

pytest.importorskip("torch")

from nearfar.data import open_dataset, open_items, open_task
from nearfar.models import load
from nearfar.train import TrainConfig, train
from nearfar.train.estimator import DeepMetric
from nearfar.workflows.fitting import fit

from .commands import run

QUICK = ["--set", "steps=3", "--batch-size", "16", "--quiet"]


@pytest.fixture
def tables(tmp_path):
    """A table whose classes stand in `species` beside numbers in `label`, and the same where they stand in `label`."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 6)
    X = rng.normal(size=(8, 3))[y] + 0.3 * rng.normal(size=(48, 3))
    for name, (number, kind) in {"named": ("label", "species"), "usual": ("size", "label")}.items():
        lines = [f"a,b,{number},{kind}"]
        lines += [f"{row[0]:.4f},{row[1]:.4f},{row[2]:.4f},kind{c}" for row, c in zip(X, y, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "named.csv", tmp_path / "usual.csv"


@pytest.fixture
def command(capsys, monkeypatch):
    """Run a command that must end well; returns what it prints."""

    def told(*words):
        code, out, err = run(capsys, monkeypatch, *words)
        assert code == 0, err
        return out

    return told


@pytest.mark.slow
def test_a_learner_is_fitted_scored_and_shown_as_where_the_column_is_called_label(tables, command, tmp_path):
    told = []
    for path, option in zip(tables, (["--label", "species"], []), strict=True):
        file = tmp_path / f"{path.stem}.safetensors"
        fitted = command("fit", path, "RCA()", "-o", file, *option)
        scored = command("evaluate", file, path, *option)
        pairs = command("evaluate", file, path, *option, "--protocol", "verification")
        drawn = command("evaluate", file, path, *option, "--all", "--protocol", "few-shot", "--queries", "2")
        seen = command("inspect", path, *option)
        command("report", file, path, *option, "-o", tmp_path / f"{path.stem}.html")
        assert "kind3" in (tmp_path / f"{path.stem}.html").read_text()
        told.append([text.replace(path.stem, "") for text in (fitted, scored, pairs, drawn, seen)])
    assert told[0] == told[1]
    assert "train 24 rows of 4 classes" in told[0][0]


def test_few_classes_are_halved_by_the_named_column(tables, command, tmp_path):
    lines = tables[0].read_text().splitlines()[:13]  # of two classes
    tables[0].write_text("\n".join(lines) + "\n")
    out = command("fit", tables[0], "RCA()", "-o", tmp_path / "rca.safetensors", "--label", "species")
    assert "12 rows of 2 classes, too few to hold any out" in out


@pytest.mark.slow
def test_rows_are_embedded_indexed_and_found_by_the_named_column(tables, command, tmp_path):
    file, option = tmp_path / "rca.safetensors", ["--label", "species"]
    command("fit", tables[0], "RCA()", "-o", file, *option)
    assert "48 embeddings of 3 dimensions, 8 classes" in command(
        "embed", file, tables[0], "-o", tmp_path / "e.npz", *option
    )
    for source in ([file, tables[0]], [tables[0]]):  # with a learner, or as embeddings
        command("index", *source, "-o", tmp_path / "rows.index", "--overwrite", *option)
        found = command("search", tmp_path / "rows.index", tables[0], "-k", "1", *option)
        assert found.split()[:5] == ["named[0]", "1", "0", "kind0", "named[0]"]
    command("index", file, tables[0], "-o", tmp_path / "rows.index", "--overwrite", *option)
    other = tmp_path / "other.csv"
    other.write_text(tables[0].read_text().replace("species", "kind"))
    command("index", file, other, "-o", tmp_path / "rows.index", "--add", "--label", "kind")
    command("search", tmp_path / "rows.index", tables[0], *option, "-k", "2", "-o", tmp_path / "hits.html")
    assert (tmp_path / "hits.html").read_text().count("<img") == 3 * 48  # a row and its copies of both tables are drawn


@pytest.mark.slow
def test_tables_of_embeddings_are_scored_and_compared_by_the_named_column(tables, command, tmp_path):
    option = ["--label", "species"]
    assert "48 items of 8 classes" in command("evaluate", tables[0], *option)
    dataset = open_dataset(tables[0], label="species")
    classes = np.array(dataset.classes)
    np.savez(tmp_path / "e.npz", X=dataset.array, y=classes[dataset.labels], names=np.array(dataset.names))
    for ours, other in ((tables[0], tables[0]), (tables[0], tmp_path / "e.npz"), (tmp_path / "e.npz", tables[0])):
        page = tmp_path / "page.html"
        command("report", ours, "--against", other, "-o", page, *option)
        assert "kind3" in page.read_text()


@pytest.mark.slow
def test_a_run_keeps_the_name_of_the_column(tables, command, capsys, monkeypatch, tmp_path):
    folder, option = tmp_path / "run", ["--label", "species"]
    rows = (line.rsplit(",", 2) for line in tables[0].read_text().splitlines()[1:])
    lines = [f"{features},{int(kind[-1]) // 2},{kind[-1]}" for features, _, kind in rows]  # two columns could be it
    tables[0].write_text("\n".join(["a,b,label,species", *lines]) + "\n")
    command("train", tables[0], "--out", folder, *QUICK, *option)
    assert json.loads((folder / "config.json").read_text())["label"] == "species"
    assert "test 24 rows of 4 classes" in command("evaluate", folder)
    command("report", folder)
    page = (folder / "report.html").read_text()
    assert "have no pictures" not in page  # the test was opened again
    assert "48 items of 8 classes" in command("evaluate", folder, tables[0], *option, "--all")
    command("train", "--resume", "--out", folder, "--quiet")
    code, _, err = run(capsys, monkeypatch, "train", "--resume", "--out", folder, "--label", "label", "--quiet")
    assert code == 2
    assert "resumed with other settings (run's / given): label: 'species' / 'label'" in err


@pytest.mark.slow
def test_objectives_are_compared_on_the_named_column(tables, command, tmp_path):
    words = ["--objective", "TripletLoss()", "--seeds", "1", "--set", "steps=2", "--out", tmp_path / "runs"]
    assert "test 24 rows of 4 classes" in command("compare", tables[0], *words, "--label", "species")
    config = json.loads(next((tmp_path / "runs").glob("*/config.json")).read_text())
    assert (config["label"], config["test_classes"]) == (
        "species",
        list(open_task(tables[0], label="species").test.classes),
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "TABLE", "RCA()", "-o", "x.safetensors", "--label", "specie"], "did you mean 'species'?; it has a,b"),
        (["inspect", "digits", "--label", "species"], "label: got 'species', but digits has no columns"),
        (["train", "digits", "--out", "run", "--label", "species"], "label: got 'species', but digits has no columns"),
        (["evaluate", "e.npz", "--label", "species"], "--label: needs a table of data or of embeddings"),
        (["report", "run", "--label", "species"], "--label: needs a table of data or of embeddings"),
        (["index", "-o", "x.index", "--remove", "a", "--label", "species"], "SOURCE: expected a run"),
        (
            ["evaluate", "run", "zip", "--protocol", "one-shot-runs", "--label", "species"],
            "--label: does not work with --protocol one-shot-runs",
        ),
    ],
)
def test_where_there_is_no_such_column_one_line_says_so(words, message, tables, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, monkeypatch, *(tables[0] if word == "TABLE" else word for word in words))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_the_column_of_names_is_a_setting_of_runs(tables, tmp_path):
    header, *lines = tables[0].read_text().splitlines()
    named = [f"{header},code", *(f"{line},row-{i}" for i, line in enumerate(lines))]
    tables[0].write_text("\n".join(named) + "\n")
    settings = {"data": str(tables[0]), "label": "species", "steps": 2, "batch_size": 16}
    run = train(TrainConfig.of(**settings, name="code"), tmp_path / "run", progress=False)
    assert run.task.test.names[0].startswith("row-")
    assert run.task.test.read(0).shape == (3,)  # names are no features


def test_the_name_is_a_setting_of_runs(tables):
    config = TrainConfig.of(data=str(tables[0]), label="species", steps=2, batch_size=16)
    assert config.digest != config.replace(label=None).digest
    run = train(config, tables[0].parent / "run", progress=False)
    assert run.config.label == "species"
    with pytest.raises(ValueError, match="settings: 'label' applies only to runs in a folder"):
        DeepMetric(settings={"label": "species"}).fit(np.eye(4), [0, 0, 1, 1])


@pytest.fixture(scope="module", params=["numbers", "cells", "run"])
def learned(request, tmp_path_factory):
    """A table whose classes stand in `species` and names in `code`, and a model that was fitted on it by these."""
    home = tmp_path_factory.mktemp(request.param)
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 4)
    X = rng.normal(size=(6, 3))[y] + 0.3 * rng.normal(size=(24, 3))
    shop = [f",{'ab'[c % 2]}" if request.param == "cells" else "" for c in y]
    lines = [f"a,b,label,species,code{',shop' if shop[0] else ''}"]
    rows = zip(X, y, shop, strict=True)
    lines += [f"{a:.4f},{b:.4f},{c:.4f},kind{kind},row-{i}{more}" for i, ((a, b, c), kind, more) in enumerate(rows)]
    table = home / "table.csv"
    table.write_text("\n".join(lines) + "\n")
    columns = {"label": "species", "name": "code"}
    if request.param == "run":
        config = TrainConfig.of(data=str(table), steps=2, batch_size=8, validation=0.0, **columns)
        train(config, home / "model", progress=False)
        return home / "model", table
    fit(str(table), "RCA()", home / "model.safetensors", **columns)
    return home / "model.safetensors", table


GIVEN = ["--label", "species", "--name", "code"]


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "MODEL", "TABLE", "--all", "--no-clustering"],
        ["evaluate", "MODEL", "TABLE", "--all", "--protocol", "few-shot", "--ways", "3", "--queries", "2"],
        ["embed", "MODEL", "TABLE", "-o", "OUT.npz"],
        ["embed", "MODEL", "TABLE", "-o", "OUT"],
        ["index", "MODEL", "TABLE", "-o", "OUT.index"],
        ["suspects", "MODEL", "TABLE"],
        ["duplicates", "MODEL", "TABLE"],
        ["groups", "MODEL", "TABLE", "-o", "OUT.csv"],
        ["label-next", "MODEL", "TABLE", "-k", "3", "-o", "OUT.csv"],
    ],
    ids=lambda words: f"{words[0]}{words[-2] if words[0] == 'embed' else ''}",
)
def test_a_model_remembers_the_columns_that_it_was_fitted_by(words, learned, capsys, monkeypatch, tmp_path):
    model, table = learned
    told = []
    for place, given in ((tmp_path / "one", GIVEN), (tmp_path / "two", [])):
        place.mkdir()
        stands_for = {"MODEL": str(model), "TABLE": str(table)}
        words_there = [stands_for.get(word, word.replace("OUT", str(place / "out"))) for word in words]
        code, out, err = run(capsys, monkeypatch, *words_there, *given)
        assert code == 0, err
        told.append((out + err).replace(str(place), ""))
        for path in place.iterdir():
            if path.suffix not in (".index", ".csv"):
                assert open_items(path).names[0].startswith("row-")
    assert told[0] == told[1]


def test_queries_are_read_by_the_columns_of_the_model(learned, capsys, monkeypatch, tmp_path):
    model, table = learned
    index = table.parent / "rows.index"
    run(capsys, monkeypatch, "index", model, table, "-o", index)
    words = ["search", index, table, "-k", "1"]
    code, out, err = run(capsys, monkeypatch, *words)
    assert code == 0, err
    assert out.split()[:5] == ["row-0", "1", "0", "kind0", "row-0"]
    assert (code, out, err) == run(capsys, monkeypatch, *words, *GIVEN)
    run(capsys, monkeypatch, *words, "-o", tmp_path / "hits.html")
    assert (tmp_path / "hits.html").read_text().count("<img") == 2 * 24  # the rows are found again, and drawn
    rows = load(model).embed(str(table))
    items = open_items(table, label="species", name="code", takes=load(model).takes)
    assert np.array_equal(rows, load(model).embed(items))
