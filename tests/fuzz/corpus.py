"""Valid files of every kind that the commands read, small and made once."""

import gzip
import io
import json
import os
import sys
import tarfile
import zipfile
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors.torch import save_file

import nearfar.index
from nearfar import cli
from nearfar.index import records_of

FORMATS = ("png", "jpg", "bmp", "gif", "tiff", "webp", "ppm")


def command(*words: object) -> None:
    """Run a command that must succeed."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        before = sys.argv
        sys.argv = ["nearfar", *map(str, words)]
        try:
            cli.main()
        except SystemExit as stop:
            if stop.code:
                raise RuntimeError(f"{words}: {said.getvalue()}") from stop
        finally:
            sys.argv = before


def rows(n: int = 24, d: int = 4, classes: int = 6) -> tuple[np.ndarray, list[str]]:
    """Rows of several classes, and their labels."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % classes
    return rng.normal(size=(n, d)) + labels[:, None], [f"class{label}" for label in labels]


def tables(folder: Path) -> None:
    """Tables of rows and of images, in every format."""
    X, labels = rows()
    header = ["a", "b", "c", "d", "label"]
    cells = [[*(f"{x:.3f}" for x in row), label] for row, label in zip(X, labels, strict=True)]
    split = [["train", "train", "validation", "validation", "test", "test"][i % 6] for i in range(len(X))]
    for mark, ending in ((",", "csv"), ("\t", "tsv")):
        text = "".join(mark.join(row) + "\n" for row in [header, *cells])
        (folder / f"rows.{ending}").write_text(text)
    with gzip.open(folder / "rows.csv.gz", "wt") as file:
        file.write((folder / "rows.csv").read_text())
    if find_spec("openpyxl") is not None:
        write_excel(folder / "rows.xlsx", [header, *cells])
    images = ["path,label,x1,y1,x2,y2,group,split"]
    paths = sorted(path.relative_to(folder).as_posix() for path in (folder / "images").rglob("*.*"))
    images += [f"{path},{path.split('/')[1]},0,0,5,5,g{i % 2},{split[i]}" for i, path in enumerate(paths)]
    (folder / "images.csv").write_text("\n".join(images) + "\n")
    records = [dict(zip(header, [*map(float, row[:4]), row[4]], strict=True)) for row in cells]
    lines = [json.dumps({**record, "name": f"n{i}"}) + "\n" for i, record in enumerate(records)]
    (folder / "rows.jsonl").write_text("".join(lines))
    listed = [{"embedding": list(map(float, row[:4])), "label": row[4]} for row in cells]
    (folder / "embedded.jsonl").write_text("".join(json.dumps(record) + "\n" for record in listed))
    pairs = [
        "left,right,same,fold",
        *(f"{i},{i + 6},1,{i % 3}" for i in range(6)),
        *(f"{i},{i + 1},0,{i % 3}" for i in range(6)),
    ]
    (folder / "pairs.csv").write_text("\n".join(pairs) + "\n")


def write_excel(file: Path, rows: list[list[str]]) -> None:
    """Write cells into the only sheet of a file, numbers as numbers; rows that Excel cannot hold are left out."""
    import openpyxl
    from openpyxl.utils.exceptions import IllegalCharacterError

    book = openpyxl.Workbook()
    for row in rows:
        with suppress(ValueError, IllegalCharacterError):
            book.active.append([float(cell) if cell[:1].isdigit() and len(cell) < 9 else cell[:30_000] for cell in row])
    book.save(file)


def pictures(folder: Path) -> None:
    """Three classes of images, each in several formats."""
    rng = np.random.default_rng(1)
    for label in ("x", "y", "z"):
        (folder / "images" / label).mkdir(parents=True)
        for i, ending in enumerate(FORMATS[:4] if label == "x" else FORMATS[4:] + ("png",)):
            pixels = rng.integers(0, 255, (8, 8, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "images" / label / f"{i}.{ending}")


def sounds(folder: Path) -> None:
    """Two classes of tones, each in several formats."""
    import soundfile

    wave = np.sin(np.arange(2000) / 5).astype(np.float32)
    for label, endings in (("low", ("wav", "flac")), ("high", ("ogg", "mp3", "aiff"))):
        (folder / "sounds" / label).mkdir(parents=True)
        for ending in endings:
            soundfile.write(folder / "sounds" / label / f"tone.{ending}", wave, 8000)


def archives(folder: Path) -> None:
    """Write the images as archives, some in the layout of Omniglot, and as a folder of save_to_disk."""
    import pyarrow as pa

    files = sorted((folder / "images").rglob("*.png"))
    with tarfile.open(folder / "images.tar", "w") as tar:
        tar.add(folder / "images", "images")
    with zipfile.ZipFile(folder / "characters.zip", "w") as archive:
        for number, file in enumerate(files[:4]):
            archive.write(file, f"images/Latin/character{number % 2:02}/{number:04}_01.png")
    exported = folder / "exported"
    (exported / "data").mkdir(parents=True)
    samples = []
    for number, file in enumerate(files[:4]):
        (exported / "data" / f"{number}.png").write_bytes(file.read_bytes())
        label = {"_cls": "Classification", "label": file.parent.name}
        samples.append({"filepath": f"data/{number}.png", "tags": ["train"], "ground_truth": label})
    (exported / "samples.json").write_text(json.dumps({"samples": samples}))
    (exported / "metadata.json").write_text(json.dumps({"name": "x", "sample_fields": {"filepath": "StringField"}}))
    (folder / "saved").mkdir()
    table = pa.table({"image": [file.read_bytes() for file in files], "label": [file.parent.name for file in files]})
    with pa.OSFile(str(folder / "saved" / "data.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    (folder / "saved" / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))


def text_model(folder: Path) -> None:
    """Write a tiny text model with everything that its folder may say, and a table of texts."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers
    from torch import nn

    words = ["[PAD]", "[UNK]", "red", "blue", "green", "shoe", "hat", "coat"]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "model_max_length": 12}
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **marks).save_pretrained(folder / "model")
    sizes: dict[str, Any] = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=16, **sizes)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder / "model")
    kinds = ("Transformer", "Pooling", "Dense", "LayerNorm", "Normalize")
    places = ("", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number))
    listed = [
        {"idx": number, "name": str(number), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, place) in enumerate(zip(kinds, places, strict=True))
    ]
    settings: dict[str, Any] = {
        "modules.json": listed,
        "1_Pooling/config.json": {
            "word_embedding_dimension": 8,
            "pooling_mode_cls_token": True,
            "include_prompt": True,
        },
        "2_Dense/config.json": {
            "in_features": 8,
            "out_features": 4,
            "bias": True,
            "activation_function": "torch.nn.modules.activation.Tanh",
        },
        "3_LayerNorm/config.json": {"dimension": 4},
        "sentence_bert_config.json": {"max_seq_length": 10, "do_lower_case": True},
        "config_sentence_transformers.json": {
            "prompts": {"query": "red ", "document": ""},
            "default_prompt_name": "query",
            "similarity_fn_name": "cosine",
            "truncate_dim": 3,
        },
    }
    for name, content in settings.items():
        (folder / "model" / name).parent.mkdir(exist_ok=True)
        (folder / "model" / name).write_text(json.dumps(content))
    for place, layer in (("2_Dense", nn.Sequential()), ("3_LayerNorm", nn.Sequential())):
        layer.add_module(*(("linear", nn.Linear(8, 4)) if place == "2_Dense" else ("norm", nn.LayerNorm(4))))
        save_file(layer.state_dict(), folder / "model" / place / "model.safetensors")
    texts = [f"{color} {thing}" for thing in ("shoe", "hat", "coat") for color in ("red", "blue", "green", "a big")]
    lines = [f"{text},{text.split()[-1]}" for text in texts]
    (folder / "texts.csv").write_text("\n".join(["text,label", *lines]) + "\n")


def make(folder: Path) -> None:
    """Write all of them below a folder: also a run, a learner, indexes and a comparison."""
    os.environ.setdefault("NEARFAR_CACHE", str(folder / "cache"))
    pictures(folder)
    archives(folder)
    sounds(folder)
    tables(folder)
    text_model(folder)
    X, labels = rows()
    names = [str(i) for i in range(len(X))]
    np.savez(folder / "rows.npz", X=X.astype(np.float32), y=labels, names=names)
    np.save(folder / "rows.npy", X.astype(np.float32))
    with chdir(folder):
        small = ["--set", "steps=1", "--batch-size", "4", "--sampler", "random", "--embedding-dim", "3", "--quiet"]
        command("train", "rows.csv", "--out", "run", "--trunk", "identity", *small)
        command("evaluate", "run", "--quiet")
        command("fit", "rows.csv", "RCA", "--out", "learner.safetensors", "--quiet")
        command("fit", "rows.csv", "Autoencoder(max_iter=2)", "--out", "network.safetensors", "--quiet")
        command("embed", "learner.safetensors", "rows.npz", "--out", "embedded", "--part-size", "10")
        command("embed", "learner.safetensors", "rows.npz", "--out", "rows.faiss")
        command("index", "rows.npz", "--out", "rows.index")
        command("index", "run", "rows.csv", "--out", "run.index")
        changed_index()
        command(
            "compare", "rows.csv", "--objective", "TripletLoss()", "--seeds", "1", "--out", "compared", *comparison()
        )


def changed_index() -> None:
    """Make an index that was changed twice."""
    items = records_of(rows(2)[0], ["new", "newer"], labels=["class0", "other"], columns={"price": [1.0, 2.0]})
    command("index", "rows.npz", "--out", "changed.index")
    with nearfar.index.open("changed.index", "w") as store:
        store.add(items, gone=["0"], about={"made": "by two"})
        store.remove(["new"])


def comparison() -> list[str]:
    """The options of the comparison that is there."""
    words = ['trunk="identity"', "steps=1", "batch_size=4", 'sampler="random"', "embedding_dim=3"]
    return [word for setting in words for word in ("--set", setting)]
