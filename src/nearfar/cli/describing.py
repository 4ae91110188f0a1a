"""``nearfar card``: the model card of a run, for readers and for model hubs."""

from __future__ import annotations

from pathlib import Path

from .encoding import say
from .options import TextOrNone


def card(
    run: Path,
    *,
    name: TextOrNone = "",
    license: TextOrNone = "",
    data: TextOrNone = "",
    push: TextOrNone = "",
    public: bool = False,
) -> None:
    """Write a model card for a run: scores and their protocol, data, license, and how to use the model.

    Example: nearfar card runs/photos --license apache-2.0 --push owner/photos

    Parameters
    ----------
    run
        The folder of a run.
    name
        The title; by default the name of the folder, or that of the repository with --push.
    license
        The license of the weights, such as apache-2.0.
    data
        A description of the data, in words.
    push
        Also upload the run and its card to this repository, owner/name, of the Hugging Face hub.
    public
        Make a new repository public. By default, it is private.
    """
    from ..report import push_run, write_card

    if public and not push:
        raise ValueError("--public: works only with --push owner/name, which creates the repository")
    about = {"license": license, "data": data} | ({"name": name} if name else {})
    if push:
        say(push_run(run, push, private=not public, **about))
    else:
        say(write_card(run, **about))
