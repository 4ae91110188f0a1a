"""The protocol of the papers: all training classes, the last checkpoint, crops of whole photographs."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("PIL")

from torch import nn

from nearfar.data import DataError, Dataset, open_task
from nearfar.data.loader import TaggedBatches, make_loader
from nearfar.data.transforms.geometry import ResizedCrop
from nearfar.deep.networks.embedder import Embedder
from nearfar.deep.samplers.resolve import make_sampler
from nearfar.train import TrainConfig, TrainError, evaluate_run, train
from nearfar.train.optim import make_optimizer
from nearfar.train.setup import build

from .test_paper_tables import archives, cub  # noqa: F401  # a fixture

RUN = {"trunk": "conv4(width=2)", "image_size": 16, "batch_size": 8, "embedding_dim": 4, "workers": 0, "partial": True}


def test_learns_from_all_classes_and_keeps_the_last_checkpoint(archives, tmp_path) -> None:  # noqa: F811  # the fixture
    config = TrainConfig.of(data=f"cub:{archives / 'cub'}", protocol="paper", epochs=3, **RUN)
    run = train(config, tmp_path / "run", progress=False)
    assert run.best is None
    assert run.best_epoch == 3
    assert len(run.task.train.classes) == 4
    assert run.task.validation is None
    told = evaluate_run(run).protocol
    assert "the network was trained on all training classes, and the last checkpoint, of epoch 3, is scored" in told
    assert "of a possibly incomplete archive" in told


def test_what_asks_for_validation_classes_is_refused() -> None:
    for name, value in {"validation": 0.2, "patience": 3, "metric": "auto"}.items():
        with pytest.raises(TrainError, match=f'protocol="paper" .*, so {name} must not request validation classes'):
            TrainConfig.of(data="x", protocol="paper", **{name: value})
    assert TrainConfig.of(data="x").replace(protocol="paper").validation == 0


def test_settings_at_their_default_are_no_part_of_the_digest() -> None:
    config = TrainConfig.of(data="x")
    assert config.digest == TrainConfig.of(data="x", protocol="honest", squash=False, partial=False).digest
    changed = ({"squash": True}, {"protocol": "paper"}, {"freeze_bn": "statistics"}, {"rmsprop_decay": 0.9})
    assert len({config.digest, *(config.replace(**change).digest for change in changed)}) == 5
    assert config.replace(freeze_bn=True).digest != config.replace(freeze_bn="statistics").digest


def test_statistics_stand_still_while_scales_are_trained() -> None:
    trunk = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1))
    trunk.num_features = 4
    embedder = Embedder(trunk, 2, freeze_bn="statistics").train()
    before = trunk[1].running_mean.clone()
    embedder(torch.rand(4, 3, 8, 8)).embedding.sum().backward()
    assert torch.equal(trunk[1].running_mean, before)
    assert trunk[1].weight.grad is not None
    assert not trunk[1].training
    frozen = Embedder(trunk, 2, freeze_bn=True).trunk[1]
    assert not frozen.weight.requires_grad


def test_tensorflows_decay_of_rmsprop() -> None:
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": 0.1}]
    config = TrainConfig.of(data="x", optimizer="rmsprop", rmsprop_decay=0.9, eps=1e-10)
    assert make_optimizer(groups, config).defaults["alpha"] == 0.9
    assert make_optimizer(groups, config.replace(rmsprop_decay=None)).defaults["alpha"] == 0.99


def halves(n: int = 12, height: int = 10, width: int = 40) -> Dataset:
    """Photographs whose left half is dark and whose right half is bright."""
    images = np.zeros((n, height, width, 3), np.uint8)
    images[:, :, width // 2 :] = 200
    return Dataset.from_array("halves", images, np.arange(n) % 3)


def test_squash_keeps_what_a_central_square_cuts_off() -> None:
    images = halves()
    images.array[:, :, :5] = 255  # the left edge
    config = TrainConfig.of(data="x", image_size=8, squash=True)
    from nearfar.train.features import resizing_of

    seen, _, _ = next(iter(make_loader(images, image_size=8, resizing=resizing_of(config))))
    assert seen.shape[2:] == (8, 8)
    assert seen[0, 0, 4, 0] > 150
    cut, _, _ = next(iter(make_loader(images, image_size=8)))
    assert cut[0, 0, 4, 0] < 50


def test_data_are_not_cut_before_they_are_squashed_or_cropped(archives) -> None:  # noqa: F811  # the fixture
    data = f"cub:{archives / 'cub'}"
    for settings in ({"squash": True}, {"augment": "resized_crop(size=16, whole=True)"}):
        loop = build(TrainConfig.of(data=data, **RUN, **settings))
        assert loop.data.task.train.read(0).shape == (16, 20, 3)
        items, _, _ = next(loop.data.batches(0, 0, torch.device("cpu")))
        assert items.shape[2:] == (16, 16)
    assert loop.data.augment.parts == []


def test_crops_of_whole_photographs_are_the_same_for_any_number_of_workers(tmp_path) -> None:
    crop = ResizedCrop(size=6, area=(0.08, 1.0), whole=True)

    def batches(workers: int, epoch: int = 0, done: int = 0) -> list[torch.Tensor]:
        images = halves()
        sampler = make_sampler("m_per_class:2", images.labels, 4, 0)
        sampler.load_state_dict(sampler.state_dict() | {"epoch": epoch, "batch": done})
        loader = make_loader(
            images, batch_sampler=TaggedBatches(sampler, (0, 0)), image_size=6, crop=crop, workers=workers
        )
        return [items for items, _, _ in loader]

    one = batches(0)
    assert all(torch.equal(a, b) for a, b in zip(one, batches(1), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(one[1:], batches(0, done=1), strict=True))
    assert not torch.equal(one[0], batches(0, epoch=1)[0])


def test_boxes_lie_in_the_photograph_and_have_the_area_that_is_asked_for() -> None:
    rng = np.random.default_rng(0)
    crop = ResizedCrop(area=(0.08, 1.0))
    shares = []
    for width, height in ((500, 375), (40, 300), (7, 7)):
        for _ in range(300):
            left, top, wide, high = crop.box(width, height, rng)
            assert 0 <= left <= left + wide <= width
            assert 0 <= top <= top + high <= height
            if width == 500:
                assert 0.7 < wide / high < 1.4
                shares.append(wide * high / width / height)
    assert 0.05 < min(shares) < 0.2
    assert 0.8 < max(shares) <= 1
    assert crop.box(1000, 10, np.random.default_rng(0))[3] == 10  # nothing fits: the central one of an allowed ratio


def test_a_part_of_an_archive(tmp_path) -> None:
    cub(tmp_path)
    for path in sorted((tmp_path / "images" / "001.Bird").iterdir())[:15]:
        path.unlink()
    with pytest.raises(DataError, match="expected train 5864 images"):
        open_task(f"cub:{tmp_path}")
    task = open_task(f"cub:{tmp_path}", partial=True)
    assert len(task.train) + len(task.validation or ()) == 65
    assert len(task.test) == 80
    for path in tmp_path.rglob("*.jpg"):
        path.unlink()
    with pytest.raises(DataError, match="none of the 160 images in its lists exists"):
        open_task(f"cub:{tmp_path}", partial=True)
