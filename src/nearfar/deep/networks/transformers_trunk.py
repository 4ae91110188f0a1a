"""Vision models of transformers as trunks."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from ...io.hub_access import hub_cache_if_offline
from ...io.untrusted import parse_json
from ...quoting import shorten
from ...settings import no_option
from .hubs import Start, check_options, installed, of_torchvision, unreachable
from .peft_folder import CONFIG as ADAPTER
from .peft_folder import base_of, is_adapter
from .pooling import pool_features
from .preprocessing import Preprocessing, make, of_processor
from .text_settings import MODULES, OPTIONS, pooling_of
from .tokens import TOKENIZER
from .weights import Provenance, TrunkError, pickles_are_safe

PROCESSORS = ("preprocessor_config.json", "processor_config.json")
SHARDS = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
"""Names of the index of weights in several files."""
POOLERS = ("pooler.", "head.")
"""Prefixes of the names of the weights that pool the tokens of a model to one vector."""
POOLING = "text_pooling"
"""Name of the pooling of a text model among its settings in a checkpoint."""
IMAGE_POOLING = "image_pooling"
"""Name of the pooling of a model of images among its settings in a checkpoint."""
IMAGE_POOLS = ("tokens", "pooler", "cls", "avg", "gem")
SOUND_INPUTS = ("input_values", "input_features")
"""What models of sounds call their input: samples, or spectrograms."""
SOUND_SETTING = "sound_normalize"
"""Whether samples get mean 0 and variance 1, among the settings of a model of sounds in a checkpoint."""
SIGLIP = ("siglip", "siglip2")
TEXT_HALVES = {"siglip_text_model": "SiglipTextModel", "siglip2_text_model": "Siglip2TextModel"}
SIGLIP_DIM = 768
"""Default width of SigLIP models in transformers, which their files may omit."""
MIDDLE_GRAY = 0.5
"""Mean and standard deviation for a model without weights: those of most vision transformers."""


class TransformersTrunk(nn.Module):
    """A vision model of transformers.

    Parameters
    ----------
    inner : Module
        Model of transformers.
    pool : {"tokens", "pooler", "cls", "avg", "gem"}
        How features are computed: by the model's own pooler, or from the last map or tokens. "tokens" averages all of
        them, including class and register tokens.
    """

    untrained: list[str]
    """Names of the weights that were not in any file, and are random."""
    projection: Tensor | None
    """Weights (d, D) that map the features of this tower to the space that images and texts share."""

    def __init__(self, inner: nn.Module, pool: str = "tokens") -> None:
        super().__init__()
        self.inner = inner
        self.pool = pool
        self.projection = None
        self.prefix = prefix_tokens(inner)

    def maps(self, images: Tensor) -> Tensor:
        """Return the last map (n, C, H, W), or the last tokens (n, T, C)."""
        tokens: Tensor = self.inner(images).last_hidden_state
        return tokens

    def forward(self, images: Tensor) -> Tensor:
        if self.pool == "pooler":
            pooled: Tensor = self.inner(images).pooler_output
            return pooled.flatten(1)
        features = self.maps(images)
        prefix = 0 if self.pool == "tokens" else self.prefix
        pool = "avg" if self.pool == "tokens" else self.pool
        return pool_features(features, pool, prefix, type(self.inner).__name__)

    def extra_repr(self) -> str:
        """Return the pooling as text, which distinguishes the features of a frozen trunk from others."""
        return f"pool={self.pool!r}"


def prefix_tokens(model: nn.Module) -> int:
    """Return the number of tokens before those of the patches: class, distillation and register tokens."""
    names = {name.rpartition(".")[2] for name, _ in model.named_parameters()}
    classes = bool(names & {"cls_token", "class_embedding", "class_token"})
    registers = getattr(getattr(model, "config", None), "num_register_tokens", 0) or 0
    return classes + ("distillation_token" in names) + int(registers)


def own_pool(trunk: TransformersTrunk, images: Tensor, untrained: Collection[str]) -> str:
    """Return how a model computes its own features.

    It uses its pooler if the pooler is trained or has no weights, else the class token, else the average of all
    patches.

    Parameters
    ----------
    trunk : TransformersTrunk
        Trunk of the model.
    images : (n, C, H, W) tensor
        Images for a trial run.
    untrained : collection of str
        Names of the weights that no file provides.
    """
    fresh = any(name.startswith(POOLERS) for name in untrained)
    if not fresh and getattr(trunk.inner(images), "pooler_output", None) is not None:
        return "pooler"
    return "cls" if trunk.prefix else "avg"


def find_preprocessing(
    name: str, options: Mapping[str, Any], overrides: Mapping[str, Any], pretrained: bool
) -> Preprocessing | None:
    """Return how the image processor of a folder, or of a model of the hub, prepares images; None for text models.

    Parameters
    ----------
    name : str
        Model or its folder.
    options : mapping
        Options of the model.
    overrides : mapping
        Values of the user that take precedence (`OVERRIDES`).
    pretrained : bool
        Whether the hub may be asked.
    """
    options = {option: value for option, value in options.items() if option not in OPTIONS}
    check_options("transformers", options)
    if Path(name).is_dir():
        _check_folder(Path(name))
    try:
        if Path(name).is_dir() and _is_of_sounds(Path(name)):
            return None
        if Path(name).is_dir() and _is_of_texts(Path(name)) and not overrides.keys() - set(OPTIONS):
            return None
        if Path(name).is_dir():
            config, source = _processor_in(Path(name), overrides)
        elif pretrained:
            config, source = _processor_of_hub(name, overrides)
        else:
            return _of_settings(name, options).changed(overrides)
        return of_processor(config, overrides, source)
    except TrunkError:
        raise
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TrunkError(f"trunk transformers:{name}: {error}") from error


def _is_of_sounds(folder: Path) -> bool:
    from .transformers_sound_trunk import is_of_sounds

    return is_of_sounds(folder)


def _is_of_texts(folder: Path) -> bool:
    """Return whether the folder of a model has a tokenizer or modules, and no image processor."""
    of_texts = any((folder / name).is_file() for name in (TOKENIZER, MODULES))
    return of_texts and not any((folder / name).is_file() for name in PROCESSORS)


def _of_settings(name: str, options: Mapping[str, Any]) -> Preprocessing:
    """Return the preprocessing for a model without weights, whose settings have the size of images only."""
    config = _settings(name, options)
    size = getattr(config, "image_size", None)
    side = size[0] if isinstance(size, list | tuple) else size
    channels = int(getattr(config, "num_channels", 3))
    fields = {
        "mean": (MIDDLE_GRAY,) * channels,
        "std": (MIDDLE_GRAY,) * channels,
        "channels": channels,
        "image_size": (side or 224, side or 224),
        "fixed_size": side is not None,
        "resize": side or 224,
        "interpolation": "bilinear",
        "source": f"no processor: {name} without weights",
    }
    return make(fields)


def _processor_in(folder: Path, overrides: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    for file in (folder / name for name in PROCESSORS):
        if file.is_file():
            return _read(file), str(file)
    return _without(str(folder), overrides)


def _processor_of_hub(name: str, overrides: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    hub = installed("huggingface_hub")
    for file in PROCESSORS:
        try:
            with hub_cache_if_offline():
                path = Path(hub.hf_hub_download(name, file))
            return _read(path), f"{file} of {name}"
        except Exception as error:
            if type(error).__name__ not in ("EntryNotFoundError", "RemoteEntryNotFoundError"):
                raise unreachable(f"transformers:{name}", name, error) from error
    return _without(name, overrides)


def _without(name: str, overrides: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    if "mean" in overrides and "std" in overrides:
        return {}, "no processor"
    raise TrunkError(
        f"trunk transformers:{name}: has no {PROCESSORS[0]}, so it is not known how to normalize images; give mean= "
        "and std= as options of the trunk, such as mean=0.5, std=0.5"
    )


def _read(file: Path) -> dict[str, Any]:
    content = parse_json(file.read_text("utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{file}: expected a JSON object")
    inner = content.get("image_processor", content)
    return inner if isinstance(inner, dict) else content


def build(name: str, shape: tuple[int, ...], start: Start, **options: Any) -> tuple[TransformersTrunk, Provenance]:
    """Build a model, and return it with the provenance of its weights; `trunk.untrained` names the random ones."""
    of_texts = {option: options.pop(option) for option in OPTIONS if option in options}
    check_options("transformers", options)
    _check_kind(name, shape, start, of_texts)
    transformers = installed("transformers")
    where, missing = Provenance(), None
    try:
        if start.architecture is not None:
            model = _of_architecture(transformers, start.architecture)
        elif Path(name).is_dir():
            _check_folder(Path(name))
            _check_code(Path(name), transformers)
            model, missing = _loaded(transformers, name, options, local_files_only=True)
            where = Provenance(name, license_in(Path(name)))
        elif start.pretrained:
            with hub_cache_if_offline():
                model, missing = _loaded(transformers, name, options)
            where = Provenance(f"https://huggingface.co/{name}", _license_of_hub(name))
        else:
            model = transformers.AutoModel.from_config(_settings(name, options), trust_remote_code=False)
    except (OSError, ValueError) as error:
        if isinstance(error, TrunkError):
            raise
        if start.pretrained and isinstance(error, OSError) and not Path(name).is_dir():
            raise unreachable(f"transformers:{name}", name, error) from error
        reason = str(error).splitlines()[0].partition(". Should contain")[0]  # without the list of all models
        raise TrunkError(f"transformers:{name}: {reason}") from error
    except (ImportError, RuntimeError) as error:
        if "torchvision" in "".join(str(cause) for cause in (error, error.__cause__, error.__context__)):
            raise of_torchvision(error, "transformers") from error
        raise
    trunk = _trunk_of(model, name, shape, start, of_texts)
    trunk.untrained = [key for key, _ in trunk.inner.named_parameters()] if missing is None else missing
    return trunk, where


def _trunk_of(
    model: Any, name: str, shape: tuple[int, ...], start: Start, of_texts: Mapping[str, Any]
) -> TransformersTrunk:
    """Return the trunk of a model: of sounds, of texts, or of images."""
    if len(shape) == 1 and getattr(model, "main_input_name", "") in SOUND_INPUTS:
        return _of_sounds(model, name, shape[0], start)
    if len(shape) == 1:
        trunk = _of_texts(model, name, start, of_texts)
        trunk.projection = _projection(model, "text_projection")
        return trunk
    inner = getattr(model, "vision_model", model)  # models of images and texts have two towers
    trunk = TransformersTrunk(inner, _pool_of_images(name, start))
    trunk.projection = _projection(model, "visual_projection")
    return trunk


def _check_kind(name: str, shape: tuple[int, ...], start: Start, of_texts: Mapping[str, Any]) -> None:
    """Raise a TrunkError for a text model without a folder, and for options of texts in a model of images."""
    if len(shape) == 1 and start.pretrained and start.architecture is None and not Path(name).is_dir():
        raise TrunkError(
            f"transformers:{name}: texts need the folder of a model with its tokenizer; download it with "
            f"`hf download {name} --local-dir FOLDER`, and give transformers:FOLDER"
        )
    if start.architecture is None and Path(name).is_absolute() and not Path(name).is_dir():
        raise TrunkError(f"transformers:{name}: no such folder")
    if len(shape) == 3 and "prompt" in of_texts:
        raise TrunkError(f"transformers:{name}: prompt is an option for texts, and the items are images; leave it out")


def _check_folder(folder: Path) -> None:
    """Refuse an adapter of peft, and shards outside the folder: transformers would follow what they name anywhere."""
    for index in (folder / name for name in SHARDS if (folder / name).is_file()):
        _check_shards(index)
    if not is_adapter(folder):
        return
    base = f"the folder of {base_of(folder)}"
    if (folder / "config.json").is_file():
        base = f"a folder without {ADAPTER}"
    raise TrunkError(
        f"transformers:{folder}: it has an adapter of peft; give its base, transformers:FOLDER, {base}, and the "
        "adapter as pretrained"
    )


def _check_code(folder: Path, transformers: Any) -> None:
    """Refuse a model that only code from its folder can compute: files must not run code."""
    file = folder / "config.json"
    if not file.is_file():
        return  # refused where it is read
    config = parse_json(file.read_text("utf-8"))
    code = config.get("auto_map") if isinstance(config, dict) else None
    if code and config.get("model_type") not in getattr(transformers, "CONFIG_MAPPING", {}):
        names = ", ".join(map(str, code.values())) if isinstance(code, dict) else str(code)
        raise TrunkError(
            f"transformers:{folder}: its config.json names code to run, {shorten(names, 80)}, and files must not run "
            "code; export the model to ONNX with its own library, or choose one that transformers has"
        )


def _check_shards(index: Path) -> None:
    """Refuse an index of files of weights that names a file which is missing or outside its folder."""
    content = parse_json(index.read_text("utf-8"))
    places = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(places, dict) or not places:
        raise TrunkError(f"{index}: expected the file of each weight in weight_map")
    for name in set(places.values()):
        if not isinstance(name, str) or not name or Path(name).name != name or "\\" in name:
            raise TrunkError(f"{index}: expected names of files in its folder, got {name!r:.60}")
        if not (index.parent / name).is_file():
            raise TrunkError(f"{index}: {name} is missing; download all files of the model")


def _of_sounds(model: nn.Module, name: str, length: int, start: Start) -> TransformersTrunk:
    """Return the trunk of a model of sounds, prepared as in its checkpoint, or else as in its folder."""
    from .transformers_sound_trunk import build_sound_trunk, settings_in

    settings = dict(start.architecture or {})
    for file in PROCESSORS[::-1] if start.architecture is None else ():
        settings |= settings_in(Path(name) / file)
    return build_sound_trunk(model, length, settings)


def _of_texts(model: nn.Module, name: str, start: Start, options: Mapping[str, Any]) -> TransformersTrunk:
    """Return the trunk of a text model, pooled as in its checkpoint, or else as in its folder."""
    from .transformers_text_trunk import TransformersTextTrunk, build_text_trunk, text_half

    if start.architecture is not None:
        return TransformersTextTrunk(text_half(model), pooling_of(start.architecture.get(POOLING)))
    return build_text_trunk(model, Path(name) if Path(name).is_dir() else None, options)


def _pool_of_images(name: str, start: Start) -> str:
    """Return how a model of images pools: as in its checkpoint, or as in its preprocessing."""
    stored = (start.architecture or {}).get(IMAGE_POOLING)
    if stored is None:
        return "tokens" if start.preprocessing is None else start.preprocessing.pool
    if stored not in IMAGE_POOLS:
        raise TrunkError(f"transformers:{name}: {no_option(IMAGE_POOLS, IMAGE_POOLING, stored)}")
    return str(stored)


def _projection(model: nn.Module, name: str) -> Tensor | None:
    """Return the weights of the layer that maps to the space that images and texts share; None without such a layer.

    The features of both towers of a SigLIP model are in that space already, so its weights are the identity.
    """
    layer = getattr(model, name, None)
    if isinstance(layer, nn.Linear):
        return layer.weight.detach().clone()
    config: Any = model.config
    dim = _dim_of_siglip(config.to_dict())
    return None if dim is None else torch.eye(dim)


def _dim_of_siglip(config: Mapping[str, Any]) -> int | None:
    """Return the number of dimensions of the features of both towers of a SigLIP model; None for other models."""
    vision = config.get("vision_config")
    text = config.get("text_config")
    if config.get("model_type") not in SIGLIP or not isinstance(vision, dict) or not isinstance(text, dict):
        return None
    of_images = vision.get("hidden_size", SIGLIP_DIM)
    of_texts = text.get("projection_size", text.get("hidden_size", SIGLIP_DIM))
    return of_images if type(of_images) is int and of_images > 0 and of_images == of_texts else None


def projection_dim(folder: Path) -> int | None:
    """Return the number of dimensions of the space that images and texts share in a folder's model, or None."""
    try:
        config = parse_json((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict):
        return None
    dim = config.get("projection_dim")
    if type(dim) is int and dim > 0 and "vision_config" in config:
        return dim
    return _dim_of_siglip(config)


def _loaded(
    transformers: Any, name: str, options: Mapping[str, Any], *, local_files_only: bool = False
) -> tuple[Any, list[str]]:
    """Load a model with its weights, and return it with the names of the weights that its files lack."""
    # without trust_remote_code=False, transformers asks on the terminal whether to run the code in the folder
    safe = {"trust_remote_code": False, "use_safetensors": None if pickles_are_safe() else True}
    with printing_nothing(transformers):
        model, report = transformers.AutoModel.from_pretrained(
            name, output_loading_info=True, local_files_only=local_files_only, **safe, **options
        )
    return model.float(), sorted(report.get("missing_keys", ()))


@contextmanager
def printing_nothing(transformers: Any) -> Iterator[None]:
    """Keep transformers from printing progress bars and its table of missing weights."""
    logging = getattr(getattr(transformers, "utils", None), "logging", None)
    if logging is None:
        yield
        return
    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _of_architecture(transformers: Any, architecture: Mapping[str, Any]) -> Any:
    """Build a model from the settings in a checkpoint, which may come from a stranger."""
    ours = ("model_type", "transformers_version", POOLING, IMAGE_POOLING, SOUND_SETTING)
    settings = {key: value for key, value in architecture.items() if key not in ours}
    check_options("transformers", settings)
    kind = str(architecture["model_type"])
    config = transformers.AutoConfig.for_model(kind, **settings)
    if kind in TEXT_HALVES:  # AutoModel does not support these
        return getattr(transformers, TEXT_HALVES[kind])(config)
    return transformers.AutoModel.from_config(config, trust_remote_code=False)


def architecture_of(trunk: TransformersTrunk) -> dict[str, Any]:
    """Return the settings of a model as plain data, from which it can be built without its folder or the hub."""
    config: Any = trunk.inner.config  # a PretrainedConfig of transformers
    settings: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    left_out = ("auto_map", "_name_or_path", "dtype", "torch_dtype")  # code, a path, and dtypes: weights are float32
    settings = {key: value for key, value in settings.items() if key not in left_out}
    pooling = getattr(trunk, "pooling", None)
    normalize = getattr(trunk, "normalize", None)
    if normalize is not None:
        settings[SOUND_SETTING] = normalize
    elif pooling is None:
        settings[IMAGE_POOLING] = trunk.pool
    else:
        settings[POOLING] = msgspec.to_builtins(pooling)
    return settings


def _settings(name: str, options: Mapping[str, Any]) -> Any:
    """Return the settings of a kind of model, without weights."""
    transformers = installed("transformers")
    try:
        return transformers.AutoConfig.for_model(name, **options)
    except ValueError as error:
        if "/" in name:
            detail = f"no such folder: {name!r:.60}; for a model of the hub, give pretrained=True"
            raise TrunkError(f"transformers:{name}: {detail}") from error
        near = get_close_matches(name, list(getattr(transformers, "CONFIG_MAPPING", {})), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        reason = str(error).splitlines()[0].partition(". Should contain")[0]
        raise TrunkError(f"transformers:{name}: {reason}{hint}") from error


def license_in(folder: Path) -> str:
    """Return the license that the model card in a folder states, or "" if there is none."""
    card = folder / "README.md"
    if not card.is_file():
        return ""
    stated = re.match(
        r"---\n.*?^license:\s*([\w.+-]+)\s*$.*?^---", card.read_text("utf-8", errors="replace"), re.M | re.S
    )
    return stated.group(1) if stated else ""


def _license_of_hub(name: str) -> str:
    hub = installed("huggingface_hub")
    try:
        with hub_cache_if_offline():
            return license_in(Path(hub.hf_hub_download(name, "README.md")).parent)
    except Exception:  # without a card or a network, the license is unknown
        return ""
