"""Facility location clustering loss (Oh Song, Jegelka, Rathod & Murphy, 2017).

    L  = [ max_{|S| = C_b} A(S) - Ft ]_+,    A(S) = F(S) + gamma Delta(g(S), y),    Delta = 1 - NMI
    F  = - sum_i min_{j in S} rho_ij,        Ft = sum_c max_{j in c} - sum_{i in c} rho_ij

rho is the distance of unit vectors, C_b the number of classes in the batch, and g(S) the nearest facility of each
point. The maximum is found greedily and refined by swaps, on indices; value and gradient then take two gathers.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...autograd import host_array, uncompiled
from ...objective.batch import Batch
from ...objective.terms import SetTerm
from ...pairwise.comparison import safe_sqrt
from ...unit_vectors import unit
from .search import FacilitySearch

PAPER_BATCH = 128


def facility_location(z: Tensor, facility: Tensor, oracle: Tensor, gamma_delta: float) -> Tensor:
    """Return [F(S) + gamma Delta - Ft]_+ of unit vectors z; each point's facility and class medoid are (m,) indices."""

    def reach(to: Tensor) -> Tensor:
        return safe_sqrt((z - z[to]).square().sum(1)).sum()  # the gradient flows to both ends

    F = -reach(facility)
    Ft = -reach(oracle)
    return (F - Ft + gamma_delta).relu()


class FacilityLocationLoss(SetTerm):
    """Clustering loss: the true classes must score better than any wrong clustering of the batch, by a margin.

    Parameters
    ----------
    gamma : float
        Initial weight of the structured margin, at least 0. The paper does not state it; 10 comes from later code.
    refine : {"paper", "exact", "full"} or None
        Refinement of the greedy selection: "paper" (Algorithm 2), "exact", which selects the points by A itself, or
        "full", which tries every point as a replacement until no single swap improves A. None uses the greedy selection
        alone.
    greedy : {"full", "stochastic"}
        "full" considers all points in each step (Algorithm 1); "stochastic" considers a random subset.
    nmi : {"geometric", "arithmetic"}
        Mean of the entropies that normalizes the mutual information: "geometric", as in the paper, or "arithmetic", as
        in scikit-learn.
    agreement : {"nmi", "ami", "ari", "vmeasure", "const"}
        Measure of agreement with the classes, of which Delta is the complement to one: "nmi", as in the paper, "ami",
        "ari", "vmeasure", or "const", which is 1 only for the true classes.
    decay : float
        Factor on gamma per epoch, positive; `on_epoch` sets the epoch. The paper uses 0.94 without stating the period.
    period : int, optional
        Number of training batches after which gamma is multiplied by `decay`, such as 500 in later code. By default,
        this happens after every epoch.
    passes : int
        Maximum number of refinement passes, T in the paper. The refinement "full" takes as many as it needs.
    epsilon : float
        Accuracy of the stochastic greedy selection, which considers (m / C_b) ln(1 / epsilon) candidates per step.
    warm_start_oracle : bool
        Whether the search also starts from the class medoids, so that the maximum it finds is never below Ft.
    normalize_sum : bool
        Whether to divide F and Ft by the number of samples m, and gamma by 128, the batch size in the paper. The weight
        of the margin and the size of the loss then do not depend on the batch size. At m = 128, this is the paper's
        loss divided by 128.
    seed : int
        Seed of the stochastic greedy selection. The state counts the calls in training mode.

    Attributes
    ----------
    gamma_ : float
        Gamma of the current epoch, or of the next batch.
    stats_ : dict of str to float
        Values of the last call: "active" (1 if the loss is positive), "delta" and "gamma".

    Raises
    ------
    ValueError
        If `gamma` is negative, `decay` is not positive, or a setting of the search is unknown.

    Notes
    -----
    Samples of unknown class are left out. A batch of one class, or one in which no class occurs twice, poses no
    clustering problem: the loss is 0. Draw batches with ``ClassRatioSampler``. If the approximate search ends below Ft,
    the loss is 0.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> loss = FacilityLocationLoss(gamma=1.0)
    >>> bool(loss(torch.randn(8, 4), torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])) > 0)
    True
    """

    epoch: Tensor
    calls: Tensor

    def __init__(
        self,
        gamma: float = 10.0,
        *,
        refine: str | None = "paper",
        greedy: str = "full",
        nmi: str = "geometric",
        agreement: str = "nmi",
        decay: float = 0.94,
        period: int | None = None,
        passes: int = 5,
        epsilon: float = 0.1,
        warm_start_oracle: bool = False,
        normalize_sum: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if gamma < 0 or decay <= 0:
            raise ValueError(f"FacilityLocationLoss: gamma must be at least 0, decay positive, got {gamma}, {decay}")
        self.search = FacilitySearch(
            refine=refine,
            greedy=greedy,
            nmi=nmi,
            agreement=agreement,
            passes=passes,
            epsilon=epsilon,
            warm_start_oracle=warm_start_oracle,
        )
        self.search.check(self)
        self.gamma = gamma
        self.decay = decay
        self.period = period
        self.normalize_sum = normalize_sum
        self.seed = seed
        self.register_buffer("epoch", torch.zeros((), dtype=torch.int64))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.stats_: dict[str, float] = {}

    @property
    def gamma_(self) -> float:
        if self.period is None:
            times = int(self.epoch)
        else:
            times = int(self.calls) // self.period
        return float(self.gamma * self.decay**times)

    def on_epoch(self, epoch: int) -> None:
        """Set the number of the epoch for the schedule of gamma, counted from 0."""
        self.epoch.fill_(epoch)

    def value(self, batch: Batch) -> Tensor:
        if batch.ref is not None:
            raise ValueError("FacilityLocationLoss: ref does not apply, facilities are chosen inside the batch")
        batch = batch.known("FacilityLocationLoss")
        # the greedy search has no gradient, so it sees detached vectors; the value is computed again from its indices
        indices = self._indices(batch.x.detach(), batch.classes("FacilityLocationLoss"))
        if indices is None:
            return batch.x.sum() * 0
        value = facility_location(unit(batch.x), *indices)
        self.stats_["active"] = float(value.detach() > 0)
        return value / len(batch.x) if self.normalize_sum else value

    @uncompiled
    def _indices(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """Return the facility and the medoid of each point, and gamma Delta; None where nothing is to be clustered."""
        self.stats_ = {"active": 0.0, "delta": 0.0, "gamma": self.gamma_}
        names, classes = np.unique(host_array(y), return_inverse=True)
        if len(names) < 2 or len(names) == len(x):
            return None
        # with the sum divided by the batch size, gamma keeps its weight relative to the distances
        gamma = self.gamma_ * (len(x) / PAPER_BATCH if self.normalize_sum else 1)
        # a search over indices: in double precision on the host, so that every machine chooses the same
        z = host_array(unit(x.cpu().double()))
        facility, oracle, delta = self.search.run(z, classes, gamma, (self.seed, int(self.calls)))
        if self.training:  # a validation pass must not change the draws of training
            self.calls += 1
        self.stats_["delta"] = delta
        return torch.from_numpy(facility).to(x.device), torch.from_numpy(oracle).to(x.device), gamma * delta
