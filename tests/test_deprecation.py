"""Modules that the documentation named before they moved: the old names work, and say the new ones."""

import importlib
import inspect

import pytest

import nearfar
from nearfar import deprecation

MOVED = {
    "nearfar.core.descriptors": ("nearfar.numerics.descriptors", "set_covariances"),
    "nearfar.core.manifolds": ("nearfar.numerics.manifolds", "spans"),
    "nearfar.deep.relations": ("nearfar.deep", "LabelSets"),
    "nearfar.deep.rows": ("nearfar.deep", "Rows"),
    "nearfar.deep.spd": ("nearfar.deep", "StiefelSGD"),
    "nearfar.deep.terms": ("nearfar.deep", "RowLoss"),
}


@pytest.mark.parametrize("old", MOVED)
def test_old_names_lead_to_the_new_place(old):
    if ".deep." in old:
        pytest.importorskip("torch")
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


# losses that came after the new name
NEVER_MINE = {"ALMNLoss", "BIERLoss", "HDCLoss", "HDMLLoss", "HierarchicalTripletLoss", "SigLIPLoss"}


def test_losses_take_their_miner_by_its_old_name():
    pytest.importorskip("torch")
    import nearfar
    from nearfar.deep.objective.parser import parse_objective

    losses = [m.name for m in nearfar.catalog.METHODS if m.done and m.kind == "loss"]
    taking = [name for name in losses if "miner" in takes(name) and name not in NEVER_MINE]
    assert len(taking) > 20
    for name in taking:
        small = nearfar.catalog.BY_NAME[name].small
        with pytest.warns(FutureWarning, match="mine is now miner"):
            loss = getattr(nearfar, name)(**small, mine=nearfar.BatchHard())
        assert "mine=" not in repr(loss)
        assert "miner=BatchHard()" in repr(loss)
    old = parse_objective("0.5*TripletLoss(margin=0.3, mine=BatchHard())")  # as in the config of an older run
    assert repr(old) == repr(parse_objective("0.5*TripletLoss(margin=0.3, miner=BatchHard())"))


def takes(name):
    import nearfar

    return inspect.signature(getattr(nearfar, name)).parameters


def test_british_names_of_settings():
    nearfar = pytest.importorskip("nearfar")
    with pytest.warns(FutureWarning, match="normalise is now normalize"):
        assert nearfar.LayeredGMML(normalise=False).normalize is False
    assert "normalise" not in nearfar.LayeredGMML().get_params()
