"""Trunks of sounds: their spectrograms, the average over pieces, and encoders with weights of others."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nearfar.deep.networks.ge2e import FRAMES, GE2E, STEP
from nearfar.deep.networks.mel_cnn import MelCNN
from nearfar.deep.networks.sound_trunk import LogMel, MelSpectrogram
from nearfar.deep.networks.trunks import TrunkError, find_preprocessing, make_trunk
from nearfar.numerics.mel import FLOOR, HOP, SOUND_RATE, log_mel, log_mel_statistics

LENGTH = 3200


def waves(n=2, length=LENGTH):
    return torch.from_numpy(np.random.default_rng(0).normal(scale=0.1, size=(n, length)).astype(np.float32))


def test_the_spectrogram_of_torch_is_that_of_numpy():
    found = MelSpectrogram()(waves())
    for wave, spectrogram in zip(waves().numpy(), found.numpy(), strict=True):
        np.testing.assert_allclose(spectrogram, log_mel(wave), atol=2e-3)
    power = MelSpectrogram(log=False)(waves())
    torch.testing.assert_close(torch.log(FLOOR + power), found)


def test_raw_sounds_are_statistics_over_time():
    expected = np.stack([log_mel_statistics(wave) for wave in waves().numpy()])
    np.testing.assert_allclose(make_trunk("log_mel", (LENGTH,))(waves()).numpy(), expected, atol=2e-3)


@pytest.mark.parametrize("trunk", [LogMel(LENGTH), MelCNN(LENGTH, width=2), GE2E(LENGTH)])
def test_features_of_several_pieces_are_averaged(trunk):
    trunk.eval()
    with torch.no_grad():
        parts = torch.stack([trunk(piece) for piece in waves(2, 3 * LENGTH).split(LENGTH, dim=1)])
        whole = trunk(waves(2, 3 * LENGTH))
    expected = parts.mean(0)
    if isinstance(trunk, GE2E):
        expected = torch.nn.functional.normalize(expected, dim=1)
    torch.testing.assert_close(whole, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("text", ["log_mel", "mel_cnn(width=2)", "ge2e"])
def test_silence_has_finite_features_and_gradients(text):
    trunk = make_trunk(text, (LENGTH,))
    silent = torch.zeros(2, LENGTH, requires_grad=True)
    trunk(silent).sum().backward()
    assert torch.isfinite(silent.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in trunk.parameters())


def test_trunks_of_sounds_name_what_they_take():
    with pytest.raises(TrunkError, match="mel_cnn takes sounds, got images; use conv4"):
        make_trunk("mel_cnn", (3, 84, 84))
    with pytest.raises(ValueError, match=r"at least 0.1 seconds .*, got rows of 4 numbers; for rows, use mlp"):
        make_trunk("mel_cnn", (4,))
    with pytest.raises(ValueError, match="bands: expected 16 or more"):
        make_trunk("mel_cnn(bands=8)", (LENGTH,))


def package_file(path):
    """A file as the package Resemblyzer ships it, with random weights."""
    torch.manual_seed(0)
    state = GE2E(LENGTH).state_dict()
    scores = {"similarity_weight": torch.ones(1), "similarity_bias": torch.zeros(1)}
    torch.save({"step": 1, "model_state": {**state, **scores}}, path)
    return path


def test_ge2e_takes_the_file_of_the_package_and_embeds_window_by_window(tmp_path):
    length = HOP * (FRAMES + STEP)
    trunk = make_trunk("ge2e", (length,), weights=package_file(tmp_path / "pretrained.pt")).eval()
    assert trunk.provenance.source.endswith("pretrained.pt")
    wave = waves(1, length)
    with torch.no_grad():
        found = trunk(wave)[0]
        louder = wave * (10 ** (-30 / 20) / wave.square().mean().sqrt()).clamp_min(1)
        mels = (np.exp(log_mel(louder[0].numpy(), bands=40)) - FLOOR).T
        embedded = []
        for begin in (0, STEP):
            window = torch.from_numpy(mels[begin : begin + FRAMES])[None]
            state = trunk.linear(trunk.lstm(window)[1][0][-1, 0]).relu()
            embedded.append(state / state.norm())
        expected = sum(embedded) / 2
    torch.testing.assert_close(found, expected / expected.norm(), atol=1e-4, rtol=1e-3)


@pytest.fixture(scope="module")
def wav2vec(tmp_path_factory):
    """The folder of a tiny Wav2Vec2 with its feature extractor."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("wav2vec")
    config = transformers.Wav2Vec2Config(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        conv_dim=(4, 4),
        conv_stride=(10, 8),
        conv_kernel=(10, 8),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
    )
    transformers.Wav2Vec2Model(config).save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    """The folder of a tiny Whisper with its feature extractor."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("whisper")
    config = transformers.WhisperConfig(
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        vocab_size=16,
        num_mel_bins=20,
        max_source_positions=50,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    transformers.WhisperModel(config).save_pretrained(folder)
    transformers.WhisperFeatureExtractor(feature_size=20, chunk_length=1).save_pretrained(folder)
    return folder


def test_wav2vec_prepares_sounds_as_its_feature_extractor(wav2vec):
    import transformers

    assert find_preprocessing(f"transformers:{wav2vec}") is None
    trunk = make_trunk(f"transformers:{wav2vec}", (LENGTH,)).eval()
    extractor = transformers.Wav2Vec2FeatureExtractor.from_pretrained(wav2vec)
    prepared = extractor(list(waves().numpy()), sampling_rate=SOUND_RATE, return_tensors="pt").input_values
    with torch.no_grad():
        expected = trunk.inner(prepared).last_hidden_state.mean(1)
        torch.testing.assert_close(trunk(waves()), expected, atol=1e-4, rtol=1e-3)
    trunk.train()(waves())  # without the masks of its training, which short sounds cannot have


def test_whisper_prepares_sounds_as_its_feature_extractor(whisper):
    import transformers

    trunk = make_trunk(f"transformers:{whisper}", (LENGTH,)).eval()
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(whisper)
    prepared = extractor(list(waves().numpy()), sampling_rate=SOUND_RATE, return_tensors="pt").input_features
    with torch.no_grad():
        expected = trunk.inner(prepared).last_hidden_state[:, : LENGTH // 320].mean(1)
        torch.testing.assert_close(trunk(waves()), expected, atol=1e-4, rtol=1e-3)
    with pytest.raises(TrunkError, match="takes sounds of at most 1 seconds, got 2"):
        make_trunk(f"transformers:{whisper}", (2 * SOUND_RATE,))


def test_encoders_that_expect_other_sounds_are_named(wav2vec, tmp_path):
    import shutil

    folder = tmp_path / "other"
    shutil.copytree(wav2vec, folder)
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps({**settings, "sampling_rate": 8000}))
    with pytest.raises(TrunkError, match="takes sounds of 8000 samples per second; expected 16000"):
        make_trunk(f"transformers:{folder}", (LENGTH,))
