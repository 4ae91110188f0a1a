"""Networks of texts as folders of sentence-transformers, which open there and here without a training."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..deep.networks.embedder import Embedder
from ..deep.networks.text_settings import FLAGS
from ..deep.networks.tokens import Tokens
from ..deep.networks.transformers_trunk import printing_nothing
from ..deep.networks.whiten import Whiten
from ..extras import require
from ..train.checkpoint import read_about
from ..train.run import RunFolder
from ..train.scoring import tokens_of
from .foreign_folders import check_folder, replaced_folder, write_json, write_weights
from .loading import load, load_embedder

__all__ = ["export_sentence_transformers"]

PACKAGE = "sentence_transformers.models."
MODULES = "modules.json"
LARGEST_DIFFERENCE = 1e-5  # by which embeddings of unit length may differ
TRIED = 5  # texts of the trial have up to 2^TRIED tokens


def export_sentence_transformers(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    which: str = "best",
    overwrite: bool = False,
    trust: str | Collection[str] = (),
) -> None:
    """Write the network of a run on texts as a folder of sentence-transformers.

    ``SentenceTransformer(out)`` then gives the embeddings of the run, scaled to unit length, and
    ``nearfar.load(f"transformers:{out}")`` does so, too. The embedding layer and a closed form become modules
    ``Dense`` and ``Normalize``; prompts and the maximum number of tokens are kept. What is lost: the settings of the
    training, its scores, and the classes it has seen.

    Parameters
    ----------
    run : path
        Folder of a run.
    out : path
        The folder to write, completely or not at all.
    which : {"best", "last", "trained"}
        Checkpoint to use.
    overwrite : bool
        Whether a folder of this kind may be replaced.
    trust : str or collection of str
        Modules of your own that the settings of the run may name; their code is run.

    Raises
    ------
    TrainError
        If there is no such run.
    ValueError
        If the run is not of texts, its model cannot be a module of sentence-transformers, the folder exists, or its
        embeddings differ from those of the run.

    Examples
    --------
    >>> from sentence_transformers import SentenceTransformer  # doctest: +SKIP
    >>> export_sentence_transformers("runs/texts", "texts-model")  # doctest: +SKIP
    >>> SentenceTransformer("texts-model").encode(["a text"])  # doctest: +SKIP
    """
    require("transformers")
    target = Path(out)
    check_folder(target, MODULES, "sentence-transformers", overwrite=overwrite)
    about = read_about(RunFolder(Path(run)).checkpoint(which))
    if "tokenizer" not in about:
        raise ValueError(f"{run}: only a network of texts can be a folder of sentence-transformers; export it as .onnx")
    tokens = tokens_of(about, str(run), str(run))
    embedder = load_embedder(Path(run), which, trust=trust).cpu()
    embedder = embedder if embedder.text is None else embedder.text
    with replaced_folder(target) as partial:
        _write(partial, embedder, tokens, about["prompts"])
        _check(partial, embedder, tokens)


def _write(folder: Path, embedder: Embedder, tokens: Tokens, prompts: Mapping[str, Any]) -> None:
    """Write the model, its tokenizer, and one module for each thing that follows."""
    import transformers
    from transformers import PreTrainedModel

    trunk = _text_model(embedder)
    inner = getattr(trunk, "inner", None)
    if not isinstance(inner, PreTrainedModel) or "pooler" in trunk.pooling.modes:
        kind = type(trunk if inner is None else inner).__name__
        raise ValueError(f"{kind} is no model of sentence-transformers; export the run as .onnx")
    pooling = trunk.pooling
    with printing_nothing(transformers):
        inner.save_pretrained(folder)
    _write_tokenizer(folder, tokens, inner.config)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    config = {
        "word_embedding_dimension": int(inner.config.hidden_size),
        "include_prompt": pooling.prompt_tokens == 0 and not any(count for _, count in prompts.values()),
        **{flag: mode in pooling.modes for flag, mode in FLAGS.items()},
    }
    write_json(folder / "1_Pooling" / "config.json", config)
    for place, (kind, settings, weights) in enumerate(_modules(embedder), start=2):
        name = f"{place}_{kind}"
        modules.append((name, kind))
        write_json(folder / name / "config.json", settings)
        if weights:
            write_weights(folder / name / "model.safetensors", weights)
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": PACKAGE + kind}
        for number, (path, kind) in enumerate(modules)
    ]
    write_json(folder / MODULES, listed)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": tokens.max_tokens, "do_lower_case": False})
    named = {role: text for role, (text, _) in prompts.items()} or ({"text": tokens.prompt} if tokens.prompt else {})
    default = next((role for role, text in named.items() if tokens.prompt and text == tokens.prompt), None)
    about = {"model_type": "SentenceTransformer", "similarity_fn_name": "cosine"}
    write_json(folder / "config_sentence_transformers.json", about | {"prompts": named, "default_prompt_name": default})


def _text_model(embedder: Embedder) -> Any:
    """Return the trunk of texts, without what counts its features."""
    return getattr(embedder.trunk, "module", embedder.trunk)


def _write_tokenizer(folder: Path, tokens: Tokens, config: Any) -> None:
    """Write the tokenizer with the token that fills up a batch, which ``tokenizer.json`` alone does not name."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    fast = Tokenizer.from_str(tokens.content)
    fast.no_truncation()
    fast.no_padding()
    number = getattr(config, "pad_token_id", None) or 0
    made: Any = PreTrainedTokenizerFast
    made(
        tokenizer_object=fast,
        pad_token=fast.id_to_token(number),
        model_max_length=tokens.max_tokens,
        padding_side="right",
        truncation_side=tokens.truncation_side,
    ).save_pretrained(folder)


def _modules(embedder: Embedder) -> list[tuple[str, dict[str, Any], dict[str, Tensor]]]:
    """Return kind, settings and weights of the modules after the pooling."""
    trunk = _text_model(embedder)
    found = [_of_layer(layer) for layer in trunk.layers]
    kept = trunk.pooling.truncate_dim
    if kept is not None:
        wide = _width_before(trunk)
        found.append(_dense(torch.eye(wide)[:kept], torch.zeros(kept)))
    if isinstance(embedder.layer, torch.nn.Linear):
        found.append(_dense(embedder.layer.weight, embedder.layer.bias))
    if isinstance(embedder.metric, Whiten):
        # z = W (x / |x| - mean) = W x / |x| - W mean
        weight = embedder.metric.weight
        found += [_unit_length(), _dense(weight, -weight @ embedder.metric.mean)]
    elif not isinstance(embedder.metric, torch.nn.Identity):
        raise ValueError(f"{type(embedder.metric).__name__} after the embeddings is no module of sentence-transformers")
    return [*found, _unit_length()]


def _width_before(trunk: Any) -> int:
    """Return the number of dimensions before the first of them are kept."""
    for layer in reversed(trunk.pooling.layers):
        width = getattr(layer, "out_features", None) or getattr(layer, "dimension", None)
        if width is not None:
            return int(width)
    return int(trunk.inner.config.hidden_size) * len(trunk.pooling.modes)


def _of_layer(layer: nn.Module) -> tuple[str, dict[str, Any], dict[str, Tensor]]:
    """Return the module for a layer that the folder of the pretrained model named."""
    parts = dict(layer.named_children())
    if "norm" in parts:
        norm: Any = parts["norm"]
        return "LayerNorm", {"dimension": norm.normalized_shape[0]}, dict(layer.state_dict())
    if "linear" not in parts:
        return _unit_length()
    linear: Any = parts["linear"]
    kind = type(parts["activation"])
    return _dense(linear.weight, linear.bias, activation=f"{kind.__module__}.{kind.__name__}")


def _dense(
    weight: Tensor, bias: Tensor | None, activation: str = "torch.nn.modules.linear.Identity"
) -> tuple[str, dict[str, Any], dict[str, Tensor]]:
    out_features, in_features = weight.shape
    sizes = {"in_features": in_features, "out_features": out_features, "bias": bias is not None}
    weights = {"linear.weight": weight} if bias is None else {"linear.weight": weight, "linear.bias": bias}
    return "Dense", {**sizes, "activation_function": activation}, weights


def _unit_length() -> tuple[str, dict[str, Any], dict[str, Tensor]]:
    return "Normalize", {}, {}


def _check(folder: Path, embedder: Embedder, tokens: Tokens) -> None:
    """Open the folder as a stranger's, and compare its embeddings of some texts with those of the network."""
    texts = _tried(tokens)
    with torch.inference_mode():
        rows = torch.from_numpy(tokens.rows(texts))
        expected = F.normalize(embedder(rows).embedding).numpy()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* tokens that the model takes")  # of the trial
        found = load(f"transformers:{folder}").embed(texts)
    off = float(np.abs(found - expected).max())
    if not off <= LARGEST_DIFFERENCE:
        raise ValueError(f"the folder gives other embeddings: {off:.1e} off; export the run as .onnx")


def _tried(tokens: Tokens) -> list[str]:
    """Return texts of 1, 2, 4, ... random tokens."""
    numbers = np.random.default_rng(0).integers(0, tokens.vocabulary_size, 1 << TRIED).tolist()
    return [tokens.text_of(numbers[: 1 << k]) for k in range(TRIED + 1)]
