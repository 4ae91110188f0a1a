"""What `nearfar train` does: train a network, and score it on the classes that it has never seen."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from ..train.config import TrainConfig
from ..train.final import final_summary, train_final
from ..train.launching import is_first_process
from ..train.run import Run
from ..train.rungs.climbing import climb
from ..train.training import train
from .outcome import Outcome
from .scoring import score_run


class Trained(NamedTuple):
    """A run and its scores; `str` is what `nearfar train` prints.

    Attributes
    ----------
    run : Run
        The run.
    outcome : Outcome or None
        Its scores; None for a final model, which cannot be scored, and in all processes but the first.
    """

    run: Run
    outcome: Outcome | None

    def __str__(self) -> str:
        """Return the table of scores, or what is known of a final model."""
        if self.outcome is not None:
            return self.outcome.text
        return final_summary(self.run) if self.run.config.final is not None else ""


def train_and_score(
    config: TrainConfig | None,
    out: str | Path,
    *,
    resume: bool = False,
    final: str | Path | None = None,
    devices: int = 1,
    progress: bool = True,
    trust: str | Collection[str] = (),
    **how: Any,
) -> Trained:
    """Train a network, and score it on the test classes of its data.

    Parameters
    ----------
    config : TrainConfig or None
        Settings. None resumes a run with its own, or takes those of `final`.
    out : str or path
        Folder of the run.
    resume : bool
        Continue the run in `out` from its last checkpoint.
    final : str or path, optional
        An evaluated run, whose settings train a final model on all classes; it cannot be scored.
    devices : int
        Number of processes that train together. Rungs are compared in one process only.
    progress : bool
        Show the progress of the training.
    trust : str or collection of str
        Modules of your own that the settings of a run may name; their code is run.
    **how
        What `nearfar.train.climb` takes for a new run: `ladder`, `rung`, `minutes`, and functions for news.

    Returns
    -------
    Trained

    Raises
    ------
    TrainError
        As `nearfar.train.train`, `climb` and `train_final`.

    Examples
    --------
    >>> config = TrainConfig.of(data="digits", epochs=1)
    >>> print(train_and_score(config, "runs/digits"))  # doctest: +SKIP
    """
    if final is not None:
        run = train_final(final, out, progress=progress, trust=trust)
    elif resume or config is None or devices > 1:
        run = train(config, out, resume=resume, progress=progress, trust=trust)
    else:
        run = climb(config, out, progress=progress, **how)
    if not is_first_process() or run.config.final is not None:
        return Trained(run, None)
    return Trained(run, score_run(run))  # with the data and the network that are in memory
