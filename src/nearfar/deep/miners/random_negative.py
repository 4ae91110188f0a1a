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
    negative, some = draw(rows.neg.float(), rows.uniform(drawn, stream=1))
    return narrowed(rows, Triplets(positive, negative, keep & some))


class RandomNegative(Miner):
    """A random negative for every positive pair, or k random triplets for every anchor.

    Parameters
    ----------
    k : int, optional
        Triplets per anchor, positive and negative drawn with replacement. None: one triplet for every positive pair.

    Notes
    -----
    The expected mean loss is that over all triplets of the anchor. One number of PyTorch's global generator, in all
    processes that of the first, sets the draws of a call: neither blocks nor the number of processes change them.
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
