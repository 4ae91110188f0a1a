"""``nearfar list``: the catalogue as a table for the terminal."""

from __future__ import annotations

from ..catalog import METHODS, Method


def list_methods(*, recipes: bool = False, planned: bool = False) -> None:
    """List every method of the field: what is done, and what is planned.

    Example: nearfar list

    Parameters
    ----------
    recipes
        List the settings of the papers instead.
    planned
        Only what is not done yet.
    """
    if recipes:
        from ..train import recipe_names

        print("\n".join(recipe_names()))
    else:
        print(listing(planned_only=planned))


def listing(*, planned_only: bool = False) -> str:
    """Return one line per method, by family: a dot where it is done, its name, paper and what it learns from."""
    families: dict[str, list[str]] = {}
    for method in METHODS:
        if not (planned_only and method.done):
            families.setdefault(method.home, []).append(_line(method))
    lines = [line for home, group in families.items() for line in (home, *group, "")]
    done = sum(method.done for method in METHODS)
    return "\n".join([*lines, f"{done} of {len(METHODS)} done (●), {len(METHODS) - done} planned (○)"])


def _line(method: Method) -> str:
    mark = "●" if method.done else "○"
    return f"  {mark} {method.name:<33}{method.paper:<25}{method.kind:<13}{method.takes:<12}{method.ids}"
