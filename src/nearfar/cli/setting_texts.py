"""What the settings of a run mean, and their defaults, for --help.

They are read from the source of `TrainConfig`: to import it takes packages that may not be installed, and time.
"""

from __future__ import annotations

import re
from ast import literal_eval
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "train" / "config.py"
ENTRY = re.compile(r"^    (\w+) : .*\n((?:        .*\n)+)", re.MULTILINE)  # of the docstring: its first paragraph
FIELD = re.compile(r"^    (\w+): .+ = (.*[^(\n])$", re.MULTILINE)  # on one line, as those of all settings


def setting_texts() -> dict[str, str]:
    """Return the first paragraph on each setting."""
    _, _, source = SOURCE.read_text("utf-8").partition("class TrainConfig(")
    return {name: " ".join(text.split()) for name, text in ENTRY.findall(source.split('"""')[1])}


def setting_defaults() -> dict[str, Any]:
    """Return the defaults of the settings that have one."""
    _, _, source = SOURCE.read_text("utf-8").partition("class TrainConfig(")
    fields = source.split('"""')[2].partition("\n    @")[0]
    return {name: literal_eval(default) for name, default in FIELD.findall(fields)}
