"""Confusion-based metric learning, CML (Chen et al., 2022).

L = L_base + lambda_1 L_energy + lambda_2 L_diversity
"""

from __future__ import annotations

from ...numerics.checks import is_finite
from ..losses.triplet import TripletLoss
from ..objective.terms import Sum, Term
from ..regularizers.diversity_confusion import DiversityConfusion
from ..regularizers.energy_confusion import EnergyConfusion


class CMLLoss(Sum):
    """Any loss, with energy and diversity confusion added.

    Parameters
    ----------
    base : Term, optional
        The loss to regularize; None is the triplet loss with the paper's margin 0.1.
    energy : float or Term
        lambda_1; 0 leaves the term out (CML-d). Or a term with its own settings and weight, such as
        ``0.3 * EnergyConfusion("one")``.
    diversity : float or Term
        lambda_2, or a term, in the same way; with 0 it is CML-e.

    Notes
    -----
    Published weights, energy / diversity. CUB-200-2011: triplet 0.02 / 0.01, N-pair 0.3 / 0.02, binomial 0.13 / 0.03.
    Cars-196: 0.02 / 0.04, 0.3 / 0.02, 0.13 / 0.03. Stanford Online Products and In-Shop: 0.002 / 0.01, 0.03 / 0.02,
    0.013 / 0.01. They seem to be tuned with ``EnergyConfusion(mode="ecaml_code")``.
    """

    def __init__(
        self,
        base: Term | None = None,
        *,
        energy: float | Term = 0.02,
        diversity: float | Term = 0.04,
    ) -> None:
        base = TripletLoss(margin=0.1) if base is None else base
        if not isinstance(base, Term):
            raise TypeError(f"CMLLoss: base must be a loss such as TripletLoss(), got {base!r}")
        parts = base.parts()
        confusions = (("energy", energy, EnergyConfusion), ("diversity", diversity, DiversityConfusion))
        for name, weight, confusion in confusions:
            if isinstance(weight, Term):
                parts.extend(weight.parts())
            elif not is_finite(weight):
                raise ValueError(f"CMLLoss: {name} must be a finite number or a term; got {weight!r}")
            elif weight:
                parts.append((float(weight), confusion()))
        super().__init__(parts)
