"""A picture for each loss and each learner of tables: what it does to points, drawn whenever Sphinx runs.

A loss moves points of the plane by gradient descent, without a network. A learner maps rows whose classes it has not
seen.
"""

from __future__ import annotations

import warnings
from inspect import signature
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from figures import COLORS, STYLE, blank, classes_with_noise
from matplotlib.figure import Figure

import nearfar
from nearfar.catalog import METHODS, Method

CLASSES = 4
POINTS = 48
STEPS = 60
RATE = 0.06
OTHER_LOSSES = (  # which need features of a network, two views, more than two dimensions, or much time
    "AdversarialTriplet",
    "AngularLoss",
    "BIERLoss",
    "DeepFisherLoss",
    "DivideAndConquer",
    "HDCLoss",
    "HDMLLoss",
    "Matryoshka",
    "VICRegLoss",
    "VirtualSampleLoss",
)
OTHER_LEARNERS = (  # which learn from views, sets, targets or matrices, or take long
    "AML",
    "ActivePairSelector",
    "CDML",
    "GrassmannGMML",
    "KernelMCML",
    "Kernelized",
    "MLKR",
    "PrivilegedMetric",
    "SPDGMML",
)
TAKEN = ("labels", "pairs", "triplets", "quadruplets", "chunklets")
OF_LOSSES = (
    f"What the loss alone does to {POINTS} random points of {CLASSES} classes in the plane: before, and after {STEPS} "
    "steps of Adam. In practice, the loss moves the weights of a network instead of the points."
)
OF_LEARNERS = (
    "Rows of three classes that the learner has not seen, in a table in which noise hides the classes: two columns, "
    "and the two main directions of the learned map. It learned from three other classes, with default settings. "
    "If the map has only one direction, each class is drawn on a separate line."
)


def captions() -> dict[str, str]:
    """Return the caption of each method that has a picture."""
    losses = (m.name for m in METHODS if m.kind == "loss" and m.name not in OTHER_LOSSES)
    learners = (m.name for m in METHODS if m.kind == "learner" and m.takes in TAKEN and m.name not in OTHER_LEARNERS)
    return dict.fromkeys(losses, OF_LOSSES) | dict.fromkeys(learners, OF_LEARNERS)


def of_loss(name: str) -> Figure:
    """Draw random points, and where the loss moves them."""
    made = getattr(nearfar, name)
    known = {"num_classes": CLASSES, "embedding_dim": 2}
    loss = made(**{key: value for key, value in known.items() if key in signature(made.__init__).parameters})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        points = torch.randn(POINTS, 2)
        moved = points.clone().requires_grad_()
        labels = torch.arange(POINTS) % CLASSES
        optimizer = torch.optim.Adam([moved, *loss.parameters()], lr=RATE)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss(moved, labels).backward()
            optimizer.step()
    return two_panels(points.numpy(), moved.detach().numpy(), labels.numpy(), ("before", "after"))


def of_learner(name: str) -> Figure:
    """Draw rows of classes that the learner has not seen, before and after its map."""
    X, y = classes_with_noise()
    seen = y % 2 == 0
    made = getattr(nearfar, name)
    seeded = {"random_state": 0} if "random_state" in signature(made.__init__).parameters else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = np.asarray(made(**seeded).fit(X[seen], y[seen]).transform(X[~seen]))
    centered = rows - rows.mean(axis=0)
    if rows.shape[1] > 1:
        mapped = centered @ np.linalg.svd(centered, full_matrices=False)[2][:2].T
    else:  # one direction: spread the classes over the height
        mapped = np.column_stack([centered[:, 0], y[~seen] * centered.std() / 4])
    return two_panels(X[~seen, :2], mapped, (y[~seen] - 1) // 2, ("two of six columns", "the learned map"))


def two_panels(before: np.ndarray, after: np.ndarray, labels: np.ndarray, titles: tuple[str, str]) -> Figure:
    figure = Figure(figsize=(5.6, 2.7), layout="constrained")
    for axes, points, title in zip(figure.subplots(1, 2), (before, after), titles, strict=True):
        for label in np.unique(labels):
            axes.scatter(*points[labels == label].T, s=16, color=COLORS[label], alpha=0.85, linewidths=0)
        axes.set_title(title, fontsize=11)
        blank(axes)
    return figure


def write(folder: Path) -> None:
    """Draw the picture of each method that has none newer than its module."""
    folder.mkdir(exist_ok=True, parents=True)
    methods = {method.name: method for method in METHODS}
    with mpl.rc_context(STYLE):
        for name in captions():
            path = folder / f"{name}.svg"
            if not path.exists() or path.stat().st_mtime < changed(methods[name]):
                draw = of_loss if methods[name].kind == "loss" else of_learner
                draw(name).savefig(path, transparent=True, metadata={"Date": None})


def changed(method: Method) -> float:
    return max(path.stat().st_mtime for path in (method.path, Path(__file__)))
