"""Images are mirrored at random only where mirror images are of their class."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from nearfar.data import Dataset, Task
from nearfar.deep.networks.embedder import Embedder
from nearfar.deep.networks.identity import Identity
from nearfar.train import TrainConfig
from nearfar.train.mirroring import Mirroring, compare_mirrored, mirrors, with_or_without_mirror, without_mirror
from nearfar.train.settle import Plan

from ..references.held_out_map_at_r import reference

CPU = torch.device("cpu")


def drawn(symmetric, classes=6, each=6, side=8):
    """Images of classes, of which each second one is the mirror image of the one before unless they are symmetric."""
    rng = np.random.default_rng(0)
    patterns = rng.uniform(60, 200, (classes, side, side, 1))
    patterns[1::2] = patterns[::2, :, ::-1]
    if symmetric:
        patterns = (patterns + rng.uniform(60, 200, (classes, side, side, 1))) / 2
        patterns = (patterns + patterns[:, :, ::-1]) / 2
    labels = np.repeat(np.arange(classes), each)
    pixels = patterns[labels] + rng.normal(scale=8, size=(len(labels), side, side, 1))
    return Dataset.from_array("drawn", np.clip(pixels, 0, 255).astype(np.uint8), labels)


@pytest.fixture
def embedder():
    return Embedder(Identity(64), None)


@pytest.mark.parametrize("symmetric", [False, True])
def test_mirrored_images_are_used_where_they_are_like_their_class(symmetric, embedder):
    config = TrainConfig.of(data="drawn", augment="erasing(p=0.3), mirror", pretrained="weights.pth")
    items = drawn(symmetric)
    task = Task("drawn", items, None, test=items, gallery=None, protocol="")
    plan = Plan(asked=config, config=config, task=task, note="Noted.")
    settled = with_or_without_mirror(plan, embedder, CPU)
    assert mirrors(settled.config) == symmetric
    assert settled.config.augment == ("erasing(p=0.3), mirror" if symmetric else "erasing(p=0.3)")
    assert settled.note.startswith(f"Noted. Images are {'also' if symmetric else 'not'} mirrored")
    assert embedder.training  # as before
    held_out = replace(plan, task=replace(task, validation=drawn(symmetric=True)))
    assert mirrors(with_or_without_mirror(held_out, embedder, CPU).config)
    without = replace(plan, config=config.replace(augment="erasing"))
    assert with_or_without_mirror(without, embedder, CPU) is without


def test_images_as_they_are_score_as_in_a_search(embedder):
    items = drawn(symmetric=False)
    found = compare_mirrored(embedder, items, TrainConfig.of(data="drawn"))
    rows = items.array.reshape(len(items), -1).astype(float)
    assert_allclose(found.straight, reference(rows, items.labels), atol=1e-6)
    assert found.mirrored < 0.3


def test_a_difference_that_may_be_due_to_chance_changes_nothing():
    assert Mirroring(0.5, 0.4, 0.05).is_harmful
    assert not Mirroring(0.5, 0.4, 0.15).is_harmful
    assert not Mirroring(0.5, 0.48, 0.001).is_harmful
    assert not Mirroring(0.5, 0.6, 0.001).is_harmful


def test_too_few_images_decide_nothing(embedder):
    alone = Dataset.from_array("alone", np.zeros((3, 8, 8, 1), np.uint8), [0, 1, 2])
    assert compare_mirrored(embedder, alone, TrainConfig.of(data="alone")) is None


@pytest.mark.parametrize(
    ("given", "left"), [("mirror", ""), ("mirror(p=0.3), blur", "blur"), ("crop(size=8), mirror", "crop(size=8)")]
)
def test_the_other_transforms_stay(given, left):
    assert without_mirror(given) == left
