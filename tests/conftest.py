"""What the tests of several folders share."""

import pytest


@pytest.fixture(params=["small", "large"])
def ways(request, monkeypatch):
    """Small matrices on a host take other ways to the same numbers than large ones."""
    pytest.importorskip("torch")
    from nearfar.deep.pairwise import comparison

    if request.param == "large":
        monkeypatch.setattr(comparison, "SMALL_BLOCK", 1)


@pytest.fixture
def planted(tmp_path):
    """A folder of data in which lie modules called like those that we need; one that is run leaves a file *.ran."""
    folder = tmp_path / "planted"
    folder.mkdir()
    for name in ("accelerate", "torch", "numpy", "pickle", "socket"):
        text = "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\nraise ImportError('planted')\n"
        (folder / f"{name}.py").write_text(text)
    return folder
