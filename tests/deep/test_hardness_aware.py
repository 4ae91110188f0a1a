"""Hardness-aware deep metric learning: how negatives are moved, who trains what, and what a term remembers."""

import math

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar import BatchHard, HDMLLoss, NPairLoss, ProxyNCALoss, RandomNegative, TripletLoss
from nearfar.deep.losses.hdml import harder
from nearfar.deep.objective.network_layers import lend
from nearfar.deep.objective.parser import parse_objective
from tests.references.hdml import reference, triplets

LABELS = (0, 0, 1, 1, 1, 2, 3, 3, -1)
CLASSES, DIM, FEATURES = 4, 5, 7
RAW = "TripletLoss(margin=1.0, normalize=False, reduction='valid')"
OF_RAW = {"normalize": False, "margin": 1.0, "alpha": 1.0}


def samples(labels=LABELS, dim=DIM, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(len(labels), dim, generator=g, dtype=torch.float64, requires_grad=True)
    return x, torch.tensor(labels)


def make(average=(0.7, 2.0), loss=RAW, alpha=1.0, **settings):
    """A term that has seen a window of steps."""
    torch.manual_seed(0)
    term = HDMLLoss(CLASSES, DIM, loss=loss, alpha=alpha, **settings).double()
    term.weights = weights_of(average, term)
    return term


def weights_of(average, term):
    return (-torch.tensor([term.alpha, term.beta]).double() / torch.as_tensor(average)).exp()


def gradients(value, **inputs):
    """Return the gradient of each input by name, 0 for those that the value does not depend on."""
    found = torch.autograd.grad(
        value, list(inputs.values()), retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return dict(zip(inputs, found, strict=True))


def assert_same_gradients(found, expected):
    for name, grad in expected.items():
        torch.testing.assert_close(found[name], grad, msg=lambda told, name=name: f"{name}: {told}")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, {}),
        ({"alpha": 0.3, "beta": 5.0}, {"alpha": 0.3, "beta": 5.0}),
        ({"lam": 4.0}, {"lam": 4.0}),
        ({"lam": 0.0}, {"lam": 0.0}),
        ({"loss": "TripletLoss(margin=3.0, normalize=False, reduction='valid')"}, {"margin": 3.0}),
        ({"average": (0.0, 0.0)}, {"average": (1e-300, 1e-300)}),
        ({"average": (math.inf, 1.0)}, {"average": (math.inf, 1.0)}),
        (
            {"loss": "TripletLoss(margin=0.3, reduction='valid')", "average": (0.1, 1.0)},
            {"normalize": True, "margin": 0.3, "average": (0.1, 1.0)},
        ),
    ],
)
def test_equals_the_loops_in_value_and_every_gradient(settings, told):
    (x, y), term = samples(), make(**settings)
    weights = dict(term.named_parameters())
    value = term(x, y)
    expected = reference(x, y, weights=weights, **{**OF_RAW, "average": (0.7, 2.0), **told})
    torch.testing.assert_close(value, expected)
    assert_same_gradients(gradients(value, x=x, **weights), gradients(expected, x=x, **weights))


def test_generates_features_of_the_trunk_and_embeds_them_again():
    features, y = samples(dim=FEATURES)
    layer = torch.nn.Linear(FEATURES, DIM).double()
    term = make(layer=layer, features=FEATURES)
    z = layer(features)
    everything = {"features": features, **dict(layer.named_parameters()), **dict(term.named_parameters())}
    value = term(z, y, pooled=features)
    expected = reference(
        z,
        y,
        pooled=features,
        weights=dict(term.named_parameters()),
        layer=(layer.weight, layer.bias),
        average=(0.7, 2.0),
        **OF_RAW,
    )
    torch.testing.assert_close(value, expected)
    assert_same_gradients(gradients(value, **everything), gradients(expected, **everything))
    assert not any(name.startswith("layer") for name, _ in term.named_parameters())


def test_negatives_move_up_to_the_distance_of_the_positive():
    (a, p, n) = (samples(seed=seed)[0] for seed in range(3))
    near, far = (p - a).norm(dim=1), (n - a).norm(dim=1)
    torch.testing.assert_close(harder(a, p, n, torch.tensor(1.0)), n)
    for kept in (0.0, 0.4):
        moved = harder(a, p, n, torch.tensor(kept))
        torch.testing.assert_close((moved - a).norm(dim=1), torch.where(far > near, near + kept * (far - near), far))
        cosines = torch.nn.functional.cosine_similarity(moved - a, n - a)
        torch.testing.assert_close(cosines, torch.ones_like(cosines))
    assert (far > near).any()
    assert (far < near).any()


def test_with_a_perfect_generator_the_moved_negatives_are_the_synthetic_ones():
    x, y = samples()
    term = make(average=(0.5, 0.0))  # no weight is left on the real triplets
    term.generator = torch.nn.Identity()
    term(x, y)
    hinges = []
    for a, p, n in triplets(x.detach(), y):
        moved = harder(x[a][None], x[p][None], x[n][None], torch.tensor(0.5, dtype=x.dtype).reciprocal().neg().exp())
        hinges.append((x[a] - x[p]).square().sum() - (x[a] - moved).square().sum() + 1)
    assert term.stats_["synthetic"] == pytest.approx(torch.stack(hinges).clamp_min(0).mean().item())
    assert term.stats_["weight"] == 0


def test_until_a_window_has_passed_the_embeddings_learn_from_real_triplets_alone():
    (x, y), term = samples(), make(average=(math.inf, math.inf))
    hinges = [
        ((x[a] - x[p]).square().sum() - (x[a] - x[n]).square().sum() + 1).clamp_min(0)
        for a, p, n in triplets(x.detach(), y)
    ]
    expected = torch.stack(hinges).mean()
    torch.testing.assert_close(gradients(term(x, y), x=x), gradients(expected, x=x))


def test_each_part_trains_its_own():
    """Nothing of the generator's and the classifier's losses reaches the embeddings, and vice versa."""
    x, y = samples()
    terms = [make(), make(lam=9.0), make(loss="TripletLoss(margin=4.0, normalize=False)")]
    plain, heavy, wide = (gradients(term(x, y), x=x, **dict(term.named_parameters())) for term in terms)
    for name, grad in plain.items():
        changed_by_lam = not torch.allclose(heavy[name], grad)
        changed_by_margin = not torch.allclose(wide[name], grad)
        assert changed_by_lam == name.startswith("generator"), name
        assert changed_by_margin == (name == "x"), name


def test_averages_are_means_over_windows():
    x, y = samples()
    term = make(average=(math.inf, math.inf), window=3)
    metric, generator = [], []
    for step in range(7):
        if step % 3 == 0 and step:
            expected = torch.tensor([sum(metric[-3:]), sum(generator[-3:])], dtype=torch.float64) / 3
            torch.testing.assert_close(term.weights, weights_of(expected, term))
        elif step < 3:
            assert (term.weights == 1).all()
        term(x * (1 + step), y)
        metric.append(term.stats_["metric"])
        generator.append(term.stats_["generator"])
    assert len(set(metric)) == 7


def test_validation_moves_no_average():
    x, y = samples()
    term = make(window=1)
    before = {name: value.clone() for name, value in term.state_dict().items()}
    term.eval()
    term(x, y)
    torch.testing.assert_close(dict(term.state_dict()), before)
    term.train()
    term(x, y)
    assert not torch.equal(term.weights, before["weights"])


def test_resumes_bit_for_bit_within_a_window():
    y = samples()[1]
    whole = make(average=(math.inf, math.inf), window=4).float()
    again = make(average=(math.inf, math.inf), window=4).float()
    values = []
    for step in range(11):
        if step == 6:
            again.load_state_dict(whole.state_dict())
        values.append(whole(samples(seed=step)[0].float(), y))
        if step >= 6:
            assert again(samples(seed=step)[0].float(), y) == values[-1]
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_averages_keep_their_precision_in_half_precision():
    x, y = samples()
    term = HDMLLoss(CLASSES, DIM, window=1000).bfloat16()
    for _ in range(300):
        term(x.float(), y)
    assert term.steps == 300
    assert term.sums.dtype == torch.float32
    assert term.sums[1].item() == pytest.approx(300 * term.stats_["generator"], rel=1e-4)


def test_the_layer_of_a_run_is_lent():
    features, y = samples(dim=FEATURES)
    network = torch.nn.Linear(FEATURES, DIM).double()
    torch.manual_seed(0)
    text = f"TripletLoss() + 0.5*HDMLLoss(layer='embedding', features={FEATURES})"
    objective = parse_objective(text, num_classes=CLASSES, embedding_dim=DIM).double()
    with pytest.raises(ValueError, match="HDMLLoss: layer='embedding' is that of a training run; elsewhere pass"):
        objective(network(features), y, pooled=features)
    lend(network, objective)
    objective(network(features), y, pooled=features).backward()
    assert network.weight.grad.abs().max() > 0
    assert objective.stats_["HDMLLoss"].keys() == {"metric", "synthetic", "generator", "weight"}


@pytest.mark.parametrize("loss", [NPairLoss(), nearfar.IntraPairVarianceLoss(), nearfar.BinomialDevianceLoss()])
@pytest.mark.parametrize("miner", [None, BatchHard(), RandomNegative()])
def test_any_pair_or_triplet_loss_and_miner_fits(loss, miner):
    (x, y), term = samples(), make(loss=loss, miner=miner)
    grad = gradients(term(x, y), x=x)["x"]
    assert grad.isfinite().all()
    assert grad.any()
    assert (grad[-1] == 0).all(), "a sample of unknown class counts"


def test_only_mined_triplets_count():
    x, y = samples()
    hard = make(miner=BatchHard(), average=(math.inf, math.inf))
    hard(x, y)
    expected = TripletLoss(margin=1.0, normalize=False, reduction="valid", miner=BatchHard())(x, y)
    assert hard.stats_["metric"] == pytest.approx(expected.item())


@pytest.mark.slow
def test_as_the_network_learns_synthetic_triplets_take_over():
    torch.manual_seed(0)
    y = torch.arange(40) % 4
    inputs = torch.randn(40, 6) + 2 * torch.nn.functional.one_hot(y, 6)
    net, term = torch.nn.Linear(6, DIM), HDMLLoss(4, DIM, loss=RAW, alpha=1.0, window=5)
    optimizer = torch.optim.Adam([*net.parameters(), *term.parameters()], lr=0.01)
    history = []
    for _ in range(120):
        optimizer.zero_grad()
        term(net(inputs), y).backward()
        optimizer.step()
        history.append(term.stats_)
    assert history[0]["weight"] == 1
    assert history[-1]["weight"] < 0.6
    assert history[-1]["generator"] < 0.5 * history[0]["generator"]
    assert history[-1]["metric"] < 0.5 * history[0]["metric"]


def test_bad_settings_are_named():
    for settings, told in (
        ({"alpha": 0.0}, "alpha and beta must be positive, got 0.0 and 1.0"),
        ({"beta": -1.0}, "alpha and beta must be positive, got 0.1 and -1.0"),
        ({"lam": -0.1}, "lam must not be negative, got -0.1"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"layer": "embedding"}, "layer and its number of features, at least 1, are given together"),
        ({"features": 3}, "layer and its number of features, at least 1, are given together"),
        ({"layer": "embedding", "features": 0}, "layer and its number of features, at least 1, are given together"),
        ({"layer": 3, "features": 3}, "layer must be a module, 'embedding' or None; got 3"),
    ):
        with pytest.raises(ValueError, match=f"HDMLLoss: {told}"):
            HDMLLoss(CLASSES, DIM, **settings)
    for loss in (ProxyNCALoss(3, DIM), TripletLoss() + TripletLoss()):
        with pytest.raises(TypeError, match="HDMLLoss: loss must be a pair or triplet loss"):
            HDMLLoss(CLASSES, DIM, loss=loss)
    with pytest.raises(TypeError, match=r"HDMLLoss: miner must be a miner such as BatchHard\(\), got"):
        HDMLLoss(CLASSES, DIM, miner="BatchHard")


def test_bad_inputs_are_named():
    x, y = samples()
    term = make()
    with pytest.raises(ValueError, match="HDMLLoss: ref does not apply"):
        term(x, y, ref=x, ref_labels=y)
    with pytest.raises(ValueError, match=r"HDMLLoss: labels must be in 0\.\.3, got 7"):
        term(x, y + 4)
    with pytest.raises(ValueError, match="HDMLLoss: embedding_dim is 5, embeddings have 4"):
        term(x[:, 1:], y)
    layered = make(layer=torch.nn.Linear(FEATURES, DIM).double(), features=FEATURES)
    for pooled in (None, x):
        with pytest.raises(ValueError, match=r"HDMLLoss: pooled: expected \(n, 7\) features, got (None|\(9, 5\))"):
            layered(x, y, pooled=pooled)
