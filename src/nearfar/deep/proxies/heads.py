"""Losses on the outputs of one linear layer after the embedding: classification and regression on class labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...settings import check_options
from .. import distributed
from ..objective.batch import Batch, check_width
from ..objective.relations import UNKNOWN, LabelSets
from ..objective.terms import Term
from ..pairwise.comparison import on_host, spans
from ..unit_vectors import unit
from .class_proxies import in_blocks

REDUCTIONS = ("mean", "sum")


class HeadLoss(Term):
    """Base class of losses on the outputs of a linear head, which keeps the embedding separate from the outputs.

    A subclass implements
    ``term(outputs, targets)``, or `loss_of_rows` if it reads more. Labels are class numbers, or `LabelSets` whose rows
    are arbitrary (n, C) targets, such as class probabilities. Samples of unknown class, or with an empty row, are left
    out. The weight is the parameter `proxies` of shape (outputs, embedding_dim), next to the parameter `bias`.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    outputs : int, optional
        Number of outputs, which are the rows of the weight. By default, one per class.
    normalize : bool
        Whether the outputs are cosines, without bias.
    reduction : {"mean", "sum"}
        "mean" averages over the samples of known class; "sum" adds up their losses.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        outputs: int | None = None,
        normalize: bool = False,
        reduction: str = "mean",
        block: int | None = None,
    ) -> None:
        super().__init__()
        check_options(self, REDUCTIONS, reduction=reduction)
        self.num_classes = num_classes
        self.reduction = reduction
        self.block = block
        self.proxies: nn.Parameter | None = nn.Parameter(torch.empty(outputs or num_classes, embedding_dim))
        nn.init.kaiming_uniform_(self.proxies, a=5**0.5)
        self.bias = None if normalize else nn.Parameter(torch.zeros(len(self.proxies)))

    probabilities = False  # whether the targets are distributions, so that rows of LabelSets are scaled to sum 1

    def term(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss per sample, (b,), of (b, outputs) on (b, num_classes) targets."""
        raise NotImplementedError

    def class_term(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss per sample for (b,) class numbers; anything for unknown ones."""
        return self.term(outputs, self.one_hot(y).to(outputs.dtype))

    def one_hot(self, y: Tensor) -> Tensor:
        """Return whether each class is that of each sample, (b, num_classes), for (b,) class numbers."""
        return y[:, None] == torch.arange(self.num_classes, device=y.device)

    def loss_of_rows(self, classes: bool) -> Callable[[Tensor, Tensor], Tensor]:
        """Return `class_term` or `term`: a later call must not change what backward computes again."""
        return self.class_term if classes else self.term

    def outputs(self, x: Tensor, *w: Tensor) -> Tensor:
        """Return the (n, outputs) outputs of the head for (n, d) embeddings; w are the `directions`, if made before."""
        return self.linear(x, 1.0, *w)

    def logits(self, x: Tensor, *w: Tensor) -> Tensor:
        """Return what `term` reads for (n, d) embeddings: the outputs, or the outputs times a scale."""
        return self.outputs(x, *w)

    def get_logits(self, embeddings: Tensor) -> Tensor:
        """Return the (n, outputs) outputs for embeddings (n, d).

        With one output per class, the largest is the predicted class.
        """
        return self.logits(embeddings)

    def directions(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return what every block compares with, made once: the unit rows of the weight, where outputs are cosines."""
        if self.bias is None and self.proxies is not None:
            return (unit(self.parameters_for(x)[0]),)
        return ()

    def parameters_for(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the weight (outputs, d) and the bias (outputs,), if there is one, in the dtype of embeddings (n, d).

        Raises
        ------
        ValueError
            If the embeddings have another number of dimensions.
        """
        assert self.proxies is not None
        check_width(type(self).__name__, x, self.proxies.shape[1])
        weight = distributed.whole(self.proxies).to(x.dtype)
        return weight, None if self.bias is None else distributed.whole(self.bias).to(x.dtype)

    def linear(self, x: Tensor, scale: float, *w: Tensor) -> Tensor:
        """Return the outputs times a scale, in one product."""
        weight, bias = self.parameters_for(x)
        if bias is None:
            return unit(x, scale) @ (w or self.directions(x))[0].T
        # s (W x + b), (n, outputs)
        return torch.addmm(bias, x, weight.T, beta=scale, alpha=scale)

    def publish(self, batch: Batch) -> Batch:
        """Give the outputs, the class-level representation, to the other terms."""
        return batch._replace(scores=self.outputs(batch.x))

    def class_centers(self) -> Tensor | None:
        """Return the rows of the weight if there is one for each class, else None."""
        if self.proxies is None or len(self.proxies) != self.num_classes:
            return None
        return distributed.whole(self.proxies)[None]

    def local_value(self, batch: Batch) -> Tensor:
        losses, known = self.losses_and_known(batch)
        return self.reduced(losses.sum(), known)

    def local_sample_losses(self, batch: Batch) -> Tensor:
        losses, known = self.losses_and_known(batch)
        return self.reduced(losses * len(batch.x), known)

    def losses_and_known(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses of this process's samples, (k,), and which of all samples are of known class, (n,)."""
        y = self.checked_labels(batch)
        known = y != UNKNOWN if y.ndim == 1 else (y != 0).any(1)
        loss_of = self.loss_of_rows(y.ndim == 1)

        def one(x: Tensor, *rest: Any) -> Tensor:
            *w, lo, hi = rest
            # selected, not multiplied: an infinite loss of an unknown sample times 0 would be NaN
            return torch.where(known[lo:hi], loss_of(self.logits(x[lo:hi], *w), y[lo:hi]), 0.0)

        blocks = spans(batch.anchors, self.num_classes, self.block, batch.x.device)
        parts = in_blocks(one, blocks, batch.x, *self.directions(batch.x))
        if not parts:  # a process without samples: DistributedDataParallel waits for the gradient of each parameter
            parts = [self.logits(batch.x[:0], *self.directions(batch.x)).sum(1)]
        return torch.cat(parts), known

    def reduced(self, total: Tensor, known: Tensor) -> Tensor:
        """Return sums of losses, or divide them by the number of samples of known class, (n,) for the whole batch."""
        if self.reduction == "sum":
            return total
        return total / known.sum().clamp_min(1)

    def checked_labels(self, batch: Batch) -> Tensor:
        """Return the (n,) checked class numbers or the (n, C) targets."""
        name = type(self).__name__
        if batch.ref is not None:
            raise ValueError(f"{name}: ref does not apply, this loss has a linear head")
        if isinstance(batch.y, LabelSets):
            if batch.y.hot.shape[1] != self.num_classes:
                width = batch.y.hot.shape[1]
                raise ValueError(f"{name}: labels need one column per class, {self.num_classes}, got {width}")
            hot = batch.y.hot.to(batch.x.dtype)
            if self.probabilities:
                if on_host(hot) and not bool(((hot >= 0) & hot.isfinite()).all()):
                    least = float(hot.min())
                    detail = f"probabilities of classes must be finite and not negative, got {least:.4g}"
                    raise ValueError(f"{name}: labels: {detail}")
                # shares of each row sum to 1; an empty row stays 0, and its sample is unknown
                return hot / hot.sum(1, keepdim=True).clamp_min(torch.finfo(hot.dtype).tiny)
            return hot
        return batch.class_numbers(name, self.num_classes)


class RegressionHead(HeadLoss):
    """Base class of heads that regress one number per class, or the class number.

    A subclass implements `residual_loss`.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    target : {"onehot", "index"}
        "onehot" regresses 1 for the sample's class and 0 for the others; "index" regresses the class number with a
        single output, which imposes an order on the classes.
    reduction : {"mean", "sum"}
        "mean" averages over the samples of known class; "sum" adds up their losses.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.
    """

    def __init__(self, num_classes: int, embedding_dim: int, *, target: str, reduction: str, block: int | None) -> None:
        check_options(self, ("onehot", "index"), target=target)
        outputs = 1 if target == "index" else None
        super().__init__(num_classes, embedding_dim, outputs=outputs, reduction=reduction, block=block)
        self.target = target

    def residual_loss(self, residual: Tensor) -> Tensor:
        """Return the elementwise loss of outputs minus targets."""
        raise NotImplementedError

    def term(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.target == "index":
            numbers = torch.arange(self.num_classes, device=targets.device, dtype=targets.dtype)
            targets = (targets @ numbers)[:, None]
        return self.residual_loss(outputs - targets).sum(1)


def smoothed(targets: Tensor, smoothing: float) -> Tensor:
    """Return target distributions mixed with the uniform distribution."""
    if not smoothing:
        return targets
    return (1 - smoothing) * targets + smoothing / targets.shape[1]
