"""The arguments of a `DeepMetric` as a config, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklearn.utils import check_random_state

from ..data.readers.in_memory import GIVEN
from ..quoting import quoted
from .config import OF_A_RUN, OF_AN_ESTIMATOR, TrainConfig, TrainError, settings_with

PARAMETERS = settings_with(OF_AN_ESTIMATOR)
ONLY_OF_RUNS = settings_with(OF_A_RUN)


def config_of(metric: Any) -> TrainConfig:
    """Return the config for the parameters of an estimator; its seed is drawn from `random_state`."""
    if not isinstance(metric.settings, Mapping | None):
        raise TrainError(f"settings must be a dict of fields of TrainConfig, or None; got {quoted(metric.settings)}")
    if not isinstance(metric.trunk, str):
        if isinstance(metric.trunk, type):
            trunk = metric.trunk.__name__
        else:
            trunk = type(metric.trunk).__name__
        expected = "expected a name such as 'conv4', or 'package.module:factory' for a network of your own"
        raise TrainError(f"trunk: {expected}; got {trunk}")
    other = dict(metric.settings or {})
    for name in other:
        if name in PARAMETERS:
            raise TrainError(f"settings: {quoted(name)} is a parameter of the estimator; pass it directly")
        if name in ONLY_OF_RUNS:
            raise TrainError(f"settings: {quoted(name)} applies only to runs in a folder")
    seed = int(check_random_state(metric.random_state).randint(2**31 - 1))
    # a parameter with its default value counts as not given, so that photographs get their own defaults
    usual = TrainConfig.of(data=GIVEN).to_dict()
    given = {name: getattr(metric, name) for name in PARAMETERS if getattr(metric, name) != usual[name]}
    if not metric.validation:  # without validation classes, one evaluation at the end is enough
        other.setdefault("eval_every", metric.epochs)
    return TrainConfig.of(data=GIVEN, keep="trained", seed=seed, **given, **other)


def arguments_of(config: TrainConfig) -> dict[str, Any]:
    """Return the parameters of an estimator for this config; `settings` has the values that are not defaults.

    Texts that name code stay those of the file that the config was read from, so that a fit refuses untrusted ones.
    """
    fields = config.to_dict()
    defaults = TrainConfig.of(data=GIVEN).to_dict()
    others = fields.keys() - {*PARAMETERS, *ONLY_OF_RUNS}
    settings = {name: value for name, value in fields.items() if name in others and value != defaults[name]}
    return {**{name: fields[name] for name in PARAMETERS}, "settings": settings or None}
