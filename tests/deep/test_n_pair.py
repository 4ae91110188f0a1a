"""The sum of the N-pair loss, as the confusion paper writes it."""

import pytest

torch = pytest.importorskip("torch")

from nearfar import NPairLoss
from tests.references import n_pair

from .gradients import same, samples


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("settings", [{}, {"reg": 0.0}, {"form": "hinge", "margin": 0.5}])
def test_the_sum_equals_the_loops(settings):
    x, y = samples()
    expected = n_pair.reference(x, y, reduction="sum", **settings)
    for block in (None, 4):
        same(NPairLoss(reduction="sum", block=block, **settings)(x, y), expected, x, rtol=1e-9, atol=1e-12)


def test_the_sum_is_the_mean_times_the_pairs():
    x, y = samples((0, 0, 1, 1, 1))
    mean = NPairLoss(reg=0.0)(x, y)
    torch.testing.assert_close(NPairLoss(reg=0.0, reduction="sum")(x, y), 8 * mean)


def test_another_reduction_is_refused():
    with pytest.raises(ValueError, match="reduction"):
        NPairLoss(reduction="total")
