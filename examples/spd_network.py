"""Train a network on covariance matrices
======================================

    python examples/spd_network.py [FIGURE.png]

Each 8 x 8 digit becomes a 13 x 13 covariance matrix: every pixel has 13 features (its place, products of the places,
its intensity, gradients and curvatures), and the matrix holds how they vary together. Three nearest neighbors vote for
the digit. They are found in three ways: by the entries of the matrices, by the logarithms of the matrices, and by the
embeddings of a network of BiMap, ReEig and LogEig layers, whose bilinear weights stay orthonormal. The script takes
about 10 seconds on one core. With a file name, it also draws a figure (this needs matplotlib).
"""

import sys

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from nearfar import AMSoftmaxLoss, BiMap, LogEig, MPerClassSampler, ReEig
from nearfar.deep import StiefelSGD, other_parameters, stiefel_parameters
from nearfar.deep.networks.log_eig import upper_vector

EPOCHS = 25


def descriptors(images):
    """Return the (n, 13, 13) covariances of (n, 8, 8) images."""
    n, side, _ = images.shape
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))

    def moved(down, right):
        return padded[:, 1 + down : 1 + down + side, 1 + right : 1 + right + side]

    y, x = np.meshgrid(np.linspace(-1, 1, side), np.linspace(-1, 1, side), indexing="ij")
    places = [np.broadcast_to(a, images.shape) for a in (x, y, x * x, x * y, y * y)]
    dx, dy = moved(0, 1) - moved(0, -1), moved(1, 0) - moved(-1, 0)
    dxx, dyy = (moved(*step) + moved(*(-s for s in step)) - 2 * images for step in ((0, 1), (1, 0)))
    dxy = moved(1, 1) - moved(1, -1) - moved(-1, 1) + moved(-1, -1)
    numbers = np.stack([*places, images, dx, dy, abs(dx), abs(dy), dxx, dxy, dyy], axis=-1).reshape(n, side**2, -1)
    numbers = numbers / numbers.std(axis=(0, 1))
    numbers -= numbers.mean(axis=1, keepdims=True)
    return torch.tensor(numbers.swapaxes(1, 2) @ numbers / side**2 + 1e-2 * np.eye(numbers.shape[2]))


def train(matrices, labels, seed=0):
    """Return a trained network from (n, 13, 13) matrices to (n, 32) embeddings."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        BiMap(13, 11), ReEig(), BiMap(11, 9), ReEig(), LogEig(), nn.BatchNorm1d(45), nn.Linear(45, 32)
    ).double()
    loss = AMSoftmaxLoss(10, 32).double()
    manifold = StiefelSGD(stiefel_parameters(net), lr=0.05, momentum=0.9)
    rest = torch.optim.Adam([*other_parameters(net), *loss.parameters()], lr=5e-3)
    sampler = MPerClassSampler(labels, 8, 80, seed=seed, rounds=None)
    for batch in (batch for _ in range(EPOCHS) for batch in sampler):
        value = loss(net(matrices[batch]), labels[batch])
        manifold.zero_grad()
        rest.zero_grad()
        value.backward()
        manifold.step()
        rest.step()
    return net.eval()


def main():
    """Print one line per representation."""
    images, digits = load_digits(return_X_y=True)
    matrices = descriptors(images.reshape(-1, 8, 8) / 16)
    seen, unseen, y, expected = train_test_split(matrices, torch.tensor(digits), test_size=0.5, random_state=0)
    net = train(seen, y)
    scores = {}
    for name, embed in {
        "entries of the covariances": upper_vector,
        "their logarithms (log-Euclidean)": LogEig(),
        "SPD network": lambda X: nn.functional.normalize(net(X)),
    }.items():
        with torch.no_grad():
            votes = KNeighborsClassifier(3).fit(embed(seen), y)
            scores[name] = votes.score(embed(unseen), expected)
        print(f"{name:34s} accuracy {scores[name]:.4f}")
    worst = max(float((W.T @ W - torch.eye(W.shape[1])).abs().max().detach()) for W in stiefel_parameters(net))
    print(f"largest deviation of a bilinear weight from orthonormal columns: {worst:.1e}")
    if len(sys.argv) > 1:
        draw(images.reshape(-1, 8, 8), matrices, scores, sys.argv[1])


def draw(images, matrices, scores, path):
    """Draw three digits and their covariances, next to the accuracies."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.6))
    left.suptitle("digits and their covariances", fontsize=10)
    panels = left.subplots(2, 3)
    for k, (above, below) in enumerate(panels.T):
        above.imshow(images[k], cmap="gray_r")
        below.imshow(matrices[k], cmap="coolwarm", vmin=-1, vmax=1)
    for axes in panels.flat:
        axes.set_axis_off()

    axes = right.subplots()
    bars = axes.barh([name.replace(" (", "\n(") for name in scores], list(scores.values()))
    axes.bar_label(bars, fmt="%.3f", padding=3)
    axes.invert_yaxis()
    axes.set(xlabel="3-NN accuracy", xlim=(0.9, 1))
    figure.savefig(path)


if __name__ == "__main__":
    main()
