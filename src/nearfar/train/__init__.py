"""Train networks: pass a config, and get a folder with weights, curves and scores.

from nearfar.train import TrainConfig, evaluate_run, train
run = train(TrainConfig.of(data="digits", epochs=5), "runs/digits")
scores = evaluate_run(run.folder)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

HOMES = {
    "TrainConfig": "config",
    "TrainError": "config",
    "train": "training",
    "climb": "rungs.climbing",
    "train_final": "final",
    "train_and_compare": "compare",
    "ladder": "rungs.ladder",
    "Ladder": "rungs.ladder",
    "DeepMetric": "estimator",
    "Run": "run",
    "Watcher": "watchers",
    "open_run": "run",
    "evaluate_run": "scoring",
    "load_embedder": "loading",
    "embed_run": "estimator",
    "embed": "features",
    "recipe": "recipes",
    "recipe_names": "recipes",
    "reproduce": "papers.paper_tables",
    "theory_of_run": "papers.theory",
}
__all__ = sorted(HOMES)


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
