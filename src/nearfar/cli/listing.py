"""``nearfar list``: the catalog as a table for the terminal."""

from __future__ import annotations

from ..catalog import HERE, METHODS, Method, missing
from ..quoting import quoted


def list_methods(name: str | None = None, /, *, recipes: bool = False, planned: bool = False) -> None:
    """List all methods, or show one with its settings, formula and paper.

    Example: nearfar list TripletLoss

    Parameters
    ----------
    name
        The method to show, or part of a name to list all methods that contain it.
    recipes
        List recipes (settings of papers) instead.
    planned
        List only planned methods.
    """
    if name:
        if recipes or planned:
            raise ValueError(f"NAME: {quoted(name)} does not work with --recipes and --planned, which list all")
        print(shown(name))
    elif recipes:
        from ..train import recipe_names
        from ..train.paper_tables import table_names

        print("\n".join(recipe_names()))
        print("\nTables and figures of papers, for `nearfar compare DATA --recipe NAME`:")
        print("\n".join(f"{name:<26}  {title}" for name, title in table_names().items()))
    else:
        print(listing(planned_only=planned))


def listing(*, planned_only: bool = False) -> str:
    """Return one line per method, by family: its name, what it is, its paper, and what it learns from."""
    families: dict[str, list[str]] = {}
    for method in METHODS:
        if not (planned_only and method.done):
            families.setdefault(method.home, []).append(_line(method))
    lines = [line for home, group in families.items() for line in (_heading(home), *group, "")]
    done = sum(method.done for method in METHODS)
    planned = f" and {len(METHODS) - done} planned" if done < len(METHODS) else ""
    last = f"{done} methods{planned}; nearfar list NAME shows one with its settings, formula and paper"
    return "\n".join([*lines, last])


def shown(name: str) -> str:
    """Return the description of a method, or one line for each method whose name contains the text.

    Raises
    ------
    ValueError
        If no name of a method contains the text.
    """
    exact = [method for method in METHODS if method.name.lower() == name.lower() and method.done]
    if exact:
        return description(exact[0])
    found = [_line(method) for method in METHODS if name.lower() in method.name.lower()]
    if not found:
        raise ValueError(missing(name))
    return "\n".join(found)


def description(method: Method) -> str:
    """Return the settings of a method with their defaults, its paper, formula and docstring."""
    import inspect
    import sys

    import nearfar

    thing = getattr(nearfar, method.name)
    known = inspect.signature(thing).parameters.values()
    settings = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in known]
    about = inspect.getdoc(sys.modules[thing.__module__])
    return "\n\n".join(
        text
        for text in (
            f"{method.name}({', '.join(settings)})",
            f"{method.kind}, from {method.takes}; {method.paper}; {method.path.relative_to(HERE).as_posix()}",
            about,
            inspect.getdoc(thing),
        )
        if text
    )


def title_of(method: Method) -> str:
    """Return what a method is, in words: the first line of its module's docstring, without the paper.

    >>> from nearfar.catalog import BY_NAME
    >>> title_of(BY_NAME["LFDA"])
    'Local Fisher discriminant analysis'
    """
    if not method.done:
        return "planned"
    with method.path.open(encoding="utf-8") as file:
        first = file.readline()
    name, _, after = first.strip().strip('"').rstrip(".").partition(" (")
    return name + after.partition(")")[2]


def _heading(home: str) -> str:
    """Return the name of a family: "Spectral: scatter" for spectral/scatter."""
    return home.replace("/", ": ").capitalize()


def _line(method: Method) -> str:
    learns_from = f", from {method.takes}" if method.kind == "learner" and method.takes != "none" else ""
    return f"  {method.name:<33}{title_of(method)} ({method.paper}){learns_from}"
