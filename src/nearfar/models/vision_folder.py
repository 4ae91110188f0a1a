"""Networks of images as folders of timm or of transformers, which open there and here without a training."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..deep.networks.embedder import Embedder
from ..deep.networks.preprocessing import INTERPOLATIONS, OVERRIDES, Preprocessing
from ..deep.networks.transformers_trunk import POOLERS, TransformersTrunk, printing_nothing
from ..deep.networks.trunks import parse_trunk
from ..deep.networks.whiten import Whiten
from ..train import TrainConfig
from ..train.checkpoint import read_about
from ..train.loading import network_config
from ..train.run import RunFolder
from .foreign_folders import check_folder, replaced_folder, write_json, write_weights
from .loading import load_embedder

__all__ = ["export_vision_model"]

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
EMBEDDING = "embedding.safetensors"
"""File of what follows the model: the linear layer and the whitening, as far as the model has no place for them."""
MOST_OFF = 1e-5
"""By which outputs may differ, relative to the largest of them."""
TRIED_IMAGES = 3  # images of the trial


def export_vision_model(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    which: str = "best",
    overwrite: bool = False,
    trust: str | Collection[str] = (),
) -> str:
    """Write the network of a run on images as a folder of timm or of transformers, whose model its trunk is.

    timm opens the first by ``timm.create_model("local-dir:FOLDER", pretrained=True)``. Its classifier is the linear
    layer, so the model returns embeddings. ``AutoModel.from_pretrained(FOLDER)`` of transformers opens the second,
    which returns features. What follows the model, a linear layer or a whitening, is in ``embedding.safetensors``:

        z = linear.weight x + linear.bias,    or none
        w = whitening.weight (z / |z| - whitening.mean),    or none

    What is lost: the settings of the training, its scores, and the classes it has seen.

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

    Returns
    -------
    str
        The library that opens the folder, "timm" or "transformers".

    Raises
    ------
    TrainError
        If there is no such run.
    ValueError
        If the trunk is no model of either library, it does not pool as the model does, the folder exists, or the model
        of the folder gives other outputs.

    Examples
    --------
    >>> import timm  # doctest: +SKIP
    >>> export_vision_model("runs/photos", "photos-model")  # doctest: +SKIP
    'timm'
    >>> timm.create_model("local-dir:photos-model", pretrained=True)  # doctest: +SKIP
    """
    target = Path(out)
    about = read_about(RunFolder(Path(run)).checkpoint(which))
    config = network_config(TrainConfig.from_json(Path(run) / "config.json", trust), about)
    library = config.trunk.partition(":")[0]
    if library not in ("timm", "transformers") or len(about["shape"]) != 3 or config.preprocessing is None:
        raise ValueError(
            f"{run}: its trunk {config.trunk} is no model of images of timm or transformers; export it as .onnx or .pt2"
        )
    check_folder(target, CONFIG, library, overwrite=overwrite)
    embedder = load_embedder(Path(run), which, trust=trust).cpu()
    write = _write_timm if library == "timm" else _write_transformers
    with replaced_folder(target) as partial:
        following = _following(embedder)
        write(partial, embedder, config, following)
        if following:
            write_weights(partial / EMBEDDING, following)
    return library


def _following(embedder: Embedder) -> dict[str, Tensor]:
    """Return the weights of what follows the trunk."""
    if embedder.text is not None:
        raise ValueError("a network of images and texts is no model of one library; export it as .onnx")
    found: dict[str, Any] = {}
    if isinstance(embedder.layer, nn.Linear):
        found |= {"linear.weight": embedder.layer.weight, "linear.bias": embedder.layer.bias}
    if isinstance(embedder.metric, Whiten):
        found |= {"whitening.weight": embedder.metric.weight, "whitening.mean": embedder.metric.mean}
    return {name: value for name, value in found.items() if value is not None}


def _write_timm(folder: Path, embedder: Embedder, config: TrainConfig, following: dict[str, Tensor]) -> None:
    """Write a folder of timm; the linear layer becomes the classifier, and is taken out of what follows."""
    import timm

    prepared = config.preprocessing
    assert prepared is not None
    trunk: Any = getattr(embedder.trunk, "module", embedder.trunk)
    if trunk.pool != "model":
        raise ValueError(f"its pooling {trunk.pool} is not that of the model in timm; export it as .onnx or .pt2")
    text, options = parse_trunk(config.trunk)
    name = text.removeprefix("timm:").partition(".")[0]
    arguments = {option: value for option, value in options.items() if option not in OVERRIDES}
    layer = embedder.layer
    has_layer = isinstance(layer, nn.Linear)
    fixed = {"pretrained": False, "in_chans": prepared.channels}
    model = timm.create_model(name, **{**fixed, **arguments}, num_classes=layer.out_features if has_layer else 0)
    head = model.get_classifier()
    if has_layer and not (isinstance(head, nn.Linear) and head.in_features == layer.in_features):
        model = timm.create_model(name, **{**fixed, **arguments}, num_classes=0)
        has_layer = False
    model.eval().load_state_dict(trunk.inner.state_dict(), strict=False)  # all but the classifier
    if has_layer:
        with torch.no_grad():
            head.weight.copy_(layer.weight)
            head.bias.zero_() if layer.bias is None else head.bias.copy_(layer.bias)
        for part in ("linear.weight", "linear.bias"):
            following.pop(part, None)
    size = [config.image_size, config.image_size]
    resize = config.resize or size[0]
    own = model.pretrained_cfg
    data = {
        "input_size": [prepared.channels, *size],
        "fixed_input_size": prepared.fixed_size,
        "interpolation": prepared.interpolation,
        "crop_pct": size[0] / (resize + 0.5) if resize > size[0] else 1.0,  # timm resizes to floor(size / crop_pct)
        "crop_mode": "squash" if prepared.squash else "center",
        "mean": list(prepared.mean),
        "std": list(prepared.std),
        "num_classes": model.num_classes,
        "first_conv": own.get("first_conv"),
        "classifier": own.get("classifier"),
        "license": own.get("license"),
    }
    about = {"architecture": name, "num_classes": model.num_classes, "num_features": model.num_features}
    content = {**about, "model_args": {**arguments, "in_chans": prepared.channels}, "pretrained_cfg": data}
    write_json(folder / CONFIG, content)
    write_weights(folder / WEIGHTS, model.state_dict())
    opened = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    expected = (lambda images: layer(trunk(images))) if has_layer else trunk
    _compare(opened, expected, (prepared.channels, *size))


def _write_transformers(folder: Path, embedder: Embedder, config: TrainConfig, following: Mapping[str, Tensor]) -> None:
    """Write a folder of transformers, with how images are prepared; its model gives the features of the trunk."""
    import transformers
    from transformers import AutoModel

    prepared = config.preprocessing
    assert prepared is not None
    trunk: Any = getattr(embedder.trunk, "module", embedder.trunk)
    weights = trunk.inner.state_dict()
    if trunk.pool != "pooler":  # a pooler that nothing has trained must not look as if it were
        weights = {name: value for name, value in weights.items() if not name.startswith(POOLERS)}
    with printing_nothing(transformers):
        trunk.inner.save_pretrained(folder, state_dict=weights)
    write_json(folder / "preprocessor_config.json", _processor(prepared, config))
    opened = TransformersTrunk(AutoModel.from_pretrained(folder, trust_remote_code=False).eval(), trunk.pool)
    _compare(opened, trunk, (prepared.channels, config.image_size, config.image_size))


def _processor(prepared: Preprocessing, config: TrainConfig) -> dict[str, Any]:
    """Return how images are prepared, in the words of an image processor of transformers."""
    size = config.image_size
    resize = config.resize or size
    numbers = {name: number for number, name in INTERPOLATIONS.items()}
    return {
        "image_processor_type": "CLIPImageProcessor",  # resizes the shorter side, then takes the central square
        "do_resize": True,
        "size": {"height": resize, "width": resize} if prepared.squash else {"shortest_edge": resize},
        "resample": numbers[prepared.interpolation],
        "do_center_crop": True,
        "crop_size": {"height": size, "width": size},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(prepared.mean),
        "image_std": list(prepared.std),
        "do_convert_rgb": prepared.channels == 3,
    }


def _compare(opened: Any, expected: Any, shape: tuple[int, ...]) -> None:
    """Raise a ValueError if the model that was opened gives other outputs for random images than the network."""
    images = torch.rand((TRIED_IMAGES, *shape), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        wanted = expected(images)
        off = float((opened(images) - wanted).abs().max() / wanted.abs().max().clamp_min(1e-30))
    if not off <= MOST_OFF:
        raise ValueError(f"the folder gives other outputs: {off:.1e} off; export the run as .onnx or .pt2")
