"""Deep adversarial metric learning: who trains what, around which loss, with which triplets."""

from inspect import signature

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode

import nearfar
from nearfar import AdversarialTriplet, ContrastiveLoss, EnergyConfusion, NPairLoss, ProxyNCALoss, TripletLoss
from nearfar.catalog import METHODS
from nearfar.deep.miners.batch_hard import BatchHard
from nearfar.deep.miners.batch_semi_hard import BatchSemiHard
from nearfar.deep.miners.random_negative import RandomNegative
from nearfar.deep.objective.parser import ObjectiveError, parse_objective
from nearfar.deep.pairwise.triplets import as_batch
from nearfar.deep.pairwise.triplets import triplet_value as triplet_share
from tests.references.adversarial_triplet import reference, triplets

LABELS = (0, 0, 1, 1, 1, 2, 3, 3, -1)
DIM = 5


def samples(labels=LABELS, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(len(labels), DIM, generator=g, dtype=torch.float64, requires_grad=True)
    return x, torch.tensor(labels)


def make(seed=0, **settings):
    """A term whose generator and metric network have moved away from their start."""
    torch.manual_seed(seed)
    term = AdversarialTriplet(DIM, **settings).double()
    with torch.no_grad():
        for weight in term.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return term


def gradients(value, x, term):
    value.backward()
    found = {"x": x.grad, **{name: p.grad for name, p in term.named_parameters()}}
    x.grad = None
    term.zero_grad()
    return {name: torch.zeros(()) if grad is None else grad.clone() for name, grad in found.items()}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, {}),
        ({"joint": True}, {"joint": True}),
        ({"hinge_sign": 1, "alpha": 2.0}, {"sign": 1, "alpha": 2.0}),
        (
            {"lam1": 0.5, "lam2": 3.0, "weight": 0.2, "joint": True},
            {"lam1": 0.5, "lam2": 3.0, "weight": 0.2, "joint": True},
        ),
        ({"loss": "TripletLoss(margin=4.0, normalize=False)"}, {"margin": 4.0}),
        ({"normalize": True}, {"normalize": True}),
    ],
)
def test_equals_the_loops_in_value_and_every_gradient(settings, told):
    x, y = samples()
    term = make(**settings)
    weights = dict(term.named_parameters())
    value, expected = term(x, y), reference(x, y, weights=weights, **told)
    torch.testing.assert_close(value, expected)
    ours, theirs = gradients(value, x, term), gradients(expected, x, term)
    for name, grad in theirs.items():
        torch.testing.assert_close(ours[name], grad, msg=lambda m, name=name: f"{name}: {m}")


def test_one_backward_pass_is_the_two_steps():
    """The generator's gradient is that of J_gen alone, with embeddings and metric network held, and vice versa."""
    x, y = samples()
    both = gradients(make()(x, y), x, make())
    generator, metric = make(weight=0.0), make()
    whole = make()
    value = whole(x, y)
    found = gradients(value, x, whole)
    alone = gradients(generator(x, y), x, generator)
    assert alone["x"].abs().max() == 0
    assert all(grad.abs().max() == 0 for name, grad in alone.items() if name.startswith("metric"))
    silent = gradients(make(lam1=0.0, lam2=0.0)(x, y), x, metric)
    for name, grad in found.items():
        if name.startswith("generator"):
            torch.testing.assert_close(grad, alone[name])
        elif name.startswith("x"):
            torch.testing.assert_close(grad, silent[name])
    torch.testing.assert_close(both["x"], found["x"])
    negatives_only = set(range(len(y))) - {i for a, p, _ in triplets(x.detach(), y) for i in (a, p)}
    assert (found["x"][list(negatives_only)] == 0).all()


def test_joint_trains_everything_with_everything():
    x, y = samples()
    apart, joint = make(), make(joint=True)
    torch.testing.assert_close(apart(x, y), joint(x, y))
    one, other = gradients(apart(x, y), x, apart), gradients(joint(x, y), x, joint)
    changed = {name for name in one if not torch.allclose(one[name], other[name])}
    assert {"x", "generator.0.weight", "generator.2.weight", "metric.0.weight"} <= changed


class Free(torch.nn.Module):
    """One free vector per triplet."""

    def __init__(self, count):
        super().__init__()
        self.points = torch.nn.Parameter(torch.zeros(count, DIM, dtype=torch.float64))

    def forward(self, stacked):
        return self.points


@pytest.mark.parametrize("lam1", [0.0, 1.0, 3.0])
def test_without_the_hinge_the_best_negative_is_a_weighted_mean(lam1):
    x, y = samples()
    found = triplets(x.detach(), y)
    term = AdversarialTriplet(DIM, lam1=lam1, lam2=0.0, weight=0.0, generator=Free(len(found))).double()
    optimizer = torch.optim.LBFGS(term.generator.parameters(), max_iter=100, tolerance_grad=1e-12)

    def closure():
        optimizer.zero_grad()
        value = term(x, y)
        value.backward()
        return value

    optimizer.step(closure)
    best = torch.stack([(x[a] + lam1 * x[n]) / (1 + lam1) for a, _, n in found])
    torch.testing.assert_close(term.generator.points, best, atol=1e-6, rtol=0)
    assert (closure() > 1e-9) == (lam1 > 0)


def test_while_pretraining_the_loss_is_that_of_real_negatives():
    x, y = samples((0, 0, 1, 1))
    term = AdversarialTriplet(DIM, lam1=0, lam2=0, pretrain=3, miner=BatchHard()).double()
    term.generator = Free(4)
    plain = TripletLoss(margin=1.0, normalize=False, miner=BatchHard())
    for epoch, real in ((0, True), (2, True), (3, False)):
        term.on_epoch(epoch)
        term(x, y)
        assert (term.stats_["metric"] == pytest.approx(plain(x, y).item())) == real
    term.on_epoch(0)
    value = term(x, y) - term.stats_["generator"]
    torch.testing.assert_close(gradients(value, x, term)["x"], gradients(plain(x, y), x, term)["x"])


@pytest.mark.parametrize("loss", [TripletLoss(soft=True, miner=BatchHard()), NPairLoss(), ContrastiveLoss(margin=1.0)])
def test_any_pair_or_triplet_loss_fits(loss):
    x, y = samples()
    a, p, n = (torch.tensor(column) for column in zip(*triplets(x.detach(), y), strict=True))
    direct = loss.local_value(as_batch(x[a], x[p], x[n]))
    term = AdversarialTriplet(DIM, loss=loss, pretrain=1, layers=0, lam1=0, lam2=0).double()
    term.on_epoch(0)
    distances = torch.cdist(x, x).square() if loss.distance == "sq_euclidean" and not loss.normalize else None
    term(x, y)
    if distances is not None:
        assert term.stats_["metric"] == pytest.approx(direct.item())
    assert term.stats_["metric"] > 0


@pytest.mark.parametrize("method", [m for m in METHODS if m.kind == "loss" and m.takes == "rows" and not m.small])
def test_a_batch_without_triplets_fits_every_loss(method):
    x, y = samples((0, 1, 2, 3))
    value = AdversarialTriplet(DIM, loss=getattr(nearfar, method.name)()).double()(x, y)
    assert value == 0
    assert not gradients(value, x, torch.nn.Module())["x"].any()


def test_a_batch_of_triplets_compares_each_with_its_own():
    x, _ = samples()
    a, p, n = x[:3], x[3:6], x[6:9]
    value = TripletLoss(margin=5.0, normalize=False, reduction="valid").local_value(as_batch(a, p, n))
    gaps = (a - p).square().sum(1) - (a - n).square().sum(1) + 5
    torch.testing.assert_close(value, gaps.clamp_min(0).mean())


PAIR_LOSSES = [
    pytest.param(getattr(nearfar, method.name), settings, id=f"{method.name} {settings}")
    for method in METHODS
    for settings in ({}, {"distance": "cosine"}, {"distance": "euclidean"}, {"miner": BatchHard()})
    if method.kind == "loss" and method.takes == "rows" and not method.small
    if settings.keys() <= signature(getattr(nearfar, method.name)).parameters.keys()
]


@pytest.mark.parametrize(("make_loss", "settings"), PAIR_LOSSES)
def test_rows_of_two_references_equal_the_batch_of_all(make_loss, settings):
    active = {nearfar.AngularLoss: {"alpha": 10.0}, nearfar.HistogramLoss: {"num_bins": 2}}.get(make_loss, {})
    if make_loss is nearfar.ContrastiveLoss and "distance" in settings:
        active = {"form": "plain"}  # the other forms have a distance of their own
    loss, (x, _) = make_loss(**settings, **active).double(), samples()
    inputs = [x[:3], x[3:6], x[6:9]]
    results = []
    for share in (triplet_share, lambda loss, *parts: loss.local_value(as_batch(*parts))):
        value = share(loss, *inputs)
        results.append((value, *torch.autograd.grad(value, inputs)))
    assert results[0][1].any(), "the loss pulls"
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(("make_loss", "settings"), PAIR_LOSSES)
def test_masked_triplets_do_not_count(make_loss, settings):
    if make_loss is nearfar.ContrastiveLoss and "distance" in settings:
        settings = {**settings, "form": "plain"}  # the other forms have a distance of their own
    loss, (x, _) = make_loss(**settings).double(), samples(range(12))
    keep = torch.tensor([True, False, True, True])
    parts = x[:4], x[4:8], x[8:]
    masked = triplet_share(loss, *parts, keep)
    listed = triplet_share(loss, *(part[keep] for part in parts))
    torch.testing.assert_close(masked, listed)
    torch.testing.assert_close(torch.autograd.grad(masked, x), torch.autograd.grad(listed, x))


def test_memory_grows_with_the_number_of_triplets():
    x = torch.randn(96, DIM)  # two classes: 4512 triplets, whose pairs are 40 million
    largest = 0

    class Largest(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            largest = max(largest, out.numel()) if isinstance(out, torch.Tensor) else largest
            return out

    with Largest():
        AdversarialTriplet(DIM)(x, torch.arange(96) % 2)
    assert largest <= 4512 * 3 * DIM


def test_triplets_are_semi_hard_unless_mined():
    x, y = samples()
    torch.testing.assert_close(make()(x, y), make(miner=BatchSemiHard())(x, y))
    assert make(miner=BatchHard())(x, y) != make()(x, y)
    term = make(miner=RandomNegative())
    assert len({term(x, y).item() for _ in range(5)}) > 1


def test_survey_form_generates_inputs():
    """With M the embedding network, and inputs in place of embeddings, G makes inputs and D compares outputs."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(DIM, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()
    x, y = samples()
    term = AdversarialTriplet(DIM, metric=net, hinge_sign=1).double()
    term(x.detach(), y).backward()
    assert all(weight.grad.abs().max() > 0 for weight in term.parameters() if weight.ndim == 2)
    assert {id(weight) for weight in net.parameters()} <= {id(weight) for weight in term.parameters()}


@pytest.mark.slow
def test_alternating_descent_is_stable():
    torch.manual_seed(0)
    y = torch.arange(40) % 4
    inputs = torch.randn(40, 6) + 2 * torch.nn.functional.one_hot(y, 6)
    net, term = torch.nn.Linear(6, DIM), AdversarialTriplet(DIM)
    optimizer = torch.optim.Adam([*net.parameters(), *term.parameters()], lr=0.01)
    history = []
    for _ in range(60):
        optimizer.zero_grad()
        term(net(inputs), y).backward()
        optimizer.step()
        history.append(term.stats_)
    assert history[-1]["metric"] < 0.8 * history[0]["metric"]
    assert history[-1]["generator"] < 20 * history[0]["generator"] + 20


def test_bad_settings_are_named():
    for loss in (ProxyNCALoss(3, DIM), EnergyConfusion(), TripletLoss() + TripletLoss()):
        with pytest.raises(TypeError, match="loss must be a pair or triplet loss"):
            AdversarialTriplet(DIM, loss=loss)
    with pytest.raises(ValueError, match="hinge_sign must be -1 or 1, got 2"):
        AdversarialTriplet(DIM, hinge_sign=2)
    for miner in ("BatchHard", BatchHard, 3):
        with pytest.raises(TypeError, match=r"AdversarialTriplet: miner must be a miner such as BatchHard\(\), got"):
            AdversarialTriplet(DIM, miner=miner)
    with pytest.raises(ObjectiveError, match="no method is called 'Tripel'"):
        AdversarialTriplet(DIM, loss="Tripel()")
    x, y = samples()
    with pytest.raises(ValueError, match="AdversarialTriplet: ref does not apply"):
        AdversarialTriplet(DIM).double()(x, y, ref=x, ref_labels=y)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("settings", [{}, {"joint": True}, {"pretrain": 2}])
def test_weights_of_another_precision_are_read_in_that_of_the_embeddings(dtype, settings):
    x, y = samples()
    torch.manual_seed(0)
    term = AdversarialTriplet(DIM, **settings).to(dtype)
    term.on_epoch(0)
    value = term(x, y)
    exact = term.double()(x, y)
    torch.testing.assert_close(value, exact)
    value.backward()
    assert x.grad.isfinite().all()


def test_embeddings_of_another_length_are_named():
    x, y = samples()
    with pytest.raises(ValueError, match="AdversarialTriplet: embedding_dim is 9, embeddings have 5 dimensions"):
        AdversarialTriplet(9)(x, y)


def test_in_an_objective_of_text():
    text = "TripletLoss() + 0.5*AdversarialTriplet(loss=NPairLoss(), miner=BatchHard(), pretrain=2)"
    objective = parse_objective(text, num_classes=4, embedding_dim=DIM).double()
    x, y = samples()
    objective(x, y).backward()
    assert x.grad.isfinite().all()
    assert objective.stats_["AdversarialTriplet"].keys() == {"generator", "metric"}
