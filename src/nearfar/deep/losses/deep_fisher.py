"""Deep Fisher discriminant analysis (Díaz-Vico, Omari, Torres-Barrán & Dorronsoro, 2017).

    L = mean_i 1/2 ||t_i - f_i||^2        f_i = W z_i + b        t_ic = ([y_i = c] - p_c) / sqrt(p_c)

p_c: share of class c, so that the rows t_i are those of sqrt(n) H E Pi^{-1/2} (H centers, E is one-hot, Pi counts).
Least squares on these targets spans the discriminant directions of Fisher: R = T' F / n has the eigenvalues
lambda / (1 + lambda), where lambda are those of S_W^-1 S_B.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...settings import check_options
from ..objective.batch import Batch
from ..objective.relations import UNKNOWN
from ..proxies.heads import HeadLoss
from ..wholebatch.class_scatter import FisherMap, fisher_map


def deep_fisher(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return half the squared distance of each output to its target."""
    return (outputs - targets).square().sum(1) / 2


def fisher_targets(hot: Tensor, shares: Tensor) -> Tensor:
    """Return the (n, C) targets of one-hot rows, (n, C), for the shares of the classes, (C,); 0 for an absent class."""
    # ([y_i = c] - p_c) / sqrt(p_c)
    root = torch.where(shares > 0, shares, 1.0).sqrt()
    return torch.where(shares > 0, (hot - shares) / root, 0.0)


class DeepFisherLoss(HeadLoss):
    """Regression on centered class targets whose solution spans the linear discriminants.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int, optional
        Number of dimensions of the embeddings, for a linear head with the weight W (the parameter `proxies`) and the
        bias b (the parameter `bias`). By default, there is no head, as in the paper: the embedding itself is f and has
        C dimensions.
    targets : {"dataset", "batch"}
        Samples over which the shares of the classes are taken: "dataset", the training set; or "batch", the batch, as
        in the survey of Ghojogh et al. (2022). The targets of the latter change from batch to batch and are 0 for an
        absent class.
    class_counts : sequence of int, optional
        Number of samples of each class in the training set. A training run with the sampler "random" fills it in. By
        default, all classes have the same size, as in batches of m samples per class.
    reduction : {"mean", "sum"}
        "mean" averages the losses of the samples; "sum" adds them up.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `class_counts` does not consist of one positive number per class.

    Notes
    -----
    The targets are sqrt(n) times the paper's, so that their size does not depend on n. Small classes have the largest
    targets.

    In the published code, the entries off the diagonal are -sqrt(n_y / n) with the sample's own class y, so the columns
    of its targets do not sum to zero.

    Examples
    --------
    >>> loss = DeepFisherLoss(2, class_counts=(3, 1))
    >>> z = torch.tensor([[0.5, -0.5]] * 3 + [[-1.5, 1.5]])
    >>> loss(z, [0, 0, 0, 1]).shape
    torch.Size([])
    """

    shares: Tensor

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int | None = None,
        *,
        targets: str = "dataset",
        class_counts: Sequence[int] | None = None,
        reduction: str = "mean",
        block: int | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_dim or 1, reduction=reduction, block=block)
        check_options(self, ("dataset", "batch"), targets=targets)
        try:
            if class_counts is None:
                counts = torch.ones(num_classes, device="cpu")  # also where modules are made on the device "meta"
            else:
                counts = torch.as_tensor(class_counts, device="cpu").float()
        except (TypeError, ValueError, RuntimeError):  # text, lists of several lengths
            counts = torch.zeros(0)
        if counts.shape != (num_classes,) or not (counts > 0).all():
            needs = f"{num_classes} positive numbers, one per class"
            raise ValueError(f"DeepFisherLoss: class_counts must be {needs}; got {class_counts!r}")
        self.targets = targets
        self.register_buffer("shares", (counts / counts.sum()).to(torch.get_default_device()))
        if embedding_dim is None:
            self.proxies = None
            self.bias = None

    def outputs(self, x: Tensor, *w: Tensor) -> Tensor:
        if self.proxies is not None:
            return super().outputs(x, *w)
        if x.shape[1] != self.num_classes:
            raise ValueError(
                f"DeepFisherLoss: embeddings: expected {self.num_classes} dimensions, one per class, "
                f"or embedding_dim=, got {x.shape[1]}"
            )
        return x

    def losses_and_known(self, batch: Batch) -> tuple[Tensor, Tensor]:
        if self.targets == "batch":
            y = batch.class_numbers("DeepFisherLoss", self.num_classes)
            counts = torch.bincount(y[y != UNKNOWN], minlength=self.num_classes)
            counts = counts[: self.num_classes].to(self.shares)  # labels out of range are refused on the CPU only
            self.shares = counts / counts.sum().clamp_min(1)
        return super().losses_and_known(batch)

    def loss_of_rows(self, classes: bool) -> Callable[[Tensor, Tensor], Tensor]:
        shares = self.shares  # of this batch

        def term(outputs: Tensor, y: Tensor) -> Tensor:
            targets = self.one_hot(y).to(outputs.dtype) if classes else y
            return deep_fisher(outputs, fisher_targets(targets, shares.to(targets.dtype)))

        return term

    def orthogonalize(self, embeddings: Tensor, labels: Tensor, *, within: bool = True) -> FisherMap:
        """Return the Fisher coordinates of a trained embedding. Call it after the training.

        Parameters
        ----------
        embeddings : (n, d) float tensor
            Embeddings of the whole training set.
        labels : (n,) integers
            Class of each sample. Samples of unknown class (-1) are left out.
        within : bool
            Whether to scale the coordinates to unit variance within classes, so that the nearest class mean is the
            prediction of linear discriminant analysis with equal priors. Otherwise, they are scaled to unit total
            variance.
        """
        y = torch.as_tensor(labels, device=embeddings.device)
        z = embeddings[y != UNKNOWN]
        y = y[y != UNKNOWN]
        hot = (y[:, None] == torch.arange(self.num_classes, device=y.device)).double()
        return fisher_map(z, fisher_targets(hot, hot.mean(0)), within)
