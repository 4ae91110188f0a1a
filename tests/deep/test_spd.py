"""Layers on positive definite matrices: exact gradients at ties, and weights that stay orthonormal."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn

from nearfar.deep.networks.bi_map import BiMap
from nearfar.deep.networks.log_eig import LogEig, log_eig, upper_vector
from nearfar.deep.networks.re_eig import ReEig, re_eig
from nearfar.deep.networks.spd import (
    StiefelSGD,
    orthonormal_columns,
    other_parameters,
    spectral,
    stiefel_parameters,
    stiefel_step,
    symmetric,
)
from tests.references.spd import function, gradient

EPS = 0.3


def rotation(n, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))[0]


def with_eigenvalues(values, seed=0):
    Q = rotation(len(values), seed)
    return Q @ np.diag(values) @ Q.T


def spd(b, n, seed=0):
    A = torch.as_tensor(np.random.default_rng(seed).normal(size=(b, n, n + 2)))
    return A @ A.mT / n + 0.05 * torch.eye(n, dtype=torch.float64)


FUNCTIONS = {
    "rectify": (lambda X: re_eig(X, EPS), lambda v: max(v, EPS)),
    "log": (lambda X: log_eig(X, 1e-6), np.log),
    "square": (lambda X: spectral(X, torch.square, lambda v: 2 * v), lambda v: v**2),
}
SPECTRA = {
    "apart": [0.1, 0.5, 1.0, 3.0],
    "tied": [0.5, 0.5, 0.5, 2.0],
    "tied below": [0.1, 0.1, 2.0, 2.0],
    "all tied": [2.0, 2.0, 2.0, 2.0],
    "nearly tied": [1.0, 1.0 + 1e-9, 1.0 + 1e-6, 1.0 + 1e-4],
}


@pytest.mark.parametrize("values", SPECTRA.values(), ids=SPECTRA)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_and_gradient_are_exact_also_at_ties(name, values):
    layer, f = FUNCTIONS[name]
    X = with_eigenvalues(values)
    G = np.random.default_rng(1).normal(size=X.shape)
    x = torch.tensor(X, requires_grad=True)
    y = layer(x)
    np.testing.assert_allclose(y.detach(), function(X, f), atol=1e-12)
    (found,) = torch.autograd.grad(y, x, torch.tensor(G))
    np.testing.assert_allclose(found, gradient(X, G, f), atol=2e-7)
    np.testing.assert_allclose(found, found.T)


def test_zeroing_tied_entries_would_not_be_the_gradient():
    X, G = with_eigenvalues([1.0, 1.0, 2.0]), np.random.default_rng(0).normal(size=(3, 3))
    x = torch.tensor(X, requires_grad=True)
    log_eig(x, 1e-6).backward(torch.tensor(G))
    values, V = torch.linalg.eigh(x.detach())
    gap = values[:, None] - values[None]
    zeroed = torch.where(gap.abs() < 1e-8, 0.0, (values.log()[:, None] - values.log()[None]) / gap)
    zeroed.diagonal().copy_(1 / values)
    wrong = V @ (zeroed * (V.T @ symmetric(torch.tensor(G)) @ V)) @ V.T
    assert (x.grad - wrong).abs().max() > 0.05


def test_gradcheck_of_a_batch():
    X = spd(3, 4)
    assert torch.autograd.gradcheck(lambda x: log_eig(symmetric(x), 1e-6), X.clone().requires_grad_())
    assert torch.autograd.gradcheck(lambda x: re_eig(symmetric(x), EPS), X.clone().requires_grad_())


def test_identity_passes_the_symmetric_gradient():
    x, G = spd(2, 4).requires_grad_(), torch.randn(2, 4, 4, dtype=torch.float64)
    y = spectral(x, lambda v: v, torch.ones_like)
    torch.testing.assert_close(y, x)
    torch.testing.assert_close(torch.autograd.grad(y, x, G)[0], symmetric(G))
    torch.testing.assert_close(torch.autograd.grad(ReEig(1e-9)(x), x, G)[0], symmetric(G))  # no active clamp


def test_float32_agrees_with_float64():
    X = spd(4, 6)
    for layer in (ReEig(EPS), LogEig()):
        values, grads = [], []
        for dtype in (torch.float64, torch.float32):
            x = X.to(dtype, copy=True).requires_grad_()
            y = layer(x)
            assert y.dtype == dtype
            y.square().sum().backward()
            values.append(y.detach().double())
            grads.append(x.grad.double())
        torch.testing.assert_close(*values, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-3)


def test_rectified_is_the_nearest_and_stays():
    X = torch.as_tensor(with_eigenvalues([-2.0, -0.1, 0.2, 3.0]))
    Y = ReEig(0.0)(X)
    torch.testing.assert_close(ReEig(0.0)(Y), Y)
    assert torch.linalg.eigvalsh(ReEig(EPS)(X)).min() >= EPS - 1e-12
    rng = np.random.default_rng(0)
    for _ in range(50):
        A = torch.as_tensor(rng.normal(size=(4, 4)))
        other = Y + 0.1 * (A @ A.T - Y) if _ % 2 else A @ A.T
        assert torch.linalg.norm(X - other) > torch.linalg.norm(X - Y)


def test_log_vectors_keep_log_euclidean_distances():
    X = spd(5, 4)
    vectors, logs = LogEig()(X), LogEig(vector=False)(X)
    for i in range(5):
        for j in range(5):
            expected = torch.linalg.norm(logs[i] - logs[j])
            torch.testing.assert_close(torch.linalg.norm(vectors[i] - vectors[j]), expected)
    torch.testing.assert_close(torch.linalg.matrix_exp(logs), X)
    assert torch.isfinite(LogEig()(X * 0)).all()


def test_layers_follow_a_rotation():
    X, Q = spd(3, 4), torch.as_tensor(rotation(4))
    for layer in (ReEig(EPS), LogEig(vector=False)):
        torch.testing.assert_close(layer(Q @ X @ Q.T), Q @ layer(X) @ Q.T)


def test_asymmetric_input_is_symmetrized():
    X = torch.randn(4, 4, dtype=torch.float64)
    torch.testing.assert_close(ReEig()(X), ReEig()(symmetric(X)))


def test_bi_map_keeps_positive_definite_matrices_and_their_order():
    torch.manual_seed(0)
    layer = BiMap(5, 3).double()
    X = spd(2, 5)
    Y = layer(X)
    for x, y in zip(X, Y, strict=True):
        for i in range(3):
            for j in range(3):
                w = layer.weight.detach()
                assert y[i, j].item() == pytest.approx(
                    sum((w[a, i] * x[a, b] * w[b, j]).item() for a in range(5) for b in range(5))
                )
        assert torch.linalg.eigvalsh(y).min() >= torch.linalg.eigvalsh(x).min()  # interlacing


def test_stiefel_step_stays_descends_and_ignores_normal_gradients():
    torch.manual_seed(0)
    W = orthonormal_columns(torch.randn(6, 3, dtype=torch.float64))
    A = spd(1, 6)[0]

    def value(w):
        return -(w.T @ A @ w).trace()

    for _ in range(300):
        w = W.clone().requires_grad_()
        (G,) = torch.autograd.grad(value(w), w)
        before = value(W)
        W = stiefel_step(W, G, 0.02)
        torch.testing.assert_close(W.T @ W, torch.eye(3, dtype=torch.float64))
        assert value(W) <= before + 1e-12
    assert value(W) == pytest.approx(-torch.linalg.eigvalsh(A)[-3:].sum().item(), rel=1e-4)  # PCA
    S = symmetric(torch.randn(3, 3, dtype=torch.float64))
    torch.testing.assert_close(stiefel_step(W, W @ S, 0.5), W)
    torch.testing.assert_close(orthonormal_columns(W), W)  # positive diagonal: W is its own factor


def network():
    torch.manual_seed(0)
    return nn.Sequential(BiMap(6, 4), ReEig(), BiMap(4, 3), ReEig(), LogEig(), nn.Linear(6, 2)).double()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_network_trains_on_the_manifold(momentum):
    net, X = network(), spd(40, 6)
    y = (torch.linalg.det(X).log() > torch.linalg.det(X).log().median()).long()
    assert len(stiefel_parameters(net)) == 2
    assert len(other_parameters(net)) == 2
    manifold = StiefelSGD(stiefel_parameters(net), lr=0.05, momentum=momentum)
    rest = torch.optim.Adam(other_parameters(net), lr=0.05)
    losses = []
    for _ in range(40):
        loss = nn.functional.cross_entropy(net(X), y)
        for optimizer in (manifold, rest):
            optimizer.zero_grad()
        loss.backward()
        for optimizer in (manifold, rest):
            optimizer.step()
        losses.append(loss.item())
        for W in stiefel_parameters(net):
            torch.testing.assert_close(W.T @ W, torch.eye(W.shape[1], dtype=W.dtype))
    assert losses[-1] < 0.75 * losses[0]


def test_orthonormal_columns_turn_the_least():
    A = torch.as_tensor(np.random.default_rng(0).normal(size=(6, 5, 3)))
    R = orthonormal_columns(A).mT @ A
    torch.testing.assert_close(R, R.triu())
    assert (R.diagonal(dim1=1, dim2=2) > 0).all()
    torch.testing.assert_close(R.mT @ R, A.mT @ A)


def test_optimizer_returns_the_loss_of_its_closure_and_leaves_what_has_no_gradient():
    used, idle = (nn.Parameter(torch.eye(4, 2).double()) for _ in range(2))
    optimizer = StiefelSGD([used, idle], lr=0.1)

    def closure():
        loss = (used[0, 0] - used[2, 1]).square()
        loss.backward()
        return loss

    assert optimizer.step(closure) == 1
    assert (used != torch.eye(4, 2)).any()
    assert (idle == torch.eye(4, 2)).all()


def test_optimizer_resumes_from_its_state():
    nets = [network(), network()]
    optimizers = [StiefelSGD(stiefel_parameters(net), lr=0.1, momentum=0.9) for net in nets]
    X = spd(8, 6)
    for _ in range(3):
        nets[0](X).square().sum().backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    for net, optimizer in zip(nets, optimizers, strict=True):
        net(X).square().sum().backward()
        optimizer.step()
    for a, b in zip(*(stiefel_parameters(net) for net in nets), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BiMap(3, 4), r"out_size must be in 1\.\.3, got 4"),
        (lambda: BiMap(3, 2)(torch.eye(4)), r"X: expected \(\.\.\., 3, 3\)"),
        (lambda: ReEig(-1), "eps must be at least 0"),
        (lambda: LogEig(0.0), "eps must be above 0"),
        (lambda: ReEig()(torch.ones(2, 3)), r"X: expected \(\.\.\., n, n\)"),
        (lambda: StiefelSGD([nn.Parameter(torch.eye(2))], lr=-1), "lr must be at least 0"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_upper_vector_keeps_inner_products():
    A, B = symmetric(torch.randn(5, 5)), symmetric(torch.randn(5, 5))
    torch.testing.assert_close(upper_vector(A) @ upper_vector(B), (A * B).sum())
