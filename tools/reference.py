"""The reference pages of the documentation, from the catalog: written by `docs/conf.py` whenever Sphinx runs."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from textwrap import dedent, indent

from generate import FAMILIES

from nearfar.catalog import METHODS, Method

PACKAGES = {
    "Training": "nearfar.train",
    "Evaluation": "nearfar.evaluation",
    "Reports": "nearfar.report",
    "Search index": "nearfar.index",
    "Vector store": "nearfar.index.store",
    "Export": "nearfar.export",
}
VERBS = "pair_distance, pair_score, get_metric, kneighbors, predict, calibrate_threshold, set_threshold, save, load"
SHARED = {
    "What every learner does": (
        ("nearfar.estimators.base.FromPairs", "fit"),
        ("nearfar.estimators.base.FromTriplets", "fit"),
        ("nearfar.estimators.base.FromChunklets", "fit"),
        ("nearfar.estimators.mahalanobis.Mahalanobis", "transform, get_mahalanobis_matrix"),
        ("nearfar.estimators.fitted.Fitted", VERBS),
    ),
    "What every loss does": (
        ("nearfar.deep.objective.terms.Term", "forward"),
        ("nearfar.deep.pairwise.row_loss.RowLoss", "stats_"),
    ),
}


def write(folder: Path) -> None:
    """Write one page per family and an index of all methods; files that are right already are left alone."""
    folder.mkdir(exist_ok=True)
    families = {title: [m for m in METHODS if m.home == home and m.done] for home, title in FAMILIES.items()}
    pages = {slug(title): family_page(title, methods) for title, methods in families.items() if methods}
    pages |= {slug(title): shared_page(title, classes) for title, classes in SHARED.items()}
    pages |= {slug(title): package_page(title, module) for title, module in PACKAGES.items()}
    pages["index"] = index_page(families)
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for path in folder.glob("*.rst"):
        if path.stem not in pages:
            path.unlink()


def slug(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower())


def heading(title: str, line: str) -> list[str]:
    return [title, line * len(title), ""]


def about(method: Method) -> tuple[str, str, str]:
    """What a method's file says on top: the name that the field gives it, its paper, and formula with remarks."""
    first, _, rest = (ast.get_docstring(ast.parse(method.path.read_text()), clean=False) or "").partition("\n")
    name, _, paper = first.rstrip(".").partition(" (")
    return name, paper.removesuffix(")") or method.paper, rest.strip("\n")


def family_page(title: str, methods: list[Method]) -> str:
    lines = heading(title, "=")
    for method in methods:
        name, paper, head = about(method)
        lines += [f".. _{method.name}:", "", *heading(method.name, "-"), f"{name} ({paper}).", ""]
        for k, block in enumerate(re.split(r"\n\s*\n", head)):
            lines += [*(formula(block) if k == 0 or block.startswith(" ") else prose(block)), ""]
        lines += [f".. autoclass:: nearfar.{method.name}", ""]
    return "\n".join(lines)


def formula(block: str) -> list[str]:
    return [".. code-block:: none", "", indent(dedent(block), "   ")]


def prose(block: str) -> list[str]:
    """A paragraph in which stars, bars and final underscores are only themselves."""
    return [re.sub(r"([*|`]|_(?!\w))", r"\\\1", block)]


def shared_page(title: str, classes: tuple[tuple[str, str], ...]) -> str:
    lines = heading(title, "=")
    for name, members in classes:
        lines += [f".. autoclass:: {name}()", f"   :members: {members}".rstrip(), ""]
    return "\n".join(lines)


def package_page(title: str, module: str) -> str:
    package = import_module(module)
    lines = [*heading(title, "="), (package.__doc__ or "").partition("\n")[0], ""]
    for name in package.__all__:
        thing = getattr(package, name)
        if isinstance(thing, type):
            told = getattr(thing, "_fields", ())  # of a named tuple: in its docstring
            requests = [own for own in vars(thing) if re.fullmatch(r"set_\w+_request", own)]  # scikit-learn's, not ours
            left_out = ", ".join([*told, *requests])
            lines += [f".. autoclass:: {module}.{name}", "   :members:", f"   :exclude-members: {left_out}"]
        else:
            lines += [f".. autofunction:: {module}.{name}"]
        lines += [""]
    return "\n".join(lines)


def index_page(families: dict[str, list[Method]]) -> str:
    lines = heading("Methods and reference", "=")
    lines += [
        "Every method of the field with its paper and what it learns from; the names lead to formulas and settings.",
        "",
    ]
    for title, methods in families.items():
        lines += [*heading(title, "-"), ".. list-table::", "   :widths: 28 40 22 10", ""]
        for method in methods:
            name, paper, _ = about(method)
            takes = "" if method.takes == "none" else method.takes
            lines += [f"   * - :ref:`{method.name}`", *(f"     - {cell}" for cell in (name, paper, takes))]
        lines += [""]
    pages = [slug(title) for title in (*families, *SHARED, *PACKAGES)]
    return "\n".join([*lines, ".. toctree::", "   :hidden:", "", *(f"   {page}" for page in pages), ""])
