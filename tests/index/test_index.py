"""The index: exact, approximate, grown, cut, saved; and what it refuses."""

import copy
import tracemalloc
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from nearfar.index import Index
from nearfar.neighbors.nearest import Gallery, nearest
from nearfar.numerics.distances import pair_distances

DISTANCES = ("cosine", "euclidean", "sqeuclidean")


def rows(n=200, d=8, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


@pytest.mark.parametrize("distance", DISTANCES)
def test_gallery_finds_what_nearest_finds(distance):
    gallery = rows(500)
    gallery[100:180] = gallery[0]  # more equal rows than the float32 pass settles
    queries = np.concatenate([gallery[:30], 1e3 * rows(30, seed=1), np.zeros((1, 8), np.float32)])
    prepared = Gallery(gallery, distance)
    for part in (queries, queries[:1]):  # one preparation, several searches
        distances, indices = prepared.nearest(part, 120)
        expected = nearest(part, gallery, 120, distance=distance)
        assert_array_equal(indices, expected[1])
        assert_array_equal(distances, expected[0])


def test_gallery_refuses_what_nearest_refuses():
    gallery = Gallery(rows())
    with pytest.raises(ValueError, match="5 columns as in queries, got 8"):
        gallery.nearest(rows(3, 5), 1)
    with pytest.raises(ValueError, match="expected 1 to 200"):
        gallery.nearest(rows(3), 201)


@pytest.mark.parametrize("distance", DISTANCES)
def test_search_equals_loops(distance):
    x, q = rows(40), rows(5, seed=1)
    found = Index(x, distance=distance).search(q, 7)
    for i in range(5):
        values = []
        for j in range(40):
            square = sum((float(a) - float(b)) ** 2 for a, b in zip(q[i], x[j], strict=True))
            lengths = sum(float(a) ** 2 for a in q[i]) * sum(float(b) ** 2 for b in x[j])
            dot = sum(float(a) * float(b) for a, b in zip(q[i], x[j], strict=True))
            values.append({"cosine": 1 - dot / lengths**0.5, "sqeuclidean": square, "euclidean": square**0.5}[distance])
        order = np.argsort(values)[:7]
        assert_array_equal(found.positions[i], order)
        assert_allclose(found.distances[i], np.array(values)[order], rtol=1e-6)


def test_fewer_items_than_neighbors_gives_all():
    assert Index(rows(3)).search(rows(2), 10).positions.shape == (2, 3)
    assert Index(rows(30)).search(rows(2)).positions.shape == (2, 10)


def test_a_text_that_is_too_long_is_named():
    message = r"columns: the text of 'note' of item 1 \(from 0\) has 10,001 characters; expected up to 10,000"
    with pytest.raises(ValueError, match=message):
        Index(np.eye(3), columns={"note": ["", "x" * 10_001, "y"]})


def test_a_place_without_a_neighbor_has_no_name():
    index = Index(np.eye(3), names=["a", "b", "c"], columns={"product": ["p", "q", "q"]})
    found = index.search(np.eye(3)[:2], 3, group_by="product")
    assert found.positions[:, 2].tolist() == [-1, -1]  # which as an index of NumPy is the last item
    assert found.names.tolist() == [["a", "b", ""], ["b", "a", ""]]
    assert found.counts.tolist() == [2, 2]


def test_growing_equals_building_whole():
    x = rows()
    index = Index(x[:120], labels=np.arange(120) % 7)
    index.search(x[:1])  # the engine of the small index must not stay
    index.add(x[120:], labels=np.arange(120, 200) % 7)
    whole = Index(x, labels=np.arange(200) % 7)
    assert_array_equal(index.names, whole.names)
    assert_array_equal(index.labels, whole.labels)
    assert_array_equal(index.search(x, 5).positions, whole.search(x, 5).positions)


def test_removing_equals_building_without():
    x = rows(20)
    index = Index(x, names=[f"item {i}" for i in range(20)], labels=["even", "odd"] * 10)
    index.search(x[:1])
    index.remove(["item 3", "item 4"])
    assert len(index) == 18
    assert index.names[3] == "item 5"
    assert index.labels.tolist() == ["even", "odd", "even", *["odd", "even"] * 7, "odd"]
    assert index.search(x[3:4], 1).distances[0, 0] > 0


@pytest.mark.parametrize("engine", ["exact", "Flat"])
def test_a_copy_is_changed_while_the_first_is_searched(engine):
    if engine != "exact":
        pytest.importorskip("faiss")
    x = rows(20)
    index = Index(x, names=[f"item {i}" for i in range(20)], labels=["even", "odd"] * 10, engine=engine)
    before = index.search(x, 3)
    other = copy.copy(index)
    other.remove(["item 3"])
    other.add(-x[:1], names=["new"], labels=["even"])
    assert other.names[other.search(-x[:1], 1).positions] == "new"
    assert len(index) == len(index.names) == len(index.labels) == 20
    after = index.search(x, 3)
    assert_array_equal(after.positions, before.positions)
    assert_array_equal(after.distances, before.distances)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("k", [1, 7, 120])
def test_a_search_with_a_filter_equals_one_of_the_items_that_meet_it(distance, k):
    x = rows(600)
    x[100:280] = x[0]  # more equal rows than the float32 pass settles
    keep = np.random.default_rng(1).random(600) < 0.6
    queries = np.concatenate([x[:20], 1e3 * rows(20, seed=1), np.zeros((1, 8), np.float32)])
    index = Index(x, columns={"kept": keep}, distance=distance)
    expected = Index(x[keep], distance=distance).search(queries, k)
    positions = np.flatnonzero(keep)[expected.positions]
    in_copy = index.search(queries, k, where="kept == 1")
    index = copy.copy(index)
    index._filters = {}
    index.search(queries, 1)
    in_place = index.search(queries, k, where="kept == 1")
    one = index.search(queries[1:2], k, where="kept == 1")
    assert index._filters["kept == 1"]._copy is None
    for found, part in ((in_copy, slice(None)), (in_place, slice(None)), (one, slice(1, 2))):
        assert_array_equal(found.positions, positions[part])
        assert_array_equal(found.distances, expected.distances[part])


def test_filters_take_little_memory_until_they_are_used_often():
    x = rows(20_000, 64)
    index = Index(x, columns={"price": np.arange(20_000)})
    index.search(x[:1])
    tracemalloc.start()
    try:
        for least in range(1000, 1010):
            assert index.search(x[least:][:1], 1, where=f"price >= {least}").positions == least
        assert tracemalloc.get_traced_memory()[1] < x.nbytes / 2
        for _ in range(3):  # copying 1,000 items takes less time than comparing queries with all 20,000
            assert index.search(x[-1:], 1, where="price >= 19000").positions == 19_999
        assert len(index._filters["price >= 19000"]._copy.rows) == 1000
    finally:
        tracemalloc.stop()


def test_an_index_without_labels_stays_without():
    index = Index(rows(4))
    index.add(rows(2), names=["a", "b"])
    index.remove(["0", "b"])
    assert index.labels is None
    assert index.names.tolist() == ["1", "2", "3", "a"]
    with pytest.raises(ValueError, match="the index has no labels, the new items have some"):
        index.add(rows(1), labels=[0])


def test_names_are_text_and_labels_of_one_kind():
    index = Index(rows(3), names=[7, 8, 9], labels=np.arange(3, dtype=np.int8))
    assert index.labels.dtype == np.int64
    index.remove([8])
    assert index.names.tolist() == ["7", "9"]
    with pytest.raises(ValueError, match="labels: expected text as in the index, got numbers"):
        Index(rows(1), labels=["a"]).add(rows(1), names=["b"], labels=[0])
    with pytest.raises(ValueError, match="names: 'a' occurs more than once"):
        Index(rows(3), names=["a", "b", "a"])


@pytest.mark.parametrize("distance", DISTANCES)
def test_near_items_are_near_in_the_distance_of_the_index(distance):
    x = rows(30)
    i, j = np.triu_indices(30, 1)
    d = pair_distances(x, x, i, j, distance)
    order = np.argsort(d)
    index = Index(x, distance=distance)
    found = index.closest(5)
    assert_array_equal(found.i, i[order[:5]])
    assert_array_equal(found.j, j[order[:5]])
    assert len(index.closest().i) == 20
    within = (d[order[0]] + d[order[1]]) / 2
    assert_array_equal(np.flatnonzero(index.duplicates(within).numbers == 0), sorted((i[order[0]], j[order[0]])))


@pytest.mark.parametrize("labels", [None, np.arange(30) - 5, ["Größe", "b\0b", ""] * 10])
def test_saved_and_loaded_is_the_same(tmp_path, labels):
    names = [f"ordner/ä {i}\n.jpg" for i in range(30)]
    index = Index(rows(30), names=names, labels=labels, distance="euclidean", about={"source": "runs/a"})
    index.save(tmp_path / "a.index")
    again = Index.load(tmp_path / "a.index")
    assert again.names.tolist() == names
    assert again.distance == "euclidean"
    assert again.about == {"source": "runs/a"}
    assert_array_equal(again.embeddings, index.embeddings)
    if labels is None:
        assert again.labels is None
    else:
        assert_array_equal(again.labels, index.labels)
    assert [path.name for path in tmp_path.iterdir()] == ["a.index"]


@pytest.mark.parametrize("gone", [{"1", "3"}, iter(["1", "3"]), np.array([1, 3]), ["1", "3"]])
def test_any_collection_of_names_is_removed(gone):
    index = Index(np.eye(5))
    index.remove(gone)
    assert index.names.tolist() == ["0", "2", "4"]


def test_numbers_that_are_taken_are_no_names_relative_to_index():
    index = Index(np.eye(5))
    index.remove("0")
    index.add(np.eye(5)[:2])
    assert index.names.tolist() == ["1", "2", "3", "4", "5", "6"]


def test_bad_input_leaves_the_index_as_it_was():
    index = Index(rows(10), labels=[0] * 10)
    for words, wrong in (
        ("columns", {"embeddings": rows(2, 3), "labels": [0, 0]}),
        ("the index has labels", {"embeddings": rows(2)}),
        ("occurs more than once", {"embeddings": rows(1), "names": ["3"], "labels": [0]}),
        ("expected numbers", {"embeddings": rows(1), "labels": ["a"]}),
        ("labels: expected 1", {"embeddings": rows(1), "labels": [0, 1]}),
        ("names: expected 1", {"embeddings": rows(1), "names": ["a", "b"], "labels": [0]}),
        ("NaN", {"embeddings": np.full((1, 8), np.nan), "labels": [0]}),
    ):
        with pytest.raises(ValueError, match=words):
            index.add(**wrong)
        assert len(index) == len(index.names) == len(index.labels) == 10
    with pytest.raises(ValueError, match="has no 'x'"):
        index.remove(["x"])
    for engine in ("exact", "Flat"):
        with pytest.raises(ValueError, match="k: expected 1 or more, got 0"):
            Index(rows(3), engine=engine).search(rows(1), 0)
    for k in (2.5, "3", None):
        with pytest.raises(ValueError, match=f"k: expected 1 or more, got {k!r}"):
            Index(rows(3)).search(rows(1), k)
        with pytest.raises(ValueError, match=rf"k: expected 1 to 2,000,000, got {k!r}"):
            Index(rows(3)).closest(k)
    large = np.full((1, 8), 1e39)
    for wrong in (lambda: Index(large), lambda: index.add(large, labels=[0]), lambda: index.search(large)):
        with pytest.raises(ValueError, match="expected values that float32 holds"):
            wrong()
    assert len(index) == 10
    with pytest.raises(ValueError, match="queries: expected 8 columns"):
        index.search(rows(1, 3))
    with pytest.raises(ValueError, match="distance"):
        Index(rows(3), distance="manhattan")
    with pytest.raises(ValueError, match="whole numbers or text"):
        Index(rows(3), labels=[0.5, 1.0, 2.0])
    with pytest.raises(ValueError, match="do not end with the character NUL"):
        Index(rows(3), labels=["a", "a\0", "b"])


@pytest.mark.parametrize("distance", DISTANCES)
def test_approximate_engine(distance, tmp_path):
    pytest.importorskip("faiss")
    x = rows(1000)
    exact = Index(x, distance=distance).search(x[:100], 5)
    assert_array_equal(Index(x, distance=distance, engine="Flat").search(x[:100], 5).positions, exact.positions)
    near = Index(x, distance=distance, engine="HNSW32")
    near.save(tmp_path / "near.index")
    found = Index.load(tmp_path / "near.index").search(x[:100], 5)
    assert (found.positions == exact.positions).mean() > 0.9
    hit = found.positions == exact.positions
    assert_allclose(found.distances[hit], exact.distances[hit], atol=1e-12)


@pytest.mark.parametrize(
    ("plain", "thorough"), [("IVF32,Flat", "nprobe=16"), ("HNSW2", "efSearch=512"), ("PCA6,IVF32,Flat", "nprobe=32")]
)
def test_a_thorough_search_finds_more(plain, thorough, tmp_path):
    pytest.importorskip("faiss")
    x, queries = rows(2000), rows(200, seed=1)
    exact = Index(x).search(queries, 5).positions

    def recall(engine):
        Index(x, engine=engine).save(tmp_path / "x.index")
        found = Index.load(tmp_path / "x.index").search(queries, 5).positions
        return np.mean([np.isin(some, true).mean() for some, true in zip(found, exact, strict=True)])

    assert recall(f"{plain};{thorough}") > recall(plain) + 0.05
    assert recall("IVF32,Flat;nprobe=32") == 1.0


def test_approximate_engine_says_what_it_cannot_do():
    pytest.importorskip("faiss")
    with pytest.raises(ValueError, match="engine: faiss cannot index 10 rows as 'PQ4'"):
        Index(rows(10), engine="PQ4").search(rows(1))
    for wrong in ("bogus=8", "efSearch=8"):
        with pytest.raises(ValueError, match=rf"'IVF4,Flat' has no setting '{wrong[:-2]}' of the search \(that of IVF"):
            Index(rows(200), engine=f"IVF4,Flat;{wrong}").search(rows(1))
    for wrong in ("nprobe", "nprobe=0", "nprobe=many", "nprobe=-1", "nprobe=9999999", "nprobe=¹"):
        with pytest.raises(ValueError, match=f"expected a setting of the search such as nprobe=16, got '{wrong}'"):
            Index(rows(200), engine=f"IVF4,Flat;{wrong}").search(rows(1))
    for engine in ("IVF20,Flat", "IVF20,Flat;nprobe=1"):  # one list is looked at
        found = Index(rows(200), engine=engine).search(rows(1), 100)
        assert found.positions[0, -1] == -1
        assert found.distances[0, -1] == np.inf
        count = found.counts[0]
        assert 0 < count < 100
        assert found.names[0].tolist() == [*map(str, found.positions[0, :count]), *[""] * (100 - count)]
    assert np.isinf(found.distances[0, -1])


RECIPES = ["Flat", "SQ8", "HNSW", "HNSW2", "HNSW32,SQ8", "HNSW32_SQ8", "IVF4,Flat", "IVF4_HNSW8,SQfp16", "PCA4,Flat"]
RECIPES += ["L2norm,PCAR4,IVF4,SQ4", "PQ4x4", "PQ4x4fs", "PCAW4,IVF4,PQ2x4", "IVF4,PQ2x4,RFlat", "ITQ4,LSH", "NSG16"]
NO_RECIPES = [
    "",
    "(" * 50_000,
    "IVF4(" * 9,
    "HNSW0",
    "HNSW1",
    "HNSW257",
    "PQ4x0",
    "IVF0,Flat",
    "IVF4",
    "Flat,Flat,Flat",
]
NO_RECIPES += ["RR99999,Flat", "HNSW3x", "Flt", "Flat\n", "Flat;" + "nprobe=1," * 20, "IVF99999999,Flat", "PQ４"]


@pytest.mark.parametrize("engine", RECIPES)
def test_recipes_of_faiss(engine):
    pytest.importorskip("faiss")
    found = Index(rows(200), engine=engine).search(rows(5, seed=1), 3)
    assert found.positions.shape == (5, 3)
    assert found.positions[:, 0].min() >= 0


@pytest.mark.parametrize("engine", NO_RECIPES)
def test_other_engines_are_refused_before_faiss_reads_them(tmp_path, engine):
    """Some of them end the process in faiss: they come from strangers' files, too."""
    with pytest.raises(
        ValueError, match=r"engine: expected exact, or a recipe of faiss such as .*, got '[^\n]{0,70}\Z"
    ):
        Index(rows(200), engine=engine)
    index = Index(rows(200))
    index.engine = engine
    with pytest.raises(ValueError, match="engine: expected exact"):
        index.search(rows(1))
    index.save(tmp_path / "x.index")
    with pytest.raises(ValueError, match=r"x.index is damaged: engine: expected exact, .{0,170}\Z"):
        Index.load(tmp_path / "x.index")


def test_items_without_names_take_the_first_free_numbers_and_known_names_are_not_looked_up(monkeypatch):
    index = Index(np.eye(6, 4), names=["a", "7", "6", "10", "3", "9"])
    index.add(np.ones((4, 4)))
    assert index.names[6:].tolist() == ["8", "11", "12", "13"]
    index.add(np.ones((1, 4)))
    assert index.names[-1] == "14"
    with pytest.raises(ValueError, match=r"names: '7' occurs more than once \(2 such names\)"):
        index.add(np.ones((3, 4)), names=["7", "b", "b"])
    seen = []
    monkeypatch.setattr("nearfar.index.index.check_different", lambda names: seen.append(len(names)))
    index.add(np.ones((1, 4)), names=["c"])
    assert max(seen) == 1


def test_rows_are_given_to_faiss_in_little_more_than_one_copy():
    pytest.importorskip("faiss")
    index = Index(np.ones((2**15, 256), np.float32), engine="Flat")
    tracemalloc.start()
    try:
        index.search(index.embeddings[:1])
        assert tracemalloc.get_traced_memory()[1] < 2 * index.embeddings.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("row", [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [1e-6, 0.0, 0.0]])
@pytest.mark.parametrize("n", [1, 3])
def test_items_that_are_all_equal_are_searched_without_overflow(row, n):
    index = Index([row] * n, distance="euclidean")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = index.search([[100.0, 50.0, 2.0], row], k=1)
    np.testing.assert_allclose(found.distances.ravel(), [np.linalg.norm(np.subtract([100.0, 50.0, 2.0], row)), 0.0])
    assert found.positions.ravel().tolist() == [0, 0]


def test_an_index_that_could_not_be_read_again_is_not_saved(tmp_path):
    path = tmp_path / "x.index"
    index = Index([[1.0, 0.0]], about={"made": "once"}, columns={f"c{k}": [1.0] for k in range(100)})
    index.save(path)
    index.about["made"] = 3
    with pytest.raises(ValueError, match=r"^about: expected a dict of text"):
        index.save(path)
    with pytest.raises(ValueError, match=r"^columns: expected up to 100, got 101"):
        index.add([[0.0, 1.0]], columns={"more": [1.0]})
    assert Index.load(path).about == {"made": "once"}
