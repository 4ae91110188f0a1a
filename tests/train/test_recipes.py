"""Recipes are settings that can be run."""

from importlib import import_module

import numpy as np
import pytest

from nearfar.data.augment import Augment
from nearfar.deep.objective.parser import parse_objective
from nearfar.deep.samplers.resolve import make_sampler
from nearfar.train import TrainConfig, TrainError, recipe, recipe_names
from nearfar.train.recipes import PAPERS


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_understood(name) -> None:
    config = TrainConfig.of(data=f"{name}:PATH", pretrained="bn_inception.pth", **recipe(name))
    terms = parse_objective(config.objective, num_classes=100, embedding_dim=config.embedding_dim)
    assert terms.parts()
    images = not name.startswith(("texts/", "sounds/"))
    # features of a frozen trunk are kept
    assert bool(Augment.parse(config.augment).parts) is (images and not config.freeze_trunk)
    labels = np.repeat(np.arange(120), 5)
    assert len(make_sampler(config.sampler, labels, config.batch_size)) > 0


def test_settings_of_the_papers() -> None:
    assert recipe("jrd/sop")["lr_proxies"] == 0.1
    assert recipe("jrd/cars")["objective"] == "AMSoftmaxLoss(scale=20, margin=0.05) + 1.0*JRS()"
    assert recipe("facility_location/sop")["sampler"] == "class_ratio:0.75"
    assert recipe("cml/inshop_binomial")["objective"] == (
        "BinomialDevianceLoss(alpha=2, beta=0.5, eta=25) + 0.013*EnergyConfusion() + 0.01*DiversityConfusion()"
    )


def test_gamma_of_facility_location_decays_per_so_many_batches() -> None:
    for name in ("cub", "cars", "sop"):
        term = parse_objective(recipe(f"facility_location/{name}")["objective"])
        term.calls.fill_(recipe(f"facility_location/{name}")["steps"])
        term.on_epoch(300)  # 39 batches are an epoch of CUB
        assert 0.8 < term.gamma_ < 3


def test_a_recipe_is_a_copy() -> None:
    recipe("jrd/cub")["lr"] = 1.0
    assert recipe("jrd/cub")["lr"] == 1e-4


def test_unknown_recipes_suggest_the_nearest() -> None:
    with pytest.raises(TrainError, match="did you mean 'jrd/cub'"):
        recipe("jrd/cup")


@pytest.mark.parametrize("paper", PAPERS)
def test_headers_say_paper_command_and_figures(paper) -> None:
    text = import_module(f"nearfar.train.recipes.{paper}").__doc__
    assert "nearfar train" in text
    assert "--recipe" in text
    assert "Recall@" in text


def test_few_shots_are_learned_from_turned_classes() -> None:
    config = TrainConfig.of(data="omniglot.zip", **recipe("characters/omniglot_few_shot"))
    assert config.symmetries == "all"
    assert make_sampler(config.sampler, np.repeat(np.arange(928), 20), config.batch_size).batches_per_epoch() == 145
