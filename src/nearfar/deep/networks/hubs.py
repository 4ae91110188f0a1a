"""What models of timm and transformers share: their start, and the errors for missing libraries and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ...quoting import shorten
from .preprocessing import Preprocessing
from .weights import TrunkError

RUN_CODE = ("trust_remote_code", "auto_map", "code_revision", "checkpoint_path", "use_safetensors", "use_kernels")
"""Options with which models of other packages would run or unpickle the content of a file."""
OTHER_WEIGHTS = ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")
"""Options of timm that lead to other files of weights."""
HUB_REFUSALS = ("GatedRepoError", "RepositoryNotFoundError")
"""Errors of a hub that hides a repository: it is private, gated or does not exist."""

MAX_REASON = 300
"""Maximum number of characters of the reason why a hub cannot be reached; longer reasons list every address."""


@dataclass(frozen=True)
class Start:
    """Settings that a model of another library starts with.

    Attributes
    ----------
    pretrained : bool
        Whether to use the weights of the hub.
    preprocessing : Preprocessing or None
        How images are prepared for the model; None for runs of versions that had no such record.
    architecture : mapping or None
        Settings of a model of transformers, as stored with a run.
    """

    pretrained: bool = False
    preprocessing: Preprocessing | None = None
    architecture: Mapping[str, Any] | None = None


def installed(package: str) -> Any:
    """Import a library of models.

    Raises
    ------
    TrunkError
        If the library is missing, or torchvision, which it needs, was built for another version of torch.
    """
    try:
        return import_module(package)
    except ImportError as error:
        requirement = "'nearfar[vision]'" if package == "timm" else package
        raise TrunkError(f"trunk {package}:NAME: {error}; pip install {requirement}") from error
    except RuntimeError as error:
        raise of_torchvision(error, package) from error


def of_torchvision(error: BaseException, package: str) -> TrunkError:
    """Return the error for a torchvision that cannot be loaded with the installed torch."""
    from importlib.metadata import PackageNotFoundError, version

    versions = []
    for name in ("torchvision", "torch"):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    reason = str(error).partition("\n")[0]
    return TrunkError(
        f"trunk {package}:NAME: {package} cannot be imported ({reason}): {' and '.join(versions)} do not fit each "
        "other; install the torchvision that was built for this torch, as https://pytorch.org/get-started/locally shows"
    )


def check_options(package: str, options: Mapping[str, Any]) -> None:
    """Refuse options with which a model would run code, or load weights from another source."""
    for name, value in options.items():
        fetched = name.endswith("_implementation") and "/" in str(value)  # code from a hub
        if name in RUN_CODE or name in OTHER_WEIGHTS or fetched:
            raise TrunkError(
                f"trunk {package}: {name} is refused, because files must not run code; give weights as pretrained"
            )
        if name == "num_classes":
            raise TrunkError(
                f"trunk {package}: num_classes is not an option here, because a trunk has no classifier; leave it out"
            )
        if name == "pretrained":
            raise TrunkError(f"trunk {package}: pretrained is not an option of the model; use pretrained=")


def unreachable(trunk: str, repository: str, error: BaseException) -> TrunkError:
    """Return the error for weights that are not in the cache of a hub and cannot be downloaded."""
    if any(type(cause).__name__ == "OfflineModeIsEnabled" for cause in _causes(error)):
        reason = "HF_HUB_OFFLINE is set" if hub_is_switched_off() else "the hub does not answer"
    else:
        reason = " ".join(str(error).split("\n")[0].split()) or type(error).__name__
    page = repository
    if repository and "://" not in repository:
        page = f"https://huggingface.co/{repository}"
    kinds = [type(cause).__name__ for cause in _causes(error)]
    text = " ".join(str(cause) for cause in _causes(error)).lower()
    if any(kind in HUB_REFUSALS for kind in kinds) or "gated repo" in text or "401 client error" in text:
        return TrunkError(
            f"trunk {trunk}: the hub does not show {page}: the name is wrong, or it needs a token; check the name, "
            f"accept the terms on that page, and run `hf auth login` or set HF_TOKEN"
        )
    return TrunkError(
        f"trunk {trunk}: its weights are not in the local cache and cannot be downloaded "
        f"({shorten(reason, MAX_REASON)}); download model.safetensors from {page} on a machine with a network, and "
        "give that file as pretrained"
    )


def hub_is_switched_off() -> bool:
    """Return whether the environment forbids the libraries of the hub to use the network."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _causes(error: BaseException) -> list[BaseException]:
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    return causes
