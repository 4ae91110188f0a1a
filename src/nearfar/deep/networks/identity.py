"""No trunk: the features are the items themselves, flattened. With an embedding layer, this is a linear metric."""

from __future__ import annotations

from torch import Tensor, nn


class Identity(nn.Module):
    """Return the items themselves, flattened.

    Parameters
    ----------
    in_features : int
        Number of features of an item, which is also the number D of output features.
    """

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.num_features = in_features

    def forward(self, items: Tensor) -> Tensor:
        """Return the (n, in_features) items."""
        return items.flatten(1)
