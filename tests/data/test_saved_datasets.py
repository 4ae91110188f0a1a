"""Data sets of Hugging Face: folders that `save_to_disk` writes, and those in memory."""

import json
import pickle
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from nearfar.data import DataError, DataNotFoundError, as_items, open_dataset, open_items, open_task
from nearfar.data.decode import read_square
from nearfar.data.located import local_source
from nearfar.models.embedded import Selection
from nearfar.train import TrainConfig

from .conftest import png

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")
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


@pytest.fixture(scope="module")
def given():
    """Make a data set of Hugging Face, of images with classes."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    content = {"image": [{"bytes": png(i), "path": None} for i in range(12)], "label": [i % 4 for i in range(12)]}
    return datasets.Dataset.from_dict(content, features=features)


def values(items):
    return [int(items.read(i)[0, 0, 0]) for i in range(len(items))]


def test_what_the_library_itself_writes_is_read(tmp_path, given):
    given.save_to_disk(str(tmp_path / "one"))
    given.select([3, 1, 2]).save_to_disk(str(tmp_path / "picked"))
    items = open_dataset(tmp_path / "one")
    assert (items.classes, values(items)) == (tuple(NAMES), [*range(12)])
    assert values(open_dataset(tmp_path / "picked")) == [3, 1, 2]


def test_a_data_set_in_memory_is_a_source(given, monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    items = open_dataset(given)
    assert (items.classes, items.name, values(items)) == (tuple(NAMES), "dataset", [*range(12)])
    assert values(open_dataset(given.select([3, 1, 2]))) == [3, 1, 2]
    assert values(as_items(given)) == [*range(12)]
    task = open_task(datasets.DatasetDict({"train": given, "test": given.select(range(4))}), validation=0)
    assert (len(task.train), len(task.test)) == (12, 4)
    before = sorted((tmp_path / "cache").rglob("*.arrow"))
    open_dataset(given)
    assert sorted((tmp_path / "cache").rglob("*.arrow")) == before, "saved once"
    path = Selection(data=given).data
    assert (path, TrainConfig.of(data=given).data) == (local_source(given), path)
    assert open_dataset(path).classes == tuple(NAMES)


def test_data_sets_that_cannot_be_saved_are_refused_in_one_line(given, monkeypatch, tmp_path):
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match="has a transform, which is not saved; apply it with its method map"):
        open_dataset(given.with_transform(lambda rows: rows))
    with pytest.raises(DataError, match="IterableDataset is a stream; write it into files first"):
        open_dataset(IterableDataset())
    with pytest.raises(TypeError, match="expected a path or a name, got ndarray"):
        open_dataset(np.zeros(3))
    monkeypatch.setattr(type(given), "save_to_disk", full)
    with pytest.raises(DataError, match=r"cannot be saved to .*No space left"):
        open_dataset(given.select([1]))
    assert not list((tmp_path / "cache").rglob("dataset.*")), "nothing half-written stays"


class IterableDataset:
    """A stream of Hugging Face, by what it has."""

    features = None

    def __iter__(self):
        return iter(())


def full(self, place):
    (Path(place)).mkdir()
    raise OSError(28, "No space left on device")


def test_a_part_is_read_without_the_rest(tmp_path, monkeypatch):
    """Tables are mapped into memory, images are decoded when they are needed, and workers get a path."""
    pictures = [{"bytes": bytes(png(i)) + bytes(2**20), "path": None} for i in range(24)]  # 24 MB
    folder = saved(tmp_path / "photos", pyarrow.table({"image": pictures, "label": [i % 4 for i in range(24)]}))
    del pictures
    monkeypatch.setattr("nearfar.data.decode.IMAGE_MEMORY_BYTES", 0)
    before = pyarrow.total_allocated_bytes()
    items = open_dataset(folder)
    assert int(items.read(7)[0, 0, 0]) == 7
    assert pyarrow.total_allocated_bytes() - before < 2**21
    assert len(pickle.dumps(items.read)) < 10_000
    assert int(pickle.loads(pickle.dumps(items.read))(9)[0, 0, 0]) == 9


def test_sounds_of_hugging_face_are_sounds(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    clips = []
    for k in range(4):
        buffer = BytesIO()
        soundfile.write(buffer, np.full(800, k / 8, np.float32), 16_000, format="WAV")
        clips.append({"bytes": buffer.getvalue(), "path": f"{k}.wav"})
    features = {"audio": {"_type": "Audio"}, "label": {"_type": "ClassLabel", "names": NAMES}}
    made = pyarrow.table({"audio": clips, "label": [0, 1, 0, 1]})
    made = made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pyarrow.parquet.write_table(made, tmp_path / "clips.parquet")
    for source in (saved(tmp_path / "clips", made), tmp_path / "clips.parquet"):
        items = open_dataset(source)
        assert (items.kind, items.classes[:2]) == ("sound", ("apple", "kiwi"))
        assert items.read(3).mean() == pytest.approx(3 / 8, abs=1e-3)


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
