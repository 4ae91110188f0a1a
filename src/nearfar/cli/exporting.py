"""``nearfar export``: networks for servers and devices without nearfar."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from .encoding import say
from .options import RUN, Out, Overwrite, Trust
from .outputs import check_out


def export(
    source: Path,
    *,
    out: Out,
    int8: Annotated[bool, Parameter(group=RUN)] = False,
    overwrite: Overwrite = False,
    trust: Trust = (),
) -> None:
    """Export a network or a linear learner as an ONNX file, or as a model of another library; embeddings are compared.

    Example: nearfar export runs/photos -o photos.onnx

    Parameters
    ----------
    source
        The folder of a run (uint8 images, rows or tokens in, embeddings out), or a learner saved as .safetensors (rows
        in).
    out
        The .onnx file. For a network of texts, the tokenizer is written beside it, as NAME.tokenizer.json. Or a .pt2
        file of torch.export. Or a folder, which the library of the trunk opens: sentence-transformers for texts, timm
        or transformers for images.
    int8
        Store the weights of a network as 8-bit integers: a quarter of the size, and nearly the same embeddings.
    """
    from ..io.sources import SourceKind, kind_of
    from ..models import load
    from ..models.export import export_learner, export_program, export_run, tokenizer_beside
    from ..models.foreign_models import export_folder

    kind = kind_of(source, SourceKind.RUN, SourceKind.LEARNER)
    if out.suffix == "" and kind is SourceKind.RUN and not int8:
        say(export_folder(source, out, overwrite=overwrite, trust=trust))
        return
    if out.suffix == ".pt2" and kind is SourceKind.RUN and not int8:
        check_out(out, overwrite=overwrite)
        export_program(source, out, trust=trust)
        say(f"{out}: a program of torch.export; its embeddings are those of {source}")
        return
    if out.suffix != ".onnx":
        raise ValueError(f"--out: {out}: expected a file that ends in .onnx, or for a run .pt2 or a folder")
    tokenizer = tokenizer_beside(out)
    check_out(out, overwrite=overwrite)
    check_out(tokenizer, overwrite=overwrite)
    if kind is SourceKind.RUN:
        cosine = export_run(source, out, int8=int8, trust=trust)
    elif int8:
        raise ValueError("--int8: works only with the network of a run, not with a linear learner; leave it out")
    else:
        export_learner(load(source), out)
    size = out.stat().st_size
    detail = f"{size / 1000:,.0f} kB" if size >= 1000 else f"{size} bytes"
    if tokenizer.exists():
        detail += f", with its tokenizer in {tokenizer}"
    if int8:
        say(f"{out}: {detail}; its embeddings have a mean cosine of {cosine:.4f} to those of {source}")
        return
    say(f"{out}: {detail}; in ONNX Runtime, its embeddings are the same as those of {source}")
