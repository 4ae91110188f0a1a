"""What is installed, what is missing for which command, and where files are kept."""

from __future__ import annotations

import os
import platform
import warnings
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from .. import __version__
from ..extras import PACKAGES
from ..io.cache import cache_folder
from ..quoting import shorten

CORE = ("numpy", "scipy", "scikit-learn", "cyclopts", "rich")
DISTRIBUTIONS = {"PIL": "pillow", "faiss": "faiss-cpu"}
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
WEIGHTS = (".safetensors", ".bin")  # how files of weights end
NEEDED_BY = {
    "deep": "training and using networks",
    "vision": "--trunk timm:NAME and transformers:NAME, LoRA",
    "report": "report",
    "tables": "Parquet tables",
    "ann": "approximate search of large indexes",
    "export": "export",
    "store": "store",
    "lance": "collections in LanceDB",
    "postgres": "collections in PostgreSQL",
    "serve": "serve",
    "sounds": "sounds in other formats than wav",
    "remote": "data at https://, s3:// and hf:// addresses",
    "solvers": "reference solutions by cone programming",
    "tensorboard": "--track tensorboard",
}


def diagnosis() -> tuple[str, list[str]]:
    """Return lines on versions, devices, extras and folders, and the required packages that are not installed."""
    lines = [f"nearfar {__version__}, Python {platform.python_version()}, {platform.platform()}"]
    missing = [name for name in CORE if installed(name) is None]
    lines += ["", *(f"{name:<18}{installed(name) or 'missing'}" for name in CORE)]
    blas = linear_algebra()  # before the packages of the extras bring libraries of their own
    lines += ["", *extras(), "", *devices(), "", *blas, "", *folders()]
    return "\n".join(lines), missing


def installed(distribution: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def extras() -> list[str]:
    """Return a line for each extra: the installed versions, or what to install for which purpose."""
    lines = []
    for extra in dict.fromkeys(PACKAGES.values()):
        names = [name for name, its_extra in PACKAGES.items() if its_extra == extra]
        found = {name: installed(DISTRIBUTIONS.get(name, name)) for name in names}
        absent = [name for name in names if find_spec(name) is None]
        present = ", ".join(f"{name} {number}" for name, number in found.items() if number is not None)
        lines.append(f"[{extra}]".ljust(18) + (present or "-"))
        if absent:
            use = NEEDED_BY[extra]
            lines.append(f"{'':<18}missing: {', '.join(absent)} ({use}): {installation(extra)}")
        for name in names:
            error = "" if name in absent else import_error(name)
            if error:
                lines.append(f"{'':<18}cannot be imported: {name} ({NEEDED_BY[extra]}): {error}")
    return lines


def import_error(name: str) -> str:
    """Return the error with which a package that is there cannot be imported; "" if it can.

    A package may be there and not work: torchvision and timm need the build of torch that they were made for.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import_module(name)
        except Exception as error:
            return shorten(" ".join(f"{type(error).__name__}: {error}".split()), 200)
    return ""


def installation(extra: str) -> str:
    """Return the command that installs an extra, without replacing a CPU build of torch."""
    build = (installed("torch") or "").partition("+")[2]
    if extra == "vision" and build == "cpu":
        # torchvision of the package index needs the torch of that index, which is built for CUDA
        return f"pip install torchvision --index-url {CPU_WHEELS} && pip install 'nearfar[vision]'"
    return f"pip install 'nearfar[{extra}]'"


def devices() -> list[str]:
    """Return lines on processors, memory and accelerators."""
    lines = [f"{'processors':<18}{os.cpu_count()}"]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        lines.append(f"{'memory':<18}{size / 2**30:.0f} GiB")
    if find_spec("torch") is None:
        return [*lines, f"{'accelerators':<18}unknown without torch"]
    import torch

    found = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("Apple MPS")
    return [*lines, f"{'accelerators':<18}{', '.join(found) or 'none'}"]


def linear_algebra() -> list[str]:
    """Return lines on the BLAS libraries and their threads, which determine the speed of the classical learners."""
    if find_spec("numpy") is None or find_spec("threadpoolctl") is None:
        return []  # the list of required packages names numpy and scikit-learn, which brings threadpoolctl
    import numpy as np
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))
    lines = []
    for pool in threadpool_info():
        kernel = f", kernels of {pool['architecture']}" if pool.get("architecture") else ""
        name = f"{pool['internal_api']} {pool.get('version') or ''}".strip()
        lines.append(f"{pool['user_api']:<18}{name}, {pool['num_threads']} threads{kernel}")
    return lines


def folders() -> list[str]:
    """Return lines on the folders of caches and downloads."""
    hub = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    models = Path(os.environ.get("HF_HUB_CACHE") or hub / "hub")
    lines = [f"{'cache':<18}{_from_home(cache_folder())}", f"{'models of hubs':<18}{_from_home(hub)}"]
    lines += [f"{'weights there':<18}{', '.join(cached_weights(models)) or 'none'}"]
    return [*lines, *automatic_trunks()]


def cached_weights(cache: Path) -> list[str]:
    """Return the models of a cache of the hub whose weights are complete.

    >>> cached_weights(Path("no such folder"))
    []
    """
    found = []
    for folder in sorted(cache.glob("models--*")):
        files = [file for ending in WEIGHTS for file in folder.glob(f"snapshots/*/*{ending}")]
        if any(file.exists() for file in files):  # a link to a file that is not there is a download that was stopped
            found.append(folder.name.removeprefix("models--").replace("--", "/"))
    return found


def automatic_trunks() -> list[str]:
    """Return lines on the pretrained trunks that `--trunk auto` chooses; none without torch."""
    if find_spec("torch") is None:
        return []
    from ..train.defaults import cached_model
    from ..train.text_trunks import cached_text_trunk

    photos = cached_model()
    texts = cached_text_trunk()
    chosen = [
        f"photos: timm:{photos}" if photos else "photos: conv4, from random weights",
        f"texts: {texts}" if texts else "texts: none",
    ]
    return [f"{'--trunk auto':<18}{'; '.join(chosen)}"]


def _from_home(path: Path) -> str:
    """Write ~ for the home folder, so that a pasted output does not reveal the name of the user."""
    if path.is_relative_to(Path.home()):
        return str("~" / path.relative_to(Path.home()))
    return str(path)
