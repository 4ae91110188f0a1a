"""Pictures of scores for papers and notebooks, drawn into Matplotlib axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..extras import hint
from ..labels import check_lengths, named_classes
from ..neighbors.nearest import nearest
from ..numerics.distances import as_rows
from .protocol import mean_score
from .retrieval import retrieve
from .threshold_curves import Verification

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 5000
"""Maximum number of items of a map; t-SNE of more takes minutes."""
FEWEST_POINTS = 3
"""Minimum number of items of a map: t-SNE needs more than its least perplexity, 2."""


def plot_recall(
    embeddings: Any,
    labels: Any,
    *,
    ks: Any = (1, 2, 4, 8, 16, 32),
    distance: str = "cosine",
    label: str | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Plot Recall@K against K.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings, as arrays or tensors; each searches all others.
    labels : array-like of shape (n,)
        Class of each embedding, of any hashable type.
    ks : sequence of int
        Values of K.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which embeddings are compared.
    label : str, optional
        Name of the curve in the legend.
    axes : matplotlib Axes, optional
        Axes to draw on, for example those of another model. By default, new ones.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> axes = plot_recall(np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 4, ks=(1, 2, 4))
    >>> axes.get_ylabel()
    'Recall@K'
    """
    found = retrieve(embeddings, labels, ks=ks, distance=distance, whole=False, up_to_r=False)
    recall = [mean_score(found, found.found(k)) for k in found.ks]
    axes = axes if axes is not None else _new_axes()
    axes.plot(found.ks, recall, marker="o", label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(found.ks, [str(k) for k in found.ks])
    axes.set_xlabel("K")
    axes.set_ylabel("Recall@K")
    axes.set_ylim(0, 1.02)
    return axes


def plot_roc(verification: Verification, *, label: str | None = None, axes: Axes | None = None) -> Axes:
    """Plot the ROC curve: the true accept rate (TAR) against the false accept rate (FAR), on a logarithmic scale.

    Parameters
    ----------
    verification : Verification
        Result of `verify` or `verify_pairs`.
    label : str, optional
        Name of the curve in the legend.
    axes : matplotlib Axes, optional
        Axes to draw on, for example those of another model. By default, new ones.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.evaluation import verify
    >>> rows = np.random.default_rng(0).normal(size=(40, 3))
    >>> plot_roc(verify(rows, np.arange(40) % 4)).get_ylabel()
    'true-accept rate'
    """
    far, tar = verification.curve
    axes = axes if axes is not None else _new_axes()
    axes.plot(far, tar, label=label)
    axes.set_xscale("log")
    axes.set_xlabel("false-accept rate")
    axes.set_ylabel("true-accept rate")
    axes.set_ylim(0, 1.02)
    return axes


def plot_confusions(
    embeddings: Any, labels: Any, *, most: int = 30, distance: str = "cosine", axes: Axes | None = None
) -> Axes:
    """Plot how often the nearest neighbor of an item of one class is of another class.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings, as arrays or tensors.
    labels : array-like of shape (n,)
        Class of each embedding, of any hashable type.
    most : int
        Maximum number of classes to show, those with the most wrong nearest neighbors.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which embeddings are compared.
    axes : matplotlib Axes, optional
        Axes to draw on, for example those of another model. By default, new ones.

    Returns
    -------
    matplotlib Axes
        Rows are the classes of the queries, columns those of their nearest items. A row sums to 1 over all classes.

    Examples
    --------
    >>> import numpy as np
    >>> plot_confusions(np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 4).get_xlabel()
    'class of the nearest item'
    """
    rows = as_rows(embeddings, "embeddings")
    names, y = named_classes(labels)
    check_lengths(len(rows), y)
    _, first = nearest(rows, rows, 1, distance=distance, exclude_self=True)
    neighbor = y[first[:, 0]]
    counts = np.zeros((len(names), len(names)))
    np.add.at(counts, (y, neighbor), 1.0)
    share = counts / counts.sum(axis=1, keepdims=True)
    wrong = 1 - np.diag(share)
    # those with the most errors, in the order of their names
    shown = np.sort(np.argsort(-wrong, kind="stable")[:most])
    axes = axes if axes is not None else _new_axes()
    image = axes.imshow(share[np.ix_(shown, shown)], vmin=0, vmax=1, cmap="Blues")
    axes.figure.colorbar(image, ax=axes, label="share of the row's items")
    axes.set_xticks(range(len(shown)), [str(names[k]) for k in shown], rotation=90)
    axes.set_yticks(range(len(shown)), [str(names[k]) for k in shown])
    axes.set_xlabel("class of the nearest item")
    axes.set_ylabel("class of the query")
    return axes


def plot_map(embeddings: Any, labels: Any, *, seed: int = 0, axes: Axes | None = None) -> Axes:
    """Plot the embeddings in two dimensions by t-SNE, with one color per class.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings, as arrays or tensors. If there are more than 5,000, a random sample is drawn.
    labels : array-like of shape (n,)
        Class of each embedding, of any hashable type.
    seed : int
        Seed of the layout and of the sample.
    axes : matplotlib Axes, optional
        Axes to draw on, for example those of another model. By default, new ones.

    Returns
    -------
    matplotlib Axes
        Without ticks, because the axes and the distances between groups have no meaning.

    Notes
    -----
    van der Maaten & Hinton, "Visualizing data using t-SNE", JMLR 9, 2008.
    """
    from sklearn.manifold import TSNE

    rows = as_rows(embeddings, "embeddings")
    names, y = named_classes(labels)
    check_lengths(len(rows), y)
    if len(rows) < FEWEST_POINTS:
        raise ValueError(f"embeddings: expected at least {FEWEST_POINTS} rows for a map, got {len(rows)}")
    if len(rows) > MOST_POINTS:
        drawn = np.random.default_rng(seed).choice(len(rows), MOST_POINTS, replace=False)
        rows = rows[drawn]
        y = y[drawn]
    perplexity = min(30.0, max(2.0, (len(rows) - 1) / 3))
    places = TSNE(perplexity=perplexity, random_state=seed).fit_transform(rows)
    axes = axes if axes is not None else _new_axes()
    for k, name in enumerate(names):
        mine = places[y == k]
        axes.scatter(mine[:, 0], mine[:, 1], s=8, label=str(name))
    axes.set_xticks([])
    axes.set_yticks([])
    return axes


def _new_axes() -> Axes:
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise ImportError(hint(error), name="matplotlib") from error
    return plt.subplots()[1]
