"""Encoders of sounds of transformers as trunks: of samples (Wav2Vec2, HuBERT, WavLM, ...), and that of Whisper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ...io.untrusted import parse_json
from ...numerics.mel import HOP, SOUND_RATE
from .sound_trunk import MelSpectrogram, SoundTrunk
from .transformers_trunk import PROCESSORS, SOUND_INPUTS, SOUND_SETTING, TransformersTrunk
from .weights import TrunkError

_, SPECTROGRAMS = SOUND_INPUTS
OF_SOUNDS = ("conv_kernel", "num_mel_bins", "max_source_positions")
"""Settings in config.json that only models of sounds have."""
MASK = "masked_spec_embed"
"""Weight with which an encoder is trained on sounds whose parts are hidden."""
TINY = 1e-7
"""Variance that is added before the square root, as in the feature extractor of Wav2Vec2."""
POWER_FLOOR = 1e-10
RANGE = 8.0
"""Whisper hears powers of ten from the loudest down to 8 below it."""
STRIDE = 2
"""Frames of the spectrogram for each state of Whisper."""


def is_of_sounds(folder: Path) -> bool:
    """Return whether the folder of a model is of one that takes sounds."""
    processors = [settings_in(folder / name) for name in PROCESSORS]
    if any("sampling_rate" in settings or "feature_size" in settings for settings in processors):
        return True
    return not any(processors) and any(name in settings_in(folder / "config.json") for name in OF_SOUNDS)


def longest_of(folder: Path, most: float) -> float:
    """Return how many seconds of a sound the model in a folder takes, but at most so many."""
    positions = settings_in(folder / "config.json").get("max_source_positions")
    if isinstance(positions, int) and not isinstance(positions, bool) and positions > 0:
        return min(most, STRIDE * positions * HOP / SOUND_RATE)
    return most


def settings_in(file: Path) -> dict[str, Any]:
    """Return the settings in a JSON file; {} without such a file."""
    try:
        found = parse_json(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class TransformersSoundTrunk(TransformersTrunk, SoundTrunk):
    """An encoder of sounds, whose states are averaged over time.

    Parameters
    ----------
    inner : Module
        Model of transformers; of Whisper, its encoder.
    length : int
        Number of samples of a piece.
    normalize : bool
        Whether waveforms get mean 0 and variance 1, as in the feature extractor of the model.
    """

    def __init__(self, inner: nn.Module, length: int, *, normalize: bool = True) -> None:
        config: Any = inner.config
        SoundTrunk.__init__(self, length, int(config.hidden_size))
        self.inner = inner
        self.pool = "tokens"
        self.projection = None
        self.prefix = 0
        self.normalize = normalize
        self.convolutional = False
        config.apply_spec_augment = False  # it draws from the global generator of NumPy, and fails on short sounds
        for name, parameter in inner.named_parameters():
            if name == MASK:
                parameter.requires_grad_(False)
        self.spectrogram: MelSpectrogram | None = None
        if getattr(inner, "main_input_name", "") == SPECTROGRAMS:
            self.spectrogram = MelSpectrogram(int(config.num_mel_bins), log=False)
            longest = STRIDE * int(config.max_source_positions) * HOP
            if length > longest:
                raise TrunkError(
                    f"it takes sounds of at most {longest / SOUND_RATE:g} seconds, got {length / SOUND_RATE:g}"
                )

    def features(self, waves: Tensor) -> Tensor:
        if self.spectrogram is not None:
            return self._of_spectrograms(waves, self.spectrogram)
        if self.normalize:
            centered = waves - waves.mean(dim=1, keepdim=True)
            waves = centered / torch.sqrt(waves.var(dim=1, correction=0, keepdim=True) + TINY)
        states: Tensor = self.inner(waves).last_hidden_state
        return states.mean(dim=1)

    def _of_spectrograms(self, waves: Tensor, spectrogram: MelSpectrogram) -> Tensor:
        """Return the average state of Whisper over the time of the sound, which is followed by silence."""
        config: Any = self.inner.config
        frames = STRIDE * int(config.max_source_positions)
        padded = pad(waves, (0, frames * HOP - waves.shape[1]))
        # as Whisper was trained: log10 of the power, nothing 8 below the loudest, (x + 4) / 4; (n, mels, frames)
        heard = spectrogram(padded)[:, :, :frames].clamp_min(POWER_FLOOR).log10()
        heard = torch.maximum(heard, heard.amax(dim=(1, 2), keepdim=True) - RANGE)
        states: Tensor = self.inner((heard + 4) / 4).last_hidden_state  # (n, states, D)
        # the states of the silence after the sound would make short sounds alike
        return states[:, : max(1, -(-waves.shape[1] // (STRIDE * HOP)))].mean(dim=1)

    def forward(self, waves: Tensor) -> Tensor:
        return SoundTrunk.forward(self, waves)


def build_sound_trunk(model: Any, length: int, settings: dict[str, Any]) -> TransformersSoundTrunk:
    """Return the trunk of a model whose input is prepared as in its feature extractor or its checkpoint.

    Parameters
    ----------
    model : Module
        Model of transformers that takes sounds.
    length : int
        Number of samples of a piece.
    settings : dict
        Those of its feature extractor, or of a checkpoint; {} if there are none.
    """
    rate = settings.get("sampling_rate", SOUND_RATE)
    if rate != SOUND_RATE:
        raise TrunkError(f"it takes sounds of {rate} samples per second; expected {SOUND_RATE}")
    inner = model.get_encoder() if model.main_input_name == SPECTROGRAMS else model
    is_known = model.main_input_name == SPECTROGRAMS or hasattr(inner.config, "conv_kernel")
    if not is_known or not hasattr(inner.config, "hidden_size"):
        raise TrunkError(f"{type(inner).__name__} is not supported; expected an encoder such as Wav2Vec2 or Whisper")
    normalize = bool(settings.get(SOUND_SETTING, settings.get("do_normalize", True)))
    return TransformersSoundTrunk(inner, length, normalize=normalize)
