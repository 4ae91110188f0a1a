"""Mel spectrograms of sounds: the power of a sound in short frames, in bands that are as wide as hearing resolves.

A frame is a window of N samples x_0, ..., x_{N-1}, weighted by the Hann window h_n = (1 - cos(2 pi n / N)) / 2. Its
power at frequency k is P_k = |sum_n h_n x_n exp(-2 pi i k n / N)|^2, and that in band m is sum_k F_{mk} P_k, where the
filters F are triangles on the mel scale. This is the definition of librosa, and of the encoders GE2E and Whisper.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SOUND_RATE = 16_000
"""Samples per second of every sound that is read: the rate of all pretrained encoders of speech."""
WINDOW = 400
"""Samples of a frame, 25 ms."""
HOP = 160
"""Samples from one frame to the next, 10 ms."""
BANDS = 64
"""Default number of bands."""
FLOOR = 1e-6
"""Power that is added before the logarithm, so that silence is finite."""
BREAK = 1000.0
"""Frequency in Hz below which the mel scale is linear, and above which it is logarithmic."""
PER_HERTZ = 3 / 200
"""Mels per Hz below the break."""
PER_LOG = 27 / np.log(6.4)
"""Mels per natural logarithm of the frequency above the break."""

Floats = NDArray[np.float32]


def mel_filters(bands: int) -> Floats:
    """Return the triangles of each band, (bands, WINDOW // 2 + 1), each of area 1 in Hz (Slaney, 1998).

    Parameters
    ----------
    bands : int
        Number of bands, from 0 to 8,000 Hz.
    """
    top = BREAK * PER_HERTZ + PER_LOG * np.log(SOUND_RATE / 2 / BREAK)  # 8,000 Hz in mels
    mels = np.linspace(0, top, bands + 2)
    above = BREAK * np.exp((mels - BREAK * PER_HERTZ) / PER_LOG)
    edges = np.where(mels < BREAK * PER_HERTZ, mels / PER_HERTZ, above)  # (bands + 2,) in Hz
    left, center, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    frequencies = np.arange(WINDOW // 2 + 1) * (SOUND_RATE / WINDOW)
    rising = (frequencies - left) / (center - left)
    falling = (right - frequencies) / (right - center)
    triangles = np.maximum(0, np.minimum(rising, falling)) * (2 / (right - left))
    return triangles.astype(np.float32)


def hann() -> Floats:
    """Return the periodic Hann window, (WINDOW,)."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)).astype(np.float32)


def log_mel(wave: Floats, bands: int = BANDS) -> Floats:
    """Return the logarithm of the mel spectrogram of a sound.

    Parameters
    ----------
    wave : ndarray of float32, shape (n,)
        Samples in [-1, 1] at `SOUND_RATE`.
    bands : int
        Number of bands.

    Returns
    -------
    ndarray of float32, shape (bands, 1 + n // HOP)
        log(FLOOR + power), frame t centered at sample HOP * t. Beyond its ends, the sound is mirrored.
    """
    half = WINDOW // 2
    if len(wave) <= half:  # too short to be mirrored
        wave = np.pad(wave, (0, half + 1 - len(wave)))
    padded = np.pad(wave, half, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]  # (frames, WINDOW)
    power = np.abs(np.fft.rfft(frames * hann(), axis=1)) ** 2
    found: Floats = np.log(FLOOR + power @ mel_filters(bands).T).T.astype(np.float32)
    return found


def log_mel_statistics(wave: Floats) -> Floats:
    """Return mean and standard deviation over time of each band of `log_mel`, (2 * BANDS,)."""
    spectrogram = log_mel(wave)
    return np.concatenate([spectrogram.mean(axis=1), spectrogram.std(axis=1)])
