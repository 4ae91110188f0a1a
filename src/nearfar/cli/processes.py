"""The processes of a command: started one per device, and what they print."""

from __future__ import annotations

import sys
from typing import NoReturn

from ..train.launching import leave_message, run_processes
from .advice import HOW_TO_CONTINUE
from .encoding import say
from .own_code import folder_of_own_modules


def launch(devices: int) -> NoReturn:
    """Run this command again, one process per device; print only the message of the first to fail.

    The processes import modules from the same places as this one.
    """
    if devices < 1:
        raise ValueError(f"--devices: expected 1 or more, got {devices}")
    words = sys.argv[1:]
    folder = folder_of_own_modules(words)
    code, message = run_processes(words, devices, own_modules=folder, advice=HOW_TO_CONTINUE["train"])
    if message:
        say(message, file=sys.stderr)
    sys.exit(code)


def print_message(message: str) -> None:
    """Print why the command ends; one of several processes leaves the message to the command that started it."""
    if not leave_message(message) and sys.stderr is not None:  # if stderr is closed, print would use stdout
        say(f"nearfar: {message}", file=sys.stderr)
