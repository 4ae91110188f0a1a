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
    """Any loss with energy and diversity confusion added to it.

    Parameters
    ----------
    base : Term, optional
        Loss to regularize. By default, the triplet loss with the paper's margin of 0.1.
    energy : float or Term
        Weight lambda_1 of the energy confusion, or a term with its own settings and weight, such as
        ``0.3 * EnergyConfusion("one")``. With 0, the term is left out (CML-d).
    diversity : float or Term
        Weight lambda_2 of the diversity confusion, or a term with its own settings and weight. With 0, the term is left
        out (CML-e).

    Raises
    ------
    TypeError
        If `base` is not a loss.
    ValueError
        If a weight is neither a finite number nor a term.

    Notes
    -----
    The published weights, energy / diversity, are:

    - CUB-200-2011: 0.02 / 0.01 with the triplet loss, 0.3 / 0.02 with N-pair, 0.13 / 0.03 with binomial deviance;
    - Cars-196: 0.02 / 0.04, 0.3 / 0.02 and 0.13 / 0.03;
    - Stanford Online Products and In-Shop: 0.002 / 0.01, 0.03 / 0.02 and 0.013 / 0.01.

    They appear to be tuned with ``EnergyConfusion(mode="ecaml_code")``.
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
