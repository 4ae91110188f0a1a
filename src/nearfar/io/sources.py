"""What a source is that a command is given: a model, a file of embeddings, an index or a folder of items."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path

from .formats import EMBEDDINGS, is_table
from .part_files import holds_parts
from .remote import is_remote, shown_address
from .uris import FOLDER, SERVER, is_address, is_folder, shown


class SourceKind(StrEnum):
    """What a source is, in words."""

    RUN = "the folder of a run"
    LEARNER = "a saved learner"
    ENCODER = "a pretrained encoder"
    EMBEDDINGS = "a set of embeddings or rows"
    INDEX = "an index"
    ITEMS = "a folder of items"


MODELS = (SourceKind.RUN, SourceKind.LEARNER, SourceKind.ENCODER)
ENCODERS = ("timm:", "transformers:", "ge2e:")
"""How the names of pretrained encoders begin."""
PIXELS = "pixels"
"""Name of the encoder that compares thumbnails, and needs no weights."""
ADVICE = {
    SourceKind.INDEX: "; open it with nearfar.index.open",
    SourceKind.EMBEDDINGS: "; `nearfar index` makes an index of it",
}


def kind_by_name(source: str | os.PathLike[str]) -> SourceKind | None:
    """Return the kind of a source by its name alone; None if that depends on what is there.

    >>> kind_by_name("photos.index").name, kind_by_name("timm:vit_small").name, kind_by_name("runs/photos")
    ('INDEX', 'ENCODER', None)
    >>> kind_by_name("https://host/rows.csv?key=1").name, kind_by_name("http://host:19530/photos").name
    ('EMBEDDINGS', 'INDEX')
    """
    text = os.fspath(source)
    if is_remote(text):
        place = text.partition("?")[0]
        if place.lower().endswith(EMBEDDINGS) or is_table(place):  # names of collections have no dots
            return SourceKind.EMBEDDINGS
    if is_address(text) or text.endswith((".index", FOLDER)):
        return SourceKind.INDEX
    if text.startswith(ENCODERS) or (text == PIXELS and not os.path.exists(text)):
        return SourceKind.ENCODER
    if text.lower().endswith(EMBEDDINGS) or is_table(text):
        return SourceKind.EMBEDDINGS
    return None


def has_embeddings(source: str | os.PathLike[str]) -> bool:
    """Return whether a source is a file of embeddings or rows by its name, or a folder of embeddings."""
    return kind_by_name(source) is SourceKind.EMBEDDINGS or holds_parts(source)


def kind_of(source: str | os.PathLike[str], *expected: SourceKind) -> SourceKind:
    """Return what a source is.

    Parameters
    ----------
    source : str or path
        A path, the address of an index, or the name of an encoder.
    expected : SourceKind
        What it may be. By default, anything.

    Returns
    -------
    SourceKind

    Raises
    ------
    FileNotFoundError
        If it does not exist.
    ValueError
        If it is none of what is expected.
    """
    path = Path(source)
    kind = _kind_at_address(source) or kind_by_name(source)
    names = [kind for kind in expected or MODELS if kind is not SourceKind.ENCODER]
    wanted = " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    elsewhere = kind is SourceKind.ENCODER or is_address(source) or is_remote(source)
    if kind in (None, *expected) and not path.exists() and not elsewhere:
        raise FileNotFoundError(f"{shown(source)}: does not exist; expected {wanted}")
    if kind is None:
        kind = _kind_of_content(path)
    if expected and kind not in expected:
        raise ValueError(f"{shown(source)}: is {kind}; expected {wanted}{ADVICE.get(kind, '')}")
    return kind


def _kind_at_address(source: str | os.PathLike[str]) -> SourceKind | None:
    """Return the kind of what is at an address; None for a source on this machine, and for one in a database."""
    if not is_remote(source):
        return None
    kind = kind_by_name(source)
    if kind is SourceKind.EMBEDDINGS or (kind is SourceKind.INDEX and SERVER.fullmatch(os.fspath(source))):
        return kind
    refused = "no model and no index is read from an address; copy it here, and name the copy"
    if is_address(source):
        refused += (
            "; for a collection of Milvus, expected http://HOST:PORT/COLLECTION of letters, digits and underscores"
        )
    raise ValueError(f"{shown_address(source)}: {refused}")


def _kind_of_content(path: Path) -> SourceKind:
    if is_folder(path):
        return SourceKind.INDEX
    if not path.is_dir():
        return SourceKind.LEARNER
    if holds_parts(path):
        return SourceKind.EMBEDDINGS
    if (path / "config.json").is_file():
        return SourceKind.RUN
    return SourceKind.LEARNER if any(path.glob("*.safetensors")) else SourceKind.ITEMS


def absolute(source: str) -> str:
    """Return the path of a model that is found from any folder; the name of an encoder without a folder stays.

    >>> absolute("timm:vit_small")
    'timm:vit_small'
    """
    if kind_by_name(source) is SourceKind.ENCODER and ":" not in source:
        return source
    start = next((start for start in ENCODERS if source.startswith(start)), "")
    path = source.removeprefix(start)
    return source if start and not os.path.exists(path) else start + os.path.realpath(path)


def name_of(source: str | os.PathLike[str]) -> str:
    """Return the name of a model in messages; that of a run's folder is not in a path such as "."."""
    return os.path.basename(os.path.abspath(source))
