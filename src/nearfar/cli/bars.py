"""Whether a command shows how far it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..progress import Bars, Listener
from .options import is_first


def bars_for(words: Sequence[str]) -> Listener | None:
    """Bars where somebody sees them: on a terminal, by one process, not with --quiet among the words of the command."""
    terminal = sys.stderr is not None and sys.stderr.isatty()  # there is none where it was closed, as in a service
    if terminal and is_first() and "--quiet" not in words:
        return Bars()
    return None
