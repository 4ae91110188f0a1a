"""Every command that the README and the documentation show is one that the command line accepts."""

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("torch")

from nearfar.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```", re.S | re.M)
INDENTED = re.compile(r"^    (nearfar .*)$", re.M)


def commands_of(text):
    """Return the commands of a page as lines; a line that is indented, or follows a backslash, continues the last."""
    commands = INDENTED.findall(text)
    for language, block in BLOCK.findall(text):
        if language not in ("", "shell"):
            continue
        continued = False
        for line in block.splitlines():
            if commands and (continued or (line.startswith("    ") and block.startswith("nearfar"))):
                commands[-1] += " " + line.strip().removesuffix("\\")
            elif line.startswith("nearfar "):
                commands.append(line.removesuffix("\\"))
            continued = line.endswith("\\") and (continued or line.startswith("nearfar "))
    return commands


COMMANDS = [
    pytest.param(command, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, command in enumerate(commands_of(page.read_text()))
]


def test_the_pages_have_commands():
    assert len(COMMANDS) > 150


@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_command_is_accepted(command):
    words = [word for word in shlex.split(command.partition(" > ")[0], comments=True)[1:] if word not in ("...", "…")]
    called, _, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    assert called is not None


def test_a_wrong_option_would_be_found():
    words = ["train", "photos", "--out", "run", "--no-such-option", "1"]
    with pytest.raises(Exception, match="--no-such-option"):
        app.parse_args(words, exit_on_error=False, print_error=False)
