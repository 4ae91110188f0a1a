"""A training is settled once: its settings stay when they are settled again; data and texts are read once a command."""

from collections import Counter
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from PIL import Image

from nearfar import expressions
from nearfar.io.formats import Reader
from nearfar.train import TrainConfig, evaluate_run, task, train
from nearfar.train import settle as settling
from nearfar.train.compare import train_and_compare
from nearfar.train.final import train_final
from nearfar.train.rungs import climbing, ladder, rung_settings
from nearfar.train.settle import settle


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A table of rows, images of one size, and images of several sizes."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(16), 3)
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


def train_and_train_on_all_classes(config, out):
    run = train(config.replace(steps=3), out / "run", progress=False)  # a part of a pass, which is repeated as a part
    evaluate_run(run)
    COUNTED.clear()
    train_final(run, out / "final", progress=False)


COMMANDS = {
    "train": lambda config, out: train(config, out, progress=False),
    "train --minutes": lambda config, out: train(config, out, minutes=1, progress=False),
    "train --ladder": lambda config, out: climbing.climb(config, out, ladder="yes", rung="auto", progress=False),
    "compare": lambda config, out: train_and_compare(config, ["TripletLoss()", "SupConLoss()"], [0], out),
    "train on all classes": train_and_train_on_all_classes,
}
SETTLED = {"train": 1, "train --minutes": 2}  # before batches are timed, and with the length that these allow
COUNTED: Counter[str] = Counter()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_reads_its_data_once_and_parses_each_text_once(name, data, monkeypatch):
    read = Reader.read
    begin = expressions.Parser.__init__
    check = settling.check_data
    settled = []

    def read_counted(reader, source, **how):
        COUNTED[str(source)] += 1
        return read(reader, source, **how)

    def begin_counted(parser, text, expected):
        COUNTED[text] += 1
        begin(parser, text, expected)

    def check_counted(config, task):
        settled.append(config)
        check(config, task)

    monkeypatch.setattr(settling, "check_data", check_counted)
    monkeypatch.setattr(Reader, "read", read_counted)
    monkeypatch.setattr(expressions.Parser, "__init__", begin_counted)
    monkeypatch.setattr(climbing, "TRAINED_SPLITS", 1)
    for module in (ladder, rung_settings):
        monkeypatch.setattr(module, "HEAD_STEPS", 2)
    texts = {"trunk": "mlp(width=4)", "objective": "TripletLoss(margin=0.3)", "sampler": "MPerClassSampler(m=2)"}
    config = TrainConfig.of(
        data="rows.npz", epochs=1, batch_size=4, device="cpu", embedding_dim=4, keep="best", **texts
    )
    expressions._kept_tree.cache_clear()
    COUNTED.clear()
    COMMANDS[name](config, data / "out")
    assert len(settled) == SETTLED.get(name, len(settled))
    assert COUNTED["rows.npz"] == 1
    assert {text: count for text, count in COUNTED.items() if count > 1} == {}
