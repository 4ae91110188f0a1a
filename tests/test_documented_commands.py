"""Every command that a page, a notebook or a docstring shows is one that the command line, or the script, accepts."""

import ast
import json
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("torch")

from cyclopts import MissingArgumentError

from nearfar.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "bench" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
MODULES = [
    path for folder in ("src/nearfar", "bench", "tools", "examples") for path in sorted((ROOT / folder).rglob("*.py"))
]
BEGIN = r"(?:[A-Z_]+=\S+ )*(?:nearfar|!nearfar|(?:PYTHONPATH=\S* )?python3? (?:bench|tools|examples)/\S+\.py)(?: |$)"
COMMAND = re.compile(rf"^(?:Example: |\$ )?({BEGIN}.*)$")
FENCED = re.compile(r"^( *)```[^\n]*\n(.*?)^\1```", re.S | re.M)
INLINE = re.compile(rf"`({BEGIN}[^`<]*)`")
END = re.compile(r" (?:>|\||&&|#|;) ?| {3,}\[| {3,}(?![-\"<\\{\[])")
"""Where a command ends: at another one, at a comment, or at a column with what it does."""


def commands_of(lines):
    """Return the commands among lines; a line after a backslash, or an indented one, continues the last."""
    found, depth, continued = [], None, False
    for line in lines:
        text = line.strip()
        begun = COMMAND.match(text)
        indent = len(line) - len(line.lstrip())
        if begun and not continued:
            found.append(begun[1])
            depth = indent
        elif depth is not None and text and (continued or indent > depth):
            found[-1] += " " + text
        else:
            depth = None
        continued = depth is not None and text.endswith("\\")
        if depth is not None:
            found[-1] = found[-1].rstrip("\\")
    return found


def of_page(text):
    """Return the commands in blocks of a page, whatever their language, and those that are indented."""
    blocks = [block for _, block in FENCED.findall(text)]
    indented = re.findall(r"(?:^    .*\n)+", FENCED.sub("", text), re.M)
    return [command for block in [*blocks, *indented] for command in commands_of(block.splitlines())]


def of_notebook(path):
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    return [command for cell in cells for command in of_page(cell) + commands_of(re.findall(r"^!.*", cell, re.M))]


def of_module(path):
    """Return the commands in the docstrings of a module."""
    found = []
    text = path.read_text()
    if "nearfar " not in text and "python " not in text:
        return found
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (words := ast.get_docstring(node)):
            found += [command for command in commands_of(words.splitlines()) if not is_prose(command)]
    return found


def is_prose(command):
    """Return whether a line of a docstring begins with the name of the library, and is no command."""
    words = command.split()
    return words[0] == "nearfar" and (len(words) < 2 or words[1] not in NAMES)


NAMES = {name for name in app if not name.startswith("-")} | {"--help", "--version"}


def named(path, commands):
    name = path.relative_to(ROOT).with_suffix("").as_posix()
    return [pytest.param(command, id=f"{name}-{number}") for number, command in enumerate(commands)]


COMMANDS = [
    *(param for page in PAGES for param in named(page, of_page(page.read_text()))),
    *(param for path in NOTEBOOKS for param in named(path, of_notebook(path))),
    *(param for path in MODULES for param in named(path, of_module(path))),
]
PARTS = [param for page in PAGES for param in named(page, INLINE.findall(FENCED.sub("", page.read_text())))]


def words_of(command):
    """Return the words of a command, without what the shell does before and after it."""
    text = re.sub(r"\$\(\(.*?\)\)|\$\w+", "1", command)
    text = END.split(re.sub(r"^(?:[A-Z_]+=\S* )*!?", "", text))[0]
    words = [word for word in shlex.split(text) if word not in ("...", "…")]
    return words[2:] if words[0].startswith("python") else words[1:], words


@cache
def options_of(script):
    """Return the options that a script, or a module of bench/ that it imports, names in quotes."""
    text = script.read_text()
    found = set(re.findall(r"[\"'](-{1,2}[a-z][\w-]*)[\"']", text))
    for name in re.findall(r"^(?:from|import) \.?(?:bench\.)?(\w+)", text, re.M):
        beside = script.parent / f"{name}.py"
        if beside.exists() and beside != script:
            found |= options_of(beside)
    return found | {f"--no-{option[2:]}" for option in found} | {"-h", "--help"}


def fault_of(command, *, whole=True):
    """Say what is wrong with a command; nothing if it is accepted."""
    words, all_words = words_of(command)
    if all_words[0].startswith("python"):
        script = ROOT / all_words[1]
        if not script.exists():
            return f"no script {all_words[1]}"
        given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
        return ", ".join(f"{script.name} has no {option}" for option in given if option not in options_of(script))
    try:
        app.parse_args(words, exit_on_error=False, print_error=False)
    except MissingArgumentError as error:
        return str(error) if whole else ""
    except Exception as error:
        return str(error) or repr(error)
    return ""


def test_pages_notebooks_and_docstrings_have_commands():
    assert len(COMMANDS) > 450
    assert len(PARTS) > 60


@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_command_is_accepted(command):
    assert not fault_of(command)


@pytest.mark.parametrize("command", PARTS)
def test_what_a_sentence_says_of_a_command_exists(command):
    assert not fault_of(command, whole=False)


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ("```bash\nnearfar train photos --out run --no-such-option 1\n```\n", "--no-such-option"),
        ("```\nnearfar train photos \\\n  --out run --nowhere 1\n```\n", "--nowhere"),
        ("1. Do\n\n   ```shell\n   nearfar nothing\n   ```\n", "nothing"),
        ("    nearfar evaluate runs/photos --protocol nothing   # scores\n", "protocol"),
        ("```python\n!nearfar train photos\n```\n", "--out"),
        ("```\npython bench/nothing.py\n```\n", "no script"),
        ("```\nOMP_NUM_THREADS=1 python bench/losses.py --nothing 3\n```\n", "has no --nothing"),
    ],
)
def test_a_wrong_command_is_found_wherever_it_is_shown(page, fault):
    (command,) = of_page(page)
    assert fault in fault_of(command)
