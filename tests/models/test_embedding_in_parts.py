"""Embedding into a folder: kills and failures at any moment, shards, other models and data, items of every kind."""

import errno
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from nearfar import RCA
from nearfar.data import open_items
from nearfar.data.blocks import open_blocks
from nearfar.data.dataset import DataError
from nearfar.data.table_columns import TableColumns
from nearfar.io import atomic_files, untrusted
from nearfar.models import embedding_in_parts, embedding_processes
from nearfar.models.embedded import embed_to
from nearfar.models.embedding_in_parts import embed_in_parts
from nearfar.progress import listening
from nearfar.workflows import embed

from ..data.conftest import png, write

HOSTILE = [
    "a\nb",
    "../../etc/passwd",
    "/absolute",
    "nul\0inside",
    "🐟 fish",
    "caf\udce9",  # Latin-1, as the names of files are read
    "\ud800",
    "",
    "=cmd()",
    "x" * 3000,
    "\x1b[2J",
    "part-00000.parquet",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two learners, and rows as an `.npz` with names, classes and groups, and as an `.npy`."""
    folder = tmp_path_factory.mktemp("embedding")
    rng = np.random.default_rng(0)
    labels = np.arange(50) % 5
    rows = rng.normal(size=(5, 4))[labels] + 0.3 * rng.normal(size=(50, 4))
    names = [f"n{i}" for i in range(50)]
    np.savez(folder / "rows.npz", X=rows, y=[f"c{y}" for y in labels], names=names, groups=labels % 2)
    np.save(folder / "rows.npy", rows)
    for name, classes in (("rca", labels), ("other", labels // 2)):
        RCA().fit(rows, classes).save(folder / f"{name}.safetensors")
    return folder


def written(home, out, data="rows.npz", model="rca", **how):
    """Embed into a folder, in parts of 20 items."""
    return embed_in_parts(home / f"{model}.safetensors", str(home / data), out, **{"part_size": 20, **how})


def content(folder):
    """The bytes of all files of a folder, also of those that are hidden."""
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@pytest.fixture(scope="module")
def whole(home):
    """The folder that is written without an interruption."""
    written(home, home / "whole")
    return content(home / "whole")


class Killed(BaseException):
    """The process ends here."""


class Interrupting:
    """The module `os` and the function `open` of `atomic_files`, which fail before or after one of their calls.

    After a kill, nothing is removed any more. A failed write has written half. What fails otherwise has opened no file.
    """

    def __init__(self, monkeypatch, at, failure):
        self.left = at
        self.failure = failure
        self.dead = False
        monkeypatch.setattr(atomic_files, "os", self)
        monkeypatch.setattr(atomic_files, "open", self.open_file, raising=False)
        unlink = Path.unlink
        monkeypatch.setattr(Path, "unlink", lambda path, **how: self.dead or unlink(path, **how))

    def __getattr__(self, name):
        function = getattr(os, name)
        if name not in ("open", "fsync", "replace", "dup"):
            return function

        def call(*given, **how):
            self.step()
            found = function(*given, **how)
            if name in ("fsync", "replace") or (name == "open" and isinstance(self.failure, Killed)):
                self.step()
            return found

        return call

    def open_file(self, *given, **how):
        return HalfFile(open(*given, **how), self)

    def step(self):
        self.left -= 1
        if self.left == 0:
            self.dead = isinstance(self.failure, Killed)
            raise self.failure


class HalfFile:
    """A file of which a write may fail when half of it is done."""

    def __init__(self, file, interrupting):
        self.file = file
        self.interrupting = interrupting

    def write(self, data):
        data = memoryview(data)
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        self.interrupting.step()
        self.file.write(data[len(data) // 2 :])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()


def message_of(call):
    """What a call that fails says, in one line; "" if it does not fail."""
    said = ""
    try:
        call()
    except (Killed, OSError, ValueError) as error:
        said = str(error) or "killed"
    assert "\n" not in said
    return said


@pytest.mark.parametrize("failure", [Killed(), OSError(errno.ENOSPC, "No space left on device")], ids=["kill", "full"])
def test_a_failure_before_or_after_any_write_changes_nothing_of_the_result(home, whole, tmp_path, failure):
    """After a kill or a full disk, the folder has complete parts only, and the same call makes it the whole folder."""
    model = embedding_in_parts.load(home / "rca.safetensors")
    for at in itertools.count(1):
        out = tmp_path / str(at)
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(embedding_in_parts, "load", lambda source: model)
            interrupting = Interrupting(monkeypatch, at, failure)
            said = message_of(partial(written, home, out))
        if interrupting.left > 0:
            break
        left = content(out) if out.exists() else {}
        if isinstance(failure, OSError):
            assert "cannot be written (No space left on device)" in said
            assert set(left) <= set(whole), "something half-written is left"
        there = {name: data for name, data in left.items() if not name.endswith(".partial")}
        assert there.items() <= whole.items()
        written(home, out)
        assert content(out) == whole
    assert at > 20


def test_shards_in_any_order_and_number_make_the_same_folder(home, whole, tmp_path):
    for shards in (["1/2", "2/2"], ["3/3", "1/3", "2/3"], ["2/5", "2/5", "1/1"], ["7/9", "1/9", "2/9", "3/9"]):
        out = tmp_path / shards[0].replace("/", "of")
        left = [len(written(home, out, shard=shard).missing) for shard in shards]
        assert left == sorted(left, reverse=True)
        assert left[-1] == 0
        assert content(out) == whole


def test_two_processes_that_write_the_same_part_at_once_do_not_disturb_each_other(home, whole, tmp_path, monkeypatch):
    """The second one begins and ends while the first one embeds."""
    embedded = embedding_in_parts.embedded_part
    inner = iter([True])

    def slow(*given):
        if next(inner, False):
            assert not written(home, tmp_path / "out").missing
        return embedded(*given)

    monkeypatch.setattr(embedding_in_parts, "embedded_part", slow)
    written(home, tmp_path / "out")
    assert content(tmp_path / "out") == whole


@pytest.mark.parametrize("shard", ["0/4", "5/4", "a/b", "1/0", "-1/4", "1", "1/4/2", "1.5/4", " 1/4", "\n"])
def test_a_shard_that_is_none_is_refused_in_one_line(home, tmp_path, shard):
    with pytest.raises(ValueError, match=r"^shard: expected a number of how many, such as 3/16.*got") as error:
        written(home, tmp_path / "out", shard=shard)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"model": "other"}, "another model"),
        ({"data": "rows.npy"}, "other data, names or classes"),
        ({"part_size": 10}, "part_size=20, not 10"),
        ({"dims": 2}, "embeddings of 4 dimensions, not 2"),
    ],
)
def test_a_folder_of_something_else_is_refused_and_kept(home, whole, tmp_path, how, what):
    out = tmp_path / "out"
    written(home, out, shard="2/3")
    before = content(out)
    with pytest.raises(ValueError, match=rf"^out: .* was begun with {what}.*or replace it with overwrite=True$"):
        written(home, out, **how)
    assert content(out) == before
    written(home, out, **how, overwrite=True)
    fresh = tmp_path / "fresh"
    written(home, fresh, **how)
    assert content(out) == content(fresh)


def test_changed_data_are_other_data(home, tmp_path):
    """Also where names, labels and numbers of items are the same."""
    rows = dict(np.load(home / "rows.npz"))
    photos = write(tmp_path / "photos", {f"c{i % 2}/{i}.png": png(i, (40, 30 + i)) for i in range(4)})
    np.savez(tmp_path / "rows.npz", **rows)
    np.save(tmp_path / "rows.npy", rows["X"])
    table = write(tmp_path, {"texts.csv": "text,label\nred,a\nblue,b\n"}) / "texts.csv"
    sources = [tmp_path / "rows.npz", tmp_path / "rows.npy", table, photos]
    before = [embedding_in_parts.open_blocks(str(source)).listing for source in sources]
    assert before == [embedding_in_parts.open_blocks(str(source)).listing for source in sources]
    rows["X"][7, 2] += 1e-3
    np.savez(tmp_path / "rows.npz", **rows)
    np.save(tmp_path / "rows.npy", rows["X"])
    table.write_text("text,label\nred,a\ngrey,b\n")
    (photos / "c0" / "2.png").write_bytes(png(9, (400, 300)))
    after = [embedding_in_parts.open_blocks(str(source)).listing for source in sources]
    assert not set(before) & set(after)
    assert len({*before, *after}) == 8


def test_a_job_of_a_folder_that_another_one_has_replaced_stops(home, tmp_path, monkeypatch):
    out = tmp_path / "out"
    embedded = embedding_in_parts.embedded_part
    inner = iter([True])

    def replaced(*given):
        if next(inner, False):
            written(home, out, model="other", overwrite=True)
        return embedded(*given)

    monkeypatch.setattr(embedding_in_parts, "embedded_part", replaced)
    with pytest.raises(ValueError, match="was begun with another model"):
        written(home, out)
    assert not written(home, out, model="other").missing


def test_a_shard_does_not_remove_what_others_write(home, tmp_path):
    with pytest.raises(ValueError, match="overwrite: not with shard=1/2"):
        written(home, tmp_path / "out", shard="1/2", overwrite=True)


def test_a_part_that_exists_half_or_is_of_another_folder_is_written_again(home, whole, tmp_path):
    out = tmp_path / "out"
    other = tmp_path / "other"
    written(home, out)
    written(home, other, model="other")
    for data in (
        whole["part-00001.parquet"][:-9],
        b"",
        content(other)["part-00001.parquet"],
        whole["part-00000.parquet"],
    ):
        (out / "part-00001.parquet").write_bytes(data)
        with pytest.raises(DataError, match=r"part-00001\.parquet: not a readable part of embeddings"):
            open_items(str(out))
        assert written(home, out).found == [0, 2]
        assert content(out) == whole


def test_readers_name_the_parts_that_are_missing(home, tmp_path):
    written(home, tmp_path / "out", shard="2/3")
    missing = r"out: 2 of 3 parts are missing \(part-00000.parquet, part-00002.parquet\); `nearfar embed` with the same"
    with pytest.raises(DataError, match=missing):
        open_items(str(tmp_path / "out"))


def test_no_flipped_bit_is_read_in_silence(home, whole, tmp_path):
    out = tmp_path / "out"
    written(home, out)
    right = open_items(str(out))
    path = out / "part-00001.parquet"
    rng = np.random.default_rng(0)
    noticed = 0
    for at in rng.integers(len(path.read_bytes()) * 8, size=60).tolist():
        data = bytearray(whole[path.name])
        data[at // 8] ^= 1 << at % 8
        path.write_bytes(data)
        if message_of(partial(open_items, str(out))):
            noticed += 1
            continue
        found = open_items(str(out))
        assert np.array_equal(found.array, right.array)
        assert (found.names, found.classes) == (right.names, right.classes)
        assert np.array_equal(found.labels, right.labels)
    assert noticed > 20


def test_names_classes_and_groups_of_any_characters_come_back(home, tmp_path):
    rows = np.random.default_rng(1).normal(size=(len(HOSTILE), 4)).astype(np.float32)
    labels = [HOSTILE[-1 - i] for i in range(len(HOSTILE))]
    np.savez(tmp_path / "rows.npz", X=rows, y=labels, names=HOSTILE, groups=labels)
    embed_in_parts(home / "rca.safetensors", str(tmp_path / "rows.npz"), tmp_path / "out", part_size=5)
    found = open_items(str(tmp_path / "out"))
    given = open_items(str(tmp_path / "rows.npz"))
    assert found.names == given.names
    assert [found.classes[label] for label in found.labels] == [given.classes[label] for label in given.labels]
    assert found.groups.tolist() == given.groups.tolist()


class Statistics:
    """A model of all kinds of items."""

    takes = ("row", "image", "text", "sound")
    distance = "cosine"
    dimensions = 3
    fingerprint = "statistics"
    table_columns = TableColumns()

    def embed(self, items, *, prompt=None):
        found = []
        for i in range(len(items)):
            numbers = [*items.texts[i].encode()] if items.kind == "text" else items.read(i)
            found.append([np.sum(numbers), np.mean(numbers), np.max(numbers)])
        return np.array(found)


@pytest.fixture
def statistics(monkeypatch):
    for module in ("embedding_in_parts", "embedded"):
        monkeypatch.setattr(f"nearfar.models.{module}.load", lambda source: Statistics())


def test_a_folder_has_the_names_and_classes_that_the_training_has_read(statistics, tmp_path, monkeypatch):
    monkeypatch.setattr(Statistics, "table_columns", TableColumns(label="kind", name="code"))
    data = str(write(tmp_path, {"a.csv": "code,id,x,label,kind\na,1,1,u,v\nb,2,3,u,w\n"}) / "a.csv")
    embed_in_parts("timm:any", data, tmp_path / "parts")
    found = open_items(str(tmp_path / "parts"))
    assert (found.names, found.classes) == (("a", "b"), ("v", "w"))


def photos_in(folder):
    names = {"c 1/a'b.png": 3, "c 1/🐟.png": 4, "ü/x;y.png": 5, "loose.png": 6, "ü/large.png": 7}
    write(folder, {name: png(value, (20 + 700 * (value == 7), 700)) for name, value in names.items()})
    return folder


def texts_in(folder):
    return write(folder, {"a.csv": 'name,text,label\n1,"red, or\nblue",warm\n2,green,\n3,🐟,cold\n'}) / "a.csv"


def sounds_in(folder):
    soundfile = pytest.importorskip("soundfile")
    for i, kind in enumerate(("low", "high", "low")):
        (folder / kind).mkdir(exist_ok=True)
        soundfile.write(folder / kind / f"{i}.wav", np.sin(np.arange(500 + i) / (5 + i)), 8000)
    return folder


def rows_in(folder):
    return write(folder, {"a.csv": "sku,x,y,label\na1,1,2,u\na2,3,4,v\na3,5,6,u\n"}) / "a.csv"


@pytest.mark.parametrize("make", [rows_in, texts_in, photos_in, sounds_in])
def test_a_folder_has_what_a_file_of_embeddings_has(statistics, tmp_path, make):
    (tmp_path / "data").mkdir()
    data = str(make(tmp_path / "data"))
    embed_in_parts("timm:any", data, tmp_path / "parts", part_size=2)
    embed_to("timm:any", data, tmp_path / "file.npz")
    found = open_items(str(tmp_path / "parts"))
    given = open_items(str(tmp_path / "file.npz"))
    assert np.array_equal(found.array, given.array)
    assert found.names == given.names
    assert [found.classes[label] for label in found.labels] == [given.classes[label] for label in given.labels]
    assert found.unnamed == given.unnamed


def test_rows_of_an_array_and_of_a_folder_are_read_part_by_part(home, tmp_path, monkeypatch):
    """The number of rows in memory does not grow with the number of rows, and parts of any sizes fit each other."""
    embedded = []
    part = embedding_in_parts.embedded_part

    def counted(manifest, model, blocks, number):
        assert blocks.items is None
        found = part(manifest, model, blocks, number)
        embedded.append(len(found.rows))
        return found

    monkeypatch.setattr(embedding_in_parts, "embedded_part", counted)
    written(home, tmp_path / "a", data="rows.npy", part_size=7)
    embed_in_parts(home / "rca.safetensors", str(tmp_path / "a"), tmp_path / "b", part_size=9)
    assert max(embedded) == 9
    learner = embedding_in_parts.load(home / "rca.safetensors")
    once = learner.embed(np.load(home / "rows.npy").astype(np.float32)).astype(np.float32)
    found = open_items(str(tmp_path / "a"))
    assert np.allclose(found.array, once, atol=1e-6)
    assert found.names[49] == "rows[49]"
    assert found.unnamed
    again = open_items(str(tmp_path / "b"))
    assert np.allclose(again.array, learner.embed(once), atol=1e-5)
    assert again.names == found.names
    rows = np.load(home / "rows.npy")
    rows[33, 1] = np.nan
    np.save(tmp_path / "bad.npy", rows)
    with pytest.raises(DataError, match=r"bad.npy: holds NaN, infinity or values above 3.4e38, first in row 33"):
        embed_in_parts(home / "rca.safetensors", str(tmp_path / "bad.npy"), tmp_path / "c", part_size=9)
    assert written_parts(tmp_path / "c") == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]


def written_parts(folder):
    return sorted(path.name for path in folder.glob("part-*"))


def test_places_that_are_no_folder_of_embeddings_are_left_alone(home, tmp_path):
    write(tmp_path, {"photos/a/1.png": png(), "file": "text"})
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / ".DS_Store").write_text("")
    for name, what in (("photos", "has other files \\('a'\\)"), ("file", "is a file; expected a folder")):
        for overwrite in (False, True):
            with pytest.raises(ValueError, match=f"^out: .*{name} {what}"):
                written(home, tmp_path / name, overwrite=overwrite)
    assert (tmp_path / "photos/a/1.png").is_file()
    assert not written(home, tmp_path / "hidden").missing
    for name in ("rows.npy", "rows.index", "rows.lance", "rows.csv"):
        with pytest.raises(
            ValueError, match=r"expected a file that ends in .npz, .parquet or .faiss, or a folder such as rows/"
        ):
            embed(home / "rca.safetensors", str(home / "rows.npz"), tmp_path / name)
    for how in ({"shard": "1/2"}, {"part_size": 5}):
        with pytest.raises(ValueError, match="is one file; shard= and part_size= need a folder, such as rows/"):
            embed(home / "rca.safetensors", str(home / "rows.npz"), tmp_path / "rows.npz", **how)
    embed(home / "rca.safetensors", str(home / "rows.npz"), tmp_path / "rows.npz")
    with pytest.raises(ValueError, match="exists; replace it with overwrite=True"):
        embed(home / "rca.safetensors", str(home / "rows.npz"), tmp_path / "rows.npz")


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '{"format": "nearfar embeddings 9"}', "FEWER", "NEGATIVE", "TEXT", "[" * 200, "\0"],
)
def test_a_damaged_manifest_ends_in_one_line(home, whole, tmp_path, text):
    right = whole["embeddings.json"].decode()
    changed = {
        "FEWER": right.replace('"count"', '"amount"'),
        "NEGATIVE": right.replace('"part_size": 20', '"part_size": -20'),
        "TEXT": right.replace('"count": 50', '"count": "50"'),
    }
    out = tmp_path / "out"
    written(home, out)
    (out / "embeddings.json").write_text(changed.get(text, text))
    with pytest.raises(DataError, match=r"embeddings.json: not a readable manifest of embeddings \([^\n]*\)$"):
        open_items(str(out))


def test_numbers_of_a_stranger_in_a_manifest_fill_no_memory(home, tmp_path):
    out = tmp_path / "out"
    written(home, out)
    manifest = out / "embeddings.json"
    right = manifest.read_text()
    for part_size, message in (
        (1, "1,099,511,627,773 of 1,099,511,627,776 parts are missing (part-00003.parquet, part-00004.parquet, part-0"),
        (2**40, "unpacks to"),
    ):
        changed = right.replace('"count": 50', f'"count": {2**40}').replace(
            '"part_size": 20', f'"part_size": {part_size}'
        )
        manifest.write_text(changed)
        for read in (open_items, open_blocks):
            with pytest.raises(DataError, match=re.escape(message)):
                read(str(out))


def test_a_text_that_a_part_repeats_fills_no_memory(home, tmp_path, monkeypatch):
    """A dictionary has each text once, so that neither the file nor what it says of its size grows with the rows."""
    from pyarrow import parquet

    written(home, tmp_path)
    path = tmp_path / "part-00001.parquet"
    table = parquet.read_table(path)
    long = ["x" * 2**17] * len(table)
    parquet.write_table(table.set_column(table.column_names.index("label"), "label", [long]), path, compression="zstd")
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(untrusted, "FREE_BYTES", 2**20)
    with pytest.raises(DataError, match=r"part-00001.parquet: .*unpacks to 3 MB or more"):
        open_items(str(tmp_path))


def test_links_out_of_the_folder_are_not_followed(home, tmp_path):
    written(home, tmp_path / "out")
    part = tmp_path / "out" / "part-00001.parquet"
    part.rename(tmp_path / "elsewhere.parquet")
    part.symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(DataError, match=r"part-00001.parquet: not a readable part of embeddings \(.*out"):
        open_items(str(tmp_path / "out"))
    assert written(home, tmp_path / "out").found == [0, 2]  # and a new part replaces the link
    assert (tmp_path / "elsewhere.parquet").exists()


class Counts:
    """A listener that adds up what is reported."""

    def __init__(self):
        self.work = []

    def begin(self, what, total):
        self.work.append([what, total, []])
        return self.work[-1]

    def advance(self, work, by):
        work[2].append(by)

    def end(self, work):
        pass


def test_progress_counts_the_items_that_are_left(home, tmp_path):
    written(home, tmp_path / "out", shard="2/3")
    counts = Counts()
    with listening(counts):
        written(home, tmp_path / "out")
    assert counts.work == [["embedding", 30, [20, 10]]]


def test_progress_within_a_part_is_that_of_the_model(home, tmp_path, monkeypatch):
    from nearfar.progress import counted

    learner = embedding_in_parts.load(home / "rca.safetensors")

    class Slow:
        takes = learner.takes
        distance = "cosine"
        dimensions = 4
        fingerprint = "slow"
        table_columns = TableColumns()

        def embed(self, items):
            for _ in counted(range(3), "embedding", 3):
                pass
            return learner.embed(items)

    monkeypatch.setattr(embedding_in_parts, "load", lambda source: Slow())
    counts = Counts()
    with listening(counts):
        written(home, tmp_path / "out", part_size=30)
    assert counts.work == [["embedding", 50, [10, 10, 10, 6, 7, 7]]]


@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_a_killed_process_is_continued(home, tmp_path, kills):
    np.save(tmp_path / "many.npy", np.random.default_rng(2).normal(size=(2_000, 4)))
    out = tmp_path / "out"
    words = ["embed", home / "rca.safetensors", tmp_path / "many.npy", "-o", out, "--part-size", "20"]
    for kill in range(kills):
        process = subprocess.Popen([sys.executable, "-m", "nearfar", *map(str, words)], stderr=subprocess.DEVNULL)
        while len(list(out.glob("part-*.parquet"))) < 5 * (kill + 1) and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert len(list(out.glob("part-*.parquet"))) < 100, "it was to be killed in the middle"
    embed_in_parts(home / "rca.safetensors", str(tmp_path / "many.npy"), out, part_size=20)
    embed_in_parts(home / "rca.safetensors", str(tmp_path / "many.npy"), tmp_path / "whole", part_size=20)
    assert content(out) == content(tmp_path / "whole")


def test_data_that_cannot_be_embedded_leave_nothing(home, tmp_path):
    np.save(tmp_path / "wide.npy", np.ones((3, 9)))
    with pytest.raises(ValueError, match="9"):
        embed_in_parts(home / "rca.safetensors", str(tmp_path / "wide.npy"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    written(home, tmp_path / "kept")
    before = content(tmp_path / "kept")
    with pytest.raises(ValueError, match="9"):
        embed_in_parts(home / "rca.safetensors", str(tmp_path / "wide.npy"), tmp_path / "kept", overwrite=True)
    assert content(tmp_path / "kept") == before


@pytest.mark.slow  # two processes start
def test_processes_of_one_machine_write_what_one_writes(home, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding_processes, "_gpus", list)  # without PyTorch
    counts = Counts()
    with listening(counts):
        line = embed(home / "rca.safetensors", str(home / "rows.npz"), tmp_path / "out", devices=2, part_size=20)
    assert line.endswith("3 parts of 3 written; complete, 50 embeddings of 4 dimensions")
    assert content(tmp_path / "out") == whole
    assert [(what, total, sum(done)) for what, total, done in counts.work] == [("embedding", 50, 50)]


def test_what_contradicts_several_processes_is_refused(home, tmp_path, monkeypatch):
    def refused(words, out=tmp_path / "out", **how):
        with pytest.raises(ValueError, match=words):
            embed(home / "rca.safetensors", str(home / "rows.npz"), out, **how)

    refused("devices: expected 1 to 1,024, got 0", devices=0)
    refused("devices: not with shard=1/2", devices=2, shard="1/2")
    refused("overwrite: not with devices=2", devices=2, overwrite=True)
    refused("is one file; devices= needs a folder", tmp_path / "a.npz", devices=2)
    monkeypatch.setattr(embedding_processes, "_gpus", lambda: ["3", "5"])
    refused("devices: expected at most 2, the number of GPUs, got 3", devices=3)
    assert embedding_processes.places_of(2) == [{"CUDA_VISIBLE_DEVICES": "3"}, {"CUDA_VISIBLE_DEVICES": "5"}]
    assert not (tmp_path / "out").exists()


def test_a_process_that_dies_is_named_with_what_is_missing(home, whole, tmp_path, monkeypatch):
    """The others finish, and the same call writes the rest."""
    out = tmp_path / "out"
    dies = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    started = embedding_processes._started

    def start(given, file, place):
        with monkeypatch.context() as patched:
            if given["shard"] == "2/2":
                patched.setattr(embedding_processes, "COMMAND", dies)
            else:
                written(home, out, shard="1/2")
                patched.setattr(embedding_processes, "COMMAND", "pass")
            return started(given, file, place)

    monkeypatch.setattr(embedding_processes, "_started", start)
    monkeypatch.setattr(embedding_processes, "_gpus", list)
    monkeypatch.setattr(embedding_processes, "GLANCE", 0.01)
    words = r"process 2 of 2 was ended by SIGKILL, perhaps because memory ran out; 1 of 3 parts is missing \(part-00001"
    with pytest.raises(ValueError, match=words):
        embedding_processes.embed_by_processes(home / "rca.safetensors", str(home / "rows.npz"), out, 2, part_size=20)
    written(home, out)
    assert content(out) == whole
