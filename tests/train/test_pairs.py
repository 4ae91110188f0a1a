"""Images with their texts: two towers, one space, searched by words."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import cross_entropy, normalize

from nearfar import AMSoftmaxLoss, NTXentLoss, TripletLoss
from nearfar.cli import main
from nearfar.data import DataError, Dataset, open_items, open_task
from nearfar.data.dataset import images_once
from nearfar.data.readers.texts import text_items
from nearfar.deep.networks.embedder import Embedder
from nearfar.deep.networks.identity import Identity
from nearfar.deep.networks.trunks import make_trunk
from nearfar.models import load_embedder
from nearfar.train import TrainConfig, TrainError, embed_run, evaluate_run, train
from nearfar.train.checkpoint import load_tensors
from nearfar.train.network import as_sum
from nearfar.train.pairs import PairFeatures, check_objective, value_both_ways
from nearfar.train.run import RunFolder

from ..conftest import prepare_transformers
from ..processes import run_in_processes
from ..towers import PIXELS, SMALL, text_settings, write_bert, write_clip, write_tokenizer

pytest.importorskip("tokenizers")

COLORS = {"red": (220, 20, 20), "green": (20, 220, 20), "blue": (20, 20, 220), "gray": (120, 120, 120)}
WORDS = ["[PAD]", "[UNK]", "dark", "bright", *COLORS, "[EOS]", "[BOS]"]


@pytest.fixture(scope="module")
def bert(transformers, tmp_path_factory):
    return write_bert(transformers, tmp_path_factory.mktemp("bert"), WORDS)


@pytest.fixture(scope="module")
def clip(transformers, tmp_path_factory):
    return write_clip(transformers, tmp_path_factory.mktemp("clip"), WORDS)


@pytest.fixture(scope="module")
def siglip(transformers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("siglip")
    torch.manual_seed(0)
    config = transformers.SiglipConfig(
        text_config=text_settings(WORDS), vision_config=SMALL | {"image_size": 16, "patch_size": 8}
    )
    transformers.SiglipModel(config).save_pretrained(folder)
    size = {"size": {"height": 16, "width": 16}, "do_resize": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(size | PIXELS))
    write_tokenizer(folder, WORDS)
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Photos of four colors in two shades, with words that say both."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    with (folder / "pairs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "text"])
        for number in range(48):
            color = [*COLORS][number % 4]
            shade = ("dark", "bright")[number // 4 % 2]
            pixels = np.array(COLORS[color]) * (0.4 if shade == "dark" else 1.0) + rng.normal(0, 6, (16, 16, 3))
            Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / f"{number:02}.png")
            writer.writerow([f"{number:02}.png", f"{shade} {color}"])
    return folder / "pairs.csv"


def test_a_pooler_that_makes_no_features_is_not_trained(bert):
    trunk = make_trunk(f"transformers:{bert}", (4,))
    still = {name for name, parameter in trunk.named_parameters() if not parameter.requires_grad}
    assert {name.rpartition("pooler.")[2] for name in still} == {"dense.weight", "dense.bias"}


def settings(table, text_trunk, **changes):
    how = {"data": str(table), "trunk": "conv4(width=4)", "text_trunk": f"transformers:{text_trunk}"}
    how |= {"embedding_dim": 4, "freeze_bn": True, "batch_size": 12, "steps": 3, "lr_text": 1e-2, "device": "cpu"}
    how |= {"optimizer": "sgd", "lr": 0.05}
    return TrainConfig.of(**how | changes)


@pytest.fixture(scope="module")
def run(bert, table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    own = folder / "model"
    shutil.copytree(bert, own)
    config = settings(table, own, optimizer="adam", lr=1e-2, steps=None, epochs=12, eval_every=12, validation=0.2)
    found = train(config, folder / "run", progress=False)
    result = evaluate_run(found.folder)
    assert result.raw is None
    assert set(result.scores.recall_at) == set(result.images_to_texts.recall_at) == {1, 5, 10}
    shutil.rmtree(own)  # from here on the run alone is needed
    return found.folder


# Data


def test_a_table_of_pairs_makes_every_photo_a_class_of_its_own(table):
    items = open_task(table, pairs=True).train
    assert items.are_pairs
    words = [(shade, color) for shade in ("dark", "bright") for color in COLORS]
    assert items.texts[0] == " ".join(words[int(items.names[0][:2]) % 8])
    assert len(items.classes) == len(items)
    assert items.subset([2]).texts_given == [items.texts[2]]
    several = table.parent / "several.jsonl"
    lines = [f'{{"path": "{table.parent}/0{n}.png", "caption": "{text}"}}' for n in range(6) for text in ("a", "b")]
    several.write_text("\n".join(lines))
    items = open_task(several, pairs=True, validation=0).train
    assert len(items) == 2 * len(items.classes) == 6
    once = images_once(items)
    assert len(once) == 3
    assert list(once.names) == list(dict.fromkeys(items.names))
    labeled = table.parent / "labeled.csv"
    labeled.write_text("path,text,label\n" + "".join(f"{table.parent}/0{n}.png,a,{n % 4}\n" for n in range(8)))
    items = open_task(labeled, pairs=True).train
    assert items.classes != items.names
    assert open_items(labeled).texts is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("path,text\n00.png,red\n01.png,\n", "the text is empty in 1 row, first in row 2 after the header"),
        ("path,label\n00.png,red\n", "has no column 'text', which pairs of images and texts need"),
        ("text,label\nred,red\n", "has no column 'path', which pairs of images and texts need"),
    ],
)
def test_pairs_need_photos_and_texts(tmp_path, content, says):
    file = tmp_path / "pairs.csv"
    file.write_text(content)
    with pytest.raises(DataError, match=says):
        open_task(file, pairs=True)


def test_photos_without_texts_are_named():
    with pytest.raises(DataError, match="'digits': has images without texts; for pairs, give a table"):
        open_task("digits", pairs=True)
    images = np.zeros((3, 4, 4), np.uint8)
    with pytest.raises(DataError, match="some: 3 images but 2 texts; expected one text for each image"):
        Dataset.from_array("some", images, [0, 1, 2], texts=["a", "b"])
    assert Dataset.from_array("some", images, [0, 1, 2], texts=["a", "b", "c"]).are_pairs


# The objective


def features(n=6, d=4):
    rng = torch.Generator().manual_seed(0)
    images, texts = (torch.randn(n, d, generator=rng, dtype=torch.float64).requires_grad_() for _ in range(2))
    return PairFeatures(images, images, texts, texts)


def test_with_nt_xent_the_value_is_the_loss_of_clip():
    found = features()
    value = value_both_ways(as_sum(NTXentLoss(temperature=0.1)), found, torch.arange(6), None)
    value.backward()
    images, texts = (part.detach().requires_grad_() for part in (found.embedding, found.text_embedding))
    logits = normalize(images) @ normalize(texts).T / 0.1
    expected = (cross_entropy(logits, torch.arange(6)) + cross_entropy(logits.T, torch.arange(6))) / 2
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(found.embedding.grad, images.grad)
    torch.testing.assert_close(found.text_embedding.grad, texts.grad)


def test_parts_are_means_of_both_ways():
    objective = as_sum(TripletLoss() + 0.1 * NTXentLoss())
    value = value_both_ways(objective, features(), torch.arange(6) // 2, torch.arange(6))
    triplets, entropies = objective.parts_.values()
    torch.testing.assert_close(value.detach(), triplets + 0.1 * entropies)


def test_losses_with_proxies_of_classes_are_refused():
    with pytest.raises(TrainError, match="AMSoftmaxLoss compares with class proxies, but pairs need"):
        check_objective(as_sum(NTXentLoss() + 0.1 * AMSoftmaxLoss(3, 4)))


def test_towers_have_one_dimension():
    with pytest.raises(ValueError, match="text: expected embeddings with 4 dimensions, like those of images, got 3"):
        Embedder(Identity(6), 4, text=Embedder(Identity(5), 3))


# Settings


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"episodes": "maml"},
            "config: episodes works only with a single tower, so it must not be given with text_trunk",
        ),
        ({"lora": 4}, "config: lora works only with a single tower"),
        (
            {"text_trunk": None, "lr_text": 0.1},
            "config: lr_text is the learning rate of the text trunk, so text_trunk must be given",
        ),
    ],
)
def test_settings_of_one_tower_are_refused(changes, says):
    with pytest.raises(TrainError, match=says):
        TrainConfig.of(**{"data": "digits", "text_trunk": "transformers:somewhere", **changes})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data": "digits"}, "'digits': has images without texts"),
        ({"text_trunk": "mlp"}, "config: text_trunk: texts need a tokenizer: text_trunk=transformers:FOLDER"),
    ],
)
def test_a_text_trunk_needs_texts_and_a_tokenizer(table, tmp_path, changes, says):
    config = TrainConfig.of(**{"data": str(table), "text_trunk": "transformers:x", "device": "cpu", **changes})
    with pytest.raises((TrainError, DataError), match=says):
        train(config, tmp_path / "run", progress=False)


# Runs


def command(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["nearfar", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    return ended.value.code or 0, said.out + said.err


def test_photos_are_found_by_words(run, table, tmp_path, capsys, monkeypatch):
    items = open_task(table, pairs=True).test
    texts = text_items("some", ["dark red", "bright blue"], ["", ""])
    images = normalize(torch.from_numpy(embed_run(run, items)))
    found = normalize(torch.from_numpy(embed_run(run, texts)))
    assert images.shape == (24, 4)
    assert found.shape == (2, 4)
    file = tmp_path / "photos.index"
    assert command(monkeypatch, capsys, "index", run, table.parent, "-o", file)[0] == 0
    everything = open_items(table.parent)
    nearest = int((found[1] @ normalize(torch.from_numpy(embed_run(run, everything))).T).argmax())
    code, told = command(monkeypatch, capsys, "search", file, "bright blue", "-k", 1)
    assert code == 0
    assert everything.names[nearest] in told
    code, told = command(monkeypatch, capsys, "card", run)
    assert code == 0
    assert "| score | text to image | image to text | chance |" in (run / "README.md").read_text()
    (tmp_path / "words.csv").write_text("text\ndark red\nbright blue\n")
    assert command(monkeypatch, capsys, "embed", run, tmp_path / "words.csv", "-o", tmp_path / "words.npz")[0] == 0
    with np.load(tmp_path / "words.npz") as embedded:
        torch.testing.assert_close(normalize(torch.from_numpy(embedded["embeddings"])), found)


def test_a_page_finds_photos_by_words(run, table, tmp_path, capsys, monkeypatch):
    client = pytest.importorskip("starlette.testclient")
    from nearfar.serve import open_app

    file = tmp_path / "photos.index"
    assert command(monkeypatch, capsys, "index", run, table.parent, "-o", file)[0] == 0
    asked = client.TestClient(
        open_app(file, run=None, wrong=tmp_path / "wrong.csv", hosts=["localhost"], token=""),
        base_url="http://localhost",
    )
    about = asked.get("/api/about").json()
    assert (about["text"], about["images"]) == (True, True)
    found = asked.post("/api/search-text?k=3", json={"text": "bright blue"}).json()["neighbors"]
    told = command(monkeypatch, capsys, "search", file, "bright blue", "-k", 3)[1]
    assert [told.index(one["name"]) for one in found] == sorted(told.index(one["name"]) for one in found)


def test_what_was_learned_is_found_again(run):
    metrics = RunFolder(run).read_metrics()
    assert metrics[-1]["seen_recall_at_10"] > metrics[-1]["seen_recall_at_1"] > 0
    assert metrics[-1]["loss"] < metrics[0]["loss"] - 0.3
    with np.load(run / "test.npz") as found:
        assert found["names"][0] in {f"{shade} {color}" for shade in ("dark", "bright") for color in COLORS}
        assert len(found["embeddings"]) == len(found["gallery_embeddings"]) == 24


def test_a_run_of_photos_alone_says_that_it_knows_no_words(table, tmp_path, capsys, monkeypatch):
    config = TrainConfig.of(data="digits", trunk="identity", embedding_dim=2, steps=1, device="cpu", ks=(1,))
    train(config, tmp_path / "run", progress=False)
    with pytest.raises(TrainError, match="does not embed texts"):
        embed_run(tmp_path / "run", text_items("some", ["red shoes"], [""]))
    assert command(monkeypatch, capsys, "index", tmp_path / "run", "digits", "-o", tmp_path / "some.index")[0] == 0
    code, told = command(monkeypatch, capsys, "search", tmp_path / "some.index", "red shoes")
    assert code == 2
    assert "it cannot be searched as a text, because" in told
    assert "has no text tower; train one with `nearfar train --text-trunk`" in told


def test_chunks_give_the_weights_of_whole_batches(bert, table, tmp_path):
    config = settings(table, bert)
    whole = train(config, tmp_path / "whole", progress=False)
    chunks = train(config.replace(chunk=5), tmp_path / "chunks", progress=False)
    same(load_tensors(whole.folder / "last.safetensors")[0], load_tensors(chunks.folder / "last.safetensors")[0])


def test_texts_are_fitted_to_images_of_a_frozen_trunk(bert, table, tmp_path, monkeypatch):
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    config = settings(table, bert, freeze_trunk=True, steps=2)
    frozen = train(config, tmp_path / "frozen", progress=False)
    images = [load_tensors(frozen.folder / "last.safetensors")[0], train_nothing(config, tmp_path / "nothing")]
    for name, value in images[0].items():
        if name.startswith("embedder.trunk."):
            assert torch.equal(value, images[1][name]), name
    layer = "embedder.text.trunk.module.inner.encoder.layer.0.output.dense.weight"
    assert not torch.equal(images[0][layer], images[1][layer])
    assert evaluate_run(frozen.folder).images_to_texts is not None


def train_nothing(config, folder):
    still = config.replace(lr=0.0, lr_text=0.0, steps=1)
    return load_tensors(train(still, folder, progress=False).folder / "last.safetensors")[0]


def test_a_run_goes_on_as_if_it_had_not_been_broken_off(bert, table, tmp_path):
    config = settings(table, bert, steps=None, epochs=2, dropout=0.2)
    train(config, tmp_path / "whole", progress=False)
    train(config.replace(epochs=1), tmp_path / "again", progress=False)
    train(config, tmp_path / "again", resume=True, progress=False)
    whole, again = (load_tensors(tmp_path / name / "last.safetensors")[0] for name in ("whole", "again"))
    assert all(torch.equal(value, again[key]) for key, value in whole.items())


def test_both_halves_of_a_model_begin_in_the_space_that_they_share(transformers, clip, table, tmp_path):
    config = settings(table, clip, trunk=f"transformers:{clip}", lr=0, lr_text=0)
    given = {name: value for name, value in config.to_dict().items() if name in config.given}
    del given["embedding_dim"]  # that of the space
    config = TrainConfig.of(**given)
    found = train(config, tmp_path / "run", progress=False)
    assert found.config.embedding_dim == 6
    embedder = load_embedder(found.folder)
    model = transformers.CLIPModel.from_pretrained(clip).eval()
    pixels = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[2, 4, 8], [3, 8, 0]])
    with torch.no_grad():
        out = model(input_ids=ids, attention_mask=(ids > 0).long(), pixel_values=(pixels - 0.5) / 0.5)
        images = normalize(embedder(pixels).embedding)
        texts = normalize(embedder.text(torch.where(ids > 0, ids, -1).float()).embedding)
    torch.testing.assert_close(images, out.image_embeds, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(texts, out.text_embeds, rtol=1e-4, atol=1e-5)


def test_the_halves_of_siglip_begin_as_they_are(transformers, siglip, table, tmp_path):
    config = settings(table, siglip, trunk=f"transformers:{siglip}", pretrained=True, lr=0, lr_text=0)
    given = {name: value for name, value in config.to_dict().items() if name in config.given}
    del given["embedding_dim"]
    config = TrainConfig.of(**given | {"objective": "SigLIPLoss()", "lr_embedding": 0.0, "lr_proxies": 0.1})
    found = train(config, tmp_path / "run", progress=False)
    assert found.config.embedding_dim == 8
    embedder = load_embedder(found.folder)
    model = transformers.SiglipModel.from_pretrained(siglip).eval()
    pixels = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[2, 4, 8], [3, 8, 5]])
    with torch.no_grad():
        out = model(input_ids=ids, pixel_values=(pixels - 0.5) / 0.5)
        torch.testing.assert_close(normalize(embedder(pixels).embedding), out.image_embeds, rtol=1e-4, atol=1e-5)
        texts = normalize(embedder.text(ids.float()).embedding)
    torch.testing.assert_close(texts, out.text_embeds, rtol=1e-4, atol=1e-5)
    tensors = load_tensors(found.folder / "last.safetensors")[0]
    assert tensors["objective.terms.0.bias"].item() != -10
    row = RunFolder(found.folder).read_metrics()[-1]
    assert row["learned_SigLIPLoss_bias"] == pytest.approx(tensors["objective.terms.0.bias"].item())
    assert row["learned_SigLIPLoss_scale"] == pytest.approx(10 * tensors["objective.terms.0.log_factor"].exp().item())


def test_a_run_learns_the_temperature_of_clip(bert, table, tmp_path):
    config = settings(table, bert, objective="NTXentLoss(temperature=0.1, learn_temperature=True)", lr_proxies=0.5)
    found = train(config, tmp_path / "run", progress=False)
    tensors = load_tensors(found.folder / "last.safetensors")[0]
    row = RunFolder(found.folder).read_metrics()[-1]
    assert row["learned_NTXentLoss_temperature"] != pytest.approx(0.1, abs=1e-4)
    expected = tensors["objective.terms.0.log_scale"].neg().exp().clamp_min(0.01)
    assert row["learned_NTXentLoss_temperature"] == pytest.approx(expected.item())


def test_texts_of_a_table_of_pairs_are_embedded(run, table, tmp_path, capsys, monkeypatch):
    made = {}
    for words in ([], ["--texts"]):
        file = tmp_path / f"{len(words)}.npz"
        assert command(monkeypatch, capsys, "embed", run, table, *words, "-o", file)[0] == 0
        with np.load(file) as found:
            made[len(words)] = dict(found)
    assert (made[0]["names"] == made[1]["names"]).all()
    items = open_task(table, pairs=True).test
    place = made[1]["names"].tolist().index(items.names[0])
    (expected,) = embed_run(run, text_items("one", items.texts_given[:1], [""]))
    np.testing.assert_allclose(made[1]["embeddings"][place], expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(made[0]["embeddings"], made[1]["embeddings"])
    code, told = command(monkeypatch, capsys, "embed", run, table.parent, "--texts", "-o", tmp_path / "no.npz")
    assert code == 2
    assert "has images without texts; for pairs, give a table with the columns path and text" in told


def same(one, two):
    assert one.keys() == two.keys()
    for key, value in one.items():
        assert (value - two[key]).double().norm() <= 1e-5 * value.double().norm() + 1e-7, key


def work(rank: int, world: int, table: str, bert: str, folder: str) -> None:
    os.environ["ACCELERATE_USE_CPU"] = "true"
    prepare_transformers()
    train(settings(table, bert), Path(folder) / "plain", progress=False)
    train(settings(table, bert, chunk=4), Path(folder) / "chunks", progress=False)


@pytest.mark.slow
def test_two_processes_train_the_towers_that_one_does(bert, table, tmp_path):
    train(settings(table, bert), tmp_path / "one", progress=False)
    run_in_processes(work, 2, str(table), str(bert), str(tmp_path))
    one = load_tensors(tmp_path / "one" / "last.safetensors")[0]
    same(one, load_tensors(tmp_path / "plain" / "last.safetensors")[0])
    same(one, load_tensors(tmp_path / "chunks" / "last.safetensors")[0])
    both = [RunFolder(tmp_path / name).read_metrics()[0] for name in ("one", "plain")]
    for key in both[0].keys() - {"images_per_second"}:
        assert both[1][key] == pytest.approx(both[0][key], rel=1e-4, abs=1e-6), key
