"""The pictures of `papers.md`: what the papers prove, computed by this library."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from figures import COLORS, GRAY, STYLE
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nearfar import JRS, EnergyConfusion
from nearfar.deep.losses.facility_location.partition_scores import Agreement
from nearfar.deep.losses.facility_location.search import Problem, distances, greedy, refine

FEATURES = (10, 30, 100, 300, 1000, 3000, 10000)
REPEATS = 20
CORRELATIONS = np.linspace(0, 1, 41)
PASSES = 6


def two_classes(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes of 40 unit vectors on the circle, and their labels."""
    rng = np.random.default_rng(seed)
    angle = np.concatenate([0.6 * rng.normal(size=40), 1.2 + 0.4 * rng.normal(size=40)])
    x = torch.from_numpy(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    return x, torch.arange(2).repeat_interleave(40)


def random_feature_estimates() -> tuple[float, np.ndarray]:
    """Return JRS of two classes, and its estimates by random features (numbers of features, repeats).

    The kernel exp(-|x - x'|^2 / tau) is the mean of cos(w.(x - x')) over w ~ N(0, 2/tau I), so JRS is the inner product
    of the classes' mean features.
    """
    x, y = two_classes()
    exact = float(JRS(("embedding",), kernels=1)(x, y))
    n = len(x)
    tau = float(torch.cdist(x, x).square().sum()) / (n * n - n)
    rng = np.random.default_rng(1)
    rows = x.numpy()
    found = np.empty((len(FEATURES), REPEATS))
    for place, count in enumerate(FEATURES):
        for repeat in range(REPEATS):
            phase = rows @ (np.sqrt(2 / tau) * rng.normal(size=(2, count)))
            features = np.concatenate([np.cos(phase), np.sin(phase)], axis=1) / np.sqrt(count)
            means = [features[y.numpy() == c].mean(0) for c in (0, 1)]
            found[place, repeat] = means[0] @ means[1]
    return exact, found


def joint_and_product(correlation: float) -> tuple[float, float]:
    """Return JRS of a distribution with itself on two layers of one dimension, and the product of the layers' own.

    Both layers are standard normal; the kernels exp(-d^2). E exp(-|D|^2) is det(I + 4 S)^(-1/2) for differences D of
    two draws of covariance S.
    """
    S = np.array([[1.0, correlation], [correlation, 1.0]])
    joint = np.linalg.det(np.eye(2) + 4 * S) ** -0.5
    return float(joint), float((1 + 4) ** -0.5) ** 2


def energies(pairs: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Return the energy confusion of random pairs of classes, and half their generalized energy distance."""
    rng = np.random.default_rng(2)
    found = np.empty((pairs, 2))
    for place in range(pairs):
        spread = rng.uniform(0, 1, size=2)
        centers = 2 * rng.normal(size=(2, 3)) * rng.uniform()
        parts = [centers[c] + spread[c] * rng.normal(size=(12, 3)) for c in (0, 1)]
        x = torch.from_numpy(np.concatenate(parts))
        energy = float(EnergyConfusion()(x, torch.arange(2).repeat_interleave(12)))
        means = [part.mean(0) for part in parts]
        found[place] = energy, np.square(means[0] - means[1]).sum()
    return found[:, 0], found[:, 1]


def refinements(batches: int = 12) -> np.ndarray:
    """Return A(S) after the greedy choice and after every pass of the refinement, less the first (batches, passes)."""
    found = np.empty((batches, PASSES))
    for seed in range(batches):
        rng = np.random.default_rng(seed)
        y = np.repeat(np.arange(8), 6)
        z = rng.normal(size=(8, 6))[y] + 0.9 * rng.normal(size=(48, 6))
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        problem = Problem(distances(z), Agreement(y, "nmi", "geometric"), 4.0)
        start = greedy(problem, 8)
        values = [problem.value(start)]
        values += [problem.value(refine(problem, start.copy(), passes=passes)) for passes in range(1, PASSES)]
        found[seed] = np.array(values) - values[0]
    return found


def tidy(axes: Axes) -> None:
    """Gray ticks, and no frame above and to the right."""
    axes.tick_params(colors=GRAY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.patch.set_alpha(0.0)


def jrs_random_features() -> Figure:
    """JRS and its estimates by random features."""
    exact, found = random_feature_estimates()
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    axes = figure.subplots()
    axes.axhline(exact, color=COLORS[1], label="JRS")
    axes.plot(np.repeat(FEATURES, REPEATS), found.ravel(), ".", color=COLORS[0], alpha=0.5, label="random features")
    axes.set_xscale("log")
    axes.set_xlabel("random features")
    axes.legend(frameon=False)
    tidy(axes)
    return figure


def dependent_layers() -> Figure:
    """Proposition 1 of the JRD paper: the product over layers holds for independent layers only."""
    values = np.array([joint_and_product(correlation) for correlation in CORRELATIONS])
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    axes = figure.subplots()
    axes.plot(CORRELATIONS, values[:, 0], color=COLORS[0], label="joint similarity (JRS)")
    axes.plot(CORRELATIONS, values[:, 1], color=COLORS[1], label="product of the layers")
    axes.set_xlabel("correlation of the two layers")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    tidy(axes)
    return figure


def energy_bounds() -> Figure:
    """Energy confusion is at least half the generalized energy distance, which is MMD^2 of the linear kernel."""
    energy, bound = energies()
    figure = Figure(figsize=(3.6, 3.4), layout="constrained")
    axes = figure.subplots()
    most = float(energy.max())
    axes.plot([0, most], [0, most], color=GRAY, linewidth=1)
    axes.plot(bound, energy, ".", color=COLORS[0])
    axes.set_xlabel("GED / 2 = MMD² (linear kernel)")
    axes.set_ylabel("energy confusion")
    tidy(axes)
    return figure


def refinement() -> Figure:
    """A(S) over the passes of Algorithm 2 of the facility location paper."""
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    axes = figure.subplots()
    for values in refinements():
        axes.plot(values, color=COLORS[0], alpha=0.5, marker=".")
    axes.set_xlabel("passes of the refinement")
    axes.set_ylabel("A(S), above greedy")
    tidy(axes)
    return figure


FIGURES = {
    "jrs_random_features": jrs_random_features,
    "dependent_layers": dependent_layers,
    "energy_bounds": energy_bounds,
    "refinement": refinement,
}


def write(folder: Path) -> None:
    """Draw every picture as an SVG file with a transparent background."""
    folder.mkdir(exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, draw in FIGURES.items():
            draw().savefig(folder / f"{name}.svg", transparent=True, metadata={"Date": None})
