"""Features of a frozen trunk are kept for the items that they belong to, and for no others."""

import importlib
import os
import sys
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from nearfar.data import Dataset, open_dataset
from nearfar.data.transforms.symmetries import with_symmetries
from nearfar.deep.networks import transformers_text_trunk
from nearfar.deep.networks.embedder import Embedder
from nearfar.deep.networks.trunks import make_trunk
from nearfar.train import features
from nearfar.train.features import cached_features, embed


def test_files_of_the_same_names_have_features_of_their_own(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    rng, embedder = np.random.default_rng(0), Embedder(make_trunk("conv4", (1, 20, 20)), 8, freeze_trunk=True)
    for top in ("here", "there"):
        for name, side in (("a/0.png", 20), ("a/1.png", 24), ("b/0.png", 20)):  # of several sizes: not in memory
            path = tmp_path / top / "photos" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (side, side), dtype=np.uint8)).save(path)
        items = open_dataset(str(tmp_path / top / "photos")).subset([2, 0, 1])
        assert items.array is None
        expected = embed(embedder, items, layer="pooled", image_size=20)
        for _ in range(2):
            assert cached_features(embedder, items, image_size=20).array == pytest.approx(expected)
    assert len(list((tmp_path / "cache").rglob("*.npy"))) == 2


def test_turned_files_that_have_changed_have_other_features(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    rng, embedder = np.random.default_rng(0), Embedder(make_trunk("conv4", (1, 20, 20)), 8, freeze_trunk=True)
    for time in (1, 2):
        for name, side in (("a/0.png", 20), ("b/0.png", 24)):  # of several sizes: not in memory
            path = tmp_path / "photos" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (side, side), dtype=np.uint8)).save(path)
            os.utime(path, (time, time))
        items = with_symmetries(open_dataset(str(tmp_path / "photos")))
        assert items.array is None
        expected = embed(embedder, items, layer="pooled", image_size=20)
        assert cached_features(embedder, items, image_size=20).array == pytest.approx(expected)


def frozen_rows():
    """A frozen trunk, items, and their features."""
    embedder = Embedder(make_trunk("mlp", (4,)), 8, freeze_trunk=True)
    items = Dataset.from_array("rows", np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32), [0, 0, 1] * 2)
    return embedder, items, embed(embedder, items, layer="pooled")


@pytest.mark.parametrize("content", [b"", b"no array", "short", "numbers", "objects"])
def test_features_in_a_damaged_file_are_computed_again(tmp_path, monkeypatch, content) -> None:
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    embedder, items, expected = frozen_rows()
    cached_features(embedder, items)
    (file,) = (tmp_path / "cache").rglob("*.npy")
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        wrong = {"short": expected[:3], "numbers": expected.astype(int), "objects": np.array([None] * 6)}
        np.save(file, wrong[content])
    for _ in range(2):
        assert cached_features(embedder, items).array == pytest.approx(expected)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="this system has no owners of files")
@pytest.mark.parametrize("how", ["link", "folder of another user", "file"])
def test_without_a_cache_of_ones_own_features_are_computed(tmp_path, monkeypatch, how) -> None:
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    embedder, items, expected = frozen_rows()
    cached_features(embedder, items)
    (file,) = (tmp_path / "cache").rglob("*.npy")
    forged = tmp_path / "forged.npy"
    np.save(forged, 2 * expected)
    before = forged.read_bytes()
    file.unlink()
    if how == "link":
        file.symlink_to(forged)
    elif how == "file":
        monkeypatch.setenv("NEARFAR_CACHE", str(forged))
    else:
        np.save(file, 2 * expected)
        monkeypatch.setattr(os, "getuid", lambda: 4321)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert cached_features(embedder, items).array == pytest.approx(expected)
    assert forged.read_bytes() == before
    if how != "link":  # which is replaced, and not followed
        assert "NEARFAR_CACHE" in str(told[-1].message)


def test_texts_are_embedded_by_length_within_a_budget_of_tokens(monkeypatch) -> None:
    monkeypatch.setattr(transformers_text_trunk, "TOKENS_ON_PROCESSOR", 24)
    lengths = np.random.default_rng(0).integers(0, 13, 40)
    rows = np.where(np.arange(12) < lengths[:, None], np.arange(12) + lengths[:, None], -1).astype(np.float32)
    seen = []

    def sums(batch):
        seen.append(tuple(batch.shape))
        return torch.where(batch > -1, batch, 0).sum(1, keepdim=True)

    found = features.encode_texts(sums, rows)
    np.testing.assert_array_equal(found[:, 0], np.where(rows > -1, rows, 0).sum(1))
    assert all(n * length <= 24 for n, length in seen)
    assert sum(n * length for n, length in seen) < 1.3 * lengths.sum()
    assert features.encode_texts(sums, rows[:0]).shape == (0, 0)


CODE = """
import torch


class Own(torch.nn.Module):
    num_features = 3

    def forward(self, images):
        return {factor} * images.mean(dim=(2, 3)).expand(-1, 3)
"""


def test_a_trunk_whose_code_has_changed_has_other_features(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file of the same second and size would not be read again
    items = Dataset.from_array("photos", np.full((4, 8, 8), 51, np.uint8), [0, 0, 1, 1])
    for factor in (1, 5):
        (tmp_path / "changing_trunk.py").write_text(CODE.format(factor=factor))
        monkeypatch.delitem(sys.modules, "changing_trunk", raising=False)
        trunk = importlib.import_module("changing_trunk").Own()
        rows = cached_features(Embedder(trunk, 8, freeze_trunk=True), items).array
        assert rows == pytest.approx(np.full((4, 3), 0.2 * factor))
