"""Discriminant losses: closed forms against loops, invariants, linear discriminant analysis as the yardstick."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.datasets import load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import scale

from nearfar import DeepFisherLoss, ProbabilisticDiscriminantLoss, VirtualSampleLoss
from nearfar.deep.losses.deep_fisher import fisher_targets
from nearfar.deep.losses.virtual_sample import mean_eigenvalue
from nearfar.deep.objective.parser import parse_objective
from nearfar.deep.wholebatch.class_scatter import deviations, traces
from tests.references import deep_fisher, probabilistic_discriminant, virtual_sample

from .gradients import grad, same

LABELS = (0, 0, 1, 1, 1, 2, 3, 3, 3, 3)


def samples(labels=LABELS, seed=0, dim=4):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(len(labels), dim, generator=g, dtype=torch.float64, requires_grad=True)
    return x, torch.tensor(labels)


def wine():
    X, y = load_wine(return_X_y=True)
    return torch.from_numpy(scale(X)), torch.from_numpy(y)


# Probabilistic discriminant analysis


@pytest.mark.parametrize("form", ["ratio", "log", "neg_trace_ratio"])
@pytest.mark.parametrize("normalize", [False, True])
def test_every_form_equals_the_loops(form, normalize):
    x, y = samples((*LABELS, -1))
    how = {"form": form, "normalize": normalize}
    same(ProbabilisticDiscriminantLoss(**how)(x, y), probabilistic_discriminant.reference(x, y, **how), x)


def test_law_of_total_variance():
    x, y = samples()
    W, B = traces(deviations(x, y))
    torch.testing.assert_close(W + B, x.var(0, correction=0).sum())


@pytest.mark.parametrize("form", ["ratio", "log", "neg_trace_ratio"])
def test_moves_turns_and_scales_change_nothing(form):
    x, y = samples()
    loss = ProbabilisticDiscriminantLoss(form=form)
    Q = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))[0]
    torch.testing.assert_close(loss(3 * x @ Q + 5, y), loss(x, y))
    torch.testing.assert_close(loss(1e-4 * x, y), loss(x, y))


def test_collapsed_classes_are_the_minimum():
    x, y = samples()
    means = torch.stack([x[y == label].mean(0) for label in y]).detach().requires_grad_()
    loss = ProbabilisticDiscriminantLoss()
    assert loss(means, y).item() == pytest.approx(0, abs=1e-12)
    assert grad(loss(means, y), means).abs().max() < 1e-12
    assert 0 < loss(x, y) < loss(x, y.flip(0)) * 100


def test_batches_that_say_nothing_are_zero():
    x, _ = samples()
    loss = ProbabilisticDiscriminantLoss()
    with pytest.warns(UserWarning, match="no class of the batch has two samples"):
        assert loss(x, torch.arange(10)) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for labels in ([0] * 10, [-1] * 10):
            value = loss(x, labels)
            assert value == 0
            assert grad(value, x).abs().max() == 0
        assert loss(x[:1], [0]) == 0


def test_descent_separates_classes():
    torch.manual_seed(0)
    X, y = wine()
    W = torch.randn(13, 2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([W], lr=0.05)
    loss = ProbabilisticDiscriminantLoss(form="log")
    for _ in range(150):
        optimizer.zero_grad()
        loss(X @ W, y).backward()
        optimizer.step()
    first = LinearDiscriminantAnalysis(solver="eigen", n_components=1).fit_transform(X, y)
    best = probabilistic_discriminant.reference(torch.from_numpy(first), y)
    assert ProbabilisticDiscriminantLoss()(X @ W, y).item() == pytest.approx(best.item(), rel=0.01)


# Virtual samples


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"margin": 0.02},
        {"normalize": False},
        {"eps": 0.2, "above_zero": False},
        {"eps": 50.0},
        {"eps": 0.0, "ratio": 0.1},
        {"seed": 3, "eps": 0.1},
    ],
)
@pytest.mark.parametrize("width", [3, 16])
def test_virtual_samples_equal_the_loops(settings, width):
    x, y = samples()
    pooled, _ = samples(seed=1, dim=width)
    value = VirtualSampleLoss(**settings)(x, y, pooled=pooled)
    expected = virtual_sample.reference(x, y, pooled=pooled, **settings)
    same(value, expected, pooled, rtol=1e-8, atol=1e-11)
    same(value, expected, x, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("width", [3, 9, 10, 11, 40])
def test_both_ways_to_the_mean_eigenvalue(width):
    h, y = samples(dim=width)
    expected = virtual_sample.mean_eigenvalue(h, y)
    torch.testing.assert_close(mean_eigenvalue(deviations(h, y)), expected, rtol=1e-8, atol=1e-10)


def test_ratio_of_the_embedding_is_that_of_the_last_layer():
    h, y = samples(dim=6)
    layer = torch.nn.Linear(6, 4).double()
    within, between = virtual_sample.scatters(h, y)
    U = layer.weight.T
    expected = (U.T @ between @ U).trace() / (U.T @ within @ U).trace()
    kept = VirtualSampleLoss(ratio=0.0)(layer(h), y, pooled=h)
    value = VirtualSampleLoss(ratio=1.0)(layer(h), y, pooled=h)
    torch.testing.assert_close(kept - value, expected, rtol=1e-5, atol=0)


def test_equal_pairs_leave_the_margin():
    x, y = samples()
    h = torch.ones(10, 3, dtype=torch.float64)
    assert VirtualSampleLoss(margin=0.3, ratio=0)(x, y, pooled=h).item() == pytest.approx(0.3)


def test_the_margin_can_be_met_behind_a_relu():
    """Unit features without negative entries are at best equal or orthogonal."""
    y = torch.arange(4).repeat_interleave(2)
    h = torch.nn.functional.one_hot(y).double()
    assert VirtualSampleLoss(eps=0, ratio=0)(h, y, pooled=h) == 0
    assert VirtualSampleLoss(margin=0.4, eps=0, ratio=0)(h, y, pooled=h) == 0
    assert VirtualSampleLoss(margin=0.5, eps=0, ratio=0)(h, y, pooled=h) > 0


def test_without_spread_all_virtual_samples_are_the_mean():
    h, y = samples()
    loss = VirtualSampleLoss(eps=0, layer="embedding")
    assert loss(h, y) == loss(h, y)
    noisy = VirtualSampleLoss(eps=0.01, layer="embedding")
    assert noisy(h, y) != noisy(h, y)


def test_nearer_similar_pairs_cost_less():
    h, y = samples()
    loss = VirtualSampleLoss(eps=0, layer="embedding", ratio=0)
    far = loss(h, y)
    (step,) = torch.autograd.grad(far, h)
    assert loss(h - 0.1 * step, y) < far
    same_class = torch.nn.functional.normalize(h.detach()[y == 3]).mean(0)
    pulled = h.detach().clone()
    pulled[y == 3] = pulled[y == 3] + 3 * same_class
    assert loss(pulled, y) < far


def test_virtual_samples_say_what_they_need():
    x, y = samples()
    with pytest.raises(ValueError, match="VirtualSampleLoss: expected pooled="):
        VirtualSampleLoss()(x, y)
    with pytest.raises(ValueError, match="layer must be one of 'pooled', 'embedding'; got 'class'"):
        VirtualSampleLoss(layer="class")
    with pytest.raises(ValueError, match="eps and ratio must be at least 0"):
        VirtualSampleLoss(eps=-1)
    assert VirtualSampleLoss(ratio=0)(x, torch.arange(10), pooled=x) == 0
    assert VirtualSampleLoss(normalize=False)(x * 1e3, y, pooled=x * 1e3).isfinite()


def test_similar_samples_that_are_far_apart_are_still_pulled_together():
    """Their exponent is capped, but not its gradient."""
    h = torch.tensor([[8.0, 0.0], [-8.0, 0.0], [0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    value = VirtualSampleLoss(layer="embedding", normalize=False, ratio=0)(h, torch.tensor([0, 0, 1]))
    (slope,) = torch.autograd.grad(value, h)
    assert slope[0, 0] > 0 > slope[1, 0]


# Fisher targets


def test_fisher_targets_are_the_matrix_form():
    y = torch.tensor([0] * 50 + [1] * 25 + [2] * 15)
    n, counts = len(y), torch.bincount(y).double()
    E = torch.nn.functional.one_hot(y).double()
    H = torch.eye(n, dtype=torch.float64) - 1 / n
    Y = n**0.5 * H @ E @ (1 / counts.sqrt()).diag()
    targets = fisher_targets(E, counts / n)
    torch.testing.assert_close(targets, Y)
    torch.testing.assert_close(targets.sum(0), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    assert torch.linalg.matrix_rank(targets) == 2


@pytest.mark.parametrize("settings", [{}, {"class_counts": (5, 1, 2, 9)}, {"targets": "batch"}])
@pytest.mark.parametrize("head", [False, True])
def test_fisher_regression_equals_the_loops(settings, head):
    x, y = samples((*LABELS, -1))
    loss = DeepFisherLoss(4, 4 if head else None, **settings).double()
    same(loss(x, y), deep_fisher.reference(x, y, proxies=loss.proxies, num_classes=4, **settings), x)


def test_a_class_missing_from_the_batch_has_no_target():
    y = torch.tensor([0, 0, 1, 3, 3, 3])
    loss = DeepFisherLoss(5, targets="batch").double()
    x = torch.zeros(6, 5, dtype=torch.float64, requires_grad=True)
    assert (grad(loss(x, y), x)[:, [2, 4]] == 0).all()
    assert loss.shares.tolist() == [2 / 6, 1 / 6, 0, 3 / 6, 0]  # to the last digit


def least_squares(X, y):
    """Return the linear outputs that minimize the loss, by its own gradient, and the loss at them."""
    loss = DeepFisherLoss(int(y.max()) + 1, X.shape[1], class_counts=torch.bincount(y).tolist()).double()
    optimizer = torch.optim.LBFGS(loss.parameters(), max_iter=500, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = loss(X, y)
        value.backward()
        return value

    optimizer.step(closure)
    return loss.outputs(X).detach(), loss


def lda(X, y):
    return LinearDiscriminantAnalysis(solver="eigen", priors=[1 / 3] * 3).fit(X, y)


def cosines(A, B):
    """Cosines of the principal angles between the column spaces."""
    return torch.linalg.svdvals(torch.linalg.qr(A)[0].T @ torch.linalg.qr(B)[0])


def test_least_squares_spans_the_linear_discriminants():
    X, y = wine()
    f, _ = least_squares(X, y)
    within, between = virtual_sample.scatters(X, y)
    values, vectors = torch.linalg.eig(torch.linalg.solve(within, between))
    top = values.real.argsort(descending=True)[:2]
    U, S, _ = torch.linalg.svd(f - f.mean(0), full_matrices=False)
    assert S[2] < 1e-4 * S[1]
    torch.testing.assert_close(cosines(U[:, :2], X @ vectors.real[:, top]), torch.ones(2).double(), atol=1e-6, rtol=0)
    found = DeepFisherLoss(3, 13).orthogonalize(X, y)
    lam = values.real[top]
    torch.testing.assert_close(found.eigenvalues, lam / (1 + lam), atol=1e-9, rtol=0)


def test_orthogonal_coordinates_predict_as_discriminant_analysis():
    X, y = wine()
    f, loss = least_squares(X, y)
    for z in (X, f):  # the embedding, or the outputs: the map is the same
        coordinates = loss.orthogonalize(z, y)(z)
        means = torch.stack([coordinates[y == c].mean(0) for c in range(3)])
        nearest = torch.cdist(coordinates, means).argmin(1)
        np.testing.assert_array_equal(nearest.numpy(), lda(X, y).predict(X))
        parts = deviations(coordinates, y)
        torch.testing.assert_close(parts.within.T @ parts.within / len(y), torch.eye(2).double(), atol=1e-6, rtol=0)
        whole = loss.orthogonalize(z, y, within=False)(z)
        torch.testing.assert_close(whole.T @ whole / len(y), torch.eye(2).double(), atol=1e-6, rtol=0)


def test_orthogonal_coordinates_survive_constant_features_and_unknown_labels():
    X, y = wine()
    wide = torch.cat([X, torch.ones(len(X), 2).double(), X[:, :1]], 1)
    known = torch.cat([y, torch.tensor([-1, -1])])
    found = DeepFisherLoss(3).orthogonalize(torch.cat([wide, 100 * torch.ones(2, 16).double()]), known)
    assert found.components.shape == (2, 16)
    torch.testing.assert_close(found.eigenvalues, DeepFisherLoss(3).orthogonalize(X, y).eigenvalues)
    single = DeepFisherLoss(3).orthogonalize((X + 100).float(), y)  # the fit itself is made in float64
    torch.testing.assert_close(single.eigenvalues, found.eigenvalues, atol=1e-5, rtol=0)


def test_labels_out_of_range_leave_the_shares_as_they_were():
    x, _ = samples(dim=4)
    loss = DeepFisherLoss(4, targets="batch").double()
    before = loss.shares.clone()
    with pytest.raises(ValueError, match=r"DeepFisherLoss: labels must be in 0..3, got 9"):
        loss(x, [0, 1, 2, 3, 9, 0, 1, 2, 3, 0])
    assert torch.equal(loss.shares, before)


def test_fisher_says_what_it_needs():
    x, y = samples()
    with pytest.raises(ValueError, match="expected 8 dimensions, one per class, or embedding_dim=, got 4"):
        DeepFisherLoss(8)(x, y)
    for wrong in ((1, 2), "many", [[1], [2, 3]]):
        with pytest.raises(ValueError, match=r"class_counts must be 4 positive numbers, one per class; got "):
            DeepFisherLoss(4, class_counts=wrong)
    with pytest.raises(ValueError, match="targets must be one of 'dataset', 'batch'; got 'epoch'"):
        DeepFisherLoss(4, targets="epoch")


def test_all_are_part_of_objectives():
    text = "DeepFisherLoss(class_counts=(3, 1)) + 0.5*VirtualSampleLoss() + ProbabilisticDiscriminantLoss(form='log')"
    objective = parse_objective(text, num_classes=2, embedding_dim=4)
    x = torch.randn(8, 4, requires_grad=True)
    objective(x, [0, 1] * 4, pooled=x.detach() ** 2).backward()
    assert x.grad.isfinite().all()
    assert list(objective.parts_) == ["DeepFisherLoss", "VirtualSampleLoss", "ProbabilisticDiscriminantLoss"]
    assert parse_objective("DeepFisherLoss(embedding_dim=None)", num_classes=2, embedding_dim=4).proxies is None
