"""The speaker encoder GE2E (Wan, Wang, Papir & Lopez Moreno, ICASSP 2018), with the weights of the package Resemblyzer.

Windows of 1.6 seconds are embedded by three LSTMs, whose last state passes a linear layer and a ReLU and gets unit
length; the embedding of a longer sound is the normalized average over windows that overlap by half.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from ...numerics.mel import HOP, SOUND_RATE
from .sound_trunk import MelSpectrogram, SoundTrunk

GE2E_BANDS = 40
GE2E_WIDTH = 256
FRAMES = 160
"""Frames of a window."""
WINDOW_SECONDS = FRAMES * HOP / SOUND_RATE
"""1.6: the encoder was trained on windows of this length."""
STEP = 77
"""Frames from one window to the next: 1.3 windows per second."""
SILENCE = 1e-12
"""Mean square below which a sound is not amplified any further."""
LOUDNESS = 10 ** (-30 / 20)
"""Root mean square to which quieter sounds are amplified, -30 dB of the largest."""


class GE2E(SoundTrunk):
    """LSTMs on the mel spectrogram of 40 bands, the power itself and not its logarithm.

    Parameters
    ----------
    length : int
        Number of samples of a piece. A sound that is shorter than a window of 1.6 seconds is one window.
    """

    def __init__(self, length: int) -> None:
        super().__init__(length, GE2E_WIDTH)
        self.spectrogram = MelSpectrogram(GE2E_BANDS, log=False)
        self.lstm = nn.LSTM(GE2E_BANDS, GE2E_WIDTH, num_layers=3, batch_first=True)
        self.linear = nn.Linear(GE2E_WIDTH, GE2E_WIDTH)

    def features(self, waves: Tensor) -> Tensor:
        loudness = waves.square().mean(dim=1, keepdim=True).clamp_min(SILENCE).sqrt()
        louder = waves * (LOUDNESS / loudness).clamp_min(1)  # silence stays silent
        mels = self.spectrogram(louder).transpose(1, 2)  # (n, frames, bands)
        begins = range(0, max(1, mels.shape[1] - FRAMES + 1), STEP)
        windows = torch.stack([mels[:, begin : begin + FRAMES] for begin in begins], dim=1)  # (n, w, FRAMES, bands)
        _, (states, _) = self.lstm(windows.flatten(0, 1))
        embedded = normalize(torch.relu(self.linear(states[-1])), dim=1)
        return normalize(embedded.view(len(waves), len(begins), -1).mean(dim=1), dim=1)

    def averaged(self, features: Tensor) -> Tensor:
        return normalize(features.mean(dim=1), dim=1)
