"""Weights of trunks from local files: `.safetensors`, `.caffemodel`, or `.pth` if PyTorch reads it safely."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...io.tensor_file import opened, read_metadata
from ...quoting import PATH, shorten
from .caffe_weights import CaffeFileError, read_caffe_weights

HEADS = (
    "last_linear.",
    "fc.",
    "classifier.",
    "head.",
    "logits.",
    "head_dist.",
    "aux_classifier.",
    "loss1_",
    "loss2_",
    "loss3_",
    "similarity_",  # of the loss of GE2E
)
"""Prefixes of the names of classifier weights, which a trunk does not use."""

# prefixes of the names of weights in the checkpoint of a run
TRUNK = "embedder.trunk."
NETWORK = "embedder."  # the trunk and its embedding layer
METRIC = "embedder.metric."  # whitening, which is fitted to the embeddings after the network is trained
NAMES = {TRUNK: "trunk", NETWORK: "network"}
SAFE_PICKLES = (2, 10)  # the first version of PyTorch in which no way around `weights_only` is known
LICENSE_LENGTH = 60  # maximum number of characters of a license that are shown
WRAPPERS = ("module.", "inner.")  # prefixes that DistributedDataParallel and the trunks of other libraries add


class TrunkError(ValueError):
    """A trunk cannot be built, or its weights cannot be loaded. The message is one line."""


PRETRAINED = "Weights: pretrained"
"""Beginning of the sentence on weights that were trained before."""


class Provenance(NamedTuple):
    """Origin of the weights of a trunk.

    Attributes
    ----------
    source : str
        File or hub; empty if the weights are random.
    license : str
        License that the file or the model card states; empty if it states none.
    left_out : tuple of str
        Names of the classifier's weights in the file, which the trunk does not use.
    missing : tuple of str
        Names of weights that the file does not contain, which remain random.
    """

    source: str = ""
    license: str = ""
    left_out: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def sentence(self, trunk: str, parameters: int) -> str:
        """Return the origin as one sentence.

        >>> Provenance().sentence("conv4", 112_000)
        'Weights: random (conv4, 0.11 million parameters).'
        >>> Provenance("a.safetensors", "apache-2.0", ("fc.weight",)).sentence("timm:resnet18", 11_200_000)[9:77]
        'pretrained, a.safetensors, license apache-2.0; its classifier (fc.we'
        """
        size = f"({trunk}, {parameters / 1e6:.2f} million parameters)"
        if not self.source:
            return f"Weights: random {size}."
        details = [f"license {self.license}" if self.license else "license unknown"]
        if self.left_out:
            details.append(f"its classifier ({_some(self.left_out)}) is left out")
        return f"{PRETRAINED}, {self.source}, {'; '.join(details)} {size}."


class Trunk(nn.Module):
    """Type of the modules that `make_trunk` returns, for annotations only: any module with these two attributes."""

    num_features: int
    provenance: Provenance


def _some(keys: Sequence[str]) -> str:
    shown = ", ".join(keys[:3])
    return shown if len(keys) <= 3 else f"{shown} and {len(keys) - 3} more"


def pickles_are_safe() -> bool:
    """Return whether ``torch.load(weights_only=True)`` runs no code from a file.

    Before PyTorch 2.10, a crafted file could run code: CVE-2025-32434, CVE-2026-24747.
    """
    major, minor = re.findall(r"\d+", torch.__version__)[:2]
    return (int(major), int(minor)) >= SAFE_PICKLES


def load_weights(
    module: nn.Module, path: str | Path, part: str = TRUNK, *, name: str = "", optional: tuple[str, ...] = ()
) -> Provenance:
    """Load a local state dict into a module, in the precision of the module.

    From the checkpoint of a run, the trunk or another part is loaded. Classifiers and the prefixes of wrappers are
    dropped, and the (1, C) statistics of old files are flattened; everything else must fit.

    Parameters
    ----------
    module : Module
        Module to load the weights into.
    path : str or Path
        A .safetensors, .pth or .caffemodel file.
    part : str
        Part of the checkpoint of a run to load.
    name : str
        Name of the trunk in error messages.
    optional : tuple of str
        Prefixes of names that the file may lack.

    Returns
    -------
    Provenance
        File, its license if its header states one, and the names of a classifier that was left out.

    Raises
    ------
    TrunkError
        If the file is missing, is not a state dict, or does not fit.
    """
    expected = module.state_dict()
    state = _tidy(read_tensors(Path(path)), expected, part, getattr(module, "base_model_prefix", ""))
    unknown = sorted(state.keys() - expected.keys())
    foreign = [key for key in unknown if not key.startswith(HEADS)]
    missing = sorted(key for key in expected.keys() - state.keys() if not key.endswith("num_batches_tracked"))
    lacking = [key for key in missing if not key.startswith(optional)]
    wrong = []
    fitted = f"this {NAMES[part]}{f', {name}' if name else ''}"
    if lacking:
        wrong.append(f"lacks {lacking[0]!r}")
    if foreign:
        wrong.append(f"has {foreign[0]!r}")
    if wrong:
        counts = f"{len(lacking)} missing, {len(foreign)} unexpected"
        hint = ""
        if not state.keys() & expected.keys():
            hint = "; these are weights of another network, which trunk= should name"
        raise TrunkError(f"{path}: does not fit {fitted}: it {' and '.join(wrong)} ({counts}){hint}")
    weights = {}
    for key in state.keys() & expected.keys():
        # old files have (1, C) statistics of batch normalization, which are (C,) today
        weights[key] = state[key].flatten() if expected[key].ndim == 1 else state[key]
    misshapen = sorted(key for key, value in weights.items() if value.shape != expected[key].shape)
    if misshapen:
        key = misshapen[0]
        sizes = f"{key} is {tuple(state[key].shape)}, expected {tuple(expected[key].shape)}"
        more = ""
        if len(misshapen) > 1:
            more = f" ({len(misshapen)} of {len(weights)} weights have another shape)"
        raise TrunkError(f"{path}: does not fit {fitted}: {sizes}{more}")
    module.load_state_dict(weights, strict=False)
    left_out = tuple(key for key in unknown if key.startswith(HEADS))
    return Provenance(str(path), _license(Path(path)), left_out, tuple(missing))


def read_header(path: Path) -> dict[str, str]:
    """Return the metadata in the header of a .safetensors file; {} for other files and if there are none."""
    if path.suffix != ".safetensors" or not path.is_file():
        return {}
    try:
        return read_metadata(path)
    except (OSError, ValueError):  # reading the weights will raise the error
        return {}


def _license(path: Path) -> str:
    """Return the license that the header of a safetensors file states, or "" if it states none."""
    header = read_header(path)
    license = str(header.get("license") or header.get("licence") or "")
    return " ".join(license.split())[:LICENSE_LENGTH]


def _tidy(state: dict[str, Tensor], own: dict[str, Tensor], part: str, base: str) -> dict[str, Tensor]:
    """Select the weights of a part of a run, and drop prefixes that all names have but the module's own names lack.

    In models of transformers with a classifier, the names of the other weights begin with `base`.
    """
    state = {key: value for key, value in state.items() if not key.startswith(METRIC)}
    of_part = {key.removeprefix(part): value for key, value in state.items() if key.startswith(part)}
    if of_part:
        state = of_part
    for prefix in WRAPPERS:
        if all(key.startswith(prefix) for key in state) and not all(key.startswith(prefix) for key in own):
            state = {key.removeprefix(prefix): value for key, value in state.items()}
    if base and not any(key.startswith(f"{base}.") for key in own):
        state = {key.removeprefix(f"{base}."): value for key, value in state.items()}
    return state


def _check_file(path: Path) -> None:
    """Raise a TrunkError if there is no file of this name."""
    if path.is_dir():
        raise TrunkError(f"{path}: is a folder; expected a .safetensors, .pth or .caffemodel file{_file_in(path)}")
    if not path.is_file():
        hint = "" if path.suffix else "; `true` takes the weights that timm or transformers has of its model"
        raise TrunkError(f"{path}: no such file of weights{hint}")


def _file_in(folder: Path) -> str:
    """Return a hint at the file of weights in a folder, such as that of a run; "" if there is none."""
    for name in ("best.safetensors", "model.safetensors"):
        if (folder / name).is_file():
            return f", such as {folder / name}"
    return ""


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a state dict from a file of any kind that weights may have; raise a TrunkError if there is none."""
    _check_file(path)
    if path.suffix == ".caffemodel":
        try:
            return read_caffe_weights(path.read_bytes())
        except CaffeFileError as error:
            raise TrunkError(f"{path}: not readable as weights ({error})") from error
    if path.suffix != ".safetensors" and not pickles_are_safe():
        needed = ".".join(map(str, SAFE_PICKLES))
        detail = f"a file of this kind can run code in PyTorch {torch.__version__}; use PyTorch {needed} or newer"
        raise TrunkError(f"{path}: {detail}, or weights as .safetensors")
    try:
        if path.suffix == ".safetensors":
            with opened(path, framework="pt") as (file, _):
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it cannot be iterated
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file of another kind makes both readers raise nearly anything
        # the message of torch explains how to run the code in the file
        foreign = isinstance(error, (UnpicklingError, LookupError))
        if foreign:
            reason = "holds something other than tensors"
        else:
            reason = shorten(str(error).partition("\n")[0].partition(" (Could this error")[0].rstrip(". "), PATH)
        raise TrunkError(f"{path}: not readable as weights ({reason})") from error
    if isinstance(state, dict):
        state = state.get("state_dict", state.get("model_state", state))
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise TrunkError(f"{path}: contains no state dict (a mapping from names to tensors)")
    return state
