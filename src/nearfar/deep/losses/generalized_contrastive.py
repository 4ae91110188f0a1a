"""Generalized contrastive loss (Leyva-Vallina, Strisciuglio & Petkov, 2021).

    squared:  1/2 g rho^2 + 1/2 (1 - g) [m - rho]_+^2          (the published code)
    survey:   g rho^2 + (1 - g) [m - rho^2]_+                  psi = 1 - g in the survey

The mean is over all pairs. g in [0, 1] is the similarity of two samples, 1 for the same. It is given, or computed from
classes or features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...settings import check_options
from .. import distributed
from ..autograd import recomputed
from ..objective.batch import Batch
from ..pairwise.comparison import Comparison, Rows, count, dissimilarity, spans
from ..pairwise.hinges import hinges, near_distances, negatives
from ..pairwise.reductions import hinge_squares
from ..pairwise.row_loss import RowLoss
from ..unit_vectors import unit

# form: distance that its formula uses
FORMS = {"squared": "euclidean", "survey": "sq_euclidean"}
SOURCES = ("labels", "pooled")


def generalized_contrastive(d: Tensor, similarity: Tensor, margin: float, form: str) -> Tensor:
    """Return the (b, m) terms of the pairs; `similarity` is g: 1 means similar."""
    push = (margin - d).clamp_min(0)
    if form == "squared":
        return (similarity * d.square() + (1 - similarity) * push.square()) / 2
    return similarity * d + (1 - similarity) * push


class GeneralizedContrastiveLoss(RowLoss):
    """Contrastive loss for graded similarity.

    Parameters
    ----------
    margin : float
        Margin m, in the unit of the distance of `form`.
    form : {"squared", "survey"}
        "squared" is the formula of the published code, with unsquared distances; "survey" is the survey's (Ghojogh et
        al., 2022), with squared distances.
    similarity : {"labels", "pooled"}
        Source of the similarity g. "labels": 1 within a class and 0 between classes, or the entries of a relation
        matrix, which are numbers in [0, 1], or negative if unknown. "pooled": (1 + cosine) / 2 of the pooled features,
        without gradient.
    normalize : bool
        Whether to scale the embeddings to unit length first.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    The survey's psi is a dissimilarity, psi = 1 - g. If g is only 0 or 1, this is the contrastive loss of the same
    form.

    Embeddings that learn from their own cosines would follow themselves, so pass the features of a fixed network as
    pooled features.
    """

    def __init__(
        self,
        margin: float = 0.5,
        *,
        form: str = "squared",
        similarity: str = "labels",
        normalize: bool = False,
        block: int | None = None,
    ) -> None:
        check_options(self, FORMS, form=form)
        check_options(self, SOURCES, similarity=similarity)
        super().__init__(distance=FORMS[form], normalize=normalize, block=block)
        self.margin = margin
        self.form = form
        self.similarity = similarity

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the loss with g of 0 and 1, from the masks."""
        near, keep = near_distances(rows)
        far = negatives(rows)
        if self.form == "squared":
            near = near.square() / 2
            push = hinge_squares(far, self.margin) / 2
        else:
            # survey: [m - rho^2]_+, where `far` holds rho^2 and one margin serves all negatives of the anchor
            push, _ = hinges(far.new_full((len(far), 1), self.margin), far)
        return torch.where(keep, near, 0.0).sum(1) + push, count(keep) + count(rows.neg)

    def comparison(self, batch: Batch) -> Comparison:
        if self.similarity == "pooled" and (batch.pooled is None or batch.ref is not None):
            why = "needs pooled=, the features of each sample"
            if batch.ref is not None:
                why = "compares a batch with itself: features of a reference or a memory are not known"
            raise ValueError(f'GeneralizedContrastiveLoss: similarity="pooled" {why}')
        return super().comparison(batch)

    def _has_degrees(self, batch: Batch) -> bool:
        return self.similarity == "pooled" or (isinstance(batch.y, Tensor) and batch.y.ndim == 2)

    def compare(self, batch: Batch) -> Tensor:
        if not self._has_degrees(batch):
            return super().compare(batch)
        sums, pairs = self._of_degrees(batch)
        # one mean over all pairs of all processes, not a mean of means
        return sums.sum() / distributed.total(pairs.sum()).clamp_min(1)

    def compare_samples(self, batch: Batch) -> Tensor:
        if not self._has_degrees(batch):
            return super().compare_samples(batch)
        sums, pairs = self._of_degrees(batch)
        return sums * (len(batch.x) / distributed.total(pairs.sum()).clamp_min(1))

    def _of_degrees(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the sum of the terms of each anchor of this process and the number of its known pairs, (n,) each."""
        c = self.comparison(batch).prepared()

        def one(x: Tensor, ref: Tensor, lo: int, hi: int) -> tuple[Tensor, Tensor]:
            # d, g and known are (b, m); unknown pairs add 0 and are not counted
            d = x[lo:hi] if c.given else dissimilarity(x[lo:hi], ref, self.distance)
            g, known = self._graded_similarity(batch, lo, hi, c.is_self)
            terms = generalized_contrastive(d, g.to(d.dtype), margin=self.margin, form=self.form)
            return torch.where(known, terms, 0.0).sum(1), known.sum(1).to(d.dtype)

        blocks = spans(c.anchors, len(c.ref), self.block, c.x.device)
        parts = [recomputed(one, c.x, c.ref, lo, hi) for lo, hi in blocks]
        none = c.x[:0, 0]
        return torch.cat([none, *(sums for sums, _ in parts)]), torch.cat([none, *(pairs for _, pairs in parts)])

    def _graded_similarity(self, batch: Batch, lo: int, hi: int, is_self: bool) -> tuple[Tensor, Tensor]:
        """Return g of a block of anchors and where it is known, both (b, m)."""
        if self.similarity == "labels":
            assert isinstance(batch.y, Tensor)
            g = batch.y[lo:hi]
            known = g >= 0
        else:
            assert batch.pooled is not None
            features = unit(batch.pooled.detach())
            # cosine in [-1, 1] to similarity in [0, 1]; the features are fixed, so they get no gradient
            g = (1 + features[lo:hi] @ features.T) / 2
            known = torch.ones_like(g, dtype=torch.bool)
        if is_self:
            known.diagonal(lo).fill_(False)
        return g, known
