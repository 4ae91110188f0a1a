"""Searches of many small products take one thread, and leave the number of threads as it was."""

import pytest
from threadpoolctl import threadpool_limits

from nearfar import LMNN, NCA, SCML, FastNCA, KernelNCA
from nearfar.numerics.optimize import linear_algebra, one_thread
from tests.learners import data


def threads() -> set[int]:
    """Return the numbers of threads of the libraries of NumPy and SciPy; other packages may bring more of them."""
    return {pool["num_threads"] for pool in linear_algebra().info() if pool["user_api"] == "blas"}


def test_threads_are_as_many_as_before_also_after_an_error():
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with one_thread():
            assert threads() == {1}
        assert threads() == before
        with pytest.raises(ValueError, match="inside"), one_thread():
            raise ValueError("inside")
        assert threads() == before


@pytest.mark.parametrize(
    "learner", [LMNN(), NCA(), FastNCA(), KernelNCA(landmarks=20), SCML()], ids=lambda one: type(one).__name__
)
def test_small_products_take_one_thread(learner, monkeypatch):
    X, y = data(60, 4, 3)
    seen = set()

    def report(*_):
        seen.update(threads())

    monkeypatch.setattr(type(learner), "_report", lambda _: report)
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        learner.set_params(max_iter=3).fit(X, y)
        assert threads() == before
    assert seen == {1}
