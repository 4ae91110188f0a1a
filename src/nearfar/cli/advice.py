"""What to do about an error: how to continue, to save memory, to leave out images, to spell an option."""

from __future__ import annotations

import re

from .option_names import WITH_SETTINGS

HOW_TO_CONTINUE = {
    "train": "; `nearfar train --resume --out RUN` continues from the last checkpoint, if there is one",
    "compare": "; run the same command again to continue",
    "embed": "; the same command continues, if OUT is a folder",
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
    if option is None or command not in WITH_SETTINGS:
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
