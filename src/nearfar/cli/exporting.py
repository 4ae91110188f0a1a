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
    calibrate: Annotated[Path | None, Parameter(group=RUN)] = None,
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
        The .onnx file. For a network of texts, the tokenizer is written beside it, as NAME.tokenizer.json; for images
        with their texts, the network of texts and its tokenizer, as NAME.texts.onnx and so on. Or a .pt2
        file of torch.export. Or a folder, which the library of the trunk opens: sentence-transformers for texts, timm
        or transformers for images.
    int8
        Store the weights of a network as 8-bit integers: a quarter of the size, and nearly the same embeddings.
    calibrate
        Items, such as a folder of photos, with which the network is made to compute in 8 bits, too. Prints the cost in
        Recall@1.
    """
    from ..models.export import files_of_export
    from ..workflows import export as export_model

    if out.suffix:
        for file in files_of_export(out) if out.suffix == ".onnx" else [out]:
            check_out(file, overwrite=overwrite)
    say(export_model(source, out, int8=int8, calibrate=calibrate, overwrite=overwrite, trust=trust))
