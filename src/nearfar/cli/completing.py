"""``nearfar completion``: the script by which a shell completes commands and options."""

from __future__ import annotations

from typing import Literal

from .encoding import say


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print the script by which your shell completes commands and options.

    Save it where the shell looks for it. For bash, this is ~/.local/share/bash-completion/completions/nearfar; for zsh,
    a file _nearfar in a folder of fpath; for fish, ~/.config/fish/completions/nearfar.fish.

    Example: nearfar completion bash

    Parameters
    ----------
    shell
        The shell.
    """
    from . import app

    say(app.generate_completion(shell=shell))
