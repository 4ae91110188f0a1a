"""Joint representation diversification: its kernels, its statistics and what relates them."""

import math

import pytest

torch = pytest.importorskip("torch")

from nearfar import (
    JMMD,
    JRS,
    AMSoftmaxLoss,
    BinomialDevianceLoss,
    CrossBatchMemory,
    EnergyConfusion,
    IntraClassPenalty,
    JIntra,
    JRDLoss,
)
from nearfar.deep.wholebatch.batch_classes import batch_classes
from nearfar.deep.wholebatch.kernel_embeddings import class_sums, layer_kernel, mixture, squared_distances
from tests.references import binomial_deviance, intra_class, jintra, jmmd, jrs

from .gradients import unit

REFERENCES = {JRS: jrs.reference, JMMD: jmmd.reference, JIntra: jintra.reference}
KERNELS = ("gaussian", "laplace", "polynomial", "exponential", "linear")


def samples(seed=0, labels=(0, 0, 1, 1, 1, 2, 3, 3, -1), dim=4, requires_grad=False):
    g = torch.Generator().manual_seed(seed)
    n = len(labels)
    x = torch.randn(n, dim, generator=g, dtype=torch.float64, requires_grad=requires_grad)
    return x, torch.tensor(labels), torch.randn(n, 6, generator=g, dtype=torch.float64)


def same_value_and_gradient(value, expected, inputs):
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)
    grads = torch.autograd.grad(value, inputs), torch.autograd.grad(expected, inputs, retain_graph=True)
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("term", REFERENCES)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("layers", "kernels", "class_kernels"),
    [
        (("embedding",), 1, 1),
        (("pooled", "embedding"), 3, 1),
        (("class",), 3, 2),
        (("pooled", "embedding", "class"), 5, 1),
    ],
)
def test_equals_the_loops_on_every_layer(term, kernel, layers, kernels, class_kernels):
    x, y, pooled = samples(requires_grad=True)
    pooled.requires_grad_()
    settings = {"kernel": kernel, "kernels": kernels, "class_kernels": class_kernels, "degree": 3}
    softmax = AMSoftmaxLoss(4, 4).double()
    objective = 0.0 * softmax + term(layers, **settings)
    scores = unit(x) @ unit(softmax.proxies).T
    expected = REFERENCES[term](x, y, pooled=pooled, scores=scores, layers=layers, **settings)
    inputs = [x] if "pooled" not in layers else [x, pooled]
    inputs += [softmax.proxies] if "class" in layers else []
    same_value_and_gradient(objective(x, y, pooled=pooled), expected, inputs)


@pytest.mark.parametrize("term", [JMMD, JIntra])
def test_squared_norms_equal_the_loops(term):
    x, y, _ = samples(requires_grad=True)
    expected = REFERENCES[term](x, y, layers=("embedding",), squared=True)
    same_value_and_gradient(term(("embedding",), squared=True)(x, y), expected, [x])


@pytest.mark.parametrize("term", [JRS, JMMD, JIntra])
@pytest.mark.parametrize("kernel", ["polynomial", "exponential", "linear"])
def test_gradient_of_the_kernels_without_bandwidth(term, kernel):
    x, y, _ = samples(requires_grad=True)
    loss = term(("embedding",), kernel=kernel)
    assert torch.autograd.gradcheck(lambda z: loss(z, y), (x,))


def test_bandwidths_are_the_papers():
    d = torch.tensor([[0.0, 3.0], [3.0, 0.0]], dtype=torch.float64)
    tau = torch.tensor(2.0, dtype=torch.float64)
    one, three = mixture(d, tau, 1), mixture(d, tau, 3)
    assert one[0, 1].item() == pytest.approx(math.exp(-3 / 2))
    widths = (1.0, 2.0, 4.0)  # tau/2, tau, 2 tau
    assert three[0, 1].item() == pytest.approx(sum(math.exp(-3 / w) for w in widths) / 3)
    x, _, _ = samples()
    d = squared_distances(x)
    n = len(x)
    tau = sum(float(((a - b) ** 2).sum()) for a in x for b in x) / (n * n - n)
    torch.testing.assert_close(layer_kernel(x, "gaussian", 1, 2), torch.exp(-d / tau))


def test_block_sums_equal_the_masked_mean():
    x, y, _ = samples(labels=(5, 5, 2, 2, 2, 9, 0))
    k = layer_kernel(x, "gaussian", 3, 2)
    different = y[:, None] != y
    torch.testing.assert_close(JRS(("embedding",))(x, y), layer_kernel(unit(x), "gaussian", 3, 2)[different].mean())
    sums = class_sums(k, batch_classes(y))
    assert sums.sizes.tolist() == [1, 3, 2, 1]
    torch.testing.assert_close(sums.blocks[1, 2], k[(y == 2)][:, y == 5].sum())


def test_is_one_only_where_all_classes_coincide():
    y = torch.tensor([0, 0, 1, 1])
    apart, _, _ = samples(labels=y.tolist())
    assert JRS(("embedding",))(torch.ones(4, 3), y).item() == pytest.approx(1.0)
    assert 0 < JRS(("embedding",))(apart, y).item() < 1


def test_moving_and_scaling_a_layer_changes_nothing():
    x, y, pooled = samples()
    value = JRS(("pooled",))(x, y, pooled=pooled)
    torch.testing.assert_close(JRS(("pooled",))(x, y, pooled=7 * pooled + 100), value)
    torch.testing.assert_close(
        JRS(("pooled",), kernel="laplace")(x, y, pooled=pooled / 3 - 5),
        JRS(("pooled",), kernel="laplace")(x, y, pooled=pooled),
    )


def test_product_of_layers_is_the_kernel_of_their_concatenation():
    x, _, pooled = samples()
    a, b = squared_distances(pooled), squared_distances(unit(x))
    width = torch.tensor(1.7, dtype=torch.float64)
    joint = squared_distances(torch.cat([pooled, unit(x)], 1))
    torch.testing.assert_close(mixture(a, width, 1) * mixture(b, width, 1), mixture(joint, width, 1))


def test_descent_moves_different_classes_apart():
    x, y, pooled = samples(labels=(0, 0, 1, 1))
    pooled.requires_grad_()
    (grad,) = torch.autograd.grad(JRS(("pooled",))(x, y, pooled=pooled), pooled)
    moved = pooled.detach() - 0.1 * grad
    different = y[:, None] != y
    tau = squared_distances(pooled.detach()).sum() / 12
    before, after = (mixture(squared_distances(z.detach()), tau, 3)[different].mean() for z in (pooled, moved))
    assert after < before


def test_minimizing_intra_class_terms_draws_a_class_together():
    y = torch.tensor([0, 0, 1, 1])
    x, _, _ = samples(labels=y.tolist(), requires_grad=True)
    for term in (IntraClassPenalty(), JIntra(("embedding",), squared=True)):
        (grad,) = torch.autograd.grad(term(x, y), x)
        before, after = unit(x.detach()), unit(x.detach() - 0.05 * grad)
        assert (after[0] - after[1]).norm() < (before[0] - before[1]).norm()


def test_statistic_is_the_inner_product_of_joint_characteristic_functions():
    g = torch.Generator().manual_seed(0)
    first = torch.randn(12, 1, generator=g, dtype=torch.float64)
    layers = [first, first + 0.1 * torch.randn(12, 1, generator=g, dtype=torch.float64)]  # dependent layers
    y = torch.arange(12) % 2
    widths = [torch.tensor(w, dtype=torch.float64) for w in (2.0, 3.0)]
    k = mixture(squared_distances(layers[0]), widths[0], 1) * mixture(squared_distances(layers[1]), widths[1], 1)
    exact = class_sums(k, batch_classes(y)).similarities()[0, 1]
    omega = [torch.randn(200_000, 1, generator=g, dtype=torch.float64) * (2 / w).sqrt() for w in widths]
    phase = sum(z @ w.T for z, w in zip(layers, omega, strict=True))  # (n, features)
    phi = [torch.polar(torch.ones_like(phase[y == c]), phase[y == c]).mean(0) for c in (0, 1)]
    assert (phi[0] * phi[1].conj()).real.mean().item() == pytest.approx(exact.item(), abs=5e-3)
    alone = [
        class_sums(mixture(squared_distances(z), w, 1), batch_classes(y)).similarities()[0, 1]
        for z, w in zip(layers, widths, strict=True)
    ]
    assert abs(alone[0] * alone[1] - exact) > 0.02  # the product over layers is another number


def test_factorizes_over_layers_of_product_measures():
    a = torch.randn(2, 3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)  # class, atom, dim
    b = torch.randn(2, 4, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    first = a[:, :, None].expand(2, 3, 4, 2).reshape(24, 2)  # every atom of a with every atom of b
    second = b[:, None].expand(2, 3, 4, 1).reshape(24, 1)
    y = torch.arange(2).repeat_interleave(12)
    width = torch.tensor(1.3, dtype=torch.float64)
    kernels = [mixture(squared_distances(z), width, 1) for z in (first, second)]
    classes = batch_classes(y)
    joint = class_sums(kernels[0] * kernels[1], classes).similarities()
    torch.testing.assert_close(
        joint, class_sums(kernels[0], classes).similarities() * class_sums(kernels[1], classes).similarities()
    )


def test_squared_discrepancy_is_intra_plus_twice_the_similarity():
    x, y, pooled = samples()
    layers = ("pooled", "embedding")
    parts = [
        term(x, y, pooled=pooled) for term in (JMMD(layers, squared=True), JIntra(layers, squared=True), JRS(layers))
    ]
    torch.testing.assert_close(parts[0], parts[1] + 2 * parts[2])
    assert parts[0] <= 0


def test_linear_kernel_gives_distances_of_means():
    y = torch.tensor([0, 0, 0, 1, 1])
    x, _, _ = samples(labels=y.tolist())
    means = [unit(x)[y == c].mean(0) for c in (0, 1)]
    torch.testing.assert_close(
        -JMMD(("embedding",), kernel="linear", squared=True)(x, y), (means[0] - means[1]).square().sum()
    )
    torch.testing.assert_close(JRS(("embedding",), kernel="linear")(x, y), means[0] @ means[1])


def test_energy_is_two_minus_twice_the_linear_similarity_on_unit_vectors():
    x, _, _ = samples(labels=(0,) * 8)
    y = torch.arange(8) % 4  # classes of one size: both average the same
    linear = JRS(("embedding",), kernel="linear")(x, y)
    torch.testing.assert_close(EnergyConfusion(on="normalized")(x, y), 2 - 2 * linear)


def test_unknown_samples_count_nowhere():
    x, y, pooled = samples()
    keep = y >= 0
    for term in (JRS(("pooled", "embedding")), JMMD(("pooled",)), JIntra(("embedding",)), IntraClassPenalty()):
        torch.testing.assert_close(term(x, y, pooled=pooled), term(x[keep], y[keep], pooled=pooled[keep]))


@pytest.mark.parametrize("term", [JRS, JMMD, JIntra])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", KERNELS)
def test_collapsed_layers_have_a_bounded_gradient(term, dtype, kernel):
    y = torch.tensor([0, 0, 1, 1, 2])
    for x in (torch.full((5, 7), 0.3), torch.zeros(5, 7), torch.full((5, 7), 1e4) + 1e-4 * torch.arange(5)[:, None]):
        pooled = x.to(dtype).requires_grad_()
        value = term(("pooled",), kernel=kernel)(torch.ones(5, 2, dtype=dtype), y, pooled=pooled)
        (grad,) = torch.autograd.grad(value, pooled)
        assert value.isfinite()
        assert grad.isfinite().all()


def test_one_class_or_one_sample_gives_zero():
    x, _, _ = samples(labels=(0,) * 5, requires_grad=True)
    for term in (JRS(("embedding",)), JMMD(("embedding",)), JIntra(("embedding",))):
        for n in (1, 5):
            value = term(x[:n], torch.zeros(n, dtype=torch.long))
            (grad,) = torch.autograd.grad(value, x)
            assert value == 0
            assert not grad.any()


def test_missing_layers_are_named():
    x, y, pooled = samples()
    with pytest.raises(ValueError, match="JRS: the 'pooled' layer is missing: pass the trunk's features"):
        JRS()(x, y)
    with pytest.raises(ValueError, match="JMMD: the 'class' layer is missing: add it to a loss with class proxies"):
        JMMD()(x, y, pooled=pooled)
    with pytest.raises(ValueError, match="layers must be some of pooled, embedding, class"):
        JRS(("pool",))
    with pytest.raises(ValueError, match="kernel must be one of 'gaussian'"):
        JIntra(kernel="cauchy")
    with pytest.raises(ValueError, match="kernels must be at least 1, got 0"):
        JRS(kernels=0)


def test_preset_is_softmax_plus_similarity_wherever_it_stands_in_the_sum():
    torch.manual_seed(0)
    preset = JRDLoss(4, 4, alpha=0.4).double()
    x, y, pooled = samples()
    value = preset(x, y, pooled=pooled)
    torch.testing.assert_close(value.detach(), preset.parts_["AMSoftmaxLoss"] + 0.4 * preset.parts_["JRS"])
    (weight, softmax), (alpha, jrs_term) = preset.parts()
    turned = alpha * jrs_term + weight * softmax
    torch.testing.assert_close(turned(x, y, pooled=pooled), value)
    assert [tuple(p.shape) for p in preset.parameters()] == [(4, 4)]


def test_similarity_reaches_pooled_embedding_and_proxies():
    x, y, pooled = samples(requires_grad=True)
    pooled.requires_grad_()
    preset = JRDLoss(4, 4).double()
    preset(x, y, pooled=pooled).backward()
    assert pooled.grad[y >= 0].abs().sum(1).gt(0).all()
    assert preset.terms[0].proxies.grad.abs().sum() > 0


def test_softmax_without_margin_is_the_normalized_softmax():
    x, y, _ = samples(labels=(0, 1, 2, 3, 3, 1))
    loss = AMSoftmaxLoss(4, 4, scale=7.0, margin=0.0).double()
    logits = 7.0 * unit(x) @ unit(loss.proxies).T
    torch.testing.assert_close(loss(x, y), torch.nn.functional.cross_entropy(logits, y))


def test_softmax_grows_with_its_margin_and_has_no_radial_gradient():
    x, y, _ = samples(labels=(0, 1, 2, 3, 3, 1), requires_grad=True)
    torch.manual_seed(0)
    loss = AMSoftmaxLoss(4, 4).double()
    values = []
    for margin in (0.0, 0.05, 0.1, 0.5):
        loss.margin = margin
        values.append(loss(x, y).item())
    assert values == sorted(values)
    assert values[0] < values[-1]
    (grad,) = torch.autograd.grad(loss(x, y), x)
    torch.testing.assert_close((grad * x).sum(1), torch.zeros(6, dtype=torch.float64), atol=1e-12, rtol=0)
    assert AMSoftmaxLoss(1, 4).double()(x, torch.zeros(6, dtype=torch.long)) == 0
    assert loss.proxies.abs().max() <= 0.5


@pytest.mark.parametrize("reduction", ["balanced", "anchor", "sum"])
def test_binomial_deviance_equals_the_loops_under_every_reduction(reduction):
    x, y, _ = samples(requires_grad=True)
    settings = {"alpha": 1.5, "beta": 0.3, "eta": 4.0, "reduction": reduction}
    expected = binomial_deviance.reference(x, y, **settings)
    for block in (None, 2):
        same_value_and_gradient(BinomialDevianceLoss(**settings, block=block)(x, y), expected, [x])


def test_binomial_deviance_terms():
    cos = 0.2
    x = torch.tensor([[1.0, 0.0], [cos, math.sqrt(1 - cos**2)]], dtype=torch.float64, requires_grad=True)
    near, far = BinomialDevianceLoss()(x, [0, 0]), BinomialDevianceLoss()(x, [0, 1])
    assert near.item() == pytest.approx(math.log1p(math.exp(-2 * (cos - 0.5))))
    assert far.item() == pytest.approx(math.log1p(math.exp(50 * (cos - 0.5))))
    assert BinomialDevianceLoss(beta=cos)(x, [0, 0]).item() == pytest.approx(math.log(2))
    (grad,) = torch.autograd.grad(near, x)
    torch.testing.assert_close((grad * x).sum(1), torch.zeros(2, dtype=torch.float64), atol=1e-12, rtol=0)


def test_intra_class_penalty_adds_the_classes():
    x, y, _ = samples(requires_grad=True)
    expected = intra_class.reference(x, y)
    for block in (None, 4):
        same_value_and_gradient(IntraClassPenalty(block=block)(x, y), expected, [x])
    same = torch.ones(6, 3)
    assert IntraClassPenalty()(same, [0, 0, 1, 1, 1, 2]).item() == pytest.approx(-2.0)


@pytest.mark.parametrize("block", [None, 2])
def test_intra_class_penalty_averages_the_pairs_of_each_class_with_a_reference(block):
    x, y, _ = samples(requires_grad=True)
    ref, ref_y, _ = samples(1, (0, 1, 1, 1, 0, 9, -1), requires_grad=True)
    kernel = torch.exp(-(unit(x)[:, None] - unit(ref)).square().sum(2) / 2)
    expected = -sum(kernel[y == c][:, ref_y == c].mean() for c in (0, 1))
    value = IntraClassPenalty(block=block)(x, y, ref=ref, ref_labels=ref_y)
    same_value_and_gradient(value, expected, [x, ref])
    memory = CrossBatchMemory(IntraClassPenalty(block=block), size=7).double()
    memory(ref, ref_y)
    same_value_and_gradient(memory(x, y), IntraClassPenalty()(x, y) + expected, [x])
    # with ids, an earlier embedding of the same sample is no pair, and is not counted as one
    ids, ref_ids = torch.arange(len(x)), torch.tensor([0, 1, 2, 3, 20, 21, 22])
    apart = ids[:, None] != ref_ids
    pairs = [(y[:, None] == c) & (ref_y == c) & apart for c in (0, 1)]
    assert any(int(chosen.sum()) < int((y == c).sum() * (ref_y == c).sum()) for c, chosen in enumerate(pairs))
    memory = CrossBatchMemory(IntraClassPenalty(block=block), size=7).double()
    memory(ref, ref_y, ids=ref_ids)
    expected = -sum(kernel.detach()[chosen].mean() for chosen in pairs)
    torch.testing.assert_close(memory(x, y, ids=ids) - IntraClassPenalty()(x, y), expected)
