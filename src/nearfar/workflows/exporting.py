"""A network or a linear learner for servers and devices without nearfar, in the format that its name gives."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from ..io.sources import SourceKind, kind_of
from ..models import load
from ..models.export import export_learner, export_program, export_run, texts_beside, tokenizer_beside
from .calibrating import export_calibrated


def export(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    int8: bool = False,
    calibrate: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    trust: str | Collection[str] = (),
) -> str:
    """Export a network or a linear learner, as `nearfar export` does, and return a line on what was written.

    Parameters
    ----------
    source : str or path
        The folder of a run, or a learner saved as .safetensors.
    out : str or path
        An .onnx file; or for a run a .pt2 file of `torch.export`, or a folder, which the library of its trunk opens.
        Files are replaced.
    int8 : bool
        Store the weights of a network in an .onnx file as 8-bit integers.
    calibrate : str or path, optional
        Items with which the network in an .onnx file is made to compute in 8 bits, too. The line has the costs.
    overwrite : bool
        Replace an existing folder.
    trust : str or collection of str
        Modules of your own that the settings of the run may name; their code is run.

    Raises
    ------
    ValueError
        If the name of the file has another ending, or the source cannot be exported to it.
    """
    path = Path(out)
    kind = kind_of(source, SourceKind.RUN, SourceKind.LEARNER)
    if calibrate is not None:
        if path.suffix != ".onnx" or kind is not SourceKind.RUN:
            raise ValueError("calibrate: works only with the network of a run, in an .onnx file; leave it out")
        costs = export_calibrated(source, path, calibrate, trust=trust)
        return f"{_about_file(path)}; it computes in 8 bits: {costs}"
    if path.suffix == "" and kind is SourceKind.RUN and not int8:
        from ..models.foreign_models import export_folder

        return export_folder(source, path, overwrite=overwrite, trust=trust)
    if path.suffix == ".pt2" and kind is SourceKind.RUN and not int8:
        export_program(source, path, trust=trust)
        return f"{path}: a program of torch.export; its embeddings are those of {source}"
    if path.suffix != ".onnx":
        raise ValueError(f"out: {path}: expected a file that ends in .onnx, or for a run .pt2 or a folder")
    if kind is SourceKind.LEARNER:
        if int8:
            raise ValueError("int8: works only with the network of a run, not with a linear learner; leave it out")
        export_learner(load(source), path)
    else:
        cosine = export_run(source, path, int8=int8, trust=trust)
    if int8:
        return f"{_about_file(path)}; its embeddings have a mean cosine of {cosine:.4f} to those of {source}"
    return f"{_about_file(path)}; in ONNX Runtime, its embeddings are the same as those of {source}"


def _about_file(path: Path) -> str:
    """Return the name and the size of a file, and the names of the network of texts and the tokenizer beside it."""
    size = path.stat().st_size
    about = f"{path}: {size / 1000:,.0f} kB" if size >= 1000 else f"{path}: {size} bytes"
    of_texts = texts_beside(path)
    if of_texts.exists():
        return f"{about}, with its network of texts in {of_texts} and {tokenizer_beside(of_texts)}"
    tokenizer = tokenizer_beside(path)
    return f"{about}, with its tokenizer in {tokenizer}" if tokenizer.exists() else about
