"""Files of embeddings with their names and labels."""

import numpy as np
import pytest

from nearfar.data import Dataset
from nearfar.models import written
from nearfar.models.written import write_embeddings


def items_and_rows(seed=0):
    rows = np.random.default_rng(seed).normal(size=(6, 4)).astype(np.float32)
    return Dataset.from_array("rows", rows, np.arange(6) // 2), rows


def test_a_parquet_table_has_room_for_more_numbers_than_32_bits_count(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    write_embeddings(tmp_path / "rows.parquet", *items_and_rows(), "cosine")
    kind = parquet.read_schema(tmp_path / "rows.parquet").field("embedding").type
    assert (kind.num_buffers, kind.list_size) == (1, 4)  # none of offsets


def test_names_beside_a_faiss_file_stay_where_its_vectors_cannot_be_written(tmp_path, monkeypatch):
    write_embeddings(tmp_path / "rows.faiss", *items_and_rows(), "cosine")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full_disk(file, rows, distance):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(written, "write_flat", full_disk)
    items, rows = items_and_rows(seed=1)
    with pytest.raises(OSError, match=r"rows.faiss: cannot be written \(No space left"):
        write_embeddings(tmp_path / "rows.faiss", items.subset(np.arange(6)[::-1]), rows, "cosine")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
