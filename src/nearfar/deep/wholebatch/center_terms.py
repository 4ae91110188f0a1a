"""Penalties of class centers: of the proxies that another loss of the objective learns, or of the means of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from ..objective.batch import Batch
from ..objective.terms import SetTerm
from .batch_classes import batch_classes, of_known_class


class CenterTerm(SetTerm):
    """Base class of penalties on class centers; a subclass implements `penalty`.

    The centers are the class proxies of the first loss in the objective that has any. If no loss has, they are the
    class means of the batch.
    """

    @property
    def reads_centers(self) -> bool:
        return True

    def penalty(self, centers: Tensor, real: Tensor) -> Tensor:
        """Return the penalty, a scalar.

        Parameters
        ----------
        centers : (K, C, d) tensor
            K centers of each of C classes.
        real : (C,) bool
            Classes that exist. The centers of the others are 0 and do not count.
        """
        raise NotImplementedError

    def value(self, batch: Batch) -> Tensor:
        if batch.centers is not None:
            real = torch.ones(batch.centers.shape[1], dtype=torch.bool, device=batch.centers.device)
            return self.penalty(batch.centers, real)
        name = type(self).__name__
        batch = of_known_class(batch, name)
        classes = batch_classes(batch.classes(name))
        value = self.penalty(classes.means(batch.x)[None], classes.sizes > 0)
        return value + 0 * batch.x.sum()  # so that there is a gradient even if no center counts


def mean_of_real(values: Tensor, real: Tensor) -> Tensor:
    """Return the mean of values, (K, C), over the classes that exist; 0 if there are none."""
    return torch.where(real, values, 0.0).sum() / (len(values) * real.sum()).clamp_min(1)
