"""An exported network that computes in 8 bits, with ranges from items of yours, and what that costs."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..data import Dataset, open_items
from ..evaluation.graded import label_set_scores
from ..evaluation.protocol import recall_at_k
from ..extras import require
from ..io.atomic_files import atomic_write
from ..io.scores_file import CALIBRATED
from ..models.export import export_run, texts_beside, tokenizer_beside
from ..numerics.types import AnyArray
from ..quoting import without_folders

if TYPE_CHECKING:
    from torch import Tensor

    from ..train import DeepMetric

MOST_CALIBRATED = 256  # items whose activations set the ranges; more hardly change them
PIXEL = 255


class CostOf8Bits(NamedTuple):
    """What 8 bits cost.

    For items with sets of labels, Recall@1 counts items with a label in common.

    Attributes
    ----------
    cosine : float
        Mean cosine between the embeddings of the items by the file and by the network.
    recall : float or None
        Recall@1 of the items by the network; None if no two of them are of one class.
    recall_int8 : float or None
        The same by the file.
    """

    cosine: float
    recall: float | None
    recall_int8: float | None

    def __str__(self) -> str:
        text = f"its embeddings have a mean cosine of {self.cosine:.4f} to those of the network"
        if self.recall is None or self.recall_int8 is None:
            return f"{text}; without two items of a class, there is no Recall@1"
        change = self.recall_int8 - self.recall
        return f"{text}, and Recall@1 is {self.recall_int8:.4f} instead of {self.recall:.4f} ({change:+.4f})"


def export_calibrated(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    items: str | os.PathLike[str],
    *,
    trust: str | Collection[str] = (),
) -> CostOf8Bits:
    """Write the network of a run as an ONNX file that computes in 8 bits, and return what that costs.

    The range of each activation is that of up to 256 of the items, which are drawn evenly; weights have a scale for
    each output channel. The costs are measured on all items, and are in the metadata of the file and on the card of the
    run.

    Parameters
    ----------
    run, out, trust
        As for `export_run`.
    items : str or path
        Items such as the network will embed; with classes, Recall@1 is measured, too.

    Raises
    ------
    ValueError
        If the network is of images and texts, there are no items, or they are of another kind.
    """
    require("torch", "onnx", "onnxscript", "onnxruntime")
    from ..train import DeepMetric

    model = DeepMetric.load(run, trust=trust)
    if model.network_.text is not None:
        raise ValueError("calibrate: works with a network of one kind of items, not of images and texts; leave it out")
    model.network_.cpu()
    dataset = open_items(items)
    target = Path(out)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.resolve().parent) as folder:
        whole = Path(folder) / "whole.onnx"
        small = Path(folder) / "small.onnx"
        export_run(run, whole, trust=trust)
        with _recording(model) as batches:
            expected = model.embed(dataset)
        if not batches:
            raise ValueError(f"calibrate: {items}: no items")
        _quantize(whole, small, batches)
        with _computing(model, small):
            found = model.embed(dataset)
        costs = _costs(expected, found, dataset)
        _describe(small, costs, len(dataset))
        for source, place in ((small, target), (tokenizer_beside(whole), tokenizer_beside(target))):
            if source.exists():
                with atomic_write(place) as file:
                    file.write(source.read_bytes())
            else:
                place.unlink(missing_ok=True)
        for stale in (texts_beside(target), tokenizer_beside(texts_beside(target))):
            stale.unlink(missing_ok=True)
    _note(Path(run), costs, dataset)
    return costs


def _note(run: Path, costs: CostOf8Bits, items: Dataset) -> None:
    """Leave the costs in the folder of the run, for its card; a folder that cannot be written does without."""
    note = {"items": len(items), "data": without_folders(items.name), **_rounded(costs)}
    with suppress(OSError), atomic_write(run / CALIBRATED) as file:
        file.write(json.dumps(note, indent=2).encode())


def _inputs_of(items: Tensor, names: Collection[str]) -> dict[str, AnyArray]:
    """Return what a file takes for the items of a batch as the network takes them."""
    values = items.detach().cpu().numpy()
    if "images" in names:
        return {"images": np.rint(values.transpose(0, 2, 3, 1) * PIXEL).astype(np.uint8)}
    if "rows" in names:
        return {"rows": values.astype(np.float32)}
    mask = values >= 0
    return {"input_ids": np.where(mask, values, 0).astype(np.int64), "attention_mask": mask.astype(np.int64)}


@contextmanager
def _recording(model: DeepMetric) -> Iterator[list[Tensor]]:
    """Collect the batches that a network is given."""
    batches: list[Tensor] = []
    hook = model.network_.register_forward_pre_hook(lambda _, given: batches.append(given[0]))
    try:
        yield batches
    finally:
        hook.remove()


@contextmanager
def _computing(model: DeepMetric, file: Path) -> Iterator[None]:
    """Let a file compute the embeddings of a network."""
    import onnxruntime
    import torch

    from ..deep.networks.embedder import Features

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]

    def forward(items: Tensor) -> Features:
        (found,) = session.run(["embeddings"], _inputs_of(items, names))
        rows = torch.from_numpy(found)
        return Features(rows, rows)

    network: Any = model.network_
    network.forward = forward
    try:
        yield
    finally:
        del network.forward


def _quantize(whole: Path, small: Path, batches: list[Tensor]) -> None:
    """Write a file that computes in 8 bits, with the ranges of some of the items."""
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.calibrate import CalibrationDataReader

    names = [given.name for given in onnx.load(whole).graph.input]
    number = sum(len(batch) for batch in batches)
    step = max(number // MOST_CALIBRATED, 1)
    chosen = iter([_inputs_of(batch[::step], names) for batch in batches])

    class Reader(CalibrationDataReader):
        def get_next(self) -> dict[str, AnyArray] | None:
            return next(chosen, None)

    level = logging.root.level
    logging.root.setLevel(logging.ERROR)  # it advises to preprocess the model, which the exporter has done
    try:
        quantize_static(
            whole,
            small,
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
    finally:
        logging.root.setLevel(level)


def _costs(expected: AnyArray, found: AnyArray, dataset: Dataset) -> CostOf8Bits:
    lengths = np.linalg.norm(expected, axis=1) * np.linalg.norm(found, axis=1)
    cosine = float(np.mean((expected * found).sum(1) / np.maximum(lengths, np.finfo(np.float32).tiny)))
    of_known = np.asarray(dataset.labels) >= 0
    known = np.asarray(dataset.labels)[of_known]
    if dataset.has_label_sets and dataset.class_labels is not None:
        hot = dataset.class_labels.hot(dataset.classes)[known]  # (n, labels)
        of_each = [label_set_scores(rows[of_known], hot) for rows in (expected, found)]
        if not of_each[0].queries:
            return CostOf8Bits(cosine, None, None)
        return CostOf8Bits(cosine, of_each[0].recall_at_1, of_each[1].recall_at_1)
    if not len(known) or np.bincount(known).max() < 2:
        return CostOf8Bits(cosine, None, None)
    recall, recall_int8 = (recall_at_k(rows[of_known], known, distance="cosine") for rows in (expected, found))
    return CostOf8Bits(cosine, recall, recall_int8)


def _rounded(costs: CostOf8Bits) -> dict[str, Any]:
    """Return the costs for a file."""
    found: dict[str, Any] = {"cosine": round(costs.cosine, 4)}
    if costs.recall is not None and costs.recall_int8 is not None:
        found["recall_at_1"] = {"float32": round(costs.recall, 4), "int8": round(costs.recall_int8, 4)}
    return found


def _describe(file: Path, costs: CostOf8Bits, items: int) -> None:
    """Add the costs to the metadata of a file."""
    import onnx
    from onnx import helper

    model = onnx.load(file)
    texts = {one.key: one.value for one in model.metadata_props}
    about = json.loads(texts["about"]) | {"weights": "int8", "activations": "int8", "calibrated_on": items}
    about |= _rounded(costs)
    helper.set_model_props(model, texts | {"about": json.dumps(about)})
    onnx.save(model, file)
