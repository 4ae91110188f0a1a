"""The page of the documentation with every command and every option, written from what `--help` shows."""

from __future__ import annotations

import re
from inspect import getdoc
from typing import Any, Literal, get_args, get_origin

from nearfar.cli import app

OWN = ("--help", "-h", "--version")
LEAD = """
Every command and every option, as ``nearfar COMMAND --help`` shows them. Options that take several values are repeated:
``--objective A --objective B``. ``-o`` is short for ``--out`` in all commands. An existing file is replaced only with
``--overwrite``, except for pages (.html). Settings of a training that have no option of their own are set with
``--set name=value``: ``TrainConfig`` lists them all.

`Commands and functions <../commands.html>`__ has the line of Python for each command. ``nearfar completion bash``
prints the completion for a shell.
"""


def commands_page() -> str:
    """Return the page as reStructuredText."""
    lines = ["Command line", "============", "", LEAD.strip(), ""]
    for group, names in groups().items():
        lines += [group, "-" * len(group), "", "".join(f"- :ref:`nearfar-{name}`: {summary(name)}\n" for name in names)]
    for names in groups().values():
        for name in names:
            lines += command_section(name)
    return "\n".join(lines)


def groups() -> dict[str, list[str]]:
    """Return the names of the commands by their groups in --help."""
    found: dict[str, list[str]] = {}
    for name in app.resolved_commands():
        if name not in OWN:
            found.setdefault(group_of(app[name]), []).append(name)
    return found


def group_of(part: Any) -> str:
    """Return the title under which --help shows a command or an option."""
    return str(part.group[0].name)


def paragraphs(name: str) -> list[str]:
    """Return the paragraphs of the help of a command, before its parameters."""
    text = getdoc(app[name].default_command) or ""
    return [" ".join(block.split()) for block in text.partition("\nParameters\n")[0].split("\n\n") if block.strip()]


def summary(name: str) -> str:
    return escaped(paragraphs(name)[0])


def command_section(name: str) -> list[str]:
    title = f"nearfar {name}"
    lines = ["", f".. _nearfar-{name}:", "", title, "-" * len(title), ""]
    for block in paragraphs(name):
        if block.startswith("Example: "):
            lines += [".. code-block:: shell", "", f"   {block.removeprefix('Example: ')}", ""]
        else:
            lines += [escaped(block), ""]
    lines += [f".. program:: nearfar {name}", ""]
    by_group: dict[str, list[Any]] = {}
    for argument in app[name].assemble_argument_collection(parse_docstring=True):
        if not argument.children and argument.show:
            by_group.setdefault(group_of(argument.parameter), []).append(argument)
    for group in sorted(by_group, key=lambda title: title not in ("Arguments", "Parameters")):
        if group not in ("Arguments", "Parameters"):
            lines += [f".. rubric:: {group}", ""]
        for argument in by_group[group]:
            lines += option(argument)
    return lines


def option(argument: Any) -> list[str]:
    """Return the entry of an option or an argument."""
    names = [name for name in argument.names if not name.startswith(("--no-", "--empty-"))]
    value = value_of(argument.hint)
    if argument.index is not None:  # by its position
        names = [argument.names[0].lstrip("-").upper()]
        value = ""
    heads = ", ".join(f"{name} {value}".strip() for name in names)
    text = escaped(" ".join((argument.parameter.help or "").split()))
    default = default_of(argument)
    notes = ["Required."] if argument.required and argument.index is None else []
    notes += [f"Default: ``{default}``."] if default else []
    return [f".. option:: {heads}", "", f"   {' '.join([text, *notes])}", ""]


def value_of(hint: Any) -> str:
    """Return what stands after an option for its value.

    >>> value_of(int | None), value_of(bool), value_of(Literal["a", "b"]), value_of(tuple[str, ...])
    ('<whole number>', '', '{a|b}', '<text>')
    """
    kinds = [kind for kind in get_args(hint) if kind not in (type(None), Ellipsis)]
    if get_origin(hint) is Literal:
        return "{" + "|".join(str(kind) for kind in kinds) + "}"
    if kinds:
        return value_of(kinds[0])
    names = {"int": "<whole number>", "float": "<number>", "str": "<text>", "Path": "<path>", "bool": ""}
    return names.get(getattr(hint, "__name__", ""), "<text>")


def default_of(argument: Any) -> str:
    """Return the default of an option that has one to show, or ""."""
    shown = argument.show_default
    default = argument.field_info.default
    if not shown or default is argument.field_info.empty:
        return ""
    if callable(shown):
        return str(shown(default))
    return "" if default in (None, False, "", ()) else str(default)


def escaped(text: str) -> str:
    """Return text of --help as reStructuredText, with options, and what stands between backquotes, as code.

    >>> escaped("Use --all, a_ or `nearfar list`; a*b")
    'Use ``--all``, a\\\\_ or ``nearfar list``; a\\\\*b'
    """
    parts = re.split(r"`([^`]+)`", text)
    parts[1::2] = [f"``{code}``" for code in parts[1::2]]
    parts[::2] = [
        re.sub(r"(?<![\w`-])(--?[a-z][a-z-]*)(?![\w-])", r"``\1``", re.sub(r"([*|\\]|_(?!\w))", r"\\\1", part))
        for part in parts[::2]
    ]
    return "".join(parts)
