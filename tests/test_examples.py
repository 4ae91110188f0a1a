"""Every script of `examples/` runs, says something, and what its statement claims is so."""

import ast
import os
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from . import forking
from .processes import run_in_processes

EXAMPLES = Path(__file__).parents[1] / "examples"
LIBRARIES = {  # examples of other people's loops, and the part of their library without which they do not run
    "loop_of_accelerate": "accelerate:Accelerator",
    "module_of_lightning": "pytorch_lightning:LightningModule",
    "trainer_of_sentence_transformers": "sentence_transformers:SentenceTransformerTrainer",
    "trainer_of_transformers": "transformers:Trainer",
}
OF_PROCESSES = ("distributed_data_parallel", "sharded_by_fsdp2", *LIBRARIES)
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
QUICK = {"active_pairs", "imbalance", "stream_of_pairs", "uncertain_distances", "wrong_labels"}
SCRIPTS = [
    pytest.param(path, id=path.stem, marks=() if path.stem in QUICK else pytest.mark.slow)
    for path in sorted(EXAMPLES.glob("*.py"))
    if path.stem not in OF_PROCESSES
]


@pytest.fixture(autouse=True)
def small_and_offline(monkeypatch):
    """Examples have one core, and ask no hub."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def run_alone(path, folder):
    """Run an example in a folder, and return the lines that it prints."""
    doc = ast.get_docstring(ast.parse(path.read_text()))
    assert doc, "its statement is on top"
    assert f"python examples/{path.name}" in doc
    environment = {**os.environ, "PYTHONWARNINGS": "error::UserWarning:__main__"}
    ran = forking.run(path, cwd=folder, env=environment)
    assert ran.returncode == 0, ran.stderr[-2000:]
    lines = ran.stdout.splitlines()
    assert len(lines) >= 3
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS)
def test_example_runs_and_prints_its_result(path, tmp_path):
    run_alone(path, tmp_path)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_example_has_a_picture_in_the_gallery(path):
    """The documentation runs an example that draws; any other names a picture that `docs/figures.py` draws."""
    docs = EXAMPLES.parent / "docs"
    drawing = re.search(r"^DRAWING = \((.*?)^\)", (docs / "conf.py").read_text(), re.S | re.M)[1]
    text = path.read_text()
    if f'"{path.stem}"' in drawing:
        assert "sys.argv[1]" in text
        assert "[FIGURE.png]" in text
    else:
        picture = re.search(r'^# sphinx_gallery_thumbnail_path = "pictures/(\w+)\.svg"$', text, re.M)
        assert picture
        assert re.search(rf'^    "{picture[1]}": \w+,$', (docs / "figures.py").read_text(), re.M)


def skip_without(name):
    """Skip an example of a library that is not installed, or that cannot be loaded beside the torch that is."""
    if name == "trainer_of_sentence_transformers":
        pytest.importorskip("datasets")
    module, _, part = LIBRARIES.get(name, "nearfar:catalog").partition(":")
    try:
        getattr(pytest.importorskip(module, exc_type=ImportError), part)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"{module} cannot be loaded: {str(error).splitlines()[0]}")


def run_as_torchrun(rank, world, path):
    """Run a script in one of several processes, with the environment that torchrun gives it."""
    os.environ |= {"LOCAL_WORLD_SIZE": str(world), "TORCHELASTIC_RUN_ID": "none"}
    sys.argv = [path]
    runpy.run_path(path, run_name="__main__")


def run_together(path):
    """Run an example in two processes, and return the lines that they print.

    torchrun itself starts only one example: it starts Python for each process, and most of the time goes into imports.
    """
    if path.stem != OF_PROCESSES[0] and hasattr(os, "fork"):
        library = LIBRARIES.get(path.stem, "torch").partition(":")[0]
        return run_in_processes(run_as_torchrun, 2, str(path), imported=library).splitlines()
    ran = forking.run(*TORCHRUN, path)
    assert ran.returncode == 0, ran.stderr  # what a process says stands before what torchrun says of it
    return ran.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_PROCESSES)
def test_two_processes_train_what_one_does(name, tmp_path):
    """The scripts print the first value, the length of its gradient, and the last value."""
    skip_without(name)
    path = EXAMPLES / f"{name}.py"
    said = []
    for lines in (run_alone(path, tmp_path), run_together(path)):
        parts = [line.rpartition(": ") for line in lines]
        said.append({what: float(number) for what, _, number in parts if "step" in what or "gradient" in what})
    assert len(said[0]) == 3
    assert said[1] == pytest.approx(said[0], rel=1e-3)


def load(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


@pytest.mark.slow
def test_more_pairs_make_distances_surer():
    rows = load("uncertain_distances")["from_pairs"]((20, 320))
    assert rows[1][1] < rows[0][1]
    assert rows[1][2] < rows[0][2]


@pytest.mark.slow
def test_asking_well_beats_asking_at_random():
    found = load("active_pairs")["curves"]()
    for strategy in ("entropy", "bald"):
        assert found[strategy][-1] > found["random"][-1] + 0.01
    np.testing.assert_allclose(found["entropy"][0], found["random"][0])


def test_active_pairs_draws_a_figure(tmp_path):
    pytest.importorskip("matplotlib")
    module = load("active_pairs")
    module["draw"]({"random": np.linspace(0.5, 0.8, 7)}, str(tmp_path / "curve.png"))
    assert (tmp_path / "curve.png").stat().st_size > 1000


@pytest.mark.slow
def test_dmbk_keeps_the_rare_class():
    recalls = load("imbalance")["recalls"]
    plain, learned = recalls("all features", 2), recalls("DMBK, separating", 2)
    assert learned[2] > plain[2] + 0.2
    assert learned.mean() > plain.mean() + 0.05


def test_the_stream_helps():
    module = load("stream_of_pairs")
    X, y, *_ = module["world"]()
    ((_, online, *_),) = module["follow"]((10,))
    assert online > module["accuracy"](None, X, y) + 0.005


def test_near_pairs_of_two_classes_hold_wrong_labels():
    rows = load("wrong_labels")["looked_at"]((50, 400))
    assert rows[0][1] > 0.95
    assert rows[1][1] > 0.9
    assert rows[1][2] > 0.5


@pytest.mark.slow
def test_a_loop_of_accelerate_learns():
    pytest.importorskip("accelerate")
    before, after, values, _ = load("loop_of_accelerate")["train"](3)
    assert after > before
    assert 0 < values[-1] < 1
