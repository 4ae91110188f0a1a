"""Models of timm as trunks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from difflib import get_close_matches
from typing import Any, cast

from torch import Tensor, nn

from ...io.hub_access import hub_cache_if_offline
from .hubs import Start, check_options, installed, unreachable
from .pooling import pool_features
from .preprocessing import Preprocessing, of_timm
from .weights import Provenance, TrunkError, pickles_are_safe

UNKNOWN_OPTION = re.compile(r"got an unexpected keyword argument '(\w+)'")


class TimmTrunk(nn.Module):
    """A model of timm without its classifier.

    Parameters
    ----------
    inner : Module
        Model of timm.
    pool : {"model", "cls", "avg", "gem"}
        How features are computed from its last map or tokens; "model" is its own way.
    """

    def __init__(self, inner: nn.Module, pool: str = "model") -> None:
        super().__init__()
        self.inner = inner
        self.pool = pool
        self.prefix = int(getattr(inner, "num_prefix_tokens", 0))

    def maps(self, images: Tensor) -> Tensor:
        """Return the last map (n, C, H, W), or the last tokens (n, T, C)."""
        forward_features = cast(Callable[[Tensor], Tensor], self.inner.forward_features)
        features = forward_features(images)
        channels_last = str(getattr(self.inner, "output_fmt", "")).endswith("NHWC")
        if channels_last and features.ndim == 4:
            return features.permute(0, 3, 1, 2)
        return features

    def forward(self, images: Tensor) -> Tensor:
        if self.pool == "model":
            features: Tensor = self.inner(images)
            return features
        features = pool_features(self.maps(images), self.pool, self.prefix, type(self.inner).__name__)
        # vision transformers that average have a norm after pooling; in the others, fc_norm is the identity
        norm = getattr(self.inner, "fc_norm", None)
        return features if norm is None else norm(features)

    def extra_repr(self) -> str:
        """Return the pooling as text, which distinguishes the features of a frozen trunk from others."""
        return f"pool={self.pool!r}"


def find_preprocessing(name: str, options: Mapping[str, Any]) -> Preprocessing:
    """Return how timm prepares images for a model, from the model's data config."""
    check_options("timm", options)
    timm = _with_model(name)
    config = timm.get_pretrained_cfg(name)
    data_config = {} if config is None else config.to_dict()
    size = options.get("img_size")
    requested: dict[str, Any] = {}
    if size is not None:
        height, width = size if isinstance(size, list | tuple) else (size, size)
        channels = data_config.get("input_size", (3,))[0]
        requested["input_size"] = (channels, int(height), int(width))
    data = timm.data.resolve_data_config(requested, pretrained_cfg=data_config)
    free = options.get("dynamic_img_size") or options.get("strict_img_size") is False
    fixed_size = bool(data_config.get("fixed_input_size")) and not free
    try:
        record = of_timm(data, fixed_size=fixed_size, source=f"timm's data config of {name}")
    except ValueError as error:
        raise TrunkError(f"trunk timm:{name}: {error}") from error
    return record.with_channels(int(options.get("in_chans", record.channels)))


def build(name: str, shape: tuple[int, ...], start: Start, **options: Any) -> tuple[nn.Module, Provenance]:
    """Build a model, and return it with the provenance of its weights."""
    check_options("timm", options)
    timm = _with_model(name)
    record = start.preprocessing
    channels = options.pop("in_chans", shape[0] if record is None else record.channels)
    where = Provenance()
    if start.pretrained:
        where = _source(timm, name)
    # an option of the user with one of these names is an error, so no option can request other weights
    fixed = {"pretrained": start.pretrained, "num_classes": 0, "in_chans": channels}
    try:
        with hub_cache_if_offline() if start.pretrained else nullcontext():
            model = timm.create_model(name, **fixed, **options)
    except (TypeError, AssertionError, NotImplementedError) as error:
        unknown = UNKNOWN_OPTION.search(str(error))
        reason = f"the model has no option {unknown[1]!r}" if unknown else error
        raise TrunkError(f"trunk timm:{name}: {reason}") from error
    except Exception as error:
        if not start.pretrained:
            raise TrunkError(f"trunk timm:{name}: {str(error).partition(chr(10))[0]}") from error
        config = timm.get_pretrained_cfg(name)
        raise unreachable(f"timm:{name}", config.hf_hub_id or config.url or "", error) from error
    pool = "model" if record is None else record.pool
    return TimmTrunk(model, pool), where


def _source(timm: Any, name: str) -> Provenance:
    """Return the provenance of timm's weights of a model."""
    config = timm.get_pretrained_cfg(name)
    if config is None or not config.has_weights:
        family = name.partition(".")[0].partition("_")[0]
        near = get_close_matches(name, timm.list_models(f"{family}*", pretrained=True), n=1, cutoff=0.3)
        hint = f"; {near[0]} has some" if near else ""
        raise TrunkError(f"trunk timm:{name}: timm has no pretrained weights of it{hint}; give a file of weights")
    if not pickles_are_safe():
        raise TrunkError(
            f"trunk timm:{name}: pretrained=true may read pickled weights, which can run code in this PyTorch; use "
            "PyTorch 2.10 or newer, or download model.safetensors and give that file as pretrained"
        )
    tag = f".{config.tag}" if config.tag and "." not in name else ""
    return Provenance(f"timm's {name}{tag}", config.license or "")


def has_model(name: str) -> bool:
    """Return whether timm can be imported and has a model of this name."""
    try:
        timm = installed("timm")
    except TrunkError:
        return False
    is_model = getattr(timm, "is_model", None)  # any folder of that name on the path is a module, too
    return is_model is not None and bool(is_model(name))


def _with_model(name: str) -> Any:
    timm = installed("timm")
    if not timm.is_model(name):
        near = get_close_matches(name, timm.list_models(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TrunkError(f"timm has no model {name!r:.60}{hint}")
    return timm
