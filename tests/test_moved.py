"""Modules that the documentation named before they moved: the old names work, and say the new ones."""

import importlib

import pytest

MOVED = {
    "nearfar.core.descriptors": ("nearfar.numerics.descriptors", "set_covariances"),
    "nearfar.core.manifolds": ("nearfar.numerics.manifolds", "spans"),
    "nearfar.deep.relations": ("nearfar.deep.objective.relations", "LabelSets"),
    "nearfar.deep.rows": ("nearfar.deep.pairwise.comparison", "Rows"),
    "nearfar.deep.spd": ("nearfar.deep.networks.spd", "StiefelSGD"),
    "nearfar.deep.terms": ("nearfar.deep.objective.terms", "RowLoss"),
}


@pytest.mark.parametrize("old", MOVED)
def test_old_names_lead_to_the_new_place(old):
    if ".deep." in old:
        pytest.importorskip("torch")
    new, name = MOVED[old]
    module = importlib.import_module(old)
    with pytest.warns(FutureWarning, match=f"{old} is now {new}"):
        value = getattr(module, name)
    assert value is getattr(importlib.import_module(new), name)
    with pytest.raises(AttributeError):
        module.no_such_name  # noqa: B018
