"""Input that would fill the memory, never end, or break off what reads it: one line, and soon."""

import gzip
import io
import json
import os
import sys
import tracemalloc
import zipfile
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from PIL import Image

from nearfar.data import DataError, open_dataset
from nearfar.data.items import open_items
from nearfar.data.readers import files as files_module
from nearfar.data.readers.arrays import read_array, read_arrays
from nearfar.data.readers.files import ZipFiles
from nearfar.index import records_of
from nearfar.io.untrusted import DEEPEST, Unreadable, check_expansion, images_from, parse_json, read_file
from nearfar.quoting import quoted

from ..commands import run


def images(folder, n=2):
    """Two classes of n small images each."""
    for label in "ab":
        (folder / label).mkdir(parents=True)
        for i in range(n):
            Image.new("L", (8, 8), i).save(folder / label / f"{i}.png")
    return folder


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_of_archives_are_read_up_to_a_size(tmp_path, monkeypatch, method):
    monkeypatch.setattr(files_module, "LARGEST_IMAGE", 2**20)
    with zipfile.ZipFile(tmp_path / "x.zip", "w", method) as archive:
        archive.writestr("most.png", bytes(2**20))
        archive.writestr("more.png", bytes(2**20 + 1))
    monkeypatch.setattr(files_module, "check_size", lambda size: None)  # the list of the archive may lie
    found = ZipFiles(str(tmp_path / "x.zip"))
    assert len(found.read("most.png")) == 2**20
    with pytest.raises(
        DataError, match=r"more.png: cannot be read \(it is larger than 1 MB, the maximum size of a file"
    ):
        found.read("more.png")


@pytest.mark.slow
def test_tables_that_unpack_to_far_more_than_they_are_end_early(tmp_path, monkeypatch):
    monkeypatch.setattr("nearfar.io.untrusted.FREE_BYTES", 2**20)
    with gzip.open(tmp_path / "x.csv.gz", "wt") as file:
        file.write("a,label\n" + "0,1\n" * 2**21)
    with pytest.raises(DataError, match=r"it unpacks to .* MB or more"):
        open_dataset(tmp_path / "x.csv.gz")


def test_arrays_that_unpack_to_far_more_than_they_are_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("nearfar.io.untrusted.FREE_BYTES", 2**20)
    np.savez_compressed(tmp_path / "x.npz", X=np.zeros((2**10, 2**10)), y=np.zeros(2**10))
    with pytest.raises(DataError, match="it unpacks to 8 MB or more"):
        open_dataset(tmp_path / "x.npz")


def test_parquet_of_many_equal_cells_is_not_read(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    monkeypatch.setattr("nearfar.io.untrusted.FREE_BYTES", 2**20)
    write_table(pyarrow.table({"a": np.zeros(2**20), "label": np.zeros(2**20, dtype=int)}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="it unpacks to 16 MB or more"):
        open_dataset(tmp_path / "x.parquet")


@contextmanager
def few_bytes(most):
    """Inside, at most this many bytes more than before are in use at once, also in Arrow."""
    pyarrow = pytest.importorskip("pyarrow")
    pool = pyarrow.proxy_memory_pool(pyarrow.default_memory_pool())
    before = pyarrow.default_memory_pool()
    pyarrow.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield
        used = tracemalloc.get_traced_memory()[1]
        assert used + pool.max_memory() < most
    finally:
        tracemalloc.stop()
        pyarrow.set_memory_pool(before)


def repeated(kind):
    """A table of few bytes that claims 200 MB: 10,000 rows with the same 20,000 letters or numbers."""
    import pyarrow

    n = 10_000
    one = pyarrow.array([0] * n, pyarrow.int32())
    text = pyarrow.array(["x" * 20_000])
    of = {
        "text": lambda: pyarrow.DictionaryArray.from_arrays(one, text),
        "label": lambda: pyarrow.DictionaryArray.from_arrays(one, text),
        "tags": lambda: pyarrow.ListArray.from_arrays(
            np.arange(n + 1, dtype=np.int32), pyarrow.DictionaryArray.from_arrays(one, text)
        ),
        "embedding": lambda: pyarrow.array([[0.0] * 20_000, *[None] * (n - 1)]),
    }
    return pyarrow.table({"label": pyarrow.array(["a", "b"] * (n // 2)), kind: of[kind]()})


@pytest.mark.parametrize("ending", ["parquet", "feather"])
@pytest.mark.parametrize("kind", ["text", "label", "tags", "embedding"])
def test_a_table_that_repeats_a_long_cell_in_every_row_does_not_fill_the_memory(tmp_path, monkeypatch, kind, ending):
    pytest.importorskip("pyarrow")
    from pyarrow.feather import write_feather
    from pyarrow.parquet import write_table

    monkeypatch.setattr("nearfar.io.untrusted.FREE_BYTES", 2**22)
    path = tmp_path / f"x.{ending}"
    table = repeated(kind)
    write_table(table, path, compression="zstd") if ending == "parquet" else write_feather(table, path, "zstd")
    with few_bytes(2**26), suppress(DataError):
        open_items(path)


@pytest.mark.parametrize("column", ["text", "label", "group", "name", "about"])
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_one_long_text_does_not_make_all_as_long(tmp_path, kind, column):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    n = 3_000  # as wide as the longest, a column would take 240 MB
    table = {"text": [f"words {i}" for i in range(n)], "label": ["a", "b"] * (n // 2)}
    table |= {"group": ["c"] * n, "name": [f"n{i}" for i in range(n)], "about": ["d"] * n}
    table[column][7] = "x" * 20_000
    path = tmp_path / f"x.{kind}"
    if kind == "parquet":
        write_table(pyarrow.table(table), path)
    elif kind == "csv":
        path.write_text("\n".join(map(",".join, [[*table], *zip(*table.values(), strict=True)])))
    else:
        path.write_text(
            "\n".join(json.dumps(dict(zip(table, row, strict=True))) for row in zip(*table.values(), strict=True))
        )
    with few_bytes(2**26):
        if column in ("label", "name"):
            with pytest.raises(
                DataError, match=r"(labels|names of items): one of 3,000 has 20,000 characters, 'xxx.*'; expect"
            ):
                open_dataset(path)
        else:
            assert len(open_dataset(path)) == n


def test_one_long_text_in_a_column_of_a_collection_does_not_make_all_as_long():
    n = 10_000  # as wide as the longest, the column would take 400 MB
    shops = ["d"] * n
    shops[7] = "x" * 10_000
    with few_bytes(2**26):
        found = records_of(np.ones((n, 1)), None, columns={"shop": shops})
        assert found.columns["shop"].tolist() == shops


@pytest.mark.parametrize("content", ['{"k%d": 1}', '{"a": null}', '{"e": [1, 2]}'], ids=["keys", "lists", "short"])
def test_lines_of_json_that_make_a_table_much_larger_than_themselves_are_refused(tmp_path, monkeypatch, content):
    monkeypatch.setattr("nearfar.io.untrusted.FREE_BYTES", 2**20)
    first = {"a": [0] * 10_000, "label": "a"}
    lines = [json.dumps(first), *(content % i if "%" in content else content for i in range(10_000))]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    with few_bytes(2**26), pytest.raises(DataError, match=r"x.jsonl: .*unpacks to"):
        open_dataset(tmp_path / "x.jsonl")


def test_ordinary_data_are_not_refused_for_how_well_they_pack():
    check_expansion(2**28, 1)
    check_expansion(200 * 2**30, 2**30)
    with pytest.raises(Unreadable):
        check_expansion(200 * 2**30 + 1, 2**30)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_only_regular_files_are_read(tmp_path, kind, monkeypatch):
    monkeypatch.setenv("NEARFAR_IMAGES", "/dev")
    folder = images(tmp_path / "images")
    bad = folder / "a" / "zz.png"
    os.mkfifo(bad) if kind == "pipe" else bad.symlink_to("/dev/zero")
    with pytest.raises(OSError, match=f"it is a {kind}"):
        read_file(bad)
    with pytest.raises(DataError, match=f"zz.png: cannot be read .it is a {kind}"):
        open_dataset(folder)
    found = open_dataset(folder, skip_bad=True)
    assert len(found) == 4
    assert found.bad == ("a/zz.png",)
    table = folder / "table.csv"
    table.write_text("path,label\na/0.png,a\nb/0.png,b\na/zz.png,a\n")
    with pytest.raises(DataError, match=f"it is a {kind}"):
        open_dataset(table)
    assert len(open_dataset(table, skip_bad=True)) == 2
    monkeypatch.delenv("NEARFAR_IMAGES")
    for name in ("x.csv", "x.npz", "x.npy", "x.zip", "x.jsonl", "x.parquet", "x.png"):
        other = tmp_path / name
        os.mkfifo(other) if kind == "pipe" else other.symlink_to("/dev/zero")
        for opened in (open_dataset, open_items):
            with pytest.raises(DataError, match=f"it is a {kind}"):
                opened(other)


@pytest.mark.slow
def test_tables_of_many_columns_are_read_in_linear_time(tmp_path):
    d = 2_000
    text = ",".join(["label", *(f"c{i}" for i in range(d))])
    (tmp_path / "x.csv").write_text(f"{text}\n" + "".join(f"{row}{',1' * d}\n" for row in "ab"))
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event == "c_call" and arg.__name__ == "count"

    sys.setprofile(count)
    try:
        found = open_dataset(tmp_path / "x.csv")
    finally:
        sys.setprofile(None)
    assert found.array.shape == (2, d)
    assert calls < 100, "counting each column among all is quadratic"
    assert found.in_columns(found.columns[::-1], "a learner").columns == found.columns[::-1]


@pytest.mark.parametrize("side", ["inf", "-inf", "1e300", "9" * 400, "1e10"])
def test_crop_boxes_without_end(tmp_path, side):
    images(tmp_path)
    (tmp_path / "x.csv").write_text(f"path,label,x1,y1,x2,y2\na/0.png,a,0,0,{side},5\nb/0.png,b,0,0,5,5\n")
    with pytest.raises(DataError, match="crop box") as found:
        open_dataset(tmp_path / "x.csv")
    assert len(str(found.value)) < 600


def test_integers_without_end_in_lines_of_json(tmp_path):
    large = 10**400
    (tmp_path / "x.jsonl").write_text("".join(json.dumps({"a": large, "label": row}) + "\n" for row in "ab"))
    with pytest.raises(DataError, match="but features must be numbers"):
        open_dataset(tmp_path / "x.jsonl")
    (tmp_path / "y.jsonl").write_text("".join(json.dumps({"a": [1, large], "label": row}) + "\n" for row in "ab"))
    with pytest.raises(DataError, match="but features must be numbers"):
        open_dataset(tmp_path / "y.jsonl")


def npy(shape, descr="<f4", content=b""):
    """An .npy file of a header that says what it wants."""
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


@pytest.mark.parametrize("shape", [(2**40, 2**40), (10**30,), (2**62, 4), (-1, 4), (1000, 1000)])
def test_headers_of_absurd_shapes(tmp_path, shape):
    (tmp_path / "x.npy").write_bytes(npy(shape, content=bytes(64)))
    with pytest.raises(ValueError, match="which does not fit into its 192 bytes"):
        read_array(tmp_path / "x.npy")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("X.npy", npy(shape, content=bytes(64)))
    with pytest.raises(ValueError, match="which does not fit into its 192 bytes"):
        read_arrays(tmp_path / "x.npz")


def test_json_that_is_nested_too_deep():
    for depth in (DEEPEST + 1, 990, 100_000):
        for text in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
            for given in (text, text.encode()):
                with pytest.raises(ValueError, match=f"more than {DEEPEST} lists or objects are nested in each other"):
                    parse_json(given)
    assert parse_json("[" * DEEPEST + "]" * DEEPEST)
    assert parse_json("[" + "[]," * 1000 + "[]]") == [[]] * 1001


@pytest.mark.parametrize(
    "about",
    [
        "[" * 5000,
        "[]",
        '{"info": 3}',
        '{"info": {"features": [1]}}',
        '{"info": {"features": {"label": {"names": 3}}}}',
        '{"info": {"features": {"label": {"names": [1, 2]}}}}',
    ],
)
def test_metadata_of_hugging_face_that_are_damaged(tmp_path, about):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    table = pyarrow.table({"a": [1.0, 2.0], "label": [0, 1]})
    write_table(table.replace_schema_metadata({"huggingface": about}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="its metadata of Hugging Face are damaged"):
        open_dataset(tmp_path / "x.parquet")


@pytest.mark.parametrize("column", [["a", "b"], [0.5, 1.0], [True, False]])
def test_metadata_of_hugging_face_that_do_not_fit_the_column(tmp_path, column):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    about = json.dumps({"info": {"features": {"label": {"names": ["x", "y"]}}}})
    table = pyarrow.table({"a": [1.0, 2.0], "label": column})
    write_table(table.replace_schema_metadata({"huggingface": about}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"name classes by numbers, but column 'label' has"):
        open_dataset(tmp_path / "x.parquet")


def test_values_are_quoted_in_brief():
    class Angry:
        def __repr__(self):
            raise RecursionError

    assert quoted("x" * 10_000) == repr("x" * 60 + "...")
    assert len(quoted(list(range(10_000)))) < 70
    assert quoted(10**5000) == "a very large int"
    assert quoted(Angry()) == "a very large Angry"


def test_members_that_are_listed_as_too_large_are_not_unpacked(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a/x.png", b"x")
    archive = ZipFiles(str(tmp_path / "x.zip"))
    archive._members["a/x.png"].file_size = 2**33
    monkeypatch.setattr(files_module, "read_stream", None)
    with pytest.raises(DataError, match=r"x.png: cannot be read .it is larger than 512 MB, the maximum size of a file"):
        archive.read("a/x.png")


def beside(folder, way):
    """Data in a folder of which one image leads to a private picture outside, in one of several ways."""
    private = folder / "private"
    data = images(folder / "data")
    private.mkdir()
    Image.new("L", (8, 8), 9).save(private / "0.png")
    if way == "link to a file":
        (data / "a" / "9.png").symlink_to(private / "0.png")
        return data
    if way == "link to a folder":
        (data / "c").symlink_to(private)
        return data
    if way == "link in a table":
        (data / "a" / "9.png").symlink_to(private / "0.png")
        name = "a/9.png"
    else:
        name = {"absolute": str(private / "0.png"), "above": "../private/0.png"}[way]
    (data / "table.csv").write_text(f"path,label\na/0.png,a\nb/0.png,b\n{name},c\n")
    return data / "table.csv"


WAYS = ("link to a file", "link to a folder", "link in a table", "absolute", "above")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("skip_bad", [False, True])
def test_images_are_read_only_from_below_the_folder_of_the_data(tmp_path, way, skip_bad):
    source = beside(tmp_path, way)
    for opened in (open_dataset, open_items):
        with pytest.raises(DataError, match=r"is not read, because it leads to .*private.*with images='.*private"):
            opened(source, skip_bad=skip_bad)
    with images_from(tmp_path / "private"):
        items = open_dataset(source, skip_bad=skip_bad)
    assert 9 in [int(items.read(i).max()) for i in range(len(items))]


def test_every_command_on_images_reads_further_folders_only_if_asked(tmp_path, capsys, monkeypatch):
    source = beside(tmp_path, "absolute")
    code, _, err = run(capsys, monkeypatch, "inspect", source)
    assert code == 2
    assert "allow that folder with --images" in err
    code, _, _ = run(capsys, monkeypatch, "inspect", source, "--images", tmp_path / "private")
    assert code == 0
    with pytest.raises(ValueError, match=r"images: expected a folder, got '.*nowhere', which is none"):
        images_from(tmp_path / "nowhere").__enter__()
    assert "NEARFAR_IMAGES" not in os.environ


def test_shards_and_parts_of_data_sets_are_read_only_from_below_their_folder(tmp_path):
    outside = tmp_path / "outside.tar"
    outside.touch()
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "0.tar").symlink_to(outside)
    with pytest.raises(DataError, match="is not read, because it leads to"):
        open_dataset(tmp_path / "shards")
    pytest.importorskip("pyarrow")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["../elsewhere"]}')
    with pytest.raises(DataError, match=r"lists '../elsewhere', which is not a file in the folder"):
        open_dataset(tmp_path / "saved")


def test_the_folder_that_is_given_may_itself_be_a_link(tmp_path):
    images(tmp_path / "there")
    (tmp_path / "here").symlink_to(tmp_path / "there")
    assert len(open_dataset(tmp_path / "here")) == 4
    (tmp_path / "one.png").symlink_to(tmp_path / "there" / "a" / "0.png")
    assert len(open_items(tmp_path / "one.png")) == 1


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("kind", ["rows.csv.zip", "photos.zip", "rows.npz"])
def test_damaged_data_in_a_zip_of_any_compression_cost_one_line(tmp_path, method, kind):
    buffer = io.BytesIO()
    rows = np.random.default_rng(0).normal(size=(40, 3))
    if kind == "rows.npz":
        np.save(buffer, rows)
        members = {"X.npy": buffer.getvalue()}
    elif kind == "photos.zip":
        Image.fromarray((255 * np.abs(rows)).astype(np.uint8)).save(buffer, "PNG")
        members = {f"c{k}/{i}.png": buffer.getvalue() for k in range(2) for i in range(2)}
    else:
        lines = [f"{a},{b},{c},{i % 4}" for i, (a, b, c) in enumerate(rows)]
        members = {"rows.csv": "\n".join(["a,b,c,label", *lines]).encode()}
    path = tmp_path / kind
    with zipfile.ZipFile(path, "w", compression=method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    whole = path.read_bytes()
    for at in range(40, len(whole) - 40, max(1, len(whole) // 40)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with suppress(DataError):
            items = open_items(path)
            for i in range(len(items)):
                items.read(i)
