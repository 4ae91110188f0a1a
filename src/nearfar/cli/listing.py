"""``nearfar list``: the catalog as a table for the terminal."""

from __future__ import annotations

from ..quoting import quoted
from .encoding import say


def list_methods(name: str | None = None, /, *, recipes: bool = False) -> None:
    """List all methods, or show one with its settings, formula and paper.

    Example: nearfar list TripletLoss

    Parameters
    ----------
    name
        The method to show, or part of a name to list all methods that contain it.
    recipes
        List recipes (settings of papers) instead.
    """
    from ..workflows.listing import describe, listing, listing_of_recipes

    if name:
        if recipes:
            raise ValueError(f"NAME: {quoted(name)} does not work with --recipes, which lists all")
        say(describe(name))
    elif recipes:
        say(listing_of_recipes())
    else:
        say(listing())
