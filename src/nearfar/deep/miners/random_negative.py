"""Random triplets from classes (Ghojogh et al., 2022).

n ~ uniform on N(a) for every positive pair (a, p);   or k pairs (p, n), each uniform on P(a) x N(a)
"""

from __future__ import annotations

import torch

from ..pairwise.comparison import Rows, Triplets
from ..pairwise.hinges import narrowed, positives
from ..rng import draw
from .base import Miner


def random_negative(rows: Rows, k: int | None) -> Rows:
    """Pair every positive, or k random ones, with a random negative."""
    if k is None:
        positive, keep = positives(rows)
        drawn = positive
    else:
        drawn = torch.arange(k, device=rows.d.device)
        positive, keep = draw(rows.pos.float(), rows.uniform(drawn))
    # another stream, so that positives and negatives are drawn independently
    negative, some = draw(rows.neg.float(), rows.uniform(drawn, stream=1))
    return narrowed(rows, Triplets(positive, negative, keep & some))


class RandomNegative(Miner):
    """Draw a random negative for every positive pair, or k random triplets for every anchor.

    Parameters
    ----------
    k : int, optional
        Number of triplets per anchor, at least 1, whose positives and negatives are drawn with replacement. By default,
        one triplet is drawn for every positive pair.

    Raises
    ------
    ValueError
        If `k` is below 1.

    Notes
    -----
    The expected mean loss is the mean over all triplets of the anchor.

    Random numbers follow from one draw of PyTorch's global generator per call, which the first process shares with the
    others. They depend neither on the block size of the loss nor on the number of processes.
    """

    draws = True

    def __init__(self, k: int | None = None) -> None:
        if k is not None and k < 1:
            raise ValueError(f"RandomNegative: k must be at least 1, got {k}")
        self.k = k

    def narrow(self, rows: Rows) -> Rows:
        return random_negative(rows, self.k)

    def __repr__(self) -> str:
        return f"RandomNegative(k={self.k})"
