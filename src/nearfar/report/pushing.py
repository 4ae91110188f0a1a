"""Upload of a run with its card to the Hugging Face hub."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from ..extras import require
from ..quoting import quoted, shorten, without_folders
from .card import CARD, write_card
from .run import ReportError, read_object

UPLOADED = ("config.json", "best.safetensors", "scores.json", "training-items.safetensors", CARD)
"""Files of a run that are uploaded: no training states, no embeddings of test items, no paths of the machine."""
TOO_MANY = 429  # status of an answer: too many requests
MOST_PAUSE = 60.0  # seconds
CLIENTS = ("httpx", "httpx2", "requests")
"""Packages by which versions of huggingface_hub ask the hub, and which raise errors of their own without an answer."""
TOKEN = re.compile(r"hf_\w+")

Answer = TypeVar("Answer")


def push_run(run: str | Path, repository: str, *, private: bool = True, **about: str) -> str:
    """Upload a run and its card to a repository of the Hugging Face hub.

    Parameters
    ----------
    run : str or Path
        Folder of a run. Its weights, settings, scores and card are uploaded, and nothing else.
    repository : str
        "owner/name"; it is created if it does not exist.
    private : bool
        Whether a repository that is created is private.
    **about : str
        Title, license and data of the card, as for `model_card`.

    Returns
    -------
    str
        Address of the repository.

    Raises
    ------
    ValueError
        If `repository` does not have the form "owner/name".
    ReportError
        If the hub cannot be reached, refuses the upload, or still asks to wait after a pause; the message has no token.
    ImportError
        If huggingface_hub is not installed.
    """
    owner, _, model = repository.partition("/")
    if not owner or not model or "/" in model:
        raise ValueError(f"repository: expected owner/name, got {quoted(repository)}")
    require("huggingface_hub")
    from huggingface_hub import HfApi

    write_card(run, **{"name": repository, **about})
    api = HfApi()
    with TemporaryDirectory() as folder:
        for name in UPLOADED:
            if (Path(run) / name).is_file():
                copy(Path(run) / name, folder)
        for name in ("config.json", "scores.json"):
            if (Path(folder) / name).is_file():
                content = without_folders(read_object(Path(folder) / name))
                (Path(folder) / name).write_text(json.dumps(content, indent=2) + "\n", "utf-8")
        _asked(repository, lambda: api.create_repo(repository, private=private, exist_ok=True))
        upload: dict[str, Any] = {"repo_id": repository, "folder_path": folder, "allow_patterns": list(UPLOADED)}
        _asked(repository, lambda: api.upload_folder(**upload))
    return f"{api.endpoint}/{repository}"


def _asked(repository: str, call: Callable[[], Answer]) -> Answer:
    """Ask the hub, and once more after a pause if it has too many requests; its errors become one line."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        try:
            return call()
        except HfHubHTTPError as error:
            if error.response.status_code != TOO_MANY:
                raise
            time.sleep(_pause(error.response.headers.get("Retry-After", "")))
            return call()
    except HfHubHTTPError as error:
        if error.response.status_code == TOO_MANY:
            detail = "the hub has too many requests (429); push again in some minutes, nothing is lost"
        else:
            detail = f"the hub refuses the upload ({shorten(TOKEN.sub('...', str(error).strip().splitlines()[0]))})"
        raise ReportError(f"{repository}: {detail}") from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in CLIENTS:
            raise
        raise ReportError(f"{repository}: the hub cannot be reached ({type(error).__name__})") from None


def _pause(asked: str) -> float:
    """Return the seconds that the hub asks to wait; it may name a date instead.

    >>> _pause("2"), _pause("Fri, 31 Dec 1999 23:59:59 GMT"), _pause("86400")
    (2.0, 60.0, 60.0)
    """
    return min(float(asked), MOST_PAUSE) if asked.isdecimal() else MOST_PAUSE
