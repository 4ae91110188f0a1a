"""Losses against class proxies: relations, sources of the proxies, agreement with a known library."""

import math

import pytest

torch = pytest.importorskip("torch")

from nearfar import (
    JRS,
    AdaFaceLoss,
    AMSoftmaxLoss,
    ArcFaceLoss,
    CosFaceLoss,
    CrossBatchMemory,
    CrossEntropyHead,
    DynamicArcFaceLoss,
    HingeHead,
    KLHead,
    MSEHead,
    P2SGradLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    ProxyNCAPlusPlusLoss,
    SoftTripleLoss,
    SphereFaceLoss,
    SubCenterArcFaceLoss,
)
from nearfar.deep import unit_vectors
from nearfar.deep.objective.parser import parse_objective
from nearfar.deep.proxies.angular_margins import add_angle, multiplied
from nearfar.deep.proxies.class_centers import _parts, nearest_cosine, similarity, spread
from nearfar.deep.proxies.logits import class_log_sum_exp, own_and_others
from tests.references import (
    ada_face,
    arc_face,
    dynamic_arc_face,
    p2s_grad,
    proxy_anchor,
    proxy_nca,
    proxy_nca_plus_plus,
    soft_triple,
    sphere_face,
    sub_center_arc_face,
)

from .gradients import unit

C, D = 6, 4
PROXY_LOSSES = (
    AdaFaceLoss,
    AMSoftmaxLoss,
    ArcFaceLoss,
    CosFaceLoss,
    P2SGradLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    ProxyNCAPlusPlusLoss,
    SoftTripleLoss,
    SphereFaceLoss,
    SubCenterArcFaceLoss,
)
DIRECTIONS = tuple(
    loss for loss in PROXY_LOSSES if loss not in (SphereFaceLoss, AdaFaceLoss)
)  # the rest reads lengths, too
WIDE = {"least_margin": 1.5, "most_margin": 3.0, "power": 0.5, "sub_centers": 1}  # many angles beyond pi - m
EXACT = {"least_margin": 0.25, "most_margin": 1.0}  # margins of 1, 1/2 and 1/4, also in float32
SETTINGS = [
    (ArcFaceLoss, arc_face, {"scale": 8.0, "margin": 0.3}),
    (ArcFaceLoss, arc_face, {"scale": 4.0, "margin": 2.5}),  # many angles beyond pi - m
    (AdaFaceLoss, ada_face, {"scale": 8.0, "margin": 0.3}),
    (AdaFaceLoss, ada_face, {"scale": 4.0, "margin": 1.5, "concentration": 2.0}),  # many angles beyond 0 and pi
    (P2SGradLoss, p2s_grad, {}),
    (ProxyAnchorLoss, proxy_anchor, {"scale": 8.0, "margin": 0.3}),
    (ProxyNCALoss, proxy_nca, {"temperature": 0.7}),
    (ProxyNCALoss, proxy_nca, {"temperature": 0.7, "assign": "nearest"}),
    (ProxyNCAPlusPlusLoss, proxy_nca_plus_plus, {"temperature": 0.7}),
    (SoftTripleLoss, soft_triple, {"centers": 3, "scale": 5.0, "margin": 0.1, "gamma": 0.5, "tau": 2.0}),
    (SoftTripleLoss, soft_triple, {"centers": 1, "gamma": 1.0}),
    (SphereFaceLoss, sphere_face, {"margin": 2, "scale": 3.0}),
    (SphereFaceLoss, sphere_face, {"margin": 3, "ease": 5.0}),
    (SphereFaceLoss, sphere_face, {"margin": 1, "unit_proxies": False}),
    (SphereFaceLoss, sphere_face, {"margin": 5, "scale": 2.0, "ease": 0.5, "unit_proxies": False}),
    (SubCenterArcFaceLoss, sub_center_arc_face, {"sub_centers": 2, "scale": 8.0, "margin": 0.3}),
    (SubCenterArcFaceLoss, sub_center_arc_face, {"sub_centers": 4, "scale": 4.0, "margin": 2.5}),
    (DynamicArcFaceLoss, dynamic_arc_face, {"class_sizes": (256, 1, 16, 1, 1, 256), "scale": 8.0, **EXACT}),
    (DynamicArcFaceLoss, dynamic_arc_face, {"class_sizes": (4, 1, 4, 1, 1, 4), "scale": 4.0, **WIDE}),
]


def test_margins_of_class_sizes_are_checked_and_kept():
    for sizes in [(1, 2), (0, 1, 2), "abc", ((1,), (2, 3))]:
        with pytest.raises(ValueError, match="class_sizes must be 3 numbers of at least 1, one per class; got"):
            DynamicArcFaceLoss(3, D, class_sizes=sizes)
    with pytest.raises(ValueError, match=r"least_margin must be at most most_margin, and power positive, got 0.5, 0.2"):
        DynamicArcFaceLoss(3, D, least_margin=0.5, most_margin=0.2)
    trained = parse_objective("DynamicArcFaceLoss()", num_classes=3, embedding_dim=D, class_sizes=[1, 16, 81])
    again = DynamicArcFaceLoss(3, D)
    assert again.margins.tolist() == [0.5] * 3
    again.load_state_dict(trained.state_dict())
    torch.testing.assert_close(again.margins, torch.tensor([0.5, 0.1625, 0.05]))


def samples(labels=(0, 0, 1, 2, 2, 5, 5, -1), seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(len(labels), D, generator=g, dtype=torch.float64, requires_grad=True)
    return x, torch.tensor(labels)


def make(loss, **settings):
    torch.manual_seed(0)
    return loss(C, D, **settings).double()


def same(loss, other, inputs, **tolerance):
    torch.testing.assert_close(loss, other, **tolerance)
    grads = [torch.autograd.grad(value, inputs, retain_graph=True) for value in (loss, other)]
    torch.testing.assert_close(*grads, **tolerance)


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize(("loss", "loops", "settings"), SETTINGS)
def test_settings_reach_the_formula_in_embeddings_and_proxies(loss, loops, settings):
    x, y = samples()
    for block in (None, 3):
        term = make(loss, **settings, block=block)
        expected = loops.reference(x, y, proxies=term.proxies, **settings)
        same(term(x, y), expected, [x, term.proxies], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("loss", "loops", "settings"), SETTINGS)
def test_gradients_can_be_differentiated_again(loss, loops, settings):
    x, y = samples()
    term = make(loss, **settings)
    values = term(x, y), loops.reference(x, y, proxies=term.proxies, **settings)
    first = [torch.autograd.grad(value, [x, term.proxies], create_graph=True) for value in values]
    second = [torch.autograd.grad(a.square().sum() + b.square().sum(), [x, term.proxies]) for a, b in first]
    torch.testing.assert_close(*second)


@pytest.mark.parametrize(
    "loss", [AdaFaceLoss, AMSoftmaxLoss, P2SGradLoss, ProxyAnchorLoss, ProxyNCALoss, SphereFaceLoss]
)
def test_proxies_become_directions_once_for_all_blocks(loss, monkeypatch):
    calls = []
    forward = unit_vectors._Unit.forward
    monkeypatch.setattr(
        unit_vectors._Unit, "forward", lambda ctx, x, length: calls.append(len(x)) or forward(ctx, x, length)
    )
    x, y = samples()
    make(loss, block=2)(x, y).backward()
    assert calls.count(C) == 1


@pytest.mark.parametrize(
    ("loss", "settings"), [*((loss, {}) for loss in PROXY_LOSSES), (SphereFaceLoss, {"unit_proxies": False})]
)
def test_statistics_of_the_last_call(loss, settings):
    x, y = samples()
    term = make(loss, **settings)
    assert term.collect_stats().stats_ == {}
    term(x, y)
    scores = term.publish(batch_of(x, y)).scores[y >= 0]
    own = scores[torch.arange(len(scores)), y[y >= 0]]
    assert term.stats_["positive"] == pytest.approx(-own.mean().item())
    assert term.stats_["negative"] == pytest.approx(-(scores.sum(1) - own).mean().item() / (C - 1))
    assert 0 <= term.stats_["active"] <= 1
    whole = term.stats_
    term.block = 3
    term(x, y)
    assert term.stats_ == pytest.approx(whole)


@pytest.mark.parametrize("loss", PROXY_LOSSES)
def test_a_memory_adds_its_samples_and_nothing_else(loss):
    (x, y), (earlier, earlier_y) = samples(), samples(seed=3)
    term = make(loss)
    memory = CrossBatchMemory(term, size=len(x)).double()
    memory(earlier, earlier_y)
    once = term.tau * spread(term._centers(term.proxies)) / (C * 10 * 9) if loss is SoftTripleLoss else 0.0
    same(memory(x, y), term(x, y) + term(earlier, earlier_y) - once, [x, term.proxies])


@pytest.mark.parametrize("loss", DIRECTIONS)
def test_directions_only(loss):
    x, y = samples()
    term = make(loss)
    value = term(x, y)
    (grad,) = torch.autograd.grad(value, x)
    radial = (grad * x).sum(1).detach()
    torch.testing.assert_close(radial, torch.zeros_like(radial), atol=1e-11, rtol=0)
    with torch.no_grad():
        term.proxies.mul_(7)
    torch.testing.assert_close(term(3 * x, y), value)


@pytest.mark.parametrize("loss", PROXY_LOSSES)
def test_renamed_classes_with_renamed_proxies(loss):
    x, y = samples()
    term, other = make(loss), make(loss)
    order = torch.randperm(C, generator=torch.Generator().manual_seed(1))
    rows = term.proxies.detach().unflatten(0, (-1, C))
    renamed = torch.empty_like(rows)
    renamed[:, order] = rows
    other.proxies.data = renamed.flatten(0, 1)
    torch.testing.assert_close(other(x, torch.where(y >= 0, order[y], -1)), term(x, y))


@pytest.mark.parametrize("loss", PROXY_LOSSES)
def test_labels_out_of_range_and_references_are_refused(loss):
    x, _ = samples()
    term = make(loss)
    with pytest.raises(ValueError, match=r"labels must be in 0..5, got 6"):
        term(x, torch.tensor([0, 1, 2, 3, 4, 5, 6, 0]))
    with pytest.raises(ValueError, match="ref does not apply"):
        term(x, torch.zeros(8, dtype=torch.long), ref=x, ref_labels=torch.zeros(8, dtype=torch.long))
    with pytest.raises(ValueError, match="num_classes must be at least 1, got 0"):
        loss(0, D)


@pytest.mark.parametrize("loss", PROXY_LOSSES)
def test_one_class_is_finite_and_proxies_keep_their_dtype(loss):
    term = loss(1, D)
    x = torch.randn(3, D, dtype=torch.bfloat16, requires_grad=True)
    value = term(x, [0, 0, 0])
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()
    assert term.proxies.dtype == torch.float32


@pytest.mark.parametrize("loss", PROXY_LOSSES)
def test_scores_for_other_terms_are_one_per_class(loss):
    x, y = samples()
    value = (make(loss) + JRS(("embedding", "class")))(x, y)
    assert value.isfinite()
    assert make(loss).publish(batch_of(x, y)).scores.shape == (len(x), C)


def batch_of(x, y):
    from nearfar.deep.objective.batch import make_batch

    return make_batch(x, y, None, None, None)


def test_one_name_two_softmaxes():
    x, y = samples()
    cos_face, am = make(CosFaceLoss, scale=20.0, margin=0.1), make(AMSoftmaxLoss)
    am.proxies = cos_face.proxies
    torch.testing.assert_close(cos_face(x, y), am(x, y))
    assert (make(CosFaceLoss).scale, make(CosFaceLoss).margin) == (64.0, 0.35)


def test_one_center_is_am_softmax():
    x, y = samples()
    triple, am = make(SoftTripleLoss, centers=1, scale=9.0, margin=0.2), make(AMSoftmaxLoss, scale=9.0, margin=0.2)
    am.proxies = triple.proxies
    same(triple(x, y), am(x, y), [x, triple.proxies])


def test_softness_of_the_centers():
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    w = torch.tensor([[0.1], [0.5], [-0.3]], dtype=torch.float64).acos()
    w = torch.stack([w.cos(), w.sin()], 2)  # (3, 1, 2): one class with these cosines
    assert similarity(x, w, 1e9).item() == pytest.approx(0.1)
    assert similarity(x, w, 1e-4).item() == pytest.approx(0.5)
    assert similarity(x, w, 0.1).item() <= 0.5
    merged = unit(torch.ones(2, 2, 3, dtype=torch.float64))
    assert spread(merged).item() == pytest.approx(2 * math.sqrt(1e-5))
    opposite = torch.tensor([[[1.0, 0.0]], [[-1.0, 0.0]]], dtype=torch.float64)
    assert spread(opposite).item() == pytest.approx(2, rel=1e-5)


def test_chunks_of_classes_change_nothing(monkeypatch):
    x, y = samples()
    term, whole = make(SoftTripleLoss), make(SoftTripleLoss)
    whole.proxies = term.proxies
    expected = whole(x, y)
    scores = whole.publish(batch_of(x, y)).scores
    monkeypatch.setattr("nearfar.deep.proxies.class_centers.COSINES_IN_CACHE", 2 * 10 * len(x))
    assert len(_parts(term.proxies.view(10, C, D), len(x))) == 3
    same(term(x, y), expected, [x, term.proxies])
    torch.testing.assert_close(term.publish(batch_of(x, y)).scores, scores)


def test_regularizer_draws_centers_together():
    x, y = samples()
    term = make(SoftTripleLoss, centers=2, tau=1e3)
    (grad,) = torch.autograd.grad(term(x, y), term.proxies)
    before, after = unit(term.proxies.detach()), unit(term.proxies.detach() - 1e-4 * grad)
    gap = [(w[:C] - w[C:]).norm() for w in (before, after)]
    assert gap[1] < gap[0]


def test_the_nearest_proxies_are_the_classes_own_once_they_are_learned():
    x, y = samples(labels=(0, 0, 1, 2, 2, 5, 5, 4))
    nearest = make(ProxyNCALoss, assign="nearest")
    near = nearest(x, y)
    alone = y.bincount(minlength=C)[y] == 1
    own = make(ProxyNCALoss)
    assert not torch.allclose(near, own(x[~alone], y[~alone]))
    for term in (nearest, own):
        term.proxies.data = torch.stack(
            [x.detach()[y == c].sum(0) if (y == c).any() else -x.detach()[0] for c in range(C)]
        )
    z = own.proxies.detach()[y].requires_grad_()  # each sample where its proxy is
    same(nearest(z, y), own(z[~alone], y[~alone]), [z])
    assert nearest(x[:1], y[:1]) == 0
    with pytest.raises(ValueError, match="assign must be one of 'class', 'nearest'; got 'static'"):
        make(ProxyNCALoss, assign="static")


@pytest.mark.slow
@pytest.mark.parametrize("loss", [*PROXY_LOSSES, CrossEntropyHead, HingeHead, KLHead, MSEHead])
def test_logits_tell_the_class_that_was_learned(loss):
    x, y = samples(labels=(0, 0, 1, 2, 2, 5, 5, 4))
    term = make(loss)
    optimizer = torch.optim.Adam([x, *term.parameters()], lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        term(x, y).backward()
        optimizer.step()
    found = term.get_logits(x)
    assert found.shape == (len(y), C)
    assert (found.argmax(1) == y).all()
    name, dim = type(term).__name__, x.shape[1]
    for wrong, got in ((x[:, 1:], f"have {dim - 1}"), (x[0], rf"have shape \({dim},\)")):
        with pytest.raises(ValueError, match=f"^{name}: embedding_dim is {dim}, embeddings {got}"):
            term.get_logits(wrong)


def test_own_and_others_of_rows_and_columns():
    logits = torch.tensor([[3.0, 1.0, 2.0], [0.0, 500.0, 4.0], [7.0, 7.0, 7.0]], dtype=torch.float64)
    y = torch.tensor([0, 1, -1])
    own, others = own_and_others(logits, y)
    torch.testing.assert_close(own[:2], torch.tensor([3.0, 500.0], dtype=torch.float64))
    expected = torch.tensor([[1.0, 2.0], [0.0, 4.0]], dtype=torch.float64).logsumexp(1)  # 500 does not drown them
    torch.testing.assert_close(others, torch.cat([expected, torch.tensor([-torch.inf], dtype=torch.float64)]))
    _, others = own_and_others(logits, y, dim=0)
    torch.testing.assert_close(others[:2], torch.tensor([0.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(others[2], logits[:2, 2].logsumexp(0))


def test_log_sum_exp_of_each_class():
    values = torch.tensor([1.0, -900.0, 3.0, 2.0], dtype=torch.float64, requires_grad=True)
    found = class_log_sum_exp(values, torch.tensor([0, 2, 0, -1]), 3)
    torch.testing.assert_close(found[0], values[[0, 2]].logsumexp(0))
    assert found.tolist()[1:] == [-math.inf, -900.0]
    (grad,) = torch.autograd.grad(found[found.isfinite()].sum(), values)
    torch.testing.assert_close(grad[1:], torch.tensor([1.0, 1 - float(grad[0]), 0.0], dtype=torch.float64))


def test_nca_plus_plus_is_softplus_of_nca_per_sample():
    x, y = samples(labels=(0,))
    plain, plus = make(ProxyNCALoss, temperature=0.5), make(ProxyNCAPlusPlusLoss, temperature=0.5)
    plus.proxies = plain.proxies
    torch.testing.assert_close(plus(x, y), torch.nn.functional.softplus(plain(x, y)))


def test_nca_plus_plus_is_cross_entropy_of_cosines():
    x, y = samples(labels=(0, 3, 3, 1))
    term = make(ProxyNCAPlusPlusLoss, temperature=0.25)
    logits = 2 * unit(x) @ unit(term.proxies).T / 0.25
    same(term(x, y), torch.nn.functional.cross_entropy(logits, y), [x, term.proxies])
    flat = make(ProxyNCAPlusPlusLoss, temperature=1e9)
    assert flat(x, y).item() == pytest.approx(math.log(C))


def test_two_classes_make_nca_a_difference_of_distances():
    x, _ = samples(labels=(0, 0, 0))
    term = ProxyNCALoss(2, D, temperature=1.0).double()
    y = torch.tensor([0, 1, 1])
    d = (unit(x)[:, None] - unit(term.proxies)).square().sum(2)
    expected = (d[[0, 1, 2], y] - d[[0, 1, 2], 1 - y]).mean()
    torch.testing.assert_close(term(x, y), expected)
    assert ProxyNCALoss(1, D)(x, [0, 0, 0]) == 0


def test_running_class_means_follow_each_training_call():
    x, y = samples()
    term = make(ProxyNCALoss, proxies="class_mean")
    start = term.proxies.detach().clone()
    learned = make(ProxyNCALoss)
    torch.testing.assert_close(term(x, y), learned(x, y))  # the first call reads the start
    means = torch.stack([unit(x.detach())[y == c].mean(0) if (y == c).any() else start[c] for c in range(C)])
    torch.testing.assert_close(term.proxies.detach(), means)
    again, _ = samples(seed=5)
    value = term(again, y)
    value.backward()
    assert again.grad.abs().sum() > 0
    both = torch.cat([unit(x.detach()), unit(again.detach())])[torch.cat([y, y]) == 5].mean(0)
    torch.testing.assert_close(term.proxies.detach()[5], both)
    assert not term.proxies.requires_grad
    frozen = term.proxies.detach().clone()
    term.eval()(x, y)
    torch.testing.assert_close(term.proxies.detach(), frozen)
    other = make(ProxyNCALoss, proxies="class_mean")
    other.load_state_dict(term.state_dict())
    term.train()
    torch.testing.assert_close([other(x, y), other(again, y)], [term(x, y), term(again, y)])


@pytest.mark.parametrize("block", [None, 3])
def test_value_and_gradient_of_a_call_use_the_same_means(block):
    x, y = samples()
    term = make(ProxyNCALoss, proxies="class_mean", block=block)
    fixed = make(ProxyNCALoss)
    fixed.proxies.data = term.proxies.detach().clone()
    same(term(x, y), fixed(x, y), [x])


def test_refit_takes_class_means_or_centers():
    g = torch.Generator().manual_seed(0)
    corners = unit(torch.randn(C, D, generator=g, dtype=torch.float64))
    y = torch.arange(60) % C
    x = corners[y] + 0.01 * torch.randn(60, D, generator=g, dtype=torch.float64)
    wrong = y.clone()
    wrong[:6] = (wrong[:6] + 1) % C  # one in ten is mislabeled: k-means does not see it
    means, centers = (make(ProxyNCAPlusPlusLoss, proxies=kind) for kind in ("class_mean", "kmeans"))
    for term in (means, centers):
        term.refit(x, wrong)
    expected = torch.stack([unit(x)[wrong == c].mean(0) for c in range(C)])
    torch.testing.assert_close(means.proxies.detach(), expected)
    expected = torch.stack([unit(x)[y == c].mean(0) for c in range(C)])
    torch.testing.assert_close(centers.proxies.detach(), expected)
    with pytest.raises(ValueError, match="learned proxies are not refitted"):
        make(ProxyNCALoss).refit(x, y)
    with pytest.raises(ValueError, match="proxies must be one of 'learned', 'class_mean', 'kmeans'"):
        make(ProxyNCALoss, proxies="mean")


def test_angle_is_added_and_falls_over_the_whole_range():
    theta = torch.linspace(0, math.pi, 50, dtype=torch.float64)
    for margin in (0.0, 0.5, 2.0):
        value = add_angle(theta.cos(), margin)
        inside = theta <= math.pi - margin
        torch.testing.assert_close(value[inside], (theta[inside] + margin).cos(), atol=1e-7, rtol=0)
        assert (value.diff() < 0).all()
    ends = torch.tensor([1.0, -1.0, 1.0 + 1e-7], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(add_angle(ends, 0.5).sum(), ends)
    assert grad.isfinite().all()
    with pytest.raises(ValueError, match="margin is in radians"):
        ArcFaceLoss(C, D, margin=28.6)


def test_anchor_counts_present_classes_and_all_proxies():
    term = make(ProxyAnchorLoss)
    x, y = samples(labels=(0, 0, 0))
    s = unit(x) @ unit(term.proxies).T
    near = torch.log1p(torch.exp(-32 * (s[:, 0] - 0.1)).sum())
    far = torch.log1p(torch.exp(32 * (s[:, 1:] + 0.1)).sum(0)).sum() / C
    torch.testing.assert_close(term(x, y), near + far)


def test_agrees_with_pytorch_metric_learning():
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    x, _ = samples(labels=(0,) * 20)
    y = torch.arange(20) % 5
    pairs = [
        (make(ArcFaceLoss), losses.ArcFaceLoss(C, D, margin=math.degrees(0.5), scale=64), "W"),
        (make(CosFaceLoss), losses.CosFaceLoss(C, D, margin=0.35, scale=64), "W"),
        (make(ProxyAnchorLoss), losses.ProxyAnchorLoss(C, D, margin=0.1, alpha=32), "proxies"),
        (make(ProxyNCAPlusPlusLoss), losses.ProxyNCALoss(C, D, softmax_scale=9), "proxies"),
        (make(SoftTripleLoss, tau=0.0), losses.SoftTripleLoss(C, D, la=20, gamma=0.1, margin=0.01), "fc"),
    ]
    for ours, theirs, name in pairs:
        proxies = ours.proxies.detach().unflatten(0, (-1, C)).transpose(0, 1).flatten(0, 1)  # class by class
        getattr(theirs, name).data = proxies if name == "proxies" else proxies.T.contiguous()
        same(ours(x, y), theirs(x, y), [x], rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_many_centers_are_compared_one_after_another(monkeypatch):
    g = torch.Generator().manual_seed(0)
    x, w = (torch.randn(*size, generator=g, dtype=torch.float64, requires_grad=True) for size in ((7, 5), (4, 3, 5)))
    whole = nearest_cosine(x, w, 2.0)
    monkeypatch.setattr("nearfar.deep.proxies.class_centers.MAX_COSINES", 0)
    assert torch.autograd.gradcheck(lambda x, w: nearest_cosine(x, w, 2.0), (x, w))
    assert torch.autograd.gradgradcheck(lambda x, w: nearest_cosine(x, w, 2.0), (x, w))
    same(nearest_cosine(x, w, 2.0).square().sum(), whole.square().sum(), [x, w])


def test_one_sub_center_is_arc_face():
    one, plain = make(SubCenterArcFaceLoss, sub_centers=1), make(ArcFaceLoss)
    plain.proxies.data = one.proxies.data
    x, y = samples()
    torch.testing.assert_close(one(x, y), plain(x, y))


def test_outliers_lie_far_from_the_proxy_of_most_of_their_class():
    loss = SubCenterArcFaceLoss(2, 2, sub_centers=2)
    degrees = torch.tensor([0.0, 90.0, 80.0, 180.0])  # first proxies of both classes, then the second
    loss.proxies.data = torch.stack([degrees.deg2rad().cos(), degrees.deg2rad().sin()], 1)
    at = torch.tensor([5.0, -10.0, 70.0, 90.0, 60.0, 160.0, 85.0]).deg2rad()
    labels = torch.tensor([0, 0, 0, 1, 1, 1, -1])
    x = 3 * torch.stack([at.cos(), at.sin()], 1)
    assert loss.outliers(x, labels, angle=math.radians(50)).tolist() == [False, False, True, False, False, True, False]
    assert not loss.outliers(x, labels, angle=3.0).any()
    around = torch.tensor([5.0, -10.0, 3.0, 74.0, 76.0]).deg2rad()
    found = loss.outliers(torch.stack([around.cos(), around.sin()], 1), [0] * 5)
    assert found.tolist() == [False, False, False, False, True]  # beyond 75 degrees
    for number in (0, 256):
        with pytest.raises(ValueError, match=f"sub_centers must be 1 to 255, got {number}"):
            SubCenterArcFaceLoss(2, 2, sub_centers=number)
    assert loss.outliers(x[:0], []).tolist() == []
    for wrong, reason in (([0] * 6 + [2], "labels must be in 0..1, got 2"), ([0], "one per embedding, 7, got 1")):
        with pytest.raises(ValueError, match=reason):
            loss.outliers(x, wrong)


@pytest.mark.slow
def test_a_multiple_of_the_angle_falls_over_the_whole_range():
    theta = torch.linspace(0, math.pi, 200, dtype=torch.float64)
    for times in (1, 2, 3, 4, 7):
        value = multiplied(theta.cos(), times)
        torch.testing.assert_close(value[0].item(), 1.0)
        torch.testing.assert_close(value[-1].item(), 1.0 - 2 * times)
        first = theta <= math.pi / times
        torch.testing.assert_close(value[first], (times * theta[first]).cos())
        assert (value.diff() < 0).all()
        ends = torch.arange(1, times, dtype=torch.float64) * math.pi / times  # of the pieces
        torch.testing.assert_close(multiplied((ends - 1e-7).cos(), times), multiplied((ends + 1e-7).cos(), times))
        c = theta.cos()[1:-1].requires_grad_()
        assert torch.autograd.gradcheck(lambda c, times=times: multiplied(c, times), c)


def test_sphere_face_without_a_margin_is_a_softmax():
    x, y = samples(labels=(0, 3, 3, 1))
    plain = make(SphereFaceLoss, margin=1)
    same(plain(x, y), torch.nn.functional.cross_entropy(x @ unit(plain.proxies).T, y), [x, plain.proxies])
    free = make(SphereFaceLoss, margin=1, unit_proxies=False)
    same(free(x, y), torch.nn.functional.cross_entropy(x @ free.proxies.T, y), [x, free.proxies])
    eased = make(SphereFaceLoss, ease=1e12)
    torch.testing.assert_close(eased(x, y), plain(x, y))
    for wrong in ({"margin": 0}, {"ease": -1.0}):
        with pytest.raises(ValueError, match="margin must be at least 1 and ease at least 0"):
            make(SphereFaceLoss, **wrong)


def test_ada_face_is_cos_face_where_all_lengths_are_one():
    x, y = samples(labels=(0, 3, 3, 1))
    plain = make(AdaFaceLoss, scale=8.0, margin=0.3)
    logits = 8 * unit(x) @ unit(plain.proxies).T - 8 * 0.3 * torch.nn.functional.one_hot(y, C).double()
    expected = torch.nn.functional.cross_entropy(logits, y)
    torch.testing.assert_close(plain(unit(x), y), expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(plain(x[:1], y[:1]), torch.nn.functional.cross_entropy(logits[:1], y[:1]))
    # what is longer than the others has its angle shortened, and more taken from its cosine
    longer = plain.find(torch.cat([unit(x), 3 * unit(x[:1])]), plain.proxies, torch.cat([y, y[:1]]))
    assert longer[-1] > 0 > longer[0]
    for wrong in ({"margin": 20.0}, {"concentration": 0.0}):
        with pytest.raises(ValueError, match="margin must be in radians, from 0 to pi / 2, and concentration positive"):
            make(AdaFaceLoss, **wrong)


def test_p2s_grad_puts_cosines_in_the_place_of_probabilities():
    x, y = samples(labels=(0, 3, 3, 1))
    term = make(P2SGradLoss)
    s = unit(x) @ unit(term.proxies).T
    slope = (s - torch.nn.functional.one_hot(y, C)).detach() / 4
    of = [torch.autograd.grad(value, [x, term.proxies]) for value in (term(x, y), (slope * s).sum())]
    torch.testing.assert_close(*of)
    term.proxies.data = torch.eye(C, dtype=torch.float64)[:, :D]
    assert term(term.proxies.detach()[:D], torch.arange(D)).item() == pytest.approx(0, abs=1e-12)
