"""Trainings on sounds: pieces, raw inputs, encoders of others, and what a run that is loaded hears."""

import io

import numpy as np
import pytest

torch = pytest.importorskip("torch")
soundfile = pytest.importorskip("soundfile")

from nearfar import load
from nearfar.data import open_dataset, open_task
from nearfar.train import DeepMetric, TrainConfig, TrainError, evaluate_run, train
from nearfar.train.features import cached_features
from nearfar.train.network import make_embedder
from nearfar.train.rungs.untrained import save_untrained
from nearfar.train.settle import settle

from ..data.conftest import write
from ..data.test_sounds import encoded, tones
from ..deep.test_sound_trunks import package_file, wav2vec  # noqa: F401  # a fixture

SMALL = {"steps": 2, "batch_size": 8, "embedding_dim": 4, "trunk": "mel_cnn(width=2)", "keep": "trained"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Eight kinds of tones, one of them longer than the others."""
    files = tones(classes=8, each=4, seconds=0.25)
    long = np.concatenate([soundfile.read(io.BytesIO(files["pitch7/0.wav"]))[0]] * 4)
    return write(tmp_path_factory.mktemp("tones"), {**files, "pitch7/0.wav": encoded(long.astype(np.float32))})


@pytest.fixture(scope="module")
def run(folder):
    return train(TrainConfig.of(data=str(folder), **SMALL), folder.parent / "run")


def test_a_run_embeds_sounds_as_it_was_scored(run, folder):
    result = evaluate_run(run, clustering=False)
    assert result.baseline_name == "raw inputs"
    model = load(run.folder)
    assert model.takes == ("sound",)
    with np.load(run.folder / "test.npz") as stored:
        names = stored["names"].tolist()
        items = open_dataset(folder)
        chosen = items.subset([items.names.index(name) for name in names])
        np.testing.assert_allclose(model.embed(chosen), stored["embeddings"], atol=1e-5)
        one = model.embed(str(folder / names[0]))
        np.testing.assert_allclose(one, stored["embeddings"][:1], atol=1e-5)
        paths = [str(folder / name) for name in names[:3]]
        np.testing.assert_allclose(model.embed(paths), stored["embeddings"][:3], atol=1e-5)


def test_pieces_are_as_long_as_nearly_all_sounds_and_ge2e_needs_its_window(folder):
    config = TrainConfig.of(data=str(folder), **SMALL)
    plan = settle(config)
    assert plan.config.seconds == pytest.approx(0.3)
    assert plan.task.train.read(0).size in (4800, 3 * 4800)
    assert settle(config.replace(trunk="ge2e")).config.seconds == pytest.approx(1.6)
    assert settle(config.replace(seconds=0.5)).task.train.read(0).size in (8000, 3 * 8000)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"trunk": "conv4"}, "conv4 does not take sounds; expected one of log_mel, mel_cnn, ge2e, transformers:"),
        ({"augment": "mirror"}, "augment works only with images, got sounds"),
        ({"standardize": True}, "standardize works only with rows, got sounds"),
        ({"image_size": 28}, "image_size works only with images, got sounds"),
        ({"seconds": 0.01}, "seconds"),
    ],
)
def test_settings_of_other_items_are_refused(folder, settings, words):
    with pytest.raises(TrainError, match=words):
        settle(TrainConfig.of(data=str(folder), **{**SMALL, **settings}))


def test_settings_of_sounds_are_refused_for_others():
    with pytest.raises(TrainError, match="trunk: mel_cnn takes sounds, got images"):
        settle(TrainConfig.of(data="digits", trunk="mel_cnn"))
    with pytest.raises(TrainError, match="seconds works only with sounds, got images"):
        settle(TrainConfig.of(data="digits", seconds=1))


def test_other_items_are_refused_by_a_network_of_sounds_and_sounds_by_others(run, folder):
    with pytest.raises(TrainError, match="takes sounds, got images"):
        load(run.folder).embed("digits")
    rows = DeepMetric(trunk="identity", epochs=1, batch_size=8).fit(np.eye(12, dtype=np.float32), np.arange(12) % 4)
    with pytest.raises(TrainError, match="takes rows of 12 columns, got sounds"):
        rows.embed(str(folder))


def test_raw_sounds_are_a_model_too(folder):
    out = folder.parent / "raw"
    save_untrained(TrainConfig.of(data=str(folder), **SMALL), out, kind="raw", form="none")
    assert evaluate_run(out, clustering=False).scores.map_at_r == pytest.approx(
        evaluate_run(out, clustering=False).raw.map_at_r
    )
    assert load(out).embed(str(folder)).shape == (32, 128)


def test_an_encoder_of_transformers_is_trained_and_loaded_without_its_folder(folder, wav2vec, tmp_path):  # noqa: F811  # the fixture
    settings = {**SMALL, "trunk": f"transformers:{wav2vec}", "steps": 1}
    out = train(TrainConfig.of(data=str(folder), **settings), tmp_path / "run")
    before = load(out.folder).embed(str(folder))
    moved = wav2vec.rename(wav2vec.with_name("moved"))
    try:
        np.testing.assert_allclose(load(out.folder).embed(str(folder)), before, atol=1e-5)
    finally:
        moved.rename(wav2vec)
    model = load(f"transformers:{wav2vec}")
    assert (model.takes, model.embed(str(folder)).shape) == (("sound",), (32, 8))


def test_the_encoder_of_a_file_embeds_without_a_training(folder, tmp_path):
    model = load(f"ge2e:{package_file(tmp_path / 'pretrained.pt')}")
    rows = model.embed(str(folder / "pitch0"))
    assert rows.shape == (4, 256)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_cached_features_follow_the_files(tmp_path):
    def features():
        config = TrainConfig.of(data=str(tmp_path / "t"), trunk="log_mel", seconds=0.2)
        task = settle(config).task
        return cached_features(make_embedder(config, (3200,)), task.train).array

    write(tmp_path / "t", tones(classes=4, each=2))
    first = features()
    name = sorted(open_task(tmp_path / "t").train.names)[0]
    write(tmp_path / "t", {name: encoded(np.zeros(3201, np.float32))})
    assert not np.array_equal(features(), first)


def test_training_draws_other_pieces_in_each_epoch_and_the_same_after_a_resume(folder):
    from nearfar.data.loader import DrawnItem, TorchItems

    items = TorchItems(settle(TrainConfig.of(data=str(folder), seconds=0.1, **SMALL)).task.train)
    first, second, again = (items[DrawnItem(0, (0, step))][0] for step in (0, 1, 0))
    assert first.shape == (1600,)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
