"""Who listens is told of all work, how much there is, and that it ends; on a terminal that is a bar."""

import io
import time

import numpy as np
import pytest

from nearfar.data import inspect_data
from nearfar.evaluation import evaluate, verify
from nearfar.neighbors.near_pairs import pairs_within
from nearfar.neighbors.nearest import nearest
from nearfar.progress import Bars, counted, listening, stage


class Notes:
    """Keeps what it is told: name, total, done, whether it has ended."""

    def __init__(self):
        self.works = []

    def begin(self, what, total):
        self.works.append([what, total, 0, False])
        return self.works[-1]

    def advance(self, work, by):
        work[2] += by

    def end(self, work):
        work[3] = True


def test_work_is_told_from_its_beginning_to_its_end():
    notes = Notes()
    with listening(notes):
        with stage("embedding", 10) as done:
            done(4)
            assert notes.works == [["embedding", 10, 4, False]]
            done(6)
        assert list(counted("abc", "reading", 3)) == ["a", "b", "c"]
        with listening(None), stage("unheard") as done:
            done(1)
    with stage("later") as done:
        done(1)
    assert notes.works == [["embedding", 10, 10, True], ["reading", 3, 3, True]]


def test_work_that_fails_or_is_left_has_ended():
    notes = Notes()
    with listening(notes):
        with pytest.raises(ZeroDivisionError), stage("failing", 2):
            raise ZeroDivisionError
        for item in counted(range(5), "left", 5):
            if item == 1:
                break
    assert [(what, ended) for what, *_, ended in notes.works] == [("failing", True), ("left", True)]


@pytest.mark.slow
@pytest.mark.parametrize("n", [4, 50, 3000])
def test_all_that_there_is_gets_done(n, monkeypatch):
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(n, 3)), np.arange(n) % max(1, n // 2)
    monkeypatch.setattr("nearfar.neighbors.near_pairs.PAIR_BLOCK_CELLS", 1000)
    for work in (
        lambda: nearest(rows, rows, 1),
        lambda: pairs_within(rows, 0.01),
        lambda: verify(rows, labels),
        lambda: evaluate(rows, labels, ks=(1,)),
        lambda: inspect_data("digits") if n == 4 else None,
    ):
        notes = Notes()
        with listening(notes):
            work()
        for what, total, done, ended in notes.works:
            assert ended, what
            assert done == total > 0, what


def test_a_bar_comes_after_a_moment_and_goes(monkeypatch):
    rich = pytest.importorskip("rich.console")
    screen, console = io.StringIO(), rich.Console
    monkeypatch.setattr(rich, "Console", lambda **_: console(file=screen, force_terminal=True, width=80))
    monkeypatch.setattr("nearfar.progress.MOMENT", 0.05)
    with listening(Bars()):
        with stage("quick", 1) as done:
            done(1)
        with stage("slow work", 4) as done, stage("inner"):
            done(1)
            until = time.monotonic() + 10
            while "25%" not in screen.getvalue() and time.monotonic() < until:
                time.sleep(0.01)
    shown = screen.getvalue()
    assert all(text in shown for text in ("slow work", "inner", "25%"))
    assert "quick" not in shown
    assert "slow work" not in shown.rpartition("\x1b[2K")[2]  # the line is wiped


def test_nothing_is_shown_where_nobody_sees_it(monkeypatch):
    bars = pytest.importorskip("nearfar.cli.bars")
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert bars.progress_bars(["evaluate"]) is None
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert isinstance(bars.progress_bars(["evaluate"]), Bars)
    assert bars.progress_bars(["evaluate", "runs/glyphs", "--quiet"]) is None
    monkeypatch.setenv("RANK", "1")
    assert bars.progress_bars(["train"]) is None
