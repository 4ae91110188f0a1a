"""Reconstruction autoencoder as a metric learner (Goodfellow, Bengio & Courville, 2016).

    min 1/n sum_i ||x_i - dec(z_i)||^2 + lambda Omega        z_i = enc(x_i)

Omega: squares or absolute values of the weights, or of the code. The learned distance is that between codes. Rows with
a large reconstruction error are unlike the training rows.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...numerics.types import Seed
from ...settings import check_options
from .reconstruction.codecs import PENALTIES, Codec, Hidden, omega, squared_error, widths
from .reconstruction.learner import Reconstruction, check_numbers


def autoencoder(network: nn.Module, x: Tensor, penalty: str, lam: float) -> Tensor:
    """Return the mean squared error of the reconstruction, summed over features, with its penalty."""
    decoded, code = network(x)
    error = squared_error(x, decoded).mean()
    return error + lam * omega(penalty, network, code) if lam else error


class Autoencoder(Reconstruction):
    """Learn codes from which a network can reconstruct the rows.

    Parameters
    ----------
    n_components : int
        Length p of the code. If it is above the number of features (over-complete), the network needs a penalty or
        noise.
    hidden : int or sequence of int
        Hidden layers of the encoder, which the decoder mirrors: their number, with sizes in geometric steps from d to
        p, or their sizes. With 0 layers and the activation "identity", the codes span the principal components.
    activation : {"relu", "tanh", "sigmoid", "identity"}
        Activation between layers: "relu", "tanh", "sigmoid" or "identity". Code and output are linear.
    reg : float
        Weight lambda of the penalty, at least 0. The error is summed over the features: frameworks that average over d
        features need lambda / d.
    penalty : {"weights_l2", "weights_l1", "codes_l2", "codes_l1"}
        Penalty Omega: "weights_l2" or "weights_l1" sums over all weights without biases; "codes_l2" or "codes_l1" sums
        over the entries of the code and averages over the rows.
    standardize : bool
        Whether to subtract the mean of each feature and divide by its standard deviation first.
    max_iter : int
        Maximum number of epochs, which are passes over the rows.
    batch_size : int
        Number of rows in each step of Adam.
    learning_rate : float
        Learning rate of Adam.
    tol : float
        Stop if, for 10 epochs, the loss has not fallen below the best value by more than `tol` relative to it. With 0,
        training does not stop early.
    random_state : int, RandomState, Generator or None
        Seed or generator that draws the initial weights and the batches.
    verbose : bool
        Print the loss of every epoch.
    device : str
        Device of the computation, such as "cuda".

    Attributes
    ----------
    network_ : Module
        Trained network, with the modules `encoder` and `decoder`.
    mean_, scale_ : (d,) arrays
        Mean and standard deviation of each feature in the training rows.
    loss_curve_ : (n_iter_,) array
        Mean loss of every epoch.
    n_iter_ : int
        Number of epochs.
    n_features_in_ : int
        Number of features of the training rows.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) @ np.ones((2, 6))
    >>> learner = Autoencoder(1, max_iter=30, random_state=0).fit(X)
    >>> learner.transform(X).shape, learner.reconstruction_error(X).shape
    ((200, 1), (200,))
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
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
        check_numbers(self, 0, reg=self.reg)

    def _network(self) -> Codec:
        return Codec(widths(self.n_features_in_, self.n_components, self.hidden), self.activation)

    def _objective(self, x: Tensor, noise: torch.Generator) -> Tensor:
        return autoencoder(self.network_, x, self.penalty, self.reg)
