"""Whitening after the embedding layer, fitted in closed form to the embeddings of the training items."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ...labels import as_array
from ...numerics.types import AnyArray, Ints
from ...numerics.whitening import discriminant_whitening, unit_rows
from ..precision import PreciseBuffers
from .standardize import HALF


class Whiten(PreciseBuffers):
    """Whiten embeddings as `DiscriminantWhitening` does, for comparison by cosine: ``z = W (x / |x| - mean)``.

    Before `learn`, embeddings are only scaled to unit length. The module is not trained.

    Parameters
    ----------
    embedding_dim : int
        Number of dimensions of the embeddings, which is also that of the result.

    Examples
    --------
    >>> whiten = Whiten(2)
    >>> whiten.learn(np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]), np.array([0, 0, 1, 1]))
    >>> whiten(torch.ones(3, 2)).shape
    torch.Size([3, 2])
    """

    mean: Tensor
    weight: Tensor

    def __init__(self, embedding_dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(embedding_dim))
        self.register_buffer("weight", torch.eye(embedding_dim))

    def learn(self, embeddings: AnyArray, labels: Ints) -> None:
        """Fit mean and weight to raw embeddings (n, d) and their classes (n,)."""
        rows = unit_rows(np.asarray(embeddings, dtype=np.float64))
        fitted = discriminant_whitening(rows, as_array(labels))
        self.mean.copy_(torch.from_numpy(fitted.mean))
        self.weight.copy_(torch.from_numpy(fitted.components))

    def forward(self, embeddings: Tensor) -> Tensor:
        """Return the whitened (n, d) embeddings, which are to be compared by cosine."""
        unit = nn.functional.normalize(embeddings.to(self.mean.dtype), dim=-1)
        whitened = (unit - self.mean) @ self.weight.T
        return whitened.to(embeddings.dtype) if embeddings.dtype in HALF else whitened
