"""Errors in a user's own module: one line that names theirs."""

import importlib
import sys

import pytest

pytest.importorskip("torch")

from nearfar import cli
from nearfar.quoting import shorten

START = "import torch\nfrom torch import nn\n\n\n"
TRUNK = (
    START
    + "class Mine(nn.Module):\n    def forward(self, x):\n        return {}\n\n\ndef make(shape):\n    return Mine()\n"
)
MODULE = {
    "syntax": ("def f(:\n", 1),
    "imported": (START + "torch.no_such_thing()\n", 5),
    "called": (TRUNK.format("x.meen()"), 7),
    "library": (TRUNK.format("torch.linalg.inv(x.sum())"), 7),
}


def stopped(capsys, monkeypatch, *words):
    """What a command says when it stops."""
    monkeypatch.setattr(sys, "argv", ["nearfar", *map(str, words)])
    with pytest.raises(SystemExit) as found:
        cli.main()
    assert found.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("kind", MODULE)
def test_the_line_of_ones_own_trunk_that_failed(tmp_path, capsys, monkeypatch, kind):
    text, line = MODULE[kind]
    name = f"own_trunk_{kind}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "run"
    options = ["--set", "steps=1", "--set", "image_size=16", "--batch-size", "16", "--quiet"]
    said = stopped(capsys, monkeypatch, "train", "digits", "--trunk", f"{name}:make", "--out", out, *options)
    assert said.count("\n") == 1
    assert f"{name}.py:{line}" in said
    assert not out.exists()


def test_a_library_outside_of_site_packages_is_not_ones_own_code(tmp_path, monkeypatch):
    from nearfar.cli.own_code import HERE, line_in_own_code

    ours = {}
    exec(
        compile("def call(function):\n    function()\n", str(HERE / "children.py"), "exec"), ours
    )  # as if called by us
    for name in ("timm", "own_trunk"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("def fail():\n    raise ValueError('no')\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for name in ("timm", "own_trunk"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        module = importlib.import_module(name)
        try:
            ours["call"](module.fail)
        except ValueError as error:
            found.append(line_in_own_code(error))
        monkeypatch.delitem(sys.modules, name)
    assert found[0] is None
    assert found[1].endswith("own_trunk/__init__.py:2: in fail")


def test_messages_of_others_are_cut(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["nearfar", "inspect", "x" * 100_000])
    with pytest.raises(SystemExit):
        cli.main()
    assert len(capsys.readouterr().err) < cli.MAX_MESSAGE_LENGTH + 100
    assert shorten("x" * 2000, cli.MAX_MESSAGE_LENGTH).endswith("...")


def test_an_error_that_is_its_own_cause_has_an_end():
    from nearfar.cli.own_code import cause_in_own_code

    error = ValueError("x")
    error.__cause__ = error
    assert cause_in_own_code(error) == ""
