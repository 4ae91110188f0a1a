"""Thresholds against trying every one."""

import numpy as np
import pytest

from nearfar.estimators import thresholds

rng = np.random.default_rng(0)


def rates(distance, similar, t):
    said = distance <= t
    tp, fp = (said & similar).sum(), (said & ~similar).sum()
    fn, tn = (~said & similar).sum(), (~said & ~similar).sum()
    return tp, fp, fn, tn


def value(distance, similar, t, strategy, min_rate, beta):
    tp, fp, fn, tn = rates(distance, similar, t)
    if strategy == "accuracy":
        return (tp + tn) / len(distance)
    if strategy == "balanced":
        return (tp / (tp + fn) + tn / (tn + fp)) / 2
    if strategy == "f_beta":
        return (1 + beta**2) * tp / ((1 + beta**2) * tp + beta**2 * fn + fp)
    tpr, tnr = tp / (tp + fn), tn / (tn + fp)
    found, kept = (tpr, tnr) if strategy == "max_tpr" else (tnr, tpr)
    return found if kept >= min_rate else -1


@pytest.mark.parametrize("strategy", thresholds.STRATEGIES)
@pytest.mark.parametrize("ties", [False, True])
def test_no_other_threshold_is_better(strategy, ties):
    for _ in range(20):
        similar = rng.random(30) < 0.4
        similar[:2] = True, False
        distance = rng.normal(size=30) + ~similar + 5
        distance = np.round(distance) if ties else distance
        t = thresholds.calibrate(distance, similar, strategy, 0.7, beta=2.0)
        best = max(value(distance, similar, u, strategy, 0.7, 2.0) for u in [*distance, distance.min() - 1])
        assert value(distance, similar, t, strategy, 0.7, 2.0) == pytest.approx(best)


@pytest.mark.parametrize("strategy", thresholds.STRATEGIES)
def test_a_weight_counts_as_so_many_pairs(strategy):
    for _ in range(20):
        similar, weight = rng.random(30) < 0.4, rng.integers(0, 4, 30)
        similar[:2], weight[:2] = (True, False), 1
        distance = np.round(rng.normal(size=30) + ~similar + 5, 1)
        often = thresholds.calibrate(distance.repeat(weight), similar.repeat(weight), strategy, 0.7)
        assert thresholds.calibrate(distance, similar, strategy, 0.7, weight=weight.astype(float)) == often


@pytest.mark.parametrize("strategy", thresholds.STRATEGIES)
@pytest.mark.parametrize("weight", [0.1, 1e-200, 1e308])
def test_equal_weights_do_not_matter(strategy, weight):
    for _ in range(50):
        distance, similar = np.round(rng.random(20), 1), np.append(rng.random(18) < 0.5, [True, False])
        plain = thresholds.calibrate(distance, similar, strategy, 0.7)
        assert thresholds.calibrate(distance, similar, strategy, 0.7, weight=np.full(20, weight)) == plain


def test_nothing_is_accepted_where_that_is_best():
    assert thresholds.calibrate(np.array([1.0, 2.0]), np.array([False, True])) < 1
    assert thresholds.calibrate(np.array([1.0, 1.0, 2.0]), np.array([False, True, False]), "max_tnr", 0.0) < 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("near", [1.0, 1.5, 3.0])
def test_neighboring_numbers_are_told_apart(dtype, near):
    steps = [dtype(near)]
    for _ in range(4):
        steps.append(np.nextafter(steps[-1], dtype(np.inf)))
    distance = np.array(steps, dtype)
    for k in range(1, 5):
        similar = np.arange(5) < k
        t = thresholds.calibrate(distance, similar)
        assert ((distance <= t) == similar).all()
    assert not (distance <= thresholds.calibrate(distance, np.arange(5) == 4)).any()


def test_the_largest_numbers_have_a_middle():
    assert thresholds.calibrate(np.array([1.0e308, 1.6e308]), np.array([True, False])) == pytest.approx(1.3e308)


@pytest.mark.parametrize("strategy", ["max_tpr", "max_tnr"])
def test_a_rate_met_exactly_is_met(strategy):
    distance = np.arange(20.0)
    for k in range(1, 10):
        found = np.isin(np.arange(20), range(0, 20, 2))
        similar = found if strategy == "max_tpr" else ~found[::-1]
        t = thresholds.calibrate(distance, similar, strategy, k / 10)
        tp, fp, fn, tn = rates(distance, similar, t)
        assert (tn / (tn + fp) if strategy == "max_tpr" else tp / (tp + fn)) == k / 10


def test_precision_alone_accepts_the_nearest():
    assert thresholds.calibrate(np.array([1.0, 2.0, 3.0]), np.array([True, True, False]), "f_beta", beta=0.0) == 1.5


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 3.0])
def test_f_scores_are_those_of_the_counts(beta):
    similar = np.array([True, False, True, True, False, False, True])
    found = thresholds.scores(np.r_[0, np.cumsum(similar)], np.r_[0, np.cumsum(~similar)], "f_beta", 0.0, beta)
    distance = np.arange(7.0)
    assert found[0] == 0
    assert found[1:] == pytest.approx([value(distance, similar, t, "f_beta", 0.0, beta) for t in distance])


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (([1.0, 2.0], [True, True]), "both"),
        (([1.0, 2.0], [True, False], "best"), "strategy must be one of"),
        (([1.0, 2.0], [True, False], "max_tpr"), "min_rate"),
        (([1.0, 2.0], [True, False], "max_tnr", 1.5), "min_rate"),
        (([1.0, 2.0], [True, False], "f_beta", None, np.nan), "beta must be a finite number >= 0"),
        (([1.0, 2.0], [True, False], "f_beta", None, -1.0), "beta must be a finite number >= 0"),
    ],
)
def test_bad_calls(arguments, word):
    distance, similar, *rest = arguments
    with pytest.raises(ValueError, match=word):
        thresholds.calibrate(np.array(distance), np.array(similar), *rest)
