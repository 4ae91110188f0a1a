"""Losses with several proxies per class, where each sample is compared with the nearest one."""

from __future__ import annotations

import torch
from torch import Tensor

from ..objective.batch import Batch, check_range
from ..objective.relations import UNKNOWN
from ..unit_vectors import unit
from .class_centers import nearest_cosine
from .class_proxies import ClassProxyLoss
from .class_softmax import own_and_others_of


class SubCenterLoss(ClassProxyLoss):
    """Base class of losses of the cosine to the nearest of K proxies per class; a subclass implements `per_sample`.

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_dim : int
        Number of dimensions of the embeddings.
    sub_centers : int
        Number K of proxies per class, from 1 to 255. The parameter `proxies` has the first proxy of every class, then
        the second of every class, and so on.
    block : int, optional
        Number of samples processed at a time.
    """

    def __init__(self, num_classes: int, embedding_dim: int, sub_centers: int, *, block: int | None = None) -> None:
        if not 1 <= sub_centers <= 255:
            raise ValueError(f"{type(self).__name__}: sub_centers must be 1 to 255, got {sub_centers}")
        super().__init__(num_classes, embedding_dim, block=block)
        self.sub_centers = sub_centers
        more = [torch.nn.init.kaiming_uniform_(torch.empty_like(self.proxies), a=5**0.5) for _ in range(sub_centers)]
        self.proxies = torch.nn.Parameter(torch.cat(more))

    @property
    def reads_two_numbers(self) -> bool:
        return True

    @property
    def can_draw_classes(self) -> bool:
        return True

    def own_and_others(self, x: Tensor, y: Tensor, proxies: Tensor) -> tuple[Tensor, Tensor]:
        return own_and_others_of(unit(x, self.scale), self._centers(proxies), y, cosines=True)

    def cosine_sums(self, x: Tensor, proxies: Tensor) -> Tensor:
        blocks = self._blocks(slice(0, len(x)), x)
        return torch.cat([nearest_cosine(x[lo:hi], self._centers(proxies)).sum(1) for lo, hi in blocks])

    def directions(self, w: Tensor) -> Tensor:
        return w  # the comparison itself scales the proxies to unit length

    def logits(self, x: Tensor, w: Tensor) -> Tensor:
        return nearest_cosine(x, self._centers(w), self.scale)

    def publish(self, batch: Batch) -> Batch:
        return batch._replace(scores=nearest_cosine(batch.x, self._centers(self.reference(batch)[0])))

    @torch.no_grad()
    def outliers(self, embeddings: Tensor, labels: Tensor, angle: float = 1.309) -> Tensor:
        """Return which samples lie far from the dominant proxy of their class, as an (n,) boolean tensor.

        The dominant proxy is the one to which most samples of the class belong.

        Parameters
        ----------
        embeddings : (n, d) float tensor
            Embeddings of the training set.
        labels : (n,) integers
            Class of each sample. Samples of unknown class (-1) are no outliers.
        angle : float
            Smallest angle of an outlier, in radians. The paper's 1.309 is 75 degrees.

        Raises
        ------
        ValueError
            If there is not one label per embedding, or a label is not a class number.
        """
        y = torch.as_tensor(labels, dtype=torch.int64, device=self.proxies.device)
        check_range(f"{type(self).__name__}: labels", y, self.num_classes)
        if len(y) != len(embeddings):
            raise ValueError(f"labels: expected one per embedding, {len(embeddings)}, got {len(y)}")
        centers = unit(self._centers(self.proxies))
        known = y != UNKNOWN
        x = unit(embeddings.to(self.proxies))
        # cosines with the K proxies of the own class, (n, K)
        own = torch.stack([(x * center[y.clamp_min(0)]).sum(1) for center in centers], 1)
        # how many samples of each class are nearest to each of its proxies, (C, K): the largest is dominant
        votes = torch.zeros(self.num_classes, self.sub_centers, device=y.device)
        votes.index_put_((y[known], own[known].argmax(1)), votes.new_ones(()), accumulate=True)
        nearest = own.gather(1, votes.argmax(1)[y.clamp_min(0), None]).squeeze(1)
        return known & (nearest.clamp(-1, 1).acos() > angle)

    def _centers(self, w: Tensor) -> Tensor:
        """Return the proxies, (K, C, d), of all classes or of some."""
        return w.unflatten(0, (self.sub_centers, len(w) // self.sub_centers))
