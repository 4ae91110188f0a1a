"""Energy confusion (Chen & Deng, 2019; Chen et al., 2022).

    L(I, J) = 1/(n_I n_J) sum_{i in I, j in J} ||x_i - x_j||^2
            = ||mu_I - mu_J||^2 + v_I + v_J        v_I = 1/n_I sum_{i in I} ||x_i - mu_I||^2

Minimizing it pulls classes together, in opposition to the loss that it is added to. The mean over all pairs of C
classes needs no pairs: 2/(C-1) sum_I ||mu_I - mu||^2 + 2/C sum_I v_I, with the mean mu of the class means.
"""

from __future__ import annotations

from numbers import Integral

import torch
from torch import Tensor, nn

from ...settings import check_options
from ..objective.batch import Batch
from ..objective.network_layers import BorrowsLayer
from ..objective.terms import SetTerm
from ..pairwise.triplets import through
from ..rng import SavedDraws, own_draws
from ..unit_vectors import unit
from ..wholebatch.batch_classes import BatchClasses, batch_classes, of_known_class, sorted_classes


def class_moments(x: Tensor, classes: BatchClasses) -> tuple[Tensor, Tensor]:
    """Return the (C, d) class means and the (C,) mean squared distances to them; 0 for an empty place."""
    means = classes.means(x)
    return means, classes.means((x - means[classes.member]).square().sum(1))


def energy_of_places(means: Tensor, spreads: Tensor, sizes: Tensor) -> Tensor:
    """Return the mean energy over all pairs of classes, of which some of the (C,) places are empty."""
    taken = sizes > 0
    number = taken.sum()
    center = means.sum(0) / number.clamp_min(1)
    # 2/(C-1) sum_I |mu_I - mu|^2 + 2/C sum_I v_I over the places that hold a class
    between = torch.where(taken, (means - center).square().sum(1), 0.0).sum() / (number - 1).clamp_min(1)
    energy = 2 * (between + spreads.sum() / number.clamp_min(1))
    return torch.where(number > 1, energy, energy * 0)


def energy_confusion(means: Tensor, spreads: Tensor, pairs: Tensor | None = None) -> Tensor:
    """Return the mean energy over pairs of classes: those of the (2, k) indices, or all if these are None.

    With fewer than two classes it is 0.
    """
    C = len(means)
    if C < 2:
        return (means.sum() + spreads.sum()) * 0
    if pairs is None:
        # the mean over pairs of |mu_I - mu_J|^2 is 2/(C-1) sum_I |mu_I - mu|^2
        between = (means - means.mean(0)).square().sum() / (C - 1)
        return 2 * (between + spreads.mean())
    I, J = pairs
    # |mu_I - mu_J|^2 + v_I + v_J, (k,)
    return ((means[I] - means[J]).square().sum(1) + spreads[I] + spreads[J]).mean()


class EnergyConfusion(BorrowsLayer, SavedDraws, SetTerm):
    """Mean squared distance between samples of different classes, to be minimized.

    Parameters
    ----------
    pairs : str or int
        Pairs of classes that are compared. "one" draws one pair from the batch, as in the papers; a number draws that
        many different pairs; "all" computes the expectation of "one" in closed form, without its variance.
    on : {"raw", "normalized"}
        Whether the term acts on the "raw" embeddings, as in the published code, or on the "normalized" ones.
    mode : {"paper", "ecaml_code"}
        "paper" is E, the formula of the paper. "ecaml_code" is log E, which the published code minimizes and to which
        the published weights appear to be tuned.
    layer : nn.Module or "embedding", optional
        Embedding layer of the network; "embedding" is that of a training run. If it is given, the term computes
        ``layer(pooled)`` itself from detached features, which needs ``pooled=``, and its gradient reaches this layer
        only, as in the published code. The term does not own the layer: it is neither among its parameters nor in its
        state. By default, the term uses the embeddings.
    seed : int
        Seed of the generator that draws the pairs of classes. Its state is part of the ``state_dict``. All processes
        draw the same pairs, and the generator advances in training mode only.

    Raises
    ------
    ValueError
        If an argument is none of the above, or `layer` is given and a batch has no pooled features.

    Notes
    -----
    "ecaml_code" differs from the published code in what is averaged: that code samples ten pairs for each sample but
    the last twenty, halves their sum, and divides it by the number of all negative pairs, which for given pairs changes
    log E by a constant. Since a term receives embeddings and not layers, the gradient of log E also reaches the trunk
    unless `layer` is given. If E is 0, the value of "ecaml_code" is 0 with zero gradient. Samples of unknown class are
    left out.
    """

    def __init__(
        self,
        pairs: str | int = "all",
        *,
        on: str = "raw",
        mode: str = "paper",
        layer: nn.Module | str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        number = isinstance(pairs, Integral) and not isinstance(pairs, bool) and pairs >= 1
        if not number and pairs not in ("one", "all"):
            raise ValueError(f'EnergyConfusion: pairs must be "one", "all" or a number of at least 1, got {pairs!r}')
        check_options(self, ("raw", "normalized"), on=on)
        check_options(self, ("paper", "ecaml_code"), mode=mode)
        self.pairs = pairs
        self.on = on
        self.mode = mode
        self.borrow(layer)
        self._draws = torch.Generator().manual_seed(int(seed))

    def value(self, batch: Batch) -> Tensor:
        if self.pairs == "all":
            batch = of_known_class(batch, "EnergyConfusion")
            classes = batch_classes(batch.classes("EnergyConfusion"))
        else:  # the draw needs the number of classes
            batch = batch.known("EnergyConfusion")
            classes = sorted_classes(batch.classes("EnergyConfusion"))
        x = self._embeddings(batch)
        x = unit(x) if self.on == "normalized" else x
        means, spreads = class_moments(x, classes)
        if classes.known is None:
            energy = energy_confusion(means, spreads, self._draw(len(means), x.device))
        else:
            energy = energy_of_places(means, spreads, classes.sizes)
        if self.mode == "paper":
            return energy
        # the inner `where` keeps the infinite slope of the logarithm at 0 out of the graph
        positive = energy > torch.finfo(energy.dtype).tiny
        return torch.where(positive, torch.where(positive, energy, 1.0).log(), energy * 0)

    def _embeddings(self, batch: Batch) -> Tensor:
        if self.layer is None:
            return batch.x
        if batch.pooled is None:
            raise ValueError("EnergyConfusion: with layer, pass the trunk's features as pooled=")
        return through(self.layer, batch.pooled.detach())

    def _draw(self, classes: int, device: torch.device) -> Tensor | None:
        """Return (2, k) different pairs of class indices, each pair equally likely; None for all."""
        if self.pairs == "all" or classes < 2:
            return None
        every = torch.triu_indices(classes, classes, 1)
        count = 1 if self.pairs == "one" else int(self.pairs)
        draws = own_draws(self._draws, self.training)
        return every[:, torch.randperm(every.shape[1], generator=draws)[:count]].to(device)
