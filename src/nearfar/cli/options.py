"""Options that commands share, and the settings of a run from the words of a command."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Annotated, Any, Literal, NoReturn

from cyclopts import Group, Parameter

from ..children import OWN_MODULES
from ..extras import require
from ..io.untrusted import parse_json
from ..quoting import quoted
from .encoding import say

Split = Literal["classes", "rows"]
Protocol = Literal["honest", "paper"]

DATA = Group("Data", sort_key=1)
NETWORK = Group("Network", sort_key=2)
TRAINING = Group("Training", sort_key=3)
COMPARISON = Group("Comparison", sort_key=4)
STEPS = Group("Steps before the training", sort_key=5)
MEASURED = Group("What to measure", sort_key=0)
RETRIEVAL = Group("Retrieval", sort_key=2)
INDEX = Group("Index", sort_key=2)
CHANGES = Group("Changes to an index", sort_key=3)
QUERIES = Group("Queries", sort_key=1)
NEIGHBORS = Group("Neighbors", sort_key=2)
FOUND = Group("What to find", sort_key=2)
FORECAST = Group("How long training takes", sort_key=2)
SERVER = Group("Server", sort_key=2)
VERIFICATION = Group("Verification and identification", sort_key=3)
FEW_SHOTS = Group("Few shots", sort_key=4)
RUN = Group("Run", sort_key=6)
"""The groups of options in --help, in their order."""

DEFAULTS_IN_HELP = {
    "objective": "SupConLoss()",
    "trunk": "auto",
    "embedding_dim": "64",
    "sampler": "auto",
    "batch_size": "128",
    "epochs": "20",
    "lr": "0.001",
    "seed": "0",
    "split": "classes",
}
"""Defaults that --help shows for options whose default is None: those of `TrainConfig`, without importing it."""


def option(name: str, group: Group, defaults: Mapping[str, Any] = MappingProxyType(DEFAULTS_IN_HELP)) -> Parameter:
    """Return the help of an option whose default is None: its group, and the default that applies, if known."""
    if name in defaults:
        return Parameter(group=group, show_default=partial(_shown, str(defaults[name])))
    return Parameter(group=group)


def _shown(text: str, value: Any) -> str:
    return text


Out = Annotated[Path, Parameter(name=["--out", "-o"], group=RUN)]
TextOrNone = Annotated[str, Parameter(show_default=False)]  # "" where not given
Trust = Annotated[tuple[str, ...], Parameter(name="--trust", show_default=False, group=RUN)]
Overwrite = Annotated[bool, Parameter(group=RUN)]
Quiet = Annotated[bool, Parameter(group=RUN)]
TestData = Annotated[str | None, Parameter(group=DATA)]
TestClasses = Annotated[tuple[str, ...], Parameter(name="--test-class", show_default=False, group=DATA)]
HowSplit = Annotated[Split | None, option("split", DATA)]
Images = Annotated[tuple[Path, ...], Parameter(name="--images", show_default=False, group=DATA)]
Name = Annotated[str | None, Parameter(group=DATA)]
Label = Annotated[str | None, Parameter(group=DATA)]
DistanceName = Literal["cosine", "euclidean"]
Distance = Annotated[DistanceName | None, Parameter(group=MEASURED)]
Standardize = Annotated[bool, Parameter(group=DATA)]
SkipBad = Annotated[bool, Parameter(group=DATA)]
Partial = Annotated[bool, Parameter(group=DATA)]
Trunk = Annotated[str | None, option("trunk", NETWORK)]
TextTrunk = Annotated[str | None, Parameter(group=NETWORK)]
Pretrained = Annotated[str | None, option("pretrained", NETWORK)]
EmbeddingDim = Annotated[int | None, option("embedding_dim", NETWORK)]
ImageSize = Annotated[int | None, option("image_size", NETWORK)]
Objective = Annotated[str | None, option("objective", TRAINING)]
Recipe = Annotated[str | None, option("recipe", TRAINING)]
HowScored = Annotated[Protocol | None, Parameter(group=TRAINING, show_default=partial(_shown, "honest"))]
Sampler = Annotated[str | None, option("sampler", TRAINING)]
BatchSize = Annotated[int | None, option("batch_size", TRAINING)]
Epochs = Annotated[int | None, option("epochs", TRAINING)]
LearningRate = Annotated[float | None, option("lr", TRAINING)]
Augmentation = Annotated[str | None, option("augment", TRAINING)]
Seed = Annotated[int | None, option("seed", TRAINING)]
Settings = Annotated[tuple[str, ...], Parameter(name="--set", show_default=False, group=TRAINING)]

HOW_TO_CONTINUE = {
    "train": "; `nearfar train --resume --out RUN` continues from the last checkpoint, if there is one",
    "compare": "; run the same command again to continue",
}

HOW_TO_SAVE_MEMORY = {
    "train": "a smaller --batch-size or --image-size",
    "compare": "a smaller batch_size or image_size (--set)",
    "fit": "fewer n_components, landmarks or items",
}

HOW_TO_SKIP_BAD_IMAGES = {
    "train": "; --skip-bad leaves out such images; a run with a checkpoint continues with --resume --skip-bad",
    "compare": "; --set skip_bad=true leaves out such images",
}

LAUNCHER = "NEARFAR_LAUNCHER"
"""In the environment of the processes of a run, the number of the process that has started them."""
MESSAGE_FOLDER = "NEARFAR_MESSAGES"
"""Environment variable: the folder in which the processes of `launch` leave their last messages."""


OWN_MODULE = re.compile(r"(?<![\w.])([A-Za-z_]\w*)(?:\.\w+)*:[A-Za-z_]")  # matches the package in package.module:Name
HUBS = ("timm", "transformers")  # prefixes of trunks, which look like modules but are not


def is_first_process() -> bool:
    """Return whether this process is the one that prints and writes."""
    return int(os.environ.get("RANK", "0")) == 0


def launch(devices: int) -> NoReturn:
    """Run this command again under torchrun, one process per device; print only the message of the first to fail.

    The processes import modules from the same places as this one.
    """
    if devices < 1:
        raise ValueError(f"--devices: expected 1 or more, got {devices}")
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.CRITICAL)
    with TemporaryDirectory() as folder:
        messages = Path(folder, "messages")
        messages.mkdir()
        os.environ[MESSAGE_FOLDER] = str(messages)
        os.environ[LAUNCHER] = str(os.getpid())
        os.environ[OWN_MODULES] = folder_of_own_modules(sys.argv[1:])
        try:
            # torchrun never removes the log folder that it makes itself
            options = [f"--nproc_per_node={devices}", "--standalone", f"--log_dir={folder}/logs"]
            run.main([*options, "-m", "nearfar", *sys.argv[1:]])
        except SignalException as stopped:
            raise KeyboardInterrupt(stopped.sigval) from stopped
        except ChildFailedError as error:
            say(first_failure(messages, error.failures), file=sys.stderr)
            code = error.get_first_failure()[1].exitcode
            sys.exit(code if code > 0 else 1)
        finally:
            del os.environ[MESSAGE_FOLDER]
            del os.environ[LAUNCHER]
            del os.environ[OWN_MODULES]
    sys.exit(0)


def first_failure(folder: Path, failures: Mapping[int, Any]) -> str:
    """Return the reason why a training with several processes ended: the first failure, which made the others fail.

    Parameters
    ----------
    folder : Path
        Folder with the last messages of the processes.
    failures : mapping of int to ProcessFailure
        Failures that torchrun reports, by rank.
    """
    began = min(failure.timestamp for failure in failures.values())
    for rank, failure in failures.items():
        # torchrun ends the others by SIGTERM, and after 30 seconds by SIGKILL; its clock ticks in seconds
        if failure.exitcode < 0 and failure.exitcode != -signal.SIGTERM and failure.timestamp <= began + 1:
            if failure.exitcode == -signal.SIGKILL:
                why = ", perhaps because memory ran out"
            else:
                why = ""
            return f"nearfar: process {rank} was ended by {failure.signal_name()}{why}{HOW_TO_CONTINUE['train']}"
    left_messages = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    if not left_messages:
        rank, failure = next(iter(failures.items()))
        return f"nearfar: process {rank} ended with exit code {failure.exitcode}"
    text = left_messages[0].read_text("utf-8", errors="surrogateescape")
    return text if text.startswith("Traceback") else f"nearfar: {text}"


def folder_of_own_modules(words: Sequence[str]) -> str:
    """Return the working directory if it is on the import path or words name a module in it, and otherwise ""."""
    here = os.getcwd()
    packages = {name for word in words for name in OWN_MODULE.findall(word)}.difference(HUBS)
    trusted = [after.partition("=")[2] for after in words if after.startswith("--trust=")]
    trusted += [after for before, after in pairwise(words) if before == "--trust"]
    packages |= {name.strip().partition(".")[0] for names in trusted for name in names.split(",")}
    named = any(Path(f"{name}.py").is_file() or Path(name, "__init__.py").is_file() for name in packages if name)
    return here if named or here in sys.path else ""


@contextmanager
def importing_own_modules(words: Sequence[str]) -> Iterator[None]:
    """Let modules of the working directory be imported, after all others, if a command names one of them."""
    folder = folder_of_own_modules(words)
    added = bool(folder) and folder not in sys.path
    if added:
        sys.path.append(folder)
    try:
        yield
    finally:
        if added:
            sys.path.remove(folder)


def print_message(message: str) -> None:
    """Print why the command ends; one of several processes leaves the message to the command that started it."""
    if not leave_message(message) and sys.stderr is not None:  # if stderr is closed, print would use stdout
        say(f"nearfar: {message}", file=sys.stderr)


def leave_message(message: str) -> bool:
    """Leave the message of one of several processes to the command that started it; return False if there is none."""
    folder = os.environ.get(MESSAGE_FOLDER)
    if folder is None:
        return False
    Path(folder, os.environ.get("RANK", "0")).write_text(message, "utf-8", errors="surrogateescape")
    return True


def memory_advice(error: Exception, command: str) -> str | None:
    """Return a message that says what to do if memory or threads ran out; None for other errors.

    PyTorch raises an OutOfMemoryError for accelerators, but a plain RuntimeError for the memory of the CPU.
    """
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "the system allows no more threads (see ulimit -u); end other processes, or try with OMP_NUM_THREADS=1"
    text = " ".join(str(error).split()).rpartition("DefaultCPUAllocator: ")[2]
    of_torch = type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator: " in str(error)
    if not (of_torch or isinstance(error, MemoryError)):
        return None
    reason = f" ({text})" if text else ""
    return f"out of memory{reason}; try {HOW_TO_SAVE_MEMORY.get(command, 'a part of the items at a time')}"


def skip_bad_advice(error: Exception, command: str) -> str:
    """Return how to leave out an image that cannot be decoded; "" for other errors."""
    if type(error).__name__ != "BadImageError":
        return ""
    return HOW_TO_SKIP_BAD_IMAGES.get(command, "; --skip-bad leaves out such images")


def with_setting(message: str, command: str) -> str:
    """Return an error of the parser; for an unknown option, add the option or setting that was probably meant."""
    option = re.match(r'Unknown option: "?--([\w-]+)', message)  # older versions of the parser quote the option
    if option is None or command not in HOW_TO_CONTINUE:
        return message
    from ..train import TrainConfig
    from ..train.config import NAMES_ELSEWHERE

    name = option[1].replace("-", "_")
    if name in NAMES_ELSEWHERE:
        without_guess = message.partition(" Did you mean")[0]
        return f"{without_guess} Use --{NAMES_ELSEWHERE[name].replace('_', '-')}."
    if name in TrainConfig.settings():
        return f"{message} Use --set {name}=VALUE."
    return message


def make_config(
    chosen: dict[str, Any],
    settings: tuple[str, ...],
    recipe: str | None,
    resumed: Path | None = None,
    varied: Collection[str] = (),
    protocol: str | None = None,
) -> Any:
    """Return the TrainConfig of a recipe, overridden by the given options, which are overridden by --set.

    A `resumed` run has its own settings. Given options override them, so that training refuses those that differ; if
    none is given, None is returned. Epochs that are given, or `varied`, replace the steps of a recipe or of a run.

    Raises
    ------
    ValueError
        If there is no data, or both epochs and steps are given.
    """
    from ..train import TrainConfig

    fields: dict[str, Any] = {}
    base = None
    if resumed is not None:
        if not (settings or recipe or protocol or any(value is not None for value in chosen.values())):
            return None
        base = TrainConfig.from_json(resumed / "config.json")
    if recipe:
        from ..train import recipe as read_recipe

        fields |= read_recipe(recipe, protocol or "honest")
    elif protocol is not None:
        fields["protocol"] = protocol
    given = given_settings(chosen, settings)
    fields |= given
    if "epochs" in given or "epochs" in varied:
        if given.get("steps") is not None or "steps" in varied:
            raise ValueError("epochs and steps: both set the length of training; give only one of them")
        fields["steps"] = None
    if base is None and "data" not in fields:
        raise ValueError("DATA: expected the data to train on, for example `nearfar train glyphs --out runs/glyphs`")
    config = TrainConfig.of(**fields) if base is None else base.replace(**fields)
    require(*(["timm"] if config.trunk.startswith("timm:") else []), *(["tensorboard"] if config.tensorboard else []))
    return config


def given_settings(chosen: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return the settings that are given as options and by --set, which takes precedence."""
    given = {name: value for name, value in chosen.items() if value is not None}
    return given | dict(_setting(text) for text in settings)


def true_or_text(given: str | None) -> bool | str | None:
    """Convert an option that is true, false or a text; None if it is not given."""
    return {"true": True, "false": False}.get(str(given).lower(), given)


def refuse_beside_final(chosen: Mapping[str, Any], what_final_does: str) -> None:
    """Refuse options that contradict --final, such as settings other than those of the run that was scored."""
    given = [name for name, value in chosen.items() if value is not None]
    if given:
        option = {"data": "DATA"}.get(given[0], f"--{given[0].replace('_', '-')}")
        raise ValueError(f"{option}: does not work with --final, which {what_final_does}; leave it out")


def check_out(out: Path, name: str = "--out", *, overwrite: bool = True) -> None:
    """Create the folder of an output file. Raise early, before the work, if the file cannot be written.

    Pages and tables may be replaced. Inputs of other commands, such as learners, are replaced only with --overwrite.

    Parameters
    ----------
    out : Path
        The file.
    name : str
        Name of the option.
    overwrite : bool
        Whether an existing file may be replaced.

    Raises
    ------
    ValueError
        If there is a folder of that name, its folder cannot be created or is not writable, or it must not be replaced.
    """
    if out.is_dir():
        raise ValueError(f"{name}: {out} is a folder; expected the name of a file")
    if out.exists() and not overwrite:
        raise ValueError(f"{name}: {out} exists; pass --overwrite to replace it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{name}: the folder {out.parent} cannot be created ({error.strerror})") from error
    if not os.access(out.parent, os.W_OK):
        raise ValueError(f"{name}: the folder {out.parent} is not writable")


TABLES = (".csv", ".tex", ".md")


def check_table(path: Path) -> None:
    """Raise early, before the trainings, if the file for the table has another ending or cannot be written."""
    if path.suffix not in TABLES:
        raise ValueError(
            f"--table: {path}: expected a file that ends in .csv, .tex or .md; --out is the folder of the runs"
        )
    check_out(path, name="--table")


def varied_settings(vary: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return the distinct values of every setting that is given as name=value."""
    found: dict[str, list[Any]] = {}
    for name, value in (_setting(text, "--vary") for text in vary):
        values = found.setdefault(name, [])
        if value not in values:
            values.append(value)
    return found


def _setting(text: str, option: str = "--set") -> tuple[str, Any]:
    """Split name=value; the value is read as JSON if possible (0.1, true, [1, 2]), else as text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{option}: expected name=value, got {quoted(text)}")
    try:
        return name, parse_json(value)
    except ValueError:
        return name, value
