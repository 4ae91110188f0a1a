"""Every row of the page of commands and functions: a command, and a line of Python with the same result."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("jinja2")

from nearfar import data, index, load, report, train, workflows
from nearfar.cli import app
from nearfar.data import public
from nearfar.train import TrainConfig

from .commands import run

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
ROWS = re.findall(r"^\| `nearfar (.*?)` \| `(.*?)` \|$", PAGE.read_text(), re.MULTILINE)
ELSEWHERE = {"completion", "push", "serve"}
FIRST = {
    "run": ["workflows.train_and_score(TrainConfig"],
    "learner.safetensors": ["workflows.fit"],
    "features.index": ["index.build"],
}
"""What makes the files that a row reads."""
NAMES = {
    "Path": Path,
    "data": data,
    "public": public,
    "index": index,
    "load": load,
    "report": report,
    "train": train,
    "workflows": workflows,
    "TrainConfig": TrainConfig,
}


def test_every_command_has_its_row():
    commands = {name for name in app if not name.startswith("-")}
    rows = {words.split()[0] for words, _ in ROWS}
    assert rows == commands - ELSEWHERE, "docs/commands.md: a row with a command and its function for each of these"


@pytest.fixture
def folders(tmp_path):
    """Two folders with the same files, one for the command and one for the function."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 12)
    rows = rng.normal(size=(6, 4))[labels] + 0.3 * rng.normal(size=(72, 4))
    made = []
    for name in ("command", "function"):
        folder = tmp_path / name
        folder.mkdir()
        lines = ["a,b,c,d,label", *(",".join([*map(str, row), f"c{y}"]) for row, y in zip(rows, labels, strict=True))]
        (folder / "rows.csv").write_text("\n".join(lines) + "\n")
        for file, kept in {"features": rows, "old": rows @ np.diag([1, 2, 1, 1])}.items():
            names = [f"item {i}" for i in range(72)]
            np.savez(folder / f"{file}.npz", embeddings=kept, labels=labels, names=names)
        np.save(folder / "query.npy", rows[:2])
        made.append(folder)
    return made


def same(words, printed, value, ours, theirs):
    """Compare what a command has printed or written with the value of a function, by the kind of the value."""
    command = words[0]
    if command == "embed":
        assert printed.strip() == value
        made = [data.open_items(str(folder / words[-1])).array for folder in (ours, theirs)]
        np.testing.assert_array_equal(*made)
    elif command == "inspect":
        for part in value.parts:
            assert str(part.items) in printed
        assert value.protocol in printed
    elif command == "search":
        names = [name for row in value.hits.names.tolist() for name in row]
        assert [line.split("  ")[-1] for line in printed.splitlines() if line.startswith(" ")] == names
    elif command == "train":
        assert load(ours / words[-1]).fingerprint == load(theirs / words[-1]).fingerprint
    elif command == "doctor":
        text, missing = value
        assert not missing
        # the libraries of linear algebra are those that other tests have loaded
        known = [line for line in text.splitlines() if not line.startswith(("blas", "openmp"))]
        assert set(known) <= set(printed.splitlines())
    else:
        assert printed.strip() == str(getattr(value, "text", value)).strip()


@pytest.mark.slow  # some of them train
@pytest.mark.parametrize(("words", "line"), ROWS, ids=[words for words, _ in ROWS])
def test_a_command_and_its_function_give_the_same(folders, capsys, monkeypatch, words, line):
    if words.startswith("export"):
        pytest.importorskip("onnxruntime")
    ours, theirs = folders
    read = [calls for name, calls in FIRST.items() if f'"{name}"' in line and not line.startswith(calls[0])]
    needed = [call for calls in read for call in calls if not line.startswith(call)]
    for folder in folders:
        monkeypatch.chdir(folder)
        for call in needed:
            eval(next(other for _, other in ROWS if other.startswith(call)), NAMES)
    monkeypatch.chdir(ours)
    code, printed, err = run(capsys, monkeypatch, *shlex.split(words))
    assert code == 0, err
    monkeypatch.chdir(theirs)
    same(shlex.split(words), printed, eval(line, NAMES), ours, theirs)
