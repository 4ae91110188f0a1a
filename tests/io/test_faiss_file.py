"""Flat indexes of faiss are read and written without faiss, as faiss does."""

import numpy as np
import pytest

from nearfar.data import DataError, open_items
from nearfar.io.faiss_file import names_beside, read_flat, write_flat

rng = np.random.default_rng(0)
ROWS = rng.normal(size=(7, 3)).astype(np.float32)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_faiss_opens_what_is_written(tmp_path, distance):
    faiss = pytest.importorskip("faiss")
    with open(tmp_path / "x.faiss", "wb") as file:
        write_flat(file, ROWS, distance)
    index = faiss.read_index(str(tmp_path / "x.faiss"))
    expected = ROWS if distance == "euclidean" else ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
    np.testing.assert_allclose(index.reconstruct_n(0, 7), expected, atol=1e-6)
    assert index.metric_type == (faiss.METRIC_L2 if distance == "euclidean" else faiss.METRIC_INNER_PRODUCT)
    assert index.search(expected, 1)[1].ravel().tolist() == list(range(7))
    faiss.write_index(index, str(tmp_path / "again.faiss"))
    assert (tmp_path / "again.faiss").read_bytes() == (tmp_path / "x.faiss").read_bytes()


def test_indexes_of_faiss_are_read_with_their_ids_or_refused_by_their_kind(tmp_path):
    faiss = pytest.importorskip("faiss")
    path = tmp_path / "x.faiss"
    flat = faiss.IndexFlatL2(3)
    flat.add(ROWS)
    faiss.write_index(flat, str(path))
    rows, ids, distance = read_flat(path)
    assert (ids, distance) == (None, "euclidean")
    np.testing.assert_array_equal(rows, ROWS)
    for kind in (faiss.IndexIDMap, faiss.IndexIDMap2):
        mapped = kind(faiss.IndexFlatIP(3))
        mapped.add_with_ids(ROWS, np.arange(7) * 10)
        faiss.write_index(mapped, str(path))
        rows, ids, distance = read_flat(path)
        assert ids is not None
        assert (ids.tolist(), distance) == ([0, 10, 20, 30, 40, 50, 60], "cosine")
        np.testing.assert_array_equal(rows, ROWS)
    assert open_items(path).names == ("0", "10", "20", "30", "40", "50", "60")
    graph = faiss.IndexHNSWFlat(3, 4)
    graph.add(ROWS)
    faiss.write_index(graph, str(path))
    with pytest.raises(
        DataError, match=r"x\.faiss: expected a flat index of faiss, .* got IHNf; add index.reconstruct_n"
    ):
        open_items(path)


def test_vectors_without_names_or_with_other_names_are_one_line(tmp_path):
    path = tmp_path / "x.faiss"
    with open(path, "wb") as file:
        write_flat(file, ROWS, "euclidean")
    with pytest.raises(DataError, match=r"faiss stores no names; write x\.names\.csv next to it, with the column name"):
        open_items(path)
    for lines, message in {
        "title\na\n": "has no column 'name'; it has title",
        "name\na\nb\n": "has 2 rows for 7 vectors",
        "name\na\nb\nc\nd\ne\nf\na\n": "two vectors have the name 'a'",
    }.items():
        names_beside(path).write_text(lines)
        with pytest.raises(DataError, match=message):
            open_items(path)
    names_beside(path).write_text("name,label\n" + "".join(f"{name},{name > 'c'}\n" for name in "abcdefg"))
    items = open_items(path)
    assert items.names == tuple("abcdefg")
    assert items.classes == ("False", "True")


def test_damaged_files_claim_no_memory(tmp_path):
    path = tmp_path / "x.faiss"
    with open(path, "wb") as file:
        write_flat(file, ROWS, "euclidean")
    content = path.read_bytes()
    for place in range(0, len(content) - 7 * 12, 3):
        path.write_bytes(content[:place] + b"\xff\xff\xff\x7f" + content[place + 4 :])
        try:
            assert read_flat(path)[0].size <= ROWS.size
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017
        path.write_bytes(content[:place])
        with pytest.raises(ValueError, match="ends too early"):
            read_flat(path)
