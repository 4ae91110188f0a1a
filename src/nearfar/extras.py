"""Which extra brings a package that is not installed."""

from __future__ import annotations

PACKAGES = {
    "torch": "deep",
    "accelerate": "deep",
    "safetensors": "deep",
    "msgspec": "deep",
    "PIL": "deep",
    "jinja2": "report",
    "matplotlib": "report",
    "pyarrow": "tables",
    "faiss": "ann",
    "onnx": "export",
    "onnxscript": "export",
    "onnxruntime": "export",
    "pymilvus": "store",
    "lancedb": "lance",
    "starlette": "serve",
    "uvicorn": "serve",
    "h11": "serve",
    "clarabel": "solvers",
    "tensorboard": "tensorboard",
    "timm": "vision",
    "torchvision": "vision",
    "peft": "vision",
    "huggingface_hub": "vision",
}


ALSO_IN = {"report": ("msgspec", "PIL"), "serve": ("PIL",)}
"""Packages of `deep` that are in the extra of a command, too, which needs no PyTorch for files of embeddings."""


def hint(error: ImportError, command: str = "") -> str:
    """Return what to install, if an extra has the package that is missing, and otherwise the message of the error.

    Examples
    --------
    >>> hint(ModuleNotFoundError(name="msgspec"), command="report")
    "msgspec is not installed: pip install 'nearfar[report]'"
    """
    package = (error.name or "").partition(".")[0]
    if package not in PACKAGES:
        return str(error)
    extra = command if package in ALSO_IN.get(command, ()) else PACKAGES[package]
    return f"{package} is not installed: pip install 'nearfar[{extra}]'"
