"""Initialization of the embedding layer in closed form: the trunk's features as they are, or a whitening of them.

Features as they are pass the identity, or the directions of their first principal components if there are fewer
dimensions. The whitening takes features of unit length, z = W (x / |x| - m). With s the mean of |x| over the items and
V the first principal directions of z, the layer is x -> c V W x / s - c V W m; c gives its weights the size of a random
start, so that learning rates mean what they mean there.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from ..data import Dataset
from ..deep.networks.embedder import Embedder
from ..deep.networks.whiten import Whiten
from ..numerics.types import AnyArray, Ints
from .config import TrainConfig, TrainError
from .features import all_rows, cached_features, sizes_of

START_ITEMS = 4000  # maximum number of training items, because another pass over all of them would take too long


def start_embedding(embedder: Embedder, train: Dataset, config: TrainConfig) -> None:
    """Initialize the embedding layer as a config sets, by features of training items or a whitening of them.

    Raises
    ------
    TrainError
        If features are not finite.
    """
    if len(train) > START_ITEMS:
        train = train.subset(np.linspace(0, len(train) - 1, START_ITEMS).astype(int))
    are_features = config.freeze_trunk or config.trunk == "identity"
    features = train if are_features else cached_features(embedder, train, **sizes_of(config))
    rows = all_rows(features)
    if not np.isfinite(rows).all():
        raise TrainError(
            f"the network gives features of {train.name} that are not finite; check the weights of the trunk"
        )
    if config.embedding_start == "features":
        weight = feature_layer(rows, embedder.embedding_dim)
        _set_layer(embedder, weight, np.zeros(len(weight)))
    else:
        start_from_whitening(embedder, rows, features.labels)


def start_from_whitening(embedder: Embedder, rows: AnyArray, labels: Ints) -> None:
    """Set the embedding layer to the whitening of features (n, d) of classes (n,)."""
    weight, bias = whitening_layer(rows, labels, embedder.embedding_dim)
    _set_layer(embedder, weight, bias)


def _set_layer(embedder: Embedder, weight: AnyArray, bias: AnyArray) -> None:
    layer = embedder.layer
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))


def feature_layer(rows: AnyArray, k: int) -> AnyArray:
    """Return the weight (k, d) of the layer that keeps features (n, d), or their first k principal components.

    The components are those of the features of unit length around 0, so that cosines change as little as possible.
    Dimensions beyond d are zero.

    >>> feature_layer(np.array([[1.0, 0.0], [0.0, 2.0]]), 3)
    array([[1., 0.],
           [0., 1.],
           [0., 0.]])
    """
    d = rows.shape[1]
    if k >= d:
        return np.eye(k, d)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    z = (rows / np.where(length > 0, length, 1)).astype(np.float64)
    _, V = np.linalg.eigh(z.T @ z)  # ascending
    return np.ascontiguousarray(V[:, ::-1][:, :k].T)


def whitening_layer(rows: AnyArray, labels: Ints, k: int) -> tuple[AnyArray, AnyArray]:
    """Return weight (k, d) and bias (k,) of the layer from features (n, d) to k embedding dimensions.

    Dimensions beyond d are zero.
    """
    d = rows.shape[1]
    whiten = Whiten(d)
    whiten.learn(rows, labels)
    W = whiten.weight.numpy().astype(np.float64)
    mean = whiten.mean.numpy().astype(np.float64)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    z = (rows / np.where(length > 0, length, 1) - mean) @ W.T
    _, V = np.linalg.eigh(z.T @ z)  # ascending
    directions = V[:, ::-1][:, :k].T @ W  # (k, d)
    weight = directions / max(float(length.mean()), float(np.finfo(np.float32).tiny))
    # nn.Linear draws from U(-1, 1) / sqrt(d), whose root mean square is 1 / sqrt(3 d)
    c = 1 / np.sqrt(3 * d) / max(float(np.sqrt(np.mean(weight**2))), float(np.finfo(np.float32).tiny))
    bias = -c * (directions @ mean)
    more = k - len(weight)  # dimensions beyond the features hold nothing
    return np.pad(c * weight, ((0, more), (0, 0))), np.pad(bias, (0, more))
