"""Searches for the L, or for the PSD M and the threshold, with the smallest logistic loss of pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...numerics import gradient_descent, psd, scatter
from ...numerics.constraints import LabelPairs, Pairs, generator
from ...numerics.optimize import Report, Solution, lbfgs, stopped
from ...numerics.pair_differences import PairList
from ...numerics.types import AnyArray, Array, Ints, Seed
from .. import neighbor_softmax
from ..neighbor_softmax import batches
from .logistic import LabeledPairs, ListedPairs, Loss

WEIGHTINGS = ("none", "balanced")
THRESHOLD_ROUNDS = 3  # most searches for a convex optimum, each from a metric of full rank


class Risk(NamedTuple):
    """Rows and their pairs, whose weights sum to 1; `both` is True if there are pairs of both kinds."""

    X: Array
    pairs: ListedPairs | LabeledPairs
    both: bool

    def __call__(self, L: Array, b: float, beta: float = 1.0, by_metric: bool = False) -> Loss:
        """Return the loss, with the `pull` of the gradient with respect to L, or with `by_metric` to M = L' L."""
        Z = self.X @ L.T
        moments = self.X if by_metric else Z
        return self.pairs.loss(Z, moments, b, beta)


def risk(X: Array, pairs: Pairs | LabelPairs, pair_weight: str = "none") -> Risk:
    """Return the loss of listed pairs, or of all pairs that labels imply.

    All pairs have the same weight, or with "balanced" each kind has half of the total weight.
    """
    if isinstance(pairs, LabelPairs):
        rows = neighbor_softmax.sorted_rows(X, pairs.labels)
        n = float(len(rows.X))
        similar = float((rows.sizes * (rows.sizes - 1.0)).sum() / 2)
        dissimilar = n * (n - 1) / 2 - similar
        similar_weight, dissimilar_weight = kind_weights(similar, dissimilar, pair_weight)
        return Risk(rows.X, LabeledPairs(rows, similar_weight, dissimilar_weight), both=True)
    listed = PairList(pairs.i, pairs.j, len(X))
    weight = pairs.weights / pairs.weights.sum()
    similar = float(weight[pairs.similar].sum())
    similar_weight, dissimilar_weight = kind_weights(similar, 1 - similar, pair_weight)
    weight = weight * np.where(pairs.similar, similar_weight, dissimilar_weight)
    both = bool(pairs.similar.any() and not pairs.similar.all())
    return Risk(X, ListedPairs(listed, pairs.sign[listed.order], weight[listed.order]), both)


def of_labels(X: AnyArray, labels: Ints, pair_weight: str) -> Risk:
    """Return the loss of all pairs of a batch of labeled rows."""
    return risk(X - X.mean(axis=0, dtype=np.float64), LabelPairs(labels), pair_weight)


def kind_weights(similar: float, dissimilar: float, pair_weight: str) -> tuple[float, float]:
    """Return the weight of a similar and of a dissimilar pair, given the total of each kind."""
    if pair_weight == "balanced" and similar > 0 and dissimilar > 0:
        return 0.5 / similar, 0.5 / dissimilar
    return 1 / (similar + dissimilar), 1 / (similar + dissimilar)


def whitening(X: Array) -> Array:
    """Return the square root (d, d) of the inverse covariance within the span of the rows, 0 outside it."""
    # covariance of the rows, (d, d)
    w, V = psd.spectrum(scatter.total(X) / len(X))
    r = psd.rank(w)
    return (V[:, :r] / np.sqrt(w[:r])) @ V[:, :r].T


def whitened_directions(X: Array, k: int) -> Array:
    """Return the k principal directions, scaled to a mean squared distance of 1 over all pairs; 0 beyond the rank."""
    w, V = psd.spectrum(scatter.total(X) / len(X))
    r = min(psd.rank(w), k)
    # the mean squared distance along direction k is 2 w_k before scaling, and 1 / r after it
    L = np.zeros((k, X.shape[1]))
    L[:r] = V[:, :r].T / np.sqrt(2 * r * w[:r, None])
    return L


def gradient(R: Risk, L: Array, b: float, beta: float, reg: float) -> tuple[float, Array, float]:
    """Return loss + reg |L|^2, and its gradients with respect to L and to b."""
    loss = R(L, b, beta)
    # dE/dL = 2 pull' X
    return loss.value + reg * float(np.sum(L**2)), 2 * (loss.pull.T @ R.X + reg * L), loss.slope


def minimize(
    R: Risk,
    L0: Array,
    b: float,
    *,
    learn_b: bool,
    beta: float = 1.0,
    reg: float = 0.0,
    max_iter: int = 100,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Solution:
    """Return a local minimum over L (k, d) and, with `learn_b`, over b, which is ``attributes["b"]``."""

    def packed(x: Array) -> tuple[float, Array]:
        value, G, slope = gradient(R, x[:-1], float(x[-1, 0]), beta, reg)
        return value, pack(G, slope if learn_b else 0.0)

    # not convex in L: the search ends when the value hardly changes, or the gradient is far below tol
    stop = gradient_descent.hardly_changes(1e-2 * tol)
    found = lbfgs(packed, pack(L0, b), stop=stop, max_iter=max_iter, tol=1e-3 * tol, report=report)
    return unpacked(found)


def stream(
    adam: gradient_descent.Adam, R: Risk, L: Array, b: float, learn_b: bool, beta: float, reg: float
) -> Solution:
    """Take one step of Adam on L and b; the objective of the result is the value before the step."""
    value, G, slope = gradient(R, L, b, beta, reg)
    x = adam(pack(L, b), pack(G, slope if learn_b else 0.0))
    return unpacked(Solution(x, value, adam.k, converged=False))


def pack(L: Array, b: float) -> Array:
    """Return L with one more row, whose first entry is b."""
    # one array for L-BFGS; the other entries of the last row have gradient 0, and stay 0
    return np.vstack([L, b * np.eye(1, L.shape[1])])


def unpacked(found: Solution) -> Solution:
    """Return the solution with L as `x`, and b as an attribute."""
    return found.with_x(found.x[:-1], attributes={"b": float(found.x[-1, 0])})


def minimize_convex(
    R: Risk,
    A: Array,
    L0: Array | None,
    b: float,
    *,
    learn_b: bool,
    reg: float = 0.0,
    max_iter: int = 100,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Solution:
    """Minimize loss + reg tr M over PSD M = L' L and b, by a full-rank factor K with L = K A.

    Returns
    -------
    Solution
        `x` is L (d, d) and ``attributes["b"]`` b. ``attributes["kkt"]`` is (negative part of the smallest eigenvalue
        of G = df/dM, |<M, G>|, |df/db|), which are all 0 at the optimum. The search has converged if tr(M) times the
        first, the second, and |b| times the third sum to at most `tol`.
    """
    seen: dict[str, Any] = {}

    def packed(x: Array) -> tuple[float, Array]:
        L = x[:-1] @ A
        b = float(x[-1, 0])
        loss = R(L, b, by_metric=True)
        G = psd.symmetrize(R.X.T @ loss.pull) + reg * np.eye(len(A))  # df/dM; df/dK = 2 L G A
        slope = loss.slope if learn_b else 0.0
        seen.update(L=L, b=b, G=G, slope=slope)
        return loss.value + reg * float(np.sum(L**2)), pack(2 * L @ G @ A, slope)

    def stop(before: float, now: float) -> bool:
        return residual(seen)[1] <= tol or before - now <= 1e-14 * max(1.0, abs(now))

    if L0 is None:
        K = np.eye(len(A)) / np.sqrt(2 * len(A))  # mean squared distance 1, because A whitens the rows
    else:
        # L = K A
        K = L0 @ np.linalg.pinv(A)
    spent = 0
    history = np.zeros(0)
    for _ in range(THRESHOLD_ROUNDS):
        found = lbfgs(packed, pack(K, b), stop=stop, max_iter=max_iter - spent, tol=0.0, report=report)
        spent = spent + found.n_iter
        history = np.concatenate([history, np.asarray(found.history)])
        value = packed(found.x)[0]
        kkt, size = residual(seen)
        if size <= tol or spent >= max_iter:
            break
        # a factor that has lost rank cannot regain it by gradients: 2 K A G A vanishes in the directions that K has
        # lost
        K = full_rank(found.x[:-1])
        b = float(found.x[-1, 0])
    if size <= tol:
        message = ""
    else:
        message = stopped("L-BFGS", spent, "optimality", size, tol)
    attributes = {"kkt": kkt, "b": seen["b"]}
    return Solution(
        x=psd.compress(seen["L"]),
        objective=value,
        n_iter=spent,
        converged=size <= tol,
        message=message,
        history=history,
        attributes=attributes,
    )


def residual(seen: dict[str, Any]) -> tuple[Array, float]:
    """Return the violations of the three optimality conditions, and their weighted sum."""
    L = seen["L"]
    G = seen["G"]
    low = max(0.0, -float(np.linalg.eigvalsh(G)[0]))
    # of min over PSD M: G = df/dM PSD, <G, M> = tr(L G L') = 0, df/db = 0
    kkt = np.array([low, abs(float(np.vdot(L, L @ G))), abs(seen["slope"])])
    # each in units of the value: <G, M>, and what a violation costs over a change of the size of M or b
    return kkt, float(kkt @ np.array([np.sum(L**2), 1.0, abs(seen["b"])]))


def full_rank(K: Array) -> Array:
    """Return a factor of K' K plus a small multiple of I, so that the search can reach every direction."""
    M = K.T @ K
    # M + 1e-4 tr(M) / d I
    return psd.components(M + 1e-4 * np.trace(M) / len(M) * np.eye(len(M)))


def minimize_in_batches(
    R: Risk,
    L0: Array,
    b: float,
    *,
    batch_size: int,
    learn_b: bool,
    beta: float = 1.0,
    reg: float = 0.0,
    max_iter: int = 100,
    tol: float = 1e-6,
    seed: Seed = None,
    report: Report | None = None,
) -> Solution:
    """Find L and b by steps of Adam on batches: of listed pairs, or with labels of anchors with all later rows."""
    rng = generator(seed)
    epoch, loss_of = batched(R, batch_size, rng)

    def on_batch(x: Array, batch: Any) -> tuple[float, Array]:
        L = x[:-1]
        loss, share = loss_of(L, float(x[-1, 0]), beta, batch)
        # the penalty, like the loss, is divided among the batches by their shares
        G = 2 * (loss.pull.T @ R.X + share * reg * L)
        return loss.value + share * reg * float(np.sum(L**2)), pack(G, loss.slope if learn_b else 0.0)

    step = gradient_descent.step_length(L0)
    x0 = pack(L0, b)
    found = gradient_descent.descend(on_batch, epoch, x0, step=step, max_iter=max_iter, tol=tol, report=report)
    found = unpacked(found)
    objective = gradient(R, found.x, found.attributes["b"], beta, reg)[0]
    return found.with_x(found.x, objective=objective)


def batched(
    R: Risk, size: int, rng: np.random.Generator
) -> tuple[Callable[[], Iterator[Any]], Callable[..., tuple[Loss, float]]]:
    """Return a function that yields the batches of an epoch, and one that returns the loss of a batch and its share."""
    pairs = R.pairs
    X = R.X
    if isinstance(pairs, LabeledPairs):
        rows = pairs.rows
        # anchors of a block; a batch has several, so that its rows are mixed
        height = max(1, min(neighbor_softmax.height(len(X)), size // 8))
        blocks = list(neighbor_softmax.cut(rows.sizes, height))

        def of_blocks(L: Array, b: float, beta: float, batch: Any) -> tuple[Loss, float]:
            Z = X @ L.T
            share = sum(block.stop - block.start for block in batch) / len(X)
            return pairs.loss(Z, Z, b, beta, blocks=batch), share

        return lambda: batches(blocks, size, rng), of_blocks

    def of_pairs(L: Array, b: float, beta: float, batch: Any) -> tuple[Loss, float]:
        part = subset(pairs, batch)
        Z = X @ L.T
        return part.loss(Z, Z, b, beta), len(batch) / len(pairs.w)

    def parts() -> Iterator[Any]:
        order = rng.permutation(len(pairs.w))
        return (order[a : a + size] for a in range(0, len(order), size))

    return parts, of_pairs


def subset(pairs: ListedPairs, chosen: Any) -> ListedPairs:
    """Return some of the listed pairs, by their positions."""
    chosen = np.sort(chosen)
    listed = PairList(pairs.pairs.i[chosen], pairs.pairs.j[chosen], pairs.pairs.n)
    return ListedPairs(listed, pairs.s[chosen], pairs.w[chosen])
