"""Commands that would replace a file which another command reads: they refuse, and say which option allows it."""

import re

import numpy as np
import pytest

import nearfar
from nearfar import index

from .commands import run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Rows of six classes, a learner fitted on them, and their embeddings under two names."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 12)
    rows = rng.normal(size=(6, 4))[labels] + 0.3 * rng.normal(size=(72, 4))
    names = [f"item {number}" for number in range(72)]
    for name in ("rows", "other"):
        np.savez(tmp_path / f"{name}.npz", embeddings=rows, labels=labels, names=names)
    nearfar.RCA().fit(rows, labels).save(tmp_path / "rca.safetensors")
    index.build(tmp_path / "rows.npz", None, tmp_path / "rows.index")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "rows.npz", "GMML()", "-o", "new.safetensors"),
        ("embed", "rca.safetensors", "rows.npz", "-o", "new.npz"),
        ("export", "rca.safetensors", "-o", "new.onnx"),
        ("adapt", "rows.npz", "other.npz", "-o", "new.safetensors"),
        ("suspects", "rows.npz", "-o", "new.csv"),
        ("inspect", "rows.npz", "-o", "new.json"),
        ("evaluate", "rows.npz", "-o", "new.json"),
        ("search", "rows.index", "rows.npz", "-o", "new.csv"),
        ("duplicates", "rows.index", "--within", "0.5", "-o", "new.csv"),
        ("groups", "rows.npz", "-o", "new.csv"),
        ("label-next", "rows.npz", "-o", "new.csv"),
    ],
    ids=lambda words: words[0],
)
def test_a_file_that_others_read_is_replaced_only_on_request(words, folder, capsys, monkeypatch):
    if words[0] == "export":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    out = folder / words[-1]
    out.write_text("precious")
    code, _, err = run(capsys, monkeypatch, *words)
    assert (code, err) == (2, f"nearfar: --out: {out.name} exists; pass --overwrite to replace it\n")
    assert out.read_text() == "precious"
    code, said, err = run(capsys, monkeypatch, *words, "--overwrite")
    assert code == 0, err
    if words[0] in ("fit", "embed", "export", "adapt", "suspects"):
        assert re.search(rf"^(Saved )?{out.name}\b", said, re.MULTILINE)  # each says where its result is
    assert out.read_bytes() != b"precious"


def test_a_page_is_replaced(folder, capsys, monkeypatch):
    pytest.importorskip("jinja2")
    for words in (("suspects", "rows.npz"), ("report", "rows.npz")):
        page = folder / "page.html"
        page.write_text("an older page")
        code, _, err = run(capsys, monkeypatch, *words, "-o", page)
        assert code == 0, err
        assert page.read_text() != "an older page"


def test_a_learner_is_not_fitted_where_it_would_not_be_saved(folder, capsys, monkeypatch):
    monkeypatch.setattr(nearfar.RCA, "fit", lambda *_: pytest.fail("was fitted"))
    code, _, _ = run(capsys, monkeypatch, "fit", "rows.npz", "RCA()", "-o", "rca.safetensors")
    assert code == 2


def test_a_fit_on_few_classes_says_so_as_inspect_does(folder, capsys, monkeypatch):
    _, said, _ = run(capsys, monkeypatch, "fit", "rows.npz", "GMML()", "-o", "gmml.safetensors")
    inspected = run(capsys, monkeypatch, "inspect", "rows.npz")[1]
    remark = next(line for line in inspected.splitlines() if line.startswith("- The test has"))
    assert "3 classes" in remark
    assert remark in said.splitlines()
    by_rows = ("fit", "rows.npz", "GMML()", "--split", "rows", "-o", "closed.safetensors")
    assert "- The test has" not in run(capsys, monkeypatch, *by_rows)[1]


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        (("export", "rca.safetensors", "-o", "x.pt"), ".onnx, or for a run .pt2 or a folder"),
        (("report", "rows.npz", "-o", "x.txt"), ".html"),
    ],
)
def test_a_file_is_not_written_under_the_ending_of_another_kind(words, ending, folder, capsys, monkeypatch):
    code, _, err = run(capsys, monkeypatch, *words)
    assert (code, err) == (2, f"nearfar: --out: {words[-1]}: expected a file that ends in {ending}\n")
    assert not (folder / words[-1]).exists()
