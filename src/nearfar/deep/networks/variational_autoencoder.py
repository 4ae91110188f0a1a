"""Variational autoencoder (Kingma & Welling, 2014).

    min 1/n sum_i ||x_i - dec(mu_i + s_i * e)||^2 + beta KL_i        e ~ N(0, I)
    KL_i = 1/2 sum_j (s_ij^2 + mu_ij^2 - 1 - log s_ij^2)

mu, log s^2: outputs of the encoder; KL: of N(mu, diag(s^2)) from N(0, I). The embedding is mu.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ...numerics.types import AnyArray, Seed
from ..autograd import clipped
from .reconstruction.codecs import Codec, Hidden, squared_error, widths
from .reconstruction.learner import Reconstruction, check_numbers

MAX_LOG_VARIANCE = 20.0  # log s^2 is clipped to plus or minus this, from where its gradient leads back


def divergence(mu: Tensor, logvar: Tensor) -> Tensor:
    """Return the divergence of N(mu, exp(logvar)) from N(0, I), (n,), at least 0."""
    return (mu.square() + logvar.exp() - 1 - logvar).sum(1) / 2


def variational_autoencoder(network: Codec, x: Tensor, e: Tensor, beta: float) -> Tensor:
    """Return the mean squared error of one draw's reconstruction plus beta times the mean divergence."""
    mu, logvar = network.encoder(x).chunk(2, 1)
    logvar = clipped(logvar, -MAX_LOG_VARIANCE, MAX_LOG_VARIANCE)
    decoded = network.decoder(mu + (logvar / 2).exp() * e)
    return (squared_error(x, decoded) + beta * divergence(mu, logvar)).mean()


class VariationalAutoencoder(Reconstruction):
    """Learn codes that are means of Gaussians close to a standard normal distribution.

    Parameters
    ----------
    n_components, hidden, activation, standardize
        As in ``Autoencoder``.
    beta : float
        Weight of the divergence. For features with Gaussian noise of variance v, 2 v gives the evidence lower bound.
    max_iter, batch_size, learning_rate, tol, random_state, verbose, device
        As in ``Autoencoder``; `random_state` also draws e.

    Attributes
    ----------
    network_, mean_, scale_, loss_curve_, n_iter_, n_features_in_
        As in ``Autoencoder``.

    Notes
    -----
    `transform` and `reconstruct` use mu, without draws. The survey of Ghojogh et al. (2022) mentions inferential
    autoencoders without specifying one; the adversarial autoencoder is not implemented.
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        beta: float = 1.0,
        hidden: Hidden = 1,
        activation: str = "relu",
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
        self.beta = beta
        self.hidden = hidden
        self.activation = activation
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
        check_numbers(self, 0, beta=self.beta)

    def _network(self) -> Codec:
        return Codec(widths(self.n_features_in_, self.n_components, self.hidden), self.activation, outputs=2)

    def _encode(self, x: Tensor) -> Tensor:
        return self.network_.encoder(x)[:, : self.n_components]

    def _objective(self, x: Tensor, noise: torch.Generator) -> Tensor:
        e = torch.randn(len(x), self.n_components, generator=noise, dtype=x.dtype).to(x.device)
        return variational_autoencoder(self.network_, x, e, self.beta)

    def sample(self, n_samples: int = 1, random_state: int | None = None) -> AnyArray:
        """Return (n_samples, d) new rows, decoded from draws of N(0, I)."""
        check_is_fitted(self)
        draws = check_random_state(random_state).normal(size=(n_samples, self.n_components))
        return self.inverse_transform(np.asarray(draws))
