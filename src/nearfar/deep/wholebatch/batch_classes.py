"""The classes of a batch, numbered without waiting for a device.

Only the labels determine how many classes a batch has. On a host, they are sorted and counted. On a device, or in a
compiled graph, the first sample of a class represents it: there is one place for each sample, and some places remain
empty.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..objective.batch import Batch
from ..objective.relations import UNKNOWN
from ..pairwise.comparison import on_host


class BatchClasses(NamedTuple):
    """Classes of the samples of a batch.

    Attributes
    ----------
    member : (n,) integers
        Number of the class of each sample.
    labels : (C,) integers
        Label of each class, -1 for an empty place.
    sizes : (C,) integers
        Number of samples of each class, 0 for an empty place.
    known : (n,) bool or None
        Samples of known class; None if all are known.
    """

    member: Tensor
    labels: Tensor
    sizes: Tensor
    known: Tensor | None

    def sums(self, values: Tensor) -> Tensor:
        """Return the sums over each class of the values of its samples, (n,) or (n, d)."""
        if self.known is not None:
            known = self.known
            if values.ndim == 2:
                known = known[:, None]
            values = torch.where(known, values, 0.0)
        return values.new_zeros(len(self.sizes), *values.shape[1:]).index_add(0, self.member, values)

    def means(self, values: Tensor) -> Tensor:
        """Return the means over each class of the values of its samples; 0 for an empty place."""
        sizes = self.sizes.clamp_min(1)
        if values.ndim == 2:
            sizes = sizes[:, None]
        return self.sums(values) / sizes

    @property
    def number(self) -> Tensor:
        """The number of classes, ()."""
        return (self.sizes > 0).sum()


def of_known_class(batch: Batch, who: str) -> Batch:
    """Return the batch without samples of unknown class on a host; elsewhere `batch_classes` leaves them out."""
    if on_host(batch.x):
        return batch.known(who)
    batch.classes(who)
    return batch


def sorted_classes(y: Tensor) -> BatchClasses:
    """Return the classes of the (n,) labels, all of them known, in ascending order; on a device, the host waits."""
    labels, member, sizes = torch.unique(y, return_inverse=True, return_counts=True)
    return BatchClasses(member, labels, sizes, None)


def batch_classes(y: Tensor) -> BatchClasses:
    """Return the classes of the (n,) labels; on the host, all of them must be known."""
    if on_host(y):
        return sorted_classes(y)
    # the number of a class is the place of its first sample
    n = len(y)
    places = torch.arange(n, device=y.device)
    member = torch.where(y[:, None] == y, places, n).amin(1) if n else places
    known = y != UNKNOWN
    sizes = torch.zeros_like(y).index_add(0, member, known.to(y.dtype))
    return BatchClasses(member, torch.where(sizes > 0, y, UNKNOWN), sizes, known)
