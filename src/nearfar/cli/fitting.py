"""``nearfar fit``: fit a learner of the catalog on rows or on the pixels of images, save it, and score it."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from ..io.formats import accepted
from ..io.untrusted import images_from
from .encoding import say
from .given import refuse_beside_final
from .options import (
    DATA,
    TRAINING,
    DistanceName,
    ItemOptions,
    Out,
    Overwrite,
    Quiet,
    SplitOptions,
)
from .outputs import check_out


def fit(
    data: Annotated[str, Parameter(help=f"Items and their classes: {accepted()}. Images must have one size.")],
    learner: str = "auto",
    *,
    out: Out,
    split: SplitOptions = SplitOptions(),
    items: ItemOptions = ItemOptions(),
    standardize: Annotated[bool, Parameter(group=DATA)] = False,
    distance: Annotated[DistanceName | None, Parameter(group=TRAINING)] = None,
    seed: Annotated[int, Parameter(group=TRAINING)] = 0,
    final: Annotated[bool, Parameter(group=TRAINING)] = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Fit a learner on a table or on the pixels of images, save it, and score it on classes that it has not seen.

    A table may have missing cells, categories, dates and texts: what became of each column is printed. With fewer than
    four classes, it is fitted to one half of the items of each class, and scored on the other half.

    Example: nearfar fit rows.csv "LMNN(n_neighbors=5)" --standardize --out lmnn.safetensors

    Parameters
    ----------
    learner
        A classical learner or an autoencoder, with its settings: "GMML(t=0.3)", "Kernelized(learner=RCA())",
        "MultiModalAutoencoder(view_sizes=(47, 76))". By default, "auto": AutoMetric chooses among six learners and the
        Euclidean distance of standardized columns by held-out rows (accuracy) or classes (MAP@R) of the training.
    out
        The .safetensors file to write. `nearfar evaluate`, `embed`, `report` and `index` read it.
    standardize
        Standardize each column (or pixel) to mean 0 and standard deviation 1; the scaling is saved with the learner.
        For linear learners only.
    distance
        Compare what is learned by this distance: cosine or euclidean. By default, the distance by which the training
        rows compare best before the learner, euclidean for tables with one column per measurement, and the distance of
        a learner that is made for one. It is saved with the learner.
    seed
        Random seed for the learner and the split.
    final
        Fit on all of DATA, without a test. Use it for the model to deploy, after a fit without --final has scored it.
    """
    from ..workflows.fitting import fit as fit_learner

    check_out(out, overwrite=overwrite)
    if final:
        held_out = {"test": split.test, "test_class": split.test_classes or None}
        held_out["split"] = None if split.split == "classes" else split.split
        refuse_beside_final(held_out, "fits on all of DATA, without a test")
    how: dict[str, Any] = {"test": split.test, "test_classes": split.test_classes, "split": split.split or "classes"}
    how |= {"label": items.label, "name": items.name, "skip_bad": items.skip_bad, "standardize": standardize}
    how |= {"distance": distance, "final": final, "seed": seed}
    with images_from(*items.images):
        lines = fit_learner(data, learner, out, **how)
    if not quiet:
        say(lines)
