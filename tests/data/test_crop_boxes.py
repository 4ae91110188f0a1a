"""Crop boxes that reach beyond their image, in every kind of table: cut at its edges, or one line."""

from __future__ import annotations

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
Image = pytest.importorskip("PIL.Image")

from nearfar.data.dataset import DataError
from nearfar.data.open import open_dataset
from nearfar.io.formats import TABLES, TEXT_TABLES

PIXELS = np.arange(10 * 12 * 3, dtype=np.uint8).reshape(10, 12, 3)
BEYOND = {(-3, -4, 5, 5): PIXELS[:5, :5], (5, 5, 30, 40): PIXELS[5:, 5:], (0, 0, 12, 10): PIXELS}
WRITERS = {".csv": "to_csv", ".tsv": "to_csv", ".xlsx": "to_excel", ".feather": "to_feather", ".parquet": "to_parquet"}
every_table = pytest.mark.parametrize("ending", TABLES)


def write(folder, ending, boxes):
    Image.fromarray(PIXELS).save(folder / "a.png")
    columns = pd.DataFrame(list(boxes), columns=["x1", "y1", "x2", "y2"])
    table = pd.DataFrame({"path": ["a.png"] * len(boxes), "label": list("abc")[: len(boxes)]}).join(columns)
    path = folder / f"table{ending}"
    plain = ending.removesuffix(".gz").removesuffix(".zip") if ending.endswith((".gz", ".zip")) else ending
    how = {"index": False}
    if plain == ".tsv":
        how["sep"] = "\t"
    if plain in (".jsonl", ".ndjson", ".json"):
        how = {"orient": "records", "lines": plain != ".json"}
    if plain == ".feather":
        how = {}
    if plain in TEXT_TABLES and plain != ending:
        how["compression"] = "gzip" if ending.endswith(".gz") else {"method": "zip", "archive_name": f"table{plain}"}
    getattr(table, WRITERS.get(plain, "to_json"))(path, **how)
    return path


@every_table
def test_boxes_are_cut_at_the_edges_of_the_image(tmp_path, ending):
    items = open_dataset(str(write(tmp_path, ending, BEYOND)))
    for i, expected in enumerate(BEYOND.values()):
        np.testing.assert_array_equal(items.read(i), expected)


@every_table
def test_a_box_without_pixels_is_one_line_and_can_be_left_out(tmp_path, ending):
    for box in ((12, 0, 20, 5), (0, 10, 5, 11), (-9, -9, 0, 0)):
        path = str(write(tmp_path, ending, [*list(BEYOND)[:2], box]))
        with pytest.raises(DataError) as found:
            open_dataset(path).read(2)  # images of several sizes are decoded when they are needed
        told = str(found.value)
        assert told.splitlines()[0] == told
        assert f"a.png: the crop box {box} holds no pixel of the 12x10 image" in told
        items = open_dataset(path, skip_bad=True)
        assert len(items) == 2
        assert len(items.bad) == 1
