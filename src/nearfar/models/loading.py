"""Models by their path, by their name on the Hugging Face hub, or by the name of a pretrained encoder.

Nothing that they bring is run.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..catalog import BY_NAME
from ..io import tensor_file
from ..io.sources import MODELS, SourceKind, kind_of
from .hub import HUB, fetched
from .model import Model

if TYPE_CHECKING:
    from ..deep.networks.embedder import Embedder
    from ..train.run import Run

INDEX_FORMAT = "nearfar index"  # how the format of an index file begins


def load(source: str | os.PathLike[str], *, trust: str | Collection[str] = ()) -> Any:
    """Load a run, a saved learner or a pretrained encoder.

    Parameters
    ----------
    source : str or path
        Folder of a run, a learner saved as .safetensors; a pretrained encoder, ``"timm:NAME"``, ``"transformers:NAME"``
        or ``"transformers:FOLDER"``; or ``"hf://owner/name"``, optionally with ``@revision`` and
        the path of a folder or file in the repository: ``"hf://owner/name@v1/lmnn.safetensors"``. Write a slash in a
        revision as %2F: ``"hf://owner/name@team%2Fnew"``; ``@refs/pr/1`` is understood as well. Files of the hub are
        read from its local cache if possible, and need `huggingface_hub`; with ``HF_HUB_OFFLINE=1``, only the cache is
        used.
    trust : str or collection of str
        Modules of your own that the settings of the run may name; their code is run.

    Returns
    -------
    model : Model
        An estimator with ``embed`` and ``transform``: a `nearfar.train.DeepMetric` for a run or an encoder, or the
        learner that was saved.

    Raises
    ------
    FileNotFoundError
        If the source does not exist.
    ValueError
        If it is none of these.
    TrustError
        If the settings of a run name a module that is not trusted.
    ImportError
        If `huggingface_hub` is needed and not installed.

    Notes
    -----
    Weights are read from safetensors files, which hold only numbers and text, and classes are looked up in the catalog
    by name. From the hub, only such files and tables are downloaded.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from nearfar import RCA
    >>> rng = np.random.default_rng(0)
    >>> file = Path(tempfile.mkdtemp()) / "rca.safetensors"
    >>> RCA().fit(rng.normal(size=(40, 3)), np.arange(40) % 4).save(file)
    >>> type(load(file)).__name__
    'RCA'
    """
    path = fetched(str(source)) if str(source).startswith(HUB) else Path(source)
    kind = kind_of(path, *MODELS)
    if kind is SourceKind.ENCODER:
        encoder: Model = import_module("nearfar.train.encoder").load_encoder(os.fspath(source))
        return encoder
    if kind is SourceKind.RUN:
        estimator = import_module("nearfar.train.estimator")
        return estimator.DeepMetric.load(path, trust=trust)
    return load_learner(_only_learner(path, source) if path.is_dir() else path)


def load_embedder(run: Run | str | Path, which: str = "best", *, trust: str | Collection[str] = ()) -> Embedder:
    """Load the network of a run as a module of torch, in evaluation mode, on the device of its settings.

    Parameters
    ----------
    run : Run, str or path
        The run or its folder.
    which : {"best", "last", "trained"}
        Checkpoint to use: "best" may hold something cheaper that was kept instead of the network that was trained.
    trust : str or collection of str
        Modules of your own that the settings of the run may name; their code is run.

    Returns
    -------
    Embedder
        The network.

    Raises
    ------
    TrainError
        If there is no such run or checkpoint, or it is damaged.
    TrustError
        If its trunk is of a module that is not trusted.
    """
    from ..train.loading import build_embedder, folder_and_config  # for start-up time: they import torch

    folder, config = folder_and_config(run, trust)
    return build_embedder(folder, config, which)


def load_learner(path: Path) -> Any:
    """Read any saved learner, classical or a network; no code of the file is executed.

    Parameters
    ----------
    path : Path
        File or folder.

    Returns
    -------
    learner
        The fitted learner.

    Raises
    ------
    ValueError
        If the file holds no learner.
    """
    text = tensor_file.read_metadata(path)
    if text.get("format", "").startswith(INDEX_FORMAT):
        raise ValueError(f"{path} holds an index, not a learner; open it with nearfar.index.open")
    method = BY_NAME.get(text.get("class", ""))
    kind: Any = getattr(import_module(method.module), method.name) if method is not None else None
    if not hasattr(kind, "load"):
        raise ValueError(f"{path} holds no learner of nearfar")
    return kind.load(path)


def _only_learner(folder: Path, source: str | os.PathLike[str]) -> Path:
    """Return the one .safetensors file of a folder that is no run."""
    files = sorted(folder.glob("*.safetensors"))
    if len(files) != 1:
        found = ", ".join(file.name for file in files[:5]) or "none"
        raise ValueError(f"{source}: no run, and expected one learner saved as .safetensors, got {found}")
    return files[0]
