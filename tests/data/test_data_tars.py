"""Tar archives of class folders, also of strangers."""

import io
import pickle
import tarfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nearfar.data import DataError, DataNotFoundError, open_dataset, open_task
from nearfar.data.checks.shared_images import remark_shared
from nearfar.data.items import NamedReader, open_items
from nearfar.data.readers.files import open_files

from .conftest import class_folders, png, write


def tarred(path, content, *more, kind=tarfile.GNU_FORMAT, top=""):
    """Write files, and members as they are, into a tar archive, packed as its name says."""
    mode = "w" if path.suffix == ".tar" else "w:gz"
    with tarfile.open(path, mode, format=kind) as archive:
        for name, data in content.items():
            member = tarfile.TarInfo(top + name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for member in more:
            archive.addfile(member)
    return path


def member(name, kind=tarfile.REGTYPE, target=""):
    made = tarfile.TarInfo(name)
    made.type = kind
    made.linkname = target
    return made


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tgz"])
@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_a_tar_is_read_as_the_folder(tmp_path, ending, kind):
    name = "class1/x.png" if kind == tarfile.USTAR_FORMAT else f"class1/{'long' * 30}é.png"
    content = class_folders() | {name: png(3)}
    folder = open_dataset(write(tmp_path / "set", content))
    packed = open_dataset(tarred(tmp_path / f"set{ending}", content, kind=kind, top="./"))
    assert packed.name == "set"
    assert packed.classes == folder.classes
    assert packed.names == folder.names
    assert np.array_equal(packed.array, folder.array)
    assert np.array_equal(packed.labels, folder.labels)
    assert len(open_task(tmp_path / f"set{ending}", validation=0).train.classes) == 2


@pytest.mark.parametrize("ending", [".tar", ".tar.gz"])
def test_files_are_read_from_their_places_by_threads_and_other_processes(tmp_path, ending):
    content = {f"c/{i}.bin": bytes([i]) * (1000 + i) for i in range(50)}
    files = open_files(tarred(tmp_path / f"a{ending}", content))
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(files.read, content)) == list(content.values())
    assert pickle.loads(pickle.dumps(files)).read("c/7.bin") == content["c/7.bin"]
    with pytest.raises(DataNotFoundError, match="has no file 'c/99'"):
        files.read("c/99")


def test_a_name_that_was_written_twice_is_the_later_file(tmp_path):
    path = tarred(tmp_path / "a.tar", {"c/a": b"old"})
    with tarfile.open(path, "a") as archive:
        later = tarfile.TarInfo("./c/a")
        later.size = 3
        archive.addfile(later, io.BytesIO(b"new"))
    assert open_files(path).names() == ["c/a"]
    assert open_files(path).read("c/a") == b"new"


def test_hidden_members_are_left_out(tmp_path):
    files = open_files(tarred(tmp_path / "a.tar", {"c/._a.png": b"", "__MACOSX/a.png": b"", "c/a.png": b""}))
    assert files.names() == ["c/a.png"]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (member("/etc/a.png"), "'/etc/a.png' leads out of the archive"),
        (member("c/../../a.png"), r"'c/../../a.png' leads out of the archive"),
        (
            member("c/a.png", tarfile.SYMTYPE, "/etc/passwd"),
            "is a link; create the archive again with tar --dereference",
        ),
        (member("c/a.png", tarfile.LNKTYPE, "c/b.png"), "is a link"),
        (member("c/a.png", tarfile.CHRTYPE), "is a device or the like"),
        (member("c/a.png", tarfile.BLKTYPE), "is a device or the like"),
        (member("c/a.png", tarfile.FIFOTYPE), "is a device or the like"),
    ],
    ids=["absolute", "up", "symbolic", "hard", "character", "block", "pipe"],
)
def test_members_that_lead_elsewhere_are_refused_in_one_line(tmp_path, bad, told):
    path = tarred(tmp_path / "a.tar", class_folders(), bad)
    for opened in (open_dataset, open_items):
        with pytest.raises(DataError, match=told) as caught:
            opened(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)


def test_damaged_archives_are_told(tmp_path):
    path = tarred(tmp_path / "a.tar", class_folders())
    whole = path.read_bytes()
    for damaged in (b"", b"no tar" * 200, whole[:3000], whole[:700], whole[:1024] + b"\xff" * 512 + whole[1536:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError) as caught:
            open_dataset(path)
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)
    packed = tarred(tmp_path / "a.tar.gz", class_folders())
    packed.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"not a readable \.tar\.gz archive"):
        open_dataset(packed)


def test_what_would_fill_the_disk_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("nearfar.io.untrusted.FREE_BYTES", 10_000)
    path = tarred(tmp_path / "a.tar.gz", {"c/zeros.png": bytes(4_000_000)})
    with pytest.raises(DataError, match="unpacks to"):
        open_dataset(path)
    monkeypatch.setattr("nearfar.data.readers.tar_files.LARGEST_IMAGE", 1000)
    files = open_files(tarred(tmp_path / "b.tar", {"c/a.png": bytes(1001)}))
    with pytest.raises(DataError, match=r"c/a\.png: cannot be read \(it is larger than"):
        files.read("c/a.png")


@pytest.mark.parametrize("ending", [".tar.bz2", ".tar.xz"])
def test_other_packings_say_how_to_unpack(tmp_path, ending):
    path = tmp_path / f"a{ending}"
    path.write_bytes(b"")
    with pytest.raises(DataError, match=rf"unpack it first \(tar xf a{ending}\)"):
        open_dataset(path)


def test_images_of_an_index_lead_into_a_tar(tmp_path):
    tarred(tmp_path / "set.tar", class_folders())
    reader = NamedReader(["set.tar/class1/2.png"], folder=tmp_path)
    assert reader.leads(0)
    assert set(reader(0).ravel().tolist()) == {12}


def test_shared_images_of_tars_are_remarked(tmp_path):
    sized = {f"c{c}/{i}.png": png(10 * c + i, (12 + i, 10)) for c in range(4) for i in range(3)}
    other = {f"d{c}/{i}.png": png(100 + 10 * c + i, (12 + i, 10)) for c in range(4) for i in range(3)}
    test = tarred(tmp_path / "test.tar", other | {"d0/copy.png": sized["c1/2.png"]})
    task = open_task(tarred(tmp_path / "train.tar", sized), test=test)
    assert "1 test image is also a training image (d0/copy.png)" in remark_shared(task)
