"""Folders that FiftyOne exports as `FiftyOneDataset`: samples.json, metadata.json and the images.

    {"samples": [{"filepath": "data/1.jpg", "tags": ["train"], "ground_truth": {"label": "cat"}, ...}, ...]}

The fields are read as plain JSON; FiftyOne itself is not needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...io.untrusted import parse_json, read_file
from ...quoting import quoted
from ..dataset import UNKNOWN_CLASS, DataError, Dataset, Source, some
from .files import FolderFiles
from .folder import ROLES
from .media import source_of_files

SAMPLES = "samples.json"
METADATA = "metadata.json"
GROUND_TRUTH = "ground_truth"
MOST_SHOWN = 5  # fields in a message


def is_of_fiftyone(folder: Path) -> bool:
    """Return whether a folder is an exported data set of FiftyOne."""
    return (folder / SAMPLES).is_file() and (folder / METADATA).is_file()


def read_fiftyone(
    path: str | Path,
    *,
    label: str | None = None,
    image_size: int | None = None,
    skip_bad: bool = False,
    unlabeled: str | None = None,
) -> Source:
    """Read the images of a data set that FiftyOne has exported.

    Parameters
    ----------
    path : str or Path
        The folder.
    label : str, optional
        Field of the classes, a text or a `Classification`. By default, `ground_truth`.
    image_size : int, optional
        Side in pixels to which every image is made square.
    skip_bad : bool
        Leave out images that cannot be decoded, instead of raising an error.
    unlabeled : str, optional
        Class of samples without a label. By default, they are an error.

    Returns
    -------
    Source
        The images. If every sample has one of the tags train, validation and test, these are the split.

    Raises
    ------
    DataError
        If a file is damaged, a sample has no path or no label, or the samples are no images.
    """
    folder = Path(path)
    samples = samples_in(folder)
    names = [sample["filepath"] for sample in samples]
    labels = [_label_of(folder, sample, label, unlabeled) for sample in samples]
    tags = [_role_of(sample) for sample in samples]
    has_split = all(tags)
    roles = tags if has_split else None
    split = f"split by the tags in {SAMPLES}" if has_split else ""
    files = FolderFiles(str(folder))
    missing = [] if skip_bad else [name for name in names if name not in files]
    if missing:
        raise DataError(f"{folder}: {len(missing)} of {len(names)} images do not exist: {some(missing, 3)}")
    reading: dict[str, Any] = {"image_size": image_size, "skip_bad": skip_bad, "roles": roles, "split": split}
    return source_of_files("image", folder.resolve().name, files, names, labels, groups=None, **reading)


def items_in_fiftyone(path: str | Path, **how: Any) -> Dataset:
    """Open the images of an exported data set, also without labels; arguments as for `open_items`."""
    return read_fiftyone(
        path, label=how.get("label"), skip_bad=how.get("skip_bad", False), unlabeled=UNKNOWN_CLASS
    ).items


def samples_in(folder: Path) -> list[dict[str, Any]]:
    """Return the samples of an exported data set.

    Raises
    ------
    DataError
        If the file is damaged, or a sample has no path.
    """
    try:
        content = parse_json(read_file(folder / SAMPLES).decode("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / SAMPLES}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    samples = content.get("samples") if isinstance(content, dict) else None
    if not isinstance(samples, list) or not samples or not all(isinstance(sample, dict) for sample in samples):
        raise DataError(f'{folder / SAMPLES}: expected {{"samples": [...]}} with one object per sample')
    wrong = next((at for at, one in enumerate(samples, start=1) if not isinstance(one.get("filepath"), str)), None)
    if wrong is not None:
        raise DataError(f"{folder / SAMPLES}: sample {wrong} has no filepath")
    return samples


def _label_of(folder: Path, sample: dict[str, Any], label: str | None, unlabeled: str | None) -> str:
    """Return the class of a sample."""
    value = sample.get(label or GROUND_TRUTH)
    if isinstance(value, dict):
        value = value.get("label")
    if isinstance(value, str | int) and value != "":
        return str(value)
    if unlabeled is not None and (label is None or label in sample):
        return unlabeled
    fields = some([name for name in sample if not name.startswith("_")], MOST_SHOWN)
    raise DataError(
        f"{folder / SAMPLES}: the field {quoted(label or GROUND_TRUTH)} of {quoted(sample['filepath'])} has no label; "
        f"expected a text or a Classification; give the field with label=NAME; it has {fields}"
    )


def _role_of(sample: dict[str, Any]) -> str:
    """Return the role that the tags of a sample state; "" if they state none."""
    tags = sample.get("tags")
    found = [ROLES[tag] for tag in tags if isinstance(tag, str) and tag in ROLES] if isinstance(tags, list) else []
    return found[0] if len(set(found)) == 1 else ""
