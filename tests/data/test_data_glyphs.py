"""The embedded glyph images."""

from functools import partial

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("PIL")

from nearfar.data import open_task
from nearfar.data.synthetic.distortions import Strength, distort
from nearfar.data.synthetic.glyphs import (
    FEWEST_FACES,
    SAME_GLYPH_CORRELATION,
    _correlation,
    distinct,
    draw,
    find_faces,
    read_glyphs,
)


@pytest.fixture(scope="module")
def glyphs():
    return open_task("glyphs")


@pytest.mark.slow
def test_hundreds_of_classes_of_twenty(glyphs):
    parts = (glyphs.train, glyphs.validation, glyphs.test)
    assert sum(len(part.classes) for part in parts) > 200
    for part in parts:
        assert set(part.class_counts.tolist()) == {20}
        assert part.array.shape == (len(part), 28, 28, 1)
        assert part.array.dtype == np.uint8
    assert not set(glyphs.test.classes) & set(glyphs.train.classes + glyphs.validation.classes)
    assert "half of the characters unseen in training" in glyphs.protocol


@pytest.mark.slow
def test_raw_pixels_do_poorly_but_above_chance(glyphs):
    x = glyphs.test.array.reshape(len(glyphs.test), -1).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    similarity = x @ x.T
    np.fill_diagonal(similarity, -1)
    recall = (glyphs.test.labels[similarity.argmax(axis=1)] == glyphs.test.labels).mean()
    assert 0.2 < recall < 0.4


@pytest.mark.slow
def test_the_same_seed_draws_the_same_images():
    first, again, other = (read_glyphs(per_class=1, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.items.array, again.items.array)
    assert np.array_equal(first.roles, again.roles)
    assert first.items.names == again.items.names
    assert not np.array_equal(first.items.array, other.items.array)
    assert not np.array_equal(first.roles, other.roles)


@pytest.mark.slow
def test_the_images_do_not_depend_on_the_seed_of_the_task(monkeypatch):
    monkeypatch.setattr("nearfar.data.synthetic.glyphs.read_glyphs", partial(read_glyphs, per_class=2))
    one, other = (open_task("glyphs", seed=seed) for seed in (0, 5))
    assert other.test.classes == one.test.classes
    assert np.array_equal(other.test.array, one.test.array)
    assert other.validation.classes != one.validation.classes


def test_look_alikes_are_one_class():
    faces = find_faces()
    points = distinct(faces)
    assert len(set(points)) == len(points)
    assert all(sum(p in face.points for face in faces) >= FEWEST_FACES for p in points)
    letters = set(map(chr, points))
    for latin, greek, cyrillic in ("AΑА", "EΕЕ", "MΜМ", "TΤТ"):
        assert latin in letters
        assert not {greek, cyrillic} & letters
    sans = next(face for face in faces if face.path.name == "DejaVuSans.ttf")
    shapes = np.stack([draw(sans.path, p, 0) for p in points if p in sans.points])
    assert (_correlation(shapes) - 2 * np.eye(len(shapes))).max() <= SAME_GLYPH_CORRELATION


def test_thicker_strokes_have_more_ink():
    path = find_faces()[0].path
    ink = [int(draw(path, ord("k"), weight).astype(int).sum()) for weight in (0, 1, 2)]
    assert ink[0] < ink[1] < ink[2]


def test_without_distortion_the_drawing_stays():
    still = Strength(0, (1, 1), 0, 0, 0, 0, 0, 0, 0, 0, (1, 1), 0)
    drawn = np.stack([draw(find_faces()[0].path, ord(c), 0) for c in "RT"])
    picture = distort(drawn, 64, np.random.default_rng(0), still)
    assert picture.shape == (2, 64, 64)
    middle = 32 + int(0.85 * 0)
    assert np.abs(picture[:, middle].astype(int).mean(axis=-1) - drawn[:, middle].mean(axis=-1)).max() < 40
    x = np.stack([picture[i, 8:-8:3, 8:-8:3].ravel().astype(float) for i in range(2)])
    own = [np.corrcoef(x[i], _zoomed(drawn[i])[8:-8:3, 8:-8:3].ravel())[0, 1] for i in range(2)]
    assert min(own) > 0.95


def _zoomed(drawing: np.ndarray) -> np.ndarray:
    """The middle 85% of the drawing, at full size."""
    from PIL import Image

    margin = 0.075 * 64
    box = (margin, margin, 64 - margin, 64 - margin)
    return np.asarray(Image.fromarray(drawing).resize((64, 64), Image.Resampling.BILINEAR, box=box)).astype(float)


def test_blocks_do_not_change_what_a_block_holds():
    drawn = np.stack([draw(find_faces()[0].path, ord(c), 0) for c in "RTkx"])
    whole = distort(drawn, 28, np.random.default_rng(0), block=4)
    assert np.array_equal(whole, distort(drawn, 28, np.random.default_rng(0), block=9))
