"""Networks of runs as folders of the libraries that their trunks are of."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from ..train.checkpoint import read_about
from ..train.run import RunFolder
from .sentence_folder import export_sentence_transformers
from .vision_folder import export_vision_model

__all__ = ["export_folder"]


def export_folder(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    trust: str | Collection[str] = (),
) -> str:
    """Write the network of a run as a folder of sentence-transformers, timm or transformers.

    Parameters
    ----------
    run, out, overwrite, trust
        As for `export_sentence_transformers` and `export_vision_model`.

    Returns
    -------
    str
        A line on what was written.

    Raises
    ------
    TrainError
        If there is no such run.
    ValueError
        If no library has such a network, or the folder exists.
    """
    if "tokenizer" in read_about(RunFolder(Path(run)).checkpoint("best")):
        export_sentence_transformers(run, out, overwrite=overwrite, trust=trust)
        return f"{out}: a folder of sentence-transformers; its embeddings are those of {run}, scaled to unit length"
    library = export_vision_model(run, out, overwrite=overwrite, trust=trust)
    return f"{out}: a folder of {library}; its model gives what that of {run} gives"
