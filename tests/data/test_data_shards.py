"""Tar shards: images with their classes beside them, in one archive or in a folder of archives."""

import io
import json
import pickle
import tarfile

import numpy as np
import pytest

from nearfar.data import DataError, DataNotFoundError, open_dataset, open_items, open_task
from nearfar.data.readers.files import open_files
from nearfar.data.readers.shards import key_of

from .conftest import class_folders, png, write


def tarred(path, content, mode="w"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for name, data in content.items():
            data = data.encode() if isinstance(data, str) else data
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def samples(first=0, n=12, ending="cls"):
    content = {}
    for i in range(first, first + n):
        content[f"{i:06}.png"] = png(i)
        if ending == "cls":
            content[f"{i:06}.cls"] = f"{i % 4}\n"
        else:
            content[f"{i:06}.json"] = json.dumps({"label": f"kind {i % 4}", "caption": "a cat"})
    return content


@pytest.mark.parametrize("ending", ["cls", "json"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_class_lies_beside_the_image(ending, packed, tmp_path):
    name, mode = ("set.tar.gz", "w:gz") if packed else ("set.tar", "w")
    path = tarred(tmp_path / name, samples(ending=ending), mode)
    items = open_dataset(path)
    before = "" if ending == "cls" else "kind "
    assert items.classes == tuple(f"{before}{c}" for c in range(4))
    assert items.labels.tolist() == [i % 4 for i in range(12)]
    assert [int(items.read(i)[0, 0, 0]) for i in range(12)] == list(range(12))
    assert open_task(path).protocol.startswith("set: train")
    assert open_items(path).classes == items.classes


def test_a_folder_of_shards_is_one_set(tmp_path):
    for shard in range(3):
        tarred(tmp_path / "set" / f"train-{shard:06}.tar", samples(4 * shard, 4))
    (tmp_path / "set" / "sizes.json").write_text("{}")
    items = open_dataset(tmp_path / "set")
    assert (len(items), items.classes) == (12, ("0", "1", "2", "3"))
    assert items.names[4] == "train-000001.tar/000004.png"
    assert [int(items.read(i)[0, 0, 0]) for i in range(12)] == list(range(12))
    files = open_files(tmp_path / "set")
    assert files.archive(items.names[4]).name == "train-000001.tar"
    assert items.names[4] in files
    assert "train-000001.tar/none.png" not in files
    assert "other.tar/000004.png" not in files
    with pytest.raises(DataNotFoundError, match="none of its archives has a file"):
        files.read("other.tar/000004.png")
    again = pickle.loads(pickle.dumps(files))
    assert again.read(items.names[4]) == files.read(items.names[4])


def test_classes_go_on_from_archive_to_archive(tmp_path):
    content = class_folders(3, 4)
    for shard, number in enumerate(("0.png", "1.png", "2.png", "3.png")):
        part = {name: data for name, data in content.items() if name.endswith(number)}
        tarred(tmp_path / "set" / f"{shard}.tar", part)
    items = open_dataset(tmp_path / "set")
    assert (items.classes, items.class_counts.tolist()) == (("class0", "class1", "class2"), [4, 4, 4])


def test_other_folders_with_an_archive_are_as_before(tmp_path):
    write(tmp_path / "set", class_folders(3, 4))
    tarred(tmp_path / "set" / "backup.tar", samples())
    assert open_dataset(tmp_path / "set").classes == ("class0", "class1", "class2")


def test_several_images_of_a_sample_have_its_class(tmp_path):
    content = {"a/1.left.png": png(1), "a/1.right.png": png(2), "a/1.cls": "7", "b/1.png": png(3), "b/1.cls": "8"}
    items = open_dataset(tarred(tmp_path / "set.tar", content))
    assert [items.classes[label] for label in items.labels] == ["7", "7", "8"]
    assert key_of("a.b/1.left.png") == ("a.b/1", "left.png")


def test_images_without_a_class_are_told_or_have_none(tmp_path):
    path = tarred(tmp_path / "set.tar", samples() | {"x.png": png(9), "y.png": png(8), "y.json": "{}"})
    items = open_dataset(path)
    assert len(items) == 12
    assert "2 images without a class left out (x.png, y.png)" in items.notes
    assert open_items(path).classes == ("", "0", "1", "2", "3")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("0.json", "[1]", "expected a JSON object with the class as label or class or cls"),
        ("0.json", "{", "not readable as JSON"),
        ("0.json", '{"label": [1]}', "expected a text or an integer as the class"),
        ("0.cls", b"\xff\xfe\x00", "the class is not UTF-8 text"),
        ("0.cls", "1\n2", "expected one line with the class"),
    ],
)
def test_a_class_that_cannot_be_read_is_named(name, content, words, tmp_path):
    path = tarred(tmp_path / "set.tar", {"0.png": png(1), name: content})
    with pytest.raises(DataError, match=words) as error:
        open_dataset(path)
    assert name in str(error.value)


def test_nothing_of_a_shard_is_run(tmp_path, monkeypatch):
    class Harmful:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    harm = pickle.dumps(Harmful())
    content = samples() | {"000000.pyd": harm, "000000.pickle": harm, "000001.pth": harm, "000002.npy": harm}
    assert len(open_dataset(tarred(tmp_path / "set.tar", content))) == 12
    monkeypatch.chdir(tmp_path)
    for source in ("pipe:touch ran", "pipe:cat set.tar", "set.tar | touch ran"):
        with pytest.raises(DataNotFoundError, match="neither a file, a folder nor a known name"):
            open_dataset(source)
    assert not (tmp_path / "ran").exists()


def test_a_member_outside_is_refused(tmp_path):
    with pytest.raises(DataError, match="leads out of the archive"):
        open_dataset(tarred(tmp_path / "set.tar", samples() | {"../out.png": png(1)}))


def test_features_of_shards_are_stamped_by_their_archives(tmp_path):
    pytest.importorskip("torch")
    from dataclasses import replace

    from nearfar.train.features import _stamps

    for shard in range(2):
        tarred(tmp_path / "set" / f"{shard}.tar", samples(4 * shard, 4))
    items = open_dataset(tmp_path / "set")
    items = replace(items, array=None, read=items.stored or items.read)
    before = list(_stamps(items))
    tarred(tmp_path / "set" / "1.tar", samples(4, 5))
    after = list(_stamps(items))
    assert after[:4] == before[:4]
    assert all(new != old for new, old in zip(after[4:], before[4:], strict=True))
    assert np.isfinite(len(after))
