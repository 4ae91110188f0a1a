"""Train networks: pass a config, and get a folder with weights, curves and scores.

from nearfar.train import TrainConfig, evaluate_run, train
run = train(TrainConfig.of(data="digits", epochs=5), "runs/digits")
scores = evaluate_run(run.folder)
"""

from __future__ import annotations

from typing import Any

from ..lazy_names import lazy_name

HOMES = {
    "TrainConfig": "config",
    "TrainError": "config",
    "train": "training",
    "climb": "rungs.climbing",
    "train_final": "final",
    "train_and_compare": "compare",
    "ladder": "rungs.ladder",
    "Ladder": "rungs.table",
    "DeepMetric": "estimator",
    "Run": "run",
    "Watcher": "watchers",
    "open_run": "run",
    "evaluate_run": "scoring",
    "embed_run": "estimator",
    "embed": "features",
    "recipe": "recipes",
    "recipe_names": "recipes",
    "reproduce": "papers.paper_tables",
    "theory_of_run": "papers.theory",
}
__all__ = sorted(HOMES)


def __getattr__(name: str) -> Any:
    return lazy_name(__name__, HOMES, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
