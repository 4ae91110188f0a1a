"""Deep probabilistic discriminant analysis (Li, Doroslovački & Loew, 2019).

    L = tr E[cov(z | y)] / tr cov(E[z | y])  =  W / (T - W)
    W = sum_l P(l) tr cov(z | y = l)        T = tr cov(z) = W + B        P(l) = n_l / n

The loss is the spread within classes divided by the spread of the class means, with biased variances of the batch.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from ...settings import check_options
from ..objective.batch import Batch
from ..objective.terms import SetTerm
from ..pairwise.comparison import on_host
from ..unit_vectors import unit
from ..wholebatch.batch_classes import of_known_class
from ..wholebatch.class_scatter import bounded_ratio, deviations, in_range, traces

FORMS = ("ratio", "log", "neg_trace_ratio")
DENOMINATOR_FLOOR = 1e-6  # share of the total scatter that is added to denominators


def probabilistic_discriminant(W: Tensor, B: Tensor, form: str, comparable: Tensor) -> Tensor:
    """Return the loss from the traces within and between; 0 with zero gradient if they are not comparable."""
    if form == "neg_trace_ratio":
        return -bounded_ratio(B, W, DENOMINATOR_FLOOR, comparable)
    if form == "ratio":
        return bounded_ratio(W, B, DENOMINATOR_FLOOR, comparable)
    # log(W / B) = log W - log B, both at least a share of T = W + B; 1 where not comparable, so that its log is 0
    within, between = (torch.where(comparable, part + DENOMINATOR_FLOOR * (W + B), 1.0) for part in (W, B))
    return within.log() - between.log() + W * 0  # W keeps the graph: the gradient is 0, not missing


class ProbabilisticDiscriminantLoss(SetTerm):
    """Ratio of the within-class to the between-class variance of the embeddings of a batch.

    Parameters
    ----------
    form : {"ratio", "log", "neg_trace_ratio"}
        Formula of the loss:

        - "ratio": W / B, the paper's;
        - "log": log(W / B), whose gradient does not depend on the size of the ratio;
        - "neg_trace_ratio": -B / W.
    normalize : bool
        Whether to scale the embeddings to unit length first; the paper does not. If they are scaled, their norms, which
        do not affect a search by cosine, cannot lower the loss.

    Warns
    -----
    UserWarning
        If no class of the batch has two samples: then no class has a variance, and the loss is 0. Sample several items
        of each class.

    Notes
    -----
    The loss is invariant to translations, rotations and a common scaling of the embeddings. It is 0, without a
    gradient, for a batch of one class or of equal embeddings. 1e-6 of the total variance is added to the denominators.
    Samples of unknown class are left out.

    The loss requires compact classes, but does not separate each pair of classes. A linear layer has the least loss if
    all of its outputs have the direction of the largest B / W, which no combination of directions exceeds. After long
    training, embeddings therefore vary along about one direction, which hurts the search for neighbors in unseen
    classes.

    Examples
    --------
    >>> z = torch.tensor([[1.0], [3.0], [7.0], [9.0]])
    >>> round(float(ProbabilisticDiscriminantLoss()(z, [0, 0, 1, 1])), 4)  # 1 within, 9 between
    0.1111
    """

    def __init__(self, *, form: str = "ratio", normalize: bool = False) -> None:
        super().__init__()
        check_options(self, FORMS, form=form)
        self.form = form
        self.normalize = normalize

    def value(self, batch: Batch) -> Tensor:
        if batch.ref is not None:
            raise ValueError("ProbabilisticDiscriminantLoss: ref does not apply, this is a loss of one batch")
        batch = of_known_class(batch, "ProbabilisticDiscriminantLoss")
        if not len(batch.x):
            return batch.x.sum() * 0
        y = batch.classes("ProbabilisticDiscriminantLoss")
        # without two samples of a class, W is 0 and nothing pulls
        if len(y) > 1 and on_host(y) and len(torch.unique(y)) == len(y):
            warnings.warn("ProbabilisticDiscriminantLoss: no class of the batch has two samples", stacklevel=2)
        parts = deviations(in_range(unit(batch.x) if self.normalize else batch.x), y)
        return probabilistic_discriminant(*traces(parts), self.form, parts.comparable)
