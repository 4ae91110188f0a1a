"""Multi-modal stacked autoencoder (Roostaiyan, Imani & Soleymani Baghshah, 2017).

    min  sum_i sum_v ||x_i^v - xhat_i^v||^2  +  lambda1 sum_{(i,j) in S} [d(z_i, z_j) - m1]_+
                                             +  lambda2 sum_{(i,j) in D} [m2 - d(z_i, z_j)]_+

z: code that all modalities v share; S, D: pairs of a batch of the same and of different classes; d: squared distance.
A missing modality enters as a learned default, and its reconstruction does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ....numerics.types import Seed
from ....settings import check_options
from ...objective.relations import masks
from ...pairwise.comparison import sq_euclidean
from ..reconstruction.codecs import Hidden
from ..reconstruction.learner import check_numbers
from .learner import ViewReconstruction
from .modalities import Modalities

PAIRS = ("mean", "sum")


def multi_modal(
    errors: Tensor, z: Tensor, y: Tensor, lam: tuple[float, float], m: tuple[float, float], pairs: str
) -> Tensor:
    """Return the mean of (n,) reconstruction errors with the two pair terms of the codes; y: (n,) classes, -1 unknown.

    pairs: the mean over the pairs of each kind, or their sum divided by n.
    """
    value = errors.mean()
    if not any(lam):
        return value
    d = sq_euclidean(z, z)
    # d is symmetric: each pair once
    upper = torch.ones_like(d, dtype=torch.bool).triu(1)
    # [d - m1]_+ of pairs of one class, [m2 - d]_+ of two classes, (n, n) each
    hinges = ((d - m[0]).clamp_min(0), (m[1] - d).clamp_min(0))
    for weight, hinge, kind in zip(lam, hinges, masks(y, y, slice(0, len(y))), strict=True):
        of = kind & upper
        number = of.sum().clamp_min(1) if pairs == "mean" else len(z)
        value = value + weight * torch.where(of, hinge, 0.0).sum() / number
    return value


class MultiModalAutoencoder(ViewReconstruction):
    """Learn one code of several modalities, some of which may be missing.

    Parameters
    ----------
    n_components : int
        Length p of the code.
    hidden : int or sequence of int
        Layers of the encoder of each modality before the shared layer: their number, with sizes in geometric steps, or
        their sizes.
    activation, standardize, max_iter, batch_size, learning_rate, tol, random_state, verbose, device
        As in ``Autoencoder``; `max_iter` applies to the fine-tuning.
    lam1, lam2 : float
        Weights lambda1 of the similar and lambda2 of the dissimilar pairs.
    m1, m2 : float
        Margins: similar pairs should be nearer than m1, and dissimilar pairs farther than m2 > m1.
    pairs : {"mean", "sum"}
        "mean" averages over the pairs of each kind in a batch; "sum" adds them up, as in the formula, so that the value
        grows with the batch.
    view_sizes : sequence of int, optional
        Number D_v of columns of each modality, for modalities that are concatenated in one array, for example from a
        file of rows.
    scale_views : bool
        Whether to divide the error of each modality by its number of features. Otherwise, the widest modality
        dominates.
    hide : float
        Share of the modalities that are hidden from the encoder at random in every step, while their reconstruction
        counts, so that the others learn to replace a missing one. The paper uses 0.
    pretrain : int
        Number of epochs of the greedy training of every layer as a denoising autoencoder; with 0, it is left out.
    level : float
        Standard deviation of the noise in the greedy training.

    Attributes
    ----------
    network_ : Module
        Trained network.
    mean_, scale_ : (sum of D_v,) arrays
        Mean and standard deviation of the training rows that are not missing.
    loss_curve_ : (n_iter_,) array
        Mean loss of every epoch of the fine-tuning.
    n_features_in_ : tuple of int
        Number D_v of columns of each modality.

    Notes
    -----
    The margins and weights of the paper, and its treatment of missing modalities, are not known to us.
    """

    def __init__(
        self,
        n_components: int = 8,
        *,
        hidden: Hidden = 1,
        activation: str = "relu",
        lam1: float = 1.0,
        lam2: float = 1.0,
        m1: float = 0.0,
        m2: float = 1.0,
        pairs: str = "mean",
        view_sizes: Sequence[int] | None = None,
        scale_views: bool = True,
        hide: float = 0.0,
        pretrain: int = 10,
        level: float = 0.1,
        standardize: bool = True,
        max_iter: int = 100,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        tol: float = 1e-4,
        random_state: Seed = None,
        verbose: bool = False,
        device: str = "cpu",
    ) -> None:
        self.n_components = n_components
        self.hidden = hidden
        self.activation = activation
        self.lam1 = lam1
        self.lam2 = lam2
        self.m1 = m1
        self.m2 = m2
        self.pairs = pairs
        self.view_sizes = view_sizes
        self.scale_views = scale_views
        self.hide = hide
        self.pretrain = pretrain
        self.level = level
        self.standardize = standardize
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

    def _check(self) -> None:
        super()._check()
        check_options(self, PAIRS, pairs=self.pairs)
        check_numbers(self, 0, lam1=self.lam1, lam2=self.lam2, m1=self.m1, level=self.level, pretrain=self.pretrain)
        if not self.m2 > self.m1 or not 0 <= self.hide < 1:
            got = f"got m1={self.m1}, m2={self.m2}, hide={self.hide}"
            raise ValueError(f"MultiModalAutoencoder: m2 must be above m1 and hide in [0, 1), {got}")

    def _objective(self, views: Modalities, present: Tensor, y: Tensor) -> Tensor:
        decoded, z = self.network_(views)
        errors = self._errors(views._replace(present=present), decoded)
        return multi_modal(errors, z, y, (self.lam1, self.lam2), (self.m1, self.m2), self.pairs)
