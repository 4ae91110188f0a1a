"""The command line.

``nearfar data | inspect | train | fit | evaluate | embed | index | search | serve | duplicates | groups |
label-next | suspects | adapt | report | card | push | compare | export | list | doctor | completion``.

Its modules import what computes inside of their functions, so that ``nearfar --help`` starts at once.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import NoReturn

from cyclopts import App, CycloptsError, Group, Parameter

from .. import __version__
from ..children import end_with, isolate_children
from ..extras import NEEDS, hint, require
from ..io.untrusted import DEEPEST
from ..progress import listening
from ..quoting import PATH, shorten
from ..train.launching import LAUNCHER, leave_message
from . import (
    adapting,
    collecting,
    completing,
    describing,
    diagnosing,
    embedding,
    evaluating,
    exporting,
    fetching,
    fitting,
    indexing,
    inspecting,
    listing,
    reporting,
    searching,
    serving,
    suspecting,
    training,
)
from .advice import HOW_TO_CONTINUE, memory_advice, skip_bad_advice, with_setting
from .bars import progress_bars
from .encoding import WRITABLE, printable
from .misspelled import parser_message, suggest_near_path
from .option_names import options_of, with_option_names
from .own_code import cause_in_own_code, importing_own_modules, message_on_own_code
from .processes import print_message
from .signals import Stopping, exit_code

MAX_MESSAGE_LENGTH = 1500
"""Maximum number of characters of a message. Our errors shorten what they quote; those of libraries are cut here."""

LEAST_COLUMNS = 40
"""Minimum number of characters of a line of help and tables."""

MAX_PARSER_MESSAGE_LENGTH = 500
"""Maximum number of characters of a message of the command-line parser, which quotes its whole input."""

MOST_REMEMBERED = 1000
"""Maximum number of warnings that a command remembers, because a server may run for long."""

app = App(
    name="nearfar",
    default_parameter=Parameter(negative=()),  # no --no-quiet
    version=__version__,
    help=(
        "Metric learning: learn a distance from labeled images, rows or embeddings, score it, and search with it.\n\n"
        "nearfar COMMAND --help shows the options of a command, and an example."
    ),
    help_format="markdown",
    suppress_keyboard_interrupt=False,  # `main` handles it, and says how to continue
)

CHECK = Group("Data", sort_key=0)
TRAIN = Group("Train", sort_key=1)
EVALUATE = Group("Evaluate", sort_key=2)
SEARCH = Group("Embed and search", sort_key=3)
SHARE = Group("Share", sort_key=4)
INFORM = Group("Help", sort_key=5)

app.command(fetching.data, group=CHECK)
app.command(inspecting.inspect, group=CHECK)
app.command(training.train, group=TRAIN)
app.command(training.compare, group=TRAIN)
app.command(fitting.fit, group=TRAIN)
app.command(evaluating.evaluate, group=EVALUATE)
app.command(reporting.report, group=EVALUATE)
app.command(suspecting.suspects, group=EVALUATE)
app.command(embedding.embed, group=SEARCH)
app.command(indexing.index, group=SEARCH)
app.command(searching.search, group=SEARCH)
app.command(collecting.duplicates, group=SEARCH)
app.command(collecting.groups, group=SEARCH)
app.command(collecting.label_next, group=SEARCH)
app.command(serving.serve, group=SEARCH)
app.command(adapting.adapt, group=SEARCH)
app.command(describing.card, group=SHARE)
app.command(describing.push, group=SHARE)
app.command(exporting.export, group=SHARE)
app.command(listing.list_methods, name="list", group=INFORM)
app.command(diagnosing.doctor, group=INFORM)
app.command(completing.completion, group=INFORM)
for flag in ("--help", "--version"):
    app[flag].group = INFORM


def main() -> None:
    """Run the command line. Bad input prints one line and exits with 2; Ctrl-C exits with 130, SIGTERM with 143."""
    if LAUNCHER in os.environ:
        end_with(int(os.environ.pop(LAUNCHER)))
    widen_narrow_output()
    usual = warnings.formatwarning
    warnings.formatwarning = each_once()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors=WRITABLE)  # names of files may not be UTF-8, and nor may the terminal
    try:
        with isolate_children(), Stopping(), listening(progress_bars(sys.argv[1:])):
            check_words(sys.argv[1:])
            if not {"--help", "-h"} & set(sys.argv[1:]):
                require(*NEEDS.get(next(iter(sys.argv[1:]), ""), ()))
            with importing_own_modules(sys.argv[1:]):
                app(sys.argv[1:], exit_on_error=False, print_error=False)
    except KeyboardInterrupt as stopped:
        _stop("stopped" + HOW_TO_CONTINUE.get(next(iter(sys.argv[1:]), ""), ""), exit_code(stopped))
    except CycloptsError as error:
        command = next(iter(sys.argv[1:]), "")
        message = shorten(parser_message(error, sys.argv[1:]), MAX_PARSER_MESSAGE_LENGTH)
        _stop(with_setting(message, command), 2)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        command = next(iter(sys.argv[1:]), "")
        known = message_of(error, command)
        if known is not None and not os.environ.get("NEARFAR_DEBUG"):
            known = with_option_names(known, **options_of(app, command))
            _stop(suggest_near_path(known, sys.argv[2:]), 2)
        if leave_message(traceback.format_exc()):
            sys.exit(1)
        raise
    finally:
        warnings.formatwarning = usual


def widen_narrow_output() -> None:
    """Write lines of at least 40 characters, because the printer of tables does not end in no columns."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) < LEAST_COLUMNS:
        os.environ["COLUMNS"] = str(LEAST_COLUMNS)


def check_words(words: Sequence[str]) -> None:
    """Refuse words with so many brackets that the command-line parser, which reads them as JSON, would crash."""
    for word in words:
        if max(word.count("["), word.count("{")) > DEEPEST:
            raise ValueError(f"{shorten(word)}: expected at most {DEEPEST} opening brackets in a word")


def message_of(error: Exception, command: str) -> str | None:
    """Return one line on an error of the user; None for a bug in nearfar, whose traceback should be printed."""
    message = memory_advice(error, command) or message_on_own_code(error)
    if message is None and isinstance(error, (ValueError, OSError, ImportError)):
        if isinstance(error, ModuleNotFoundError):
            message = hint(error, command)
        else:
            message = text_of(error)
        message += cause_in_own_code(error) + skip_bad_advice(error, command)
    if message is None:
        return None
    return " ".join(message.split()) or type(error).__name__


def text_of(error: Exception) -> str:
    """Return the text of an error, with the names of files shortened if the error is one of the system."""
    # a subclass that writes its own text, such as that of a library, keeps it
    if isinstance(error, OSError) and type(error).__str__ is OSError.__str__ and isinstance(error.filename, str):
        return f"{shorten(error.filename, PATH)}: {error.strerror}"
    return str(error)


def each_once() -> Callable[..., str]:
    """Return a format of warnings in one line, without the position in the code, which does not help users.

    A warning that was written already, as when a command reads its data twice, becomes "", which writes nothing.
    """
    written: set[str] = set()

    def one_line(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        text = f"nearfar: warning: {printable(' '.join(str(message).split()))}\n"
        if text in written:
            return ""
        if len(written) < MOST_REMEMBERED:
            written.add(text)
        return text

    return one_line


def _stop(message: str, code: int) -> NoReturn:
    print_message(shorten(message, MAX_MESSAGE_LENGTH))
    sys.exit(code)
