"""``nearfar card`` and ``nearfar push``: the model card of a run, for readers and for model hubs."""

from __future__ import annotations

from pathlib import Path

from ..extras import require
from .encoding import say
from .options import TextOrNone


def card(run: Path, *, name: TextOrNone = "", license: TextOrNone = "", data: TextOrNone = "") -> None:
    """Write a model card for a run: scores and their protocol, data, license, and how to use the model.

    Example: nearfar card runs/photos --license apache-2.0

    Parameters
    ----------
    run
        The folder of a run.
    name
        The title; by default the name of the folder.
    license
        The license of the weights, such as apache-2.0.
    data
        A description of the data, in words.
    """
    from ..report import write_card

    say(write_card(run, license=license, data=data, **({"name": name} if name else {})))


def push(
    run: Path,
    repository: str,
    *,
    license: TextOrNone = "",
    data: TextOrNone = "",
    public: bool = False,
) -> None:
    """Upload a run with its model card to the Hugging Face hub. `hf auth login` stores the token that it needs.

    Example: nearfar push runs/photos owner/photos --license apache-2.0

    Parameters
    ----------
    run
        The folder of a run. Weights, settings, scores, names of the training items and card are uploaded.
    repository
        The repository, owner/name, which is created if it does not exist.
    license
        The license of the weights, such as apache-2.0.
    data
        A description of the data, in words.
    public
        Make a new repository public. By default, it is private.
    """
    require("huggingface_hub")
    from ..report import push_run

    say(push_run(run, repository, private=not public, license=license, data=data))
