"""Settings of papers and for photographs: ``recipe("jrd/cub")`` gives fields of `TrainConfig`.

A recipe is everything but the data and the weights of the trunk, which come from local files:

    TrainConfig.of(data="cub:CUB_200_2011", pretrained="bn_inception-52deb4733.pth", **recipe("jrd/cub"))

With ``protocol="paper"`` the recipes of the three founding papers are what these did, as far as they say it: all
training classes, the last checkpoint, their crops, sums where they sum, and the constants of their optimizers.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Any

from ..config import TrainError

PAPERS = ("characters", "cml", "facility_location", "jrd", "photos", "sounds", "texts")
PROTOCOLS = ("honest", "paper")


def recipe(name: str, protocol: str = "honest") -> dict[str, Any]:
    """Return the settings of a recipe.

    Parameters
    ----------
    name : str
        Paper and data set, such as "jrd/cub"; `recipe_names` lists them.
    protocol : {"honest", "paper"}
        "honest" holds out training classes to choose the checkpoint; "paper" follows the paper.

    Returns
    -------
    dict
        Settings of `TrainConfig`.

    Raises
    ------
    TrainError
        If the name is unknown (the error suggests the closest one), or the recipe has no protocol of a paper.

    Examples
    --------
    >>> recipe("jrd/cub")["objective"]
    'AMSoftmaxLoss(scale=20, margin=0.1) + 1.0*JRS()'
    >>> recipe("jrd/cub", protocol="paper")["freeze_bn"]
    'statistics'
    """
    if protocol not in PROTOCOLS:
        raise TrainError(f'protocol must be "honest" or "paper", got {protocol!r}')
    names = recipe_names()
    if name not in names:
        near = get_close_matches(name, names, n=1, cutoff=0.4)
        if near:
            hint = f"did you mean {near[0]!r}?"
        else:
            hint = f"expected one of {', '.join(names)}"
        raise TrainError(f"unknown recipe {name!r}; {hint}")
    paper, _, dataset = name.partition("/")
    settings = dict(_recipes(paper)[dataset])
    if protocol == "honest":
        return settings
    changes: dict[str, dict[str, Any]] = getattr(_module(paper), "PAPER", {})
    if dataset not in changes:
        known = ", ".join(one for one in PAPERS if hasattr(_module(one), "PAPER"))
        raise TrainError(f"recipe {name!r} has no protocol of a paper; those of {known} have")
    return settings | changes[dataset] | {"protocol": "paper"}


def recipe_names() -> list[str]:
    """Return the names of all recipes, in the form "paper/dataset"."""
    return [f"{paper}/{dataset}" for paper in PAPERS for dataset in _recipes(paper)]


def _module(paper: str) -> Any:
    return import_module(f"{__name__}.{paper}")


def _recipes(paper: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = _module(paper).RECIPES
    return found
