"""Similarity mixup, SiMix (Patel, Tolias & Matas, 2022).

    v_ij = a_ij z_i + (1 - a_ij) z_j       for every pair i < j of one class,   a_ij ~ U(0, 1)
    L = L_of_similarities(z and v together),   s(v_ij, w) = a_ij s(z_i, w) + (1 - a_ij) s(z_j, w)

z: unit embeddings. A virtual sample v belongs to the class of its pair, is a query and is found by others. It is not
scaled to unit length, so that its similarities are mixtures of those of the pair.
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor

from .. import distributed
from ..losses.recall_at_k import RecallAtKLoss
from ..objective.batch import Batch
from ..objective.relations import UNKNOWN
from ..objective.terms import Term
from ..pairwise.comparison import Comparison
from ..pairwise.row_loss import RowLoss
from ..rng import SavedDraws, fresh_seed, own_draws, to_device
from ..unit_vectors import unit

AS_THEY_ARE = ("compare", "comparison", "reference", "penalty")  # of `RowLoss`, in losses that can be mixed


def with_mixtures(z: Tensor, y: Tensor, i: Tensor, j: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return samples (n, d) followed by the mixtures of their pairs i, j with the weights a, (p,), and all classes."""
    v = a[:, None] * z[i] + (1 - a[:, None]) * z[j]  # (p, d)
    return torch.cat([z, v]), torch.cat([y, y[i]])


class SiMix(SavedDraws, Term):
    """A loss of cosines that also sees virtual samples, mixed of each pair of samples of one class.

    Parameters
    ----------
    loss : Term, optional
        Loss that compares unit vectors by the cosine, such as `RecallAtKLoss`, which is the default,
        `SmoothAPLoss` or `MultiSimilarityLoss`.
    alpha : float, optional
        Weight a of the first sample of each pair, in [0, 1]. By default, it is drawn from U(0, 1) for each pair in each
        call, as in the paper.
    seed : int
        Seed of the generator that draws the weights. The generator advances in training mode only.

    Raises
    ------
    TypeError
        If `loss` does not compare unit vectors by the cosine.
    ValueError
        If `alpha` is not in [0, 1]; in a call, if labels are not classes, or a reference is given.

    Notes
    -----
    A class of m samples in a batch gets m (m - 1) / 2 virtual ones: 4 samples become 10. The loss costs the square of
    this factor, the network nothing. The published code mixes at most 6 samples of a class. Draw as few: of 16, nearly
    all samples are virtual, and on photos such a training did harm.

    References
    ----------
    Y. Patel, G. Tolias and J. Matas, "Recall@k surrogate loss with large batches and similarity mixup", CVPR 2022.

    Examples
    --------
    >>> import nearfar
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> round(nearfar.SiMix(nearfar.RecallAtKLoss(ks=1), alpha=0.5)(x, y).item(), 3)
    0.293
    """

    def __init__(self, loss: Term | None = None, *, alpha: float | None = None, seed: int = 0) -> None:
        super().__init__()
        given = RecallAtKLoss() if loss is None else loss
        if not _mixes(given):
            raise TypeError(
                f"SiMix: loss must compare by the cosine, such as RecallAtKLoss() or SupConLoss(); got {loss!r}"
            )
        if alpha is not None and not 0 <= alpha <= 1:
            raise ValueError(f"SiMix: alpha must be in [0, 1], got {alpha}")
        self.loss = given
        self.alpha = alpha
        self._draws = torch.Generator().manual_seed(int(seed))

    def local_value(self, batch: Batch) -> Tensor:
        if batch.ref is not None:
            raise ValueError("SiMix: ref does not apply, virtual samples are mixed of the batch")
        y = batch.classes("SiMix")
        i, j = torch.nonzero(((y[:, None] == y) & (y != UNKNOWN)).triu(1), as_tuple=True)  # (p,) each
        points, classes = with_mixtures(unit(batch.x), y, i, j, self._weights(batch.x, len(i)))
        # each process computes its part of the anchors: of the samples, and of the virtual ones
        rank = distributed.rank()
        world = distributed.world()
        comparison = Comparison(
            x=points,
            y=classes,
            ref=points,
            ref_y=classes,
            anchors=slice(rank * len(points) // world, (rank + 1) * len(points) // world),
            is_self=True,
            distance="cosine",
            normalize=False,
            ready=True,  # mixtures keep their length, below 1
            seed=fresh_seed(self.loss.miner, points),
        )
        num, den, _ = self.loss.summed(comparison)
        return self.loss.divided(num, den)

    def _weights(self, x: Tensor, pairs: int) -> Tensor:
        """Return the weight of each pair, (p,)."""
        if self.alpha is not None:
            return x.new_full((pairs,), self.alpha)
        drawn = torch.rand(pairs, generator=own_draws(self._draws, self.training), dtype=torch.float64)
        return to_device(drawn.to(x.dtype), x.device)


def _mixes(loss: object) -> TypeGuard[RowLoss]:
    """Return whether a loss is a sum over anchors of unit vectors that are compared by the cosine, and nothing else."""
    if not isinstance(loss, RowLoss) or loss.distance != "cosine" or not loss.normalize:
        return False
    kind = type(loss)
    return all(getattr(kind, name) is getattr(RowLoss, name) for name in AS_THEY_ARE)
