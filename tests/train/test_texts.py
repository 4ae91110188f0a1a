"""Text encoders of transformers: trained on a table of texts, and searched by words."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")

from nearfar.cli import main
from nearfar.data import open_items
from nearfar.data.dataset import DataError
from nearfar.data.readers.texts import first_words
from nearfar.deep.networks.tokens import Tokens
from nearfar.deep.networks.trunks import find_preprocessing, make_trunk
from nearfar.deep.networks.weights import TrunkError
from nearfar.io.scores_file import baseline_of, read_scores
from nearfar.train import TrainConfig, TrainError, embed_run, evaluate_run, recipe, text_trunks, train
from nearfar.train.checkpoint import load_tensors, read_about, save_tensors
from nearfar.train.defaults import PAIR_BATCHES, TEXT_BATCHES, defaults_note
from nearfar.train.rungs.by_default import default_ladder
from nearfar.train.rungs.ladder import ladder
from nearfar.train.rungs.rung_settings import config_for
from nearfar.train.rungs.untrained import save_untrained
from nearfar.train.settle import settle
from nearfar.train.task import tokenized

WORDS = ["[PAD]", "[UNK]", "red", "blue", "green", "shoe", "hat", "coat", "small", "large"]
CLASSES = ["shoe", "hat", "coat", "red", "blue", "green", "small", "large"]
SMALL = {"vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


@pytest.fixture(scope="module")
def bert(transformers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    config = transformers.BertConfig(**SMALL, max_position_embeddings=12)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder):
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("texts") / "things.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for word in CLASSES:
            for _ in range(8):
                writer.writerow([" ".join(rng.permutation([word, *rng.choice(WORDS[2:], 2)])), word])
    return path


@pytest.fixture(scope="module")
def run(bert, table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    own = folder / "model"
    shutil.copytree(bert, own)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NEARFAR_CACHE", str(folder / "cache"))
        how = {"data": str(table), "trunk": f"transformers:{own}", "objective": "TripletLoss()", "ks": [1]}
        config = TrainConfig.of(**how, embedding_dim=4, epochs=2, batch_size=8, sampler="m_per_class:4", device="cpu")
        run = train(config, folder / "run", progress=False)
        scores = evaluate_run(run.folder, clustering=False).scores
    assert 0 <= scores.recall_at[1] <= 1
    shutil.rmtree(own)  # from here on the run alone is needed
    return run.folder


def test_texts_of_a_table_are_its_items(table):
    items = open_items(table)
    assert items.kind == "text"
    assert len(items) == 64
    assert items.names[0] == items.texts[0]
    assert len(set(items.names)) == 64
    assert first_words(["a", "a", "a (2)", "a", "b" * 80]) == ["a", "a (2)", "a (2) (2)", "a (3)", "b" * 60]
    assert items.subset([3, 5]).texts.tolist() == items.texts[[3, 5]].tolist()
    assert items.subset([0]).joined(items.subset([1])).texts_given == items.texts_given[:2]
    with pytest.raises(DataError, match=r"item 2 is a text, .*; texts are for a network with a tokenizer"):
        items.read(2)


def test_rows_hold_tokens_and_end_with_the_text(bert):
    tokens = Tokens.of_folder(bert)
    assert tokens.max_tokens == 12
    assert tokens.rows(["red shoe", "a", ""]).tolist() == [[2, 5], [1, -1], [-1, -1]]
    assert tokens.rows(["red shoe", "hat"], 1).tolist() == [[2], [6]]
    assert tokens.rows(["red " * 30]).shape == (1, 12)


def test_features_are_the_mean_over_the_tokens_of_the_model(transformers, bert):
    assert find_preprocessing(f"transformers:{bert}") is None
    trunk = make_trunk(f"transformers:{bert}", (4,)).eval()
    assert trunk.num_features == 8
    model = transformers.AutoModel.from_pretrained(bert, add_pooling_layer=False).eval()
    with torch.no_grad():
        found = trunk(torch.tensor([[2.0, 5, 7, -1], [6, -1, -1, -1]]))
        for row, ids in zip(found, ([[2, 5, 7]], [[6]]), strict=True):
            expected = model(input_ids=torch.tensor(ids)).last_hidden_state[0].mean(0)
            torch.testing.assert_close(row, expected, rtol=1e-5, atol=1e-6)


def test_the_text_half_of_a_model_of_images_and_texts(transformers, tmp_path):
    text = SMALL | {"max_position_embeddings": 6, "eos_token_id": 9, "bos_token_id": 8, "pad_token_id": 0}
    vision = {key: SMALL[key] for key in SMALL if key != "vocab_size"} | {"image_size": 8, "patch_size": 4}
    model = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision)).eval()
    model.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    trunk = make_trunk(f"transformers:{tmp_path}", (4,)).eval()
    ids = torch.tensor([[2, 5, 9, 0], [3, 9, 0, 0]])
    rows = torch.where(ids == 0, -1, ids).float()
    with torch.no_grad():
        expected = model.text_model(input_ids=ids, attention_mask=(ids > 0).long()).pooler_output
        torch.testing.assert_close(trunk(rows), expected, rtol=1e-5, atol=1e-6)


def test_few_queries_and_documents_are_trained_for_more_batches_than_few_texts_of_classes(bert, tmp_path):
    lines = [f"red item {i},item {i} of red" for i in range(40)]
    (tmp_path / "queries.csv").write_text("\n".join(["query,document", *lines, ""]))
    config = settle(TrainConfig.of(data=str(tmp_path / "queries.csv"), trunk=f"transformers:{bert}")).config
    assert config.epochs == PAIR_BATCHES  # of a batch each
    assert PAIR_BATCHES > TEXT_BATCHES


def test_a_text_model_has_the_recipe_of_texts_and_is_the_baseline(run, bert, table):
    trunk = f"transformers:{bert}"
    for changes, name in (({}, "finetune"), ({"freeze_trunk": True}, "frozen"), ({"lora": 2}, "lora")):
        asked = TrainConfig.of(data=str(table), trunk=trunk, device="cpu", seed=3, **changes)
        plan = settle(asked)
        config = plan.config
        for setting, value in (recipe(f"texts/{name}") | changes | {"precision": config.precision}).items():
            assert getattr(config, setting) == value, setting
        if name == "finetune":
            assert config.embedding_dim == 8  # the features of the model
            assert config.epochs == TEXT_BATCHES  # of a batch each, because the texts are few
        assert f"recipe texts/{name}" in defaults_note(asked, config, plan.task)
        assert config.seed == 3
    # 0.001, the rate of random weights, spoils a pretrained trunk
    assert recipe("texts/finetune")["lr"] <= 1e-4
    assert recipe("photos/finetune")["lr"] <= 5e-4
    scored = read_scores(run / "scores.json")
    assert scored["raw"] is None  # distances between token numbers mean nothing
    name, baseline = baseline_of(scored)
    assert name == "features of the pretrained trunk"
    assert baseline["map_at_r"] > 0


def test_texts_get_the_first_text_model_in_the_cache_of_the_hub(bert, table, tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub").constants
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    asked = TrainConfig.of(data=str(table), device="cpu")
    with pytest.raises(
        TrainError, match=r"for texts, auto is the first of these models .*all-MiniLM-L6-v2.* give trunk="
    ):
        settle(asked)
    for name in text_trunks.TEXT_TRUNKS[3:0:-2]:
        folder = tmp_path / f"models--{name.replace('/', '--')}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text("0" * 40)
        shutil.copytree(bert, folder / "snapshots" / ("0" * 40))
        config = settle(asked).config
        assert config.trunk == f"transformers:{folder / 'snapshots' / ('0' * 40)}"
        assert config.starts_pretrained
        page = (Path(__file__).parents[2] / "docs" / "items.md").read_text()
        assert all(f"`{name}`" in page for name in text_trunks.TEXT_TRUNKS)


@pytest.mark.parametrize("step", ["frozen", "whitened"])
def test_features_of_a_text_model_make_a_run_without_training(step, bert, table, tmp_path):
    config = TrainConfig.of(data=str(table), trunk=f"transformers:{bert}", device="cpu", ks=[1])
    made = save_untrained(config_for(step, config), tmp_path / "run", form="none" if step == "frozen" else "whitening")
    result = evaluate_run(made, clustering=False)
    scores = result.scores if result.without_metric is None else result.without_metric
    assert scores.map_at_r == pytest.approx(result.frozen.map_at_r, abs=1e-6)
    assert (result.without_metric is None) is (step == "frozen")


def test_texts_climb_from_frozen_features_to_a_linear_layer(bert, table):
    config = TrainConfig.of(
        data=str(table), trunk=f"transformers:{bert}", device="cpu", batch_size=8, test_classes=["small", "large"]
    )
    assert not default_ladder(config).runs  # few batches train all weights, and the choice after them compares
    found = ladder(config, splits=1, untrained_splits=3)
    assert [row.name for row in found.rows] == ["frozen", "whitened", "head"]
    assert [len(row.map_at_r) for row in found.rows] == [3, 3, 1]
    assert "48 texts of 6 training classes" in found.protocol
    assert found.weights.startswith("Weights: ")


def test_a_text_model_that_is_trained_shortly_is_trained_again_on_all_training_classes(
    bert, table, tmp_path, monkeypatch
):
    monkeypatch.setattr("nearfar.train.rungs.choice.best_of", lambda candidates, **_: "interpolated")
    config = TrainConfig.of(
        data=str(table), trunk=f"transformers:{bert}", device="cpu", batch_size=8, lr=0.01, epochs=1
    )
    train(config, tmp_path / "run", progress=False)
    kept, about = load_tensors(tmp_path / "run/best.safetensors")
    assert about["again"]
    assert about["kept"] == "interpolated"
    trained = load_tensors(tmp_path / "run/trained.safetensors")[0]
    name = next(name for name in kept if name.endswith("layer.weight"))
    began = torch.eye(8)  # the features as they are
    assert torch.linalg.norm(kept[name] - began) < torch.linalg.norm(trained[name] - began)
    monkeypatch.setattr("nearfar.train.trainer.MOST_TEXTS_AGAIN", 15)
    train(config, tmp_path / "long", progress=False)
    assert "again" not in read_about(tmp_path / "long/best.safetensors")


def test_a_run_embeds_texts_without_the_folder_of_its_model(run, table):
    items = open_items(table)
    embeddings = embed_run(run, items)
    assert embeddings.shape == (64, 4)
    again = embed_run(run, items.subset([5, 7]))
    np.testing.assert_allclose(again, embeddings[[5, 7]], rtol=1e-4, atol=1e-5)


def test_a_run_is_scored_without_the_folder_of_its_model(run):
    assert evaluate_run(run, clustering=False).scores.recall_at[1] >= 0


def test_texts_longer_than_those_of_the_training_are_not_cut_off(run, tmp_path):
    table = tmp_path / "long.csv"
    table.write_text("text,label\nred shoe hat coat,a\nred shoe hat coat small blue green,a\n")
    short, long = embed_run(run, table)
    assert np.abs(short - long).max() > 1e-3


def test_a_text_that_is_cut_off_is_one_line(bert, tmp_path):
    table = tmp_path / "long.csv"
    table.write_text("text,label\n" + "".join(f"{'red ' * n},a\n" for n in (11, 12, 13, 40)))
    with pytest.warns(
        UserWarning, match=r"long: 2 texts of 4 have more than the 12 tokens that the model takes; what f"
    ):
        rows = tokenized(open_items(table), Tokens.of_folder(bert)).array
    assert rows.shape == (4, 12)


def test_a_run_that_does_not_say_how_it_pools_is_refused(run, table, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(run, old)
    tensors, about = load_tensors(run / "best.safetensors")
    assert about["architecture"].pop("text_pooling")["modes"] == ["mean"]
    save_tensors(old / "best.safetensors", tensors, {name: about[name] for name in about})
    with pytest.raises(TrunkError, match=r"does not say how its text model pools tokens; train it again"):
        embed_run(old, table)


def test_a_run_goes_on_only_with_the_pooling_it_began_with(bert, table, tmp_path):
    own = tmp_path / "model"
    shutil.copytree(bert, own)
    how = {"data": str(table), "trunk": f"transformers:{own}", "objective": "TripletLoss()", "ks": [1]}
    how |= {"schedule": "constant"}  # with which a run can be made longer
    config = TrainConfig.of(**how, embedding_dim=4, epochs=1, batch_size=8, sampler="m_per_class:4", device="cpu")
    run = train(config, tmp_path / "run", progress=False)
    (own / "1_Pooling").mkdir()
    (own / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    kinds = {"Transformer": "", "Pooling": "1_Pooling"}
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds.items()]
    (own / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(TrainError, match="another tokenizer, prompt or pooling than in the run; restore the folder"):
        train(config.replace(epochs=2), run.folder, resume=True, progress=False)
    assert "pooled by mean" in read_about(run.folder / "best.safetensors")["weights"]


def test_words_are_searched_in_an_index_of_texts(run, table, tmp_path, capsys, monkeypatch):
    file = tmp_path / "texts.index"
    items = open_items(table)

    def called(*words):
        monkeypatch.setattr(sys, "argv", ["nearfar", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        return capsys.readouterr().out

    called("index", run, table, "-o", file)
    told = called("search", file, items.texts[9], "-k", 1)
    assert items.texts[9] in told
    testing = pytest.importorskip("starlette.testclient")
    from nearfar.serve import open_app

    page = open_app(file, run=None, wrong=tmp_path / "wrong.csv", hosts=["localhost"], token="")
    asked = testing.TestClient(page, base_url="http://localhost")
    about = asked.get("/api/about").json()
    assert (about["text"], about["images"]) == (True, False)
    found = asked.post("/api/search-text?k=1", json={"text": items.texts[9]}).json()["neighbors"]
    assert found[0]["name"] in told
    called("embed", run, table, "-o", tmp_path / "texts.npz")
    with np.load(tmp_path / "texts.npz") as found:
        assert found["embeddings"].shape == (64, 4)
        assert found["names"][9] == items.texts[9]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"trunk": "mlp"}, r"config: trunk: the items are texts, which need a tokenizer: trunk=transformers:FOLDER"),
    ],
)
def test_texts_need_a_tokenizer(table, tmp_path, changes, says):
    config = TrainConfig.of(**{"data": str(table), "device": "cpu", **changes})
    with pytest.raises((TrainError, TrunkError), match=says):
        train(config, tmp_path / "run", progress=False)


def test_bad_folders_and_tables_are_named(tmp_path, bert):
    with pytest.raises(TrunkError, match=r"has no tokenizer.json, which texts need; save it with AutoTokenizer"):
        Tokens.of_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TrunkError, match="not a tokenizer"):
        Tokens.of_folder(tmp_path)
    table = tmp_path / "some.csv"
    table.write_text("text,label\nred shoe,a\n,b\n")
    with pytest.raises(DataError, match="the text is empty in 1 row, first in row 2 after the header"):
        open_items(table)


def test_a_text_model_refuses_rows_of_a_table(run, bert, tmp_path):
    table = tmp_path / "priced.csv"
    table.write_text("text,label,price\n" + "".join(f"{word} red,{word},{i}\n" for i, word in enumerate(CLASSES * 4)))
    config = TrainConfig.of(data=str(table), trunk=f"transformers:{bert}", device="cpu")
    with pytest.raises(TrainError, match=r"trunk: got rows of 1 number \(price\) for transformers:.* expected t"):
        train(config, tmp_path / "run", progress=False)
    with pytest.raises(TrainError, match=r"takes texts, got rows of 1 number \(price\); expected a table with"):
        embed_run(run, open_items(table))
