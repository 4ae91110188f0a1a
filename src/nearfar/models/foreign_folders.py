"""Folders of models for other libraries, written completely or not at all."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..quoting import quoted

if TYPE_CHECKING:
    from torch import Tensor

MODULE_FILE = re.compile(r"\d+_\w+/(?:config\.json|model\.safetensors)")


def check_folder(out: Path, mark: str, library: str, *, overwrite: bool) -> None:
    """Refuse a folder that is something else than one of a library, which has the file `mark`, or must be kept."""
    if out.is_symlink():
        raise ValueError(f"out: {out} is a link; name the folder itself")
    if not out.exists():
        return
    if out.is_dir() and not any(out.iterdir()):
        return
    if not (out / mark).is_file():
        raise ValueError(f"out: {out} exists and is no folder of {library}; name another one")
    if not overwrite:
        raise ValueError(f"out: {out} exists; pass overwrite=True to replace it")


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Give an empty folder, which replaces `target` when it is complete, unless files of others would be lost."""
    target.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    old = place.with_name(f"{place.name}.old")
    partial = place / "model"
    partial.mkdir()  # with the usual permissions, while `place` is for its owner alone
    try:
        yield partial
        if target.exists():
            others = sorted(set(names_in(target)) - set(names_in(partial)))
            if others:
                raise ValueError(
                    f"out: {target} has other files ({quoted(others[0])}), which would be lost; name another folder"
                )
            target.rename(old)  # a kill loses neither of them
        partial.rename(target)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def names_in(folder: Path) -> list[str]:
    """Return the paths of all files of a folder, but for those of modules in numbered folders such as 2_Dense."""
    found = (file.relative_to(folder) for file in folder.rglob("*") if not file.is_dir() or file.is_symlink())
    return [str(file) for file in found if not MODULE_FILE.fullmatch(file.as_posix())]


def write_json(file: Path, content: Any) -> None:
    """Write JSON, with the folder of the file."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_weights(file: Path, weights: Mapping[str, Tensor]) -> None:
    """Write weights in float32 as a safetensors file."""
    from safetensors.torch import save_file

    save_file({name: one.detach().float().contiguous().clone() for name, one in weights.items()}, file)
