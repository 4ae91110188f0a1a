"""What is changed, and which command reads it then: one kind of file each."""

import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.io.formats import reader_of

from . import mutate
from .corpus import comparison, write_excel
from .mutate import Random, pick

Words = list[Any]
Case = Callable[[Random, Path], Words]
"""Changes files of the folder at random; returns the words of a command. The folder is the one it runs in."""


def table_words(rng: Random, name: str) -> Words:
    """A command that reads a table of rows."""
    commands: tuple[Words, ...] = (
        ["inspect", name],
        ["inspect", name, "--out", "found.json", "--overwrite"],
        ["evaluate", name],
        ["index", name, "--out", "new.index"],
        ["embed", "learner.safetensors", name, "--out", "new.npz"],
        ["search", "rows.index", name, "--out", "found.csv", "--overwrite"],
        ["fit", name, "RCA", "--out", "new.safetensors"],
        ["inspect", name, "--label", pick(rng, ("a", "label", *mutate.TEXTS[:20]))],
    )
    return pick(rng, commands)


def csv(rng: Random, folder: Path) -> Words:
    name, mark = pick(rng, (("rows.csv", ","), ("rows.tsv", "\t")))
    text = (folder / name).read_text()
    if rng.random() < 0.75:
        (folder / name).write_text(mutate.changed_table(rng, text, mark), errors="surrogateescape")
    else:
        (folder / name).write_bytes(mutate.changed_bytes(rng, text.encode()))
    return table_words(rng, name)


def packed_csv(rng: Random, folder: Path) -> Words:
    file = folder / "rows.csv.gz"
    file.write_bytes(mutate.changed_bytes(rng, file.read_bytes()))
    return table_words(rng, file.name)


def image_table(rng: Random, folder: Path) -> Words:
    file = folder / "images.csv"
    file.write_text(mutate.changed_table(rng, file.read_text()))
    skip = pick(rng, ([], ["--skip-bad"]))
    return pick(rng, (["inspect", file.name], ["embed", "learner.safetensors", file.name, "--out", "new.npz", *skip]))


def json_lines(rng: Random, folder: Path) -> Words:
    file = folder / pick(rng, ("rows.jsonl", "embedded.jsonl"))
    text = file.read_text()
    if rng.random() < 0.85:
        file.write_text(mutate.changed_lines(rng, text))
    else:
        file.write_bytes(mutate.changed_bytes(rng, text.encode()))
    return table_words(rng, file.name)


def parquet(rng: Random, folder: Path) -> Words:
    import pyarrow as pa
    from pyarrow.parquet import write_table

    X = np.random.default_rng(0).normal(size=(24, 2))
    labels: Any = pa.array(np.arange(24) % 6)
    columns: dict[str, Any] = {"a": X[:, 0], "e": pa.array(X.tolist()), "label": labels}
    kind = rng.random()
    if kind < 0.7:
        odd = (
            pa.array([None] * 24),
            pa.array([{"b": [1]}] * 24),
            pa.array([[1.0], [1.0, 2.0]] * 12),
            pa.array([[]] * 24, pa.list_(pa.float64())),
            pa.array([None, [1.0]] * 12),
            pa.array(["x" * 3000] * 24),
            pa.array(["x"] * 24).dictionary_encode(),
            pa.array(range(24), pa.timestamp("ns")),
            pa.array([0.5] * 24),
            pa.array([[["x"]]] * 24),
            pa.array([2**63] * 24, pa.uint64()),
            pa.array([b"no image"] * 24),
            pa.array([{"bytes": b"no image", "path": "a.png"}] * 24),
            pa.array([{"bytes": None, "path": None}] * 24),
            pa.array([True] * 24),
            pa.array([7] * 24),
        )
        columns[pick(rng, (*("label",) * 6, "a", "e", "image", "path", "split", "group"))] = pick(rng, odd)
    table = pa.table(columns)
    about = json.dumps({"info": {"features": {"label": {"names": list("uvwxyz")}, "a": {"dtype": "float"}}}})
    if rng.random() < 0.7:
        changed = mutate.changed_json(rng, about) if rng.random() < 0.4 else about
        table = table.replace_schema_metadata({"huggingface": changed})
    write_table(table, folder / "rows.parquet")
    if kind > 0.8:
        content = (folder / "rows.parquet").read_bytes()
        (folder / "rows.parquet").write_bytes(mutate.changed_bytes(rng, content))
    return table_words(rng, "rows.parquet")


def excel(rng: Random, folder: Path) -> Words:
    file = folder / "rows.xlsx"
    way = rng.random()
    if way < 0.4:
        rows = [line.split(",") for line in mutate.changed_table(rng, (folder / "rows.csv").read_text()).splitlines()]
        write_excel(file, rows)
    elif way < 0.7:
        with zipfile.ZipFile(file) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        part = pick(rng, members)
        text = members[part].decode("utf-8", "replace")
        members[part] = mutate.changed_text(rng, text).encode("utf-8", "replace")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    else:
        file.write_bytes(mutate.changed_bytes(rng, file.read_bytes()))
    return table_words(rng, file.name)


def feather(rng: Random, folder: Path) -> Words:
    import pyarrow as pa
    from pyarrow.feather import write_feather

    X = np.random.default_rng(0).normal(size=(24, 2))
    columns: dict[str, Any] = {"a": X[:, 0], "e": pa.array(X.tolist()), "label": pa.array(np.arange(24) % 6)}
    odd = (
        pa.array([None] * 24),
        pa.array([{"bytes": b"no image", "path": "../a.png"}] * 24),
        pa.array([[1.0], [1.0, 2.0]] * 12),
        pa.array([None, [1.0]] * 12),
        pa.array(["x" * 3000] * 24).dictionary_encode(),
        pa.array(range(24), pa.timestamp("ns")),
        pa.array([b"no image"] * 24),
    )
    if rng.random() < 0.5:
        columns[pick(rng, ("label", "a", "e", "image", "path", "id"))] = pick(rng, odd)
    file = folder / "rows.feather"
    write_feather(pa.table(columns), file, compression=pick(rng, ("uncompressed", "lz4", "zstd")))
    if rng.random() < 0.6:
        file.write_bytes(mutate.changed_bytes(rng, file.read_bytes()))
    return table_words(rng, file.name)


def odd_text(rng: Random, folder: Path) -> Words:
    """A table with another separator or encoding, as JSON in one piece, or in a zip."""
    text = mutate.changed_table(rng, (folder / "rows.csv").read_text())
    way = int(rng.integers(5))
    if way == 0:
        name = pick(rng, ("rows.csv", "rows.tsv"))
        (folder / name).write_text(text.replace(",", pick(rng, ";|\t")), errors="surrogateescape")
    elif way == 1:
        name = "rows.csv"
        encoding = pick(rng, ("utf-16", "utf-16-le", "cp1252", "cp1251", "utf-32", "cp037"))
        (folder / name).write_bytes(
            text.replace("class", pick(rng, ("größe", "кошка", "é"))).encode(encoding, "replace")
        )
    elif way == 2:
        name = pick(rng, ("rows.csv.zip", "rows.jsonl.zip", "rows.json.zip"))
        members = {pick(rng, ("rows.csv", "a/b.csv", "../x.csv")): text.encode("utf-8", "replace")}
        (folder / name).write_bytes(mutate.changed_zip(rng, members))
    else:
        name = pick(rng, ("rows.json", "rows.jsonl", "rows.ndjson"))
        rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
        content = pick(rng, (rows, {key: [row[key] for row in rows] for key in rows[0]}, rows[0]))
        (folder / name).write_text(mutate.changed_json(rng, json.dumps(content, indent=pick(rng, (None, 1)))))
    return table_words(rng, name)


def odd_image(rng: Random, folder: Path) -> Words:
    """Images of other endings, of 16 and 32 bits, and links and folders beside them."""
    from PIL import Image

    place = folder / "images" / pick(rng, ("x", "x/inner", "new"))
    place.mkdir(exist_ok=True)
    mode, kind = pick(rng, (("F", np.float32), ("I;16", np.uint16), ("I", np.int32), ("RGB", np.uint8), ("1", bool)))
    shape = pick(rng, ((8, 8), (1, 900), (7, 9)))
    pixels = rng.integers(0, pick(rng, (2, 255, 4095, 60_000)), (*shape, 3) if mode == "RGB" else shape).astype(kind)
    ending = pick(rng, ("jfif", "jpe", "pbm", "jp2", "avif", "tga", "tif", "qoi", "pcx", "heic", "png", "psd", "dds"))
    buffer = io.BytesIO()
    formats = {"jfif": "JPEG", "jpe": "JPEG", "pbm": "PPM", "jp2": "JPEG2000", "tif": "TIFF"}
    try:
        Image.fromarray(pixels).save(buffer, formats.get(ending, ending.upper()))
    except (KeyError, OSError, ValueError):
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(buffer, "PNG")
    data = mutate.changed_bytes(rng, buffer.getvalue()) if rng.random() < 0.6 else buffer.getvalue()
    (place / f"9.{ending}").write_bytes(data)
    way = rng.random()
    if way < 0.1:
        (folder / "images" / "out").symlink_to("/etc")
    elif way < 0.2:
        (place / "out.png").symlink_to("/etc/passwd")
    skip = pick(rng, ([], ["--skip-bad"]))
    embed = ["embed", "learner.safetensors", "images", "--out", "new.npz", *skip]
    return pick(rng, (["inspect", "images"], embed, ["index", "learner.safetensors", "images", "--out", "new.index"]))


def image(rng: Random, folder: Path) -> Words:
    file = pick(rng, sorted((folder / "images").rglob("*.*")))
    data = file.read_bytes()
    if file.suffix == ".ppm" and rng.random() < 0.7:
        text = pick(
            rng, (b"P5 999999 999999 255\n", b"P6 8 8 99999999\n", b"P6 -1 8 255\n", b"P7\n", b"P6 20000 20000 255\n")
        )
        file.write_bytes(text + data[-100:])
    else:
        file.write_bytes(mutate.changed_png(rng, data) if file.suffix == ".png" else mutate.changed_bytes(rng, data))
    skip = pick(rng, ([], ["--skip-bad"]))
    embed = ["embed", "learner.safetensors", pick(rng, ("images", file)), "--out", "new.npz", *skip]
    return pick(rng, (["inspect", "images"], embed, ["evaluate", "learner.safetensors", "images", *skip]))


def special_file(rng: Random, folder: Path) -> Words:
    """Put something that is no regular file in the place of one."""
    name = pick(
        rng,
        ("rows.csv", "rows.npz", "rows.npy", "rows.index", "learner.safetensors", "run/config.json", "images/x/0.png"),
    )
    file = folder / name
    file.unlink()
    way = int(rng.integers(6))
    if way == 0:
        os.mkfifo(file)
    elif way == 1:
        file.symlink_to(pick(rng, ("/dev/zero", "/dev/null", "/proc/self/mem")))
    elif way == 2:
        file.mkdir()
    elif way == 3:
        file.symlink_to(file.name)
    elif way == 4:
        file.write_bytes(b"")
    words = {
        "rows.csv": ["inspect", name],
        "rows.npz": ["evaluate", name],
        "rows.npy": ["search", "rows.index", name],
        "rows.index": pick(rng, (["duplicates", name], ["index", "rows.npz", "--out", name, "--add"])),
        "learner.safetensors": ["embed", name, "rows.csv", "--out", "new.npz"],
        "run/config.json": pick(rng, (["embed", "run", "rows.csv", "--out", "new.npz"], ["evaluate", "run"])),
        "images/x/0.png": pick(rng, (["inspect", "images"], ["inspect", "images.csv"])),
    }
    return words[name]


def sound(rng: Random, folder: Path) -> Words:
    file = pick(rng, sorted((folder / "sounds").rglob("*.*")))
    data = file.read_bytes()
    file.write_bytes(data[: int(rng.integers(len(data)))] if rng.random() < 0.2 else mutate.changed_bytes(rng, data))
    skip = pick(rng, ([], ["--skip-bad"]))
    embed = ["embed", "learner.safetensors", pick(rng, ("sounds", file)), "--out", "new.npz", *skip]
    return pick(rng, (["inspect", "sounds"], embed, ["fit", "sounds", "RCA", "--out", "new.safetensors", *skip]))


def any_source(rng: Random, folder: Path) -> Words:
    """Changes of bytes in a file or a folder of any reader of the list."""
    sources = sorted((file.name, reader) for file in folder.iterdir() if (reader := _reader_name(file)))
    reader = pick(rng, sorted({reader for _, reader in sources}))
    name = pick(rng, [name for name, other in sources if other == reader])
    files = sorted(path for path in (folder / name).rglob("*") if path.is_file()) or [folder / name]
    file = pick(rng, files)
    file.write_bytes(mutate.changed_bytes(rng, file.read_bytes()))
    skip = pick(rng, ([], ["--skip-bad"]))
    embed = ["embed", "learner.safetensors", name, "--out", "new.npz", *skip]
    return pick(rng, (["inspect", name], embed, ["index", "learner.safetensors", name, "--out", "new.index", *skip]))


def _reader_name(file: Path) -> str:
    """The reader of a valid file, if it is one that the commands are given: no folder of a run or the like."""
    reader = reader_of(file)
    made = ("run", "compared", "model", "cache")
    return "" if reader is None or file.name in made else reader.name


def archive(rng: Random, folder: Path) -> Words:
    members = {path.relative_to(folder).as_posix(): path.read_bytes() for path in (folder / "images").rglob("*.png")}
    (folder / "images.zip").write_bytes(mutate.changed_zip(rng, members))
    skip = pick(rng, ([], ["--skip-bad"]))
    return pick(
        rng, (["inspect", "images.zip"], ["embed", "learner.safetensors", "images.zip", "--out", "new.npz", *skip])
    )


def embedded(rng: Random, folder: Path) -> Words:
    file = folder / "embedded" / pick(rng, ("embeddings.json", "part-00000.parquet", "part-00002.parquet"))
    if file.suffix == ".json":
        file.write_text(mutate.changed_json(rng, file.read_text()))
    elif rng.random() < 0.3:
        file.unlink()
    else:
        file.write_bytes(mutate.changed_bytes(rng, file.read_bytes()))
    words = (
        ["evaluate", "embedded"],
        ["index", "embedded", "--out", "new.index"],
        ["embed", "learner.safetensors", "rows.npz", "--out", "embedded", "--part-size", "10"],
        ["embed", "network.safetensors", "embedded", "--out", "new"],
    )
    return pick(rng, words)


def numpy_archive(rng: Random, folder: Path) -> Words:
    with np.load(folder / "rows.npz") as file:
        arrays = dict(file)
    if rng.random() < 0.5:
        n = len(arrays["y"])
        split = np.array(["train", "train", "validation", "query", "gallery", "test"])[np.arange(n) % 6]
        arrays |= {"split": split, "groups": np.arange(n) % 3, "classes": np.array(list("uvwxyz"))}
    if rng.random() < 0.2:
        arrays |= {f"gallery_{key}": array for key, array in arrays.items() if key in ("X", "y")}
    (folder / "rows.npz").write_bytes(mutate.changed_npz(rng, arrays))
    return table_words(rng, "rows.npz")


def numpy_array(rng: Random, folder: Path) -> Words:
    array = mutate.changed_array(rng, np.load(folder / "rows.npy"))
    data = mutate.npy(rng, array)
    (folder / "rows.npy").write_bytes(mutate.changed_bytes(rng, data) if rng.random() < 0.3 else data)
    words = (
        ["search", "rows.index", "rows.npy"],
        ["embed", "learner.safetensors", "rows.npy", "--out", "new.npz"],
        ["index", "rows.npy", "--out", "new.index"],
        ["inspect", "rows.npy"],
    )
    return pick(rng, words)


def learner(rng: Random, folder: Path) -> Words:
    file = folder / pick(rng, ("learner.safetensors", "network.safetensors"))
    changed = mutate.changed_safetensors if rng.random() < 0.85 else mutate.changed_tensors
    file.write_bytes(changed(rng, file.read_bytes()))
    words = (["embed", file.name, "rows.csv", "--out", "new.npz"], ["evaluate", file.name, "rows.csv"])
    return pick(rng, words)


def index(rng: Random, folder: Path) -> Words:
    file = folder / pick(rng, ("rows.index", "run.index", "changed.index"))
    mutate.change_index(rng, file)
    name = file.name
    source = ["run", "rows.csv"] if name == "run.index" else ["rows.npz"]
    words = (
        ["search", name, "rows.npy"],
        ["search", name, "rows.npy", "--out", "found.csv", "--overwrite"],
        ["duplicates", name],
        ["duplicates", name, "--within", "0.5", "--out", "found.csv", "--overwrite"],
        ["index", name, "--out", "new.index"],
        ["groups", name, "--out", "found.csv"],
        ["label-next", name, "--out", "found.csv"],
        ["index", "--out", name, "--remove", "class1"],
        ["index", *source, "--out", name, "--add"],
        ["index", *source, "--out", name, "--add", "--new"],
    )
    return pick(rng, words)


def run_config(rng: Random, folder: Path) -> Words:
    file = folder / "run" / "config.json"
    file.write_text(mutate.changed_json(rng, file.read_text()))
    words = (
        ["embed", "run", "rows.csv", "--out", "new.npz"],
        ["evaluate", "run", "rows.csv"],
        ["evaluate", "run"],
        ["search", "run.index", "rows.csv"],
        ["train", "--resume", "--out", "run", "--quiet"],
    )
    return pick(rng, words)


def run_weights(rng: Random, folder: Path) -> Words:
    file = pick(rng, sorted((folder / "run").glob("*.safetensors")))
    changed = mutate.changed_safetensors if rng.random() < 0.9 else mutate.changed_tensors
    file.write_bytes(changed(rng, file.read_bytes()))
    if file.name == "best.safetensors":
        return pick(rng, (["embed", "run", "rows.csv", "--out", "new.npz"], ["evaluate", "run"]))
    return ["train", "--resume", "--out", "run", "--epochs", "2", "--set", "steps=null", "--quiet"]


def run_notes(rng: Random, folder: Path) -> Words:
    """What a run tells of itself: its log, its table of epochs, its scores."""
    names = ("log.jsonl", "metrics.csv", "environment.json")
    name = pick(rng, (*names, *names, "scores.json", "command.txt", "test.npz"))
    file = folder / "run" / name
    if name == "test.npz":
        with np.load(file) as arrays:
            file.write_bytes(mutate.changed_npz(rng, dict(arrays)))
    elif rng.random() < 0.2:
        file.write_bytes(mutate.changed_bytes(rng, file.read_bytes()))
    elif name.endswith(".csv"):
        file.write_text(mutate.changed_table(rng, file.read_text()))
    elif name.endswith(".txt"):
        file.write_text(mutate.changed_text(rng, file.read_text()))
    else:
        changed = mutate.changed_lines if name.endswith("l") else mutate.changed_json
        file.write_text(changed(rng, file.read_text()))
    # a report draws for a second or more
    report = rng.random() < 0.2 or name in ("scores.json", "command.txt", "test.npz")
    return ["report", "run", "--out", "page.html"] if report else ["evaluate", "run", "--quiet"]


def compared(rng: Random, folder: Path) -> Words:
    file = pick(rng, sorted((folder / "compared").glob("*/scores.json")))
    file.write_text(mutate.changed_json(rng, file.read_text()))
    return ["compare", "rows.csv", "--objective", "TripletLoss()", "--seeds", "1", "--out", "compared", *comparison()]


def pairs(rng: Random, folder: Path) -> Words:
    file = folder / pick(rng, ("pairs.csv", "pairs.txt"))
    if file.suffix == ".txt":
        file.write_text("10 3\n" + "".join(f"a_b {i} {i + 1}\na_b {i} c_d {i}\n" for i in range(1, 5)))
        file.write_text(mutate.changed_text(rng, file.read_text()))
    elif rng.random() < 0.7:
        file.write_text(mutate.changed_table(rng, file.read_text()))
    else:
        file.write_bytes(mutate.changed_bytes(rng, file.read_bytes()))
    return ["evaluate", "rows.npz", "--protocol", "verification", "--pairs", file.name]


SETTINGS_OF_TEXTS = (
    "modules.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "3_LayerNorm/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)
"""Files of a text model that say how it embeds."""


def text_model(rng: Random, folder: Path) -> Words:
    """The model of texts itself, and its tokenizer."""
    names = ("config.json", "tokenizer.json", "tokenizer_config.json")
    file = folder / "model" / pick(rng, (*names, *names, "model.safetensors", "2_Dense/model.safetensors"))
    if file.suffix == ".safetensors":
        file.write_bytes(mutate.changed_safetensors(rng, file.read_bytes()))
    elif rng.random() < 0.8:
        file.write_text(mutate.changed_json(rng, file.read_text()))
    else:
        file.write_bytes(mutate.changed_bytes(rng, file.read_bytes()))
    return text_words(rng)


def text_settings(rng: Random, folder: Path) -> Words:
    """What the folder of a text model says about its embeddings."""
    file = folder / "model" / pick(rng, SETTINGS_OF_TEXTS)
    way = rng.random()
    if way < 0.85:
        file.write_text(mutate.changed_json(rng, file.read_text()))
    elif way < 0.95:
        file.write_bytes(mutate.changed_bytes(rng, file.read_bytes()))
    else:
        file.unlink()
    return text_words(rng)


def text_words(rng: Random) -> Words:
    """A command that reads the folder of a text model."""
    options = pick(rng, ("", "", "(pool='max')", "(prompt='document')", "(prompt='blue ')"))
    small = ["--set", "steps=1", "--batch-size", "4", "--sampler", "random", "--embedding-dim", "3", "--quiet"]
    return ["train", "texts.csv", "--out", "new", "--trunk", f"transformers:model{options}", *small]


OPTIONS: dict[str, Words] = {
    "--embedding-dim": ["train", "rows.csv", "--out", "new"],
    "--batch-size": ["train", "rows.csv", "--out", "new"],
    "--epochs": ["train", "rows.csv", "--out", "new"],
    "--lr": ["train", "rows.csv", "--out", "new", "--set", "steps=1"],
    "--image-size": ["train", "images", "--out", "new", "--set", "steps=1"],
    "--augment": ["train", "rows.csv", "--out", "new", "--set", "steps=1"],
    "--sampler": ["train", "rows.csv", "--out", "new", "--set", "steps=1"],
    "--test-class": ["inspect", "rows.csv"],
    "--seed": ["inspect", "rows.csv"],
    "--label": ["inspect", "rows.csv"],
    "--test": ["inspect", "rows.csv"],
    "-k": ["search", "rows.index", "rows.npy"],
    "--within": ["duplicates", "rows.index"],
    "--ks": ["evaluate", "rows.csv"],
    "--far": ["evaluate", "rows.csv", "--protocol", "verification"],
    "--ways": ["evaluate", "rows.csv", "--protocol", "few-shot", "--episodes", "2"],
    "--shots": ["evaluate", "rows.csv", "--protocol", "few-shot", "--episodes", "2"],
    "--remove": ["index", "--out", "rows.index"],
    "--run": ["search", "run.index", "rows.csv"],
}


def option(rng: Random, folder: Path) -> Words:
    """A hostile value on the command line."""
    texts = [text for text in mutate.TEXTS if "\0" not in text and len(text) < 100_000]
    text = pick(rng, (*texts, "1e20", "-1", "0", str(2**31), str(2**63)))
    way = rng.random()
    if way < 0.2:
        return ["inspect", text]
    if way < 0.4:
        setting = f"{pick(rng, ('reg', 'n_components', 'max_iter', 'random_state', 't'))}={text}"
        return [
            "fit",
            "rows.csv",
            f"{pick(rng, ('RCA', 'GMML', 'LMNN', 'LDA'))}({setting})",
            "--out",
            "new.safetensors",
        ]
    name = pick(rng, OPTIONS)
    joined = [f"{name}={text}"] if name.startswith("--") else [name, text]
    long = text.isdigit() and int(text[:20]) > 2 and name in ("--epochs", "--ways")
    return [*OPTIONS[name], *([] if long else joined), *(["--quiet"] if OPTIONS[name][0] == "train" else [])]


def field(rng: Random, folder: Path) -> Words:
    """A hostile value of a setting of a run."""
    config = json.loads((folder / "run" / "config.json").read_text())
    name = pick(rng, sorted(config.keys() - {"data", "objective", "steps", "workers", "tensorboard", "device"}))
    value = mutate.as_json(mutate.hostile_value(rng))
    small = ["--set", "steps=1", "--set", "batch_size=4", "--set", 'trunk="identity"', "--set", 'sampler="random"']
    return ["train", "rows.csv", "--out", "new", *small, "--set", f"{name}={value}", "--quiet"]


KINDS: dict[str, tuple[Case, int]] = {
    "csv": (csv, 16),
    "packed csv": (packed_csv, 3),
    "table of images": (image_table, 8),
    "json lines": (json_lines, 10),
    "parquet": (parquet, 12),
    "excel": (excel, 4),
    "feather": (feather, 4),
    "odd text": (odd_text, 6),
    "odd image": (odd_image, 4),
    "image": (image, 6),
    "special file": (special_file, 6),
    "zip": (archive, 6),
    "any source": (any_source, 12),
    "sound": (sound, 6),
    "folder of embeddings": (embedded, 6),
    "npz": (numpy_archive, 8),
    "npy": (numpy_array, 6),
    "learner": (learner, 8),
    "index": (index, 16),
    "config": (run_config, 8),
    "weights": (run_weights, 5),
    "notes of a run": (run_notes, 2),
    "comparison": (compared, 2),
    "pairs": (pairs, 4),
    "option": (option, 8),
    "field": (field, 6),
    "text model": (text_model, 3),
    "settings of a text model": (text_settings, 4),
}
"""What is changed, and how often relative to the others."""


def kind_of(seed: int) -> str:
    """The kind of file that a seed changes."""
    weights = np.array([weight for _, weight in KINDS.values()], dtype=float)
    return str(np.random.default_rng([seed, 0]).choice([*KINDS], p=weights / weights.sum()))


def prepared(seed: int, corpus: Path, folder: Path) -> Words:
    """Copy the valid files into a folder, change one there, and return the command that is to read it."""
    shutil.copytree(corpus, folder, ignore=shutil.ignore_patterns("cache"))
    case, _ = KINDS[kind_of(seed)]
    return case(np.random.default_rng([seed, 1]), folder)
