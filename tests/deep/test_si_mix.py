"""Virtual samples of SiMix: their weights, what they mix, and what they are asked of."""

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar.deep.objective.parser import parse_objective
from tests.references.si_mix import reference
from tests.test_losses import batch


def test_drawn_weights_are_those_of_the_seed_one_for_each_pair():
    x, y, _ = batch(10, labels=[0, 0, 0, 1, 1, 2, 3, 3, -1, -1])
    term = nearfar.SiMix(nearfar.RecallAtKLoss(ks=(1, 2)), seed=3)
    draws = torch.Generator().manual_seed(3)
    for _ in range(2):  # each call draws again
        weights = torch.rand(5, generator=draws, dtype=torch.float64).tolist()  # 3 pairs of class 0, one of 1 and of 3
        torch.testing.assert_close(term(x, y), reference(x, y, alpha=weights, ks=(1, 2)))


def test_a_weight_of_one_repeats_the_first_sample_of_each_pair():
    x, y, _ = batch(12)
    first = [i for i in range(12) for j in range(i + 1, 12) if y[i] == y[j]]
    for loss in (nearfar.SupConLoss(), nearfar.SmoothAPLoss(), nearfar.MultiSimilarityLoss()):
        expected = loss(torch.cat([x, x[first]]), torch.cat([y, y[first]]))
        torch.testing.assert_close(nearfar.SiMix(loss, alpha=1.0)(x, y), expected)


def test_without_pairs_it_is_the_loss_itself():
    x, y, _ = batch(6, labels=[0, 1, 2, 3, -1, -1])
    torch.testing.assert_close(nearfar.SiMix(nearfar.SupConLoss())(x, y), nearfar.SupConLoss()(x, y))


@pytest.mark.parametrize(
    "loss", [nearfar.TripletLoss(), nearfar.JRS(), nearfar.CMLLoss(), nearfar.NPairLoss(), "SupConLoss()", None]
)
def test_losses_without_cosines_are_refused(loss):
    if loss is None:  # the loss of the paper
        assert "RecallAtKLoss" in repr(nearfar.SiMix(loss).loss)
        return
    with pytest.raises(TypeError, match=r"^SiMix: loss must compare by the cosine, such as RecallAtKLoss\(\)"):
        nearfar.SiMix(loss)


def test_an_objective_names_it_with_its_loss():
    x, y, _ = batch(12)
    term = parse_objective("0.5*SiMix(loss=RecallAtKLoss(ks=[1, 4]), alpha=0.25)", num_classes=6, embedding_dim=5)
    torch.testing.assert_close(term(x, y), 0.5 * reference(x, y, alpha=0.25, ks=(1, 4)))
