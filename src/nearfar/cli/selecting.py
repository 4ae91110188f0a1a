"""The options of a command that determine which items it embeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..io.formats import is_table
from ..io.sources import has_embeddings
from ..models.embedded import Selection


def select_items(
    data: str | None,
    classes: Sequence[str] = (),
    *,
    label: str | None = None,
    name: str | None = None,
    skip_bad: bool = False,
    files: Sequence[Path] = (),
    seen_too: bool = False,
    group_by: str | None = None,
    group_score: str = "best",
    distance: str | None = None,
) -> Selection:
    """Check the options, and return what to score.

    Training items of the models among `files` are left out of DATA. With `seen_too`, they are only counted.
    """
    table = data is not None or any(map(is_table, files))
    if group_by is not None and not table:
        raise ValueError("--group-by: needs a table of data or of embeddings; give one as DATA or SOURCE")
    for option, column in {"--label": label, "--name": name}.items():
        if column is not None and not table:
            raise ValueError(
                f"{option}: needs a table of data or of embeddings; give one as DATA or SOURCE, or leave {option} out"
            )
    if skip_bad and data is None:
        raise ValueError(
            "--skip-bad: works only with DATA; the test of a run leaves out the images that its training left out "
            "(`nearfar train --resume --skip-bad --out RUN` continues a training without bad images)"
        )
    if seen_too and data is None:
        raise ValueError("--all: works only with DATA, of which training items are left out by default")
    models = tuple(file for file in files if not has_embeddings(file))
    # a file of embeddings has all items, so a model that is compared with it must embed all of them
    seen_too = seen_too or len(models) < len(files)
    return Selection(
        data=data,
        classes=classes,
        label=label,
        name=name,
        skip_bad=skip_bad,
        unseen_by=models,
        seen_too=seen_too,
        group_by=group_by,
        group_score=group_score,
        distance=distance,
    )
