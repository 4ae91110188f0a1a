"""Distance weighted sampling (Wu, Manmatha, Smola & Krähenbühl, 2017).

P(n | a) proportional to 1 / q(max(rho_an, cutoff)) for rho_an < limit,
q(r) = r^(d - 2) (1 - r^2 / 4)^((d - 3) / 2),  the density of distances of random unit vectors in R^d
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..pairwise.comparison import Rows, Triplets
from ..pairwise.hinges import narrowed, positives
from ..rng import draw
from .base import Miner


def distance_weighted(rows: Rows, cutoff: float, limit: float) -> Rows:
    """Pair every positive with a negative drawn with the inverse density of its distance."""
    positive, keep = positives(rows)
    negative, some = draw(inverse_density(rows, cutoff, limit), rows.uniform(positive))
    return narrowed(rows, Triplets(positive, negative, keep & some))


def inverse_density(rows: Rows, cutoff: float, limit: float) -> Tensor:
    """Return (b, m) weights 1 / q, up to a factor per row that makes the largest 1.

    Where an anchor has no negatives below the limit, all negatives have the weight 1.
    """
    squared = squares(rows)
    near = rows.neg & (squared < limit**2)
    r2 = squared.clamp(cutoff**2, 4 * (1 - 1e-6))  # r^2, below 4 by more than rounding: the density is 0 there
    # -log q(r) = -(d - 2) / 2 log r^2 - (d - 3) / 2 log(1 - r^2 / 4)
    log_w = (2 - rows.dim) / 2 * r2.log() - (rows.dim - 3) / 2 * torch.log1p(r2 / -4)
    log_w = torch.where(near, log_w, -torch.inf)
    some = near.any(1, keepdim=True)
    # less the largest of the row, so that not all weights of a row underflow
    if r2.shape[1]:
        top = torch.where(some, log_w, 0.0).amax(1, keepdim=True)
    else:
        top = log_w
    return torch.where(some, (log_w - top).exp(), rows.neg.to(r2.dtype))


def squares(rows: Rows) -> Tensor:
    """Return the (b, m) squared distances of unit vectors from the distances that the rows hold."""
    d = rows.d.detach()
    if rows.distance == "euclidean":
        return d.square()
    if rows.distance == "sq_euclidean":
        return d
    if not isinstance(rows.distance, str):
        expected = "the distances of unit vectors must be Euclidean, cosine or dot"
        raise ValueError(f"DistanceWeighted: {expected}; got distance={rows.distance!r}")
    # |x - y|^2 = 2 - 2 x.y for unit vectors, where d = 1 - x.y ("cosine") or -x.y ("dot")
    if rows.distance == "cosine":
        return 2 * d
    return 2 + 2 * d


class DistanceWeighted(Miner):
    """Draw a negative for every positive pair such that all distances occur about equally often.

    Parameters
    ----------
    cutoff : float
        Smallest distance that is distinguished, above 0: nearer negatives are weighted as if they were at this
        distance, because their gradients are noisy.
    limit : float
        Distance, above `cutoff`, at and beyond which negatives are not drawn, unless an anchor has no others.

    Raises
    ------
    ValueError
        If not 0 < `cutoff` < `limit`.

    Notes
    -----
    The miner is made for unit vectors, whose distances lie between 0 and 2; `cutoff` and `limit` are unsquared
    Euclidean distances whatever the distance of the loss. Weights carry no gradient.

    The cutoff of the published code takes the place of the paper's min(lambda, 1 / q). In the second exponent of q, the
    survey prints the batch size instead of the dimension; it trains the triplet loss, whereas the paper trains
    ``MarginLoss``.

    Random numbers follow from one draw of PyTorch's global generator per call, which the first process shares with the
    others. They depend neither on the block size of the loss nor on the number of processes.
    """

    draws = True
    reads_vectors = True

    def __init__(self, cutoff: float = 0.5, limit: float = 1.4) -> None:
        if not 0 < cutoff < limit:
            raise ValueError(f"DistanceWeighted: needs 0 < cutoff < limit, got {cutoff} and {limit}")
        self.cutoff = cutoff
        self.limit = limit

    def narrow(self, rows: Rows) -> Rows:
        return distance_weighted(rows, self.cutoff, self.limit)

    def __repr__(self) -> str:
        return f"DistanceWeighted(cutoff={self.cutoff}, limit={self.limit})"
