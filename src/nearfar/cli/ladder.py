"""``nearfar train --ladder``: what does not work with it, and what it prints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .bars import writes_lines
from .encoding import say

if TYPE_CHECKING:
    from ..train.timing.time_limit import TimeLimit


def check_ladder_options(ladder: str | None, rung: str | None, *, resume: bool, devices: int) -> None:
    """Refuse options of the table that do not work together.

    Raises
    ------
    ValueError
        One line that names the option.
    """
    option = ""
    if ladder in ("yes", "full"):
        option = "--ladder"
    elif rung is not None:
        option = "--rung"
    if option and resume:
        raise ValueError(f"{option}: works only at the start of a run, not with --resume")
    if option and devices != 1:
        raise ValueError(f"{option}: runs on one device, got --devices {devices}")
    if rung == "auto" and ladder not in ("yes", "full"):
        raise ValueError("--rung auto: takes the rung that the table recommends; also give --ladder yes or full")


def time_limit(minutes: float, ladder: str | None, *, resume: bool, devices: int) -> TimeLimit:
    """Return the limit that --minutes sets, from now on; the imports of a training are a part of them.

    Raises
    ------
    ValueError
        If the number is not valid, or --minutes does not work with another option.
    """
    begun = perf_counter()
    from ..train.timing.time_limit import TimeLimit

    if resume:
        raise ValueError("--minutes: works only at the start of a run; with --resume, it continues to its planned end")
    if devices != 1:
        raise ValueError(f"--minutes: works on one device, got --devices {devices}")
    if ladder == "full":
        raise ValueError("--minutes: does not work with --ladder full, which takes as long as five trainings")
    return TimeLimit(minutes, begun=begun)


def printers_of_ladder(*, quiet: bool) -> dict[str, Callable[[Any], None]]:
    """Return the functions that print what `climb` finds: on stderr why there is no ladder, and lines in a file."""
    if quiet:
        return dict.fromkeys(("on_note", "on_line", "on_ladder", "on_choice"), _ignore)
    return {
        "on_note": _say_on_stderr,
        "on_line": _say_on_stderr if writes_lines() else _ignore,
        "on_ladder": lambda found: say(f"{found}\n", flush=True),
        "on_choice": _say_choice,
    }


def _ignore(news: object) -> None:
    """Print nothing."""


def _say_on_stderr(text: str) -> None:
    say(text, file=sys.stderr, flush=True)


def _say_choice(title: str) -> None:
    others = "--rung chooses another rung, --ladder no skips the table"
    say(f"Continuing with: {title} ({others}).\n", flush=True)
