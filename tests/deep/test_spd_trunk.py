"""The trunk of positive definite matrices: its descriptors, its weights, and that it trains as other trunks do."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nearfar.deep.networks.embedder import Embedder
from nearfar.deep.networks.spd import other_parameters, stiefel_parameters
from nearfar.deep.networks.spd_trunk import SPDTrunk, covariances, pixel_numbers
from nearfar.deep.networks.trunks import make_trunk
from nearfar.deep.networks.weights import TrunkError
from nearfar.models import load_embedder
from nearfar.train import TrainConfig, train
from nearfar.train.checkpoint import load_tensors, read_about


def weights_of(trunk: SPDTrunk) -> list[torch.Tensor]:
    return [pair[0].weight for pair in trunk.layers]


def deviation(trunk: SPDTrunk) -> float:
    return max(float((W.mT @ W - torch.eye(W.shape[1])).abs().max().detach()) for W in weights_of(trunk))


def loops(image: np.ndarray, eps: float) -> np.ndarray:
    """Covariance of one (C, H, W) image, pixel by pixel."""
    C, H, W = image.shape

    def at(c: int, i: int, j: int) -> float:
        return float(image[c, i, j]) if 0 <= i < H and 0 <= j < W else 0.0

    rows = []
    for i in range(H):
        for j in range(W):
            x, y = -1 + 2 * j / (W - 1), -1 + 2 * i / (H - 1)
            groups: list[list[float]] = [[] for _ in range(8)]
            for c in range(C):
                left, right, up, down, here = (
                    at(c, i, j - 1),
                    at(c, i, j + 1),
                    at(c, i - 1, j),
                    at(c, i + 1, j),
                    at(c, i, j),
                )
                cross = at(c, i + 1, j + 1) - at(c, i + 1, j - 1) - at(c, i - 1, j + 1) + at(c, i - 1, j - 1)
                dx, dy = right - left, down - up
                found = [here, dx, dy, abs(dx), abs(dy), right + left - 2 * here, cross, down + up - 2 * here]
                for group, value in zip(groups, found, strict=True):
                    group.append(value)
            rows.append([x, y, x * x, x * y, y * y, *(value for group in groups for value in group)])
    D, P = len(rows[0]), len(rows)
    mean = [sum(row[a] for row in rows) / P for a in range(D)]
    cov = [[sum((r[a] - mean[a]) * (r[b] - mean[b]) for r in rows) / P for b in range(D)] for a in range(D)]
    return np.array(cov) + eps * np.eye(D)


@pytest.mark.parametrize("channels", [1, 3])
def test_descriptors_equal_plain_loops(channels: int) -> None:
    images = torch.rand(2, channels, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = covariances(pixel_numbers(images), 1e-3)
    for X, image in zip(found, images, strict=True):
        np.testing.assert_allclose(X, loops(image.numpy(), 1e-3), atol=1e-12)


def test_descriptors_are_scaled_by_the_spread_over_all_pixels() -> None:
    trunk, images = SPDTrunk(1), torch.rand(6, 1, 7, 7)
    numbers = pixel_numbers(images)
    scaled = numbers / (numbers.var((0, 2, 3), correction=0) + trunk.scale.eps).sqrt()[:, None, None]
    torch.testing.assert_close(trunk.descriptors(images), covariances(scaled, trunk.eps), atol=1e-5, rtol=1e-5)
    trunk.eval()
    trunk.scale.running_var.fill_(4.0 - trunk.scale.eps)
    torch.testing.assert_close(trunk.descriptors(images), covariances(numbers / 2, trunk.eps), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("text", "channels", "width"), [("spd", 1, 45), ("spd(sizes=(20, 10))", 3, 55)])
def test_shapes_and_options(text: str, channels: int, width: int) -> None:
    trunk = make_trunk(text, (channels, 12, 10))
    images = torch.rand(3, channels, 12, 10)
    assert trunk(images).shape == (3, width) == (3, trunk.num_features)
    trunk.eval()
    torch.testing.assert_close(trunk(images.to(memory_format=torch.channels_last)), trunk(images))
    assert Embedder(trunk, 4)(torch.rand(2, 1, 12, 10)).embedding.shape == (2, 4)


def test_no_sizes_leave_the_logarithms_of_the_descriptors() -> None:
    trunk = make_trunk("spd(sizes=())", (1, 8, 8)).eval()
    images = torch.rand(2, 1, 8, 8)
    values, V = np.linalg.eigh(trunk.descriptors(images).double().numpy())
    expected = np.linalg.norm((V * np.log(values)[:, None]) @ V.swapaxes(1, 2), axis=(1, 2))
    np.testing.assert_allclose(trunk(images).norm(dim=1), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spd(sizes=9)", r"such as \(11, 9\), got 9"),
        ("spd(sizes=(9, 0))", "integers of at least 1"),
        ("spd(sizes=(14,))", "non-increasing, from 13 or less"),
        ("spd(sizes=(9, 11))", "must be non-increasing, from 13 or less"),
        ("spd(eps=-1)", "eps must be at least 0"),
        ("spd(width=3)", "width"),
    ],
)
def test_bad_options(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_trunk(text, (1, 8, 8))


def test_rows_are_refused() -> None:
    with pytest.raises(TrunkError, match="spd takes images"):
        make_trunk("spd", (7,))


@pytest.mark.parametrize("content", ["random", "constant", "black"])
def test_gradients_reach_every_weight_and_are_finite(content: str) -> None:
    images = {"random": torch.rand, "constant": torch.ones, "black": torch.zeros}[content](4, 1, 8, 8)
    images.requires_grad_()
    trunk = SPDTrunk(1)
    (trunk(images) * torch.randn(45)).sum().backward()
    grads = [images.grad, *(p.grad for p in trunk.parameters())]
    assert len(grads) == 3
    assert all(bool(torch.isfinite(g).all()) and bool(g.abs().max() > 0) for g in grads)


def test_weights_stay_orthonormal_with_any_optimizer() -> None:
    torch.manual_seed(0)
    trunk = SPDTrunk(1)
    assert [tuple(W.shape) for W in weights_of(trunk)] == [(13, 11), (11, 9)]
    assert deviation(trunk) < 1e-5
    before = [W.detach().clone() for W in weights_of(trunk)]
    optimizer = torch.optim.AdamW(trunk.parameters(), lr=0.05, weight_decay=0.1)
    images, target = torch.rand(8, 1, 8, 8), torch.randn(8, 45)
    for _ in range(30):
        optimizer.zero_grad()
        (trunk(images) - target).square().mean().backward()
        optimizer.step()
    assert deviation(trunk) < 1e-5
    moved = [float((W - old).abs().max().detach()) for W, old in zip(weights_of(trunk), before, strict=True)]
    assert min(moved) > 0.05


def test_an_engine_with_one_optimizer_gets_every_weight() -> None:
    trunk = SPDTrunk(1)
    assert stiefel_parameters(trunk) == []
    assert {id(p) for p in other_parameters(trunk)} == {id(p) for p in trunk.parameters()}


def test_a_low_floor_makes_the_pairs_one_bilinear_map() -> None:
    images = torch.rand(3, 1, 9, 9)
    trunk = SPDTrunk(1, eps=1e-2, floor=1e-4).eval()
    one, two = weights_of(trunk)
    whole = (one @ two).mT @ trunk.descriptors(images) @ one @ two
    torch.testing.assert_close(trunk(images), trunk.logarithm(whole), atol=1e-4, rtol=1e-4)
    trunk.layers[0][1].eps = 0.5
    assert not torch.allclose(trunk(images), trunk.logarithm(whole), atol=0.01)


def test_state_brings_the_embedding_back() -> None:
    images = torch.rand(5, 1, 8, 8)
    one, two = SPDTrunk(1), SPDTrunk(1)
    with torch.no_grad():
        one(images)  # moves the running statistics
        for parameter in one.parameters():
            parameter.add_(torch.randn_like(parameter))
    one.eval(), two.eval()
    assert not torch.allclose(one(images), two(images), atol=0.1)
    two.load_state_dict(one.state_dict())
    assert torch.equal(one(images), two(images))


def test_mixed_precision_changes_nothing() -> None:
    trunk, images = SPDTrunk(1).eval(), torch.rand(3, 1, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = trunk(images)
    assert found.dtype == torch.float32
    assert torch.equal(found, trunk(images))


def test_a_run_trains_is_loaded_and_goes_on(tmp_path: Path) -> None:
    config = TrainConfig.of(
        data="digits",
        trunk="spd",
        embedding_dim=8,
        steps=3,
        sampler="m_per_class:8",
        batch_size=24,
        keep="trained",
        device="cpu",
    )
    run = train(config, tmp_path / "run", progress=False)
    embedder = load_embedder(run)
    assert isinstance(embedder.trunk, SPDTrunk)
    assert deviation(embedder.trunk) < 1e-5
    images = torch.rand(2, 1, 8, 8)
    assert embedder(images).embedding.shape == (2, 8)
    again = load_embedder(train(None, run.folder, resume=True, progress=False), "last")
    torch.testing.assert_close(again(images).embedding, load_embedder(run, "last")(images).embedding)


@pytest.mark.slow
def test_a_run_cut_off_goes_on_bit_for_bit(tmp_path: Path) -> None:
    def tensors(folder: Path) -> dict[str, torch.Tensor]:
        return load_tensors(folder / "last.safetensors")[0]

    class CutOff:
        def on_step(self, step: int, epoch: int, record: object) -> None:
            if step == 2:
                raise KeyboardInterrupt

        def on_epoch(self, row: object) -> None: ...

        def close(self) -> None: ...

    config = TrainConfig.of(
        data="digits", trunk="spd", embedding_dim=8, steps=4, sampler="m_per_class:8", batch_size=24, device="cpu"
    ).replace(checkpoint_every=1)
    whole = train(config, tmp_path / "whole", progress=False)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "broken", progress=False, watchers=[CutOff()])
    assert read_about(tmp_path / "broken" / "last.safetensors")["step"] < 4
    broken = train(None, tmp_path / "broken", resume=True, progress=False)
    one, two = tensors(whole.folder), tensors(broken.folder)
    assert one.keys() == two.keys()
    assert any("layers" in key for key in one)
    assert all(torch.equal(one[key], two[key]) for key in one)
