"""Deep adversarial metric learning, DAML (Duan, Zheng, Lin, Lu & Zhou, 2018).

    L = J_gen + w J_m(M(a), M(p), M(g))        g = G(a, p, n)        D(u, v) = ||M(u) - M(v)||^2
    J_gen = mean_t ||g - a||^2 + lambda1 ||g - n||^2 + lambda2 [ D(g, a) - D(p, a) + s alpha ]_+

t: triplets (a, p, n) of embeddings; G: generator of a hard negative; M: metric network; J_m: any triplet loss. J_gen
trains only G, with the embeddings and M held constant; J_m trains the embeddings and M, with g held constant. No
parameter is in both, so one backward pass gives each its own gradient, and one step of the optimizer corresponds to
both steps of the paper.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .. import distributed
from ..objective.batch import Batch
from ..objective.parser import parse_objective
from ..objective.terms import Term
from ..pairwise import triplets
from ..pairwise.row_loss import RowLoss
from ..pairwise.triplets import identity_layers, indices, mined_rows, negative_generator, through
from ..unit_vectors import unit


def adversarial_triplet(
    points: tuple[Tensor, ...], mapped: tuple[Tensor, ...], lam1: float, lam2: float, alpha: float
) -> Tensor:
    """Return J_gen of each triplet, (t,).

    `points` are a, n and g, `mapped` are M(a), M(p) and M(g), (t, d) each; `alpha` is s alpha, the signed margin.
    """
    a, n, g = points
    Ma, Mp, Mg = mapped
    hinge = (_squared(Mg, Ma) - _squared(Mp, Ma) + alpha).clamp_min(0)
    return _squared(g, a) + lam1 * _squared(g, n) + lam2 * hinge


def _squared(u: Tensor, v: Tensor) -> Tensor:
    return (u - v).square().sum(1)


class AdversarialTriplet(Term):
    """Triplet loss on hard negatives that a generator makes.

    Parameters
    ----------
    embedding_dim : int
        Number d of dimensions of the embeddings.
    loss : Term or str
        Loss J_m of the embeddings and generated negatives: any pair or triplet loss without proxies, as a term or as
        text.
    weight : float
        Weight w of J_m.
    lam1, lam2 : float
        Weights lambda1 and lambda2 in J_gen: of the distance between generated and real negative, and of the hinge.
    alpha : float
        Margin alpha of the hinge.
    normalize : bool
        Whether to scale the embeddings to unit length first; the published code does not.
    hinge_sign : int
        Sign s of the margin. With -1, as in the published code, the hinge is active where the generated negative g is
        farther than the positive by more than alpha. With +1, as in the survey of Ghojogh et al. (2022), it is active
        unless g is nearer than the positive by alpha.
    joint : bool
        Whether J_gen and J_m both train all parameters, as in the published code.
    pretrain : int
        Number of epochs in which J_m is computed with the real negatives while the generator already learns. The
        published runs use 20.
    miner : callable, optional
        Miner that selects triplets. By default, every positive pair with its semi-hard negative, as in
        ``BatchSemiHard()``.
    rectify : bool
        Whether the generator ends with a ReLU, as in the published code, which confines g to the positive orthant.
    layers : int
        Number of linear layers of the metric network M, which is initialized to the identity. With 0, it remains the
        identity.
    generator, metric : Module, optional
        Modules to use as the generator G, which maps (t, 3d) to (t, d), and as the metric network M. If M is an
        embedding network and the term is called with inputs of M instead of embeddings, this is the survey's form, in
        which G generates inputs.

    Raises
    ------
    TypeError
        If `loss` is not a pair or triplet loss.
    ValueError
        If `hinge_sign` is neither -1 nor 1.

    Notes
    -----
    The library keeps the embedding; ``term.metric`` applies M to it. The published code halves both hinges and, after
    the pre-training, lowers the learning rate of the trunk by a factor of 1000.

    With the same learning rate for all parameters, the embeddings move away from negatives that follow them, and get
    worse. Start from a trained trunk with a low learning rate, or add 0.1 times this term to another loss.
    """

    def __init__(
        self,
        embedding_dim: int,
        *,
        loss: Term | str = "TripletLoss(margin=1.0, normalize=False)",
        weight: float = 1.0,
        lam1: float = 1.0,
        lam2: float = 1.0,
        alpha: float = 1.0,
        normalize: bool = False,
        hinge_sign: int = -1,
        joint: bool = False,
        pretrain: int = 0,
        miner: Any = None,
        rectify: bool = False,
        layers: int = 2,
        generator: nn.Module | None = None,
        metric: nn.Module | None = None,
    ) -> None:
        super().__init__()
        term = parse_objective(loss) if isinstance(loss, str) else loss
        if not isinstance(term, RowLoss):
            raise TypeError(f"AdversarialTriplet: loss must be a pair or triplet loss, got {loss!r}")
        if hinge_sign not in (-1, 1):
            raise ValueError(f"AdversarialTriplet: hinge_sign must be -1 or 1, got {hinge_sign!r}")
        self.loss = term
        self.weight = weight
        self.lam1 = lam1
        self.lam2 = lam2
        self.alpha = hinge_sign * alpha
        self._check_miner(miner)
        self.normalize = normalize
        self.joint = joint
        self.miner = miner
        self.pretrain = pretrain
        self.epoch = pretrain
        self.generator = generator or negative_generator(embedding_dim, rectify)
        self.metric = metric or identity_layers(embedding_dim, layers)
        self.width = None if None not in (generator, metric) else embedding_dim
        self._last: tuple[Tensor, Tensor] | None = None

    def on_epoch(self, epoch: int) -> None:
        """Set the number of the epoch that begins. If it is never called, the pre-training counts as completed."""
        self.epoch = epoch

    def local_value(self, batch: Batch) -> Tensor:
        if batch.ref is not None:
            raise ValueError("AdversarialTriplet: ref does not apply, triplets are made of one batch")
        d = batch.x.shape[1]
        if self.width not in (None, d):
            raise ValueError(f"AdversarialTriplet: embedding_dim is {self.width}, embeddings have {d} dimensions")
        x = batch.x
        if self.normalize:
            x = unit(x)
        a, p, n = (x[index] for index in self._triplets(batch))  # (t, d) each
        Ma = through(self.metric, a)
        Mp = through(self.metric, p)
        if self.joint:
            g = through(self.generator, torch.cat([a, p, n], 1))
            Mg = through(self.metric, g)
            points = (a, n, g)
            mapped = (Ma, Mp, Mg)
        else:
            # J_gen trains only G: its points are constants, and M is held; J_m trains only M and the embeddings
            g = through(self.generator, torch.cat([a, p, n], 1).detach())
            Mg = through(self.metric, g.detach())
            points = (a.detach(), n.detach(), g)
            mapped = (Ma.detach(), Mp.detach(), through(self.metric, g, held=True))
        J_gen = adversarial_triplet(points, mapped, lam1=self.lam1, lam2=self.lam2, alpha=self.alpha)
        # the share of this process of the mean over the triplets of all
        J_gen = J_gen.sum() / distributed.total(J_gen.new_tensor(float(len(J_gen)))).clamp_min(1)
        if self.epoch < self.pretrain:
            # before the generator has learned anything, the metric trains on the real negatives
            negative = through(self.metric, n)
        else:
            negative = Mg
        J_m = triplets.triplet_value(self.loss, Ma, Mp, negative)
        self._last = J_gen.detach(), J_m.detach()
        return J_gen + self.weight * J_m + batch.x.sum() * 0

    @torch.no_grad()
    def _triplets(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the (t,) numbers of the anchors, positives and negatives of this process's triplets."""
        rows = mined_rows(batch, self.loss, self.miner, normalize=self.loss.normalize or self.normalize)
        return indices(rows, batch.anchors.start)

    @property
    def stats_(self) -> dict[str, float]:
        """This process's share of J_gen and of J_m in the last call."""
        if self._last is None:
            return {}
        return dict(zip(("generator", "metric"), map(float, self._last), strict=True))
