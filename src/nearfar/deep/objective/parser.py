"""Objectives as text: ``"AMSoftmaxLoss(scale=20, margin=0.1) + 1.0*JRS()"``.

The text may contain names of the catalog, losses and miners of your own modules (``package.module:Name``), keyword
literals, sums and weights (``+`` and ``*``), and nothing else. It is parsed, never run as code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from inspect import Parameter, signature
from math import isfinite, prod
from types import FunctionType
from typing import Any

from torch import nn

from ...catalog import BY_NAME, METHODS, suggest_method
from ...expressions import (
    Call,
    ExpressionError,
    Literal,
    Node,
    Plus,
    Times,
    is_number,
    is_plain,
    parse,
    plain,
    settings_of,
    shown,
)
from ...trust import OwnCodeError, TrustError, import_own
from .terms import Sum, Term

KINDS = ("loss", "regularizer", "head", "memory", "composition", "miner", "distance")
PAIR_NETWORKS = ("MultiScaleRelationNet", "ContinuousSimilarityNet", "SiameseHead")  # `pair_networks` has their terms
TERM = "nearfar.deep.Term"
OWN = "a class of losses or miners, or of modules"
EXPECTED = "a sum of losses such as 'TripletLoss(margin=0.2)'"


class ObjectiveError(ValueError):
    """Text of an objective that is invalid; the message names the part."""


def parse_objective(
    text: str,
    *,
    num_classes: int | None = None,
    embedding_dim: int | None = None,
    class_counts: Sequence[int] | None = None,
    class_sizes: Sequence[int] | None = None,
) -> Term:
    """Build an objective from its text.

    Parameters
    ----------
    text : str
        Text of the objective, for example ``"TripletLoss(margin=0.1, miner=BatchHard()) + 0.02*EnergyConfusion()"``.
    num_classes : int, optional
        Number of classes, for methods that take it if the text does not give it.
    embedding_dim : int, optional
        Number of dimensions of the embeddings, for methods that take it if the text does not give it.
    class_counts : sequence of int, optional
        Number of samples of each class, for methods that take it if the text does not give it, where batches are drawn
        from all samples alike.
    class_sizes : sequence of int, optional
        The same, however batches are drawn.

    Raises
    ------
    ObjectiveError
        If the text contains anything but names of the catalog, your own classes, keyword literals, sums and weights.
    TrustError
        If the text comes from a file and names a module that is not trusted.

    Examples
    --------
    >>> parse_objective("TripletLoss(margin=0.1) + 0.5*TripletLoss(margin=0.3)").names()
    ['TripletLoss', 'TripletLoss_2']
    """
    sizes: dict[str, Any] = {"num_classes": num_classes, "embedding_dim": embedding_dim}
    sizes |= {"class_counts": class_counts, "class_sizes": class_sizes}
    known = {name: size for name, size in sizes.items() if size is not None}
    try:
        return _build_term(parse(text, EXPECTED), known, "is not a loss")
    except (ExpressionError, OwnCodeError) as error:
        raise ObjectiveError(f"objective: {error}") from error


def _build(node: Node, sizes: dict[str, Any]) -> Any:
    if isinstance(node, Plus):
        return Sum([part for term in node.operands for part in _summand(term, sizes).parts()])
    if isinstance(node, Times):
        return _weighted(node, sizes)
    if isinstance(node, Call):
        return _made(node, sizes)
    raise ExpressionError(f"{shown(str(node))} is not allowed, only names, keywords, + and *")


def _build_term(node: Node, sizes: dict[str, Any], otherwise: str) -> Term:
    made = _build(node, sizes)
    if not isinstance(made, Term):
        if type(made).__module__.startswith("nearfar."):
            hint = ""
        else:  # a user's class that is not a term, such as a loss of another library
            hint = f"; one of your own is a subclass of {TERM}"
        raise ExpressionError(f"{shown(str(node))} {otherwise}{hint}")
    return made


def _summand(node: Node, sizes: dict[str, Any]) -> Term:
    return _build_term(node, sizes, "is not a loss that can be added or weighted")


def _weighted(node: Times, sizes: dict[str, Any]) -> Term:
    """Return a term times the product of its factors."""
    numbers = [plain(one) for one in node.operands if is_number(one)]
    others = [one for one in node.operands if not is_number(one)]
    if not numbers or len(others) != 1:
        raise ExpressionError(f"{shown(str(node))} must multiply a number by a loss")
    weight: float = prod(map(float, numbers))
    if not isfinite(weight):
        raise ExpressionError(f"{shown(str(node))}: the weight is too large")
    return _summand(others[0], sizes) * weight


def _made(call: Call, sizes: dict[str, Any]) -> Any:
    make = _find(call)
    settings = _settings(make, call, sizes)
    try:
        return make(**settings)
    except (ObjectiveError, TrustError):  # of an objective inside, such as the loss of HORDE
        raise
    except (TypeError, OverflowError) as error:
        message = str(error).removeprefix(f"{make.__name__}: ")  # our errors begin with the class, Python's do not
        raise ExpressionError(f"{call.name}: {message}") from error
    except ValueError as error:
        raise ExpressionError(str(error)) from error


def _settings(make: Any, call: Call, sizes: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a method: the sizes that it takes, overridden by the settings in the text."""
    takes = signature(make).parameters
    known = {key: one for key, one in takes.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    hands_on = bool(call.module) and any(one.kind is one.VAR_KEYWORD for one in takes.values())
    call = _with_inner_text(make, call)
    inner = _inner_sizes(make, call, known, sizes)
    given = settings_of(call, known, lambda node: _value(node, inner), hands_on=hands_on)
    return {key: size for key, size in sizes.items() if key in known} | given


def _with_inner_text(make: Any, call: Call) -> Call:
    """Return the call with its inner objective as text, for a method that builds several terms from that text.

    The inner objective may come first without its name, as in Python: ``Matryoshka(TripletLoss(), dims=(2, 4))``.
    """
    setting = getattr(make, "inner_text", None)
    if setting is None:
        return call
    arguments = list(call.arguments)
    if arguments and not arguments[0].name:
        arguments[0] = replace(arguments[0], name=setting)
    for place, argument in enumerate(arguments):
        if argument.name == setting and not is_plain(argument.value):
            arguments[place] = replace(argument, value=Literal(str(argument.value)))
    return replace(call, arguments=tuple(arguments))


def _inner_sizes(make: Any, call: Call, takes: dict[str, Parameter], sizes: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes for methods inside a method, whose `inner_dim` names the setting that holds their dimension."""
    setting = getattr(make, "inner_dim", None)
    if setting is None:
        return sizes
    given = {argument.name: argument.value for argument in call.arguments}
    if setting in given:
        width = plain(given[setting])
    else:
        width = takes[setting].default
    return {**sizes, "embedding_dim": width}


def _value(node: Node, sizes: dict[str, Any]) -> Any:
    """Return the value of a setting: a literal, or another method, such as a miner or the loss inside a memory."""
    if is_plain(node):
        return plain(node)
    return _build(node, sizes)


def _find(call: Call) -> Any:
    """Return the class of a name; nothing of a user's own class has been called yet."""
    name = call.name
    if call.module:
        return import_own(name, _is_part, OWN)
    if name in PAIR_NETWORKS:
        return import_module("nearfar.deep.networks.pair_terms").TERMS[name]
    method = BY_NAME.get(name)
    if method is None:
        names = [m.name for m in METHODS if m.kind in KINDS]
        if "." in name:
            own = "; one of your own is written package.module:Name"
        else:
            own = suggest_method(name, names, cutoff=0.4)
        raise ExpressionError(f"no method is called {shown(name)}{own}")
    if method.kind not in KINDS:
        raise ExpressionError(f"{name} is a {method.kind}, not part of an objective")
    return getattr(import_module(method.module), name)


def _is_part(found: Any, module: str) -> bool:
    """Return whether an object is a class of terms, modules or miners, without running any of its code.

    Objects of any class with a ``__call__`` could be called; that of a miner takes the argument ``rows``.
    """
    if not isinstance(found, type):
        return False
    if issubclass(found, nn.Module):
        return True
    calls = next((vars(kind)["__call__"] for kind in found.__mro__ if "__call__" in vars(kind)), None)
    return isinstance(calls, FunctionType) and [*signature(calls).parameters][1:2] == ["rows"]
