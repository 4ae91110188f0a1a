"""Which pairs should you ask a person about?
==========================================

    python examples/active_pairs.py [FIGURE.png]

Labels cost time, so ask only about pairs that teach something. Here an oracle answers whether two points are similar,
by a metric on two of six directions, and errs near its threshold. A Bayesian metric is refitted after every ten
answers. The next pairs are drawn at random ("random"), or are those with the least certain answers ("entropy"), or
those that promise to tell most about the metric ("bald"). The table shows how often the decision of the learner on
other pairs is the better bet, as the mean over 12 repetitions.

Choosing pays off late: up to 30 answers, random pairs are as good or better, and "bald" is below them up to 40. After
70 answers, the chosen pairs are two points ahead ("bald": three). The script takes a few seconds. With a file name, it
also draws a figure (this needs matplotlib).
"""

import sys

import numpy as np
from scipy.special import expit

from nearfar import ActivePairSelector, BayesianPairMetric
from nearfar.probabilistic.bayesian import weighted_directions

STRATEGIES = ("random", "entropy", "bald")
WEIGHTS = np.array([0.0, 40.0, 0.0, 60.0, 0.0, 0.0])


def world(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Points, all pairs of them in random order, the probability that each is similar, and an answer for each."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(100, 6)) * np.linspace(1.5, 0.6, 6)
    Z = X @ weighted_directions.unit_principal(X, 6)
    pairs = rng.permutation(np.stack(np.triu_indices(100, 1), axis=1))
    d2 = (Z[pairs[:, 0]] - Z[pairs[:, 1]]) ** 2 @ WEIGHTS
    p = expit(np.quantile(d2, 0.35) - d2)
    return X, pairs, p, np.where(rng.random(len(p)) < p, 1, -1)


def curve(strategy: str, seed: int, rounds: int = 7) -> list[float]:
    """Share of right bets after 10, 20, ... answers (nan while all answers were alike)."""
    X, pairs, p, answers = world(seed)
    book = np.zeros((100, 100), dtype=int)
    book[tuple(pairs.T)] = answers
    pool, test, truth = pairs[:1500], pairs[1500:], p[1500:] > 0.5
    scores: dict[int, float] = {}

    def note(asked: int, learner: BayesianPairMetric) -> None:
        scores[asked] = float(np.mean((learner.pair_probability(test, X) > 0.5) == truth))

    selector = ActivePairSelector(BayesianPairMetric(prior_precision=0.02), strategy, random_state=seed)
    selector.loop(X, pool, lambda asked: book[tuple(asked.T)], rounds=rounds, batch_size=10, callback=note)
    return [scores.get(10 * k, np.nan) for k in range(1, rounds + 1)]


def curves(repetitions: int = 12) -> dict[str, np.ndarray]:
    """The mean curve of every strategy."""
    return {name: np.nanmean([curve(name, seed) for seed in range(repetitions)], axis=0) for name in STRATEGIES}


def main() -> None:
    found = curves()
    print("answers " + "".join(f"{10 * k:8}" for k in range(1, 8)))
    for name, values in found.items():
        print(f"{name:8}" + "".join(f"{value:8.3f}" for value in values))
    if len(sys.argv) > 1:
        draw(found, sys.argv[1])


def draw(found: dict[str, np.ndarray], path: str) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("matplotlib is not installed: no figure")
        return
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    for name, values in found.items():
        axes.plot(10 * np.arange(1, len(values) + 1), values, "o-", label=name)
    axes.set(xlabel="answers", ylabel="right bets on other pairs")
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
