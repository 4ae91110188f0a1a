"""Continuous similarity scores, ZSML (Xu et al., 2019).

    y'_ij = 1 - (1 - beta) d_ij  for similar pairs,    alpha (1 - d_ij)  for dissimilar ones       0 < alpha < beta < 1
    fixed:      min over theta of sum (1 + lambda) (s_ij - y'_ij)^2
    alternate:  theta and y' in turn:  y' <- s clipped to [beta, 1] or [0, alpha]
    anchored:   min of sum (s_ij - y')^2 + lambda (y' - y_ij)^2:  y' <- clip((s + lambda y) / (1 + lambda))

s_ij in (0, 1): the network's score of a pair; d_ij: squared distance of the inputs, scaled to [0, 1] in the batch;
y_ij: 1 for similar pairs, 0 for dissimilar ones.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ....settings import Checked, check_options
from ...autograd import recomputed
from ...pairwise.comparison import sq_euclidean
from ...precision import PreciseBuffers
from .pair_labels import continuous_labels, interval_labels, known_pairs, unit_range

UPDATES = ("fixed", "alternate", "anchored")
MAX_RELATION_VALUES = 2**23  # maximum number of relation values in memory at a time


def continuous_similarity(s: Tensor, target: Tensor, same: Tensor, lam: float, anchored: bool) -> Tensor:
    """Return the loss of each pair from its score s and its label `target`; same: bool, whether it is similar."""
    if anchored:
        return (s - target).square() + lam * (target - same.to(s.dtype)).square()
    return (1 + lam) * (s - target).square()


class ContinuousSimilarityNet(Checked, PreciseBuffers):
    """A network that scores pairs, trained on continuous similarities.

    Parameters
    ----------
    in_features : int
        Number D of features of an item, or of the output of `trunk` if there is one.
    trunk : Module, optional
        Network that maps items to (n, D) features. By default, items are flattened.
    relations : int
        Number of relation vectors of a pair, each relu(a u + b v + c) with its own numbers a, b and c (a 2 x 1
        convolution of the pair).
    hidden : int
        Width of the network that scores the relation vectors.
    alpha, beta : float
        Upper end of the range of dissimilar pairs and lower end of that of similar pairs, with 0 < alpha < beta < 1.
    lam : float
        Weight lambda, positive. In the updates "fixed" and "alternate", it only scales the loss.
    update : {"fixed", "alternate", "anchored"}
        How the labels y' are updated: "fixed", as in the survey of Ghojogh et al. (2022), "alternate" or "anchored".
    start : int
        Number of losses in training mode that use the initial labels y' before "alternate" updates them.
    balanced : bool
        Whether similar and dissimilar pairs have the same total weight. Otherwise, the mean is over all pairs, as in
        the paper.
    block : int, optional
        Number of rows of pairs processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If not 0 < `alpha` < `beta` < 1, or `lam` is not positive.

    Notes
    -----
    The survey prints "maximize" where "minimize" is meant. "fixed" drops the constraint on s, which the targets
    satisfy. Scaling d by its smallest and largest value in the batch is a choice of this library, as is the shape of
    the network.

    The loss of the paper is known to us from summaries only: "alternate" follows them, and "anchored" is our
    interpretation. The score is half of s_ij + s_ji.

    Examples
    --------
    >>> net = ContinuousSimilarityNet(8)
    >>> x = torch.rand(4, 8)
    >>> net(x).shape, net.loss(x, torch.tensor([0, 0, 1, 1])).shape
    (torch.Size([4, 4]), torch.Size([]))
    """

    calls: Tensor

    def __init__(
        self,
        in_features: int,
        trunk: nn.Module | None = None,
        *,
        relations: int = 32,
        hidden: int = 64,
        alpha: float = 0.4,
        beta: float = 0.6,
        lam: float = 0.5,
        update: str = "fixed",
        start: int = 1,
        balanced: bool = False,
        block: int | None = None,
    ) -> None:
        super().__init__()
        check_options(self, UPDATES, update=update)
        if not (0 < alpha < beta < 1 and lam > 0):
            raise ValueError(
                f"ContinuousSimilarityNet: expected 0 < alpha < beta < 1 and lam > 0, got {alpha=}, {beta=}, {lam=}"
            )
        self.trunk = nn.Flatten() if trunk is None else trunk
        self.pair = nn.Conv2d(1, relations, (2, 1))
        self.score = nn.Sequential(nn.Linear(relations * in_features, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.alpha = alpha
        self.beta = beta
        self.lam = lam
        self.update = update
        self.start = start
        self.balanced = balanced
        self.block = block
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, items: Tensor, ref: Tensor | None = None) -> Tensor:
        """Return the (n, m) scores in (0, 1) of items with those of `ref`, or with each other."""
        z = self.trunk(items)
        other = z if ref is None else self.trunk(ref)
        # (s(a, b) + s(b, a)) / 2, because the network scores ordered pairs
        s = self.scores(z, other)
        return (s + (s if ref is None else self.scores(other, z)).T) / 2

    def scores(self, u: Tensor, v: Tensor) -> Tensor:
        """Return the (n, m) scores of the ordered pairs of features u (n, D) and v (m, D)."""
        parts = u.split(
            self.block or max(1, MAX_RELATION_VALUES // max(1, len(v) * self.pair.out_channels * u.shape[1]))
        )
        if len(parts) == 1 or not torch.is_grad_enabled():
            return torch.cat([self._rows(part, v) for part in parts])
        return torch.cat([recomputed(self._rows, part, v) for part in parts])

    def _rows(self, u: Tensor, v: Tensor) -> Tensor:
        a, b = self.pair.weight[:, 0, :, 0].T[..., None]  # (R, 1) each
        # (b, R, D), (m, R, D)
        assert self.pair.bias is not None
        left = u[:, None] * a + self.pair.bias[:, None]
        right = v[:, None] * b
        relations = (left[:, None] + right).relu_().flatten(2)
        scores: Tensor = self.score(relations).sigmoid().squeeze(2)
        return scores

    def loss(self, items: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of all pairs of a batch: items (n, ...), integer labels (n,), -1 unknown."""
        return self.of_scores(self(items), items, labels)

    def of_scores(self, s: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of (n, n) scores."""
        i, j = known_pairs(labels)
        s = s[i, j]
        same = labels[i] == labels[j]
        rows = items.flatten(1).to(s.dtype)
        with torch.no_grad():
            target = self.targets(s, same, unit_range(sq_euclidean(rows, rows)[i, j]))
        return self._mean(continuous_similarity(s, target, same, self.lam, self.update == "anchored"), same)

    def targets(self, s: Tensor, same: Tensor, d: Tensor) -> Tensor:
        """Return the labels y' that the scores s of pairs should reach; d: the pairs' scaled input distances."""
        if self.update == "anchored":
            return interval_labels(s, same, self.lam, self.alpha, self.beta)
        first = self.update == "fixed" or bool(self.calls < self.start)
        self.calls += int(self.training)
        if first:
            return continuous_labels(d, same, self.alpha, self.beta)
        return interval_labels(s, same, 0.0, self.alpha, self.beta)

    def _mean(self, value: Tensor, same: Tensor) -> Tensor:
        if not self.balanced:
            return value.sum() / max(len(value), 1)
        weights = [part.to(value.dtype) for part in (same, ~same)]
        return torch.stack([(value * w).sum() / w.sum().clamp_min(1) for w in weights]).mean()
