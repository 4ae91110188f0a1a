"""What was found among the samples of a data set that FiftyOne has exported, as its fields and tags."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ..data.readers.fiftyone import METADATA, SAMPLES, samples_in
from ..io.atomic_files import atomic_write
from ..io.untrusted import parse_json, read_file
from ..numerics.types import AnyArray
from ..quoting import quoted

EMBEDDING = "embedding"
VECTOR = "fiftyone.core.fields.VectorField"


def add_to_samples(
    folder: str | Path,
    names: Sequence[str],
    *,
    embeddings: AnyArray | None = None,
    tags: Mapping[str, Collection[str]] | None = None,
) -> int:
    """Add embeddings and tags to the samples of a data set that FiftyOne has exported.

    ``fiftyone.Dataset.from_dir(folder, dataset_type=fiftyone.types.FiftyOneDataset)`` then has the field `embedding`
    and the tags. Everything else in the files remains as it is.

    Parameters
    ----------
    folder : str or Path
        The exported folder, which `nearfar.data.open_items` opens.
    names : sequence of str
        Name of each item, which is the path of a sample.
    embeddings : array of shape (n, d), optional
        Embedding of each item.
    tags : mapping of str to collection of str
        Names of the samples that get a tag, such as ``{"suspect": ["data/1.jpg"], "duplicate": [...]}``. Samples that
        have the tag from before, and are not among them, lose it.

    Returns
    -------
    int
        Number of samples that were changed.

    Raises
    ------
    DataError
        If the folder is damaged.
    ValueError
        If a name is no sample, or there is not one embedding for each name.
    """
    folder = Path(folder)
    samples = samples_in(folder)
    place = {sample["filepath"]: sample for sample in samples}
    tags = {} if tags is None else tags
    for argument, given in {"names": names, **{f"tags: {tag}": chosen for tag, chosen in tags.items()}}.items():
        unknown = next((name for name in given if name not in place), None)
        if unknown is not None:
            raise ValueError(f"{argument}: {folder} has no sample {quoted(unknown)}")
    before = [json.dumps(sample) for sample in samples]
    if embeddings is not None:
        if len(embeddings) != len(names):
            raise ValueError(f"embeddings: expected one per name, {len(names)}, got {len(embeddings)}")
        for name, row in zip(names, embeddings, strict=True):
            place[name][EMBEDDING] = _vector(row)
    for tag, chosen in tags.items():
        tagged = set(chosen)
        for sample in samples:
            others = [other for other in sample.get("tags") or [] if other != tag]
            sample["tags"] = [*others, tag] if sample["filepath"] in tagged else others
    if embeddings is not None:
        _declare(folder / METADATA)
    with atomic_write(folder / SAMPLES, "w", encoding="utf-8") as file:
        json.dump({"samples": samples}, file)
    return sum(json.dumps(sample) != text for sample, text in zip(samples, before, strict=True))


def _vector(row: AnyArray) -> dict[str, Any]:
    """Return a vector as FiftyOne stores it: an .npy, compressed, in the JSON of MongoDB."""
    content = BytesIO()
    np.save(content, np.asarray(row, dtype=np.float32), allow_pickle=False)
    text = base64.b64encode(zlib.compress(content.getvalue())).decode("ascii")
    return {"$binary": {"base64": text, "subType": "00"}}


def _declare(file: Path) -> None:
    """Add the field of the embeddings to the schema, a list of fields, or their types by name before FiftyOne 0.8."""
    content = parse_json(read_file(file).decode("utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{file}: expected a JSON object, got {content!r:.60}")
    fields = content.setdefault("sample_fields", [])
    if isinstance(fields, dict):
        fields[EMBEDDING] = VECTOR
    elif not any(isinstance(field, dict) and field.get("name") == EMBEDDING for field in fields):
        declared = {"name": EMBEDDING, "ftype": VECTOR, "subfield": None, "embedded_doc_type": None}
        fields.append({**declared, "db_field": EMBEDDING, "fields": [], "description": None, "info": None})
    with atomic_write(file, "w", encoding="utf-8") as handle:
        json.dump(content, handle)
