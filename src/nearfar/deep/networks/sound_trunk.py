"""What trunks of sounds share: features of several pieces are averaged, and mel spectrograms are computed by torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...numerics.mel import BANDS, FLOOR, HOP, SOUND_RATE, WINDOW, hann, mel_filters

SHORTEST_PIECE = 0.1
"""Seconds of the shortest piece that a trunk takes."""


class SoundTrunk(nn.Module):
    """A trunk that maps (n, length) samples of sounds to (n, num_features).

    Several pieces of a sound may follow each other in one row, (n, k * length): their features are averaged.

    Parameters
    ----------
    length : int
        Number of samples of a piece, 16,000 per second.
    num_features : int
        Number of features.
    """

    def __init__(self, length: int, num_features: int) -> None:
        super().__init__()
        if length < SHORTEST_PIECE * SOUND_RATE:
            detail = f"takes pieces of sounds of at least {SHORTEST_PIECE} seconds at {SOUND_RATE:,} samples per second"
            raise ValueError(f"{detail}, got rows of {length} numbers; for rows, use mlp or identity")
        self.length = length
        self.num_features = num_features

    def features(self, waves: Tensor) -> Tensor:
        """Return the features (n, num_features) of one piece of each sound, (n, length)."""
        raise NotImplementedError

    def averaged(self, features: Tensor) -> Tensor:
        """Return the average of the features of k pieces, (n, k, num_features)."""
        return features.mean(dim=1)

    def forward(self, waves: Tensor) -> Tensor:
        n, samples = waves.shape
        if samples == self.length:
            return self.features(waves)
        pieces = self.features(waves.reshape(-1, self.length))
        return self.averaged(pieces.view(n, samples // self.length, -1))


class MelSpectrogram(nn.Module):
    """The mel spectrogram of `nearfar.numerics.mel`, (n, samples) to (n, bands, 1 + samples // HOP).

    Parameters
    ----------
    bands : int
        Number of bands.
    log : bool
        Whether log(FLOOR + power) is returned instead of the power.
    """

    window: Tensor
    filters: Tensor

    def __init__(self, bands: int = BANDS, *, log: bool = True) -> None:
        super().__init__()
        self.log = log
        self.register_buffer("window", torch.from_numpy(hann()), persistent=False)
        self.register_buffer("filters", torch.from_numpy(mel_filters(bands)), persistent=False)

    def forward(self, waves: Tensor) -> Tensor:
        # in float32 also under autocast: the power of a loud sound overflows in half precision
        with torch.autocast(waves.device.type, enabled=False):
            frames = torch.stft(
                waves.float(), WINDOW, HOP, window=self.window, center=True, pad_mode="reflect", return_complex=True
            )
            power = self.filters @ frames.abs().square()
            return torch.log(FLOOR + power) if self.log else power


class LogMel(SoundTrunk):
    """Mean and standard deviation over time of each band of the log-mel spectrogram: raw sounds as numbers.

    Parameters
    ----------
    length : int
        Number of samples of a piece.
    bands : int
        Number of bands.
    """

    def __init__(self, length: int, bands: int = BANDS) -> None:
        super().__init__(length, 2 * bands)
        self.spectrogram = MelSpectrogram(bands)

    def features(self, waves: Tensor) -> Tensor:
        spectrogram = self.spectrogram(waves)
        return torch.cat([spectrogram.mean(dim=2), spectrogram.std(dim=2, correction=0)], dim=1)
