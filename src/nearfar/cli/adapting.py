"""``nearfar adapt``: queries of a new model for an index of an old one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from .encoding import say
from .outputs import check_out


def adapt(
    new: Path,
    old: Path,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    kind: Literal["orthogonal", "linear", "residual"] = "orthogonal",
    rank: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """Learn an adapter that lets queries of a new model search the index of an old one.

    It is fitted on items that both models have embedded.

    Example: nearfar adapt new.npz old.npz -o adapter.safetensors

    Parameters
    ----------
    new
        An .npz, .parquet, .csv or a folder with embeddings of a few thousand items by the new model, from
        `nearfar embed`.
    old
        The same items (by name), embedded by the model that made the index.
    out
        The .safetensors file to write, for `nearfar search --run NEW --adapter`.
    kind
        orthogonal: a rotation; linear: a linear map; residual: a linear map plus a small network.
    rank
        Rank of the linear map; by default full rank.
    seed
        Random seed for the tenth of the items that is held out to measure the adapter.
    overwrite
        Replace an existing OUT.
    """
    from ..workflows.adapting import adapt as fit_adapter

    check_out(out, overwrite=overwrite)
    say(fit_adapter(new, old, out, kind=kind, rank=rank, seed=seed))
