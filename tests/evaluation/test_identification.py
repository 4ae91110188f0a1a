"""Open-set identification: equal to plain loops over queries and thresholds."""

import json

import numpy as np
import pytest

from nearfar.evaluation import identify, recall_at_k
from tests.references import evaluation as plain

KS = (0.3, 0.1, 0.02)
rng = np.random.default_rng(0)
Y = np.repeat(np.arange(30), 4)
X = rng.normal(size=(30, 5))[Y] + 0.6 * rng.normal(size=(120, 5))
CAMERAS = rng.integers(3, size=120)
QUERY = (np.arange(120) % 4 < 2) | (Y >= 24)  # six classes are not enrolled
QUERY &= Y >= 3  # and three are enrolled only


def by_loops(x, labels, gallery, gallery_labels, distance, alone, kinds=None):
    """(rank 1, TPIR by FPIR): every threshold is tried."""
    found = plain.rankings(x, gallery, distance, alone, kinds)
    known, unknown = [], []
    for i, order in enumerate(found):
        near = plain.nearness(x[i], gallery[order[0]], distance)
        if labels[i] in [gallery_labels[j] for j in order]:
            known.append((near, gallery_labels[order[0]] == labels[i]))
        else:
            unknown.append(near)
    rates = {}
    for rate in KS:
        rates[rate] = 0.0
        for t in sorted({near for near, _ in known}):
            if sum(near >= t for near in unknown) / len(unknown) <= rate:
                share = sum(right and near >= t for near, right in known) / len(known)
                rates[rate] = max(rates[rate], share)
    return sum(right for _, right in known) / len(known), rates, len(known), len(unknown)


@pytest.mark.parametrize("distance", ["cosine", "euclidean", "sqeuclidean"])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_scores_are_those_of_plain_loops(distance, grouped, alone):
    query = np.arange(120) % 4 < np.where(Y < 10, 1, 4) if alone else QUERY  # ten classes of one item
    gallery = query if alone else ~QUERY
    kinds, told = None, {}
    if not alone:
        told |= {"gallery": X[gallery], "gallery_labels": Y[gallery]}
    if grouped:
        kinds = [[*zip(Y[rows], CAMERAS[rows], strict=True)] for rows in (query, gallery)]
        told |= {"groups": CAMERAS[query]} | ({} if alone else {"gallery_groups": CAMERAS[gallery]})
    found = identify(X[query], Y[query], distance=distance, fars=KS, **told)
    rank_1, rates, known, unknown = by_loops(X[query], Y[query], X[gallery], Y[gallery], distance, alone, kinds)
    assert (found.n_known, found.n_unknown) == (known, unknown)
    assert found.rank_1 == pytest.approx(rank_1)
    assert found.rank_1 == pytest.approx(recall_at_k(X[query], Y[query], distance=distance, **told))
    assert found.tpir_at == pytest.approx(rates)
    assert 0 < found.tpir_at[0.1] < found.rank_1


def test_the_threshold_keeps_what_it_says():
    found = identify(X[QUERY], Y[QUERY], gallery=X[~QUERY], gallery_labels=Y[~QUERY], fars=KS, distance="euclidean")
    d = np.linalg.norm(X[QUERY][:, None] - X[~QUERY], axis=2)
    known, answer = np.isin(Y[QUERY], Y[~QUERY]), Y[~QUERY][d.argmin(axis=1)]
    for rate in (0.3, 0.1):
        within = d.min(axis=1) <= found.threshold_at[rate]
        assert within[~known].mean() <= rate
        assert (within & (answer == Y[QUERY]))[known].mean() == pytest.approx(found.tpir_at[rate])


def test_plain_data_and_text():
    found = identify(X[QUERY], Y[QUERY], gallery=X[~QUERY], gallery_labels=Y[~QUERY], fars=(0.1, 0.001))
    assert json.loads(json.dumps(found.to_dict()))["tpir_at"]["0.1"] == found.tpir_at[0.1]
    lines = str(found).splitlines()
    assert lines[1].split() == ["Rank", "1", f"{found.rank_1:.4f}"]
    assert lines[2].split()[-2:] == [f"{found.tpir_at[0.1]:.4f}", f"{found.threshold_at[0.1]:.4g}"]
    assert lines[4] == "42 queries of classes in the gallery, 24 of others, each searching 54 items; cosine distance"
    assert lines[5] == "at FPIR 0.001, no unknown query may be named: 24 are too few to measure it"


def test_a_stranger_whose_nearest_is_a_copy_leaves_no_threshold():
    found = identify([[1.0, 0], [0, 1]], ["a", "x"], gallery=[[1.0, 0.1], [0, 1]], gallery_labels=["a", "b"])
    assert found.tpir_at[0.1] == 0
    assert found.threshold_at[0.1] is None

    assert [line.split()[-1] for line in str(found).splitlines()[2:4]] == ["0.0000", "0.0000"]


def test_a_rate_that_one_stranger_meets_is_not_called_rare():
    strangers = np.column_stack([np.ones(49), np.arange(1, 50)])
    rows, labels = np.vstack([[[1.0, 0.0]], strangers]), ["a"] + ["x"] * 49
    found = identify(rows, labels, gallery=[[1.0, 0.0]], gallery_labels=["a"], fars=[1 / 49])
    assert found.threshold_at[1 / 49] == pytest.approx(1 - 0.5**0.5)  # one of them is named: 1 / 49 * 49 < 1 in floats
    assert str(found).splitlines()[-1].endswith("cosine distance")


def test_rounding_separates_no_ties_of_cosines_and_joins_no_other_distances():
    draws = np.random.default_rng(3).normal(size=(60, 2, 5))
    for row, item in draws:
        found = identify([row, 3 * row], ["a", "x"], gallery=[item], gallery_labels=["a"])
        assert found.tpir_at[0.1] == 0
    told = {"gallery": [[0.0]], "gallery_labels": ["a"], "distance": "euclidean"}
    assert identify([[1e-15], [2e-15]], ["a", "x"], **told).tpir_at[0.1] == 1


def test_thresholds_reach_beyond_the_last_right_answer():
    told = {"gallery": [[0.0]], "gallery_labels": ["a"], "distance": "euclidean", "fars": 0.5}
    found = identify([[1.0], [2.0], [3.0]], ["a", "x", "y"], **told)
    assert (found.tpir_at[0.5], found.threshold_at[0.5]) == (1, 2)


def test_each_of_the_items_alone_searches_the_others():
    assert identify([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]], ["a", "a", "b"]).n_gallery == 2


def test_who_has_nothing_left_to_find_is_not_named():
    told = {"gallery": [[1.0, 0.0]], "gallery_labels": ["a"], "gallery_groups": [0]}
    found = identify([[1.0, 0.0], [1.0, 0.2]], ["a", "a"], groups=[0, 1], **told)
    assert (found.n_known, found.n_unknown, found.rank_1, found.tpir_at[0.1]) == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: identify(X, Y), r"none of the 120 is of a class that is not in the gallery"),
        (lambda: identify(X, np.arange(120)), r"none of the 120 is of a class in the gallery"),
        (lambda: identify(X, Y, fars=1.5), r"^fars: expected rates between 0 and 1"),
        (lambda: identify(X, Y, groups=[1]), r"^groups: expected 120 groups"),
        (lambda: identify(X, Y, distance="taxi"), r"^distance: expected one of"),
        (lambda: identify(X, Y, gallery=X), r"^gallery: expected gallery and gallery_labels together"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
