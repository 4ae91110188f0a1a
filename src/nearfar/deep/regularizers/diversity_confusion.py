"""Diversity confusion (Chen et al., 2022).

    L = 1/B sum_i ||x_i||^2  =  tr cov(x) + ||mean(x)||^2

For embeddings of mean zero, this is the sum of the eigenvalues of the covariance. Minimizing it gives up directions
that only the seen classes need.
"""

from __future__ import annotations

from torch import Tensor

from ...settings import check_options
from ..objective.batch import Batch
from ..objective.terms import SetTerm
from ..unit_vectors import unit


def diversity_confusion(x: Tensor, center: bool) -> Tensor:
    """Return the mean squared norm of the rows of x, or with `center` of their deviations from the mean row."""
    around = x - x.mean(0) if center else x
    return around.square().sum(1).mean()


class DiversityConfusion(SetTerm):
    """Mean squared norm of the embeddings, to be minimized.

    Parameters
    ----------
    center : bool
        Whether to subtract the mean of the batch first, which gives the trace of the covariance. The paper assumes
        embeddings of mean zero instead.
    on : {"raw", "normalized"}
        Whether the term acts on the "raw" or on the "normalized" embeddings.

    Raises
    ------
    ValueError
        If `on` is neither "raw" nor "normalized".

    Notes
    -----
    On normalized embeddings without centering, the term is the constant 1, with zero gradient. On raw embeddings,
    combined with a loss on unit vectors, its gradient is radial: it acts on the norms, and through shared weights as a
    weight decay. Labels are not used.
    """

    def __init__(self, *, center: bool = False, on: str = "raw") -> None:
        super().__init__()
        check_options(self, ("raw", "normalized"), on=on)
        self.center = center
        self.on = on

    def value(self, batch: Batch) -> Tensor:
        x = unit(batch.x) if self.on == "normalized" else batch.x
        return diversity_confusion(x, self.center)
