"""Files of the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from ..io.hub_access import hub_cache_if_offline
from ..quoting import quoted, shorten

HUB = "hf://"
ADDRESS = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/pr/\d+|(?:[\w.-]|%2[Ff])+))?(?P<inner>(?:/[\w.-]+)*)"
)
"""A slash in a revision is written as %2F, because the path in the repository begins at the first other slash."""
FILES = ("*.safetensors", "*.json", "*.csv", "*.jsonl", "*.txt")  # of a run or a learner; no code, and no pickles


def fetched(name: str) -> Path:
    """Return where the files of ``hf://owner/name`` are on this machine, fetching those that are not."""
    address = name.removeprefix(HUB)
    parts = ADDRESS.fullmatch(address)
    if parts is None or ".." in address:
        expected = "hf://owner/name, hf://owner/name@revision (with %2F for a slash in it) or a path in it"
        raise ValueError(f"expected {expected}, got {quoted(name)}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    revision = None if parts["revision"] is None else unquote(parts["revision"])
    inner = parts["inner"].strip("/")
    try:
        with hub_cache_if_offline():
            found = snapshot_download(parts["repository"], revision=revision, allow_patterns=list(FILES))
        folder = Path(found)
    except LocalEntryNotFoundError as error:
        raise FileNotFoundError(f"{name}: not in the local cache, and the hub cannot be asked") from error
    except HfHubHTTPError as error:
        raise FileNotFoundError(f"{name}: the hub has none that can be read ({shorten(str(error))})") from error
    path = folder / inner
    if not path.exists():
        raise FileNotFoundError(f"{name}: there is no {quoted(inner)} in it")
    return path
