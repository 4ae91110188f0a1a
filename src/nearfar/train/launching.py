"""One process per device: start them under torchrun, and return only the message of the first that fails."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..children import OWN_MODULES

LAUNCHER = "NEARFAR_LAUNCHER"
"""In the environment of the processes of a run, the number of the process that has started them."""
MESSAGE_FOLDER = "NEARFAR_MESSAGES"
"""Environment variable: the folder in which the processes of `launch` leave their last messages."""


def is_first_process() -> bool:
    """Return whether this process is the one that prints and writes."""
    return int(os.environ.get("RANK", "0")) == 0


def run_processes(words: Sequence[str], devices: int, *, own_modules: str = "", advice: str = "") -> tuple[int, str]:
    """Run `python -m nearfar` with these words under torchrun, one process per device.

    Parameters
    ----------
    words : sequence of str
        The command, such as ["train", "digits", ...].
    devices : int
        Number of processes.
    own_modules : str
        Folder from which the processes import modules of the user; "" for none.
    advice : str
        How to continue, after the signal that has ended a process.

    Returns
    -------
    tuple of int and str
        The exit code, and the message of the first process that failed, or "".
    """
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.CRITICAL)
    with TemporaryDirectory() as folder:
        messages = Path(folder, "messages")
        messages.mkdir()
        os.environ[MESSAGE_FOLDER] = str(messages)
        os.environ[LAUNCHER] = str(os.getpid())
        os.environ[OWN_MODULES] = own_modules
        try:
            # torchrun never removes the log folder that it makes itself
            options = [f"--nproc_per_node={devices}", "--standalone", f"--log_dir={folder}/logs"]
            run.main([*options, "-m", "nearfar", *words])
        except SignalException as stopped:
            raise KeyboardInterrupt(stopped.sigval) from stopped
        except ChildFailedError as error:
            code = error.get_first_failure()[1].exitcode
            return code if code > 0 else 1, first_failure(messages, error.failures, advice)
        finally:
            del os.environ[MESSAGE_FOLDER]
            del os.environ[LAUNCHER]
            del os.environ[OWN_MODULES]
    return 0, ""


def first_failure(folder: Path, failures: Mapping[int, Any], advice: str = "") -> str:
    """Return the reason why a training with several processes ended: the first failure, which made the others fail.

    Parameters
    ----------
    folder : Path
        Folder with the last messages of the processes.
    failures : mapping of int to ProcessFailure
        Failures that torchrun reports, by rank.
    advice : str
        How to continue, after the signal that has ended a process.
    """
    began = min(failure.timestamp for failure in failures.values())
    for rank, failure in failures.items():
        # torchrun ends the others by SIGTERM, and after 30 seconds by SIGKILL; its clock ticks in seconds
        if failure.exitcode < 0 and failure.exitcode != -signal.SIGTERM and failure.timestamp <= began + 1:
            if failure.exitcode == -signal.SIGKILL:
                why = ", perhaps because memory ran out"
            else:
                why = ""
            return f"nearfar: process {rank} was ended by {failure.signal_name()}{why}{advice}"
    left_messages = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    if not left_messages:
        rank, failure = next(iter(failures.items()))
        return f"nearfar: process {rank} ended with exit code {failure.exitcode}"
    text = left_messages[0].read_text("utf-8", errors="surrogateescape")
    return text if text.startswith("Traceback") else f"nearfar: {text}"


def leave_message(message: str) -> bool:
    """Leave the message of one of several processes to the command that started it; return False if there is none."""
    folder = os.environ.get(MESSAGE_FOLDER)
    if folder is None:
        return False
    Path(folder, os.environ.get("RANK", "0")).write_text(message, "utf-8", errors="surrogateescape")
    return True
