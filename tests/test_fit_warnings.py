"""Warnings of a fit: whose they are, and where they point."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from nearfar import LFDA, NCA, RCA
from nearfar.fit_warnings import LEARNER
from nearfar.numerics.psd import regularize_singular

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 5))[:, [0, 1, 2, 3, 4, 0]]
y = np.arange(60) % 3


def told(call):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call()
    assert said
    assert {warning.filename for warning in said} == {__file__}
    return {str(warning.message).partition(" is singular")[0] for warning in said}


@pytest.mark.parametrize(
    "call",
    [
        lambda: LFDA(shrinkage=0).fit(X, y),
        lambda: LFDA(shrinkage=0).fit_transform(X, y),
        lambda: make_pipeline(LFDA(shrinkage=0), KNeighborsClassifier()).fit(X, y),
        lambda: cross_val_score(make_pipeline(LFDA(shrinkage=0), KNeighborsClassifier()), X, y, cv=2),
    ],
)
def test_warnings_of_the_core_name_the_learner_and_point_at_the_call(call):
    assert told(call) == {"LFDA: the local scatter within classes"}
    assert LEARNER.get() == ""


def test_functions_called_by_themselves_name_nobody():
    assert told(lambda: regularize_singular(np.diag([1.0, 0.0]), "shrink", "B")) == {"B"}


def test_learners_fitted_at_the_same_time_name_themselves():
    with warnings.catch_warnings(record=True) as said, ThreadPoolExecutor(4) as pool:
        warnings.simplefilter("always")
        for job in [pool.submit(kind(shrinkage=0).fit, X, y) for kind in (LFDA, RCA) * 20]:
            job.result()
    assert sorted(str(warning.message).partition(" ")[0] for warning in said) == ["LFDA:"] * 20 + ["RCA:"] * 20


def test_a_failed_fit_leaves_no_name_and_others_are_named_once():
    with pytest.raises(ValueError, match=r"^LFDA: "):
        LFDA().fit(X, np.zeros(60))
    assert LEARNER.get() == ""
    with pytest.warns(ConvergenceWarning, match=r"^NCA: L-BFGS stopped"):
        NCA(max_iter=2).fit(X, y)
