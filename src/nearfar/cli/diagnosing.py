"""``nearfar doctor``: what is installed, what is missing for which command, and where files are kept."""

from __future__ import annotations

import sys

from .encoding import say


def doctor() -> None:
    """Show versions, devices, what is missing for which command, and where files are kept.

    Example: nearfar doctor

    Exits with 1 if a required package is not installed.
    """
    from ..workflows.diagnosing import diagnosis

    text, missing = diagnosis()
    say(text)
    if missing:
        sys.exit(1)
