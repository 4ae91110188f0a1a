"""The catalog in words: all methods, one of them, or the recipes."""

from __future__ import annotations

from textwrap import wrap

from ..catalog import HERE, METHODS, Method, missing

RECIPES = {
    "photos": "Photos with a pretrained network: train all weights, low-rank adapters, or a linear layer",
    "texts": "Texts with a pretrained text model: train all weights, low-rank adapters, or a linear layer",
    "characters": "Characters with a small network",
    "jrd": "Joint representation diversification (Chu et al., 2020)",
    "cml": "Confusion-based metric learning (Chen et al., 2022)",
    "facility_location": "Facility location (Oh Song et al., 2017)",
}
"""What the recipes of each source are for, in the order in which they are listed."""


def listing() -> str:
    """Return one line per method, by family: its name, what it is, its paper, and what it learns from."""
    families: dict[str, list[str]] = {}
    for method in METHODS:
        families.setdefault(method.home, []).append(_line(method))
    lines = [line for home, group in families.items() for line in (_heading(home), *group, "")]
    last = f"{len(METHODS)} methods; nearfar list NAME shows one with its settings, formula and paper"
    return "\n".join([*lines, last])


def listing_of_recipes() -> str:
    """Return the recipes by their source, and then the tables and figures of papers with their titles."""
    from ..train import recipe_names
    from ..train.papers.paper_tables import table_names

    families: dict[str, list[str]] = {source: [] for source in RECIPES}
    for name in recipe_names():
        families.setdefault(name.partition("/")[0], []).append(name)
    lines = ["Recipes, for nearfar train DATA --recipe NAME:", ""]
    for source, names in families.items():
        lines += [
            RECIPES.get(source, source),
            *wrap(", ".join(names), 100, initial_indent="  ", subsequent_indent="  "),
            "",
        ]
    lines += ["Tables and figures of papers, for nearfar compare DATA --recipe NAME:", ""]
    lines += [f"  {name:<26}{title}" for name, title in table_names().items()]
    return "\n".join(lines)


def describe(name: str) -> str:
    """Return the description of a method, or one line for each method whose name contains the text.

    Raises
    ------
    ValueError
        If no name of a method contains the text.
    """
    exact = [method for method in METHODS if method.name.lower() == name.lower()]
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
