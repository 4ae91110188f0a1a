"""Commands as a user types them, run in the process of the tests."""

import sys

from nearfar import cli


def run(capsys, monkeypatch, *words):
    """Run a command in this process; returns (exit code, standard output, standard error)."""
    monkeypatch.setattr(sys, "argv", ["nearfar", *map(str, words)])
    try:
        cli.main()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err
