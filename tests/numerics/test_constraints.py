"""Drawing pairs, triplets and chunklets; checking those that users give."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from nearfar.numerics import checks, constraints
from nearfar.numerics.constraints import LabelPairs, Pairs

label_lists = st.lists(st.integers(-1, 4), min_size=4, max_size=30).filter(
    lambda y: len(set(y) - {-1}) >= 2 and max(y.count(c) for c in set(y) - {-1}) >= 2
)


def codes(y):
    return checks.encode(np.array(y))[1]


def every(y, same):
    n = len(y)
    return {(i, j) for i in range(n) for j in range(i + 1, n) if min(y[i], y[j]) >= 0 and (y[i] == y[j]) == same}


@settings(max_examples=60, deadline=None)
@given(label_lists, st.integers(1, 40), st.integers(0, 5))
def test_drawn_pairs_are_distinct_right_and_as_many_as_there_are(y, n, seed):
    labels = codes(y)
    pairs = constraints.pairs_from_labels(labels, n, seed)
    for kind in (True, False):
        part = pairs.part(kind)
        drawn = {tuple(sorted(p)) for p in zip(part.i.tolist(), part.j.tolist(), strict=True)}
        truth = every(labels, kind)
        assert drawn <= truth
        assert len(drawn) == len(part.i) == min(n, len(truth))


def test_drawing_is_seeded_and_every_pair_is_reachable():
    labels = np.repeat([0, 1, 2], [4, 3, 2])
    same = [constraints.pairs_from_labels(labels, 3, seed) for seed in (1, 1, 2)]
    assert_array_equal(same[0].i, same[1].i)
    assert (same[0].i != same[2].i).any()
    seen = set()
    for seed in range(300):
        p = constraints.pairs_from_labels(labels, 2, seed)
        seen |= {tuple(sorted(q)) for q in zip(p.i.tolist(), p.j.tolist(), strict=True)}
    assert seen == every(labels, True) | every(labels, False)


def test_few_of_very_many_pairs():
    labels = np.arange(200_000) % 3
    pairs = constraints.pairs_from_labels(labels, 50, 0)
    assert_array_equal(labels[pairs.i] == labels[pairs.j], pairs.similar)
    assert len(np.unique(np.sort(np.stack([pairs.i, pairs.j], 1), axis=1), axis=0)) == 100


def test_default_number_of_pairs():
    labels = np.arange(900) % 3
    assert len(constraints.pairs_from_labels(labels, None, 0).i) == 2 * 20 * 9


def test_default_number_of_pairs_of_many_classes():
    labels = np.arange(40_000) % 400  # 20 c^2 = 3.2 million of either kind, of which 1.98 million are similar pairs
    pairs = constraints.pairs_from_labels(labels, None, 0)
    assert pairs.similar.sum() == (~pairs.similar).sum() == constraints.MAX_DEFAULT_PAIRS
    asked = constraints.pairs_from_labels(labels, 600_000, 0)  # a number that was asked for is kept
    assert asked.similar.sum() == (~asked.similar).sum() == 600_000


def test_cap_leaves_smaller_defaults_alone():
    classes = int(np.sqrt(constraints.MAX_DEFAULT_PAIRS / 20))  # most classes whose 20 c^2 pairs are below the cap
    labels = np.arange(100 * classes) % classes
    default, asked = (constraints.pairs_from_labels(labels, n, 0) for n in (None, 20 * classes**2))
    assert_array_equal(default.i, asked.i)
    assert_array_equal(default.j, asked.j)


def test_written_out():
    labels = np.array([0, 1, 0, -1, 1])
    pairs = constraints.written_out(LabelPairs(labels))
    assert len(pairs.i) == 6
    assert pairs.similar.sum() == 2
    assert constraints.written_out(pairs) is pairs


def test_objects_are_numbered_and_minus_one_stays_unknown():
    y = np.array(["owl", -1, "cat", "owl"], dtype=object)
    assert checks.numbered(y, -1).tolist() == [0, -1, 1, 0]
    for plain in (y.tolist(), tuple(y), [b"owl", -1, b"cat", b"owl"], ["owl", np.int64(-1), "cat", "owl"]):
        assert checks.numbered(plain, -1).tolist() == [0, -1, 1, 0]
    given = np.array([3, -1, 3])
    assert checks.numbered(given) is given


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["owl", None, float("nan")], "y: 2 of 3 labels are missing"),
        (["owl", 3, -1], "labels of one type; got int, str"),
    ],
)
def test_objects_that_are_no_labels(labels, message):
    with pytest.raises(ValueError, match=message):
        checks.numbered(np.array(labels, dtype=object))


def test_the_missing_label_of_tables():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="y: 1 of 2 labels are missing"):
        checks.numbered(pandas.Series(["owl", pandas.NA], dtype="string"))
    with pytest.raises(ValueError, match="y: 1 of 2 labels are missing"):
        checks.numbered(pandas.Series([1, pandas.NA], dtype="Int64"))


def test_numbers_that_are_missing_are_told_how_unknown_labels_are_written():
    with pytest.raises(ValueError, match="y: 1 of 3 labels are missing; replace them by another value, such as -1"):
        checks.numbered(np.array([0.0, np.nan, 1.0]))


def test_codes_do_not_depend_on_names_and_keep_unknown():
    names, y = checks.encode(np.array([7, -1, 3, 7, 5]), -1)
    assert_array_equal(y, [0, -1, 1, 0, 2])
    assert_array_equal(names, [7, 3, 5])
    assert_array_equal(checks.encode(np.array(["b", "-1", "a", "b"]), -1)[1], [0, 1, 2, 0])


@pytest.mark.parametrize("size", [2, 3])
def test_chunklets_are_of_one_class_and_reach_every_class(size):
    labels = np.repeat([0, 1, 2, -1], 20)
    chunklets = constraints.chunklets_from_labels(labels, 9, size, 0)
    assert_array_equal(np.bincount(chunklets[chunklets >= 0]), np.full(9, size))
    for c in range(9):
        assert len(set(labels[chunklets == c])) == 1
    assert (chunklets[labels < 0] == -1).all()
    seen = set()
    for seed in range(20):
        seen |= set(labels[constraints.chunklets_from_labels(labels, 3, size, seed) >= 0])
    assert seen == {0, 1, 2}
    assert constraints.chunklets_from_labels(labels, 1000, size, 0).max() + 1 == 3 * (20 // size)


def test_closure_of_must_links():
    pairs = constraints.check_pairs([[0, 1], [1, 2], [3, 4], [0, 3]], [1, 1, 1, -1], None, 7)
    chunklets, apart = constraints.close(pairs, 7)
    assert chunklets[0] == chunklets[1] == chunklets[2] != chunklets[3] == chunklets[4]
    assert_array_equal(chunklets[5:], -1)
    assert_array_equal(apart, [[False, True], [True, False]])
    torn = constraints.check_pairs([[0, 1], [1, 2], [0, 2]], [1, 1, -1], None, 3)
    with pytest.raises(ValueError, match=r"chains of similar pairs join the dissimilar pairs \[\[0, 2\]\]"):
        constraints.close(torn, 3)


def test_repeated_pairs_are_merged_and_their_weights_add():
    with pytest.warns(UserWarning, match="^1 of 3 pairs repeat others"):
        pairs = constraints.check_pairs([[1, 0], [2, 3], [0, 1]], [1, -1, 1], [1.0, 2.0, 3.0], 4)
    assert isinstance(pairs, Pairs)
    assert_array_equal(pairs.i, [0, 2])
    assert_array_equal(pairs.j, [1, 3])
    assert_array_equal(pairs.sign, [1, -1])
    assert_array_equal(pairs.weight, [4, 2])


def test_pairs_of_no_weight_are_left_out():
    with pytest.warns(UserWarning, match="^1 of 4 pairs repeat others"):
        pairs = constraints.check_pairs([[2, 3], [0, 1], [3, 2], [0, 2]], [-1, 1, -1, 1], [0.0, 5.0, 0.0, 0.0], 4)
    assert_array_equal([*pairs.i, *pairs.j, *pairs.weight], [0, 1, 5])


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (([[0, 1, 2]], None, None), r"shape \(m, 2\)"),
        (([], None, None), r"shape \(0,\)"),
        (([[0.0, 1.0]], None, None), "integer"),
        (([[0, 9]], None, None), "row numbers 0..3"),
        (([[0, -1]], None, None), "row numbers 0..3"),
        (([[2, 2]], None, None), "itself"),
        (([[0, 1]], [2], None), "pair_labels must be"),
        (([[0, 1]], [1, 1], None), "one entry per pair"),
        (([[0, 1]], [1], [-1.0]), "pair_weights must be"),
        (([[0, 1]], [1], [np.nan]), "pair_weights must be"),
        (([[0, 1]], [1], ["a"]), "pair_weights must be"),
        (([[0, 1], [1, 0]], [1, -1], None), r"must give each pair one label; got both .* \[\[0, 1\]\]"),
    ],
)
def test_bad_pairs(arguments, word):
    with pytest.raises(ValueError, match=word):
        constraints.check_pairs(*arguments, 4)


@pytest.mark.parametrize("twice", [[1, 1, 2], [1, 2, 1], [2, 1, 1]])
def test_a_triplet_has_three_different_rows(twice):
    with pytest.raises(ValueError, match=r"triplets must join different rows; triplets\[1\] joins a row with itself"):
        constraints.check_indices([[0, 1, 2], twice], 3, 4, "triplets")


def test_chunklet_numbers_and_links():
    chunklets, apart = constraints.check_chunklets([5, 5, -1, 2, 2, 9], [[2, 5]], 6)
    assert_array_equal(chunklets, [0, 0, -1, 1, 1, 2])
    assert_array_equal(np.argwhere(apart), [[0, 1], [1, 0]])
    assert_array_equal(constraints.check_chunklets([0, 0, 1], None, 3)[1], [[False, True], [True, False]])
    for bad, word in (([0, 0], "chunklets must be 3"), ([-1, -1, -1], "at least one"), (["a", "b", "c"], "integers")):
        with pytest.raises(ValueError, match=word):
            constraints.check_chunklets(bad, None, 3)
    for links in ([[0, 4]], [[1, 1]], [0, 1], [[0, 1, 1]]):
        with pytest.raises(ValueError, match="negative_links"):
            constraints.check_chunklets([0, 0, 1], links, 3)
    some = constraints.check_chunklets([5, 5, -1, 2, 2, 9], [[2, 5], [5, 7], [8, 7]], 6, partly=True)
    assert_array_equal(some[1], apart)
    with pytest.raises(ValueError, match="negative_links"):
        constraints.check_chunklets([0, 0, 1], [[0, 4]], 3, partly=True)


def test_a_state_of_numpy_is_a_seed_and_goes_on():
    first, again, other = (constraints.generator(np.random.RandomState(seed)).random(3) for seed in (0, 0, 1))
    assert_array_equal(again, first)
    assert (other != first).all()
    state = np.random.RandomState(0)
    assert (constraints.generator(state).random(3) != constraints.generator(state).random(3)).all()


def test_settings_out_of_range_are_named():
    for call, word in (
        (lambda: checks.at_least(0, reg=-1.0), "reg must be .* >= 0; got -1.0"),
        (lambda: checks.above(0, alpha=0.0), "alpha must be .* > 0"),
        (lambda: checks.between(0, 1, t=2), r"t must be in \[0, 1\]"),
        (lambda: checks.one_of(("a", "b"), solver="c"), "solver must be one of 'a', 'b'; got 'c'"),
        (lambda: checks.at_least(0, reg=np.nan), "finite"),
        (lambda: checks.at_least(0, reg="small"), "reg must be .* got 'small'"),
        (lambda: checks.at_least(0, reg=True), "reg must be .* got True"),
        (lambda: checks.counts(1, k=True), "k must be an integer >= 1; got True"),
        (lambda: checks.share(("auto",), shrinkage=1.5), r"shrinkage must be in \[0, 1\] or 'auto'; got 1.5"),
        (lambda: checks.share(("auto",), shrinkage=-0.5), "shrinkage must be .* got -0.5"),
        (lambda: checks.share(("auto",), shrinkage="oas"), "shrinkage must be .* got 'oas'"),
        (lambda: checks.one_of(("a", "b"), init=np.eye(2)), "init must be one of"),
        (lambda: constraints.generator("seed"), "random_state must be .* got 'seed'"),
        (lambda: constraints.generator(-1), "random_state must be .* got -1"),
    ):
        with pytest.raises(ValueError, match=word):
            call()
