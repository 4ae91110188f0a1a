"""Mining over a whole set: any triplet miner, in blocks of anchors, with the embeddings of an earlier network."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...settings import no_option
from ..objective.batch import AnyLabels, check_columns, make_batch
from ..pairwise.comparison import DISTANCES, Comparison, Distance, Rows
from ..rng import fresh_seed


@torch.no_grad()
def mine_offline(
    miner: Callable[[Rows], Rows],
    embeddings: Tensor,
    labels: AnyLabels,
    *,
    distance: Distance = "sq_euclidean",
    normalize: bool = True,
    block: int = 1024,
) -> Tensor:
    """Return the triplets that a miner selects if the whole set is treated as one batch.

    Parameters
    ----------
    miner : callable
        Miner of triplets, such as ``BatchHard()``, ``ExtremeDistance("easiest", "hardest")`` or ``RandomNegative()``.
    embeddings : (n, d) float tensor
        Embeddings of all training samples.
    labels : (n,) integers
        Class of each sample. Samples of unknown class (-1) are neither anchors nor positives nor negatives.
    distance : str or callable
        Dissimilarity that the miner reads, as in ``TripletLoss``.
    normalize : bool
        Whether to scale the embeddings to unit length first.
    block : int
        Number of anchors processed at a time. Memory is proportional to block x n.

    Returns
    -------
    (t, 3) int64 tensor
        Anchor, positive and negative of each triplet, ordered by anchor.
        ``TripletSampler(labels, batch_size, triplets=...)`` draws batches of them.

    Raises
    ------
    ValueError
        If the miner narrows masks without choosing triplets, such as ``BatchAll`` and ``EasyPositive("all")``, or the
        distance is unknown.
    """
    if block < 1:
        raise ValueError(f"mine_offline: block must be at least 1, got {block}")
    if not callable(distance) and distance not in DISTANCES:
        raise ValueError(f"mine_offline: {no_option(DISTANCES, 'distance', distance)}")
    batch = make_batch(embeddings, labels, None, None, None)
    x = batch.x
    y = batch.y
    n = len(batch.x)
    check_columns(y, n)
    c = Comparison(
        x=x,
        y=y,
        ref=x,
        ref_y=y,
        anchors=slice(0, n),
        is_self=True,
        distance=distance,
        normalize=normalize,
        seed=fresh_seed(miner, x),
    ).prepared()
    found = []
    for lo in range(0, n, block):
        # (block, n): the anchors of a block against the whole set
        rows = c.block(c.x, c.ref, lo, min(lo + block, n))
        found.append(_triplets(miner, rows, lo))
    if not found:
        return torch.zeros(0, 3, dtype=torch.int64)
    return torch.cat(found)


def _triplets(miner: Callable[[Rows], Rows], rows: Rows, first: int) -> Tensor:
    """Return the mined triplets of a block, (t, 3), whose first anchor has the number `first`."""
    triplets = miner(rows).triplets
    if triplets is None:
        raise ValueError(f"mine_offline: {miner!r} chooses no triplets")
    anchors = torch.arange(len(rows.d), device=rows.d.device)[:, None] + first
    chosen = torch.stack([anchors.expand_as(triplets.keep), triplets.positive, triplets.negative], 2)
    return chosen[triplets.keep]
