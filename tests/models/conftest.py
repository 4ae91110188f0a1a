"""Small models of every kind, made on the spot."""

import csv

import numpy as np
import pytest

from ..towers import write_bert, write_clip

WORDS = ["[PAD]", "[UNK]", "red", "green", "blue", "dark", "bright", "[EOS]", "[BOS]"]
COLORS = {"red": (220, 20, 20), "green": (20, 220, 20), "blue": (20, 20, 220)}


@pytest.fixture(scope="session")
def bert(transformers, tmp_path_factory):
    """A text encoder of transformers."""
    return write_bert(transformers, tmp_path_factory.mktemp("bert"), WORDS)


@pytest.fixture(scope="session")
def clip(transformers, tmp_path_factory):
    """An encoder of photos and texts of transformers."""
    return write_clip(transformers, tmp_path_factory.mktemp("clip"), WORDS)


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A folder of 24 photos of three colors, and a table of them with their texts."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    rows = [("path", "text", "label")]
    for number in range(24):
        color = [*COLORS][number % 3]
        shade = ("dark", "bright")[number // 3 % 2]
        pixels = np.array(COLORS[color]) * (0.4 if shade == "dark" else 1.0) + rng.normal(0, 6, (16, 16, 3))
        image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / f"{number:02}.png")
        rows.append((f"{number:02}.png", f"{shade} {color}", f"{shade} {color}"))
    with (folder / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return folder


@pytest.fixture(scope="session")
def runs(photos, bert, tmp_path_factory):
    """Folders of runs on rows, photos, texts, and photos with their texts."""
    pytest.importorskip("torch")
    from nearfar.train import TrainConfig, train

    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    np.savez(folder / "rows.npz", X=rng.normal(size=(48, 5)).astype(np.float32), y=np.arange(48) % 6)
    with (folder / "texts.csv").open("w") as file:
        file.write("text,label\n")
        file.writelines(
            f"{rng.choice(WORDS[5:7])} {color} {rng.choice(WORDS[2:5])},{color}\n" for color in [*COLORS, "dark"] * 6
        )
    how = {"steps": 1, "embedding_dim": 4, "batch_size": 8, "device": "cpu", "keep": "trained", "freeze_bn": True}
    text_model = f"transformers:{bert}"
    kinds = {
        "rows": {"data": str(folder / "rows.npz"), "trunk": "mlp(width=8, depth=1)"},
        "photos": {"data": str(photos / "pairs.csv"), "trunk": "conv4(width=4)", "label": "label"},
        "texts": {"data": str(folder / "texts.csv"), "trunk": text_model},
        "pairs": {"data": str(photos / "pairs.csv"), "trunk": "conv4(width=4)", "text_trunk": text_model},
    }
    for name, settings in kinds.items():
        train(TrainConfig.of(**how | settings), folder / name, progress=False)
    return folder
