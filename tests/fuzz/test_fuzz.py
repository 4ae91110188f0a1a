"""Damaged input of every kind ends in one clear line, soon, and leaves nothing behind; `tools/fuzz.py` runs more."""

import faulthandler
import inspect
from contextlib import suppress
from types import ModuleType

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("pyarrow")
pytest.importorskip("soundfile")
pytest.importorskip("resource")
pytestmark = pytest.mark.slow

from nearfar.data import cells
from nearfar.data.items import open_items
from nearfar.data.readers import arrays, crop_boxes, manifest, parquet
from nearfar.io import untrusted as reading
from nearfar.io.formats import READERS, reader_of

from .cases import KINDS, kind_of
from .runner import corpus, run_case

CASES = 500


@pytest.fixture(scope="module")
def valid():
    faulthandler.dump_traceback_later(600, exit=True)  # what hangs in C, no signal ends
    with corpus() as folder:
        yield folder
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.parametrize("start", range(0, CASES, 50))
def test_damaged_input_ends_in_one_clear_line(valid, start):
    failures = [run_case(seed, valid) for seed in range(start, start + 50)]
    assert not [str(failure) for failure in failures if failure]


def test_every_reader_has_a_valid_file(valid):
    """Which it opens; `any_source` damages one of each."""
    opened = set()
    for path in valid.iterdir():
        reader = reader_of(path)
        if reader is not None and reader.name not in opened:
            with suppress(ValueError):  # of other files of its kind, such as a table of pairs
                opened |= {reader.name} if len(open_items(path)) else set()
    missing = {reader.name for reader in READERS if not reader.is_named} - opened
    assert not missing, f"tests/fuzz/corpus.py: a valid file or folder of {missing}"


def test_every_kind_is_among_the_cases():
    assert {kind_of(seed) for seed in range(CASES)} == set(KINDS)


def put_back(monkeypatch, module: ModuleType, name: str, new: str, old: str) -> None:
    """Give a function of a module as it would be with some of its text replaced."""
    text = inspect.getsource(module)
    assert old in text
    made = {"__name__": module.__name__, "__package__": module.__package__, "__file__": module.__file__}
    exec(compile(text.replace(old, new), str(module.__file__), "exec"), made)
    monkeypatch.setattr(module, name, made[name])


def boxes_without_end(monkeypatch):
    put_back(
        monkeypatch,
        crop_boxes,
        "_box",
        old="    except OverflowError:\n        expected",
        new="    except KeyError:\n        expected",
    )
    return {"table of images"}


def deep_json(monkeypatch):
    put_back(monkeypatch, reading, "parse_json", old="except RecursionError", new="except KeyError")
    return {"config", "comparison"}


def absurd_headers(monkeypatch):
    monkeypatch.setattr(arrays, "DAMAGED", arrays.BROKEN)
    monkeypatch.setattr(arrays, "_check_header", lambda file, size, name="": None)
    return {"npz", "npy"}


def whole_values(monkeypatch):
    monkeypatch.setattr(manifest, "quoted", repr)
    monkeypatch.setattr(manifest, "shorten", lambda text, most=0: text)
    return {"csv", "json lines", "table of images"}


def metadata_that_do_not_fit(monkeypatch):
    put_back(monkeypatch, parquet, "_called", old="type(number) is not int", new="False")
    return {"parquet"}


def integers_without_end(monkeypatch):
    put_back(
        monkeypatch,
        cells,
        "numbers_in",
        old="    except OverflowError:  # integers",
        new="    except KeyError:  # integers",
    )
    monkeypatch.setattr(manifest, "numbers_in", cells.numbers_in)
    return {"json lines"}


FAULTS = (
    boxes_without_end,
    deep_json,
    absurd_headers,
    whole_values,
    metadata_that_do_not_fit,
    integers_without_end,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_faults_that_were_mended_would_be_found(valid, monkeypatch, fault):
    kinds = fault(monkeypatch)
    seeds = (seed for seed in range(4 * CASES) if kind_of(seed) in kinds)
    found = next((failure for failure in (run_case(seed, valid) for seed in seeds) if failure), None)
    assert found is not None
