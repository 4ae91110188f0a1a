"""What a report measures equals its plain-loop definition."""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from nearfar.report.attention import attention_map, center_square
from nearfar.report.content import Items
from nearfar.report.pair_distances import PairDistances, measure_pairs
from nearfar.report.pictures import Thumbnails, map_canvas
from nearfar.report.retrieval import class_recall, confusions, query_neighbors, random_rows, worst_rows
from nearfar.report.spectrum import spectrum
from nearfar.report.tsne import assign_to_grid, map_items, map_positions


def some_items(n: int = 40, classes: int = 5, seed: int = 0, dim: int = 3) -> Items:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    return Items(rng.normal(size=(n, dim)) + 0.8 * labels[:, None], labels, [f"class {c}" for c in range(classes)])


def euclidean(items: Items, others: Items | None = None) -> np.ndarray:
    others = others or items
    return np.array([[np.linalg.norm(a - b) for b in others.embeddings] for a in items.embeddings])


def test_first_right_neighbor_equals_a_full_sort() -> None:
    items = some_items()
    found = query_neighbors(items, None, "euclidean", depth=10)
    assert found is not None
    table = euclidean(items)
    for row, i in enumerate(found.kept):
        order = [j for j in np.argsort(table[i], kind="stable") if j != i]
        rank = next(r for r, j in enumerate(order, 1) if items.labels[j] == items.labels[i])
        assert found.rank_of_first_relevant()[row] == min(rank, 11)
        assert found.index[row].tolist() == order[:10]


def test_queries_without_partner_are_left_out() -> None:
    items = Items(np.arange(5.0)[:, None], np.array([0, 0, 1, 2, 2]), ["a", "b", "c"])
    found = query_neighbors(items, None, "euclidean")
    assert found is not None
    assert found.kept.tolist() == [0, 1, 3, 4]


def test_no_retrieval_where_every_class_has_one_item() -> None:
    assert query_neighbors(Items(np.arange(3.0)[:, None], np.arange(3), ["a", "b", "c"]), None, "euclidean") is None


def test_a_gallery_is_searched_without_leaving_anything_out() -> None:
    queries = Items(np.array([[0.0], [5.0]]), np.array([0, 1]), ["a", "b"])
    gallery = Items(np.array([[5.1], [0.0], [0.2]]), np.array([0, 0, 1]), ["a", "b"])
    found = query_neighbors(queries, gallery, "euclidean")
    assert found is not None
    assert found.index.tolist() == [[1, 2, 0], [0, 2, 1]]
    assert found.rank_of_first_relevant().tolist() == [1, 2]


@pytest.mark.parametrize("alone", [True, False])
def test_items_of_the_class_and_the_group_of_a_query_are_not_found(alone: bool) -> None:
    rng = np.random.default_rng(1)
    items, pool = (replace(some_items(seed=s), groups=rng.integers(0, 3, 40).astype(str)) for s in (1, 2))
    assert items.groups is not None
    pool = items if alone else pool
    assert pool.groups is not None
    found = query_neighbors(items, None if alone else pool, "euclidean", depth=8)
    assert found is not None
    table = euclidean(items, pool)
    for row, i in enumerate(found.kept):
        hidden = (pool.labels == items.labels[i]) & (pool.groups == items.groups[i])
        order = [j for j in np.argsort(table[i], kind="stable") if not hidden[j]]
        assert found.index[row].tolist() == order[:8]
        assert found.relevant[row] == sum(pool.labels[j] == items.labels[i] for j in order) > 0
    one = replace(items, groups=np.full(40, "a"))
    assert query_neighbors(one, None, "euclidean") is None


def test_worst_queries_come_by_rank_then_by_nearness_of_the_mistake_and_two_per_class() -> None:
    found = query_neighbors(some_items(60, 4), None, "euclidean", depth=12)
    assert found is not None
    first, labels = found.rank_of_first_relevant(), found.query_labels()
    expected: list[int] = []
    for row in sorted(range(len(first)), key=lambda r: (-first[r], found.distances[r, 0])):
        if first[row] > 1 and sum(labels[r] == labels[row] for r in expected) < 2:
            expected.append(row)
    assert worst_rows(found, 5).tolist() == expected[:5]
    assert len(worst_rows(found, 100)) == len(expected)


def test_random_queries_are_seeded_and_never_among_the_worst() -> None:
    found = query_neighbors(some_items(), None, "euclidean")
    assert found is not None
    bad = worst_rows(found, 10)
    rows = random_rows(found, 8, 3, bad)
    assert rows.tolist() == random_rows(found, 8, 3, bad).tolist()
    assert not set(rows) & set(bad)
    assert len(set(rows)) == 8


def test_confusions_count_crossing_nearest_neighbors() -> None:
    items = some_items(80, 4)
    found = query_neighbors(items, None, "euclidean")
    assert found is not None
    nearest = items.labels[found.index[:, 0]]
    pairs = confusions(found, 100)
    rates = [pair.rate for pair in pairs]
    assert pairs
    assert rates == sorted(rates, reverse=True)
    for pair in pairs:
        forth = sum((items.labels[found.kept] == pair.first) & (nearest == pair.second))
        back = sum((items.labels[found.kept] == pair.second) & (nearest == pair.first))
        assert (pair.forth, pair.back) == (forth, back)
        assert forth + back > 1
        assert pair.total == np.isin(items.labels[found.kept], [pair.first, pair.second]).sum()


def test_class_recall_averages_to_recall() -> None:
    found = query_neighbors(some_items(), None, "euclidean")
    assert found is not None
    classes, recall, counts = class_recall(found)
    assert (recall * counts).sum() == pytest.approx(found.right[:, 0].sum())
    hard = classes[0]
    assert recall[0] == pytest.approx(found.right[found.query_labels() == hard, 0].mean())


@pytest.mark.parametrize("grouped", [False, True])
def test_all_pairs_are_measured_where_there_are_few(grouped: bool) -> None:
    items, groups = some_items(20, 3), np.arange(20) % 4
    items = replace(items, groups=groups) if grouped else items
    pairs = measure_pairs(items, None, "euclidean")
    table, n = euclidean(items), len(items)
    similar = [
        table[i, j]
        for i in range(n)
        for j in range(i)
        if items.labels[i] == items.labels[j] and not (grouped and groups[i] == groups[j])
    ]
    dissimilar = [table[i, j] for i in range(n) for j in range(i) if items.labels[i] != items.labels[j]]
    assert pairs is not None
    assert pairs.complete
    np.testing.assert_allclose(pairs.similar, sorted(similar))
    np.testing.assert_allclose(pairs.dissimilar, sorted(dissimilar))


@pytest.mark.parametrize("grouped", [False, True])
def test_all_pairs_with_a_gallery_are_measured_where_there_are_few(grouped: bool) -> None:
    queries, gallery = some_items(12, 3, seed=1), some_items(9, 3, seed=2)
    gallery = replace(gallery, labels=gallery.labels[::-1].copy())
    if grouped:
        queries, gallery = (replace(items, groups=np.arange(len(items)) % 2) for items in (queries, gallery))
    pairs, table = measure_pairs(queries, gallery, "euclidean"), euclidean(queries, gallery)
    same = queries.labels[:, None] == gallery.labels
    near = same & (np.arange(12)[:, None] % 2 != np.arange(9) % 2) if grouped else same
    assert pairs is not None
    assert pairs.complete
    np.testing.assert_allclose(pairs.similar, np.sort(table[near]))
    np.testing.assert_allclose(pairs.dissimilar, np.sort(table[~same]))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("with_gallery", [False, True])
def test_sampled_pairs_are_true_pairs_with_the_right_frequencies(with_gallery: bool, grouped: bool) -> None:
    queries = some_items(12, 3, seed=1, dim=2)
    gallery = some_items(9, 3, seed=2, dim=2) if with_gallery else None
    if grouped:
        queries = replace(queries, groups=np.arange(12) % 2)
        gallery = gallery and replace(gallery, groups=np.arange(9) % 2)
    pool = gallery or queries
    pairs = measure_pairs(queries, gallery, "euclidean", sample=50, seed=4)
    exact = {"similar": [], "dissimilar": []}
    for i, row in enumerate(euclidean(queries, pool)):
        for j, value in enumerate(row):
            same = queries.labels[i] == pool.labels[j]
            if (with_gallery or i != j) and not (grouped and same and i % 2 == j % 2):
                exact["similar" if same else "dissimilar"].append(value)
    assert pairs is not None
    for kind, sampled in (("similar", pairs.similar), ("dissimilar", pairs.dissimilar)):
        known = np.array(exact[kind])
        assert np.abs(sampled[:, None] - known).min(axis=1).max() < 1e-9
    if not with_gallery:
        assert pairs.similar.min() > 0
    assert not pairs.complete


def test_sampled_pairs_are_uniform() -> None:
    items = Items(np.array([[0.0], [1.0], [3.0], [10.0], [14.0]]), np.array([0, 0, 0, 1, 1]), ["a", "b"])
    from nearfar.report import pair_distances as module

    (i, j), (k, m) = module._drawn_pairs(items, None, 40_000, 0)
    assert (i != j).all()
    assert (items.labels[i] == items.labels[j]).all()
    assert (items.labels[k] != items.labels[m]).all()
    for left, right, kinds in ((i, j, 8), (k, m, 12)):
        _, counts = np.unique(5 * left + right, return_counts=True)
        assert len(counts) == kinds
        np.testing.assert_allclose(counts / 40_000, 1 / kinds, rtol=0.1)
    (i, j), _ = module._drawn_pairs(replace(items, groups=np.array([*"xyxxx"])), None, 40_000, 0)
    kinds, counts = np.unique(5 * i + j, return_counts=True)
    assert kinds.tolist() == [1, 5, 7, 11]  # (0, 1), (1, 2) and back; the second class has one group
    np.testing.assert_allclose(counts / 40_000, 1 / 4, rtol=0.1)


def test_pairs_of_one_class_alone_are_no_histogram() -> None:
    assert measure_pairs(Items(np.arange(4.0)[:, None], np.zeros(4, int), ["a"]), None, "euclidean") is None


def test_histograms_overlap_by_the_area_that_they_share() -> None:
    assert PairDistances(np.array([0.0, 1.0]), np.array([2.0, 3.0]), True).overlap() == 0
    assert PairDistances(np.ones(3), np.ones(4), True).overlap() == pytest.approx(1)
    assert PairDistances(np.zeros(3), np.zeros(4), True).overlap() == pytest.approx(1)


@pytest.mark.parametrize("unit", [1e-16, 1e-3, 1e14])
def test_histograms_overlap_alike_in_any_unit(unit) -> None:
    similar, dissimilar = np.arange(20.0), np.arange(15.0, 40.0)
    whole = PairDistances(similar, dissimilar, True).overlap()
    assert PairDistances(similar * unit, dissimilar * unit, True).overlap() == pytest.approx(whole)


def test_effective_dimension_counts_equal_directions() -> None:
    cross = np.concatenate([np.eye(4), -np.eye(4)])
    assert spectrum(cross).effective_dimension == pytest.approx(4)
    assert spectrum(cross).directions_holding(0.9) == 4
    assert spectrum(np.outer(np.arange(5.0), [1, 2, 3])).effective_dimension == pytest.approx(1)
    assert spectrum(np.ones((5, 3))).effective_dimension == 0
    x = np.random.default_rng(0).normal(size=(30, 4))
    assert spectrum(x).trace == pytest.approx(x.var(axis=0).sum())


def test_attention_is_the_scaled_mean_over_channels() -> None:
    features = np.random.default_rng(0).normal(size=(5, 3, 4))
    mean = features.mean(axis=0)
    expected = (mean - mean.min()) / (mean.max() - mean.min())
    np.testing.assert_allclose(attention_map(features, (3, 4)), expected, atol=1e-6)
    grown = attention_map(features, (30, 40))
    assert grown.shape == (30, 40)
    assert 0 <= grown.min() <= grown.max() <= 1


@pytest.mark.parametrize("value", [0.0, 3.7, -2.0, np.nan, np.inf])
def test_attention_of_a_constant_map_is_zero(value: float) -> None:
    assert not attention_map(np.full((2, 3, 3), value), (6, 6)).any()


def test_networks_see_the_center_square() -> None:
    image = np.arange(4 * 7).reshape(4, 7, 1)
    assert center_square(image)[..., 0].tolist() == image[:, 1:5, 0].tolist()
    assert center_square(image[:, :2]).shape == (2, 2, 1)


def test_attention_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match=r"\(C, H, W\)"):
        attention_map(np.zeros(3), (4, 4))


def test_map_takes_evenly_many_of_every_class() -> None:
    labels = np.repeat([0, 1, 2], [500, 300, 4])
    index = map_items(labels, 90, seed=1)
    assert np.bincount(labels[index]).tolist() == [30, 30, 4]
    assert index.tolist() == sorted(set(index.tolist()))
    assert map_items(labels, 1000).tolist() == list(range(804))


def test_map_takes_whole_classes_where_there_are_many() -> None:
    labels = np.repeat(np.arange(200), 6)
    chosen = labels[map_items(labels, 50)]
    assert len(chosen) == 50
    assert np.unique(chosen, return_counts=True)[1].tolist() == [5] * 10


def test_cells_are_free_and_near() -> None:
    rng = np.random.default_rng(0)
    cells = assign_to_grid(rng.random((30, 2)) * 0.2, 8, 6)
    assert len({tuple(cell) for cell in cells}) == 30
    corners = np.array([[0, 0], [1, 0], [0, 1], [1, 1.0]])
    assert assign_to_grid(corners, 8, 6).tolist() == [[0, 0], [7, 0], [0, 5], [7, 5]]


def test_positions_fill_the_unit_square_or_are_none() -> None:
    items = some_items(30, 3)
    positions = map_positions(items, np.arange(30), "cosine")
    assert positions is not None
    assert positions.min() == 0
    assert positions.max() == 1
    same = Items(np.ones((30, 3)), items.labels, items.classes)
    assert map_positions(same, np.arange(30), "euclidean") is None
    assert map_positions(items, np.arange(3), "euclidean") is None


def test_the_map_shows_the_middle_of_an_image_and_does_not_squeeze_it() -> None:
    wide = np.zeros((40, 120, 3), np.uint8)
    wide[:, 40:80] = 255
    items = Items(np.zeros((1, 2)), np.zeros(1, int), ("a",), ["b"], lambda i: wide)
    canvas = map_canvas(Thumbnails(items), np.zeros(1, int), np.full((1, 2), 0.5), [None])
    (left, top, side), code = canvas.squares[0], canvas.picture.uri.partition(",")[2]
    shown = np.asarray(Image.open(BytesIO(b64decode(code))).convert("L"))[top : top + side, left : left + side]
    assert shown[5:-5, 5:-5].min() > 200


def test_features_in_other_units_are_seen_beside_each_other():
    rows = np.array([[1.0, 5e6], [2.0, 1e7], [4.0, 2e7]])
    items = Items(rows, np.zeros(3, int), ["a"], read=lambda i: rows[i])
    heights = []
    for thumbnails in (Thumbnails(items), Thumbnails(replace(items, read=lambda i: rows[i] / [1.0, 5e6]))):
        svg = b64decode(thumbnails(1).uri.partition(",")[2]).decode()
        heights.append([float(height) for height in re.findall(r'height="([\d.]+)"', svg)])
    assert heights[0] == heights[1] == [30.0, 30.0]


def test_a_row_is_drawn_where_no_other_can_be_read():
    def read(i):
        if i != 1:
            raise OSError
        return np.arange(3.0)

    assert Thumbnails(Items(np.eye(200, 3), np.zeros(200, int), ["a"], read=read))(1).uri
