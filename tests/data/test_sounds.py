"""Sounds: files of any rate and any channels as samples, folders and tables of them, and what is no sound."""

import base64
import io
import re
import struct
import tracemalloc

import numpy as np
import pytest

soundfile = pytest.importorskip("soundfile")

from nearfar.data import DataError, inspect_data, open_dataset, open_items, open_task
from nearfar.data.items import NamedReader, flat_rows
from nearfar.data.sounds import (
    BadSoundError,
    PieceReader,
    SoundsInMemory,
    are_in_memory,
    decode_sound,
    durations,
    in_pieces,
    picture_of,
    random_piece,
    resampled,
    seconds_at,
    wave_of,
)
from nearfar.numerics.mel import BANDS, FLOOR, HOP, SOUND_RATE, WINDOW, log_mel, log_mel_statistics, mel_filters

from .conftest import write, zipped


def tone(frequency=440.0, seconds=0.3, rate=SOUND_RATE, channels=1):
    """A sine; channel k has another phase, which leaves its frequency as it is."""
    t = np.arange(round(seconds * rate)) / rate
    wave = np.stack([0.5 * np.sin(2 * np.pi * frequency * t + 0.1 * k) for k in range(channels)], axis=1)
    return wave.astype(np.float32)


def encoded(wave, rate=SOUND_RATE, kind="WAV", **how):
    """The content of a file with these samples."""
    buffer = io.BytesIO()
    soundfile.write(buffer, wave, rate, format=kind, **how)
    return buffer.getvalue()


def tones(classes=4, each=3, kind="wav", seconds=0.2):
    """Files of tones: every class has its pitch."""
    return {
        f"pitch{c}/{i}.{kind}": encoded(tone(300.0 * (c + 1) + 5 * i, seconds), kind=kind.upper())
        for c in range(classes)
        for i in range(each)
    }


def pitch(wave):
    """The loudest frequency of a sound at `SOUND_RATE`."""
    power = np.abs(np.fft.rfft(wave * np.hanning(len(wave))))
    return np.argmax(power) * SOUND_RATE / len(wave)


def test_a_log_mel_spectrogram_equals_its_definition_in_plain_loops():
    rng = np.random.default_rng(0)
    wave = rng.normal(size=4 * HOP + 7).astype(np.float32)
    filters = mel_filters(8)
    half = WINDOW // 2
    mirrored = [wave[abs(n)] if n < len(wave) else wave[2 * len(wave) - 2 - n] for n in range(-half, len(wave) + half)]
    for t in range(len(wave) // HOP + 1):
        powers = []
        for k in range(half + 1):
            total = 0j
            for n in range(WINDOW):
                weight = (1 - np.cos(2 * np.pi * n / WINDOW)) / 2
                total += weight * mirrored[t * HOP + n] * np.exp(-2j * np.pi * k * n / WINDOW)
            powers.append(abs(total) ** 2)
        for m in range(8):
            expected = np.log(FLOOR + sum(f * p for f, p in zip(filters[m], powers, strict=True)))
            assert log_mel(wave, bands=8)[m, t] == pytest.approx(expected, abs=1e-3)
        if t == 1:
            break  # the others take long
    assert log_mel(wave).shape == (BANDS, len(wave) // HOP + 1)


def test_mel_filters_are_triangles_of_area_one_on_a_scale_that_is_linear_to_1000_hertz():
    filters = mel_filters(40)
    hertz = np.arange(WINDOW // 2 + 1) * SOUND_RATE / WINDOW
    centers = (filters * hertz).sum(1) / filters.sum(1)
    assert np.allclose(filters[4:-1].sum(1) * SOUND_RATE / WINDOW, 1, atol=0.2)
    assert np.all(np.diff(centers) > 0)
    low = np.diff(centers[centers < 900])
    high = np.diff(np.log(centers[centers > 1500]))
    assert low.std() < 0.2 * low.mean()
    assert high.std() < 0.1 * high.mean()


@pytest.mark.parametrize("rate", [8000, 11_025, 44_100, 48_000])
@pytest.mark.parametrize("channels", [1, 2, 6])
def test_a_tone_keeps_its_pitch_and_length_at_any_rate_and_number_of_channels(rate, channels):
    wave = decode_sound(encoded(tone(440.0, 0.5, rate, channels), rate), "a.wav")
    assert wave.dtype == np.float32
    assert len(wave) == pytest.approx(0.5 * SOUND_RATE, abs=1)
    assert pitch(wave) == pytest.approx(440, abs=2)


def test_frequencies_that_a_lower_rate_cannot_hold_are_removed():
    assert np.abs(resampled(tone(12_000.0, 0.2, 48_000)[:, 0], 48_000)[200:-200]).max() < 0.01


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
def test_the_usual_formats_are_read(kind):
    if kind not in soundfile.available_formats():
        pytest.skip(f"this libsndfile does not write {kind}")
    assert pitch(decode_sound(encoded(tone(), kind=kind), f"a.{kind.lower()}")) == pytest.approx(440, abs=5)


BAD = {
    "empty.wav": (b"", r"empty.wav: cannot be decoded \(the file is empty\)"),
    "text.wav": (b"no sound at all", r"text.wav: cannot be decoded \(not a sound of a known format\)"),
    "slow.wav": (encoded(np.zeros(9, np.float32), 3), "slow.wav: has 3 samples per second; expected 1,000"),
    "none.wav": (encoded(np.zeros(0, np.float32)), "none.wav: has no samples"),
    "cut.flac": (encoded(tone(seconds=1.0), kind="FLAC")[:4000], "cut.flac: "),
    "nan.wav": (
        encoded(np.full(2000, np.nan, np.float32), subtype="FLOAT"),
        "nan.wav: has samples that are not finite",
    ),
    "many.wav": (encoded(np.zeros((10, 100), np.float32)), "many.wav: has 100 channels; expected at most 64"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_sound_is_named_in_one_line(name):
    data, words = BAD[name]
    with pytest.raises(BadSoundError, match=words) as error:
        decode_sound(data, name)
    assert "\n" not in str(error.value)


def claiming(frames):
    """A .flac whose header claims a length."""
    data = bytearray(encoded(tone(), kind="FLAC"))
    # STREAMINFO: 20 bits of the rate, 3 of the channels, 5 of the depth, 36 of the number of samples
    low = struct.unpack(">Q", data[18:26])[0]
    data[18:26] = struct.pack(">Q", (low >> 36 << 36) | frames)
    return bytes(data)


@pytest.mark.parametrize(
    ("frames", "words"), [(2**36 - 1, "lasts 71,583 minutes by its header"), (SOUND_RATE * 500, "")]
)
def test_a_claimed_length_takes_no_memory(frames, words):
    data = claiming(frames)
    tracemalloc.start()
    with pytest.raises(BadSoundError, match=f"long.flac: {words}"):
        decode_sound(data, "long.flac")
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


def test_folders_tables_and_archives_of_sounds_are_data_sets(tmp_path):
    files = tones(kind="flac")
    write(tmp_path / "tones", {**files, "pitch0/cover.png": b"", "notes.txt": ""})
    items = open_dataset(tmp_path / "tones")
    assert (items.kind, items.classes) == ("sound", ("pitch0", "pitch1", "pitch2", "pitch3"))
    assert pitch(items.read(3)) == pytest.approx(600, abs=8)
    assert items.notes == ("2 files left out (1 .txt, 1 .png)",)
    zipped(tmp_path / "tones.zip", files)
    assert open_dataset(tmp_path / "tones.zip").names == items.names
    lines = ["path,label,split", *(f"tones/{name},{name[:6]},{('train', 'test')[name[5] > '1']}" for name in files)]
    (tmp_path / "tones.csv").write_text("\n".join(lines))
    task = open_task(tmp_path / "tones.csv")
    assert (task.train.kind, task.train.classes, task.test.classes) == (
        "sound",
        ("pitch0", "pitch1"),
        ("pitch2", "pitch3"),
    )
    assert "sounds of" in task.protocol
    assert flat_rows(items).shape == (12, 2 * BANDS)


def test_single_and_loose_sounds_need_no_class(tmp_path):
    write(tmp_path, {f"{i}.wav": encoded(tone(300.0 + i)) for i in range(3)})
    assert open_items(tmp_path).classes == ("",)
    one = open_items(tmp_path / "1.wav")
    assert (one.kind, one.names) == ("sound", ("1.wav",))
    named = NamedReader(["1.wav"], folder=tmp_path)
    assert np.array_equal(named(0), one.read(0))
    assert named.small(0, 16).shape == (64, 64, 3)


def test_bad_sounds_are_named_and_left_out(tmp_path):
    write(
        tmp_path, {**tones(), "pitch0/bad.wav": b"no sound", "pitch1/silent.wav": encoded(np.zeros(3200, np.float32))}
    )
    with pytest.raises(BadSoundError, match=r"pitch0/bad.wav: cannot be decoded \(not a sound"):
        open_dataset(tmp_path)
    items = open_dataset(tmp_path, skip_bad=True)
    assert (len(items), items.bad) == (13, ("pitch0/bad.wav",))
    assert any("1 undecodable sound left out" in note for note in items.notes)
    found = inspect_data(tmp_path)
    assert found.kind == "sound"
    assert "1 sound cannot be decoded (pitch0/bad.wav)" in found.remarks[0]
    assert "1 sound is silent (pitch1/silent.wav): silent sounds of two classes are alike." in found.remarks


def test_all_bad_is_one_line(tmp_path):
    write(tmp_path, {f"a/{i}.wav": b"" for i in range(3)})
    with pytest.raises(DataError, match=r"none of its 3 sounds can be decoded; .*0.wav: cannot be decoded"):
        open_dataset(tmp_path, skip_bad=True)


def test_pieces_are_the_middle_or_evenly_spaced_and_short_sounds_are_repeated():
    waves = [np.arange(10, dtype=np.float32), np.arange(3, dtype=np.float32)]
    assert PieceReader(waves.__getitem__, 4)(0).tolist() == [3, 4, 5, 6]
    assert PieceReader(waves.__getitem__, 4, 3)(0).tolist() == [0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9]
    assert PieceReader(waves.__getitem__, 4)(1).tolist() == [0, 1, 2, 0]
    assert PieceReader(waves.__getitem__, 4, 2)(1).tolist() == [0, 1, 2, 0] * 2


def test_random_pieces_come_from_everywhere_and_follow_their_seed(tmp_path):
    write(tmp_path, tones(classes=2, seconds=0.3))
    items = in_pieces(open_dataset(tmp_path), 1600)
    assert len(items.read(0)) == 3 * 1600
    drawn = [random_piece(items.read, 0, np.random.default_rng(seed)) for seed in (0, 1, 0)]
    assert np.array_equal(drawn[0], drawn[2])
    assert not np.array_equal(drawn[0], drawn[1])
    assert {len(piece) for piece in drawn} == {1600}
    again = in_pieces(items.subset([1, 0]), 800)  # as where a network is trained on some items of another
    assert np.array_equal(again.read(0)[:800], items.read(1)[:800])
    assert np.array_equal(again.read(0)[-800:], items.read(1)[-800:])
    longer = in_pieces(items.subset([0]), 9600)
    assert seconds_at(longer.read, 0) == pytest.approx(0.3)


def test_small_sets_are_in_memory_and_equal_their_files(tmp_path, monkeypatch):
    write(tmp_path, tones())
    items = open_dataset(tmp_path)
    assert isinstance(items.read, SoundsInMemory)
    assert all(np.array_equal(items.read(i), items.stored(i)) for i in range(len(items)))
    assert durations(items) == pytest.approx(np.full(12, 0.2))
    assert are_in_memory(in_pieces(in_pieces(items.subset([1, 2]), 1600), 800))
    monkeypatch.setattr("nearfar.data.sounds.SOUND_MEMORY_BYTES", 0)
    read = in_pieces(open_dataset(tmp_path), 1600)
    assert not are_in_memory(read)
    assert np.array_equal(read.read(5), in_pieces(items, 1600).read(5))


def test_silence_is_finite():
    silent = np.zeros(4000, np.float32)
    assert np.isfinite(log_mel_statistics(silent)).all()
    assert picture_of(silent).max() == 0
    assert log_mel(np.zeros(1, np.float32)).shape[0] == BANDS


@pytest.mark.parametrize("way", ["folder", "memory", "subset", "pieces", "by name"])
def test_pages_play_sounds_and_nothing_else(way, tmp_path, monkeypatch):
    from nearfar.report.content import Items
    from nearfar.report.search_page import Line, Near, write_search_page

    if way == "folder":
        monkeypatch.setattr("nearfar.data.sounds.SOUND_MEMORY_BYTES", 0)
    write(tmp_path, tones(classes=2, each=1, kind="flac"))
    items = open_items(str(tmp_path))
    if way == "subset":
        items = items.subset([1, 0])
    elif way == "pieces":
        items = in_pieces(items, 1600)
    read = items.read
    if way == "by name":
        read = NamedReader([f"{name}" for name in items.names], folder=tmp_path)
    rows = np.eye(2)
    shown = Items(rows, items.labels, items.classes, items.names, read=read)
    page = write_search_page(tmp_path / "page.html", [Line(Near(0, ""), [Near(1, "")])], shown, title="t", note="n")
    sounds = re.findall(r'<audio controls preload="none" src="data:audio/mpeg;base64,([^"]+)"', page.read_text())
    assert len(sounds) == 2
    for data in sounds:
        wave, rate = soundfile.read(io.BytesIO(base64.b64decode(data)))
        assert rate == SOUND_RATE
        assert len(wave) > 0.15 * rate
    assert "media-src data:" in page.read_text()
    assert wave_of(lambda i: np.ones(3), 0) is None  # a row
