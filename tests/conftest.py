"""What the tests of several folders share."""

import gc
import os
import re
import sys
from contextlib import suppress
from inspect import getsource

import pytest

from . import forking

VISION = {"peft", "timm", "torchvision"}  # fixtures


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for garbage after the collection of tests only, seldom, and not in the millions of objects that it leaves.

    Parsed files, and libraries that a test imports, are millions more, which Python would look through again and again.
    """
    gc.disable()
    gc.set_threshold(10_000, 20, 20)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items):
    """Mark the tests that ask for a package of `make test-vision`, which runs these and no others."""
    for item in items:
        if VISION & {*getattr(item, "fixturenames", ())}:
            item.add_marker("vision")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Look for examples in docstrings of the library only: tests have none, and are so collected once."""
    collectors = yield
    return [collector for collector in collectors if type(collector).__name__ != "DoctestModule"]


def pytest_addoption(parser):
    parser.addoption("--costs", type=int, default=0, help="list so many tests that took the most processor time")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Note when a test begins, in seconds of processor time: the first test that asks for a fixture pays for it."""
    item.begun = processor_time()
    return (yield)


def processor_time():
    """Return the seconds that this process, those that it has started, and those that were forked have taken."""
    return sum(os.times()[:4]) + sum(forking.SPENT)


def pytest_terminal_summary(terminalreporter, config):
    """List the tests that took the most processor time; that of the clock depends on what else runs."""
    reports = [report for report in terminalreporter.stats.get("", ()) if report.when == "teardown"]
    noted = [(dict(report.user_properties).get("cost"), report.nodeid) for report in reports]
    costs = sorted(((cost, name) for cost, name in noted if cost is not None), reverse=True)  # none for docstrings
    if config.option.costs:
        terminalreporter.section(f"{sum(cost for cost, _ in costs):.0f} s of processor time, {len(costs)} tests")
    for cost, name in costs[: config.option.costs]:
        terminalreporter.write_line(f"{cost:7.2f} s {name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Name the files of a method that fails a law, and where a law that it cannot obey is excepted."""
    report = yield
    if report.when == "teardown":
        report.user_properties.append(("cost", processor_time() - item.begun))
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    method = parameters.get("method")
    if report.failed and hasattr(method, "stem") and item.path.name in ("test_learners.py", "test_losses.py"):
        text = f"{method.name}: {method.path}, and its formula in loops: tests/references/{method.stem}.py"
        laws = re.findall(r'law\("([^"]+)", method\)', getsource(item.function))
        for law in [*laws, *filter(None, [parameters.get("case")])]:
            text += f"\nIf it cannot obey this law, say why there: EXCEPTIONS = {{{law!r}: 'it ...'}}"
        report.sections.append(("files to edit", text))
    return report


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory):
    """What is kept between runs is kept elsewhere than the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEARFAR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def rough_maps():
    """Maps of reports have 200 items at most and take as few steps as scikit-learn allows: most of a report's time."""
    with pytest.MonkeyPatch.context() as patch:
        with suppress(ImportError):  # packages of the report need not be there
            patch.setattr("nearfar.report.tsne.MAP_STEPS", 250)
            patch.setattr("nearfar.report.analysis.TILES", 200)
            patch.setattr("nearfar.report.analysis.LIMIT", 200)
        yield


@pytest.fixture(autouse=True, scope="session")
def quick_seeds():
    """`torch.manual_seed` seeds the processor only, where there is no accelerator.

    PyTorch formats the stack for each kind of accelerator that is not there: milliseconds, in half of the tests.
    """
    torch = sys.modules.get("torch")
    with pytest.MonkeyPatch.context() as patch:
        if torch is not None and not torch.accelerator.is_available():
            patch.setattr(torch, "manual_seed", torch.default_generator.manual_seed)
        yield


@pytest.fixture(scope="session")
def few_digits(tmp_path_factory):
    """Forty images of each digit, with which a run takes a third of the time of all; 0 to 4 are seen."""
    import numpy as np
    from sklearn.datasets import load_digits  # a second to import

    digits = load_digits()
    kept = np.concatenate([np.flatnonzero(digits.target == digit)[:40] for digit in range(10)])
    images, y = digits.images[kept, :, :, None], digits.target[kept]
    path = tmp_path_factory.mktemp("digits") / "few.npz"
    np.savez(path, X=(15 * images).astype(np.uint8), y=y, split=np.where(y < 5, "train", "test"))
    return str(path)


@pytest.fixture(params=["small", "large"])
def ways(request, monkeypatch):
    """Small matrices on a host take other ways to the same numbers than large ones."""
    pytest.importorskip("torch")
    from nearfar.deep.pairwise import comparison

    if request.param == "large":
        monkeypatch.setattr(comparison, "SMALL_BLOCK", 1)


@pytest.fixture
def planted(tmp_path):
    """A folder of data in which lie modules called like those that we need; one that is run leaves a file *.ran."""
    folder = tmp_path / "planted"
    folder.mkdir()
    for name in ("accelerate", "torch", "numpy", "pickle", "socket"):
        text = "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\nraise ImportError('planted')\n"
        (folder / f"{name}.py").write_text(text)
    return folder


OPERATORS = (
    "nms",
    "qnms",
    "roi_align",
    "qroi_align",
    "_roi_align_backward",
    "ps_roi_align",
    "_ps_roi_align_backward",
    "roi_pool",
    "_roi_pool_backward",
    "ps_roi_pool",
    "_ps_roi_pool_backward",
    "deform_conv2d",
    "_deform_conv2d_backward",
)


def load_torchvision():
    """Import torchvision, also where it was built for another torch: its operators are declared, and none is called."""
    from torch import library

    try:
        import torchvision
    except RuntimeError:
        for name in OPERATORS:
            library.define(f"torchvision::{name}", "(Tensor input) -> Tensor")
        import torchvision
    return torchvision


def prepare_transformers():
    """Let transformers be imported: it needs no torchvision, but imports one that is there."""
    with suppress(ImportError):
        load_torchvision()


@pytest.fixture(scope="session")
def torchvision():
    """torchvision, where it is installed."""
    pytest.importorskip("torch")
    pytest.importorskip("PIL")
    try:
        return load_torchvision()
    except ImportError:
        pytest.skip("torchvision is not installed")


@pytest.fixture(scope="session")
def timm(torchvision):
    """The library of models, where it can be imported."""
    return pytest.importorskip("timm", exc_type=ImportError)


@pytest.fixture(scope="session")
def peft(transformers):
    """The library of adapters, where it can be imported."""
    return pytest.importorskip("peft")


@pytest.fixture(scope="session")
def transformers():
    """The library of models, where it can be imported."""
    pytest.importorskip("torch")
    prepare_transformers()
    return pytest.importorskip("transformers", exc_type=ImportError)
