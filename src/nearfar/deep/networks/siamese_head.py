"""The one-shot head, which compares two embeddings coordinate by coordinate."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, relu

from ..episodes import prototypes
from ..objective.relations import UNKNOWN


class SiameseHead(nn.Module):
    """Probability that two items are of the same class: ``sigmoid(w . |h - h'| + b)``.

    The head compares two embeddings h and h' coordinate by coordinate.

    Parameters
    ----------
    dim : int
        Number of dimensions of the embeddings h.

    Notes
    -----
    Koch, Zemel & Salakhutdinov, "Siamese neural networks for one-shot image recognition", ICML deep learning workshop,
    2015. The weighted L1 distance is computed as two unweighted ones, of the positive and of the negative weights, so
    that no (n, m, d) array is formed. It cannot be differentiated twice.

    Examples
    --------
    >>> head = SiameseHead(4)
    >>> head(torch.rand(3, 4), torch.rand(5, 4)).shape
    torch.Size([3, 5])
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(-torch.rand(dim) / dim**0.5)  # a larger distance means less similar
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, h: Tensor, ref: Tensor) -> Tensor:
        """Return the (n, m) log-odds that rows of h (n, d) and of ref (m, d) are of one class."""
        more = relu(self.weight)
        less = relu(-self.weight)
        return torch.cdist(h * more, ref * more, p=1) - torch.cdist(h * less, ref * less, p=1) + self.bias

    def loss(self, h: Tensor, labels: Tensor, *, balanced: bool = True) -> Tensor:
        """Return the cross-entropy of all pairs of a batch.

        Parameters
        ----------
        h : (n, d) float tensor
            Embeddings of the batch.
        labels : (n,) integers
            Class of each sample. Samples of unknown class (-1) form no pair.
        balanced : bool
            Whether the mean over similar and the mean over dissimilar pairs have the same weight. Otherwise, the mean
            is over all pairs.
        """
        i, j = torch.triu_indices(len(h), len(h), offset=1, device=h.device)
        same = labels[i] == labels[j]
        known = labels != UNKNOWN
        # a mask instead of a selection, whose size the CPU would have to wait for
        counts = (known[i] & known[j]).to(h.dtype)
        values = binary_cross_entropy_with_logits(self(h, h)[i, j], same.to(h.dtype), reduction="none")
        kinds = [counts * same, counts * ~same] if balanced else [counts]
        return torch.stack([(values * part).sum() / part.sum().clamp_min(1) for part in kinds]).mean()

    def classify(self, query: Tensor, support: Tensor, labels: Tensor, n_way: int) -> Tensor:
        """Return the (q,) class with the largest mean probability over its support samples."""
        odds = self(query, support).sigmoid()
        return prototypes(odds.T, labels, n_way).argmax(0)
