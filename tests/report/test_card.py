"""The model card of a run: true, readable by hubs, and free of what belongs to one machine."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from nearfar.data import open_dataset
from nearfar.report import ReportError, model_card, push_run, write_card
from nearfar.report.card import _in_8_bits
from nearfar.report.pushing import UPLOADED
from nearfar.train import embed_run
from tests.commands import run as command

from .. import forking
from .stand_in_hub import TOKEN, stand_in_hub


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of three steps, evaluated."""
    folder = tmp_path_factory.mktemp("cards") / "digits"
    small = ["--trunk", "conv4(width=8)", "--set", "image_size=16", "--sampler", "random", "--batch-size", "32"]
    small += ["--set", "steps=3", "--keep", "trained", "--quiet"]
    forking.run("-m", "nearfar", "train", "digits", "--out", folder, *small).check_returncode()
    return folder


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", '{"data": "x"}'),
        ("environment.json", '{"versions": [1]}'),
        ("scores.json", '{"protocol": "", "scores": {"n_queries": "many"}, "raw": {}}'),
    ],
)
def test_damaged_files_of_a_run_are_one_line(file, content, tmp_path):
    (tmp_path / "config.json").write_text('{"data": "x", "objective": "TripletLoss()"}')
    (tmp_path / file).write_text(content)
    with pytest.raises(
        ReportError, match=r"a file of the run is damaged, or of another version of nearfar \("
    ) as found:
        write_card(tmp_path)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "README.md").exists()


def test_names_of_data_that_are_not_utf_8_do_not_prevent_a_card(tmp_path):
    (tmp_path / "config.json").write_text('{"data": "photos-\\udcff/", "objective": "TripletLoss()"}')
    assert "- data: photos-?/\n" in write_card(tmp_path).read_text("utf-8")


def test_a_card_says_what_8_bits_cost(tmp_path):
    (tmp_path / "config.json").write_text('{"data": "x", "objective": "TripletLoss()"}')
    assert "8 bits" not in model_card(tmp_path)
    cost = {"items": 1000, "data": "digits", "cosine": 0.9876}
    recall = {"recall_at_1": {"float32": 0.9, "int8": 0.85}}
    for found in (cost, cost | recall):
        (tmp_path / "calibrated.json").write_text(json.dumps(found))
        card = model_card(tmp_path)
        assert "a mean cosine of 0.9876" in card
        assert "(measured on 1,000 items of digits)" in card
        assert ("a Recall@1 of 0.8500 instead of 0.9000" in card) == ("recall_at_1" in found)
    (tmp_path / "best.safetensors").write_bytes(b"")
    os.utime(tmp_path / "calibrated.json", (0, 0))  # older than the weights
    assert _in_8_bits(tmp_path) == []


def test_a_card_says_where_nothing_was_trained(tmp_path):
    config = {
        "data": "photos/",
        "objective": "SupConLoss()",
        "freeze_trunk": True,
        "trunk": "conv4",
        "lr": 0.1,
        "epochs": 1,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "Trained with `SupConLoss()`." in model_card(tmp_path)  # from a hub, which gets no log
    (tmp_path / "environment.json").write_text("{}")
    text = model_card(tmp_path)
    assert "nothing was trained" in text
    assert "- trunk: conv4\n" in text
    assert not any(word in text for word in ("SupConLoss", "lr:", "epochs:"))
    (tmp_path / "log.jsonl").write_text("")
    assert "Trained with `SupConLoss()`." in model_card(tmp_path)


def test_a_card_says_how_it_was_scored_and_trained(run):
    text = model_card(run, license="apache-2.0", data="scanned digits")
    scores = json.loads((run / "scores.json").read_text())
    assert text.startswith("---\nlibrary_name: nearfar\n")
    assert "license: apache-2.0\n" in text
    assert "# digits\n" in text
    assert scores["protocol"] in text
    value, raw = scores["scores"]["map_at_r"], scores["raw"]["map_at_r"]
    assert f"| MAP@R | {value:.4f} | {raw:.4f} |" in text
    assert "896 queries of 5 classes" in text
    assert "- data: scanned digits" in text
    assert "SupConLoss()" in text


def test_cards_and_what_is_uploaded_name_no_folders_of_the_machine(run, tmp_path, monkeypatch):
    config = json.loads((run / "config.json").read_text())
    config |= {"data": "/home/me too/photos", "trunk": "transformers:/home/me/clip(pool='cls')", "pretrained": "~/w.pt"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "environment.json").write_text(json.dumps({"weights": "Weights of /home/me/w.safetensors."}))
    pushed = []

    class Api(SimpleNamespace):
        endpoint = "https://hub"

        def create_repo(self, *_, **__):
            pass

        def upload_folder(self, folder_path, **_):
            pushed.extend(path.read_text() for path in Path(folder_path).iterdir())

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    push_run(tmp_path, "owner/photos")
    assert len(pushed) == 2
    for text in (model_card(tmp_path), *pushed):
        assert not any(word in text for word in ("/home", "me too", "~/"))
    assert "- data: photos\n" in model_card(tmp_path)
    assert "- weights of w.safetensors." in model_card(tmp_path)


def test_a_card_says_what_to_install_and_where_to_get_the_model(run):
    text = model_card(run, name="owner/digits")
    assert "pip install 'nearfar[deep]' huggingface_hub\n" in text
    assert 'folder = snapshot_download("owner/digits")' in text
    assert "`hf download owner/digits --local-dir digits`" in text
    assert 'embed_run("owner/' not in text


def test_a_card_without_license_or_scores_says_so(run, tmp_path):
    (tmp_path / "config.json").write_text((run / "config.json").read_text())
    text = model_card(tmp_path)
    assert "None was given" in text
    assert "This model was not evaluated" in text
    assert "license:" not in text


def test_what_is_no_run_or_no_license_is_told(run, tmp_path):
    with pytest.raises(ReportError, match="is not the folder of a run"):
        model_card(tmp_path)
    with pytest.raises(ValueError, match=r"license: expected a name such as apache-2\.0"):
        model_card(run, license="mit\nevil: true")
    with pytest.raises(ValueError, match="repository: expected owner/name"):
        push_run(run, "photos")


@pytest.mark.slow
def test_the_python_of_a_card_runs(run, monkeypatch):
    monkeypatch.chdir(run.parent)
    code = model_card(run).split("```python\n")[1].split("```")[0].replace("photos/", "digits")
    found = {}
    exec(code, found)
    assert found["embeddings"].shape[1] == 64


def test_a_run_is_pushed_without_what_is_of_one_machine(run, monkeypatch):
    called = []

    class Api:
        endpoint = "https://hub"

        def create_repo(self, name, **how):
            called.append((name, how))

        def upload_folder(self, **how):
            config = json.loads((Path(how["folder_path"]) / "config.json").read_text())
            called.append(
                {**how, "data": config["data"], "files": {p.name for p in Path(how["folder_path"]).iterdir()}}
            )

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    assert push_run(run, "owner/digits", license="mit") == "https://hub/owner/digits"
    assert called[0] == ("owner/digits", {"private": True, "exist_ok": True})
    assert called[1]["allow_patterns"] == list(UPLOADED)
    assert called[1]["files"] == set(UPLOADED)
    assert "environment.json" not in UPLOADED  # it names folders
    assert "# owner/digits\n" in (run / "README.md").read_text()


@pytest.mark.slow
def test_who_downloads_what_was_pushed_runs_the_snippet_of_its_card(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with stand_in_hub(monkeypatch, tmp_path, busy=1) as hub:
        code, out, err = command(capsys, monkeypatch, "push", run, "owner/model", "--license", "mit")
        assert (code, err.count("hf_secret")) == (0, 0), err
        assert out.strip() == f"{hub.address}/owner/model"
        assert hub.created["name"] == "model"
        assert hub.created.get("private") or hub.created.get("visibility") == "private"
        assert hub.tokens == {f"Bearer {TOKEN}"}
        assert hub.files.keys() == set(UPLOADED)
        card = hub.files["README.md"].decode()
        assert (run / "best.safetensors").read_bytes() == hub.files["best.safetensors"]
        found = {}
        exec(card.split("```python\n")[1].split("```")[0].replace("photos/", "digits"), found)
        assert len(found["embeddings"]) == len(open_dataset("digits"))
        np.testing.assert_allclose(found["embeddings"], embed_run(run, "digits"), atol=1e-5)


def test_a_hub_that_is_busy_or_refuses_is_one_line_without_the_token(run, tmp_path, capsys, monkeypatch):
    waited = []
    monkeypatch.setattr("time.sleep", waited.append)
    with stand_in_hub(monkeypatch, tmp_path, busy=100) as hub:
        code, _, err = command(capsys, monkeypatch, "push", run, "owner/model")
        assert code == 2
        message = "owner/model: the hub has too many requests (429); push again in some minutes, nothing is lost"
        assert err.strip().splitlines()[-1] == f"nearfar: {message}"
        assert waited
        assert not hub.files
    with stand_in_hub(monkeypatch, tmp_path, refuses=f"no token {TOKEN}"):
        code, _, err = command(capsys, monkeypatch, "push", run, "owner/model")
        assert code == 2
        assert err.startswith("nearfar: owner/model: the hub refuses the upload (403")
        assert "hf_secret" not in err


def test_the_scores_of_a_card_are_those_that_a_hub_reads(run):
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard(model_card(run, name='owner/"digits"', data="scans: of digits", license="mit"))
    assert card.data.model_name == 'owner/"digits"'
    assert card.data.license == "mit"
    found = {result.metric_type: result for result in card.data.eval_results}
    scores = json.loads((run / "scores.json").read_text())["scores"]
    assert found["map_at_r"].metric_value == pytest.approx(scores["map_at_r"], rel=1e-5)
    assert found["recall_at_1"].metric_value == pytest.approx(scores["recall_at"]["1"], rel=1e-5)
    assert {result.dataset_name for result in found.values()} == {"scans: of digits"}
    assert found["map_at_r"].metric_name == "MAP@R"
    assert "## Intended use and limits\n" in model_card(run)


def test_the_command_writes_the_card(run, capsys, monkeypatch):
    code, out, _ = command(capsys, monkeypatch, "card", run, "--license", "mit", "--name", "glyphs")
    assert not code
    assert out.strip() == str(run / "README.md")
    assert "# glyphs\n" in (run / "README.md").read_text()
    assert write_card(run).read_text() == model_card(run)
