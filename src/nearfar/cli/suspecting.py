"""``nearfar suspects``: items whose label is probably wrong, as lines, as a table, or as a page for decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ..io.untrusted import images_from
from ..trust import trusting
from .encoding import say
from .options import FOUND, RUN, DistanceName, ItemOptions, Trust
from .outputs import check_out


def suspects(
    source: Path,
    data: str | None = None,
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], group=RUN)] = None,
    k: Annotated[int, Parameter(name="-k", group=FOUND)] = 20,
    decided: Annotated[Path | None, Parameter(group=FOUND)] = None,
    across: Annotated[int | None, Parameter(group=FOUND)] = None,
    negatives: Annotated[int | None, Parameter(group=FOUND)] = None,
    distance: Annotated[DistanceName | None, Parameter(group=FOUND)] = None,
    items: ItemOptions = ItemOptions(),
    overwrite: Annotated[bool, Parameter(group=RUN)] = False,
    trust: Trust = (),
) -> None:
    """Find items whose label is probably wrong, judged by models that have not seen that label.

    Example: nearfar suspects features.npz -o suspects.html

    Parameters
    ----------
    source
        An .npz, .parquet, .csv or a folder of embeddings and labels, preferably from a network that was not trained on
        these labels; an index from `nearfar index`; or a run or a learner, to embed DATA.
    data
        The items to check, with a run or a learner; by default the test classes of the run.
    out
        Write all suspects to a .csv (name, label, suggested, doubt, decision), or to an .html page on which to decide.
        With --decided, write the corrected table for training (.csv of images or .npz of embeddings); with --across or
        --negatives, a .csv of what was found.
    k
        Number of suspects to print.
    decided
        A .csv of suspects with your decisions in its column `decision`: a class, `remove`, or `keep` (or empty). Writes
        the corrected table to OUT.
    across
        Instead of suspects, find this many nearest pairs of items from two classes.
    negatives
        Instead of suspects, find this many hard negatives of each item: its nearest items of other classes, without
        suspects and without items so near that they are probably of the same class.
    distance
        Compare embeddings by this distance: cosine or euclidean. By default, that of the index or the learner, cosine
        for runs and embeddings, and euclidean for tables with one column per measurement.
    overwrite
        Replace an existing OUT. An .html page is always replaced.
    """
    from ..io.sources import SourceKind, kind_of
    from ..workflows.suspecting import suspects as find_suspects
    from .selecting import select_items

    check_task(out, decided, across, negatives, overwrite=overwrite)
    for option, count in {"-k": k, "--across": across, "--negatives": negatives}.items():
        if count is not None and count < 1:
            raise ValueError(f"{option}: expected 1 or more, got {count}")
    selection = None
    if kind_of(source) is not SourceKind.INDEX:  # an index has all of its items
        how: dict[str, Any] = {"label": items.label, "name": items.name, "skip_bad": items.skip_bad}
        selection = select_items(data, files=[source], seen_too=data is not None, **how)
    task: dict[str, Any] = {"k": k, "decided": decided, "across": across, "negatives": negatives}
    with images_from(*items.images), trusting(*trust):
        say(find_suspects(source, data, out, selection, distance=distance, **task))


def check_task(
    out: Path | None, decided: Path | None, across: int | None, negatives: int | None, *, overwrite: bool
) -> None:
    """Refuse options that exclude each other, and tasks without an output file, before anything is embedded."""
    tasks = {"--decided": decided, "--across": across, "--negatives": negatives}
    given = [name for name, value in tasks.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{given[0]}: does not work with {given[1]}; give only one of them")
    if out is None:
        if given and given[0] != "--across":
            raise ValueError(f"{given[0]}: needs --out, the file for the table")
        return
    suffixes = [".csv", ".html"]
    if decided is not None:
        suffixes = [".csv", ".npz"]
    elif given:
        suffixes = [".csv"]
    if out.suffix not in suffixes:
        raise ValueError(f"--out: {out}: expected a file that ends in {' or '.join(suffixes)}")
    # a table may hold decisions that were typed into it; a page holds none
    check_out(out, overwrite=overwrite)
