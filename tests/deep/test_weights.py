"""Losses of single samples, weights of samples, shares of classes, and a margin in soft triplets."""

from copy import deepcopy

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar.deep import LabelSets, SampledClasses, ShardedClasses
from nearfar.deep.objective.terms import AnchorLoss
from nearfar.deep.proxies.heads import HeadLoss
from tests.test_losses import CLASSES, DIM, TERMS, batch, make, relation

ANCHORS = [m for m in TERMS if issubclass(getattr(nearfar, m.name), AnchorLoss | HeadLoss)]
WITHOUT = {
    "ProxyAnchorLoss": "its anchors are the proxies",
    "HistogramLoss": "its value is not a mean over samples",
}
WITH_LOSSES = [m for m in TERMS if m.name == "Matryoshka" or (m in ANCHORS and m.name not in WITHOUT)]
ADDS = {"SoftTripleLoss": {"tau": 0.2}, "MarginLoss": {"nu": 0.3}, "SNRContrastiveLoss": {"zero_mean": 0.1}}
ADDS |= {"ALMNLoss": {"reg": 0.1}}  # what these and VICRegLoss and NPairLoss add once per call
PROXIES = ["AMSoftmaxLoss", "ArcFaceLoss", "ProxyNCAPlusPlusLoss", "ProxyNCALoss", "SoftTripleLoss", "AdaFaceLoss"]


def made(name, **how):
    method = next(m for m in TERMS if m.name == name)
    return make(method, **{**ADDS.get(name, {}), **how})


def value_and_sample_losses(term, x, y, **ref):
    torch.manual_seed(0)
    value = term(x, y, **ref)
    torch.manual_seed(0)
    return value, term.sample_losses(x, y, **ref)


def labels_of_all_kinds(y, ref_y):
    """Return labels and those of references: classes, relations, degrees of similarity, label sets; with references."""
    sets = [LabelSets.of([[c] if c >= 0 else [] for c in part.tolist()], num_classes=CLASSES) for part in (y, ref_y)]
    degrees = torch.rand(len(y), len(y), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return {
        "classes": (y, {}),
        "relation": (relation(y, y), {}),
        "degrees": (torch.where(relation(y, y) < 0, -1.0, degrees), {}),
        "sets": (sets[0], {}),
        "reference": (y, {"ref_labels": ref_y}),
        "relation to a reference": (relation(y, ref_y), {"ref_labels": ref_y}),
        "sets of a reference": (sets[0], {"ref_labels": sets[1]}),
    }


@pytest.mark.parametrize("method", TERMS, ids=lambda m: m.name)
def test_the_mean_of_sample_losses_is_the_value_or_there_are_none(method):
    x, y, _ = batch(labels=[0, 0, 1, 1, 1, 2, 3, 4, 4, 5, -1, -1] * 2)
    ref, ref_y, _ = batch(10, seed=2)
    with_losses = set()
    for kind, (labels, others) in labels_of_all_kinds(y, ref_y).items():
        given = {"ref": ref.detach(), **others} if others else {}
        try:
            value, losses = value_and_sample_losses(made(method.name), x, labels, **given)
        except (TypeError, ValueError):  # a kind that the loss does not take, or no losses of samples
            continue
        with_losses.add(kind)
        assert losses.shape == (24,)
        torch.testing.assert_close(losses.mean(), value)
        (one,) = torch.autograd.grad(value, x, retain_graph=True)
        (other,) = torch.autograd.grad(losses.mean(), x)
        torch.testing.assert_close(one, other)
    assert ("classes" in with_losses) == (method in WITH_LOSSES)
    assert ("degrees" in with_losses) == (method.name == "GeneralizedContrastiveLoss")


@pytest.mark.parametrize("name", [*ADDS, "VICRegLoss", "NPairLoss"])
def test_weights_leave_what_is_added_once_per_call(name):
    x, y, _ = batch()
    without = {"VICRegLoss": {"variance": 0, "covariance": 0}, "NPairLoss": {"reg": 0}}
    without |= {name: dict.fromkeys(settings, 0) for name, settings in ADDS.items()}
    whole, bare = made(name), made(name, **without[name])
    w = torch.arange(24) % 3
    added = whole(x, y) - bare(x, y)
    assert added > 0
    torch.testing.assert_close(whole.weighted(x, y, w), bare.weighted(x, y, w) + added)


@pytest.mark.parametrize(("name", "why"), WITHOUT.items())
def test_what_has_no_losses_of_samples(name, why):
    x, y, _ = batch()
    with pytest.raises(TypeError, match=f"{name}: {why}"):
        made(name).sample_losses(x, y)


WRAPPED = {
    "sum": lambda: nearfar.TripletLoss(reduction="valid") + 0.5 * nearfar.AMSoftmaxLoss(CLASSES, DIM),
    "scaled": lambda: 3 * nearfar.MarginLoss(),
    "prefixes": lambda: nearfar.Matryoshka("NTXentLoss() + AMSoftmaxLoss()", dims=(2, DIM), num_classes=CLASSES),
    "memory": lambda: nearfar.CrossBatchMemory(nearfar.ContrastiveLoss(), size=40),
    "memory of what adds": lambda: nearfar.CrossBatchMemory(nearfar.VICRegLoss(), size=40, weight=0.3),
    "late memory": lambda: nearfar.CrossBatchMemory(nearfar.TripletLoss(), size=7, weight=0.3, start=1),
    "drawn": lambda: SampledClasses(nearfar.CosFaceLoss(60, DIM), 0.3),
    "drawn blocks": lambda: SampledClasses(nearfar.AdaFaceLoss(60, DIM, block=5), 0.3),
    "drawn centers": lambda: SampledClasses(nearfar.SubCenterArcFaceLoss(60, DIM), 0.3),
    "drawn of a head": lambda: SampledClasses(nearfar.CrossEntropyHead(60, DIM, smoothing=0.1), 0.3),
    "sum of drawn": lambda: SampledClasses(nearfar.ArcFaceLoss(60, DIM), 0.3) + nearfar.SupConLoss(),
    "class means": lambda: nearfar.ProxyNCALoss(CLASSES, DIM, proxies="class_mean"),
}


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("training", [True, False])
def test_sample_losses_of_wrapped_losses_count_as_a_call(name, training):
    """Two steps, by the value and by the losses of samples: the numbers, the gradients and the states are the same."""
    torch.manual_seed(0)
    one = WRAPPED[name]().double().train(training)
    other = deepcopy(one)
    for seed in (1, 2):
        x, y, _ = batch(seed=seed, labels=[0, 0, 1, 1, 1, 2, 3, 4, 4, 5, -1, -1] * 2)
        torch.manual_seed(seed)
        value = one(x, y)
        torch.manual_seed(seed)
        losses = other.sample_losses(x, y)
        assert losses.shape == (24,)
        torch.testing.assert_close(losses.mean(), value)
        inputs = [x, *one.parameters()]
        copies = [x, *other.parameters()]
        slopes = torch.autograd.grad(value, [part for part in inputs if part.requires_grad])
        found = torch.autograd.grad(losses.mean(), [part for part in copies if part.requires_grad])
        torch.testing.assert_close(found, slopes)
        torch.testing.assert_close(other.state_dict(), one.state_dict())


def test_weights_of_wrapped_losses():
    x, y, _ = batch()
    w = torch.arange(24) % 3
    term = nearfar.TripletLoss() + 0.5 * nearfar.AMSoftmaxLoss(CLASSES, DIM).double()
    losses = term.sample_losses(x, y)
    torch.testing.assert_close(term.weighted(x, y, w), (w * losses).sum() / w.sum())


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (lambda: nearfar.TripletLoss() + nearfar.EnergyConfusion(), "EnergyConfusion: its value is not a mean over"),
        (lambda: nearfar.HORDE(DIM), "HORDE: its value is not a mean over samples, so samples have no losses of"),
        (
            lambda: nearfar.Matryoshka(nearfar.HistogramLoss(), dims=(2,)),
            "HistogramLoss: its value is not a mean over samples",
        ),
        (
            lambda: nearfar.CrossBatchMemory(nearfar.ProxyNCALoss(CLASSES, DIM)),
            "CrossBatchMemory: .*: with a proxy loss",
        ),
        (lambda: SampledClasses(nearfar.ProxyAnchorLoss(CLASSES, DIM)), "ProxyAnchorLoss: its anchors are the proxies"),
        (lambda: ShardedClasses(nearfar.CosFaceLoss(CLASSES, DIM)), r"ShardedClasses\(CosFaceLoss\): all processes"),
    ],
)
def test_what_is_no_mean_over_samples_has_no_sample_losses(term, message):
    x, y, _ = batch()
    objective = term().double()
    for call in (objective.sample_losses, lambda x, y: objective.weighted(x, y, torch.ones(24))):
        with pytest.raises(TypeError, match=message):
            call(x, y)


@pytest.mark.parametrize("block", [None, 5])
@pytest.mark.parametrize("name", [*PROXIES, "CrossEntropyHead", "KLHead"])
def test_samples_of_several_classes_have_losses_and_weights(name, block):
    x, y, _ = batch()
    term = made(name, block=block, **({"tau": 0} if name == "SoftTripleLoss" else {}))
    g = torch.Generator().manual_seed(0)
    shares = torch.rand(24, CLASSES, generator=g, dtype=torch.float64)
    shares = shares / shares.sum(1, keepdim=True)
    shares[3] = 0  # of unknown class
    losses = term.sample_losses(x, LabelSets(shares))
    value = term(x, LabelSets(shares))
    assert losses[3] == 0
    torch.testing.assert_close(losses.mean(), value)
    slopes = [torch.autograd.grad(one, x, retain_graph=True)[0] for one in (losses.mean(), value)]
    torch.testing.assert_close(*slopes)
    w = torch.arange(24) % 3
    torch.testing.assert_close(term.weighted(x, LabelSets(shares), w), (w * losses).sum() / w.sum())
    hot = torch.nn.functional.one_hot(y.clamp_min(0), CLASSES).double()
    torch.testing.assert_close(term.sample_losses(x, LabelSets(hot)), term.sample_losses(x, y.clamp_min(0)))


@pytest.mark.parametrize("block", [None, 5])
@pytest.mark.parametrize("name", ["TripletLoss", "NTXentLoss", "AMSoftmaxLoss", "CrossEntropyHead"])
def test_weights_are_how_often_a_loss_counts(name, block):
    x, y, _ = batch()
    term = made(name, block=block)
    w = torch.arange(24) % 3
    expected = (w * term.sample_losses(x, y)).sum() / w.sum()
    torch.testing.assert_close(term.weighted(x, y, w), expected)
    torch.testing.assert_close(term.weighted(x, y, torch.ones(24)), term(x, y))
    some = w > 0
    if name == "AMSoftmaxLoss":  # a sample of weight 0 is not there
        torch.testing.assert_close(term.weighted(x, y, some.long()), term(x[some], y[some]))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(23), r"weights: expected one per embedding, 24, got shape \(23,\)"),
        (-torch.ones(24), "weights: must be finite and not negative"),
        (torch.full((24,), torch.nan), "weights: must be finite and not negative"),
    ],
)
def test_weights_that_are_none(weights, message):
    x, y, _ = batch()
    with pytest.raises(ValueError, match=message):
        nearfar.TripletLoss().weighted(x, y, weights)


@pytest.mark.parametrize("block", [None, 5])
@pytest.mark.parametrize("name", PROXIES)
def test_shares_mix_the_losses_of_classes(name, block):
    """Mixup: a sample of two classes has the mean of their losses, by its shares."""
    x, y, _ = batch()
    term = made(name, block=block)
    other = (y + torch.arange(24) % 3) % CLASSES
    lam = torch.linspace(0.5, 0.9, 24, dtype=torch.float64)
    shares = torch.zeros(24, CLASSES, dtype=torch.float64)
    shares = shares.scatter_add(1, y[:, None], lam[:, None]).scatter_add(1, other[:, None], 1 - lam[:, None])
    value = term(x, LabelSets(shares))
    expected = (lam * term.sample_losses(x, y) + (1 - lam) * term.sample_losses(x, other)).mean()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value, x), torch.autograd.grad(expected, x))


@pytest.mark.parametrize("name", PROXIES)
def test_shares_of_one_class_are_classes(name):
    x, y, _ = batch(labels=[0, 0, 1, 1, 1, 2, 3, 4, 4, 5, -1, -1] * 2)
    shares = torch.nn.functional.one_hot(y.clamp_min(0), CLASSES).double() * (y >= 0)[:, None]
    term = made(name)
    torch.testing.assert_close(term(x, LabelSets(shares)), term(x, y))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t * 0.5, "labels: shares of classes must be at least 0 and sum to 1 in each row, got a sum of 0.5"),
        (lambda t: t[:, :3], "labels need one column per class, 8, got 3"),
        (lambda t: torch.cat([t[:, :1] - 1, t[:, 1:2] + 1, t[:, 2:]], 1), "least -"),
        (lambda t: t * torch.nan, "sum to 1 in each row, got a sum of nan"),
    ],
)
def test_shares_that_are_none(change, message):
    x, y, _ = batch()
    shares = torch.nn.functional.one_hot(y, CLASSES).double()
    with pytest.raises(ValueError, match=message):
        made("AMSoftmaxLoss")(x, LabelSets(change(shares)))


@pytest.mark.parametrize("how", [{}, {"swap": True}, {"miner": nearfar.BatchHard()}, {"block": 5}])
def test_the_margin_of_soft_triplets_counts(how):
    x, y, _ = batch()
    soft = nearfar.TripletLoss(soft=True, **how)
    assert bool(nearfar.TripletLoss(0.5, soft=True, **how)(x, y) > soft(x, y))
    torch.testing.assert_close(nearfar.TripletLoss(0.0, soft=True, **how)(x, y), soft(x, y))
    equal = torch.ones(8, DIM, dtype=torch.float64)
    value = nearfar.TripletLoss(0.5, soft=True, **how)(equal, torch.arange(8) % 2)
    torch.testing.assert_close(value, torch.tensor(0.5).exp().log1p().double())


def test_blocks_follow_the_memory_of_a_device(monkeypatch):
    from nearfar.deep.pairwise import comparison

    cpu = torch.device("cpu")
    monkeypatch.setattr(comparison, "FULL", 1000)
    monkeypatch.setattr(comparison, "comparisons_at_once", lambda device: 1000)
    assert comparison.spans(slice(0, 10), 100, None, cpu) == [(0, 10)]
    assert comparison.spans(slice(3, 133), 100, None, cpu) == [(3, 67), (67, 131), (131, 133)]
    assert comparison.spans(slice(0, 10), 100, 4, cpu) == [(0, 4), (4, 8), (8, 10)]
    assert comparison.spans(slice(0, 0), 100, None, cpu) == []
