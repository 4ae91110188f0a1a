"""Denoising autoencoder (Vincent, Larochelle, Bengio & Manzagol, 2008).

    min 1/n sum_i ||x_i - dec(enc(x~_i))||^2 + lambda Omega        x~_i: x_i with new noise in every step

A single linear map of full rank, trained under Gaussian noise of variance s^2 on centered rows, tends to
Sigma (Sigma + s^2 I)^-1, with their covariance Sigma.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...numerics.types import AnyArray, Seed
from ...settings import check_options
from .reconstruction.codecs import LEVELS, NOISES, PENALTIES, Codec, Hidden, corrupt, omega, squared_error, widths
from .reconstruction.learner import Reconstruction, check_numbers


def denoising_autoencoder(network: nn.Module, x: Tensor, noisy: Tensor, penalty: str, lam: float) -> Tensor:
    """Return the mean squared error of the rows that the network reconstructs from noisy ones, with its penalty."""
    decoded, code = network(noisy)
    error = squared_error(x, decoded).mean()
    return error + lam * omega(penalty, network, code) if lam else error


class DenoisingAutoencoder(Reconstruction):
    """Learn codes with an autoencoder that removes noise from its input.

    Parameters
    ----------
    n_components, hidden, activation, reg, penalty, standardize
        As in ``Autoencoder``. The code may be long, because the noise keeps the network from copying its input.
    noise : {"gaussian", "masking", "salt_pepper"}
        Noise on the input. "gaussian" is added to it. "masking" sets entries to the mean (to 0 without `standardize`).
        "salt_pepper" sets entries to the smallest or the largest value of the feature in the training rows, with equal
        probability.
    level : float, optional
        Standard deviation of Gaussian noise in units of the standardized features, 0.1 by default; or share of the
        entries that other noise changes, 0.2 by default. With 0, the fit is exactly that of ``Autoencoder``.
    max_iter, batch_size, learning_rate, tol, random_state, verbose, device
        As in ``Autoencoder``; `random_state` also draws the noise.

    Attributes
    ----------
    network_, mean_, scale_, loss_curve_, n_iter_, n_features_in_
        As in ``Autoencoder``.
    range_ : (2, d) array
        Smallest and largest value of each standardized feature.

    Notes
    -----
    `transform`, `reconstruct` and `reconstruction_error` add no noise.
    """

    range_: AnyArray

    def __init__(
        self,
        n_components: int = 2,
        *,
        noise: str = "gaussian",
        level: float | None = None,
        hidden: Hidden = 1,
        activation: str = "relu",
        reg: float = 0.0,
        penalty: str = "weights_l2",
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
        self.noise = noise
        self.level = level
        self.hidden = hidden
        self.activation = activation
        self.reg = reg
        self.penalty = penalty
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
        check_options(self, PENALTIES, penalty=self.penalty)
        check_options(self, NOISES, noise=self.noise)
        check_numbers(self, 0, reg=self.reg, level=self._level())
        if self.noise != "gaussian" and self._level() > 1:
            raise ValueError(f"DenoisingAutoencoder: level must be at most 1 for {self.noise}, got {self.level}")

    def _level(self) -> float:
        return LEVELS[self.noise] if self.level is None else self.level

    def _look(self, x: Tensor) -> None:
        self.range_ = torch.stack(torch.aminmax(x, dim=0)).cpu().numpy()

    def _network(self) -> Codec:
        return Codec(widths(self.n_features_in_, self.n_components, self.hidden), self.activation)

    def _objective(self, x: Tensor, noise: torch.Generator) -> Tensor:
        noisy = corrupt(x, self.noise, self._level(), noise, *self._to(self.range_))
        return denoising_autoencoder(self.network_, x, noisy, self.penalty, self.reg)
