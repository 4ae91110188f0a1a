"""A small convolutional network on log-mel spectrograms, for sounds without a pretrained encoder."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from ...numerics.mel import BANDS
from ...settings import Checked
from .sound_trunk import MelSpectrogram, SoundTrunk

DEVIATION = 4.0
"""Usual standard deviation of log-mel values within a sound."""


class MelCNN(Checked, SoundTrunk):
    """Four convolutional blocks on the log-mel spectrogram; mean and maximum over time and frequency.

    Parameters
    ----------
    length : int
        Number of samples of a piece.
    width : int
        Number of filters of the first block; it doubles in the second and the third.
    bands : int
        Number of bands of the spectrogram, at least 16.
    """

    def __init__(self, length: int, width: int = 32, bands: int = BANDS) -> None:
        widths = [1, width, 2 * width, 4 * width, 4 * width]
        super().__init__(length, 2 * widths[-1])
        if bands < 16:
            raise ValueError(f"bands: expected 16 or more, because each block halves their number, got {bands}")
        self.spectrogram = MelSpectrogram(bands)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after))
            for before, after in pairwise(widths)
        )

    def features(self, waves: Tensor) -> Tensor:
        spectrogram = self.spectrogram(waves)
        # loudness is the distance of the microphone: it is removed, and only its changes are heard
        maps = (spectrogram - spectrogram.mean(dim=(1, 2), keepdim=True))[:, None] / DEVIATION  # (n, 1, bands, frames)
        for block in self.blocks:
            maps = relu(block(maps))
            if min(maps.shape[2:]) > 1:
                maps = max_pool2d(maps, 2)
        return torch.cat([maps.mean(dim=(2, 3)), maps.amax(dim=(2, 3))], dim=1)
