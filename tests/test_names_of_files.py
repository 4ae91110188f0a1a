"""Files whose names are not UTF-8, as old archives and other systems leave them: every command takes them."""

import os
import sys

import numpy as np
import pytest

pytest.importorskip("torch")

from PIL import Image

from nearfar import cli
from nearfar.index import Index

CLASS = b"caf\xe9"  # Latin-1


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Six classes of four images, in a folder that is not UTF-8 either; commands run beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for kind in range(6):
        folder = os.path.join(b"photos\xe9", CLASS + b"%d" % kind)
        try:
            os.makedirs(folder)
        except OSError:
            pytest.skip("the file system takes UTF-8 only")
        for i in range(4):
            with open(os.path.join(folder, b"\xe9%d.png" % i), "wb") as file:
                Image.fromarray(rng.integers(0, 255, (16, 16), dtype=np.uint8)).save(file, "png")
    return os.fsdecode(b"photos\xe9")


@pytest.mark.slow
def test_every_command_takes_names_that_are_not_utf8(photos, capfd, monkeypatch):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["nearfar", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = capfd.readouterr()
        assert not end.value.code, said.err
        return said.out

    few = ["--set", "steps=2", "--batch-size", "8", "--sampler", "random", "--quiet"]
    run("train", photos, "--out", "run", "--set", "freeze_trunk=true", *few)
    run("report", "run")
    run("index", "run", photos, "-o", "photos.index")
    names = Index.load("photos.index").names
    assert all(map(os.path.isfile, names))
    assert names[0] in run("search", "photos.index", photos, "-k", "1")
    run("search", "photos.index", photos, "-k", "1", "-o", "found.html")
    run("search", "photos.index", photos, "-k", "1", "-o", "found.csv")
    with open("found.csv", "rb") as table:
        assert os.fsencode(names[0]) in table.read()
    run("inspect", photos, "-o", "inspection.json")
    run("compare", photos, "--objective", "TripletLoss()", "--seeds", "1", "--set", "steps=2", "--out", "compared")
