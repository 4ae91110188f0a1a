"""Verification scores equal those of scikit-learn over all pairs, listed one by one."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import roc_auc_score, roc_curve

from nearfar.evaluation import verification, verify, verify_distances, verify_pairs
from nearfar.numerics.distances import DISTANCES, pair_distances

rng = np.random.default_rng(0)
LABELS = np.repeat(np.arange(20), 9)
X = rng.normal(size=(20, 6))[LABELS] + 0.8 * rng.normal(size=(180, 6))
I, J = np.triu_indices(len(X), 1)
SAME = LABELS[I] == LABELS[J]


@pytest.mark.parametrize("distance", DISTANCES)
def test_scores_are_those_of_the_list_of_all_pairs(distance):
    d = pair_distances(X, X, I, J, distance)
    far, tar, _ = roc_curve(SAME, -d, drop_intermediate=False)
    for found, off in ((verify(X, LABELS, distance=distance), 1e-5), (listed(X, distance), 1e-12)):
        assert_allclose(found.auc, roc_auc_score(SAME, -d), atol=off)
        assert_allclose(found.eer, np.interp(0, far + tar - 1, far), atol=off)
        assert_allclose(found.accuracy, (1 + np.max(tar - far)) / 2, atol=off)
        for rate in (0.1, 0.01, 0.001):
            assert_allclose(found.tar_at[rate], tar[far <= rate].max(), atol=off)
            within = d <= found.threshold_at[rate]
            assert_allclose(within[SAME].mean(), found.tar_at[rate], atol=off)
            assert within[~SAME].mean() <= rate
        within = d <= found.threshold
        assert_allclose((within[SAME].mean() + 1 - within[~SAME].mean()) / 2, found.accuracy, atol=off)
        curve = [tar[far <= rate * (1 + 1e-12)].max() for rate in found.curve[0]]
        assert_allclose(found.curve[1], curve, atol=off if off < 1e-9 else 2 / SAME.sum())
        assert (found.n_similar, found.n_dissimilar) == (SAME.sum(), (~SAME).sum())


def listed(rows, distance="cosine", **settings):
    return verify_pairs(rows, np.c_[I, J], SAME, distance=distance, **settings)


@pytest.mark.parametrize("distance", DISTANCES)
def test_queries_meet_a_gallery(distance):
    found = verify(X[:60], LABELS[:60], gallery=X[60:], gallery_labels=LABELS[60:] % 7, distance=distance)
    i, j = (axis.ravel() for axis in np.indices((60, 120)))
    pairs = verify_pairs(X, np.c_[i, j + 60], LABELS[i] == LABELS[j + 60] % 7, distance=distance)
    assert_allclose(found.auc, pairs.auc, atol=1e-5)
    assert_allclose(found.eer, pairs.eer, atol=1e-5)
    assert (found.n_similar, found.n_dissimilar) == (pairs.n_similar, pairs.n_dissimilar)


CAMERAS = rng.integers(4, size=len(X))


def pairs_of_cameras(gallery=None):
    """Pairs of row numbers, same or not, one by one: those of one class in one camera are none."""
    pairs, same = [], []
    for i in range(len(X) if gallery is None else gallery):
        for j in range(i + 1 if gallery is None else gallery, len(X)):
            if LABELS[i] != LABELS[j] or CAMERAS[i] != CAMERAS[j]:
                pairs.append((i, j))
                same.append(LABELS[i] == LABELS[j])
    return pairs, same


@pytest.mark.parametrize("gallery", [None, 60])
@pytest.mark.parametrize("most", [20_000, 50])
def test_pairs_of_one_class_in_one_group_do_not_count(gallery, most, monkeypatch):
    monkeypatch.setattr(verification, "VERIFICATION_BLOCK_CELLS", 700)
    told = {"groups": CAMERAS[:gallery]}
    if gallery:
        told |= {"gallery": X[gallery:], "gallery_labels": LABELS[gallery:], "gallery_groups": CAMERAS[gallery:]}
    found = verify(X[:gallery], LABELS[:gallery], most=most, **told)
    expected = verify_pairs(X, *pairs_of_cameras(gallery))
    assert found.grouped
    assert not expected.grouped
    if most > 60:
        assert (found.n_similar, found.n_dissimilar) == (expected.n_similar, expected.n_dissimilar)
        assert_allclose((found.auc, found.eer), (expected.auc, expected.eer), atol=1e-5)
    else:  # each drawn item meets all others, so that a pair of two drawn ones counts twice
        rows = np.sort(np.random.default_rng(0).choice(gallery or len(X), most, replace=False))
        others = np.arange(gallery or 0, len(X))
        kept = [(i, j) for i in rows for j in others if (LABELS[i], CAMERAS[i]) != (LABELS[j], CAMERAS[j])]
        assert found.n_similar == sum(LABELS[i] == LABELS[j] for i, j in kept)
        assert found.n_similar + found.n_dissimilar == len(kept)
    assert f"{found.n_similar:,} pairs of one class in two groups, {found.n_dissimilar:,} of two classes;" in str(found)
    alone = verify(X[:gallery], LABELS[:gallery], most=most, **told | {"groups": np.arange(len(X))[:gallery]})
    assert alone.n_similar > found.n_similar


@pytest.mark.slow
def test_blocks_do_not_matter_and_a_draw_is_close(monkeypatch):
    whole = verify(X, LABELS)
    monkeypatch.setattr(verification, "VERIFICATION_BLOCK_CELLS", 700)
    assert verify(X, LABELS) == whole
    drawn = verify(X, LABELS, most=120, seed=1)
    assert drawn == verify(X, LABELS, most=120, seed=1)
    assert drawn != verify(X, LABELS, most=120, seed=2)
    assert drawn.n_similar == 120 * 8
    assert_allclose(drawn.auc, whole.auc, atol=0.02)


def test_perfect_reversed_and_equal_distances():
    rows = np.array([[0.0], [0.1], [5.0], [5.2]])
    right = verify(rows, [0, 0, 1, 1], distance="euclidean")
    assert (right.auc, right.eer, right.accuracy, right.tar_at[0.001]) == (1, 0, 1, 1)
    assert 0.2 <= right.threshold < 4.9
    wrong = verify(rows, [0, 1, 0, 1], distance="euclidean")
    assert wrong.auc < 0.5
    assert wrong.tar_at[0.01] == 0
    for distance in DISTANCES:
        flat = verify(np.ones((4, 2)), [0, 0, 1, 1], distance=distance)
        assert (flat.auc, flat.eer, flat.tar_at[0.1]) == (0.5, 0.5, 0)
        assert flat.threshold_at[0.1] is None


def test_the_first_threshold_alone_may_be_all_that_a_rate_allows():
    rows = np.array([[0.0], [1.0], [3.0]])
    found = verify_pairs(rows, [[0, 1], [1, 2], [0, 2]], [1, 0, 1], fars=(0.5, 0.1), distance="euclidean")
    assert found.tar_at == {0.5: 0.5, 0.1: 0.5}
    assert found.threshold_at == {0.5: 1.0, 0.1: 1.0}


def test_given_distances_have_the_scores_of_the_pairs():
    d = np.linalg.norm(X[I] - X[J], axis=1)
    folds = np.arange(len(I)) % 3
    found = verify_distances(d, SAME, folds=folds, fars=(0.2, 0.05))
    expected = verify_pairs(X, np.c_[I, J], SAME, folds=folds, fars=(0.2, 0.05), distance="euclidean").to_dict()
    assert {**found.to_dict(), "distance": "euclidean"} == {**expected, "distance": "euclidean"}
    similar = verify_distances(-100 / d, np.where(SAME, 1, -1), fars=0.05)  # negatives of similarities
    assert_allclose([similar.auc, similar.eer, similar.tar_at[0.05]], [found.auc, found.eer, found.tar_at[0.05]])
    assert_allclose(similar.threshold_at[0.05], -100 / found.threshold_at[0.05])
    for bad, message in (
        (d[:3], f"same: expected 3 values, one per pair, got {len(I)}"),
        (np.where(I[5] == I, np.nan, d), "distances: expected one finite number for each pair, got nan for pair 0"),
        (d[:, None], r"distances: expected one finite number for each pair, got an array of shape"),
    ):
        with pytest.raises(ValueError, match=message):
            verify_distances(bad, SAME)


def test_rows_of_zeros_have_cosine_distance_one():
    rows = np.array([[1.0, 0], [1, 0.1], [0, 0], [0, 0], [-1, 0]])
    labels = np.array([0, 0, 1, 1, 1])
    i, j = np.triu_indices(5, 1)
    found, pairs = verify(rows, labels), verify_pairs(rows, np.c_[i, j], labels[i] == labels[j])
    assert_allclose(found.auc, pairs.auc)
    assert_allclose(found.threshold, pairs.threshold, atol=1e-5)


def test_close_embeddings_are_told_apart():
    tight = 1 + 1e-6 * X
    assert_allclose(verify(tight, LABELS, distance="euclidean").auc, listed(X, "euclidean").auc, atol=1e-5)
    assert_allclose(verify(tight, LABELS).auc, listed(tight).auc, atol=1e-3)


def test_the_accuracy_of_a_fold_is_that_of_the_threshold_of_the_others():
    rng = np.random.default_rng(0)
    pairs, folds = np.c_[I, J], np.array([*"abc"])[rng.integers(3, size=len(I))]
    found = verify_pairs(X, pairs, SAME, folds=folds, distance="euclidean")
    d = np.linalg.norm(X[I] - X[J], axis=1)
    for fold, accuracy in zip("abc", found.fold_accuracies, strict=True):
        here, there = folds == fold, folds != fold
        fpr, tpr, cuts = roc_curve(SAME[there], -d[there], drop_intermediate=False)
        near = -d[here] >= cuts[np.argmax(tpr - fpr)]
        assert_allclose(accuracy, (near[SAME[here]].mean() + (~near)[~SAME[here]].mean()) / 2)
    mean, error = np.mean(found.fold_accuracies), np.std(found.fold_accuracies, ddof=1) / 3**0.5
    assert f"accuracy of 3 folds by the best threshold of the others: {mean:.4f} ± {error:.4f} (std. error)" in str(
        found
    )
    assert json.loads(json.dumps(found.to_dict()))["fold_accuracies"] == found.fold_accuracies
    for bad in (np.zeros(len(I)), np.where(SAME, 1, 2)):
        with pytest.raises(ValueError, match="folds: expected two or more, each with pairs of both kinds"):
            verify_pairs(X, pairs, SAME, folds=bad)
    with pytest.raises(ValueError, match=f"folds: expected {len(I)} folds, one per row, got 3"):
        verify_pairs(X, pairs, SAME, folds=[1, 2, 3])


def test_one_rate_needs_no_list():
    assert verify(X, LABELS, fars=0.05).tar_at == verify(X, LABELS, fars=(0.05,)).tar_at


def test_signs_and_booleans_say_the_same():
    pairs = np.c_[I, J]
    one = verify_pairs(X, pairs, SAME)
    assert one == verify_pairs(X, pairs.tolist(), np.where(SAME, 1, -1)) == verify_pairs(X, pairs, SAME.astype(int))


def test_plain_data_and_text():
    found = verify(X, LABELS, fars=(0.05,))
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["tar_at"]["0.05"] == found.tar_at[0.05]
    assert "TAR at FAR 0.05" in str(found)
    assert "720 pairs of one class, 15,390 of two; cosine distance" in str(found)
    assert "curve" not in repr(found)  # two hundred rates
    rare = verify(X, LABELS, fars=(1 / 15_390, 6e-5, 1e-6))
    assert (found.rare, rare.rare) == ([], [6e-5, 1e-6])
    assert "\nat FAR 6e-05 and 1e-06, no pair of two classes may be accepted: 15,390 are too few" in str(rare)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: verify(X, LABELS, fars=(0.0,)), r"^fars: expected rates between 0 and 1"),
        (lambda: verify(X, LABELS[:5]), r"^labels: expected 180 labels"),
        (lambda: verify(X, LABELS, groups=[1]), r"^groups: expected 180 groups"),
        (lambda: verify(X, LABELS, gallery_groups=LABELS), r"^gallery_groups: expected none without a gallery"),
        (lambda: verify(X, LABELS, groups=LABELS), r"there is no pair of one class in two groups"),
        (lambda: verify(X, np.arange(180)), r"there is no pair of one class"),
        (lambda: verify(X, np.zeros(180)), r"there is no pair of two classes"),
        (lambda: verify(X, LABELS, distance="taxi"), r"^distance: expected one of"),
        (lambda: verify_pairs(X, [[0, 180]], [True]), r"^pairs: expected row numbers from 0 to 179, got 0 to 180"),
        (lambda: verify_pairs(X, [0, 1], [True]), r"^pairs: expected row numbers of shape \(m, 2\)"),
        (lambda: verify(X, LABELS, most=0), r"^most: expected at least 1, got 0"),
        (lambda: verify(X, LABELS, most=2.5), r"^most: expected at least 1, got 2.5"),
        (lambda: verify_pairs(X, [[0, 1]], [2]), r"^same: expected true or false, 1 or 0, .*; got 2$"),
        (lambda: verify_pairs(X, [[0, 1]], ["yes"]), r"^same: expected true or false, 1 or 0, .*; got yes$"),
        (lambda: verify_pairs(X, [[0, 1]], [1, 0]), r"^same: expected 1 values, one per pair, got 2$"),
        (lambda: verify_pairs(X, [[0, 1]], [True]), r"there is no pair of two classes"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("distance", ["euclidean", "sqeuclidean", "cosine"])
@pytest.mark.parametrize("step", [0.1, 1 / 3, 0.7])
def test_every_pair_of_a_lattice_counts_once_and_ties_stay_ties(distance, step):
    rng = np.random.default_rng(0)
    corners = rng.integers(0, 5, (60, 2))
    x, y = 0.1 + step * np.vstack([corners, 4 - corners]), rng.integers(0, 4, 120)
    i, j = np.triu_indices(120, 1)
    same = y[i] == y[j]
    found = verify(x, y, distance=distance)
    assert (found.n_similar, found.n_dissimilar) == (same.sum(), (~same).sum())
    assert found.auc == pytest.approx(roc_auc_score(same, -pair_distances(x, x, i, j, distance).round(9)), abs=1e-5)


def test_equal_angles_are_ties_whatever_their_rounding():
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(7, 7)))[0]
    rows = np.concatenate([np.eye(7)[:2], rng.normal(size=(1, 7))])
    rows = np.concatenate(
        [scale * rows @ np.linalg.matrix_power(turn, k) for k, scale in enumerate(rng.uniform(0.1, 9, 40))]
    )
    pairs = np.array([[3 * k, 3 * k + 1] for k in range(40)])
    assert verify_pairs(rows, pairs, np.arange(40) % 2).auc == 0.5
