"""Forms and reductions of the base losses, and the relations between them."""

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode

import nearfar
from nearfar.deep.objective.relations import masks
from nearfar.deep.pairwise.comparison import Comparison
from tests.references import contrastive, n_pair, triplet

Y = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3, 4, 4])


def sample(seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(len(Y), 4, generator=g, dtype=torch.float64).requires_grad_()


def same(loss, reference, **settings):
    x = sample()
    ours, theirs = loss(x, Y), reference(x, Y, **settings)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    grads = torch.autograd.grad(ours, x), torch.autograd.grad(theirs, x)
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("reduction", ["active", "valid", "sum"])
@pytest.mark.parametrize("soft", [False, True])
def test_triplet(reduction, soft):
    loss = nearfar.TripletLoss(0.3, soft=soft, reduction=reduction, normalize=False)
    same(loss, triplet.reference, margin=0.3, soft=soft, reduction=reduction, normalize=False)


@pytest.mark.slow
@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("few", [0, 12])
@pytest.mark.parametrize("triplets", ["semihard", "hard"])
@pytest.mark.parametrize(
    "form", [{}, {"soft": True}, {"swap": True}, {"soft": True, "swap": True}, {"reduction": "sum"}]
)
@pytest.mark.parametrize("grid", [False, True])
def test_kinds_of_triplets(triplets, form, grid, few, monkeypatch):
    """On a grid many negatives are exactly as far as the positive: they count as hard.

    The mean of the rows is exactly zero there, so that distances are whole numbers also where rows are centered.
    """
    from nearfar.deep.pairwise import hinges as order

    monkeypatch.setattr(order, "MAX_POSITIVES_WITHOUT_SORT", few)
    x = sample().detach()
    if grid:
        x = x.round()
        x[-1] -= x.sum(0)
    x.requires_grad_()
    how = {"margin": 2.3, "triplets": triplets, "normalize": False, **form}
    ours, theirs = nearfar.TripletLoss(**how, block=4)(x, Y), triplet.reference(x, Y, **how)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, x), torch.autograd.grad(theirs, x))
    assert theirs > 0
    assert not torch.isclose(theirs, triplet.reference(x, Y, **{**how, "triplets": "all"}))


@pytest.mark.parametrize("few", [0, 12])
@pytest.mark.parametrize("triplets", ["semihard", "hard"])
def test_few_small_hinges_beside_many_large_ones_keep_their_digits(triplets, few, monkeypatch):
    from nearfar.deep.pairwise import hinges as order

    monkeypatch.setattr(order, "MAX_POSITIVES_WITHOUT_SORT", few)
    x = torch.randn(256, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss, y = nearfar.TripletLoss(0.2, triplets=triplets, normalize=False), torch.arange(256) // 4
    torch.testing.assert_close(loss(x.float(), y).double(), loss(x.float().double(), y), rtol=1e-3, atol=0)


@pytest.mark.parametrize("triplets", ["semihard", "hard"])
def test_mined_triplets_of_a_kind(triplets):
    x = sample()
    c = Comparison(x, Y, x, Y, slice(0, len(Y)), True, "sq_euclidean", False).prepared()
    rows = c.block(c.x, c.ref, 0, len(Y))
    positive, negative, keep = nearfar.BatchSemiHard()(rows).triplets
    gap = (rows.d.gather(1, positive) - rows.d.gather(1, negative))[keep]
    kept = gap[gap >= 0] if triplets == "hard" else gap[(gap < 0) & (gap > -0.5)]
    assert 0 < len(kept) < len(gap)
    loss = nearfar.TripletLoss(0.5, normalize=False, triplets=triplets, miner=nearfar.BatchSemiHard())
    torch.testing.assert_close(loss(x, Y), (kept + 0.5).mean())


@pytest.mark.parametrize("form", [{"soft": True}, {"swap": True}])
@pytest.mark.parametrize("device", [False, True])
def test_memory_does_not_grow_with_the_number_of_positives(form, device, monkeypatch):
    from nearfar.deep.pairwise import hinges as order

    n, kept = 128, []
    if device:  # there, all columns may be positives
        monkeypatch.setattr(order, "on_host", lambda x: False)
    else:
        monkeypatch.setattr(order, "FULL", n * n)
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    y = torch.arange(n) // 4 if device else torch.arange(n) // 64
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        value = nearfar.TripletLoss(**form)(x, y)
    value.backward()
    assert sum(kept) < 50 * n * n
    monkeypatch.undo()
    torch.testing.assert_close(value, nearfar.TripletLoss(**form)(x, y))


def test_hard_and_semi_hard_triplets_need_a_margin():
    assert nearfar.TripletLoss(margin=0.0).margin == 0
    with pytest.raises(ValueError, match="margin must be positive for hard triplets, got 0"):
        nearfar.TripletLoss(margin=0.0, triplets="hard")


def test_soft_mined_triplets_count_alike_in_every_precision():
    x = 20 * sample().detach()  # most triplets are so easy that their loss is 0 in float32
    loss = nearfar.TripletLoss(soft=True, normalize=False, miner=nearfar.BatchSemiHard(fallback="hardest"))
    torch.testing.assert_close(loss(x.float(), Y).double(), loss(x, Y), rtol=1e-4, atol=0)


@pytest.mark.slow
@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("distance", ["sq_euclidean", "euclidean", "cosine", "dot"])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("block", [None, 3])
def test_swapped_triplets(distance, soft, reference, block):
    x, g = sample(), torch.Generator().manual_seed(1)
    ref = torch.randn(7, 4, generator=g, dtype=torch.float64).requires_grad_() if reference else None
    more = {"ref": ref, "ref_labels": torch.tensor([0, 0, 1, 1, 4, 3, -1])} if reference else {}
    how = {"margin": 0.5, "soft": soft, "swap": True, "normalize": False, "distance": distance, "reduction": "valid"}
    ours, theirs = nearfar.TripletLoss(**how, block=block)(x, Y, **more), triplet.reference(x, Y, **how, **more)
    torch.testing.assert_close(ours, theirs)
    inputs = [x] if ref is None else [x, ref]
    torch.testing.assert_close(torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs, inputs))
    plain = nearfar.TripletLoss(**{**how, "swap": False})(x, Y, **more)
    assert ours > plain


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("distance", ["sq_euclidean", "euclidean", "cosine", "dot"])
@pytest.mark.parametrize("reference", [False, True])
def test_swapped_mined_triplets(distance, reference):
    x = sample()
    ref, ref_y = (sample(1).detach(), Y.flip(0)) if reference else (x, Y)
    more = {"ref": ref, "ref_labels": ref_y} if reference else {}
    how = {"margin": 0.5, "swap": True, "normalize": False, "distance": distance, "reduction": "sum"}
    c = Comparison(x, Y, ref, ref_y, slice(0, len(Y)), not reference, distance, False).prepared()
    positive, negative, keep = nearfar.BatchSemiHard()(c.block(c.x, c.ref, 0, len(Y))).triplets
    expected = 0.0
    for a, k in keep.nonzero().tolist():
        three = torch.stack([x[a], ref[positive[a, k]], ref[negative[a, k]]])
        one = [three[:1], torch.tensor([0])], {"ref": three[1:], "ref_labels": torch.tensor([0, 1])}
        expected = expected + triplet.reference(*one[0], **one[1], **how)
    value = nearfar.TripletLoss(**how, miner=nearfar.BatchSemiHard())(x, Y, **more)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value, x), torch.autograd.grad(expected, x))


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("reduction", ["mean", "balanced", "anchor", "sum"])
@pytest.mark.parametrize(("form", "margin"), [("hadsell", 3.0), ("survey", 9.0), ("xbm", 0.1)])
def test_contrastive(form, margin, reduction):
    loss = nearfar.ContrastiveLoss(margin, form=form, reduction=reduction)
    same(loss, contrastive.reference, margin=margin, form=form, reduction=reduction)


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("reduction", ["mean", "balanced", "anchor", "sum", "active"])
def test_contrastive_by_plain_distances(reduction):
    how = {"form": "plain", "pos_margin": 1.5, "reduction": reduction}
    same(nearfar.ContrastiveLoss(3.0, **how), contrastive.reference, margin=3.0, **how)


@pytest.mark.parametrize("how", [{"pos_margin": 0.1}, {"distance": "cosine"}, {"reduction": "active"}])
def test_settings_of_plain_distances_alone(how):
    with pytest.raises(ValueError, match=r"ContrastiveLoss: .* is for form='plain', got form='hadsell'"):
        nearfar.ContrastiveLoss(**how)


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("form", ["npair", "hinge"])
def test_n_pair(form):
    same(nearfar.NPairLoss(0.1, form=form, margin=2.0), n_pair.reference, reg=0.1, form=form, margin=2.0)


def test_triplet_loss_is_zero_exactly_when_all_negatives_are_a_margin_farther():
    x = torch.eye(4, dtype=torch.float64).repeat_interleave(2, 0)
    y = torch.arange(4).repeat_interleave(2)
    assert nearfar.TripletLoss(2.0)(x, y) == 0
    assert nearfar.TripletLoss(2.01)(x, y) > 0


def test_n_pair_on_one_pair_per_class_is_cross_entropy():
    g = torch.Generator().manual_seed(0)
    a, q = torch.randn(2, 6, 3, generator=g, dtype=torch.float64)
    classes = torch.arange(6)
    ours = nearfar.NPairLoss(reg=0)(a, classes, ref=q, ref_labels=classes)
    torch.testing.assert_close(ours, torch.nn.functional.cross_entropy(a @ q.T, classes))


def test_normalized_losses_have_no_radial_gradient():
    x = sample()
    (grad,) = torch.autograd.grad(nearfar.TripletLoss()(x, Y), x)
    torch.testing.assert_close((grad * x).sum(1), torch.zeros(len(Y), dtype=torch.float64))


def test_distances_are_invariant_under_rigid_motion():
    x = sample()
    q, _ = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64))
    for loss in (nearfar.TripletLoss(normalize=False), nearfar.ContrastiveLoss()):
        torch.testing.assert_close(loss(x @ q + 100.0, Y), loss(x, Y))


def test_coincident_negatives_have_zero_gradient_in_the_hadsell_form():
    x = torch.zeros(2, 3, requires_grad=True)
    nearfar.ContrastiveLoss()(x, torch.tensor([0, 1])).backward()
    assert (x.grad == 0).all()


def test_large_batches_are_cut_into_blocks(monkeypatch):
    from nearfar.deep.pairwise import comparison as rows

    x = sample()
    whole = nearfar.TripletLoss()(x, Y)
    monkeypatch.setattr(rows, "FULL", 20)
    monkeypatch.setattr(rows, "comparisons_at_once", lambda device: 20)
    monkeypatch.setattr(rows, "MIN_BLOCK_ROWS", 1)
    assert len(rows.spans(slice(0, 10), 10, None, torch.device("cpu"))) == 10
    torch.testing.assert_close(nearfar.TripletLoss()(x, Y), whole)


@pytest.mark.parametrize(
    "classes", [[3, 5], [0, 1 << 16], [0, -(1 << 16)], [1 << 15, -(1 << 15)], [-1, 7, (1 << 40) + 7]], ids=str
)
def test_classes_of_a_large_batch_are_told_apart_by_all_their_digits(classes):
    y = torch.tensor(classes)[torch.arange(300) % len(classes)]
    known = (y != -1)[:, None] & (y != -1)
    same, other = masks(y, y, slice(20, 300))
    assert torch.equal(same, ((y[:, None] == y) & known)[20:])
    assert torch.equal(other, ((y[:, None] != y) & known)[20:])


class Calls(TorchDispatchMode):
    """Counts the operations of PyTorch."""

    number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.number += 1
        return func(*args, **(kwargs or {}))


def counted(loss, x, y):
    with Calls() as calls:
        value = loss(x, y)
        (gradient,) = torch.autograd.grad(value, x)
    return value, gradient, calls.number


@pytest.mark.parametrize(
    "loss",
    [
        nearfar.TripletLoss(soft=True),
        nearfar.TripletLoss(swap=True),
        nearfar.AngularLoss(),
        nearfar.AngularLoss(70, form="softmax"),
        nearfar.SmoothAPLoss(),
        nearfar.RecallAtKLoss(),
        nearfar.PNPLoss(),
    ],
    ids=repr,
)
def test_a_device_takes_one_step_for_each_positive_and_not_for_each_sample(loss, monkeypatch):
    torch.manual_seed(0)
    x, y = torch.randn(96, 8, dtype=torch.float64, requires_grad=True), torch.arange(96) // 3
    value, gradient, steps = counted(loss, x, y)
    monkeypatch.setattr("nearfar.deep.pairwise.hinges.on_host", lambda x: False)
    there, gradient_there, steps_there = counted(loss, x, y)
    torch.testing.assert_close(there, value)
    torch.testing.assert_close(gradient_there, gradient)
    assert steps_there < 2 * steps
