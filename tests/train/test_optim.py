"""Groups and rates."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from nearfar.deep.networks.embedder import Embedder
from nearfar.deep.networks.trunks import make_trunk
from nearfar.train import TrainConfig
from nearfar.train.optim import make_optimizer, param_groups, rate_factor, set_rates


def config_of(**fields) -> TrainConfig:
    return TrainConfig.of(data="digits", **fields)


def test_each_group_has_its_rate() -> None:
    embedder, objective = Embedder(make_trunk("mlp(width=4)", (3,)), 2), nn.Linear(2, 5)
    groups = param_groups(embedder, objective, config_of(lr=1e-4, lr_embedding=1e-3, lr_proxies=1e-2))
    assert [(g["name"], g["lr"], len(g["params"])) for g in groups] == [
        ("trunk", 1e-4, 4),
        ("embedding", 1e-3, 2),
        ("proxies", 1e-2, 2),
    ]
    frozen = Embedder(make_trunk("mlp(width=4)", (3,)), 2, freeze_trunk=True)
    assert [g["name"] for g in param_groups(frozen, nn.Identity(), config_of())] == ["embedding"]


@pytest.mark.parametrize(
    ("fields", "kind", "settings"),
    [
        ({"eps": 0.01, "weight_decay": 1e-4}, torch.optim.Adam, {"eps": 0.01, "weight_decay": 1e-4}),
        ({"optimizer": "adamw"}, torch.optim.AdamW, {"eps": 1e-8}),
        ({"optimizer": "sgd", "eps": 0.01}, torch.optim.SGD, {"momentum": 0.9}),  # which has no eps
        ({"optimizer": "rmsprop", "momentum": 0.5}, torch.optim.RMSprop, {"momentum": 0.5}),
    ],
)
def test_optimizers(fields, kind, settings) -> None:
    groups = param_groups(Embedder(make_trunk("mlp(width=4)", (3,)), 2), nn.Identity(), config_of())
    optimizer = make_optimizer(groups, config_of(**fields))
    assert type(optimizer) is kind
    assert {key: optimizer.param_groups[0][key] for key in settings} == settings


def test_cosine_falls_to_nothing_after_a_linear_rise() -> None:
    factor = rate_factor(config_of(warmup=1, schedule="cosine"), steps_per_epoch=10, steps=110)
    values = [factor(step) for step in range(111)]
    assert values[:10] == pytest.approx([(k + 1) / 10 for k in range(10)])
    assert values[10] == 1.0
    assert values[60] == pytest.approx(0.5)
    assert values[110] == pytest.approx(0.0)
    assert all(a >= b for a, b in pairwise(values[10:]))


def test_steps_fall_by_gamma() -> None:
    factor = rate_factor(config_of(schedule="step", lr_step=2, lr_gamma=0.5), steps_per_epoch=3, steps=18)
    assert [factor(step) for step in range(18)] == [1.0] * 6 + [0.5] * 6 + [0.25] * 6


def test_rates_are_set_on_every_group() -> None:
    groups = param_groups(Embedder(make_trunk("mlp(width=4)", (3,)), 2), nn.Identity(), config_of(lr_embedding=0.1))
    optimizer = make_optimizer(groups, config_of())
    assert set_rates(optimizer, 0.5) == {"trunk": 0.0005, "embedding": 0.05}
    assert set_rates(optimizer, 1.0) == {"trunk": 0.001, "embedding": 0.1}
