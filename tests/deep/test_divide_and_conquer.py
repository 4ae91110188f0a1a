"""A group of dimensions for each cluster: values, gradients, proxies, and batches that do not fit."""

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar.deep.objective.parser import ObjectiveError, parse_objective
from tests.references import divide_and_conquer

SIZES = {"num_classes": 4, "embedding_dim": 7, "class_counts": (3, 3, 3, 3)}
CLUSTERS = [2, 0, 1, -1] * 12
DIMS = {0: slice(0, 3), 1: slice(3, 5), 2: slice(5, 7), -1: slice(0, 7)}  # of three groups of seven dimensions


def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, 7, generator=generator, dtype=torch.float64).requires_grad_(), torch.arange(12) % 4


def of_cluster(cluster):
    return [sample for sample, own in enumerate(CLUSTERS) if own == cluster]


def divided(objective="TripletLoss()", **settings):
    term = parse_objective(f"DivideAndConquer({objective}, groups=3)", **SIZES, **settings).double()
    term.assign(CLUSTERS)
    return term


@pytest.mark.parametrize("cluster", DIMS)
def test_a_batch_trains_the_group_of_its_cluster(cluster):
    x, y = batch()
    ids = of_cluster(cluster)
    value = divided()(x, y, ids=ids)
    reference = divide_and_conquer.reference(x.detach(), y, ids=ids, clusters=CLUSTERS, groups=3)
    torch.testing.assert_close(value.item(), float(reference))
    value.backward()
    touched = (x.grad != 0).any(0)
    inside = torch.zeros(7, dtype=torch.bool)
    inside[DIMS[cluster]] = True
    assert torch.equal(touched, inside)


@pytest.mark.parametrize("cluster", DIMS)
def test_each_group_has_proxies_of_its_own(cluster):
    x, y = batch()
    term = divided("AMSoftmaxLoss(scale=20)")
    assert [tuple(p.shape) for p in term.parameters()] == [(4, 3), (4, 2), (4, 2), (4, 7)]
    value = term(x, y, ids=of_cluster(cluster))
    torch.testing.assert_close(value, term.terms[cluster](x[:, DIMS[cluster]], y))
    value.backward()
    # all have a gradient, as several processes expect, and that of the other groups is 0
    moved = [bool((p.grad != 0).any()) for p in term.parameters()]
    assert moved == [number == cluster % 4 for number in range(4)]


def test_without_clusters_the_whole_embedding_is_trained():
    x, y = batch()
    term = nearfar.DivideAndConquer("TripletLoss()", groups=3)
    torch.testing.assert_close(term(x, y), nearfar.TripletLoss()(x, y))
    assert term(x[:0], y[:0]) == 0


def test_lengths_of_groups_and_a_reference():
    x, y = batch()
    term = nearfar.DivideAndConquer(nearfar.TripletLoss(), groups=(1, 6))
    term.assign(torch.ones(12, dtype=torch.int32))
    told = {"ref": x.detach()[:8] + 1, "ref_labels": y[:8]}
    cut = {**told, "ref": told["ref"][:, 1:]}
    torch.testing.assert_close(term(x, y, ids=range(12), **told), nearfar.TripletLoss()(x[:, 1:], y, **cut))


def test_text_and_term_are_one():
    text = parse_objective("0.5*DivideAndConquer(TripletLoss(margin=0.3), groups=[3, 4])", **SIZES)
    again = parse_objective(repr(text), **SIZES)
    term = 0.5 * nearfar.DivideAndConquer(nearfar.TripletLoss(margin=0.3), (3, 4))
    x, y = batch()
    values = []
    for one in (text, again, term):
        one.terms[0].assign([1] * 12)
        values.append(one(x, y, ids=list(range(12))).item())
    assert values[0] == values[1] == values[2]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: nearfar.DivideAndConquer("TripletLoss()", 0), "groups must be a number of at least 1, or lengths"),
        (lambda: nearfar.DivideAndConquer("TripletLoss()", 8)(*batch()), "8 groups need as many dimensions, got 7"),
        (lambda: nearfar.DivideAndConquer("TripletLoss()", (3, 3))(*batch()), "are 6 together, got 7"),
        (lambda: divided()(*batch()), "ids: expected the numbers of the samples, whose clusters are assigned"),
        (lambda: divided()(*batch(), ids=[48] * 12), r"ids: expected numbers in 0\.\.47, got 48\.\.48"),
        (lambda: divided()(*batch(), ids=[-1] * 12), r"ids: expected numbers in 0\.\.47, got -1\.\.-1"),
        (lambda: divided()(*batch(), ids=list(range(12))), "samples of one cluster, .* got clusters -1, 0, 1, 2"),
        (lambda: divided().assign([0, 3]), r"clusters: expected numbers in -1\.\.2, one for each group, got 0\.\.3"),
        (
            lambda: divided().assign([0.0, 1.0]),
            r"clusters: expected \(n,\) integers, got torch.float32 of shape \(2,\)",
        ),
        (lambda: divided().assign([]), r"clusters: expected \(n,\) integers"),
        (lambda: divided("Tripletloss()"), "no method is called 'Tripletloss'"),
    ],
)
def test_bad_input_is_told(make, told):
    with pytest.raises((ValueError, ObjectiveError), match=told):
        make()


def test_an_objective_must_be_a_term():
    with pytest.raises(TypeError, match="DivideAndConquer: objective must be a loss"):
        nearfar.DivideAndConquer(3)
