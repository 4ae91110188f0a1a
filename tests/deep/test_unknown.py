"""What is marked unknown counts nowhere: laws of every term."""

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar.deep.objective.relations import LabelSets
from nearfar.deep.pairwise.contextual import BilateralRowLoss
from tests.test_losses import ALONE, CLASSES, DIM, TERMS, batch, make, relation

Y = torch.tensor([0, 0, 0, 1, 1, 1, 2, 3, 3, 3, 3])
REF_Y = torch.tensor([0, 1, 1, 2, 2, 3, 3])
OF_ALL = {  # what these do with all embeddings, labeled or not, is switched off
    "CMLLoss": {"diversity": 0.0},
    "DiversityConfusion": None,
    "NPairLoss": {"reg": 0.0},
    "SphericalConstraint": None,
    "VICRegLoss": {"variance": 0.0, "covariance": 0.0},
}
FRESH = {
    m.name: (lambda m=m: make(m, **OF_ALL.get(m.name, {}))) for m in TERMS if OF_ALL.get(m.name, {}) is not None
} | {
    "nearest proxies": lambda: nearfar.ProxyNCALoss(CLASSES, DIM, assign="nearest").double(),
    "class means": lambda: nearfar.ProxyNCALoss(CLASSES, DIM, proxies="class_mean").double(),
    "batch targets": lambda: nearfar.DeepFisherLoss(CLASSES, DIM, targets="batch").double(),
    "shares of anchors": lambda: nearfar.BinomialDevianceLoss(reduction="anchor").double(),
}
every_term = pytest.mark.parametrize("name", FRESH)
every_comparing_term = pytest.mark.parametrize("name", [m.name for m in ALONE if m.name in FRESH])


def fresh(name):
    torch.manual_seed(0)
    return FRESH[name]()


def value_and_grad(name, x, y, **others):
    value = fresh(name)(x, y, **others)
    return value.detach(), torch.autograd.grad(value, x)[0]


@every_term
def test_unknown_samples_change_nothing(name):
    x, y, pooled = batch(len(Y), labels=Y)
    more, _, more_pooled = batch(3, seed=5)
    z = torch.cat([x.detach(), 3 * more.detach()]).requires_grad_()
    known, both = torch.cat([y, torch.tensor([-1] * 3)]), torch.cat([pooled, more_pooled])
    value, grad = value_and_grad(name, z, known, pooled=both)
    expected = value_and_grad(name, x, y, pooled=pooled)
    torch.testing.assert_close((value, grad[: len(x)]), expected)
    assert grad[len(x) :].abs().max() < 1e-12


@every_comparing_term
def test_unknown_references_change_nothing(name):
    x, ref = batch(len(Y), labels=Y)[0], batch(len(REF_Y), seed=2)[0]
    more = torch.cat([ref, batch(3, seed=5)[0]])
    expected = value_and_grad(name, x, Y, ref=ref, ref_labels=REF_Y)
    ref_y = torch.cat([REF_Y, torch.tensor([-1] * 3)])
    sets = [LabelSets.of([[c] if c >= 0 else [] for c in y.tolist()], num_classes=4) for y in (Y, ref_y)]
    for labels, others in ((Y, {"ref_labels": ref_y}), (relation(Y, ref_y), {}), (sets[0], {"ref_labels": sets[1]})):
        torch.testing.assert_close(value_and_grad(name, x, labels, ref=more, **others), expected)


@every_comparing_term
def test_pairs_known_once_count_once(name):
    """Two copies of the reference, where every pair is unknown for one of them, are one reference."""
    if isinstance(fresh(name), BilateralRowLoss):
        return  # a pair also reads what its reference is known to differ from, which is less for each copy
    x, ref = batch(len(Y), labels=Y)[0], batch(len(REF_Y), seed=2)[0]
    known = relation(Y, REF_Y)
    hidden = torch.zeros_like(known, dtype=torch.bool)
    for i, j in ((3, 1), (7, 5), (9, 6), (1, 3), (4, 0), (8, 2)):  # each class stays joined
        hidden[i, j] = True
    split = torch.cat([known.masked_fill(hidden, -1), known.masked_fill(~hidden, -1)], 1)
    expected = value_and_grad(name, x, known, ref=ref)
    torch.testing.assert_close(value_and_grad(name, x, split, ref=torch.cat([ref, ref])), expected)


@every_comparing_term
def test_unknown_pairs_of_a_batch_are_those_of_its_copy(name):
    x = batch(len(Y), labels=Y)[0]
    known = relation(Y, Y)
    for i, j in ((7, 10), (0, 4), (8, 1)):
        known[i, j] = known[j, i] = -1
    copy = x.detach().clone().requires_grad_()
    value, grad = value_and_grad(name, x, known)
    found = fresh(name)(x, known.clone().fill_diagonal_(-1), ref=copy)
    torch.testing.assert_close(found.detach(), value)
    torch.testing.assert_close(sum(torch.autograd.grad(found, (x, copy))), grad)


def test_penalties_average_the_known_pairs_of_a_class():
    """One class of five and its copy: the mean over 20 ordered pairs, or over the 18 that are known."""
    x = torch.randn(5, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = torch.nn.functional.normalize(x)
    kernel = (-torch.cdist(z, z).square() / 2).exp()
    pairs = torch.ones(5, 5, dtype=torch.long).fill_diagonal_(-1)
    fewer = pairs.clone()
    fewer[1, 2] = fewer[2, 1] = -1
    for known in (pairs, fewer):
        for block in (None, 2):
            term = nearfar.IntraClassPenalty(block=block)
            torch.testing.assert_close(term(x, known), -kernel[known == 1].mean())
            torch.testing.assert_close(term(x, known, ref=x.clone()), -kernel[known == 1].mean())
