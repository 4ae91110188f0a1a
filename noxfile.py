"""The tests as other computers see them: `make test-matrix`, or one session, `nox -s "blas(Haswell)"`.

Environment variables choose the kernels of the processor, in the environment that runs nox. The oldest and newest
dependencies are installed into environments of their own, for each Python that is found. `nox -s machine` says which
Pythons are found; each environment says which versions it has.
"""

import os
import platform
import shutil
import subprocess
import sys

import nox

nox.options.error_on_missing_interpreters = False
PYTHONS = ["3.11", "3.12", "3.13"]
CORES = ["Haswell", "Zen", "SkylakeX", "Prescott"]  # AVX2 twice, AVX-512, SSE3
NUMERICAL = [
    f"tests/{room}" for room in ("estimators", "evaluation", "neighbors", "numerics", "probabilistic", "spectral")
]
DEEP = ["tests/deep", "tests/test_losses.py"]
PYTEST = ["-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider"]
TORCH_INDEX = os.environ.get("TORCH_INDEX", "https://download.pytorch.org/whl/cpu")  # "" is pip's own
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def found(version: str) -> str:
    """Return the path and full version of a Python, or "" if it is missing or does not start."""
    path = shutil.which(f"python{version}")
    if path is None:
        return ""
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return f"{path}, {told.stdout.strip()}" if told.returncode == 0 else ""


@nox.session(venv_backend="none")
def machine(session: nox.Session) -> None:
    """Say which processor and Pythons this machine has; sessions of other Pythons are skipped."""
    session.log(f"{platform.platform()}, {platform.machine()}, {os.cpu_count()} cores")
    for version in PYTHONS:
        session.log(f"Python {version}: {found(version) or 'not found, its sessions are skipped'}")


@nox.session(venv_backend="none")
@nox.parametrize("core", CORES, ids=CORES)
def blas(session: nox.Session, core: str) -> None:
    """Run the numerical folders with OpenBLAS's kernels of another processor."""
    session.run(sys.executable, *PYTEST, *NUMERICAL, *session.posargs, env={"OPENBLAS_CORETYPE": core, **ONE_THREAD})


@nox.session(venv_backend="none")
@nox.parametrize(
    ("variable", "value"),
    [("ATEN_CPU_CAPABILITY", "default"), ("ATEN_CPU_CAPABILITY", "avx2"), ("ONEDNN_MAX_CPU_ISA", "AVX2")],
    ids=["default", "avx2", "onednn"],
)
def torch_kernels(session: nox.Session, variable: str, value: str) -> None:
    """Run the tests of deep metric learning with PyTorch's kernels of another processor."""
    session.run(sys.executable, *PYTEST, *DEEP, *session.posargs, env={variable: value, **ONE_THREAD})


@nox.session(python=PYTHONS)
@nox.parametrize("extras", ["rows", "all"], ids=["rows", "all"])
@nox.parametrize("versions", ["oldest", "newest"], ids=["oldest", "newest"])
def dependencies(session: nox.Session, versions: str, extras: str) -> None:
    """Run the tests with the oldest or newest dependencies: those of rows alone, or of everything."""
    if versions == "oldest" and session.python != "3.11":
        session.skip("the oldest versions have no wheels for later Pythons")
    pins = ["-c", "constraints-oldest.txt"] if versions == "oldest" else ["--upgrade"]
    if extras == "all":
        index = ["--index-url", TORCH_INDEX] if TORCH_INDEX else []
        session.install(*pins, *index, "torch")
        session.install(*pins, "-e", ".[all]", "pandas")
    else:
        session.install(*pins, "-e", ".")
    session.install("pytest>=8", "pytest-xdist>=3", "hypothesis>=6")
    session.run("python", "-m", "pip", "freeze", "--exclude-editable")  # the versions that are tested
    folders = [*NUMERICAL, *DEEP, "tests/data", "tests/index", "tests/train"] if extras == "all" else NUMERICAL
    session.run("python", *PYTEST, *folders, *session.posargs, env=ONE_THREAD)
