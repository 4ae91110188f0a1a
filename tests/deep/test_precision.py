"""No cast takes precision from statistics, counts and memories: a law of every module here that has buffers."""

from copy import deepcopy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar.catalog import METHODS
from nearfar.deep.networks.standardize import Standardize
from nearfar.deep.precision import matmul_precision
from tests.test_bench import module

CLASSES, DIM = 8, 5
TERMS = [m for m in METHODS if m.kind in ("loss", "regularizer", "head")]
FRESH = {m.name: (lambda m=m: getattr(nearfar, m.name)(**m.small)) for m in TERMS} | {
    "batch targets": lambda: nearfar.DeepFisherLoss(CLASSES, DIM, targets="batch"),
    "class means": lambda: nearfar.ProxyNCALoss(CLASSES, DIM, proxies="class_mean"),
    "memory": lambda: nearfar.CrossBatchMemory(nearfar.ContrastiveLoss(), size=8, embedding_dim=DIM),
    "updating": lambda: nearfar.BayesianUpdating(CLASSES, DIM),
    "sum": lambda: nearfar.ProxyNCALoss(CLASSES, DIM, proxies="class_mean") + nearfar.HORDE(DIM, features=16),
    "continuous": lambda: nearfar.ContinuousSimilarityNet(DIM),
    "standardize": lambda: Standardize(DIM),
}
CASTS = (
    lambda module: module.bfloat16(),
    lambda module: module.to("cpu", torch.float16),
    lambda module: module.type(torch.bfloat16),
    lambda module: torch.nn.ModuleList([torch.nn.Linear(2, 2), module]).half()[1],
    lambda module: module.half().float(),
)
every_module = pytest.mark.parametrize("fresh", FRESH.values(), ids=FRESH.keys())


def made(fresh):
    torch.manual_seed(0)
    module = fresh()
    g = torch.Generator().manual_seed(1)
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.copy_(torch.rand(buffer.shape, generator=g) + 300)
    return module


def batch(seed=1, n=12):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, DIM, generator=g), torch.arange(n) % 6, torch.randn(n, 7, generator=g)


@every_module
def test_casts_leave_buffers_alone(fresh):
    before = dict(made(fresh).named_buffers())
    for cast in CASTS:
        module, loaded = cast(made(fresh)), cast(fresh())
        loaded.load_state_dict(module.state_dict(), assign=True)
        for after in (dict(module.named_buffers()), dict(loaded.named_buffers())):
            assert after.keys() == before.keys()
            assert [b.dtype for b in after.values()] == [b.dtype for b in before.values()]
            assert all(torch.equal(after[name], before[name]) for name in before)


@every_module
def test_double_precision_is_there_for_who_wants_it(fresh):
    before = dict(made(fresh).named_buffers())
    for name, buffer in made(fresh).half().double().named_buffers():
        floats = before[name].is_floating_point()
        assert buffer.dtype == (torch.float64 if floats else before[name].dtype), name
        assert torch.equal(buffer, before[name].to(buffer.dtype)), name


@pytest.mark.parametrize("fresh", [f for name, f in FRESH.items() if name not in ("continuous", "standardize")])
def test_cast_terms_have_the_values_of_others_with_the_same_parameters(fresh):
    torch.manual_seed(0)
    plain = fresh()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.copy_(parameter.bfloat16())
    cast = deepcopy(plain).bfloat16()
    for seed in range(4):
        x, y, pooled = batch(seed)
        value = plain(x, y, pooled=pooled)
        torch.testing.assert_close(cast(x, y, pooled=pooled).float(), value.float(), rtol=2e-2, atol=2e-2)


@pytest.mark.slow
def test_counts_of_cast_terms_go_on():
    updating = nearfar.BayesianUpdating(2, DIM).bfloat16()
    means = nearfar.ProxyNCALoss(2, DIM, proxies="class_mean").bfloat16()
    memory = nearfar.CrossBatchMemory(nearfar.ContrastiveLoss(), size=8).half()
    g, y = torch.Generator().manual_seed(0), torch.tensor([0, 0])
    for _ in range(300):
        x = torch.randn(2, DIM, generator=g).bfloat16()
        for term in (updating, means, memory):
            term(x, y)
    assert updating.gaussians.counts.tolist() == [600, 0]
    assert means.counts.tolist() == [600, 0]
    assert memory.steps == 300


def test_means_of_a_cast_loss_are_of_all_samples():
    z = torch.nn.functional.normalize(torch.randn(700, DIM, generator=torch.Generator().manual_seed(0)) + 1)
    for source in ("class_mean", "kmeans"):
        loss = nearfar.ProxyNCALoss(1, DIM, proxies=source).bfloat16()
        loss.refit(z, torch.zeros(700, dtype=torch.long))
        assert loss.proxies.dtype == torch.bfloat16
        torch.testing.assert_close(loss.proxies.float(), z.mean(0, keepdim=True), rtol=2**-8, atol=1e-3)


def test_standardized_rows_of_a_cast_network_are_in_its_precision():
    X = np.random.default_rng(0).normal(1000, 1, (50, DIM))
    scale = Standardize(DIM)
    scale.learn(X)
    rows = torch.from_numpy(X).bfloat16()
    exact = scale(rows.float())
    found = scale.bfloat16()(rows)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), exact, rtol=2**-8, atol=0)


CHOOSES = {"HDMLLoss": "rounding changes which negatives are semi-hard"}


@pytest.mark.parametrize("method", TERMS, ids=lambda m: m.name)
def test_products_in_bfloat16_change_value_and_gradient_little(method):
    bench = module("precision")
    value, gradient, _ = bench.differences(method, 64, 32, torch.float32, products=bench.RoundedProducts())
    assert value < 1e-2
    assert gradient < 6e-2 or method.name in CHOOSES


def test_the_precision_of_products_is_that_of_before_at_the_end():
    before = torch.get_float32_matmul_precision()
    with matmul_precision(None):
        assert torch.get_float32_matmul_precision() == before
    with matmul_precision("medium"):
        assert torch.get_float32_matmul_precision() == "medium"
    assert torch.get_float32_matmul_precision() == before
    with pytest.raises(ZeroDivisionError), matmul_precision("medium"):
        raise ZeroDivisionError
    assert torch.get_float32_matmul_precision() == before
