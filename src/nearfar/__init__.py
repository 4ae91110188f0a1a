"""nearfar: metric learning. Names load on first use, so importing this imports neither numpy nor torch."""

from typing import Any

__version__ = "0.1.0"

PACKAGES = (
    "catalog",
    "compat",
    "data",
    "deep",
    "estimators",
    "evaluation",
    "index",
    "io",
    "models",
    "neighbors",
    "numerics",
    "probabilistic",
    "report",
    "spectral",
    "train",
)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name == "__all__":
        return _importable()
    if name == "load":
        from .models import load

        return load
    if name.startswith("_"):  # what inspect, pickle or pytest look for; no method is called so, nor similarly
        raise AttributeError(f"module 'nearfar' has no attribute {name!r}")

    from .catalog import BY_NAME, missing

    method = BY_NAME.get(name)
    if method is None:
        raise AttributeError(missing(name))
    try:
        value = getattr(import_module(method.module), name)
    except ModuleNotFoundError as error:
        from .extras import hint

        raise ModuleNotFoundError(f"nearfar.{name}: {hint(error)}", name=error.name) from error
    globals()[name] = value
    return value


def _importable() -> list[str]:
    """What a star imports: the losses and networks only where PyTorch is installed."""
    from importlib.util import find_spec

    from .catalog import METHODS

    deep = find_spec("torch") is not None
    return [method.name for method in METHODS if deep or not method.at.startswith("deep/")]


def __dir__() -> list[str]:
    from .catalog import METHODS

    return sorted([*PACKAGES, "__version__", "load", *(method.name for method in METHODS)])
