"""Nothing is left on the processor when embeddings are on an accelerator, which here is one in name only."""

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")

from torch.utils import backend_registration

from nearfar.catalog import METHODS

from .. import forking

ROOT = Path(__file__).parents[2]
NAMES = [m.name for m in METHODS if m.kind in ("loss", "regularizer", "head")]
NAMES += ["BatchAll", "BatchHard", "BatchSemiHard", "EasyPositive", "ExtremeDistance", "CrossBatchMemory"]
NAMES += ["InformativePairs", "semihard", "hard", "soft", "swap"]
NAMES += ["evaluate", "verify", "augment", "train"]


@pytest.fixture(scope="module")
def outcomes():
    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this PyTorch has no devices written in Python")
    environment = {**os.environ, "ACCELERATE_TORCH_DEVICE": "far"}
    for _ in range(3):  # PyTorch's threads for such a device have been seen to end the process with a signal
        done = forking.run("-m", "tests.deep.accelerator", cwd=ROOT, env=environment)
        if done.returncode >= 0:
            break
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow  # a process that tries everything
@pytest.mark.parametrize("name", NAMES)
def test_works_on_a_device_and_gives_the_same_there(outcomes, name):
    assert outcomes[name] == pytest.approx(0, abs=1e-9)
