"""What the folder of a text model states about its embeddings: prompt, tokens, pooling, and the layers that follow.

The files are those of sentence-transformers: `modules.json` lists the layers, `1_Pooling/config.json` states the
pooling, `sentence_bert_config.json` the longest text, and `config_sentence_transformers.json` the prompts. They may be
those of a stranger: each value is checked, and what cannot be reproduced is refused. This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ...io.untrusted import parse_json, read_file
from .weights import TrunkError

Pool = Literal["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", "pooler"]
Activation = Literal["Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid"]
Width = Annotated[int, Meta(ge=1, le=2**16)]
Length = Annotated[int, Meta(ge=1, le=2**20)]

MODULES = "modules.json"
CONFIG = "config.json"
INCOMPLETE = "download all files of the model"
OF_MODEL = "config_sentence_transformers.json"
OF_TOKENS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)
"""Names of the file with the longest text, of which older versions of sentence-transformers wrote one per model."""
FLAGS: dict[str, Pool] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Older names of the poolings, in the order in which several are concatenated."""
POOLS = tuple(FLAGS.values())
WIDTHS = ("hidden_size", "d_model", "n_embd", "dim")
"""What models call the number of features of a token in their `config.json`."""
EMBEDDING = "sentence_embedding"
"""What sentence-transformers calls the pooled features; layers for the features of tokens are refused."""
LARGEST_FILE = 2**20
MOST_LAYERS = 16
Role = Literal["query", "document"]
ROLES: Mapping[Role, tuple[str, ...]] = MappingProxyType(
    {"query": ("query",), "document": ("document", "passage", "corpus")}
)
"""The names that models give to the prompt of queries and to that of documents, the first of which counts."""
OPTIONS = ("pool", "prompt")
"""Options in the text of a trunk that take precedence over the folder of a text model."""


class Dense(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="dense"):
    """A linear layer with an activation."""

    in_features: Width
    out_features: Width
    bias: bool = True
    activation: Activation = "Tanh"


class LayerNorm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="layer_norm"):
    """A layer normalization."""

    dimension: Width


class UnitLength(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="unit_length"):
    """Scaling to unit length."""


class Pooling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the features of a text are computed from those of its tokens.

    Attributes
    ----------
    modes : tuple of str
        Ways of pooling, in the words of sentence-transformers; the results of several are concatenated.
    layers : tuple of Dense, LayerNorm and UnitLength
        Layers that follow.
    truncate_dim : int or None
        Number of first dimensions to keep of the result; None keeps all.
    prompt_tokens : int
        Number of tokens at the start of each text that pooling leaves out.
    """

    modes: Annotated[tuple[Pool, ...], Meta(min_length=1, max_length=len(POOLS))] = ("mean",)
    layers: Annotated[tuple[Dense | LayerNorm | UnitLength, ...], Meta(max_length=MOST_LAYERS)] = ()
    truncate_dim: Width | None = None
    prompt_tokens: Annotated[int, Meta(ge=0, le=2**20)] = 0

    def __str__(self) -> str:
        names = [" and ".join(self.modes), *(type(layer).__name__ for layer in self.layers)]
        if self.truncate_dim is not None:
            names.append(f"the first {self.truncate_dim} dimensions")
        return ", ".join(names)


class TextSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the folder of a text model states about its embeddings.

    Attributes
    ----------
    pooling : Pooling or None
        Pooling and the layers that follow; None if the folder does not say.
    folders : tuple of str
        Folder of the weights of each layer of `pooling`, inside the folder of the model.
    prompt : str
        Text in front of each text.
    prompts : dict of str to str
        Texts in front of each query and of each document, under the keys of `ROLES`; {} if they are `prompt`, too.
    pools_prompt : bool
        Whether the tokens of the prompt are pooled, too.
    lower_case : bool
        Whether texts are converted to lower case, whatever the tokenizer does.
    max_tokens : int or None
        Maximum number of tokens of a text; None leaves it to the tokenizer and the model.
    """

    pooling: Pooling | None = None
    folders: tuple[str, ...] = ()
    prompt: str = ""
    prompts: dict[str, str] = {}
    pools_prompt: bool = True
    lower_case: bool = False
    max_tokens: Length | None = None


def read_text_settings(folder: Path, options: Mapping[str, Any]) -> TextSettings:
    """Read the settings of the text model in a folder.

    Parameters
    ----------
    folder : Path
        Folder of the model.
    options : mapping
        Values of the user that take precedence: `pool` is one of `POOLS`, and `prompt` is the name of a prompt in the
        folder, or the prompt itself.

    Raises
    ------
    TrunkError
        If a file is damaged or says something that cannot be reproduced, or an option is invalid.
    """
    name = f"trunk transformers:{folder}"
    try:
        if (folder / MODULES).exists():
            settings = _of_modules(folder)
        else:
            _refuse_parts(folder)
            settings = TextSettings()
        return _with_options(settings, _read(folder / OF_MODEL), options)
    except OSError as error:
        raise TrunkError(f"{name}: {error.strerror or error}") from error
    except ValueError as error:
        raise TrunkError(f"{name}: {error}") from error


def text_width(folder: Path, options: Mapping[str, Any]) -> int | None:
    """Return the number of features of the text model in a folder; None if its `config.json` does not state it.

    Raises
    ------
    TrunkError
        As `read_text_settings`.
    """
    pooling = read_text_settings(folder, options).pooling or Pooling()
    try:
        content = _read(folder / CONFIG)
    except (OSError, ValueError):  # refused where the model is loaded
        return None
    of_texts = content.get("text_config")  # of a model of images and texts
    if isinstance(of_texts, dict):
        content = of_texts
    of_token = next((content[name] for name in WIDTHS if type(content.get(name)) is int), 0)
    of_layers = [layer.out_features for layer in pooling.layers if isinstance(layer, Dense)]
    width = of_layers[-1] if of_layers else of_token * len(pooling.modes)
    if pooling.truncate_dim is not None:
        width = min(width, pooling.truncate_dim)
    return width or None


def pooling_of(content: Any) -> Pooling:
    """Return the pooling in the settings of a checkpoint.

    Raises
    ------
    TrunkError
        If it is missing or damaged.
    """
    if content is None:
        raise TrunkError("the run does not say how its text model pools tokens; train it again")
    try:
        return msgspec.convert(content, Pooling)
    except (msgspec.ValidationError, TypeError) as error:
        raise TrunkError(f"the pooling of the text model is damaged ({error})") from error


def _refuse_parts(folder: Path) -> None:
    """Raise if a folder without a list of modules has modules: it is a part of a model of sentence-transformers."""
    left = sorted(path.parent.name for path in folder.glob(f"[0-9]_*/{CONFIG}"))
    if left:
        raise ValueError(f"{MODULES} is missing, which says how {left[0]:.60} is used; {INCOMPLETE}")


def _of_modules(folder: Path) -> TextSettings:
    modules = _listed(folder)
    first, second, *later = modules
    if first[0] != "Transformer" or second[0] != "Pooling":
        raise ValueError(
            f"{MODULES}: only models that begin with Transformer and Pooling are supported, got "
            f"{first[0]:.60} and {second[0]:.60}"
        )
    if first[1] not in ("", "."):
        raise ValueError(f"{MODULES}: expected the model in the folder itself, got {first[1]!r:.60}; move its files up")
    modes, pools_prompt = _pooling(_read_needed(folder, f"{second[1]}/{CONFIG}"), f"{second[1]}/{CONFIG}")
    layers: list[Dense | LayerNorm | UnitLength] = []
    folders = []
    for kind, place in later:
        where = f"{place}/{CONFIG}"
        if kind in ("Dense", "LayerNorm"):
            config = _read_needed(folder, where)
        else:
            config = _read(folder / where)
        layer = _layer(kind, config, where)
        if layer is not None:
            layers.append(layer)
            folders.append(place)
    truncate_dim = _of_model(_read(folder / OF_MODEL))
    tokens = next((found for found in (_read(folder / file) for file in OF_TOKENS) if found), {})
    lower_case, max_tokens = _of_tokens(tokens)
    fields = {"modes": modes, "layers": msgspec.to_builtins(layers), "truncate_dim": truncate_dim}
    return TextSettings(
        pooling=_made(fields, Pooling, MODULES),
        folders=tuple(folders),
        pools_prompt=pools_prompt,
        lower_case=lower_case,
        max_tokens=max_tokens,
    )


def _read_needed(folder: Path, file: str) -> dict[str, Any]:
    """Return the content of a JSON file of a module, or raise if there is none."""
    if not (folder / file).exists():
        raise ValueError(f"{file} is missing, which {MODULES} needs; {INCOMPLETE}")
    return _read(folder / file)


def _read(file: Path) -> dict[str, Any]:
    """Return the content of a JSON file, {} if there is none."""
    try:
        content = parse_json(read_file(file, LARGEST_FILE).decode("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{file.name} is damaged ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file.name}: expected a JSON object, got {content!r:.60}")
    return content


def _listed(folder: Path) -> list[tuple[str, str]]:
    """Return kind and folder of each module."""
    try:
        content = parse_json(read_file(folder / MODULES, LARGEST_FILE).decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"{MODULES} is damaged ({error})") from error
    if not isinstance(content, list) or not all(isinstance(module, dict) for module in content):
        raise ValueError(f"{MODULES}: expected a list of modules, got {content!r:.60}")
    if not 2 <= len(content) <= MOST_LAYERS:
        raise ValueError(f"{MODULES}: expected 2 to {MOST_LAYERS} modules, got {len(content)}")
    return [(_kind(module.get("type")), _place(module.get("path"))) for module in content]


def _kind(text: Any) -> str:
    """Return the name of a class of sentence-transformers without its package, which has moved between versions."""
    if not isinstance(text, str) or not text.startswith("sentence_transformers."):
        raise ValueError(
            f"{MODULES}: only modules of sentence-transformers are supported, because files must not run code, got "
            f"{text!r:.60}"
        )
    return text.rpartition(".")[2]


def _place(path: Any) -> str:
    """Return the folder of a module, which lies inside the folder of the model."""
    parts = PurePosixPath(path).parts if isinstance(path, str) else ("..",)
    if ".." in parts or any("\\" in part or ":" in part or "\0" in part for part in parts) or parts[:1] == ("/",):
        raise ValueError(f"{MODULES}: expected the path of a folder inside that of the model, got {path!r:.60}")
    return str(path)


def _pooling(config: Mapping[str, Any], where: str) -> tuple[tuple[str, ...], bool]:
    """Return the ways of pooling, and whether the prompt is pooled, too."""
    stated = config.get("pooling_mode")
    if stated is None:
        modes = tuple(mode for flag, mode in FLAGS.items() if config.get(flag)) or ("mean",)
    else:
        modes = tuple(stated) if isinstance(stated, list) else (stated,)
    for mode in modes:
        if mode not in POOLS:
            raise ValueError(f"{where}: the pooling must be one of {', '.join(POOLS)}, got {mode!r:.60}")
    unknown = [name for name in config if name.startswith("pooling_mode_") and name not in FLAGS and config[name]]
    if unknown:
        raise ValueError(f"{where}: {unknown[0]:.60} is not supported")
    return modes, _flag(config, "include_prompt", where, True)


def _layer(kind: str, config: Mapping[str, Any], where: str) -> Dense | LayerNorm | UnitLength | None:
    """Return a layer after the pooling; None for a dropout, which changes nothing in an embedding."""
    for name in ("module_input_name", "module_output_name"):
        if config.get(name) not in (None, EMBEDDING):
            raise ValueError(f"{where}: {name}={config[name]!r:.60} is not supported; expected {EMBEDDING!r}")
    if kind == "Normalize":
        return UnitLength()
    if kind == "Dropout":
        return None
    if kind == "LayerNorm":
        return _made({"dimension": config.get("dimension")}, LayerNorm, where)
    if kind != "Dense":
        supported = "Transformer, Pooling, Dense, LayerNorm, Normalize and Dropout"
        raise ValueError(f"{MODULES}: {kind:.60} is not supported; expected only {supported}")
    if config.get("use_residual"):
        raise ValueError(f"{where}: use_residual is not supported")
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if not isinstance(activation, str) or not activation.startswith("torch.nn."):
        raise ValueError(f"{where}: activation_function: expected one of torch.nn, got {activation!r:.60}")
    fields = {name: config[name] for name in ("in_features", "out_features", "bias") if name in config}
    return _made({**fields, "activation": activation.rpartition(".")[2]}, Dense, where)


def _of_model(config: Mapping[str, Any]) -> int | None:
    """Return the number of dimensions to keep, after checking that the model embeds texts into one vector each."""
    kind = config.get("model_type")
    if kind not in (None, "SentenceTransformer"):
        raise ValueError(f"{OF_MODEL}: expected a model_type of SentenceTransformer, got {kind!r:.60}")
    dim: int | None = config.get("truncate_dim")
    return dim


def _of_tokens(config: Mapping[str, Any]) -> tuple[bool, int | None]:
    """Return whether texts are converted to lower case, and their maximum number of tokens."""
    where = "sentence_bert_config.json"
    expected = {
        "transformer_task": "feature-extraction",
        "module_output_name": "token_embeddings",
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    }
    for name, value in expected.items():
        if config.get(name) not in (None, value):
            raise ValueError(f"{where}: {name}: expected {value!r}, got {config[name]!r:.60}")
    known = {*expected, "max_seq_length", "do_lower_case", "unpad_inputs"}
    for name, value in config.items():
        if name not in known and value:
            raise ValueError(f"{where}: {name:.60}={value!r:.60} is not supported")
    length = config.get("max_seq_length")
    if length is not None and (type(length) is not int or length < 1):
        raise ValueError(f"{where}: max_seq_length: expected a positive integer, got {length!r:.60}")
    return _flag(config, "do_lower_case", where, False), length


def _with_options(settings: TextSettings, config: Mapping[str, Any], options: Mapping[str, Any]) -> TextSettings:
    """Return the settings with the prompt of the folder, and the values of the user."""
    pool = options.get("pool", "model")
    if pool != "model":
        if pool not in POOLS:
            raise ValueError(f"pool: expected model or one of {', '.join(POOLS)}, got {pool!r:.60}")
        pooling = msgspec.structs.replace(settings.pooling or Pooling(), modes=(pool,))
        settings = msgspec.structs.replace(settings, pooling=pooling)
    prompts = config.get("prompts")
    prompts = {} if prompts is None else prompts
    if not isinstance(prompts, dict) or not all(text is None or isinstance(text, str) for text in prompts.values()):
        raise ValueError(f"{OF_MODEL}: prompts: expected a text for each name, got {prompts!r:.60}")
    given = options.get("prompt")
    if given is None:
        named = config.get("default_prompt_name")
        of_roles = _prompts_of_roles(prompts)
        if named is None:
            return msgspec.structs.replace(settings, prompts=of_roles)
        if not isinstance(named, str) or named not in prompts:
            raise ValueError(f"{OF_MODEL}: default_prompt_name: expected the name of a prompt, got {named!r:.60}")
        return msgspec.structs.replace(settings, prompt=prompts[named] or "", prompts=of_roles)
    if not isinstance(given, str):
        raise ValueError(f"prompt: expected a text, got {given!r:.60}")
    if given not in prompts and given.isidentifier():
        has = f"has the prompts {', '.join(sorted(prompts))}" if prompts else "names no prompts"
        raise ValueError(
            f"prompt: the folder {has:.200}, got {given!r:.60}; a prompt itself ends with a colon or a space"
        )
    return msgspec.structs.replace(settings, prompt=prompts.get(given, given) or "")


def _prompts_of_roles(prompts: Mapping[str, str | None]) -> dict[str, str]:
    """Return the prompts of queries and documents, by the names that sentence-transformers gives them."""
    found = {}
    for role, names in ROLES.items():
        named = next((name for name in names if name in prompts), None)
        if named is not None:
            found[role] = prompts[named] or ""
    if not found:
        return {}
    return {role: found.get(role, "") for role in ROLES}


def _flag(config: Mapping[str, Any], name: str, where: str, default: bool) -> bool:
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise ValueError(f"{where}: {name}: expected true or false, got {value!r:.60}")
    return value


def _made(fields: Mapping[str, Any], kind: Any, where: str) -> Any:
    """Return a struct of these fields; a ValueError in one line names the field that is invalid."""
    try:
        return msgspec.convert(dict(fields), kind)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        raise ValueError(f"{where}: {place.rstrip('`')}: {text}" if place else f"{where}: {text}") from error
