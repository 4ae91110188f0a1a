"""Layered geometric metric learning (Hajiabadi, Godaz, Ghasemi & Monsefi, 2019).

    layer l:  W_l = (S_l + reg I)^-1 #_t (D_l + reg I) = V Lam V',  U_l = V_p Lam_p^(1/2)
    x <- f(U_l' x)

S_l and D_l are the mean scatters of the similar and of the dissimilar pairs of the inputs of the layer. There is one
pass and no gradient. If f is the identity, U_l has full rank and reg = 0, the metric of L layers is W_1^L, so that
depth has no effect without f.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ....estimators.base import FromPairs, MetricLearner, Workspace, error_context
from ....fit_warnings import warn
from ....numerics import checks, psd, scatter
from ....numerics.constraints import LabelPairs, Pairs
from ....numerics.optimize import Solution
from ....numerics.types import AnyArray, Array, Ints
from ... import geodesic
from .layers import ACTIVATIONS, Layer


def layered_gmml(
    X: Array,
    pairs: Pairs | LabelPairs,
    dims: Sequence[int | None],
    t: float = 0.5,
    reg: float | str = 0.1,
    activation: str = "tanh",
    normalize: bool = True,
) -> list[Layer]:
    """Return layers with `dims` outputs each (None: as many outputs as inputs) and `activation` between them.

    See `LayeredGMML` for the settings.
    """
    layers: list[Layer] = []
    for k, p in enumerate(dims):
        Z = X
        if k > 0:
            Z = ACTIVATIONS[activation](layers[-1](X))
        if p is not None and p > Z.shape[1]:
            raise ValueError(f"layer {k + 1} has {Z.shape[1]} inputs; got {p} outputs: reduce dims or n_components")
        mean = Z.mean(axis=0)
        S, D = scatter.pair_scatters(Z - mean, pairs).mean()
        S, D = geodesic.regularized(S, D, reg)
        # W = L' L = S^-1 #_t D; the layer keeps U' = Lam_p^(1/2) V_p'
        L = psd.sharp_factor(S, D, t)
        layer = Layer(psd.compress(L, p), mean, 1.0)
        if normalize and k < len(dims) - 1:
            # outputs of mean square 1 reach the bend of the next activation, in any units of the rows
            layer = layer._replace(scale=float(np.sqrt(np.mean(layer(Z) ** 2))) or 1.0)
        layers.append(layer)
        X = Z
    return layers


class LayeredGMML(FromPairs, MetricLearner):
    """Stack several geometric mean metrics, with a nonlinearity between them.

    Parameters
    ----------
    n_components : int, optional
        Number of outputs of the last layer. By default, as many as it has inputs.
    n_layers : int
        Number of layers, at least 1. A single layer is `GMML`.
    dims : sequence of int, optional
        Number of outputs of each layer but the last. By default, as many as there are features.
    t : float
        Point on the geodesic, in [0, 1]: 0 gives the inverse of the similar scatter, and 1 gives the dissimilar
        scatter.
    reg : float or "auto"
        Weight of the identity that each layer adds to both its scatters, in units of the mean eigenvalue of its
        similar scatter. "auto" adds 1e-6, and only if the similar scatter is nearly singular.
    activation : {"identity", "tanh", "relu", "reeig"}
        Function f applied after each layer but the last. "reeig" treats k (k + 1) / 2 outputs as a symmetric matrix
        and raises its eigenvalues to at least 1e-4. With "identity" and no reduction of dimensions, the layers only
        give a power of one metric, with a warning.
    normalize : bool
        Scale the outputs of each layer to a root mean square of 1.
    n_pairs : "all", int or None
        Pairs to make from labels: "all" uses every pair, an integer draws that many pairs of each kind (similar and
        dissimilar), and None draws 20 c^2 pairs of each kind for c classes, at most 500,000. If fewer exist, all of
        them are used.
    weighting : {"pairs", "class"}
        With ``n_pairs="all"``, give every pair ("pairs") or every class ("class") the same weight.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the pairs.

    Attributes
    ----------
    layers_ : list of ndarray of shape (k, inputs)
        Map L of each layer.
    means_ : list of ndarray of shape (inputs,)
        Mean of the inputs of each layer.
    scales_ : ndarray of shape (n_layers,)
        Scale by which the outputs of each layer are divided.
    components_ : ndarray of shape (k, inputs)
        Map L of the last layer.

    Notes
    -----
    Hajiabadi, Godaz, Ghasemi & Monsefi, "Layered geometric learning", ICAISC 2019. Unlike in the paper, inputs are
    centered, outputs can be normalized, and the last layer has no activation.

    There is no `partial_fit`: the scatters of a layer are those of the outputs of the previous layers, so all rows are
    needed once for each layer. A single layer is `GMML`, which also supports partial fits and sparse rows.
    """

    _holds = ("n_features_in_", "layers_", "means_", "scales_")

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_layers: int = 2,
        dims: Sequence[int] | None = None,
        t: float = 0.5,
        reg: float | str = 0.1,
        activation: str = "tanh",
        normalize: bool = True,
        n_pairs: int | str | None = "all",
        weighting: str = "pairs",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_layers = n_layers
        self.dims = dims
        self.t = t
        self.reg = reg
        self.activation = activation
        self.normalize = normalize
        self.n_pairs = n_pairs
        self.weighting = weighting
        self.random_state = random_state

    def _workspace(self, X: AnyArray, order: Ints | None) -> Workspace:
        return Workspace(np.asarray(X, dtype=np.float64), order)

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.counts(1, n_layers=self.n_layers)
        checks.between(0, 1, t=self.t)
        checks.one_of(tuple(ACTIVATIONS), activation=self.activation)
        hidden = self._hidden()
        if self.activation == "identity" and self.n_layers > 1 and {*hidden} <= {None, X.shape[1]}:
            warn(f"{self.n_layers} linear layers only give a power of one metric; choose another activation")
        settings = self._settings("t", "reg", "activation", "normalize")
        layers = layered_gmml(X, pairs, [*hidden, self.n_components], **settings)
        L, means, scales = zip(*layers, strict=True)
        return Solution(L[-1], attributes={"layers": [*L], "means": [*means], "scales": np.array(scales)})

    def _hidden(self) -> list[int | None]:
        """Return the number of outputs of each layer but the last."""
        count = self.n_layers - 1
        if self.dims is None:
            return [None] * count
        dims = np.asarray(self.dims)
        if dims.shape != (count,) or (count and dims.dtype.kind not in "iu") or (dims < 1).any():
            needs = f"dims must hold an integer >= 1 for each layer but the last, {count} in all"
            raise ValueError(f"{needs}; got {self.dims!r}")
        return [*self.dims]

    def transform(self, X: AnyArray) -> AnyArray:
        """Return the outputs of the last layer: Euclidean distances between them are the learned distances.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows to transform.

        Returns
        -------
        ndarray of shape (n, k)
            Transformed rows.
        """
        check_is_fitted(self)
        with error_context(self):
            X = self._rows(X, reset=False)
        Z = X.astype(np.float64)
        f = ACTIVATIONS[self.activation]
        for k, layer in enumerate(map(Layer, self.layers_, self.means_, self.scales_)):
            if k > 0:
                Z = f(Z)
            Z = layer(Z)
        return Z.astype(X.dtype)
