"""Options that commands share, and the groups in which --help shows them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from ..io.formats import accepted
from .setting_texts import setting_defaults, setting_texts

DATA = Group("Data", sort_key=1)
NETWORK = Group("Network", sort_key=2)
TRAINING = Group("Training", sort_key=3)
COMPARISON = Group("Comparison", sort_key=4)
RUNGS = Group("Ladder before the training", sort_key=5)
MEASURED = Group("What to measure", sort_key=0)
RETRIEVAL = Group("Retrieval", sort_key=2)
INDEX = Group("Index", sort_key=2)
PARTS = Group("Parts", sort_key=2)
CHANGES = Group("Changes to an index", sort_key=3)
UPGRADE = Group("A new model for an index", sort_key=4)
QUERIES = Group("Queries", sort_key=1)
NEIGHBORS = Group("Neighbors", sort_key=2)
FOUND = Group("What to find", sort_key=2)
FORECAST = Group("How long training takes", sort_key=2)
SERVER = Group("Server", sort_key=2)
VERIFICATION = Group("Verification and identification", sort_key=3)
FEW_SHOTS = Group("Few shots", sort_key=4)
RUN = Group("Run", sort_key=6)
"""The groups of options in --help, in their order."""

TEXTS = setting_texts()
DEFAULTS = setting_defaults()


def with_default(default: Any, group: Group) -> Parameter:
    """Return the help of an option that is None if it is not given: its group, and the default that applies."""
    return Parameter(group=group, show_default=partial(_shown, str(default)))


def _shown(text: str, value: Any) -> str:
    return text


def setting(name: str, group: Group) -> Parameter:
    """Return the help of an option that is a setting of `TrainConfig`: its text, and its default."""
    default = DEFAULTS[name]
    if default is None or default is False or default == "":
        return Parameter(group=group, help=TEXTS[name])
    return Parameter(group=group, help=TEXTS[name], show_default=partial(_shown, str(default)))


def repeated_setting(name: str, option: str, group: Group) -> Parameter:
    """Return the help of an option that is given once for each value of a setting."""
    return Parameter(name=option, show_default=False, group=group, help=f"{TEXTS[name]} Repeat for several.")


ABOUT_DATA = Parameter(help=f"Items and their classes: {accepted()}.")
ABOUT_ITEMS = Parameter(help=f"Items: {accepted()}; or single images.")
Tracker = Literal["tensorboard", "wandb", "mlflow", "trackio", "csv"]
DistanceName = Literal["cosine", "euclidean"]
Distance = Annotated[DistanceName | None, Parameter(group=MEASURED)]
Out = Annotated[Path, Parameter(name=["--out", "-o"], group=RUN)]
Levels = Annotated[tuple[str, ...], repeated_setting("levels", "--level", DATA)]
Overwrite = Annotated[bool, Parameter(group=RUN, help="Replace an existing OUT.")]
Quiet = Annotated[bool, Parameter(group=RUN, help="Print errors only.")]
TextOrNone = Annotated[str, Parameter(show_default=False)]  # "" where not given
Trust = Annotated[
    tuple[str, ...],
    Parameter(
        name="--trust",
        show_default=False,
        group=RUN,
        help="Allow what a run, a recipe or an index names to be imported from your module, such as mynets; its code "
        "is executed. Modules named on the command line need no permission. Repeat for several modules.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ItemOptions:
    """How the items of DATA are read."""

    label: Annotated[str | None, setting("label", DATA)] = None
    name: Annotated[str | None, setting("name", DATA)] = None
    images: Annotated[
        tuple[Path, ...],
        Parameter(
            name="--images",
            show_default=False,
            group=DATA,
            help="Also read images from this folder, if the paths in a table, or links, lead out of the folder of "
            "DATA. Repeat for several.",
        ),
    ] = ()
    skip_bad: Annotated[bool, setting("skip_bad", DATA)] = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """Which items are for the test."""

    test: Annotated[str | None, setting("test", DATA)] = None
    test_classes: Annotated[tuple[str, ...], repeated_setting("test_classes", "--test-class", DATA)] = ()
    split: Annotated[Literal["classes", "rows"] | None, setting("split", DATA)] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The settings of a run that `train` and `compare` take as options, and the recipe that sets all of them."""

    recipe: Annotated[str | None, Parameter(group=TRAINING)] = None
    """Start from the settings of a paper; `nearfar list --recipes` lists them. With --protocol paper, a recipe of a
    founding paper follows it in everything."""
    protocol: Annotated[Literal["honest", "paper"] | None, setting("protocol", TRAINING)] = None
    trunk: Annotated[str | None, setting("trunk", NETWORK)] = None
    text_trunk: Annotated[str | None, setting("text_trunk", NETWORK)] = None
    pretrained: Annotated[str | None, setting("pretrained", NETWORK)] = None
    embedding_dim: Annotated[int | None, setting("embedding_dim", NETWORK)] = None
    image_size: Annotated[int | None, setting("image_size", NETWORK)] = None
    sampler: Annotated[str | None, setting("sampler", TRAINING)] = None
    batch_size: Annotated[int | None, setting("batch_size", TRAINING)] = None
    epochs: Annotated[int | None, setting("epochs", TRAINING)] = None
    lr: Annotated[float | None, setting("lr", TRAINING)] = None
    augment: Annotated[str | None, setting("augment", TRAINING)] = None
    standardize: Annotated[bool, setting("standardize", DATA)] = False
    levels: Levels = ()
    pairs: Annotated[str | None, setting("pairs", DATA)] = None
    partial: Annotated[bool, setting("partial", DATA)] = False
    track: Annotated[tuple[Tracker, ...], repeated_setting("track", "--track", RUN)] = ()
    settings: Annotated[tuple[str, ...], Parameter(name="--set", show_default=False, group=TRAINING)] = ()
    """Any other setting as name=value, such as --set schedule=cosine --set lr_proxies=0.01. Repeat for several."""
