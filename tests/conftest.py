"""What the tests of several folders share."""

import pytest


@pytest.fixture(params=["small", "large"])
def ways(request, monkeypatch):
    """Small matrices on a host take other ways to the same numbers than large ones."""
    pytest.importorskip("torch")
    from nearfar.deep.pairwise import comparison

    if request.param == "large":
        monkeypatch.setattr(comparison, "SMALL", 1)
