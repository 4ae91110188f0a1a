"""Models are loaded by path or by their name on the hub, and nothing that they bring is run."""

import numpy as np
import pytest

import nearfar
from nearfar.index import Index
from nearfar.models.hub import fetched

rng = np.random.default_rng(0)


@pytest.fixture
def learner(tmp_path):
    path = tmp_path / "rca.safetensors"
    nearfar.RCA().fit(rng.normal(size=(40, 3)), np.arange(40) % 4).save(path)
    return path


def in_cache(monkeypatch, tmp_path, repository, files):
    """A local cache of the hub that holds these files of one repository, and no network."""
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "cache" / f"models--{repository.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    commit = "0123456789abcdef0123456789abcdef01234567"
    (place / "refs" / "main").write_text(commit)
    snapshot = place / "snapshots" / commit
    for name, content in files.items():
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).write_bytes(content)


def test_a_learner_is_loaded(learner):
    rows = rng.normal(size=(5, 3))
    np.testing.assert_array_equal(nearfar.load(learner).transform(rows), nearfar.RCA.load(learner).transform(rows))


def test_a_run_is_loaded(tmp_path):
    pytest.importorskip("torch")
    from nearfar.train import TrainConfig, train

    np.savez(tmp_path / "rows.npz", X=rng.normal(size=(80, 6)).astype(np.float32), y=np.arange(80) % 8)
    config = TrainConfig.of(data=str(tmp_path / "rows.npz"), trunk="mlp", steps=3, epochs=1, keep="trained")
    train(config, tmp_path / "run", progress=False)
    found = nearfar.load(tmp_path / "run").transform(rng.normal(size=(4, 6)).astype(np.float32))
    assert found.shape == (4, 64)


def test_a_name_of_the_hub_is_looked_up_in_the_local_cache(learner, tmp_path, monkeypatch):
    content = learner.read_bytes()
    in_cache(monkeypatch, tmp_path, "someone/metric", {"rca.safetensors": content, "deep/other.safetensors": content})
    assert type(nearfar.load("hf://someone/metric")).__name__ == "RCA"
    assert type(nearfar.load("hf://someone/metric/deep/other.safetensors")).__name__ == "RCA"
    with pytest.raises(FileNotFoundError, match=r"there is no 'lmnn\.safetensors' in it"):
        nearfar.load("hf://someone/metric/lmnn.safetensors")
    with pytest.raises(FileNotFoundError, match="hf://someone/nothing: not in the local cache"):
        nearfar.load("hf://someone/nothing")


def test_a_revision_may_have_a_slash(learner, tmp_path, monkeypatch):
    asked = []

    def snapshot_download(repository, *, revision, allow_patterns):
        asked.append((repository, revision))
        return str(learner.parent)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    file = f"/{learner.name}"
    for name in ("a/b", "a/b@v1.0", "a/b@team%2Fnew", "a/b@refs/pr/12", "a/b@refs%2fpr%2f12"):
        assert fetched(f"hf://{name}{file}") == learner
    assert asked == [("a/b", revision) for revision in (None, "v1.0", "team/new", "refs/pr/12", "refs/pr/12")]
    with pytest.raises(FileNotFoundError, match="there is no 'new/deep' in it"):
        fetched("hf://a/b@team/new/deep")


@pytest.mark.parametrize("name", ["hf://metric", "hf://a/../../etc", "hf://a/b c", "hf://"])
def test_names_that_are_none_are_refused(name):
    with pytest.raises(ValueError, match="expected hf://owner/name"):
        fetched(name)


def test_what_is_no_model_is_told(tmp_path, learner):
    with pytest.raises(FileNotFoundError, match="does not exist; expected the folder of a run or a saved learner"):
        nearfar.load(tmp_path / "nothing")
    (tmp_path / "two").mkdir()
    with pytest.raises(ValueError, match=r"two: is a folder of items; expected the folder of a run or a saved learner"):
        nearfar.load(tmp_path / "two")
    for name in ("a", "b"):
        (tmp_path / "two" / f"{name}.safetensors").write_bytes(learner.read_bytes())
    with pytest.raises(ValueError, match=r"no run, and expected one learner .*, got a\.safetensors, b\.safetensors"):
        nearfar.load(tmp_path / "two")
    Index(np.ones((3, 2), np.float32)).save(tmp_path / "x.index")
    with pytest.raises(ValueError, match=r"x\.index: is an index; .*; open it with nearfar\.index\.open"):
        nearfar.load(tmp_path / "x.index")
    data = tmp_path / "pickle.safetensors"
    data.write_bytes(b"\x80\x04cos\nsystem\n.")
    with pytest.raises(ValueError, match=r"pickle\.safetensors"):
        nearfar.load(data)
