"""Scores, search and several processes, under the names of the other library."""

from typing import NoReturn

from ..absent import refuse_module

MISSING = {"logging_presets": "`nearfar train` writes metrics.csv and, with --track tensorboard, for TensorBoard"}


def __getattr__(name: str) -> NoReturn:
    refuse_module(__name__, MISSING, name)
