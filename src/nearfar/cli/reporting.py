"""``nearfar report``: an HTML page on a run, a saved learner or a file of embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ..io.untrusted import images_from
from ..trust import trusting
from .encoding import say
from .options import DATA, RUN, Distance, ItemOptions, Trust
from .outputs import check_out, remark_outside


def report(
    source: Path,
    data: str | None = None,
    *,
    against: Annotated[Path | None, Parameter(group=RUN)] = None,
    distance: Distance = None,
    items: ItemOptions = ItemOptions(),
    out: Annotated[Path | None, Parameter(["--out", "-o"], group=RUN)] = None,
    seen_too: Annotated[bool, Parameter(name="--all", group=DATA)] = False,
    trust: Trust = (),
) -> None:
    """Write one HTML page with scores, curves, neighbors, confusions and maps.

    Example: nearfar report runs/glyphs --against runs/before

    Parameters
    ----------
    source
        The folder of a run, a learner saved as .safetensors, or an .npz, .parquet, .csv or a folder of embeddings
        and labels.
    data
        Data to apply a learner to, or to use instead of the test classes of a run.
    against
        Another run, learner or file to compare with on the same items: which is better and by how much, and which
        queries only one of the two answers correctly.
    distance
        Compare embeddings by this distance: cosine or euclidean. By default, a learner has the one that `nearfar fit`
        chose for it, runs and embeddings cosine, and tables with one column per measurement euclidean.
    out
        The page to write. By default report.html in the folder of the run, report-NAME.html for other DATA,
        report-against-NAME.html with --against; for a file, a page in its folder with its name instead of report.
    seen_too
        Include items of DATA that either model was trained on; by default they are left out.
    """
    from ..workflows.reporting import report as write_report
    from .selecting import select_items

    if out is not None:
        if out.suffix not in (".html", ".htm"):
            raise ValueError(f"--out: {out}: expected a file that ends in .html")
        check_out(out, overwrite=True)
    files = [source] if against is None else [source, against]
    with images_from(*items.images), trusting(*trust):
        how: dict[str, Any] = {"seen_too": seen_too, "distance": distance}
        selection = select_items(data, label=items.label, name=items.name, skip_bad=items.skip_bad, files=files, **how)
        say(write_report(source, selection, out, against, on_outside=remark_outside))
