"""Code of a user's own that a text names, ``package.module:Name``: which modules are imported, and what is taken.

A text that is typed, as an option of a command or an argument in Python, may name any module. A text that a file
holds, as the settings of a run from someone else, may name only modules that are trusted: those in the
environment variable NEARFAR_TRUST, or in the argument ``trust``, which is an option of commands. What a module holds
under the name is checked before anything in it is called.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

VARIABLE = "NEARFAR_TRUST"

LIBRARIES = (*sys.stdlib_module_names, "torch", "numpy", "scipy", "sklearn", "joblib", "accelerate", "pandas", "pip")
"""What these hold is never a user's own. That saves a user a detour; what keeps strangers out is trust."""


class TrustError(ValueError):
    """A file names code that nobody has allowed to run; the message is one line that says how to allow it."""


class OwnCodeError(ValueError):
    """A module of a user's own is not there, or holds something else than a text names; the message is one line."""


class Origin(NamedTuple):
    """Where texts come from that nobody has typed.

    Attributes
    ----------
    file : the file that holds them
    trusted : modules that they may name
    """

    file: str
    trusted: tuple[str, ...] = ()


class TextOfFile(str):
    """A text that a file holds, wherever it is copied to, such as the objective of an estimator that was loaded."""

    origin: Origin

    @classmethod
    def of(cls, text: str, origin: Origin) -> TextOfFile:
        """Return the text of a file."""
        found = cls(text)
        found.origin = origin
        return found


_origin: ContextVar[Origin | None] = ContextVar("origin", default=None)
_trusted: ContextVar[tuple[str, ...]] = ContextVar("trusted", default=())


def modules_of(trust: str | Collection[str], what: str = "trust") -> tuple[str, ...]:
    """Return the names of modules, given with commas or one by one.

    Raises
    ------
    ValueError
        If one is no name of a module.

    Examples
    --------
    >>> modules_of("mylosses, mytrunks.small")
    ('mylosses', 'mytrunks.small')
    """
    texts = [trust] if isinstance(trust, str) else list(trust)
    names = [name.strip() for text in texts for name in str(text).split(",")]
    names = [name for name in names if name]
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"{what}: expected names of modules such as mylosses, got {name!r:.60}")
    return tuple(names)


@contextmanager
def trusting(*modules: str) -> Iterator[None]:
    """Trust modules for a while: files that are read inside may name them."""
    token = _trusted.set((*_trusted.get(), *modules_of(modules)))
    try:
        yield
    finally:
        _trusted.reset(token)


def trusted_modules() -> tuple[str, ...]:
    """Return the modules that are trusted for a while, for a process that is started."""
    return _trusted.get()


@contextmanager
def named_by(origin: Origin | None) -> Iterator[None]:
    """Take the texts that are read inside as those of a file; None leaves it as it is outside."""
    token = _origin.set(origin or _origin.get())
    try:
        yield
    finally:
        _origin.reset(token)


def is_trusted(module: str, origin: Origin) -> bool:
    """Return whether the texts of a file may name a module: it is trusted itself, or its package is."""
    everywhere = modules_of(os.environ.get(VARIABLE, ""), VARIABLE)
    trusted = (*origin.trusted, *_trusted.get(), *everywhere)
    return any(module == name or module.startswith(f"{name}.") for name in trusted)


def refuse_untrusted(module: str, name: str, origin: Origin | None) -> None:
    """Raise a TrustError where a file names code of a module that is not trusted; None is no file."""
    if origin is None or is_trusted(module, origin):
        return
    raise TrustError(
        f"{origin.file} names {name:.100}, which is code; if you know its author, allow it with trust={module!r} "
        f"or with {VARIABLE}={module} in the environment"
    )


def import_own(
    name: str, accepts: Callable[[Any, str], bool], expected: str, *, libraries: Sequence[str] = LIBRARIES
) -> Any:
    """Import what a text names, if it may; nothing of it has been called when it is returned.

    Parameters
    ----------
    name : str
        ``package.module:Name``.
    accepts : callable
        Says of what the module holds, and of the module's name, whether it is what the text may name there.
    expected : str
        What that is, in words.
    libraries : sequence of str
        Packages that hold nothing of a user's own.

    Raises
    ------
    TrustError
        If the text is from a file and the module is not trusted; the module is not imported.
    OwnCodeError
        If there is no such module, or it holds something else under the name.
    """
    module, _, attribute = name.partition(":")
    refuse_untrusted(module, name, _origin.get())
    if module.partition(".")[0] in libraries:
        raise OwnCodeError(f"{name}: expected something from a module of your own, not from {module}")
    held = _imported(module, name)
    if attribute not in held:
        raise OwnCodeError(f"{name}: module {module!r} has no attribute {attribute!r}")
    found = held[attribute]
    if not accepts(found, module):
        raise OwnCodeError(f"{name}: expected {expected}, got {_description(found)}")
    return found


def is_defined_in(found: Any, module: str) -> bool:
    """Return whether a function or a class was written in a module or in its package, not imported into it.

    >>> import os
    >>> is_defined_in(os.system, "os"), is_defined_in(Origin, "nearfar.trust")
    (False, True)
    """
    home = getattr(found, "__module__", None)
    return isinstance(home, str) and home.partition(".")[0] == module.partition(".")[0]


def is_ones_own(function: FunctionType) -> bool:
    """Return whether a function is written in a file of the user, or in a module that is trusted.

    A file of the user exists, and lies outside of the standard library and of the packages that are installed. What a
    decorator wraps counts, not the decorator.

    >>> import shutil
    >>> is_ones_own(shutil.rmtree)
    False
    """
    inner = unwrap(function)
    module = str(getattr(inner, "__module__", ""))
    if module == "__main__" or is_trusted(module, _origin.get() or Origin("")):
        return True
    code = getattr(inner, "__code__", None)
    return code is not None and is_ones_own_file(code.co_filename)


def is_ones_own_file(name: str) -> bool:
    """Return whether a file exists outside of the standard library and of the packages that are installed."""
    file = Path(name)
    if not file.is_file():  # such as <string>, which libraries make functions of
        return False
    file = file.resolve()
    installed = set(file.parts) & {"site-packages", "dist-packages"}
    return not installed and not any(file.is_relative_to(folder) for folder in installed_folders())


@cache
def installed_folders() -> tuple[Path, ...]:
    """Return the folders of the standard library and of the packages that are installed."""
    paths = sysconfig.get_paths()
    return tuple({Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def _imported(module: str, name: str) -> dict[str, Any]:
    """Import a module; errors in its code other than failed imports are raised unchanged."""
    try:
        return vars(import_module(module))
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        if absent:
            hint = "; the folder that holds it must be on PYTHONPATH"
        else:
            hint = ""
        raise OwnCodeError(f"{name}: {error}{hint}") from error


def _description(found: Any) -> str:
    """Describe without asking the object itself, whose `repr` is code, too."""
    kind = type(found).__name__
    if isinstance(found, type):
        return f"the class {found.__module__}.{found.__qualname__}"[:100]
    if found is None or isinstance(found, (bool, int, float, str)):
        return f"{found!r:.60}"
    where = getattr(found, "__module__", None)
    return f"a {kind} of {where}" if isinstance(where, str) else f"a {kind}"
