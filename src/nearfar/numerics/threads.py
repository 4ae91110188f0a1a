"""One thread of the linear algebra library for searches of many small products.

A product of some megabytes takes less time than two threads need to meet, and while they wait they take processor time
from everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def linear_algebra() -> ThreadpoolController:
    """Return the libraries of NumPy and SciPy, looked up once: that takes milliseconds."""
    import scipy.linalg  # noqa: F401 - it loads the second of them

    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let the linear algebra inside take one thread; afterwards as many as before."""
    with linear_algebra().limit(limits=1, user_api="blas"):
        yield
