"""Sums over blocks of rows whose gradient is found block by block equal those of all rows at once."""

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar.catalog import METHODS
from nearfar.deep.pairwise import blockwise
from nearfar.deep.pairwise.row_loss import RowLoss

LOSSES = [m for m in METHODS if m.kind == "loss" and m.takes != "triplets"]
LOSSES = [m for m in LOSSES if issubclass(getattr(nearfar, m.name), RowLoss)]
every_loss = pytest.mark.parametrize("method", LOSSES, ids=lambda m: m.name)


def make(method, **settings):
    torch.manual_seed(0)
    return getattr(nearfar, method.name)(**{**method.small, **settings}).double()


def batch(n=23, seed=1):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=g, dtype=torch.float64).requires_grad_()
    return x, torch.arange(n) % 6, torch.randn(n, 7, generator=g, dtype=torch.float64)


def gradients(term, x, y, pooled):
    inputs = [x, *(p for p in term.parameters() if p.requires_grad)]
    value = term(x, y, pooled=pooled)
    return value.detach(), torch.autograd.grad(value, inputs, allow_unused=True)


@pytest.fixture
def small(monkeypatch):
    """Cut batches of 23 into blocks of five rows."""
    monkeypatch.setattr(blockwise, "COMPARISONS_IN_CACHE", 5 * 23)
    monkeypatch.setattr(blockwise, "MIN_BLOCK_ROWS", 5)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


@every_loss
def test_value_and_every_gradient(method, request):
    x, y, pooled = batch()
    whole = gradients(make(method), x, y, pooled)
    request.getfixturevalue("small")
    torch.testing.assert_close(gradients(make(method), x, y, pooled), whole)


@pytest.mark.parametrize("distance", ["sq_euclidean", "euclidean", "cosine", "dot"])
@pytest.mark.parametrize("reference", ["batch", "fixed", "learned"])
def test_distances_and_references(distance, reference, request):
    x, y, _ = batch()
    ref = None if reference == "batch" else batch(9, seed=2)[0].detach().requires_grad_(reference == "learned")
    more = {} if ref is None else {"ref": ref, "ref_labels": torch.arange(9) % 6}
    inputs = [x, ref] if reference == "learned" else [x]
    loss = nearfar.NCALoss(distance=distance, normalize=False)
    whole = torch.autograd.grad(loss(x, y, **more), inputs)
    request.getfixturevalue("small")
    torch.testing.assert_close(torch.autograd.grad(loss(x, y, **more), inputs), whole)


@pytest.mark.parametrize("reduction", ["mean", "balanced"])
def test_a_gradient_can_be_taken_twice_and_differentiated(reduction, request):
    x, y, _ = batch()
    loss = nearfar.ContrastiveLoss(3.0, reduction=reduction)

    def twice():
        (grad,) = torch.autograd.grad(loss(x, y), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), x)

    whole = twice()
    request.getfixturevalue("small")
    torch.testing.assert_close(twice(), whole)
    value = loss(x, y)
    first = torch.autograd.grad(value, x, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(value, x), first)


@pytest.mark.parametrize("loss", [nearfar.ContrastiveLoss, nearfar.TripletLoss, nearfar.MarginLoss])
def test_blocks_against_a_fixed_reference_can_be_differentiated_twice(loss):
    x, y, _ = batch()
    ref, ref_y = batch(9, seed=2)[0].detach(), torch.arange(9) % 6

    def twice(block):
        term = loss(block=block).double()
        (grad,) = torch.autograd.grad(term(x, y, ref=ref, ref_labels=ref_y), x, create_graph=True)
        return grad.detach(), torch.autograd.grad(grad.square().sum(), x)[0]

    torch.testing.assert_close(twice(5), twice(None))


def test_nothing_is_kept_without_a_gradient(small):
    x, y, _ = batch()
    with torch.no_grad():
        value = nearfar.TripletLoss()(x, y)
    assert not value.requires_grad
    torch.testing.assert_close(value, nearfar.TripletLoss(block=23)(x, y).detach())
    frozen = nearfar.MarginLoss().double()
    frozen(x.detach(), y).backward()
    assert frozen.boundary.grad.isfinite()


def test_many_numerators_are_kept_or_computed_again(small, monkeypatch):
    x, y, _ = batch()
    loss = nearfar.BinomialDevianceLoss()
    kept = torch.autograd.grad(loss(x, y), x)
    monkeypatch.setattr(blockwise, "FULL", 10)
    torch.testing.assert_close(torch.autograd.grad(loss(x, y), x), kept)


def test_blocks_of_a_processor_are_caches_and_rows_that_read_one_another_stay_together():
    x = torch.zeros(4096, 2)
    y = torch.zeros(4096, dtype=torch.long)
    c = nearfar.TripletLoss().comparison(nearfar.deep.objective.batch.make_batch(x, y, None, None, None))
    rows = max(blockwise.MIN_BLOCK_ROWS, blockwise.COMPARISONS_IN_CACHE // 4096) * torch.get_num_threads()
    assert blockwise.cuts(c, None, False)[0] == (0, min(rows, 4096))
    assert blockwise.cuts(c, None, True) == [(0, 4096)]
    assert blockwise.cuts(c, 1000, True)[0] == (0, 1000)


@pytest.mark.parametrize("block", [None, 5])
@pytest.mark.parametrize(
    ("rows", "got"),
    [
        (lambda rows: rows.d.mean(), r"got \(\)"),
        (lambda rows: (rows.d.mean(), rows.pos.sum()), r"got \(\) and \(\)"),
        (lambda rows: (rows.d.mean(1), 1.0), r"got \(\d+,\) and float"),
        (lambda rows: (rows.d.mean(0), rows.pos.any(1)), r"got \(23,\) and \(\d+,\)"),
        (lambda rows: None, "got NoneType"),
    ],
)
def test_a_loss_that_does_not_say_its_rows_per_anchor_is_told(rows, got, block):
    class Own(RowLoss):
        def rows(self, block):
            return rows(block)

    x, y, _ = batch()
    message = f"Own.rows: expected a numerator and a denominator per anchor, .* {got}"
    with pytest.raises(TypeError, match=message) as caught:
        Own(distance="cosine", normalize=True, block=block or 22)(x, y)
    assert isinstance(caught.value, ValueError)  # one line on the command line, not a traceback
