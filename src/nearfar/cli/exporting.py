"""``nearfar export``: a network or a linear learner for servers and devices without Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def export(source: Path, *, out: Annotated[Path, Parameter(name=["--out", "-o"])]) -> None:
    """Write the network of a run, or a saved linear learner, as an ONNX file that was tried and gives the same.

    Example: nearfar export runs/photos -o photos.onnx

    Parameters
    ----------
    source
        The folder of a run (uint8 images in, embeddings out), or a learner saved as .safetensors (rows in).
    out
        The .onnx file.
    """
    from ..export import export_learner, export_run
    from .learners import load_learner
    from .scoring import check_there, is_run

    check_there(source)
    if is_run(source):
        export_run(source, out)
    else:
        export_learner(load_learner(source), out)
    print(f"{out}: {out.stat().st_size / 2**20:.1f} MB; ONNX Runtime gives the embeddings that {source} gives")
