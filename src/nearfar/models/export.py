"""Export networks and linear learners as ONNX files, for servers and devices without nearfar.

Every file is run by ONNX Runtime before it is kept, and must give what the library gives. Needs the extra `export`.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import __version__
from ..extras import require
from ..fit_warnings import nameless
from ..io.atomic_files import atomic_write, check_folder_of
from ..numerics.mel import SOUND_RATE
from ..numerics.types import AnyArray
from ..quoting import without_folders
from .loading import load_embedder

if TYPE_CHECKING:
    from ..deep.networks.embedder import Embedder
    from ..deep.networks.tokens import Tokens
    from ..estimators.mahalanobis import Mahalanobis
    from ..train import TrainConfig

__all__ = [
    "export_learner",
    "export_program",
    "export_run",
    "files_of_export",
    "texts_beside",
    "tokenizer_beside",
]

ITEMS = 3  # of the trial; another number than the network is traced with
TRIED_TOKENS = 7  # of a text of the trial, if the network takes as many
PIXELS = (
    "upright by their EXIF, 16-bit grays by their upper byte, transparent pixels on white, RGB or gray by `channels`; "
    "{sides} to `resize`, {interpolation} and antialiased; then the central square of `size`"
)
SMALLEST_QUANTIZED = 256  # numbers of a weight that is stored in 8 bits: smaller ones save nothing
LEAST_COSINE = 0.9  # of embeddings by weights of 8 bits and those of the network
OFF_OF_SOUNDS = 1e-3  # the same for sounds: a Fourier transform, then the logarithm of small powers
OFF = 1e-4  # what the two may differ by, relative to the largest value


def export_run(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    which: str = "best",
    int8: bool = False,
    trust: str | Collection[str] = (),
) -> float:
    """Write the network of a run as an ONNX file, from pixels, rows or tokens to embeddings.

    The input is ``images``, uint8 of shape (batch, S, S, C), or ``rows``, float32 of shape (batch, d), or for texts
    ``input_ids`` and ``attention_mask``, int64 of shape (batch, length). The output is ``embeddings``, float32 of shape
    (batch, k), not normalized, to be compared by cosine distance. The metadata of the file hold S, C, how images are
    resized to S, the column names of rows, the prompt of texts, and the settings of the run. Rows of a network of
    sounds are pieces of 16,000 samples per second. For texts, the tokenizer is written beside it, into the file that
    `tokenizer_beside` names. Of a run on images with their texts, the file embeds images; the network of texts is
    written beside it, into the file that `texts_beside` names, with its tokenizer. All these files are replaced
    together, and those that only an earlier export needed are removed.

    Parameters
    ----------
    run : path
        Folder of a run.
    out : path
        The .onnx file to write, completely or not at all.
    which : {"best", "last", "trained"}
        Checkpoint to use.
    int8 : bool
        Store the weights in 8 bits, which makes the file about a quarter of the size. All computations stay float32,
        and embeddings differ slightly from those of the network.
    trust : str or collection of str
        Modules of your own that the settings of the run may name; their code is run.

    Returns
    -------
    float
        Mean cosine between the embeddings of the file and those of the network, for three random items.

    Raises
    ------
    TrainError
        If there is no such run.
    ValueError
        If ONNX cannot express a part of the network, or the embeddings of the file differ from those of the network.
    """
    require("torch", "onnx", "onnxscript", "onnxruntime")
    from ..train import TrainConfig
    from ..train.loading import network_config

    check_folder_of(out)
    embedder, about, shape = _loaded(run, which, trust)
    config = network_config(TrainConfig.from_json(Path(run) / "config.json"), about)
    notes: dict[str, Any] = {"distance": "cosine", "objective": config.objective, "data": without_folders(config.data)}
    if len(shape) == 1 and "tokenizer" in about:
        files, cosine = _files_of_texts(embedder, about, run, out, notes, int8=int8)
        _replace_export(out, files)
        return cosine
    tried = _tried(embedder, shape)
    if len(shape) == 3:
        channels, size, _ = shape
        notes |= {"size": size, "channels": channels, "resize": config.resize or size, **_resizing(config)}
    elif about.get("columns"):
        notes |= {"columns": about["columns"]}
    elif about.get("sounds") is True:
        notes |= {"samples_per_second": SOUND_RATE}
    content, cosine = _content(_traced(tried), tried.inputs, tried.embeddings, notes, int8=int8)
    files = {Path(out): content}
    if embedder.text is not None:
        of_texts = {"distance": notes["distance"], "objective": notes["objective"], "data": notes["data"]}
        files |= _files_of_texts(embedder.text, about, run, texts_beside(out), of_texts, int8=int8)[0]
    _replace_export(out, files)
    return cosine


def export_program(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    which: str = "best",
    trust: str | Collection[str] = (),
) -> None:
    """Write the network of a run as a program of `torch.export`, which PyTorch runs without nearfar.

    Its inputs and outputs are those of `export_run`: ``torch.export.load(out).module()(images)`` are the embeddings.
    The settings of the run, and for texts the tokenizer, are lost.

    Parameters
    ----------
    run, which, trust
        As for `export_run`.
    out : path
        The .pt2 file to write, completely or not at all.

    Raises
    ------
    TrainError
        If there is no such run.
    ValueError
        If a part of the network cannot be traced, or the embeddings of the program differ from those of the network.
    """
    require("torch")
    import torch

    from ..train.scoring import tokens_of

    check_folder_of(out)
    embedder, about, shape = _loaded(run, which, trust)
    if len(shape) == 1 and "tokenizer" in about:
        tried = _tried_texts(embedder, tokens_of(about, str(run), str(run)))
    else:
        tried = _tried(embedder, shape)
    inputs = tuple(map(torch.from_numpy, tried.inputs.values()))
    try:
        with _quiet():
            program = torch.export.export(tried.network, inputs, dynamic_shapes=_any_sizes(tried))
    except Exception as error:  # the tracer raises kinds of its own
        raise ValueError(f"the network has a part that torch.export cannot express: {_reason(error)}") from error
    content = BytesIO()
    torch.export.save(program, content)
    content.seek(0)
    with torch.inference_mode():
        found = torch.export.load(content).module()(*inputs).numpy()
    _check_equal(found, tried.embeddings, OFF)
    with atomic_write(out) as file:
        file.write(content.getvalue())


class Tried(NamedTuple):
    """A network as it is exported, the inputs of a trial by their names, and the embeddings that it makes of them.

    The first dimensions of the inputs, which are called `free`, have any size.
    """

    network: Any
    inputs: dict[str, AnyArray]
    embeddings: AnyArray
    free: tuple[str, ...]


def _loaded(
    run: str | os.PathLike[str], which: str, trust: str | Collection[str]
) -> tuple[Embedder, dict[str, Any], tuple[int, ...]]:
    """Return the network of a checkpoint on the CPU, what the checkpoint states, and the shape of an item."""
    from ..train.checkpoint import read_about, shape_of
    from ..train.network import unfold
    from ..train.run import RunFolder

    embedder = load_embedder(Path(run), which, trust=trust).cpu()
    unfold(embedder)  # runtimes do so themselves
    about = read_about(RunFolder(Path(run)).checkpoint(which))
    return embedder, about, shape_of(about)


def _check_equal(found: AnyArray, expected: AnyArray, most: float) -> None:
    """Raise a ValueError if embeddings are off by more than `most`, relative to the largest value."""
    off = float(np.abs(found - expected).max()) / max(float(np.abs(expected).max()), 1e-30)
    if not off <= most:  # `not <=` also refuses NaN
        raise ValueError(f"the exported network gives other embeddings: {off:.1e} off, relative to the largest value")


def texts_beside(out: str | os.PathLike[str]) -> Path:
    """Return the file of the network of texts that belongs to an exported network of images.

    >>> texts_beside("photos.onnx").name
    'photos.texts.onnx'
    """
    return Path(out).with_suffix(".texts.onnx")


def tokenizer_beside(out: str | os.PathLike[str]) -> Path:
    """Return the file of the tokenizer that belongs to an exported network of texts.

    >>> tokenizer_beside("texts.onnx").name
    'texts.tokenizer.json'
    """
    return Path(out).with_suffix(".tokenizer.json")


def files_of_export(out: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Return the files that an export into an .onnx file may write.

    >>> [file.name for file in files_of_export("photos.onnx")]
    ['photos.onnx', 'photos.tokenizer.json', 'photos.texts.onnx', 'photos.texts.tokenizer.json']
    """
    of_texts = texts_beside(out)
    return Path(out), tokenizer_beside(out), of_texts, tokenizer_beside(of_texts)


def _replace_export(out: str | os.PathLike[str], files: Mapping[Path, bytes]) -> None:
    """Write the files of an export, all or none, and remove what an earlier one had beside them."""
    with ExitStack() as written:  # they get their names when all of them are on the disk
        for path, content in files.items():
            file = written.enter_context(atomic_write(path))
            file.write(content)
            file.flush()  # a full disk fails here, before any file is replaced
    for path in files_of_export(out):
        if path not in files:
            path.unlink(missing_ok=True)


def _files_of_texts(
    embedder: Embedder,
    about: dict[str, Any],
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    notes: dict[str, Any],
    *,
    int8: bool,
) -> tuple[dict[Path, bytes], float]:
    """Return the files of a network of texts and its tokenizer, and the mean cosine as `export_run`."""
    from ..train.checkpoint import prompts_of
    from ..train.scoring import tokens_of

    tokens = tokens_of(about, str(run), str(run))
    tried = _tried_texts(embedder, tokens)
    module: Any = getattr(embedder.trunk, "module", embedder.trunk)
    pooled_from = getattr(getattr(module, "pooling", None), "prompt_tokens", 0)  # which is a part of the traced network
    prompts = {role: text for role, (text, count) in prompts_of(about).items() if count == pooled_from}
    notes |= {"max_tokens": tokens.max_tokens, "prompt": tokens.prompt, "prompts": prompts}
    content, cosine = _content(_traced(tried), tried.inputs, tried.embeddings, notes, int8=int8)
    return {Path(out): content, tokenizer_beside(out): tokens.padded().encode()}, cosine


def _taking(embedder: Embedder, first_input: str) -> Any:
    """Return a network in evaluation mode that takes the inputs of the file and returns embeddings."""
    import torch
    from torch import Tensor

    from ..deep.networks.tokens import NO_TOKEN

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedder = embedder

    class OfImages(Network):
        def forward(self, images: Tensor) -> Tensor:
            return self.embedder(images.permute(0, 3, 1, 2).to(torch.float32) / 255).embedding

    class OfRows(Network):
        def forward(self, rows: Tensor) -> Tensor:
            return self.embedder(rows).embedding

    class OfTokens(Network):
        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            rows = torch.where(attention_mask > 0, input_ids, NO_TOKEN).to(torch.float32)
            return self.embedder(rows).embedding

    return {"images": OfImages, "rows": OfRows, "input_ids": OfTokens}[first_input]().eval()


def _tried_texts(embedder: Embedder, tokens: Tokens) -> Tried:
    """Try a network of texts on random tokens of ITEMS texts of several lengths."""
    rng = np.random.default_rng(0)
    length = min(TRIED_TOKENS, tokens.max_tokens)
    ids = rng.integers(0, tokens.vocabulary_size, (ITEMS, length))
    lengths = np.array([length, max(length // 2, 1), 1])
    mask = np.arange(length) < lengths[:, None]
    inputs = {"input_ids": np.where(mask, ids, 0), "attention_mask": mask.astype(np.int64)}
    return _tried_on(_taking(embedder, "input_ids"), inputs, ("batch", "length"))


def _tried_on(network: Any, inputs: dict[str, AnyArray], free: tuple[str, ...]) -> Tried:
    import torch

    with torch.inference_mode():
        return Tried(network, inputs, network(*map(torch.from_numpy, inputs.values())).numpy(), free)


def _resizing(config: TrainConfig) -> dict[str, Any]:
    """Return how images are brought to the size that the file takes: for people in `pixels`, for programs in the rest.

    The network in the file normalizes the pixels itself.
    """
    from ..train.features import resizing_of

    resizing = resizing_of(config)
    if resizing is None:
        how: dict[str, Any] = {"interpolation": "bilinear", "squash": False, "longer_side": "nearest", "corner": "down"}
    else:
        corner = "down" if resizing.round_down else "nearest"
        how = {
            "interpolation": resizing.interpolation,
            "squash": resizing.squash,
            "longer_side": "down",
            "corner": corner,
        }
    sides = "both sides" if how["squash"] else "shorter side"
    return {"pixels": PIXELS.format(sides=sides, interpolation=how["interpolation"]), **how}


def _tried(embedder: Embedder, shape: tuple[int, ...]) -> Tried:
    """Try a network on ITEMS random images, for the shape (C, H, W), or rows.

    A network that looks the numbers of a row up, such as ids of words, fails on most; 0 and 1 are ids wherever any are.
    """
    rng = np.random.default_rng(0)
    if len(shape) == 3:
        channels, height, width = shape
        images = rng.integers(0, 256, (ITEMS, height, width, channels), dtype=np.uint8)
        return _tried_on(_taking(embedder, "images"), {"images": images}, ("batch",))
    network = _taking(embedder, "rows")
    rows = rng.normal(size=(ITEMS, *shape)).astype(np.float32)
    try:
        return _tried_on(network, {"rows": rows}, ("batch",))
    except (IndexError, RuntimeError, ValueError):
        rows = rng.integers(0, 2, (ITEMS, *shape)).astype(np.float32)
        return _tried_on(network, {"rows": rows}, ("batch",))


def export_learner(learner: Mahalanobis, out: str | os.PathLike[str]) -> None:
    """Write a fitted linear learner as an ONNX file, from ``rows`` (batch, d), float32, to ``embeddings`` (batch, k).

    Distances between embeddings are Euclidean.

    Parameters
    ----------
    learner : Mahalanobis
        A fitted learner.
    out : path
        The .onnx file to write.

    Raises
    ------
    ValueError
        If the learner is not linear, or encodes tables, or the embeddings of the file differ from those of the learner.
    """
    require("onnx", "onnxruntime")
    check_folder_of(out)
    from onnx import TensorProto, helper, numpy_helper

    if not hasattr(learner, "get_mahalanobis_matrix"):
        raise ValueError(
            f"{type(learner).__name__} is not a linear learner: it has no matrix that rows are multiplied by"
        )
    if hasattr(learner, "table_encoding_"):
        raise ValueError(
            "the learner encodes the dates, words or missing cells of its table, which the file would not do; fit it "
            "to a table of numbers, such as one that nearfar.estimators.TableEncoder has encoded"
        )
    L = np.asarray(learner.components_)
    k, d = L.shape
    rows = helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["batch", d])
    embeddings = helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["batch", k])
    weights = numpy_helper.from_array(np.ascontiguousarray(L.T, dtype=np.float32), "components")
    steps = []
    constants = [weights]
    last = "rows"
    if getattr(learner, "normalize", False):
        steps.append(helper.make_node("LpNormalization", [last], ["unit"], axis=1, p=2))
        last = "unit"
    if hasattr(learner, "mean_"):
        constants.append(numpy_helper.from_array(np.asarray(learner.mean_, dtype=np.float32), "mean"))
        steps.append(helper.make_node("Sub", [last, "mean"], ["centered"]))
        last = "centered"
    steps.append(helper.make_node("MatMul", [last, "components"], ["embeddings"]))
    graph = helper.make_graph(steps, "metric", [rows], [embeddings], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    trial = np.random.default_rng(0).normal(size=(ITEMS, d)).astype(np.float32)
    about: dict[str, Any] = {"distance": learner.distance_, "learner": repr(learner)}
    if hasattr(learner, "feature_names_in_"):
        about["columns"] = [str(name) for name in learner.feature_names_in_]
    expected = trial @ L.T
    if hasattr(learner, "mean_"):
        with nameless():
            expected = learner.transform(trial)
    content, _ = _content(model, {"rows": trial}, np.asarray(expected), about)
    _replace_export(out, {Path(out): content})


def _any_sizes(tried: Tried) -> tuple[dict[int, Any], ...]:
    """Return which dimensions of each input have any size."""
    import torch

    sizes = {axis: torch.export.Dim(name) for axis, name in enumerate(tried.free)}
    return (sizes,) * len(tried.inputs)


def _traced(tried: Tried) -> Any:
    """Return a network as a model of ONNX."""
    import torch

    items = tuple(torch.from_numpy(values[:2].copy()) for values in tried.inputs.values())
    with _quiet():
        try:
            program = torch.onnx.export(
                tried.network,
                items,
                dynamo=True,
                input_names=[*tried.inputs],
                output_names=["embeddings"],
                dynamic_shapes=_any_sizes(tried),
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise ValueError(f"the network has a part that ONNX cannot express: {_reason(error)}") from error
    assert program is not None
    return program.model_proto


def _reason(error: BaseException) -> str:
    """The first line of what began it: the tracer's own error is a page on how to report it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).strip().partition("\n")[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what the tracer remarks on packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _content(
    model: Any,
    trial: dict[str, AnyArray],
    expected: AnyArray,
    about: dict[str, Any],
    *,
    int8: bool = False,
) -> tuple[bytes, float]:
    """Return the content of a file and the mean cosine of the trial items, if the model gives what is expected."""
    import onnxruntime
    from onnx import helper

    if int8:
        model = _quantized(model)
        about = {**about, "weights": "int8"}
    helper.set_model_props(model, {"nearfar": __version__, "about": json.dumps(about)})
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    try:
        (found,) = session.run(["embeddings"], trial)
    except Exception as error:  # it raises kinds of its own, such as InvalidArgument
        raise ValueError(f"the exported network cannot be run ({_reason(error)})") from error
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    cosine = float(np.mean(np.einsum("ij,ij->i", found, expected) / np.maximum(lengths, 1e-30)))
    if int8:
        if not cosine >= LEAST_COSINE:
            found_cosine = f"with weights of 8 bits, embeddings have a cosine of {cosine:.3f} to those of the network"
            raise ValueError(f"int8: {found_cosine}, expected at least {LEAST_COSINE}; export it without int8")
        return content, cosine
    _check_equal(found, expected, OFF_OF_SOUNDS if "samples_per_second" in about else OFF)
    return content, cosine


def _quantized(model: Any) -> Any:
    """Return the model with the weights of convolutions and linear layers in 8 bits; all computations stay float32.

    Each output channel has a scale of its own: w is stored as q = round(w / s) with s = max |w| / 127, and read as s q.
    One scale for a whole layer, or activations in 8 bits, cost networks with depthwise convolutions far more.
    """
    from onnx import helper, numpy_helper

    graph = model.graph
    weights = {one.name: one for one in graph.initializer}
    channels = _output_channels(graph, weights.keys())
    reads = []
    for name, axis in channels.items():
        w = numpy_helper.to_array(weights[name])
        if w.dtype != np.float32 or w.size < SMALLEST_QUANTIZED:
            continue
        others = tuple(at for at in range(w.ndim) if at != axis)
        scale = np.abs(w).max(axis=others, keepdims=True) / 127.0
        scale[scale == 0] = 1.0  # a channel of zeros
        quantized = np.rint(w / scale).astype(np.int8)

        graph.initializer.remove(weights[name])
        graph.initializer.append(numpy_helper.from_array(quantized, f"{name}.int8"))
        graph.initializer.append(numpy_helper.from_array(scale.ravel(), f"{name}.scale"))
        reads.append(helper.make_node("DequantizeLinear", [f"{name}.int8", f"{name}.scale"], [name], axis=axis))
    for node in reversed(reads):  # before the first that reads them
        graph.node.insert(0, node)
    return model


def _output_channels(graph: Any, weights: Collection[str]) -> dict[str, int]:
    """Return the axis of the output channels of every weight that convolutions and matrix products alone read."""
    axes: dict[str, int] = {}
    shared: set[str] = set()
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name not in weights:
                continue
            axis = _output_axis(node) if place == 1 else None
            if axis is None or axes.get(name, axis) != axis:
                shared.add(name)
            else:
                axes[name] = axis
    return {name: axis for name, axis in axes.items() if name not in shared}


def _output_axis(node: Any) -> int | None:
    """Return the axis of a node's second input that its output channels are on; None for other operations."""
    if node.op_type == "Conv":
        return 0  # (output, input, height, width)
    if node.op_type == "Gemm":
        transposed = any(one.name == "transB" and one.i for one in node.attribute)
        return 0 if transposed else 1
    if node.op_type == "MatMul":
        return 1
    return None
