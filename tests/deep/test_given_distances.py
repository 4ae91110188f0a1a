"""Losses of distances that are computed already: every loss of rows gives what it gives for the embeddings."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar.catalog import METHODS
from nearfar.deep import LabelSets, distributed
from nearfar.deep.pairwise.comparison import dissimilarity
from nearfar.deep.pairwise.row_loss import RowLoss
from nearfar.deep.unit_vectors import unit
from tests.processes import run_in_processes
from tests.test_losses import TERMS, batch, make, relation

NEED_VECTORS = {
    "ALMNLoss": "makes virtual negatives",
    "BIERLoss": "groups of dimensions",
    "HDCLoss": "groups of dimensions",
    "HierarchicalTripletLoss": "means of classes",
    "NPairLoss": "lengths of embeddings, in its penalty",
    "SNRContrastiveLoss": "variances of embeddings",
    "VICRegLoss": "variances of dimensions",
}
MINERS = [m.name for m in METHODS if m.kind == "miner"]
Y = torch.tensor([0, 0, 1, 1, 1, 2, 3, 3, -1])
SETS = LabelSets.of([[0, 1], [0], [1, 2], [1], [1, 3], [2], [3, 0], [3], []], num_classes=4)


def compared(term, x, ref):
    """Return the distances in the form of a loss."""
    if term.normalize:
        x, ref = unit(x), unit(ref)
    return dissimilarity(x, ref, term.distance)


def computed_by_rows(method):
    return isinstance(make(method), RowLoss) and method.name not in NEED_VECTORS


@pytest.mark.parametrize("method", [m for m in TERMS if computed_by_rows(m)], ids=lambda m: m.name)
@pytest.mark.parametrize("way", ["classes", "block", "ref", "relation", "sets"])
def test_given_distances_give_the_value_and_gradient_of_the_embeddings(method, way):
    if method.name == "AngularLoss" and way == "ref":
        pytest.skip("it also compares references with one another")
    term = make(method, block=3 if way == "block" else None)
    x, y, _ = batch(len(Y), labels=Y)
    ref, ref_y, _ = batch(7, seed=3)
    given = {"ref": ref, "ref_labels": ref_y} if way == "ref" else {}
    labels = {"relation": relation(y, y), "sets": SETS}.get(way, y)
    others = {"ref_labels": ref_y} if way == "ref" else {}
    distances = compared(term, x, ref if way == "ref" else x)
    results = []
    for value in (lambda: term(x, labels, **given), lambda: term.from_distances(distances, labels, **others)):
        found = value()
        results.append((found, *torch.autograd.grad(found, x)))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("method", [m for m in TERMS if not computed_by_rows(m)], ids=lambda m: m.name)
def test_what_needs_embeddings_says_so(method):
    told = rf"^from_distances: .*{'' if method.kind == 'composition' else method.name}.* needs the embeddings"
    with pytest.raises(TypeError, match=told):
        make(method).from_distances(torch.zeros(4, 4), torch.tensor([0, 0, 1, 1]))


@pytest.mark.parametrize("name", MINERS)
def test_miners_choose_by_given_distances_or_say_what_they_need(name):
    loss = nearfar.TripletLoss(miner=getattr(nearfar, name)())
    x, y, _ = batch()
    if name in ("DistanceWeighted", "WideAngles"):
        with pytest.raises(TypeError, match=f"from_distances: {name} needs the embeddings"):
            loss.from_distances(compared(loss, x, x), y)
        return
    values = []
    for value in (lambda: loss(x, y), lambda: loss.from_distances(compared(loss, x, x), y)):
        torch.manual_seed(0)
        values.append(value())
    torch.testing.assert_close(values[1], values[0])


def test_distances_of_any_kind_equal_the_loops():
    """Distances that no function of vectors gives: not symmetric, and with triangles that do not close."""
    d = torch.rand(9, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    for soft in (False, True):
        loss = nearfar.TripletLoss(margin=0.3, soft=soft, reduction="sum")
        expected = sum(
            hinge(d[a, p] - d[a, n], soft)
            for a in range(9)
            for p in range(9)
            for n in range(9)
            if p != a and Y[a] == Y[p] != -1 and -1 != Y[n] != Y[a]
        )
        found = loss.from_distances(d, Y)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found, d), torch.autograd.grad(expected, d))
        assert torch.isfinite(loss.from_distances(d.detach().fill_diagonal_(1e30), Y))  # the diagonal is not read


def hinge(gap, soft):
    return torch.nn.functional.softplus(gap + 0.3) if soft else (gap + 0.3).clamp_min(0)


def test_sums_and_pairs_of_references():
    x, y, _ = batch()
    sum_ = nearfar.TripletLoss(0.2, swap=True) + 0.5 * nearfar.NCALoss(normalize=True)
    d = compared(sum_.terms[0], x, x)
    torch.testing.assert_close(sum_.from_distances(d, y), sum_(x, y))
    with pytest.raises(TypeError, match="from_distances: EnergyConfusion needs the embeddings"):
        (sum_ + nearfar.EnergyConfusion()).from_distances(d, y)
    with pytest.raises(
        TypeError, match="compare different distances, 'sq_euclidean' in TripletLoss, 'cosine' in SupCon"
    ):
        (sum_ + nearfar.SupConLoss()).from_distances(d, y)
    for loss in (nearfar.TripletLoss(swap=True), nearfar.AngularLoss()):
        with pytest.raises(ValueError, match="also compares references with one another"):
            loss.from_distances(d[:, :20], y, ref_labels=y[:20])


@pytest.mark.parametrize(
    ("distances", "labels", "ref_labels", "error", "told"),
    [
        ([[0.0]], [0], None, TypeError, "distances: expected a .n, m. float tensor, got list"),
        (
            torch.zeros(3),
            [0, 0, 1],
            None,
            ValueError,
            "distances: expected a .n, m. float tensor, got torch.float32 of",
        ),
        (torch.full((2, 2), torch.nan), [0, 1], None, ValueError, "distances: 2 of 2 rows are not finite"),
        (torch.zeros(2, 3), [0, 1], None, ValueError, "distances: .2, 3. compares 2 samples with 3 references, which"),
        (torch.zeros(2, 3), [0, 1], [0, 1], ValueError, "ref_labels: expected one per embedding, 3, got 2"),
    ],
)
def test_bad_distances_are_named(distances, labels, ref_labels, error, told):
    with pytest.raises(error, match=told):
        nearfar.TripletLoss().from_distances(distances, labels, ref_labels=ref_labels)


def together(rank, world):
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    x, y, _ = batch(12)
    loss = nearfar.SupConLoss()
    d = compared(loss, x, x).detach()
    mine = slice(5 * rank, 5 if rank == 0 else 12)
    part = d[mine].clone().requires_grad_()
    value = loss.from_distances(part, y[mine])
    value.backward()
    whole = d.clone().requires_grad_()
    with distributed.local():
        alone = loss.from_distances(whole, y)
        alone.backward()
    torch.testing.assert_close(value, alone)
    torch.testing.assert_close(part.grad, world * whole.grad[mine])  # averaging over processes divides by their number
    bad = part.detach().clone()
    if rank == 0:
        bad[0] = torch.nan
    with pytest.raises(ValueError, match=r"distances: 1 of 5 rows are not finite \(in process 0 of 2\)"):
        loss.from_distances(bad, y[mine])


@pytest.mark.slow
def test_two_processes_give_the_value_of_one():
    run_in_processes(together, 2)
