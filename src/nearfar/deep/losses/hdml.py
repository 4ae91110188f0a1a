"""Hardness-aware deep metric learning, HDML (Zheng, Chen, Lu & Zhou, 2019).

    L = w J_m(a, p, n) + (1 - w) J_m(a', p', n') + J_gen + J_class        w = exp(-beta / J_gen_avg)
    m = a + lambda (n - a)        lambda = (d+ + (d- - d+) exp(-alpha / J_avg)) / d-  if d- > d+, else 1
    a', p', n' = f(G(a)), f(G(p)), f(G(m))
    J_gen = mean_i ||G(z_i) - y_i||^2 + lambda_s mean_{v = G(a), G(p), G(m)} CE(v)        J_class = mean_i CE(y_i)

a, p, n: embeddings of a triplet; d+ = ||p - a||, d- = ||n - a||; m: n, moved towards its anchor, farther as the
average loss J_avg falls; y: features, from which the embedding layer f makes the embeddings z = f(y); G: generator,
from embeddings back to features; CE: cross-entropy of a softmax classifier of features, for the label of the item.

J_m trains the embeddings, J_gen only G, and J_class only the classifier. No parameter is in two of them, so one
backward pass gives each its own gradient, as the three optimizers of the paper do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from .. import distributed
from ..objective.batch import Batch, check_width
from ..objective.network_layers import BorrowsLayer
from ..objective.parser import parse_objective
from ..objective.relations import UNKNOWN
from ..objective.terms import Term
from ..pairwise.comparison import safe_sqrt
from ..pairwise.row_loss import RowLoss
from ..pairwise.triplets import mined_rows, semi_hard, through, triplet_value


def harder(a: Tensor, p: Tensor, n: Tensor, kept: Tensor) -> Tensor:
    """Return the negatives n, (t, d), moved towards their anchors a, where they are farther than the positives p.

    `kept` is exp(-alpha / J_avg), the share that is kept of what a negative is farther than the positive.
    """
    near = safe_sqrt((p - a).square().sum(1))  # d+, (t,)
    far = safe_sqrt((n - a).square().sum(1))  # d-, (t,)
    farther = far > near
    ratio = (near + (far - near) * kept) / torch.where(farther, far, 1.0)
    moved = a + ratio[:, None] * (n - a)
    return torch.where(farther[:, None], moved, n)


class HDMLLoss(BorrowsLayer, Term):
    """Triplet loss on real negatives, and on ever harder ones that a generator makes of them.

    Parameters
    ----------
    num_classes : int
        Number of classes. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number d of dimensions of the embeddings.
    loss : Term or str
        Loss J_m of the triplets: any pair or triplet loss without proxies, as a term or as text. It should count
        triplets that are satisfied, as ``reduction="valid"`` does, so that J_avg falls as the network learns. The
        published code uses ``TripletLoss(margin=1.0, normalize=False, reduction="sum")``.
    alpha : float
        How far negatives are moved towards their anchors, positive: the average loss at which exp(-1) is left of what
        they are farther than the positives. The published code uses 90, for N-pair losses that include weight decay.
    beta : float
        How good the generator must be before its triplets count, positive: the average J_gen at which the real triplets
        still have the weight exp(-1). The published code uses 10000, for sums over a batch of 128 samples.
    lam : float
        Weight lambda_s of the cross-entropy in J_gen, at least 0.
    layer : Module or "embedding", optional
        Embedding layer f, which is trained with the network. In training runs, "embedding" selects that of the network.
        By default, f is the identity and the features y are the embeddings.
    features : int, optional
        Number of dimensions of the features that `layer` maps to embeddings, which are then passed as ``pooled=``.
    window : int
        Number of steps over which J_avg and J_gen_avg are averages, at least 1. The paper uses an epoch, its published
        code 64 steps. In the first window, real triplets alone count.
    miner : callable, optional
        Miner that selects triplets. By default, every positive pair has the nearest negative that is farther than the
        positive, or the farthest if there is none. The paper draws positives and negatives at random, as
        ``RandomNegative(1)`` does.

    Attributes
    ----------
    generator : Module
        Generator G: linear, ReLU, linear.
    classifier : Linear
        Softmax classifier of the features.

    Raises
    ------
    TypeError
        If `loss` is not a pair or triplet loss.
    ValueError
        If `alpha` or `beta` is not positive, `lam` is negative, `window` is below 1, or only one of `layer` and
        `features` is given.

    Notes
    -----
    Use `layer` and `features` in a training run, such as ``HDMLLoss(layer="embedding", features=512)`` for a trunk with
    512 pooled features. Dropout of the pooled features is not repeated for the generated ones.

    The generator of the published code has batch normalization between its layers. In the published code,
    generator, classifier and network have different learning rates (0.01, 0.001 and 0.00007), and sums replace the
    means of this loss.
    The defaults of `loss`, `alpha`, `beta` and `lam` are choices of this library. If the loss takes values of another
    size, change `alpha` in proportion. Negatives are moved before the loss normalizes the embeddings.
    """

    weights: Tensor
    sums: Tensor
    steps: Tensor

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        loss: Term | str = "TripletLoss(margin=0.2, reduction='valid')",
        alpha: float = 0.1,
        beta: float = 1.0,
        lam: float = 1.0,
        layer: Any = None,
        features: int | None = None,
        window: int = 64,
        miner: Any = None,
    ) -> None:
        super().__init__()
        term = parse_objective(loss) if isinstance(loss, str) else loss
        if not isinstance(term, RowLoss):
            raise TypeError(f"HDMLLoss: loss must be a pair or triplet loss, got {loss!r}")
        if min(alpha, beta) <= 0:
            raise ValueError(f"HDMLLoss: alpha and beta must be positive, got {alpha} and {beta}")
        if lam < 0:
            raise ValueError(f"HDMLLoss: lam must not be negative, got {lam}")
        if window < 1:
            raise ValueError(f"HDMLLoss: window must be at least 1, got {window}")
        if (layer is None) != (features is None) or (features is not None and features < 1):
            given = f"layer={layer!r} and features={features!r}"
            raise ValueError(f"HDMLLoss: layer and its number of features, at least 1, are given together; got {given}")
        self._check_miner(miner)
        self.borrow(layer)
        self.loss = term
        self.num_classes = num_classes
        self.embedding_dim = embedding_dim
        self.alpha = alpha
        self.beta = beta
        self.lam = lam
        self.features = features
        self.window = window
        self.miner = miner
        width = features or embedding_dim
        hidden = max(embedding_dim, width // 2)
        self.generator = nn.Sequential(nn.Linear(embedding_dim, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.classifier = nn.Linear(width, num_classes)
        # exp(-alpha / J_avg) and exp(-beta / J_gen_avg), finite before the first window, too, and if J_avg = 0
        self.register_buffer("weights", torch.ones(2))
        self.register_buffer("sums", torch.zeros(2))  # of J_m and J_gen in the current window
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))  # of the current window
        self._last: tuple[Tensor, ...] | None = None

    def local_value(self, batch: Batch) -> Tensor:
        if batch.ref is not None:
            raise ValueError("HDMLLoss: ref does not apply, triplets are made of one batch")
        check_width("HDMLLoss", batch.x, self.embedding_dim)
        y = batch.class_numbers("HDMLLoss", self.num_classes)
        own = batch.anchors
        z = batch.x
        # y: no gradient reaches the trunk through the generator
        features = self._features(batch)[own].detach()
        anchor, positive, negative, keep = self._triplets(batch)
        a = z[anchor]
        p = z[positive]
        n = z[negative]

        # the metric: G is held, and gradients go through it to the embeddings
        # both are 1 at first: n stays where it is, and only real triplets train the metric until the generator is good
        share_kept, w = self.weights.to(z.dtype)
        m = harder(a, p, n, share_kept)  # (t, d)
        made = through(self.generator, torch.cat([a, p, m]), held=True)
        J_m = triplet_value(self.loss, a, p, n, keep)
        made_a, made_p, made_m = self._embedded(made).tensor_split(3)
        J_syn = triplet_value(self.loss, made_a, made_p, made_m, keep)

        # the generator: embeddings and classifier are held
        points = torch.cat([z[own], a, p, m]).detach()
        again, made = through(self.generator, points).split([len(features), 3 * len(a)])
        known = y[own] != UNKNOWN
        labels = torch.cat([y[anchor], y[positive], y[negative]])
        J_recon = _mean((again - features).square().sum(1), known)
        J_soft = _mean(self._cross_entropy(made, labels, held=True), keep.repeat(3))
        # the generator rebuilds features, and what it makes must be of the right class
        J_gen = J_recon + self.lam * J_soft

        # the classifier: features are held
        J_class = _mean(self._cross_entropy(features, y[own]), known)

        self._last = J_m.detach(), J_syn.detach(), J_gen.detach(), w
        if self.training:
            self._remember(distributed.total(torch.stack([J_m.detach(), J_gen.detach()])))
        return w * J_m + (1 - w) * J_syn + J_gen + J_class + batch.x.sum() * 0

    def _features(self, batch: Batch) -> Tensor:
        """Return the features y of the batch, (n, D)."""
        if self.features is None:
            return batch.x
        if batch.pooled is None or batch.pooled.shape[1] != self.features:
            got = None if batch.pooled is None else tuple(batch.pooled.shape)
            raise ValueError(f"HDMLLoss: pooled: expected (n, {self.features}) features, got {got}")
        return batch.pooled

    def _embedded(self, features: Tensor) -> Tensor:
        """Return f of features."""
        layer = self.layer
        if layer is None:
            return features
        if isinstance(layer, nn.Module):
            return through(layer, features)
        embedded: Tensor = layer(features)
        return embedded

    def _cross_entropy(self, features: Tensor, y: Tensor, held: bool = False) -> Tensor:
        """Return the cross-entropy of each row of features; that of an unknown class is any number."""
        return cross_entropy(through(self.classifier, features, held=held), y.clamp_min(0), reduction="none")

    @torch.no_grad()
    def _triplets(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the (t,) numbers of anchors, positives and negatives of this process, and which are triplets."""
        rows = mined_rows(batch, self.loss, self.miner, normalize=self.loss.normalize)
        triplets = rows.triplets or semi_hard(rows)
        anchors = torch.arange(batch.anchors.start, batch.anchors.stop, device=batch.x.device)
        anchor = anchors[:, None].expand_as(triplets.keep)
        return anchor.flatten(), triplets.positive.flatten(), triplets.negative.flatten(), triplets.keep.flatten()

    @torch.no_grad()
    def _remember(self, values: Tensor) -> None:
        """Add J_m and J_gen of a step, (2,), to the window, and begin a new one if it is full."""
        sums = self.sums + values.to(self.sums)
        steps = self.steps + 1
        # `where`, not `if`: a step must not wait for a number of the GPU
        full = steps >= self.window
        J_avg, J_gen_avg = sums / steps
        weights = torch.stack([-self.alpha / J_avg, -self.beta / J_gen_avg]).exp()
        self.weights = torch.where(full, weights, self.weights)
        self.sums = torch.where(full, 0.0, sums)
        self.steps = torch.where(full, 0, steps)

    @property
    def stats_(self) -> dict[str, float]:
        """This process's share of J_m, of J_m of generated triplets and of J_gen in the last call, and the weight w."""
        if self._last is None:
            return {}
        return dict(zip(("metric", "synthetic", "generator", "weight"), map(float, self._last), strict=True))


def _mean(values: Tensor, keep: Tensor) -> Tensor:
    """Return this process's share of the mean over the kept values of all processes, 0 if there are none."""
    number = distributed.total(keep.sum().to(values.dtype))
    return torch.where(keep, values, 0.0).sum() / number.clamp_min(1)
