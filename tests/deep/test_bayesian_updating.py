"""Bayesian updating: the running Gaussians, the draws, and the two losses on them."""

import math

import pytest

torch = pytest.importorskip("torch")

from nearfar import BayesianUpdating, EnergyConfusion
from nearfar.deep.memory.bayesian_updating import gaussians
from nearfar.deep.memory.bayesian_updating.gaussians import Gaussians

from ..processes import run_in_processes

C, DIM = 4, 3


def samples(n, seed=0, dim=DIM):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dim, generator=g, dtype=torch.float64)
    return x + 3.0 * torch.arange(dim), torch.arange(n) % C


def scatter(x):
    return (x - x.mean(0)).T @ (x - x.mean(0))


def test_updates_equal_the_moments_of_all_data():
    state = Gaussians(C, DIM).double()
    x, y = samples(50)
    y[:3] = -1
    for part in torch.arange(50).split(9):
        state.update(x[part], y[part])
    for c in range(C):
        own = x[y == c]
        assert state.counts[c] == len(own)
        torch.testing.assert_close(state.means[c], own.mean(0))
        torch.testing.assert_close(state.scatters[c], scatter(own))


def test_the_order_of_batches_changes_nothing():
    x, y = samples(40)
    states = []
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        state = Gaussians(C, DIM).double()
        for k in order:
            state.update(x[10 * k : 10 * k + 10], y[10 * k : 10 * k + 10])
        states.append(state.state_dict())
    torch.testing.assert_close(*states)


def test_large_batches_update_in_chunks(monkeypatch):
    from nearfar.deep.memory.bayesian_updating import gaussians

    x, y = samples(30)
    whole, cut = Gaussians(C, DIM).double(), Gaussians(C, DIM).double()
    whole.update(x, y)
    monkeypatch.setattr(gaussians, "SAMPLES_PER_CHUNK", 7)
    cut.update(x, y)
    torch.testing.assert_close(cut.state_dict(), whole.state_dict())


@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_an_update_makes_no_copy_of_all_scatters(decay):
    state = Gaussians(300, DIM, decay=decay)
    x, _ = samples(8)
    x, y = x.float(), torch.tensor([7, 7, 7, 299, 299, -1, 12, 12])
    state.update(x, y)
    before, place = state.scatters.clone(), state.scatters.data_ptr()
    state.update(x[:5], y[:5])
    assert state.scatters.data_ptr() == place
    rest = torch.tensor([c for c in range(300) if c not in (7, 299)])
    assert torch.equal(state.scatters[rest], decay * before[rest])
    torch.testing.assert_close(state.scatters[7], (1 + decay) * scatter(x[:3]))


def test_covariance_is_the_mean_of_the_inverse_wishart_once_it_exists():
    state = Gaussians(2, DIM).double()
    x, _ = samples(9)
    state.update(x, torch.tensor([0] * 5 + [1] * 4))
    own = state.covariances(torch.tensor([0, 1]))
    torch.testing.assert_close(own[0], scatter(x[:5]) / (5 - DIM - 1))
    torch.testing.assert_close(own[1], scatter(x[5:]) / 4)


def test_one_dimension_by_hand():
    state = Gaussians(1, 1).double()
    zero = torch.zeros(2, dtype=torch.long)
    state.update(torch.tensor([[1.0], [3.0]], dtype=torch.float64), zero)
    state.update(torch.tensor([[5.0], [7.0]], dtype=torch.float64), zero)
    assert (state.counts.item(), state.means.item(), state.scatters.item()) == (4, 4, 20)
    assert state.covariances(torch.tensor([0])).item() == 20 / (4 - 1 - 1)


def test_decay_forgets():
    x, y = samples(40)
    state = Gaussians(C, DIM, decay=0.5).double()
    state.update(x, y)
    state.update(x, y)
    for c in range(C):
        assert state.counts[c] == 15
        torch.testing.assert_close(state.scatters[c], 1.5 * scatter(x[y == c]))


def test_the_published_recursion_inverts_and_grows():
    x, y = samples(4 * 30)
    state = Gaussians(C, DIM, literal=True).double()
    state.update(x, y)
    first = state.covariances(torch.arange(C))
    for c in range(C):
        torch.testing.assert_close(first[c], torch.linalg.inv(scatter(x[y == c])) / (30 - DIM - 1), rtol=1e-4, atol=0)
    state.update(x, y)
    second = state.covariances(torch.tensor([0]))[0]
    carried = 30 * first[0] + scatter(x[y == 0])
    torch.testing.assert_close(second, torch.linalg.inv(carried) / (60 - DIM - 1), rtol=1e-4, atol=0)
    few = Gaussians(1, DIM, literal=True).double()
    few.update(x[:3], torch.zeros(3, dtype=torch.long))
    torch.testing.assert_close(few.covariances(torch.tensor([0]))[0], scatter(x[:3]) / 3)


def test_draws_have_the_moments_of_their_class():
    state = Gaussians(C, DIM).double()
    x, y = samples(80)
    state.update(x, y)
    noise = torch.randn(2, 100_000, DIM, generator=torch.Generator().manual_seed(0))
    for c, drawn in zip((3, 1), state.draw(torch.tensor([3, 1]), noise), strict=True):
        torch.testing.assert_close(drawn.mean(0), state.means[c], rtol=0, atol=0.02)
        torch.testing.assert_close(scatter(drawn) / 1e5, state.covariances(torch.tensor([c]))[0], rtol=0, atol=0.05)


@pytest.mark.parametrize("n", [1, 2, 40])
def test_singular_covariances_can_be_drawn_from(n):
    state = Gaussians(1, 100, shrinkage=0.1)
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(0)) @ torch.randn(3, 100)
    state.update(x, torch.zeros(n, dtype=torch.long))
    drawn = state.draw(torch.tensor([0]), torch.randn(1, 50, 100))
    assert drawn.isfinite().all()
    assert drawn.std(1).max() < 10 * x.std() if n > 1 else (drawn - x).abs().max() < 1e-3


@pytest.mark.parametrize("values", [1, 2 * 7 * DIM, 1 << 20])
def test_draws_and_distances_to_them_in_parts(values, monkeypatch):
    monkeypatch.setattr(gaussians, "DRAWS_IN_CACHE", values)
    state = Gaussians(C, DIM).double()
    state.update(*samples(60))
    classes, noise = torch.tensor([2, 0, 1]), torch.randn(3, 7, DIM, dtype=torch.float64)
    expected = state.means[classes][:, None] + noise @ state.roots(classes).mT
    draws = state.draw(classes, noise)
    assert draws is noise  # not held twice
    torch.testing.assert_close(draws, expected)
    x = torch.randn(7, DIM, dtype=torch.float64, requires_grad=True)
    found = gaussians.squares(x, draws)
    torch.testing.assert_close(found, (x - draws).square().sum(2).T)
    weight = torch.randn(7, 3, dtype=torch.float64)
    mine, expected = (torch.autograd.grad((weight * d).sum(), x)[0] for d in (found, (x - draws).square().sum(2).T))
    torch.testing.assert_close(mine, expected)
    assert torch.autograd.gradgradcheck(lambda x: gaussians.squares(x, draws), x)


def losses_by_loops(term, x, y, loss, margin=0.25):
    """The loss of the draws that a twin of the term makes."""
    classes = torch.arange(C)
    noise = torch.randn(C, len(x), DIM, generator=torch.Generator().manual_seed(0))
    draws = term.gaussians.draw(classes, noise)
    hinges, anchors = [], []
    for i, label in enumerate(y.tolist()):
        if label < 0:
            continue
        near = ((x[i] - draws[label, i]) ** 2).sum()
        far = [((x[i] - draws[c, i]) ** 2).sum() for c in range(C) if c != label and term.gaussians.counts[c] > 0]
        if not far:
            continue
        hinges += [(near - one + margin).clamp_min(0) for one in far]
        below = sum((-one).exp() for one in far) + ((-near).exp() if loss == "nca_all" else 0)
        anchors.append(-((-near).exp() / below).log())
    chosen = hinges if loss == "triplet" else anchors
    return sum(chosen) / len(chosen)


@pytest.mark.parametrize("loss", ["triplet", "nca", "nca_all"])
def test_losses_equal_loops_over_the_draws(loss):
    x, y = samples(11)
    y = torch.where(y == 2, 0, y)  # class 2 is never seen
    y[4] = -1
    x = (0.3 * x).requires_grad_()
    term = BayesianUpdating(C, DIM, loss=loss).double()
    value = term(x, y)
    expected = losses_by_loops(term, x, y, loss)
    torch.testing.assert_close(value, expected)
    (grad,), (expected_grad,) = torch.autograd.grad(value, x), torch.autograd.grad(expected, x)
    torch.testing.assert_close(grad, expected_grad)
    assert (grad[4] == 0).all()
    assert not term.gaussians.means.requires_grad


@pytest.mark.slow
def test_a_fresh_positive_for_every_negative():
    x, y = samples(12)
    one = BayesianUpdating(C, DIM, margin=5.0).double()
    each = BayesianUpdating(C, DIM, margin=5.0, positives="each").double()
    assert one(x, y).item() != pytest.approx(each(x, y).item())

    def mean(term):
        values = []
        for seed in range(300):  # in evaluation mode the state stays as it is, and so does the generator
            term._draws.manual_seed(seed)
            values.append(term(x, y))
        return torch.stack(values).mean()

    torch.testing.assert_close(mean(one.eval()), mean(each.eval()), rtol=0.03, atol=0)


def test_the_memory_learns_in_training_mode_only():
    x, y = samples(12)
    term = BayesianUpdating(C, DIM).double()
    term(x, y)
    counts = term.gaussians.counts.clone()
    term.eval()(x, y)
    assert torch.equal(term.gaussians.counts, counts)
    assert term.train()(x, y).isfinite()
    assert torch.equal(term.gaussians.counts, 2 * counts)


def test_save_and_continue_equals_uninterrupted():
    x, y = samples(12)
    term, again = BayesianUpdating(C, DIM).double(), BayesianUpdating(C, DIM, seed=5).double()
    term(x, y)
    again.load_state_dict(term.state_dict())
    assert torch.equal(term(x, y), again(x, y))
    torch.testing.assert_close(dict(again.gaussians.state_dict()), dict(term.gaussians.state_dict()))


def test_many_classes_take_part_in_turn():
    many = 30
    term = BayesianUpdating(many, DIM, max_classes=5).double()
    x, _ = samples(4)
    seen = set()
    term(torch.randn(many, DIM, dtype=torch.float64), torch.arange(many))
    for _ in range(20):
        classes = term.gaussians.choose(torch.tensor([3, 3, 9, 9]), 5, term._draws)
        assert len(classes.unique()) == 5
        assert {3, 9} <= set(classes.tolist())
        seen |= set(classes.tolist())
    assert len(seen) > 20
    assert term(x, torch.tensor([3, 3, 9, 9])).isfinite()


@pytest.mark.parametrize("labels", [[], [0], [1, 1, 1], [-1, -1], [0, 1, 2, 3]])
@pytest.mark.parametrize("loss", ["triplet", "nca"])
def test_edges_are_finite_with_a_live_gradient(labels, loss):
    x = torch.ones(len(labels), DIM, requires_grad=True)
    value = BayesianUpdating(C, DIM, loss=loss)(x, torch.tensor(labels, dtype=torch.long))
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()
    if len({label for label in labels if label >= 0}) < 2:
        assert value == 0


def test_it_adds_like_every_term():
    x, y = samples(12)
    term = BayesianUpdating(C, DIM, normalize=True).double()
    both = term + 0.5 * EnergyConfusion()
    assert both(x, y).isfinite()
    assert math.isfinite(both.parts_["BayesianUpdating"])


def test_bad_input_is_named():
    x, y = samples(4)
    term = BayesianUpdating(C, DIM).double()
    with pytest.raises(ValueError, match=r"BayesianUpdating: labels must be in 0..3, got 9"):
        term(x, torch.tensor([0, 1, 2, 9]))
    with pytest.raises(ValueError, match="expected 3 dimensions and no ref, got 2"):
        term(x[:, :2], y)
    with pytest.raises(ValueError, match="loss must be one of 'triplet', 'nca', 'nca_all'"):
        BayesianUpdating(C, DIM, loss="hinge")
    with pytest.raises(ValueError, match="max_classes must be at least 1, got 0"):
        BayesianUpdating(C, DIM, max_classes=0)
    with pytest.raises(ValueError, match=r"decay must be in \(0, 1\], shrinkage in \[0, 1\], got 0 and 0.1"):
        BayesianUpdating(C, DIM, decay=0)


@pytest.mark.parametrize("positives", ["one", "each"])
def test_a_part_of_the_anchors_has_the_draws_of_the_whole(positives):
    x, y = samples(12)
    own, whole = (BayesianUpdating(C, DIM, positives=positives).double() for _ in range(2))
    for term in (own, whole):
        term.gaussians.update(x, y)
    expected = [part[6:] for part in whole._distances(x, y, slice(0, 12))]
    torch.testing.assert_close(list(own._distances(x, y, slice(6, 12))), expected)


def worker(rank, world, folder):
    import torch.distributed as dist

    dist.init_process_group("gloo", rank=rank, world_size=world)
    x, y = samples(12)
    term = BayesianUpdating(C, DIM).double()
    own = x[rank * 6 : rank * 6 + 6].clone().requires_grad_()
    value = term(own, y[rank * 6 : rank * 6 + 6])
    value.backward()
    torch.save(
        {"value": value.detach(), "grad": own.grad / world, **term.gaussians.state_dict()}, folder / f"{rank}.pt"
    )


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    run_in_processes(worker, 2, tmp_path)
    parts = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    x, y = samples(12)
    x.requires_grad_()
    term = BayesianUpdating(C, DIM).double()
    value = term(x, y)
    value.backward()
    torch.testing.assert_close(torch.cat([part.pop("grad") for part in parts]), x.grad)
    for part in parts:
        torch.testing.assert_close(part.pop("value"), value.detach())
        torch.testing.assert_close(part, dict(term.gaussians.state_dict()))
