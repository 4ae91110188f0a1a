"""A softmax over some of the classes: partial FC (An et al., 2021).

With a million classes, most of the time and memory of a step is spent on classes that no sample of the batch belongs
to. Here, a step compares with the classes of the batch and with a new random selection of the others, so that a given
share of all classes is used.
"""

from __future__ import annotations

from math import ceil

import torch
from torch import Tensor

from .. import distributed
from ..objective.batch import Batch, check_width
from ..objective.relations import UNKNOWN
from ..objective.terms import Term
from ..rng import to_device
from .divided_classes import DivisibleClasses, rows_of_classes


class SampledClasses(Term):
    """Loss with class proxies that compares each batch with a sample of the classes.

    Parameters
    ----------
    loss : ClassProxyLoss or CrossEntropyHead
        Loss with learned proxies for each class, such as ``CosFaceLoss``, ``SubCenterArcFaceLoss`` or
        ``ProxyAnchorLoss``, or with a linear head.
    share : float
        Share of the classes that a batch is compared with, in (0, 1]. The classes of the batch are always among them.
    sparse : bool
        Whether to give the proxies a sparse gradient of the rows that were drawn, for ``torch.optim.SparseAdam`` or SGD
        without momentum. A step then only takes time for these rows.

    Raises
    ------
    TypeError
        If `loss` is of another kind.
    ValueError
        If `share` is not in (0, 1].

    Notes
    -----
    With ``share=1``, this is the loss itself. With a smaller share, the log-sum-exp over the other classes is taken
    over the drawn ones, as in the paper, which finds 0.1 to be enough. In evaluation mode, all classes count.

    Label smoothing of ``CrossEntropyHead`` spreads over the drawn classes. In ``ProxyAnchorLoss``, whose mean is over
    classes, the drawn ones are weighted, so that the loss and its gradient are those of all classes on average. This
    needs a share that is larger than the classes of the batch.

    The classes are drawn with PyTorch's global generator; with several processes, with that of the first. Samples of
    unknown class are left out.

    Examples
    --------
    >>> from nearfar import CosFaceLoss
    >>> loss = SampledClasses(CosFaceLoss(100_000, 16), share=0.01, sparse=True)
    >>> loss(torch.randn(8, 16), torch.arange(8)).backward()
    >>> loss.loss.proxies.grad.is_sparse, loss.loss.proxies.grad._nnz()
    (True, 1000)
    """

    def __init__(self, loss: DivisibleClasses, share: float = 0.1, *, sparse: bool = False) -> None:
        super().__init__()
        if not isinstance(loss, DivisibleClasses):
            raise TypeError(f"SampledClasses: loss must be a loss with class proxies, got {loss!r}")
        if not loss.can_draw_classes:
            detail = "its classes cannot be drawn: they need learned proxies, and nothing may read those of all classes"
            raise TypeError(f"SampledClasses: loss: {type(loss).__name__}: {detail}")
        check_share("SampledClasses", share)
        self.loss = loss
        self.share = share
        self.sparse = sparse

    @property
    def title(self) -> str:
        """The name of the loss."""
        return type(self.loss).__name__

    def local_value(self, batch: Batch) -> Tensor:
        if not self.training:
            return self.loss.local_value(batch)
        return self.loss.compare_classes(batch, *self._drawn(batch))

    def local_sample_losses(self, batch: Batch) -> Tensor:
        if not self.training:
            return self.loss.local_sample_losses(batch)
        return self.loss.sample_losses_of_classes(batch, *self._drawn(batch))

    def _drawn(self, batch: Batch) -> list[Tensor]:
        """Draw classes, and return the place of each sample's own class among them, (n,), and their parameters."""
        loss = self.loss
        name = f"SampledClasses({self.title})"
        if batch.ref is not None:
            raise ValueError(f"{name}: ref does not apply, this loss compares with its own class proxies")
        y = batch.class_numbers(name, loss.num_classes)
        classes = draw_classes(y, loss.num_classes, self.share)
        place = torch.searchsorted(classes, y)  # the classes of the batch are among those that were drawn
        own = torch.where(y == UNKNOWN, UNKNOWN, place)
        parameters = loss.class_parameters().values()
        check_width(name, batch.x, next(iter(parameters)).shape[1])
        rows = [
            rows_of_classes(parameter, classes, loss.num_classes, sparse=self.sparse).to(batch.x.dtype)
            for parameter in parameters
        ]
        return [own, *rows]

    def publish(self, batch: Batch) -> Batch:
        return self.loss.publish(batch)

    def class_centers(self) -> Tensor | None:
        return self.loss.class_centers()


def check_share(name: str, share: float) -> None:
    """Raise a ValueError unless a share of the classes is in (0, 1]."""
    if not 0 < share <= 1:
        raise ValueError(f"{name}: share must be in (0, 1], got {share}")


@torch.no_grad()
def draw_classes(y: Tensor, num_classes: int, share: float) -> Tensor:
    """Return a random share of the classes in ascending order, among them all of y (n,); the same in all processes."""
    # the classes with the largest keys are drawn; those of the batch have the key 2
    keys = distributed.of_first(to_device(torch.rand(num_classes), y.device))
    samples = torch.zeros_like(keys).index_add_(0, y.clamp_min(0), (y != UNKNOWN).to(keys.dtype))
    present = samples > 0
    keys = torch.where(present, 2.0, keys)
    size = ceil(share * num_classes)
    if size < len(y):  # the batch may have more classes, whose number the host waits for
        size = max(size, int(present.sum()))
    return keys.topk(size).indices.sort().values
