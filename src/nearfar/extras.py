"""Which extra brings a package that is not installed, and which packages a command needs."""

from __future__ import annotations

import sys
from importlib.util import find_spec

PACKAGES = {
    "torch": "deep",
    "accelerate": "deep",
    "msgspec": "deep",
    "PIL": "deep",
    "jinja2": "report",
    "matplotlib": "report",
    "pyarrow": "tables",
    "soundfile": "sounds",
    "faiss": "ann",
    "onnx": "export",
    "onnxscript": "export",
    "onnxruntime": "export",
    "pymilvus": "store",
    "lancedb": "lance",
    "psycopg": "postgres",
    "pgvector": "postgres",
    "starlette": "serve",
    "uvicorn": "serve",
    "h11": "serve",
    "clarabel": "solvers",
    "tensorboard": "tensorboard",
    "timm": "vision",
    "torchvision": "vision",
    "peft": "vision",
    "huggingface_hub": "vision",
    "fsspec": "remote",
    "aiohttp": "remote",
    "s3fs": "remote",
}


ALONE = ("wandb", "mlflow", "trackio", "datasets")
"""Packages that no extra brings, and that are installed by their names."""


ALSO_IN = {"report": ("msgspec", "PIL"), "serve": ("PIL",)}
"""Packages of `deep` that are in the extra of a command, too, which needs no PyTorch for files of embeddings."""


NEEDS = {
    "train": ("torch", "accelerate", "msgspec", "PIL"),
    "compare": ("torch", "accelerate", "msgspec", "PIL"),
    "report": ("jinja2", "matplotlib", "msgspec", "PIL"),
    "serve": ("starlette", "uvicorn", "h11", "PIL"),
    "export": ("onnx", "onnxruntime"),
}
"""Packages that a command always needs, whatever it is given."""


def is_installed(package: str) -> bool:
    """Return whether a package can be found; it is not imported."""
    if package in sys.modules:
        return sys.modules[package] is not None
    return find_spec(package) is not None


def require(*packages: str) -> None:
    """Raise a ModuleNotFoundError on the first package that is not installed, before any work is done.

    >>> require("numpy", "no_such_package")
    Traceback (most recent call last):
    ModuleNotFoundError: No module named 'no_such_package'
    """
    for package in packages:
        if not is_installed(package):
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)


def hint(error: ImportError, command: str = "") -> str:
    """Return what to install, if an extra has the package that is missing, and otherwise the message of the error.

    Examples
    --------
    >>> hint(ModuleNotFoundError(name="msgspec"), command="report")
    "msgspec is not installed: pip install 'nearfar[report]'"
    """
    package = (error.name or "").partition(".")[0]
    if package in ALONE:
        return f"{package} is not installed: pip install {package}"
    if package not in PACKAGES:
        return str(error)
    extra = command if package in ALSO_IN.get(command, ()) else PACKAGES[package]
    return f"{package} is not installed: pip install 'nearfar[{extra}]'"
