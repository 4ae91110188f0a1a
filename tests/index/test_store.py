"""A Milvus collection holds and finds what the index does."""

import numpy as np
import pytest

pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")

from pymilvus import MilvusClient

from nearfar.index import Index
from nearfar.index.store import to_milvus
from tests.commands import run

rng = np.random.default_rng(0)


def small(distance="cosine", labels=("a", "b", "c"), n=1100):
    labels = None if labels is None else [labels[k % len(labels)] for k in range(n)]
    names = [f"photos/ä {k}.png" for k in range(n)]
    return Index(rng.normal(size=(n, 6)), names=names, labels=labels, distance=distance)


@pytest.mark.parametrize(("distance", "labels"), [("cosine", ("a", "b")), ("euclidean", (3, 5)), ("sqeuclidean", None)])
def test_a_collection_finds_what_the_index_finds(distance, labels, tmp_path):
    index, uri = small(distance, labels), str(tmp_path / "items.db")
    assert to_milvus(index, uri, "items") == 1100
    queries = rng.normal(size=(4, 6)).astype(np.float32)
    client = MilvusClient(uri)
    fields = [] if labels is None else ["label"]
    found = client.search("items", list(queries), limit=5, output_fields=fields)
    client.close()
    expected = index.search(queries, 5)
    assert [[hit["name"] for hit in hits] for hits in found] == index.names[expected.positions].tolist()
    values = np.array([[hit["distance"] for hit in hits] for hits in found])
    own = {"cosine": 1 - values, "euclidean": np.sqrt(values), "sqeuclidean": values}[distance]
    np.testing.assert_allclose(own, expected.distances, atol=1e-5)
    if labels is not None:
        told = [[hit["entity"]["label"] for hit in hits] for hits in found]
        assert told == index.labels[expected.positions].tolist()


def test_items_are_added_and_replaced(tmp_path):
    index, uri = small(n=20), str(tmp_path / "items.db")
    to_milvus(index, uri, "items")
    with pytest.raises(ValueError, match=r"^collection: .* has 'items' already"):
        to_milvus(index, uri, "items")
    more = Index(rng.normal(size=(2, 6)), names=["photos/ä 0.png", "new"], labels=["a", "b"])
    assert to_milvus(more, uri, "items", add=True) == 21
    other = Index(rng.normal(size=(2, 7)), labels=["a", "b"])
    with pytest.raises(ValueError, match=r"has embeddings of 6 dimensions, the index has 7"):
        to_milvus(other, uri, "items", add=True)
    bare = Index(rng.normal(size=(2, 6)))
    with pytest.raises(ValueError, match=r"has labels, the index has none"):
        to_milvus(bare, uri, "items", add=True)
    far = Index(rng.normal(size=(2, 6)), labels=["a", "b"], distance="euclidean")
    with pytest.raises(ValueError, match=r"'items' compares by COSINE, the index by the euclidean distance \(L2\)"):
        to_milvus(far, uri, "items", add=True)


def test_the_command_says_what_is_there(tmp_path, capsys, monkeypatch):
    small(n=20).save(tmp_path / "items.index")
    words = ["store", tmp_path / "items.index", tmp_path / "items.db", "--collection", "items"]
    code, out, _ = run(capsys, monkeypatch, *words)
    assert (code, out) == (0, f"{tmp_path / 'items.db'}: collection items has 20 items\n")
    code, _, err = run(capsys, monkeypatch, *words)
    assert (code, err.count("\n")) == (2, 1)
    assert "has 'items' already" in err
    small(n=23).save(tmp_path / "items.index")
    code, out, _ = run(capsys, monkeypatch, *words, "--add")
    assert (code, out) == (0, f"{tmp_path / 'items.db'}: collection items has 23 items\n")
