"""Indexes of folders of embeddings, read block by block, and of models whose embedding was interrupted."""

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from nearfar import RCA, index
from nearfar.index import blob_file, building, from_parts
from nearfar.models.embedded import embed_to
from nearfar.models.embedding_in_parts import embed_in_parts


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A learner, rows, and their embeddings in a folder of three parts and in a file."""
    folder = tmp_path_factory.mktemp("index")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 4))
    names = [f"n{i}" for i in range(50)]
    labels = [f"c{i % 5}" for i in range(50)]
    np.savez(folder / "rows.npz", X=rows, y=labels, names=names, groups=np.arange(50) % 3)
    RCA().fit(rows, np.arange(50) % 5).save(folder / "rca.safetensors")
    embed_in_parts(folder / "rca.safetensors", str(folder / "rows.npz"), folder / "parts", part_size=20)
    embed_to(folder / "rca.safetensors", str(folder / "rows.npz"), folder / "file.npz")
    return folder


def all_of(path):
    """Everything that an index has, but for the place of its data."""
    store = index.open(path)
    found = store.in_memory()
    about = {key: text for key, text in store.about.items() if key not in ("data", "source", "weights")}
    columns = {name: values.tolist() for name, values in found.all_columns().items()}
    return found.names.tolist(), found.embeddings.tolist(), columns, store.distance, about


@pytest.mark.parametrize("how", [{}, {"dims": 2}, {"distance": "cosine", "threshold": 0.5}])
@pytest.mark.parametrize("block", [7, 20, 1000])
def test_an_index_of_a_folder_is_that_of_a_file(home, tmp_path, monkeypatch, block, how):
    monkeypatch.setattr(from_parts, "ITEMS_READ", block)
    monkeypatch.setattr(building, "write_items", None)  # which reads all of it
    line = index.build(home / "parts", None, tmp_path / "a.index", **how)
    monkeypatch.undo()
    same = index.build(home / "file.npz", None, tmp_path / "b.index", **how)
    assert line.replace("a.index", "b.index") == same
    assert all_of(tmp_path / "a.index") == all_of(tmp_path / "b.index")


def test_an_index_of_a_folder_is_larger_than_one_blob_may_be(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(4000, 64))
    np.savez(tmp_path / "rows.npz", X=rows, y=np.arange(4000) % 5)
    RCA().fit(rows, np.arange(4000) % 5).save(tmp_path / "rca.safetensors")
    embed_in_parts(tmp_path / "rca.safetensors", str(tmp_path / "rows.npz"), tmp_path / "parts", part_size=1000)
    monkeypatch.setattr(from_parts, "ITEMS_READ", 1000)
    monkeypatch.setattr(blob_file, "LARGEST_BLOB", 600_000)
    index.build(tmp_path / "parts", None, tmp_path / "a.index")
    assert index.open(tmp_path / "a.index").count() == 4000


def test_items_of_a_folder_are_added_to_an_index(home, tmp_path):
    index.build(home / "file.npz", None, tmp_path / "a.index")
    before = all_of(tmp_path / "a.index")
    index.build(None, None, tmp_path / "a.index", remove=["c1", "n7"])
    line = index.build(home / "parts", None, tmp_path / "a.index", add=True, new=True)
    assert "11 items embedded; 39 were there already" in line
    assert sorted(all_of(tmp_path / "a.index")[0]) == sorted(before[0])


def test_a_name_in_two_blocks_is_refused_and_nothing_is_written(home, tmp_path, monkeypatch):
    arrays = dict(np.load(home / "rows.npz"))
    arrays["names"][44] = "n3"
    np.savez(tmp_path / "rows.npz", **arrays)
    embed_in_parts(home / "rca.safetensors", str(tmp_path / "rows.npz"), tmp_path / "parts", part_size=20)
    monkeypatch.setattr(from_parts, "ITEMS_READ", 10)
    index.build(home / "file.npz", None, tmp_path / "old.index")
    before = all_of(tmp_path / "old.index")
    for name in ("new.index", "old.index"):
        with pytest.raises(ValueError, match=r"^names: 1 item of .*parts have the name of another one$"):
            index.build(tmp_path / "parts", None, tmp_path / name, overwrite=True)
    assert all_of(tmp_path / "old.index") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.index", "parts", "rows.npz"]


def test_a_folder_with_missing_parts_is_refused(home, tmp_path):
    embed_in_parts(home / "rca.safetensors", str(home / "rows.npz"), tmp_path / "parts", part_size=20, shard="1/2")
    with pytest.raises(ValueError, match=r"1 of 3 parts is missing \(part-00001.parquet\)"):
        index.build(tmp_path / "parts", None, tmp_path / "new.index")
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]


def test_an_interrupted_index_embeds_nothing_again(home, tmp_path, monkeypatch):
    monkeypatch.setattr(from_parts, "PART_SIZE", 20)
    index.build(home / "rca.safetensors", str(home / "rows.npz"), tmp_path / "whole.index")
    embed = from_parts.embedded_by
    embedded = []

    def killed(model, items, data):
        if len(embedded) == 2:
            raise KeyboardInterrupt
        embedded.append(len(items))
        return embed(model, items, data)

    monkeypatch.setattr(from_parts, "embedded_by", killed)
    out = tmp_path / "new.index"
    with pytest.raises(KeyboardInterrupt):
        index.build(home / "rca.safetensors", str(home / "rows.npz"), out)
    assert not out.exists()
    assert embedded == [20, 20]
    embedded.append(0)
    index.build(home / "rca.safetensors", str(home / "rows.npz"), out)
    assert embedded == [20, 20, 0, 10]
    assert all_of(out) == all_of(tmp_path / "whole.index")
    assert not from_parts.kept_beside(out).exists()


def test_what_an_interrupted_index_has_embedded_is_not_used_for_other_items(home, tmp_path, monkeypatch):
    monkeypatch.setattr(from_parts, "PART_SIZE", 20)
    out = tmp_path / "new.index"
    embed_in_parts(home / "rca.safetensors", str(home / "rows.npz"), from_parts.kept_beside(out), part_size=20)
    arrays = dict(np.load(home / "rows.npz"))
    arrays["X"] = arrays["X"][::-1]
    np.savez(tmp_path / "rows.npz", **arrays)
    index.build(home / "rca.safetensors", str(tmp_path / "rows.npz"), out)
    found = index.open(out).in_memory()
    assert np.allclose(found.embeddings[::-1], np.load(home / "file.npz")["embeddings"], atol=1e-5)
    assert not from_parts.kept_beside(out).exists()


def test_a_folder_of_embeddings_that_has_the_name_of_what_is_kept_is_not_lost(home, tmp_path):
    out = tmp_path / "x.index"
    own = from_parts.kept_beside(out)
    embed_in_parts(home / "rca.safetensors", str(home / "rows.npz"), own, part_size=20)
    index.build(own, None, out)
    assert from_parts.holds_parts(own)
    (own / "notes.txt").write_text("mine")
    from_parts.remove_kept(home / "rca.safetensors", out)
    assert [file.name for file in own.iterdir()] == ["notes.txt"]
