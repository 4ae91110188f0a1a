"""Modules that the documentation named before they moved: the old names work, and say the new ones."""

import importlib

import pytest

import nearfar
from nearfar import deprecation

MOVED = {
    "nearfar.core.descriptors": ("nearfar.numerics.descriptors", "set_covariances"),
    "nearfar.core.manifolds": ("nearfar.numerics.manifolds", "spans"),
}


@pytest.mark.parametrize("old", MOVED)
def test_old_names_lead_to_the_new_place(old):
    new, name = MOVED[old]
    module = importlib.import_module(old)
    with pytest.warns(FutureWarning, match=f"{old}.{name} is now {new}.{name}"):
        value = getattr(module, name)
    assert value is getattr(importlib.import_module(new), name)
    with pytest.raises(AttributeError):
        module.no_such_name  # noqa: B018


def test_old_names_go_when_they_are_said_to_go():
    """The version that is told is at least two minor releases on from the one that is being made."""
    now = release(nearfar.__version__)
    until = release(deprecation.UNTIL)
    assert now < until, f"{deprecation.UNTIL} is to be without the old names: remove them, or tell a later release"
    if now < (0, 2):  # the names were in 0.1, and 0.2 deprecates them
        assert until >= (0, 4)


def release(text):
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def test_settings_by_their_old_names():
    from nearfar.deprecation import renamed_settings

    @renamed_settings(colour="color")
    def paint(color="red"):
        return color

    assert paint("blue") == paint(color="blue") == "blue"
    with pytest.warns(FutureWarning, match="colour is now color") as said:
        assert paint(colour="blue") == "blue"
    assert said[0].filename == __file__
    with pytest.raises(TypeError, match="both were given"):
        paint(color="blue", colour="blue")


def test_british_names_of_settings():
    nearfar = pytest.importorskip("nearfar")
    with pytest.warns(FutureWarning, match="normalise is now normalize"):
        assert nearfar.LayeredGMML(normalise=False).normalize is False
    assert "normalise" not in nearfar.LayeredGMML().get_params()
