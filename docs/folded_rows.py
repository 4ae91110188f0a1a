"""The directive `measured`: all rows of a table of results, folded, from a file of `docs/measured`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from measured import as_markdown, rows_of


class Measured(Directive):
    """Writes the rows of a file into a folded table, with a link to the file."""

    required_arguments = 1  # the path of the file, beside the page

    def run(self) -> list[nodes.Node]:
        path = Path(self.arguments[0])
        rows = rows_of(path.stem)
        self.state.document.settings.record_dependencies.add(f"docs/{path}")
        lines = [*as_markdown(rows), "", f"These rows as a file: [{path.name}]({path})"]
        folded = nodes.container()
        self.state.nested_parse(StringList(lines, source=str(path)), self.content_offset, folded)
        before = f"<details>\n<summary>All {len(rows)} rows</summary>"
        return [nodes.raw("", before, format="html"), *folded.children, nodes.raw("", "</details>", format="html")]


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("measured", Measured)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
