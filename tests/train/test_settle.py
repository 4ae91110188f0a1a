"""A training is settled once: its settings do not change when they are settled again, and its data are opened once."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from PIL import Image

from nearfar.train import TrainConfig, task
from nearfar.train.settle import settle


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A table of rows, images of one size, and images of several sizes."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 6)
    np.savez("rows.npz", X=rng.normal(size=(48, 3)), y=y)
    for folder, sizes in (("alike", [(20, 24)]), ("various", [(20, 24), (40, 30)])):
        for label in range(8):
            for number in range(3):
                path = tmp_path / folder / f"class{label}" / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                height, width = sizes[number % len(sizes)]
                Image.fromarray(rng.integers(0, 256, (height, width), dtype=np.uint8)).save(path)
    return tmp_path


ASKED = {
    "rows": {"data": "rows.npz", "steps": 7, "batch_size": 8},
    "rows at an objective": {"data": "rows.npz", "objective": "TripletLoss()", "precision": "auto"},
    "images": {"data": "alike"},
    "images of several sizes": {"data": "various", "trunk": "conv4(width=4)"},
    "images at a size": {"data": "various", "image_size": 16, "resize": 20},
    "images that are cropped when they are read": {"data": "various", "augment": "resized_crop(whole=True)"},
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_settings_are_settled_once(data, asked):
    config = TrainConfig.of(device="cpu", **asked)
    plan = settle(config)
    again = settle(plan.config)
    assert plan.asked is config
    assert again.config == plan.config
    assert again.task.protocol == plan.task.protocol
    assert np.array_equal(again.task.train.read(0), plan.task.train.read(0))
    assert plan.config.trunk != "auto"
    assert plan.config.keep in ("best", "trained")
    assert plan.config.precision != "auto"
    assert plan.config.freeze_bn is not None
    with pytest.raises(FrozenInstanceError):
        plan.config = config


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_data_are_opened_once_and_again_only_for_another_size(data, asked, monkeypatch):
    opened = []
    plain = task.open_task

    def counted(source, **how):
        opened.append(how["image_size"])
        return plain(source, **how)

    monkeypatch.setattr(task, "open_task", counted)
    config = TrainConfig.of(device="cpu", **asked)
    plan = settle(config)
    assert opened[0] == task.size_when_opened(config)
    assert opened[1:] == [size for size in [task.size_when_opened(plan.config)] if size != opened[0]]
    opened.clear()
    settle(plan.config)
    assert len(opened) == 1
