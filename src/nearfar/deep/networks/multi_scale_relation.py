"""Multi-scale relation network, MSML (Jiang, Huang, Geng & Deng, 2021).

    p_sc = mean of the support maps of class c at scale s          F_s: (n, C_s, H_s, W_s)
    r_qc = sigmoid(MLP(g_1(F_1(q), p_1c), ..., g_S(F_S(q), p_Sc)))     g_s: L_s convolutions, then the mean over space
    L = mean_q -log softmax_c(t r_qc)[y_q] + lambda mean_q [max_{c != y} r_qc - r_qy + m]_+

The higher the level of a scale, the deeper its relation network: by default, it has s convolutions at scale s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ...settings import Checked
from ..autograd import recomputed
from ..episodes import Episode, prototypes
from .scales import GROUPS, Relation

MAX_LAYER_VALUES = 2**24  # maximum number of values of one layer in memory at a time


def multi_scale_relation(scores: Tensor, labels: Tensor, margin: float, weight: float, scale: float) -> Tensor:
    """Return the loss of (q, N) scores in (0, 1) for the classes (q,) of the queries."""
    own = labels[:, None]
    rival = scores.scatter(1, own, -torch.inf).amax(1)
    gap = (rival - scores.gather(1, own).squeeze(1) + margin).clamp_min(0)
    return cross_entropy(scale * scores, labels) + weight * gap.mean()


class MultiScaleRelationNet(Checked, nn.Module):
    """Score queries against class prototypes at several scales.

    Parameters
    ----------
    scales : Module
        Network that maps items to a list of maps, low level first. It is best trained beforehand, such as `Conv4Scales`
        of a run's trunk.
    channels : sequence of int, optional
        Number C_s of channels of each scale. By default, `scales.channels`.
    depths : sequence of int, optional
        Number L_s of convolutions of each scale, at least 1. By default, 1, 2, ..., S.
    width : int
        Number of channels of the relation networks, a multiple of 4.
    hidden : int
        Width of the layer that joins the relation networks.
    margin : float
        Margin m of the triplet part of the loss.
    weight : float
        Weight lambda of the triplet part of the loss.
    scale : float
        Scale t of the scores in the cross-entropy. The survey's text has 1, with which the cross-entropy of scores in
        (0, 1) cannot approach 0.
    block : int, optional
        Number of queries processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If there is not one depth for each scale, or `width` is not a multiple of 4.

    Notes
    -----
    As in the survey (Ghojogh et al., 2022), cross-entropy and triplet loss replace the intra- and inter-class relation
    loss of the paper. "Deeper networks for scales with more information" is interpreted as the higher levels.

    Examples
    --------
    >>> from nearfar.deep.networks.conv4 import Conv4
    >>> from nearfar.deep.networks.scales import Conv4Scales
    >>> net = MultiScaleRelationNet(Conv4Scales(Conv4(1, 8)), width=4)
    >>> net(torch.rand(6, 1, 28, 28), torch.rand(3, 1, 28, 28), torch.arange(3)).shape
    torch.Size([6, 3])
    """

    def __init__(
        self,
        scales: nn.Module,
        channels: Sequence[int] | None = None,
        *,
        depths: Sequence[int] | None = None,
        width: int = 32,
        hidden: int = 32,
        margin: float = 0.2,
        weight: float = 1.0,
        scale: float = 1.0,
        block: int | None = None,
    ) -> None:
        super().__init__()
        channels = list(cast(Sequence[int], scales.channels) if channels is None else channels)
        depths = range(1, len(channels) + 1) if depths is None else depths
        fits = isinstance(depths, Sequence) and len(depths) == len(channels) and min(depths, default=0) >= 1
        if not fits or width % GROUPS:
            raise ValueError(
                f"MultiScaleRelationNet: expected a depth >= 1 for each of {len(channels)} scales and a width that "
                f"{GROUPS} divides, got depths={depths}, width={width}"
            )
        self.scales = scales
        self.relations = nn.ModuleList(Relation(c, width, depth) for c, depth in zip(channels, depths, strict=True))
        self.score = nn.Sequential(nn.Linear(len(channels) * width, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.margin = margin
        self.weight = weight
        self.scale = scale
        self.width = width
        self.block = block

    def forward(self, query: Tensor, support: Tensor, labels: Tensor) -> Tensor:
        """Return the (q, N) scores in (0, 1) of query items for the classes 0..N-1, (s,) labels, of support items."""
        maps = self.scales(torch.cat([support, query]))  # one pass: the same batch statistics for both
        n = len(support)
        n_way = int(labels.max()) + 1
        return self.relate([m[n:] for m in maps], [prototypes(m[:n], labels, n_way) for m in maps])

    def relate(self, query: Sequence[Tensor], classes: Sequence[Tensor]) -> Tensor:
        """Return the (q, c) scores of the maps of queries with those of classes, or of other items."""
        largest = max(m[0, 0].numel() for m in classes) * self.width * len(classes[0])
        blocks = list(zip(*(m.split(self.block or max(1, MAX_LAYER_VALUES // largest)) for m in query), strict=True))
        if len(blocks) == 1 or not torch.is_grad_enabled():
            return torch.cat([self._scores(block, classes) for block in blocks])
        return torch.cat([recomputed(self._scores, block, classes) for block in blocks])

    def _scores(self, query: Sequence[Tensor], classes: Sequence[Tensor]) -> Tensor:
        parts = [g(q, c) for g, q, c in zip(self.relations, query, classes, strict=True)]
        scores: Tensor = self.score(torch.cat(parts, 2)).sigmoid().squeeze(2)
        return scores

    def loss(self, episode: Episode) -> Tensor:
        """Return the loss of an episode's queries."""
        scores = self(episode.query, episode.support, episode.support_labels)
        return multi_scale_relation(scores, episode.query_labels, self.margin, self.weight, self.scale)
