"""Checks of settings against the annotations of a method, which are a promise where they name numbers or switches."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from inspect import Parameter, signature
from math import inf
from numbers import Integral, Real
from typing import Any, TypeVar

from .quoting import quoted

Self = TypeVar("Self", bound="Checked")

KINDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "True or False",
    "nn.Module": "a module",
    "nn.Linear": "a linear layer",
    "None": "None",
}
ELSEWHERE = {
    "k": ("n_neighbors",),
    "n_constraints": ("n_pairs", "n_quadruplets"),
    "num_constraints": ("n_pairs", "n_quadruplets"),
    "n_chunks": ("n_chunklets",),
    "num_chunks": ("n_chunklets",),
    "chunk_size": ("chunklet_size",),
    "k_genuine": ("n_neighbors",),
    "k_impostor": ("n_impostors",),
    "num_dims": ("n_components",),
    "diagonal_c": ("c",),
    "sparsity_param": ("sparsity",),
    "balance_param": ("balance",),
    "embedding_size": ("embedding_dim",),
    "softmax_scale": ("temperature",),
    "la": ("scale",),
    "m": ("margin",),
    "reducer": ("reduction",),
}
"""Names of settings in metric-learn and pytorch-metric-learning, and what they are called here."""

NOT_SETTINGS = {
    "preprocessor": "pairs are row numbers of the table: fit(X, pairs=pairs, pair_labels=same)",
    "embedding_regularizer": "add a regularizer to the loss: loss + 0.1 * regularizer",
    "indices_tuple": "a loss takes its miner when it is made: TripletLoss(miner=BatchHard())",
    "ref_emb": "here it is ref",
}
"""What stands here instead of arguments of these libraries that are no settings."""

# bounds of arguments that several parts of an objective share
AT_LEAST_ONE = ("num_classes", "embedding_dim", "block", "period", "in_features", "in_channels", "width", "depth")
POSITIVE = ("temperature", "scale")


def type_error_message(parameter: Parameter, value: Any) -> str:
    """Say what is wrong with a value where the annotation allows only numbers or switches; else return "".

    Numbers of NumPy, and arrays and tensors of one number, are numbers; True is no number; 0 and 1 are also switches.

    >>> type_error_message(Parameter("factor", Parameter.KEYWORD_ONLY, annotation="float | None"), "big")
    "factor must be a number or None; got 'big'"
    """
    kinds = {kind.strip() for kind in str(parameter.annotation).split("|")}
    if not kinds <= KINDS.keys() or parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
        return ""
    plain = value.item() if getattr(value, "ndim", None) == 0 else value
    if any(_fits(kind, plain) for kind in kinds):
        return ""
    expected = " or ".join(text for kind, text in KINDS.items() if kind in kinds)
    return f"{parameter.name} must be {expected}; got {quoted(value)}"


def _fits(kind: str, value: Any) -> bool:
    if kind == "None":
        return value is None
    if kind.startswith("nn."):
        return callable(value) and not isinstance(value, type)  # this part of the library does not load PyTorch
    if kind == "bool":
        return isinstance(value, bool) or (isinstance(value, int) and value in (0, 1))
    wanted = Integral if kind == "int" else Real
    return isinstance(value, wanted) and not isinstance(value, bool) and value == value  # NaN equals nothing


@lru_cache
def parameters_of(kind: Any) -> dict[str, Parameter]:
    """Return the arguments that a class takes, by name."""
    return dict(signature(kind).parameters)


def check_settings(estimator: Any) -> None:
    """Raise a ValueError for a setting that has not the type in its annotation; methods check bounds of numbers."""
    kind: Any = type(estimator)
    for name, parameter in parameters_of(kind).items():
        wrong = type_error_message(parameter, getattr(estimator, name, None))
        if wrong:
            raise ValueError(wrong)


def checked(kind: Any, args: tuple[Any, ...], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the given arguments of a class by name, or raise for the first one that does not fit."""
    try:
        given = signature(kind).bind_partial(*args, **settings).arguments
    except TypeError:  # __init__ raises it with a better text, except for names of other libraries
        refuse_unknown(kind, settings)
        return {}
    for name, value in given.items():
        parameter = parameters_of(kind)[name]
        wrong = (
            type_error_message(parameter, value) or _out_of_bounds(name, value) or _without_gradient(kind, name, value)
        )
        if wrong:
            raise ValueError(f"{kind.__name__}: {wrong}")
    return given


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Say which known name may have been meant by an unknown one, or else list the known names.

    >>> suggest_name("minner", ["margin", "miner"]), suggest_name("alpha", ["margin", "miner"])
    ('; did you mean miner?', '; it takes margin, miner')
    >>> suggest_name("k", ["n_neighbors", "max_iter"])
    '; here it is n_neighbors'
    """
    names = list(known)
    if name in NOT_SETTINGS:
        return f"; {NOT_SETTINGS[name]}"
    for ours in ELSEWHERE.get(name, ()):
        if ours in names:
            return f"; here it is {ours}"
    near = get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; it takes {', '.join(names) or 'none'}"


def _without_gradient(kind: Any, name: str, value: Any) -> str:
    """Say that a number would get no gradient: backward passes of our own hold settings constant, but for `learned`."""
    learns = not kind.__module__.startswith("nearfar.") or name in getattr(kind, "learned", ())
    if learns or getattr(value, "ndim", None) != 0 or not getattr(value, "requires_grad", False):
        return ""
    return f"{name} is not learned; got a tensor that requires a gradient, pass float({name})"


def _out_of_bounds(name: str, value: Any) -> str:
    if isinstance(value, Real) and abs(value) == inf:
        return f"{name} must be finite, got {quoted(value)}"
    if name in AT_LEAST_ONE and isinstance(value, Integral) and value < 1:
        return f"{name} must be at least 1, got {quoted(value)}"
    if name in POSITIVE and isinstance(value, Real) and value <= 0:
        return f"{name} must be positive, got {quoted(value)}"
    return ""


def check_options(owner: object, known: Iterable[object], **given: object) -> None:
    """Raise a ValueError that names the owner's class if a keyword's value is none of the known ones."""
    options = tuple(known)
    for name, value in given.items():
        if value not in options:
            raise ValueError(f"{type(owner).__name__}: {no_option(options, name, value)}")


def no_option(options: Iterable[object], name: str, value: object) -> str:
    """Say that a setting is none of its options.

    >>> no_option(("full", None), "refine", "half")
    "refine must be one of 'full', None; got 'half'"
    """
    return f"{name} must be one of {', '.join(map(repr, options))}; got {quoted(value)}"


def refuse_unknown(kind: Any, settings: Iterable[str]) -> None:
    """Raise a TypeError for a setting that a class does not take; it says what was probably meant."""
    known = parameters_of(kind)
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values()):
        return
    for name in settings:
        if name not in known:
            detail = f"got an unexpected keyword argument {quoted(name)}{suggest_name(name, known)}"
            raise TypeError(f"{kind.__name__} {detail}")


class Checked:
    """A class whose settings are checked before its own checks; a ValueError names the class and the setting."""

    def __new__(cls: type[Self], *args: Any, **settings: Any) -> Self:
        checked(cls, args, settings)
        kind: Any = cls
        if (args or settings) and kind.__init__ is object.__init__:  # which Python forgives beside a `__new__`
            raise TypeError(f"{kind.__name__}() takes no arguments")
        return super().__new__(cls)
