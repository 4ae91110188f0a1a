"""Objectives as text: ``"AMSoftmaxLoss(scale=20, margin=0.1) + 1.0*JRS()"``.

The text may hold names of the catalogue, losses and miners of a user's own modules (``package.module:Name``), keyword
literals, sums and weights (``+`` and ``*``), and nothing else. It is parsed, never run as code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from importlib import import_module
from inspect import signature
from typing import Any

from ...catalog import BY_NAME, METHODS, meant, missing
from ...settings import instead, misfit
from ..user_code import import_attribute, is_library
from .terms import Term

KINDS = ("loss", "regularizer", "head", "memory", "composition", "miner")
PAIR_NETWORKS = ("MultiScaleRelationNet", "ContinuousSimilarityNet", "SiameseHead")  # `pair_networks` has their terms
TERM = f"{Term.__module__}.{Term.__qualname__}"
OWN = re.compile(r"""('(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|(?<=\w):(?=[^\W\d])""")
"""A text among the settings, or the colon of `package.module:Name`."""


class ObjectiveError(ValueError):
    """The text of an objective that cannot be understood; the message names the part."""


def parse_objective(
    text: str,
    *,
    num_classes: int | None = None,
    embedding_dim: int | None = None,
    class_counts: Sequence[int] | None = None,
) -> Term:
    """Build an objective from its text.

    Parameters
    ----------
    text : str
        For example ``"TripletLoss(margin=0.1, mine=BatchHard()) + 0.02*EnergyConfusion()"``.
    num_classes, embedding_dim, class_counts : int, int, sequence of int, optional
        Filled in where a method takes them and the text does not give them.

    Raises
    ------
    ObjectiveError
        For anything but catalogue names, classes of one's own, keyword literals, sums and weights.

    Examples
    --------
    >>> parse_objective("TripletLoss(margin=0.1) + 0.5*TripletLoss(margin=0.3)").names()
    ['TripletLoss', 'TripletLoss_2']
    """
    sizes = {"num_classes": num_classes, "embedding_dim": embedding_dim, "class_counts": class_counts}
    try:
        # Python writes a dot there, and a colon in a text stays
        tree = ast.parse(OWN.sub(lambda found: found[1] or ".", text.strip()), mode="eval").body
    except SyntaxError as error:
        raise ObjectiveError(f"objective: {text!r} is not a sum of losses such as 'TripletLoss(margin=0.2)'") from error
    term = _build(tree, {name: size for name, size in sizes.items() if size is not None})
    if not isinstance(term, Term):
        raise ObjectiveError(f"objective: {ast.unparse(tree)!r} is not a loss{_hint(term)}")
    return term


def _build(node: ast.expr, sizes: dict[str, Any]) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _term(node.left, sizes) + _term(node.right, sizes)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = node.left, node.right
        if _is_number(left) == _is_number(right):
            raise ObjectiveError(f"objective: {ast.unparse(node)!r} must multiply a number by a loss")
        weight, term = (left, right) if _is_number(left) else (right, left)
        return float(ast.literal_eval(weight)) * _term(term, sizes)
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    name = _dotted(call.func)
    if name:
        return _call(call, ":".join(name.rsplit(".", 1)), sizes)
    raise ObjectiveError(f"objective: {ast.unparse(node)!r} is not allowed, only names, keywords, + and *")


def _dotted(node: ast.expr) -> str:
    """Return a name, which may be that of a module's class: "Name" or "package.module.Name"; "" for anything else."""
    if isinstance(node, ast.Attribute):
        module = _dotted(node.value)
        return f"{module}.{node.attr}" if module else ""
    return node.id if isinstance(node, ast.Name) else ""


def _term(node: ast.expr, sizes: dict[str, Any]) -> Term:
    term = _build(node, sizes)
    if not isinstance(term, Term):
        raise ObjectiveError(
            f"objective: {ast.unparse(node)!r} is not a loss that can be added or weighted{_hint(term)}"
        )
    return term


def _hint(made: Any) -> str:
    """Say what a loss of a user's own has to be, where this is none, as one of another library."""
    return "" if type(made).__module__.startswith("nearfar.") else f"; one of your own is a subclass of {TERM}"


def _is_number(node: ast.expr) -> bool:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return False
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _call(node: ast.Call, name: str, sizes: dict[str, Any]) -> Any:
    make = _find(name)
    settings = _settings(make, node, name, sizes)
    try:
        return make(**settings)
    except TypeError as error:
        told = str(error).removeprefix(f"{make.__name__}: ")  # our errors begin with the class, Python's do not
        raise ObjectiveError(f"objective: {name}: {told}") from error
    except ObjectiveError:  # of a text inside, such as that of the loss of HORDE
        raise
    except ValueError as error:
        raise ObjectiveError(f"objective: {error}") from error


def _settings(make: Any, node: ast.Call, name: str, sizes: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a method: the sizes that it takes, overridden by what the text says."""
    takes = signature(make).parameters
    known = {key: one for key, one in takes.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    hands_on = ":" in name and any(one.kind is one.VAR_KEYWORD for one in takes.values())  # of one's own: **settings
    if node.args:
        raise ObjectiveError(f"objective: {name} takes only keywords, such as {next(iter(known), 'margin')}=...")
    settings: dict[str, Any] = {key: size for key, size in sizes.items() if key in known}
    inner = _inner_sizes(make, node, sizes)
    for keyword in node.keywords:
        key = keyword.arg or "**"
        if key not in known and not (hands_on and keyword.arg):
            raise ObjectiveError(f"objective: {name} has no setting {key!r}{instead(key, known)}")
        if sum(other.arg == key for other in node.keywords) > 1:
            raise ObjectiveError(f"objective: {name} is given {key!r} twice")
        settings[key] = _value(keyword.value, inner)
        wrong = misfit(known[key], settings[key]) if key in known else ""
        if wrong:
            raise ObjectiveError(f"objective: {name}: {wrong}")
    return settings


def _inner_sizes(make: Any, node: ast.Call, sizes: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes for the methods inside a method, whose `inner_dim` may name another length of their vectors."""
    setting = getattr(make, "inner_dim", None)
    if setting is None:
        return sizes
    width = signature(make).parameters[setting].default
    for keyword in node.keywords:
        if keyword.arg == setting:
            width = _value(keyword.value, sizes)
    return {**sizes, "embedding_dim": width}


def _value(node: ast.expr, sizes: dict[str, Any]) -> Any:
    """A literal, or another method: a miner, or the loss inside a memory."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _build(node, sizes)


def _own(module: str, attribute: str) -> Any:
    """Return a loss, a regulariser or a miner of a user's own: a class whose instances are called."""
    where = f"objective: {module}:{attribute}"
    if is_library(module):
        raise ObjectiveError(f"{where}: a part of your own comes from a module of your own, not from {module}")
    try:
        found = import_attribute(module, attribute)
    except ImportError as error:
        raise ObjectiveError(f"objective: {error}") from error
    if not isinstance(found, type) or not any("__call__" in vars(kind) for kind in found.__mro__):
        raise ObjectiveError(f"{where}: expected a class of losses or miners, got {found!r:.60}")
    return found


def _find(name: str) -> Any:
    if ":" in name:
        return _own(*name.split(":"))
    if name in PAIR_NETWORKS:
        return import_module("nearfar.deep.networks.pair_terms").TERMS[name]
    method = BY_NAME.get(name)
    if method is None:
        names = [m.name for m in METHODS if m.done and m.kind in KINDS]
        raise ObjectiveError(f"objective: no method is called {name!r}{meant(name, names, cutoff=0.4)}")
    if method.kind not in KINDS:
        raise ObjectiveError(f"objective: {name} is a {method.kind}, not part of an objective")
    if not method.done:
        raise ObjectiveError(f"objective: {missing(name)}")
    return getattr(import_module(method.module), name)
