"""Seeded changes of valid files: of their bytes, of their text, and of what their format holds."""

import io
import json
import re
import sqlite3
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.index import blob_file

DEEP = "a very deep value"
"""Stands for 5,000 lists inside each other, which no value in memory need be."""

NUMBERS = (
    "nan",
    "inf",
    "-inf",
    "1e400",
    "1e300",
    "1e20",
    "-1",
    "0",
    "9" * 400,
    "9" * 5000,
    str(2**63),
    "1_000",
    "0x10",
)
WORDS = (
    "",
    " ",
    "null",
    "true",
    "None",
    "\0",
    "x" * 5000,
    "x" * 200_000,
    "[" * 5000,
    "../../../etc/passwd",
    "/dev/zero",
    "a\nb",
    '"',
    "=1+1",
    "\ufeffa",
    "ä" * 3000,
)
TEXTS = NUMBERS + WORDS
SIMPLE = (0, -1, 0.5, 2**63, 10**400, 10**400, 1e308, float("inf"), float("nan"))
STRUCTURES: tuple[Any, ...] = (
    [],
    {},
    [[1], [2, 3]],
    {"a": {"b": []}},
    DEEP,
    ["x" * 3000] * 3,
    list(range(2000)),
    {f"key {i}": i for i in range(500)},
)
ENGINES = (
    "IDMap," * 20_000,
    "(" * 50_000,
    "IVF2(" * 10_000,
    "HNSW32;efSearch=" + "9" * 400,
    "PQ999999999",
    "IVF999999,Flat",
)
OTHERS = (None, True, "", "x" * 5000, "a")
NAMES = (
    "path",
    "label",
    "class",
    "split",
    "query",
    "gallery",
    "group",
    "name",
    "x1",
    "y1",
    "x2",
    "y2",
    "y",
    "",
    "embedding",
)

Random = np.random.Generator


def pick(rng: Random, among: Any) -> Any:
    """Choose one of several."""
    among = list(among)
    return among[int(rng.integers(len(among)))]


def hostile_text(rng: Random) -> str:
    """A number, or another text, that most readers do not expect."""
    return pick(rng, pick(rng, (NUMBERS, WORDS)))


def hostile_value(rng: Random) -> Any:
    """A value of JSON that most readers do not expect."""
    return pick(rng, pick(rng, (SIMPLE, STRUCTURES, OTHERS)))


def changed_bytes(rng: Random, data: bytes) -> bytes:
    """Change some bytes: flip, cut, double, insert, overwrite, or empty the file."""
    content = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        n = len(content)
        start = int(rng.integers(n + 1))
        # most formats have at their start what decides how the rest is read
        start = min(start, 64) if rng.random() < 0.3 else start
        length = int(rng.choice([1, 2, 4, 8, 64, 1000]))
        way = int(rng.integers(8))
        if way == 0 and n:
            content[min(start, n - 1)] ^= 1 << int(rng.integers(8))
        elif way == 1:
            del content[start : start + length]
        elif way == 2:
            content[start:start] = rng.bytes(length)
        elif way == 3:
            content[start:start] = content[start : start + length]
        elif way == 4:
            del content[start:]
        elif way == 5:
            content[start : start + length] = b"\xff" * length
        elif way == 6:
            content[start : start + length] = bytes(length)
        else:
            content += bytes(content[:length])
    return bytes(content)


def changed_text(rng: Random, text: str) -> str:
    """Replace a word, a number or a sign of a text by a hostile one."""
    places = list(re.finditer(r"[\w.+-]+|[^\w\s]", text))
    if not places:
        return hostile_text(rng)
    place = pick(rng, places)
    return text[: place.start()] + hostile_text(rng) + text[place.end() :]


Rows = list[list[str]]


def one_cell(rng: Random, rows: Rows) -> None:
    row = pick(rng, rows)
    row[int(rng.integers(len(row)))] = hostile_text(rng)


def one_name(rng: Random, rows: Rows) -> None:
    rows[0][int(rng.integers(len(rows[0])))] = pick(rng, (hostile_text(rng), pick(rng, NAMES)))


def one_column(rng: Random, rows: Rows) -> None:
    column, hostile = int(rng.integers(len(rows[0]))), hostile_text(rng)
    for row in rows[1:]:
        row[min(column, len(row) - 1)] = hostile


def doubled_column(rng: Random, rows: Rows) -> None:
    column = int(rng.integers(len(rows[0])))
    for row in rows:
        row.append(row[min(column, len(row) - 1)])


def no_column(rng: Random, rows: Rows) -> None:
    column = int(rng.integers(len(rows[0])))
    for row in rows:
        del row[column : column + 1]
        row.extend([""] * (not row))


def longer_row(rng: Random, rows: Rows) -> None:
    pick(rng, rows).append(hostile_text(rng))


def fewer_rows(rng: Random, rows: Rows) -> None:
    del rows[int(rng.integers(1, len(rows) + 1)) :]


def many_columns(rng: Random, rows: Rows) -> None:
    many = int(rng.choice([300, 3000]))
    rows[0].extend(f"c{i}" for i in range(many))
    for row in rows[1:]:
        row.extend(["1"] * many)


CHANGES = (
    *(one_cell, one_cell, one_cell, one_name, one_name),
    *(one_column, doubled_column, no_column, longer_row, fewer_rows, many_columns),
)


def changed_table(rng: Random, text: str, mark: str = ",") -> str:
    """Change cells, rows or columns of a CSV."""
    rows = [line.split(mark) for line in text.splitlines()]
    for _ in range(int(rng.integers(1, 3))):
        pick(rng, CHANGES)(rng, rows)
    return "\n".join(mark.join(row) for row in rows) + "\n"


def changed_value(rng: Random, value: Any) -> Any:
    """Replace, remove or add one part of nested lists and objects."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = pick(rng, value)
        way = rng.random()
        if way < 0.1:
            return {other: part for other, part in value.items() if other != key}
        if way < 0.2:
            return {**value, hostile_text(rng): hostile_value(rng)}
        return {**value, key: changed_value(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = int(rng.integers(len(value)))
        return [*value[:at], changed_value(rng, value[at]), *value[at + 1 :]]
    if isinstance(value, str) and rng.random() < 0.3:
        return hostile_text(rng)
    return hostile_value(rng)


def as_json(value: Any) -> str:
    """JSON text, with the very deep value where it is meant."""
    return json.dumps(value).replace(json.dumps(DEEP), "[" * 5000 + "]" * 5000)


def changed_json(rng: Random, text: str) -> str:
    """Change what a JSON text holds, or the text."""
    return as_json(changed_value(rng, json.loads(text))) if rng.random() < 0.8 else changed_text(rng, text)


def changed_lines(rng: Random, text: str) -> str:
    """Change one line of JSON lines, or one key in all."""
    lines = text.splitlines()
    if rng.random() < 0.3:
        rows = [json.loads(line) for line in lines]
        key, value = pick(rng, rows[0]), hostile_value(rng)
        return "".join(as_json({**row, key: value}) + "\n" for row in rows)
    at = int(rng.integers(len(lines)))
    lines[at] = changed_json(rng, lines[at])
    return "\n".join(lines) + "\n"


def changed_safetensors(rng: Random, data: bytes) -> bytes:
    """Change the header of a safetensors file, the JSON inside its metadata, or its bytes."""
    if rng.random() < 0.2:
        return changed_bytes(rng, data)
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    about = header.get("__metadata__", {})
    inner = [key for key, text in about.items() if text[:1] in ("{", "[", '"') or text.lstrip("-").isdigit()]
    if inner and rng.random() < 0.7:
        key = pick(rng, inner)
        about[key] = changed_json(rng, about[key])
    elif about and rng.random() < 0.5:
        about[pick(rng, about)] = hostile_text(rng)
    else:
        header = changed_value(rng, header)
    text = as_json(header).encode()
    return len(text).to_bytes(8, "little") + text + data[end:]


def change_index(rng: Random, file: Path) -> None:
    """Change the bytes of an index, its schema, or one of its parts, which gets a right digest."""
    way = rng.random()
    if way < 0.15:
        file.write_bytes(changed_bytes(rng, file.read_bytes()))
        return
    if way < 0.25:
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript(pick(rng, SCHEMAS))
        return
    with blob_file.changing(file) as blobs:
        root = blobs.root()
        parts = [(kind, number) for kind in range(1, 20) for number, _ in blobs.all_of(kind)]
        if way < 0.4:  # faiss reads such texts by recursion
            root = as_json(json.loads(root) | {"engine": pick(rng, (*ENGINES, hostile_text(rng)))}).encode()
        elif way < 0.7:
            root = changed_json(rng, root.decode()).encode()
        elif way < 0.75:
            blobs.drop(*pick(rng, parts))
        else:
            kind, number = pick(rng, parts)
            blobs.put(kind, number, changed_bytes(rng, blobs.get(kind, number) or b"?"))
        blobs.put_root(root)


SCHEMAS = (
    "CREATE VIEW more AS SELECT * FROM blobs",
    "CREATE TRIGGER t AFTER INSERT ON blobs BEGIN DELETE FROM blobs; END",
    "ALTER TABLE blobs ADD COLUMN more AS (zeroblob(1000000000))",
    "DROP TABLE blobs",
    "PRAGMA journal_mode=WAL",
)


def changed_tensors(rng: Random, data: bytes) -> bytes:
    """Change the numbers that a safetensors file holds, and nothing else."""
    end = 8 + int.from_bytes(data[:8], "little")
    content = bytearray(data[end:])
    if content:
        start = int(rng.integers(len(content)))
        content[start : start + 8] = pick(
            rng, (b"\xff" * 8, bytes(8), b"\x00\x00\xc0\x7f" * 2, b"\x00\x00\x80\x7f" * 2)
        )
    return data[:end] + bytes(content)[: len(data) - end]


def changed_array(rng: Random, array: np.ndarray) -> np.ndarray:
    """Change shape, type or values of an array."""
    ways: tuple[Callable[[], np.ndarray], ...] = (
        lambda: array[:0],
        lambda: array[..., None],
        lambda: array.reshape(-1),
        lambda: array[:-1],
        lambda: np.asarray(0),
        lambda: array.astype(np.complex64) if array.dtype.kind in "fiub" else array[::-1],
        lambda: np.full(array.shape, np.nan),
        lambda: np.full(array.shape, 1e300),
        lambda: np.full(array.shape, "x" * 2000),
        lambda: np.full(array.shape, "2020-01-01", dtype="datetime64[D]"),
        lambda: np.full(array.shape, b"\xff\xfe"),
        lambda: np.full(array.shape, True),
        lambda: np.full(array.shape, 2**63, dtype=np.uint64),
        lambda: np.zeros(array.shape, dtype=[("a", "f4"), ("b", "i2")]),
        lambda: np.full(array.shape, -5, dtype=np.int8),
        lambda: np.concatenate([array, array]),
        lambda: array.astype(object),
    )
    return pick(rng, ways)()


def npy(rng: Random, array: np.ndarray) -> bytes:
    """An .npy file, perhaps with a header that is changed."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    data = buffer.getvalue()
    if rng.random() < 0.6:
        return data
    shape = pick(
        rng, ("(10**9, 10**9)", "(4611686018427387904, 4)", "(-1, 3)", "(1000000000,)", "(" + "-" * 3000 + "1,)")
    )
    shape = shape.replace("10**9", "1000000000")
    end = 10 + int.from_bytes(data[8:10], "little")
    header = re.sub(r"'shape': \([^)]*\)", f"'shape': {shape}", data[10:end].decode()).strip().encode() + b"\n"
    return data[:8] + len(header).to_bytes(2, "little") + header + data[end:]


def changed_npz(rng: Random, arrays: dict[str, np.ndarray]) -> bytes:
    """Change one array of an .npz file, or its bytes."""
    found = dict(arrays)
    key = pick(rng, found)
    way = rng.random()
    if way < 0.1:
        del found[key]
    elif way < 0.7:
        found[key] = changed_array(rng, found[key])
    buffer = io.BytesIO()
    method = pick(rng, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as archive:
        warnings.simplefilter("ignore")  # of a name that is there twice
        for name, array in found.items():
            archive.writestr(f"{name}.npy", npy(rng, array))
        if rng.random() < 0.1:
            archive.writestr(pick(rng, ("notes.txt", "folder/", "X.npy")), b"text")
    return changed_bytes(rng, buffer.getvalue()) if way > 0.9 else buffer.getvalue()


def changed_png(rng: Random, data: bytes) -> bytes:
    """Change the size or the kind of pixels that a PNG tells of, with a right checksum, or its bytes."""
    if rng.random() < 0.6:
        return changed_bytes(rng, data)
    width, height = (int(rng.choice([0, 1, 5, 1000, 15_000, 40_000, 2**31 - 1])) for _ in range(2))
    header = struct.pack(">IIBBBBB", width, height, pick(rng, (1, 8, 16)), pick(rng, (0, 2, 3, 4, 6)), 0, 0, 0)
    return data[:16] + header + struct.pack(">I", zlib.crc32(b"IHDR" + header)) + data[33:]


def changed_zip(rng: Random, members: dict[str, bytes]) -> bytes:
    """Write an archive of members of which one is changed, or whose list lies."""
    buffer = io.BytesIO()
    hostile = pick(rng, members)
    method = pick(rng, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    way = int(rng.integers(7))
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items():
            content = data
            called = name
            if name == hostile and way == 0:
                content = changed_png(rng, data)
            if name == hostile and way == 1:
                called = pick(
                    rng, ("../" + name, "/" + name, "x" * 3000 + ".png", "ä/\udc80.png", name + "/", "a//b.png")
                )
            if name == hostile and way == 2:
                content = bytes(int(rng.choice([2**20, 2**23])))
            archive.writestr(called.encode("utf-8", "replace").decode(), content)
    written = bytearray(buffer.getvalue())
    entries = [found.start() for found in re.finditer(b"PK\x01\x02", written)]
    if way == 3 and entries:  # sizes, flags and methods of the list at the end
        at = pick(rng, entries) + pick(rng, (8, 10, 20, 24, 28, 42))
        written[at : at + 4] = pick(rng, (b"\xff\xff\xff\xff", bytes(4), b"\x01\x00\x00\x00", rng.bytes(4)))
    return changed_bytes(rng, bytes(written)) if way == 4 else bytes(written)
