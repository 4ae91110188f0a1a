"""Messages of the library on the command line: the argument ``label=`` is the option ``--label`` there."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from cyclopts import App

from .setting_texts import setting_texts

SET = "--set "
WITH_SETTINGS = ("train", "compare")
ARGUMENT = re.compile(
    r"""(?<!\w)'(?:[^'\\]|\\.)*'|"[^"]*"|`[^`]*`"""  # what is quoted, such as the text of a loss, stays as it is
    r"""|(?<![\w./-])(?<!\w\()(?!name=value\b)(?P<name>[a-z]\w*)=(?P<value>True\b|False\b|'[^']*'|[\w./:-]+|(?![\w('"\[{]))"""
)
FIRST = re.compile(r"(?P<name>[a-z]\w*)(?=: )")


def with_option_names(message: str, options: Mapping[str, str], flags: Collection[str] = ()) -> str:
    """Return a message that names arguments, with the options of a command instead.

    Parameters
    ----------
    message : str
        A message in which arguments are written ``name=`` or ``name=value``, or as its first word: ``name: expected``.
    options : mapping of str to str
        Option of each argument.
    flags : collection of str
        Options without a value.

    Examples
    --------
    >>> options = {"dims": "--dims", "add": "--add"}
    >>> with_option_names("dims: expected 1 or more; leave out add=True", options, flags=["--add"])
    '--dims: expected 1 or more; leave out --add'
    >>> with_option_names("no such trunk (add=True), not in Loss(dims=3)", options, flags=["--add"])
    'no such trunk (--add), not in Loss(dims=3)'
    >>> with_option_names("options are written name=value", {"name": "--name"})
    'options are written name=value'
    >>> with_option_names("give the classes with label='NAME', not \\"label='x'\\"", {"label": "--label"})
    'give the classes with --label NAME, not "label=\\'x\\'"'
    """

    def as_option(found: re.Match[str]) -> str:
        option = options.get(found["name"] or "")
        if option is None:
            return found[0]
        value = found["value"]
        if " " not in value:
            value = value.strip("'")
        if value == "" or (value == "True" and option in flags):
            return option
        if value in ("True", "False"):
            value = value.lower()
        return f"{option}={value}" if option.startswith(SET) else f"{option} {value}"

    if message.startswith("--"):  # of the command line itself
        return message
    first = FIRST.match(message)
    if first is not None and not options.get(first["name"], SET).startswith(SET):
        message = options[first["name"]] + message[first.end() :]
    return ARGUMENT.sub(as_option, message)


def options_of(app: App, command: str) -> dict[str, Any]:
    """Return the options and the flags of a command; settings of a training without an option are set by --set."""
    options: dict[str, str] = {}
    if command in WITH_SETTINGS:
        options |= {name: f"{SET}{name}" for name in setting_texts()}
    arguments = app[command].assemble_argument_collection() if command in app else ()
    given = [one for one in arguments if one.index is None and one.name.startswith("-")]
    options |= {one.field_info.name: one.name for one in given}
    return {"options": options, "flags": [one.name for one in given if one.hint is bool]}
