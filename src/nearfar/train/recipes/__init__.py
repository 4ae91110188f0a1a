"""Settings of papers and for photographs: ``recipe("jrd/cub")`` gives fields of `TrainConfig`.

A recipe is everything but the data and the weights of the trunk, which come from local files:

    TrainConfig.of(data="cub:CUB_200_2011", trunk_weights="bn_inception.pth", **recipe("jrd/cub"))
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Any

from ..config import TrainError

PAPERS = ("characters", "cml", "facility_location", "jrd", "photos")


def recipe(name: str) -> dict[str, Any]:
    """Return the settings of a recipe.

    Parameters
    ----------
    name : str
        Paper and dataset, such as "jrd/cub"; `recipe_names` lists them.

    Raises
    ------
    TrainError
        For an unknown name; the nearest is suggested.

    Examples
    --------
    >>> recipe("jrd/cub")["objective"]
    'AMSoftmaxLoss(scale=20, margin=0.1) + 1.0*JRS()'
    """
    names = recipe_names()
    if name not in names:
        near = get_close_matches(name, names, n=1, cutoff=0.4)
        if near:
            hint = f"did you mean {near[0]!r}?"
        else:
            hint = f"expected one of {', '.join(names)}"
        raise TrainError(f"unknown recipe {name!r}; {hint}")
    paper, _, dataset = name.partition("/")
    return dict(_recipes(paper)[dataset])


def recipe_names() -> list[str]:
    """Return all names, "paper/dataset"."""
    return [f"{paper}/{dataset}" for paper in PAPERS for dataset in _recipes(paper)]


def _recipes(paper: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = import_module(f"{__name__}.{paper}").RECIPES
    return found
