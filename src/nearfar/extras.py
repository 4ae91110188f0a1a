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


def hint(error: ImportError) -> str:
    """Say what to install, where an extra has it; else what the error says."""
    package = (error.name or "").partition(".")[0]
    if package not in PACKAGES:
        return str(error)
    return f"{package} is not installed: pip install 'nearfar[{PACKAGES[package]}]'"
