"""Run a command on damaged input, and say what is wrong with how it ends."""

import contextlib
import hashlib
import io
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nearfar import cli

from .cases import Words, kind_of, prepared
from .corpus import make

SECONDS = 10
"""Of processor time, which does not grow where others use the machine."""

WAITING = 20
"""Seconds on the clock, after which a case that has hardly worked in them waits for what never comes."""

ASLEEP = 0.2
"""Seconds of processor time within that, below which a case waits: to look for a lock again and again takes some."""

MEMORY = 3 * 2**30
"""Bytes of address space that a case may take beyond what the process has."""

LONGEST = 1500


class TooLong(BaseException):
    """The case took longer than it may."""


class Failure(NamedTuple):
    """What a case did wrong."""

    seed: int
    kind: str
    words: Words
    what: str

    def __str__(self) -> str:
        words = " ".join(str(word)[:80] for word in self.words)
        return f"seed {self.seed} ({self.kind}): nearfar {words}\n    {self.what}"


@contextlib.contextmanager
def corpus() -> Iterator[Path]:
    """The valid files, in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        yield Path(folder)


def run_case(seed: int, valid: Path, keep: Path | None = None) -> Failure | None:
    """Run one case; return what is wrong, or None."""
    place = Path(tempfile.mkdtemp())
    folder = place / "case"
    try:
        words = prepared(seed, valid, folder)
        what = ended(words, folder)
        if keep is not None:
            shutil.copytree(folder, keep, symlinks=True)
        return None if what is None else Failure(seed, kind_of(seed), words, what)
    finally:
        shutil.rmtree(place)


def ended(words: Words, folder: Path) -> str | None:
    """Run a command in a folder; say what is wrong with how it ends, or None."""
    before = state(folder)
    said = io.StringIO()
    code: object = 0
    try:
        with contextlib.chdir(folder), limited(), quiet(said, words):
            cli.main()
    except SystemExit as stop:
        code = stop.code
    except TooLong:
        return f"took longer than {SECONDS} s of work, or waited for {WAITING} s; at {where()}"
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in last if "nearfar" in frame.filename] or last
        return f"{type(error).__name__} at {Path(own[-1].filename).name}:{own[-1].lineno}: {str(error)[:200]}"
    return wrong_end(code, said.getvalue(), before, state(folder), words)


def wrong_end(code: object, said: str, before: dict[str, str], after: dict[str, str], words: Words) -> str | None:
    """Say what is wrong with a command that has ended by itself."""
    told = [line for line in said.splitlines() if line.startswith("nearfar: ") and "nearfar: warning" not in line]
    longest = max(map(len, said.splitlines()), default=0) if code else max(map(len, told), default=0)
    if code not in (0, None, 2):
        return f"exit code {code}"
    if code and len(told) != 1:
        return f"{len(told)} lines of error: {said[:300]!r}"
    if longest > LONGEST:
        return f"a message of {longest} characters: {said[:120]!r}"
    if "out of memory" in said:
        return f"took more memory than {MEMORY >> 30} GB: {said[:200]!r}"
    if told and "with NEARFAR_DEBUG=1" in told[0]:
        return f"an error of our own taken for that of a user's module: {told[0][:300]}"
    left = sorted(set(after) - set(before))
    partial = [name for name in left if name.endswith(".partial")]
    if partial:
        return f"left {partial[0]}"
    if code and left and words[0] != "train":
        return f"failed, and left {left[0]}"
    if (
        code
        and words[0] == "train"
        and any(name.startswith("new/") for name in left)
        and "new/last.safetensors" not in left
    ):
        return f"failed without a checkpoint, and left {left[0]}"
    changed = sorted(name for name in before if after.get(name) != before[name])
    if code and words[0] not in ("train", "compare") and changed:
        return f"failed, and changed {changed[0]}"
    return None


def state(folder: Path) -> dict[str, str]:
    """The files of a folder, with a digest of each."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or (path.exists() and not path.is_file()):
            found[name] = "special"
        elif path.is_file() and not name.endswith(".lock"):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return {name: digest for name, digest in found.items() if not (folder / name).is_dir()}


class Place:
    """Where a case was when its time was over, and how much it had worked at the last look."""

    at = ""
    worked = 0.0


def where() -> str:
    return Place.at


def over(number: int, frame: object) -> None:
    """End the case."""
    stack = [line for line in traceback.extract_stack(frame) if "nearfar" in line.filename]  # type: ignore[arg-type]
    Place.at = f"{Path(stack[-1].filename).name}:{stack[-1].lineno}" if stack else "no line of ours"
    raise TooLong


def waits(number: int, frame: object) -> None:
    """End the case where it has done nothing since the last look: others may use the machine, but not all of it."""
    worked, before = time.process_time(), Place.worked
    Place.worked = worked
    if worked - before < ASLEEP:
        over(number, frame)


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Bound the time and, where the system can, the memory that the commands within take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = Path("/proc/self/statm")
    if pages.exists():
        now = int(pages.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, hard))
    ends = {signal.SIGPROF: over, signal.SIGALRM: waits}
    handlers = {number: signal.signal(number, end) for number, end in ends.items()}
    Place.worked = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAITING, WAITING)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def quiet(said: io.StringIO, words: Words) -> Iterator[None]:
    """Give words to the command line and collect what it says; its messages are as long as they were made."""
    before, longest = sys.argv, cli.MAX_MESSAGE_LENGTH
    sys.argv = ["nearfar", *map(str, words)]
    cli.MAX_MESSAGE_LENGTH = 10**9
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.argv = before
        cli.MAX_MESSAGE_LENGTH = longest
