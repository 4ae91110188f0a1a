"""What only a GPU can show: the same values there, no waiting for it, faster products, graphs, NCCL, and runs.

    python -m pytest -m gpu

Without a GPU, this file is skipped.
"""

from contextlib import contextmanager
from inspect import signature

import pytest

torch = pytest.importorskip("torch")

if not torch.cuda.is_available():
    pytest.skip("needs a GPU of CUDA", allow_module_level=True)

from torch.nn.parallel import DistributedDataParallel

import nearfar
from nearfar.deep import SampledClasses, distributed
from nearfar.deep.precision import matmul_precision
from tests.deep.test_device_laws import LABELS, WAITS
from tests.test_losses import TERMS, batch, make

GPU = torch.device("cuda")
pytestmark = pytest.mark.gpu
every_term = pytest.mark.parametrize("method", TERMS, ids=lambda m: m.name)
DRAWING_ON_THE_HOST = {
    "BayesianUpdating": lambda: nearfar.BayesianUpdating(8, 5),
    "SampledClasses": lambda: SampledClasses(nearfar.CosFaceLoss(60, 5), share=0.5),
}
COMMON_LOSSES = (
    "TripletLoss",
    "ContrastiveLoss",
    "MultiSimilarityLoss",
    "SupConLoss",
    "ProxyAnchorLoss",
    "ArcFaceLoss",
)


def on(device, term, x, y, pooled):
    """Return the value of a term and its gradient, which were computed on a device, in float64 on the host."""
    torch.manual_seed(0)
    x = x.detach().to(device).requires_grad_()
    value = term.to(device)(x, y.to(device), pooled=pooled.to(device))
    (gradient,) = torch.autograd.grad(value, x)
    return value.detach().double().cpu(), gradient.double().cpu()


@every_term
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-8), (torch.float32, 1e-3), (torch.bfloat16, 2e-2)],
    ids=["float64", "float32", "bfloat16"],
)
def test_every_term_gives_the_same_on_a_gpu(method, dtype, tolerance):
    x, y, pooled = batch(dtype=dtype, labels=LABELS)
    kind = torch.float64 if dtype == torch.float64 else torch.float32
    value, gradient = on("cpu", make(method).to(kind), x, y, pooled)
    with matmul_precision("highest"):
        found, found_gradient = on(GPU, make(method).to(kind), x, y, pooled)
    torch.testing.assert_close(found, value, rtol=tolerance, atol=tolerance)
    assert (found_gradient - gradient).norm() <= tolerance * (1 + gradient.norm())


@contextmanager
def waiting_refused():
    """Raise an error inside the context wherever the host waits for the GPU."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@every_term
@pytest.mark.parametrize("block", [None, 5])
def test_no_term_waits_for_a_gpu(method, block):
    if method.name in WAITS:
        pytest.skip("waits, as docs and laws say")
    settings = {"block": block} if "block" in signature(getattr(nearfar, method.name)).parameters else {}
    term = make(method, **settings).float().to(GPU)
    x, y, pooled = batch(dtype=torch.float32, labels=LABELS)
    x = x.detach().to(GPU).requires_grad_()
    y = y.to(GPU)
    pooled = pooled.to(GPU)
    term(x, y, pooled=pooled).backward()  # the first call may load libraries
    torch.cuda.synchronize()
    with waiting_refused():
        term(x, y, pooled=pooled).backward()


def does_not_wait(term):
    """Call a term twice, the second time where waiting for the GPU is an error."""
    x, y, _ = batch(dtype=torch.float32, labels=LABELS)
    x = x.detach().to(GPU).requires_grad_()
    y = y.to(GPU)
    term(x, y).backward()
    torch.cuda.synchronize()
    with waiting_refused():
        term(x, y).backward()


@pytest.mark.parametrize("name", DRAWING_ON_THE_HOST)
def test_numbers_drawn_on_the_host_reach_a_gpu_without_waiting(name):
    term = DRAWING_ON_THE_HOST[name]().to(GPU)
    does_not_wait(term)


@pytest.mark.parametrize("miner", ["BatchAll", "BatchHard", "BatchSemiHard", "EasyPositive", "EasyHard", "PairMargins"])
def test_no_miner_waits_for_a_gpu(miner):
    loss = nearfar.ContrastiveLoss(miner=getattr(nearfar, miner)())
    does_not_wait(loss)


@pytest.mark.parametrize("name", COMMON_LOSSES)
@pytest.mark.parametrize("level", ["high", "medium"])
def test_faster_products_change_little(name, level):
    method = next(m for m in TERMS if m.name == name)
    x, y, pooled = batch(128, dtype=torch.float32)
    with matmul_precision("highest"):
        value, gradient = on(GPU, make(method).float(), x, y, pooled)
    with matmul_precision(level):
        found, found_gradient = on(GPU, make(method).float(), x, y, pooled)
    torch.testing.assert_close(found, value, rtol=1e-2, atol=1e-2)
    assert (found_gradient - gradient).norm() <= 6e-2 * gradient.norm()


@pytest.mark.parametrize("name", COMMON_LOSSES)
def test_a_step_can_be_replayed_as_a_graph(name):
    method = next(m for m in TERMS if m.name == name)
    term = make(method).float().to(GPU)
    x, y, _ = batch(dtype=torch.float32)
    held = x.detach().to(GPU).requires_grad_()
    y = y.to(GPU)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # a graph may only be recorded after some steps on another stream
        for _ in range(3):
            held.grad = None
            term(held, y).backward()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    held.grad = None
    with torch.cuda.graph(graph):
        value = term(held, y)
        value.backward()
    other = torch.randn_like(held)
    with torch.no_grad():
        held.copy_(other)
    graph.replay()
    again = other.clone().requires_grad_()
    expected = term(again, y)
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(held.grad, again.grad)


@pytest.mark.parametrize("name", COMMON_LOSSES)
def test_a_step_over_nccl_equals_one_without(name):
    method = next(m for m in TERMS if m.name == name)
    x, y, _ = batch(dtype=torch.float32)
    x = x.detach().to(GPU)
    y = y.to(GPU)

    def gradient(over_nccl):
        torch.manual_seed(0)
        network = torch.nn.Linear(x.shape[1], x.shape[1]).to(GPU)
        term = make(method).float().to(GPU)
        wrapped = DistributedDataParallel(network) if over_nccl else network
        term(wrapped(x), y).backward()
        return network.weight.grad

    expected = gradient(over_nccl=False)
    torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        found = gradient(over_nccl=True)
    finally:
        distributed.leave()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_a_resumed_run_ends_as_an_uninterrupted_one(tmp_path, precision):
    from nearfar.train import TrainConfig, evaluate_run, train
    from nearfar.train.checkpoint import load_tensors

    fields = {"data": "digits", "batch_size": 32, "precision": precision, "augment": "affine(degrees=15)"}
    whole = train(TrainConfig.of(**fields, epochs=2), tmp_path / "whole", progress=False)
    train(TrainConfig.of(**fields, epochs=1), tmp_path / "parts", progress=False)
    parts = train(TrainConfig.of(**fields, epochs=2), tmp_path / "parts", resume=True, progress=False)
    expected = load_tensors(whole.folder / "last.safetensors")[0]
    for key, found in load_tensors(parts.folder / "last.safetensors")[0].items():
        torch.testing.assert_close(found, expected[key], rtol=1e-2, atol=1e-3)  # sums on a GPU have no fixed order
    scores = [evaluate_run(run.folder).scores.map_at_r for run in (whole, parts)]
    assert scores[0] == pytest.approx(scores[1], abs=0.02)
