"""Folders that `save_to_disk` of Hugging Face's datasets writes, and their objects."""

import json
import pickle
from io import BytesIO

import numpy as np
import pytest

from nearfar.data import DataError, DataNotFoundError, from_datasets, open_dataset, open_items, open_task
from nearfar.data.decode import read_square

from .conftest import png

pyarrow = pytest.importorskip("pyarrow")
Image = pytest.importorskip("PIL.Image")

NAMES = ["apple", "kiwi", "pear", "plum"]


def table(n=12, first=0):
    pictures = [{"bytes": png(first + i), "path": None} for i in range(n)]
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": NAMES}}
    made = pyarrow.table({"image": pictures, "label": [i % 4 for i in range(n)], "price": [1.5] * n})
    return made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def saved(folder, made, files=2, **state):
    """Write a table as `save_to_disk` does: streams of Arrow, listed in state.json."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data-{k:05}-of-{files:05}.arrow" for k in range(files)]
    step = -(-made.num_rows // files)
    for k, name in enumerate(names):
        with pyarrow.OSFile(str(folder / name), "wb") as sink, pyarrow.ipc.new_stream(sink, made.schema) as writer:
            writer.write_table(made.slice(k * step, step), max_chunksize=3)
    content = {"_data_files": [{"filename": name} for name in names], "_split": None, **state}
    (folder / "state.json").write_text(json.dumps(content))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def test_images_and_classes_are_read(tmp_path):
    folder = saved(tmp_path / "fruit", table())
    items = open_dataset(folder)
    assert items.classes == tuple(NAMES)
    assert items.labels.tolist() == [i % 4 for i in range(12)]
    assert [int(items.read(i)[0, 0, 0]) for i in range(12)] == list(range(12))
    assert items.names[3] == "fruit[3]"
    assert open_items(folder).names == items.names
    assert open_task(folder).protocol.startswith("fruit: train")
    assert open_dataset(folder, label="price").classes == ("1.5",)
    read = items.stored or items.read
    assert (pickle.loads(pickle.dumps(read))(5) == items.read(5)).all()


def test_a_folder_and_a_table_may_name_their_labels(tmp_path):
    rows = np.arange(24, dtype=np.float32).reshape(8, 3)
    made = pyarrow.table({"species": list("aabbccdd"), "embedding": rows.tolist()})
    lines = ["species,embedding", *(f'{kind},"[{i}, 1, 2]"' for i, kind in enumerate("eeff"))]
    (tmp_path / "new.csv").write_text("\n".join(lines))
    task = open_task(saved(tmp_path / "old", made), test=tmp_path / "new.csv", label="species", validation=0)
    assert (task.train.classes, task.test.classes) == (("a", "b", "c", "d"), ("e", "f"))


def large(color):
    """A photo that is kept as a shrunk copy."""
    noise = np.random.default_rng(0).integers(0, 9, (600, 600, 3), np.uint8)
    buffer = BytesIO()
    Image.fromarray(noise + np.uint8(color)).save(buffer, "PNG")
    return buffer.getvalue()


def test_a_data_set_that_is_saved_again_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "photos"
    for color in (20, 200):
        made = pyarrow.table({"image": [{"bytes": large(color), "path": None}] * 2, "label": ["a", "b"]})
        saved(folder, made, files=1)
        items = open_dataset(folder)
        assert read_square(items.read, 0, 16).mean() == pytest.approx(color + 4, abs=2)


def test_photos_of_an_object_are_not_taken_from_another(tmp_path, monkeypatch):
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dataset").mkdir()  # the default name of an object
    for color in (20, 200):
        made = pyarrow.table({"image": [{"bytes": large(color), "path": None}] * 2, "label": [0, 1]})
        items = from_datasets(Given(made))
        assert read_square(items.read, 0, 16).mean() == pytest.approx(color + 4, abs=2)


def test_parts_by_name_are_the_split(tmp_path):
    for k, part in enumerate(("train", "test")):
        saved(tmp_path / "fruit" / part, table(12, 20 * k))
    (tmp_path / "fruit" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    task = open_task(tmp_path / "fruit", validation=0)
    assert (len(task.train), len(task.test)) == (12, 12)
    assert int(task.test.read(0)[0, 0, 0]) == 20


def test_rows_and_embeddings_are_read(tmp_path):
    rows = np.arange(24, dtype=np.float32).reshape(8, 3)
    made = pyarrow.table({"text": list("abcdefgh"), "label": [0, 1] * 4, "embedding": rows.tolist()})
    items = open_dataset(saved(tmp_path / "texts", made))
    np.testing.assert_array_equal(items.array, rows)
    assert (items.names[:2], items.classes) == (("a", "b"), ("0", "1"))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"_data_files": []}, "expected a list of files"),
        ({"_data_files": [{"filename": "../data.arrow"}]}, "which is not a file in the folder"),
        ({"_data_files": [{"filename": "/etc/passwd"}]}, "which is not a file in the folder"),
        ({"_data_files": [{"filename": "none.arrow"}]}, "not a readable folder of datasets"),
        ({"_data_files": [{"filename": "state.json"}]}, "not a readable folder of datasets"),
        ({"_indices_data_files": [{"filename": "indices.arrow"}]}, "no separate order of their rows"),
        ({"_data_files": 3}, "expected a list of files"),
    ],
)
def test_what_is_wrong_with_a_folder_is_one_line(state, words, tmp_path):
    folder = saved(tmp_path / "fruit", table(), **state)
    with pytest.raises(DataError, match=words) as error:
        open_dataset(folder)
    assert "\n" not in str(error.value)


def test_images_that_are_not_in_the_folder_are_told(tmp_path):
    (tmp_path / "x.png").write_bytes(png(1))
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    cells = pyarrow.array([{"bytes": None, "path": str(tmp_path / "x.png")}] * 4, kind)
    folder = saved(tmp_path / "fruit", pyarrow.table({"image": cells, "label": list("aabb")}), files=1)
    with pytest.raises(DataError, match=r"fruit\[0\] has no bytes; save it again"):
        open_dataset(folder)
    with pytest.raises(DataNotFoundError, match="has no image"):
        open_dataset(saved(tmp_path / "other", table())).stored.files.read("none")


class Given:
    """What an object of datasets offers, and is used of it."""

    class Classes:
        names = NAMES

    def __init__(self, made):
        self.made = made
        self.features = {"image": object(), "label": self.Classes(), "price": object()}

    def with_format(self, kind):
        assert kind == "arrow"
        return self

    def __getitem__(self, rows):
        assert rows == slice(None)
        return self.made


def test_an_object_is_taken_as_it_is(tmp_path):
    (tmp_path / "x.png").write_bytes(png(7))
    made = table().replace_schema_metadata(None)
    items = from_datasets(Given(made), name="fruit")
    assert (items.classes, items.name) == (tuple(NAMES), "fruit")
    assert [int(items.read(i)[0, 0, 0]) for i in range(12)] == list(range(12))
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    cells = pyarrow.array([{"bytes": None, "path": str(tmp_path / "x.png")}] * 4, kind)
    items = from_datasets(Given(pyarrow.table({"image": cells, "label": [0, 0, 1, 1], "price": [1.0] * 4})))
    assert int(items.read(3)[0, 0, 0]) == 7
    for wrong in ([1], {"train": 1}, None):
        with pytest.raises(DataError, match="expected one set of Hugging Face's datasets"):
            from_datasets(wrong)


def test_what_the_library_itself_writes_is_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    content = {"image": [{"bytes": png(i), "path": None} for i in range(12)], "label": [i % 4 for i in range(12)]}
    made = datasets.Dataset.from_dict(content, features=features)
    made.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": made, "test": made.select(range(4))}).save_to_disk(str(tmp_path / "parts"))
    made.select([3, 1, 2]).save_to_disk(str(tmp_path / "picked"))
    for items in (open_dataset(tmp_path / "one"), from_datasets(made)):
        assert items.classes == tuple(NAMES)
        assert [int(items.read(i)[0, 0, 0]) for i in range(12)] == list(range(12))
    assert len(open_task(tmp_path / "parts", validation=0).test) == 4
    assert [int(open_dataset(tmp_path / "picked").read(i)[0, 0, 0]) for i in range(3)] == [3, 1, 2]
    assert [int(from_datasets(made.select([3, 1, 2])).read(i)[0, 0, 0]) for i in range(3)] == [3, 1, 2]


def test_a_text_of_negative_length_is_refused_in_one_line(tmp_path):
    folder = saved(tmp_path / "texts", pyarrow.table({"text": list("abc"), "label": list("xxy")}), files=1)
    file = next(folder.glob("*.arrow"))
    offsets = np.arange(4, dtype=np.int32).tobytes()
    damaged = np.array([0, 1, -7, 3], np.int32).tobytes()
    content = file.read_bytes()
    assert offsets in content
    file.write_bytes(content.replace(offsets, damaged))
    with pytest.raises(DataError, match="texts: not a readable folder of datasets"):
        open_dataset(folder)
