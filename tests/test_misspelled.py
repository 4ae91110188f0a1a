"""Commands with a wrong path, or with more words than they take: one line says what was probably meant."""

import re

import numpy as np
import pytest

import nearfar

from .commands import run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 8)
    rows = rng.normal(size=(48, 4))
    np.savez(tmp_path / "vehicle.npz", X=rows, y=labels)
    nearfar.RCA().fit(rows, labels).save(tmp_path / "rca.safetensors")
    (tmp_path / "my runs" / "first one").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("inspect", "vehicel.npz"), "'vehicle.npz'"),
        (("inspect", "vehicle.csv"), "'vehicle.npz'"),
        (("train", "vehicel.npz", "--out", "run"), "'vehicle.npz'"),
        (("train", "--data=vehicel.npz", "--out", "run"), "'vehicle.npz'"),
        (("train", "--resume", "--out", "my runs/frist one"), "'my runs/first one'"),
        (("train", "--final", "my runs/frist one", "--out", "run"), "'my runs/first one'"),
        (("fit", "vehicle.npz", "RCA()", "--test", "./vehicel.npz", "-o", "x.safetensors"), "'vehicle.npz'"),
        (("evaluate", "rca.safetensor", "vehicle.npz"), "'rca.safetensors'"),
        (("evaluate", "rca.safetensors", "vehicel.npz"), "'vehicle.npz'"),
        (("report", "my run/first one"), "'my runs/first one'"),
        (("embed", "rac.safetensors", "vehicle.npz", "-o", "x.npz"), "'rca.safetensors'"),
        (("export", "rac.safetensors", "-o", "x.onnx"), "'rca.safetensors'"),
        (("index", "rca.safetensors", "vehicel.npz", "-o", "x.index"), "'vehicle.npz'"),
        (("card", "my runs/first on"), "'my runs/first one'"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else None,
)
def test_the_nearest_path_is_suggested(words, meant, folder, capsys, monkeypatch):
    code, _, err = run(capsys, monkeypatch, *words)
    assert code == 2
    assert err.endswith(f"; did you mean {meant}?\n")
    assert err.count("\n") == 1
    assert "expected a folder" not in err  # the list of what DATA can be


def test_nothing_far_is_suggested(folder, capsys, monkeypatch):
    for words in (("inspect", "photos/"), ("inspect", "nowhere/vehicle.npz"), ("evaluate", "a" * 5000, "vehicle.npz")):
        code, _, err = run(capsys, monkeypatch, *words)
        assert code == 2
        assert "did you mean" not in err
    # errors about something else than a path
    (folder / "digit").mkdir()
    (folder / "new.safetensor").touch()
    for words in (
        ("fit", "digits", "RCA(zzz=1)", "-o", "new.safetensors"),
        ("evaluate", "digits", "digits"),
        ("fit", "vehicle.npz", "RCA()", "-o", "rca.npz"),
    ):
        code, _, err = run(capsys, monkeypatch, *words)
        assert code == 2
        assert "did you mean" not in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("train", "photos/", "--data", "photos", "--out", "run"), "'photos/' is one argument too many"),
        (("embed", "run", "a.jpg", "b.jpg", "c.jpg", "-o", "x.npz"), "'b.jpg' and 1 more are arguments too many"),
        (("train", "photos/"), "--out is missing"),
        (("fit",), "DATA is missing"),
        (("train", "photos/", "--out", "run", "--pretrained"), "--pretrained: expected a value after it"),
        (("train", "photos/", "--out"), "--out: expected a value after it"),
    ],
)
def test_what_the_arguments_lack_or_have_too_many_is_one_plain_line(words, told, capsys, monkeypatch):
    code, _, err = run(capsys, monkeypatch, *words)
    assert code == 2
    assert re.match(rf"nearfar: {re.escape(told)}[:;] `nearfar {words[0]} --help`", err)
    assert err.count("\n") == 1


def test_a_misspelled_option_that_is_needed_is_told_as_such(capsys, monkeypatch):
    code, _, err = run(capsys, monkeypatch, "train", "photos/", "--output", "run")
    assert code == 2
    assert err == "nearfar: Unknown option: --output. Did you mean --out?\n"
