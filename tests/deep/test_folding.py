"""Normalization that stands still as part of the convolution before it: the same features and gradients."""

from copy import deepcopy

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from nearfar.deep.networks.folding import fold_norms, unfold_norms
from nearfar.deep.networks.trunks import make_trunk

SHAPE = (3, 64, 64)


class Plain(nn.Module):
    """A convolution and its normalization, one of each kind: with and without bias, scale and groups."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=True),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, groups=8, dilation=2, bias=False),
            nn.BatchNorm2d(8, affine=False),
            nn.Conv2d(8, 4, 1),
            nn.BatchNorm2d(4, track_running_stats=False),
        )

    def forward(self, x):
        return self.layers(x).mean((2, 3))


class Shared(nn.Module):
    """Normalizations that cannot be folded: their convolution has another reader, or is called twice."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.twice = nn.Conv2d(3, 3, 1)
        self.other = nn.BatchNorm2d(3)

    def forward(self, x):
        y = self.conv(x)
        y = self.norm(y) + y
        return self.twice(self.other(self.twice(y))).mean((2, 3))


def seasoned(trunk):
    """Give normalizations statistics and scales of their own."""
    g = torch.Generator().manual_seed(0)
    for module in trunk.modules():
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
            module.running_mean.normal_(std=0.1, generator=g)
            module.running_var.uniform_(0.5, 2, generator=g)
            if module.weight is not None:
                with torch.no_grad():
                    module.weight.uniform_(0.5, 2, generator=g)
                    module.bias.normal_(generator=g)
    return trunk


def value_and_gradients(trunk, images):
    trunk.zero_grad()
    value = trunk(images).square().sum()
    value.backward()
    return [value.detach(), *(p.grad.clone() for p in trunk.parameters() if p.grad is not None)]


def test_features_and_gradients_are_the_same(timm):
    # double precision: in single, rounding moves units across the kink of ReLU, and their gradients with them
    torch.manual_seed(0)
    trunks = {
        "timm:test_resnet": 3,
        "timm:test_efficientnet(pad_type='same')": 3,
        "timm:mobilenetv1_100(pad_type='same')": 27,
    }
    found = [(seasoned(make_trunk(name, SHAPE)), count) for name, count in trunks.items()]
    for trunk, count in [*found, (seasoned(Plain()), 2)]:
        images = torch.rand(3, *SHAPE, generator=torch.Generator().manual_seed(1)).double()
        before = value_and_gradients(trunk.double().eval(), images)
        keys = list(trunk.state_dict())
        text = repr(trunk)
        assert fold_norms(trunk, SHAPE) >= count
        after = value_and_gradients(trunk, images)
        for one, other in zip(before, after, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9 * max(1.0, float(one.abs().max())))
        assert list(trunk.state_dict()) == keys  # files and caches know nothing of it
        assert repr(trunk) == text
        assert not trunk.training


def test_statistics_of_a_batch_are_taken_while_training():
    torch.manual_seed(0)
    trunk = seasoned(Plain()).train()
    plain = deepcopy(trunk)
    assert fold_norms(trunk, SHAPE) == 2
    assert trunk.training
    images = torch.rand(4, *SHAPE)
    torch.testing.assert_close(trunk(images), plain(images), rtol=0, atol=0)
    torch.testing.assert_close(trunk.layers[1].running_mean, plain.layers[1].running_mean, rtol=0, atol=0)


def test_what_has_other_readers_is_left_alone():
    torch.manual_seed(0)
    trunk = seasoned(Shared()).eval()
    images = torch.rand(2, *SHAPE)
    before = trunk(images)
    assert fold_norms(trunk, SHAPE) == 0
    torch.testing.assert_close(trunk(images), before, rtol=0, atol=0)


def test_copies_stand_on_their_own_and_it_can_be_undone():
    torch.manual_seed(0)
    trunk = seasoned(Plain()).eval()
    images = torch.rand(2, *SHAPE)
    before = trunk(images)
    fold_norms(trunk, SHAPE)
    other = deepcopy(trunk)
    with torch.no_grad():
        other.layers[1].running_var.mul_(4)
        other.layers[0].weight.mul_(0.5)
    torch.testing.assert_close(trunk(images), before)
    assert not torch.allclose(other(images), before, rtol=1e-2)
    unfold_norms(trunk)
    torch.testing.assert_close(trunk(images), before, rtol=0, atol=0)
    assert not any("forward" in vars(module) for module in trunk.modules())
