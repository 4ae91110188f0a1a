"""Active selection of pairs for a Bayesian metric (Yang, Jin & Sukthankar, 2007).

    ask about the pairs with the largest H(p),  p = E_q[sigma(-t)],  t = theta' w ~ N(m'w, w'Cw)

H(p) = -p log p - (1 - p) log(1 - p). Other scores are "bald", the information H(p) - E_q[H(sigma(-t))] that an answer
gives on theta, and "margin", -|m'w|.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from ....estimators.base import error_context
from ....numerics import checks, constraints
from ....numerics.types import AnyArray, Array, Ints, Seed
from .. import variational
from . import querying

STRATEGIES = ("entropy", "bald", "margin", "random")
SCORED_PAIRS = 1 << 14  # pairs scored at a time


def active_pairs(mean: Array, variance: Array, strategy: str = "entropy", nodes: int = 32, seed: Seed = None) -> Array:
    """Return scores of pairs whose log-odds t have this mean and variance; pairs with high scores are asked first."""
    if strategy == "random":
        return constraints.generator(seed).random(len(mean))
    if strategy == "margin":
        return -np.abs(mean)
    total = variational.entropy(variational.expected("probability", mean, variance, nodes))
    if strategy == "entropy":
        return total
    # the entropy that remains if theta were known is no reason to ask
    return total - variational.expected("entropy", mean, variance, nodes)


class ActivePairSelector(BaseEstimator):
    """Choose the pairs that you should label next for a Bayesian learner.

    Parameters
    ----------
    learner : BayesianPairMetric
        The learner to ask for, or any learner from pairs with a method ``log_odds(pairs, X)`` that returns mean and
        variance.
    strategy : {"entropy", "bald", "margin", "random"}
        Which pairs to prefer: those with the largest entropy of the predicted answer ("entropy"), those whose answer
        tells most about the parameters ("bald"), those with the smallest absolute mean of the log-odds ("margin"), or
        random ones.
    unique_points : bool
        Use every point in at most one pair of a selection, as uncertain pairs are often near copies of each other.
    nodes : int
        Number of nodes of the trapezoid rule for the one-dimensional integral over t. With 32, the error is below 1e-6.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws pairs.

    Attributes
    ----------
    learner_ : estimator
        The fitted learner, after `loop`.
    pairs_ : ndarray of shape (m, 2)
        Pairs that were asked about, in order, after `loop`.
    pair_labels_ : ndarray of shape (m,)
        Answers to `pairs_`.

    Notes
    -----
    Yang, Jin & Sukthankar, UAI 2007.

    The paper approximates the integral over theta by Laplace's method. The integrand depends on t only, so that an
    integral in one dimension is enough. Probabilities are those of the posterior, including negative weights.
    """

    def __init__(
        self,
        learner: Any,
        strategy: str = "entropy",
        *,
        unique_points: bool = False,
        nodes: int = 32,
        random_state: Any = None,
    ) -> None:
        self.learner = learner
        self.strategy = strategy
        self.unique_points = unique_points
        self.nodes = nodes
        self.random_state = random_state

    def select(self, pool: AnyArray, n: int = 1, X: AnyArray | None = None) -> tuple[Ints, Array]:
        """Return the positions in the pool of the best pairs, best first, and their scores. The learner must be fitted.

        Parameters
        ----------
        pool : array-like of shape (m, 2), or (m, 2, d)
            Pairs of row numbers of X, or pairs of points.
        n : int
            Number of pairs to select. With `unique_points`, fewer are returned if the pool has no more disjoint pairs.
        X : array-like of shape (q, d), optional
            Rows to which the numbers in the pool refer.

        Returns
        -------
        chosen : ndarray of shape (n,)
            Positions in the pool.
        scores : ndarray of shape (n,)
            Scores of the chosen pairs.
        """
        with error_context(self):
            pool = np.asarray(pool)
            self._check(n=n)
            if pool.ndim == 0 or len(pool) < n:
                raise ValueError(f"pool must hold at least n={n} pairs; got shape {pool.shape}")
            if self.unique_points and X is None:
                raise ValueError("unique_points=True requires a pool of row numbers together with X=; got no X")
            return self._best(self.learner, pool, n, X, constraints.generator(self.random_state))

    def _check(self, **counts: int) -> None:
        checks.one_of(STRATEGIES, strategy=self.strategy)
        checks.counts(1, nodes=self.nodes, **counts)

    def _best(self, learner: Any, pool: AnyArray, n: int, X: AnyArray | None, seed: Seed) -> tuple[Ints, Array]:
        """Return the positions of the n best pairs of the pool, and their scores."""
        parts = []
        for start in range(0, len(pool), SCORED_PAIRS):
            mean, variance = learner.log_odds(pool[start : start + SCORED_PAIRS], X)
            parts.append(active_pairs(mean, variance, strategy=self.strategy, nodes=self.nodes, seed=seed))
        scores = np.concatenate(parts)
        chosen = querying.best(scores, n, pool if self.unique_points else None)
        return chosen, scores[chosen]

    def candidates(self, X: AnyArray, n_random: int = 1000, n_neighbors: int = 5) -> Ints:
        """Return a pool of pairs: random ones, and each row with its nearest neighbors under the metric of the learner.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.
        n_random : int
            Number of random pairs.
        n_neighbors : int
            Number of nearest neighbors of each row.

        Returns
        -------
        ndarray of shape (m, 2)
            Pairs of row numbers, each once.
        """
        return querying.candidates(np.asarray(self.learner.transform(X)), n_random, n_neighbors, self.random_state)

    def loop(
        self,
        X: AnyArray,
        pool: AnyArray,
        oracle: Callable[[AnyArray], AnyArray],
        *,
        rounds: int = 10,
        batch_size: int = 10,
        callback: Callable[[int, Any], None] | None = None,
    ) -> Any:
        """Ask about pairs, refit, and repeat; random pairs are asked about until both answers have occurred.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.
        pool : array-like of shape (m, 2)
            Pairs of row numbers of X to choose from.
        oracle : callable
            Function from pairs of shape (batch_size, 2) to answers: +1 for similar, -1 for dissimilar.
        rounds : int
            Maximum number of rounds; the loop also ends when the pool is empty.
        batch_size : int
            Number of pairs to ask about in each round.
        callback : callable, optional
            Called with the number of answers and the learner after each refit.

        Returns
        -------
        estimator
            A clone of `learner`, fitted to all answers if both kinds have occurred.
        """
        with error_context(self):
            self._check(rounds=rounds, batch_size=batch_size)
            rng = constraints.generator(self.random_state)
            pool = constraints.check_indices(pool, 2, len(X), "pool")
        self.learner_ = clone(self.learner).set_params(warm_start=True)
        order = rng.permutation(len(pool))
        self.pairs_ = pool[:0]
        self.pair_labels_ = np.zeros(0, dtype=int)
        while rounds > 0 and len(order):
            rounds -= 1
            n = min(batch_size, len(order))
            # a learner needs both answers before it can score pairs
            both = len(np.unique(self.pair_labels_)) == 2
            if both:
                chosen = self._best(self.learner_, pool[order], n, X, rng)[0]
            else:
                chosen = np.arange(n)
            queried = pool[order[chosen]]
            order = np.delete(order, chosen)
            answers = querying.answers(oracle, queried)
            self.pairs_ = np.r_[self.pairs_, queried]
            self.pair_labels_ = np.r_[self.pair_labels_, answers]
            if len(np.unique(self.pair_labels_)) == 2:
                self.learner_.fit(X, pairs=self.pairs_, pair_labels=self.pair_labels_)
                if callback is not None:
                    callback(len(self.pairs_), self.learner_)
        return self.learner_
