"""JRS with a kernel, a set of bandwidths and a multiplier of each layer, and on named layers of a trunk."""

import pickle
from copy import deepcopy

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.optim.swa_utils import AveragedModel

from nearfar import JMMD, JRS, JIntra
from nearfar.deep import distributed
from nearfar.deep.networks.embedder import Embedder
from nearfar.deep.networks.trunks import make_trunk
from nearfar.train import TrainConfig, TrainError, train
from tests.processes import run_in_processes
from tests.references import jintra, jmmd, jrs

REFERENCES = {JRS: jrs.reference, JMMD: jmmd.reference, JIntra: jintra.reference}
SETTINGS = [
    {"kernel": ("laplace", "gaussian"), "kernels": (1, 3)},
    {"multiplier": 3.0},
    {"multiplier": (1.5, 4.0), "kernels": (2, 3)},
    {"bandwidths": (0.3, 1.0, 5.0)},
    {"bandwidths": ((0.5,), (0.2, 7.0))},
    {"kernel": "polynomial", "degree": 3, "raw": True},
    {"kernel": ("exponential", "linear"), "raw": True},
]


def samples(n=8):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 4, generator=g, dtype=torch.float64, requires_grad=True)
    pooled = (0.5 * torch.randn(n, 6, generator=g, dtype=torch.float64)).requires_grad_()
    return x, torch.tensor([0, 0, 1, 1, 1, 2, 3, -1]), pooled


@pytest.mark.parametrize("term", REFERENCES)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_each_layer_has_its_own_kernel_and_bandwidths(term, settings) -> None:
    x, y, pooled = samples()
    layers = ("pooled", "embedding")
    value = term(layers, **settings)(x, y, pooled=pooled)
    expected = REFERENCES[term](x, y, pooled=pooled, layers=layers, **settings)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)
    found = torch.autograd.grad(value, [x, pooled])
    torch.testing.assert_close(found, torch.autograd.grad(expected, [x, pooled]), rtol=1e-8, atol=1e-11)
    assert not torch.allclose(value, term(layers)(x, y, pooled=pooled)), "the setting changes nothing"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": ("gaussian",)}, "kernel must be one value or one of each of the 2 layers"),
        ({"kernel": ("gaussian", "cubic")}, "kernel must be one of"),
        ({"kernels": (1, 0)}, "kernels must be at least 1"),
        ({"multiplier": -1.0}, "multiplier must be positive"),
        ({"multiplier": (2.0, "2")}, "multiplier must be one value or one of each layer"),
        ({"bandwidths": (0.5, -1.0)}, "bandwidths must be positive multiples of tau"),
        ({"bandwidths": ((0.5,),)}, "bandwidths must be positive multiples of tau"),
        ({"bandwidths": ()}, "bandwidths must be positive multiples of tau"),
    ],
)
def test_settings_that_fit_no_layer_are_refused(settings, message) -> None:
    with pytest.raises(ValueError, match=f"JRS: {message}"):
        JRS(("pooled", "embedding"), **settings)


class Two(nn.Module):
    """A trunk of two named layers."""

    num_features = 5

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.top = nn.Linear(4, 5)

    def forward(self, images):
        return self.top(self.stem(images).mean((2, 3)))


def test_named_layers_of_a_trunk() -> None:
    torch.manual_seed(0)
    embedder = Embedder(Two(), 4).double()
    term = JRS(("trunk.stem", "embedding"), kernels=(1, 3))
    term.watch(embedder.trunk)
    images = torch.rand(6, 3, 5, 5, dtype=torch.float64)
    y = torch.tensor([0, 0, 1, 1, 2, -1])
    pooled, x = embedder(images)
    named = embedder.trunk.stem(images).mean((2, 3))
    pooled, x = embedder(images)
    value = term(x, y, pooled=pooled)
    expected = jrs.reference(x, y, layers=("stem", "embedding"), kernels=(1, 3), named={"stem": named})
    torch.testing.assert_close(value, expected)
    (grad,) = torch.autograd.grad(value, embedder.trunk.stem.weight, retain_graph=True)
    (expected_grad,) = torch.autograd.grad(expected, embedder.trunk.stem.weight)
    torch.testing.assert_close(grad, expected_grad)


def test_layers_that_are_not_there_or_were_not_seen() -> None:
    term = JRS(("trunk.layer9", "embedding"))
    with pytest.raises(ValueError, match="JRS: layers: Two has no module 'layer9'; it has stem, top"):
        term.watch(Two())
    x, y, _ = samples()
    with pytest.raises(ValueError, match=r"the layer 'stem' was not seen: watch\(trunk\) comes before"):
        JRS(("trunk.stem",))(x, y)
    trunk = Two().double()
    term = JRS(("trunk.stem",))
    term.watch(trunk)
    trunk(torch.rand(3, 3, 5, 5, dtype=torch.float64))
    with pytest.raises(ValueError, match="was seen with 3 items, and there are 8 embeddings"):
        term(x, y)


def test_in_a_training_run(tmp_path) -> None:
    objective = 'AMSoftmaxLoss() + 1.0*JRS(layers=("trunk.blocks.0", "embedding"), kernels=(1, 3))'
    assert "blocks.0" in dict(make_trunk("conv4(width=2)", (1, 8, 8)).named_modules())
    settings = {"data": "digits", "objective": objective, "trunk": "conv4(width=2)", "image_size": 16, "steps": 2}
    settings |= {"batch_size": 16, "embedding_dim": 4}
    run = train(TrainConfig.of(**settings), tmp_path / "run", progress=False)
    assert run.step == 2
    with pytest.raises(TrainError, match=r"JRS reads blocks\.0 of a whole batch"):
        train(TrainConfig.of(**settings, chunk=4), tmp_path / "chunked", progress=False)


class Watched(nn.Module):
    """A trunk and a term that reads one of its layers, in one module."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
        self.term = JRS(("trunk.0", "embedding"))
        self.term.watch(self.trunk)

    def forward(self, x, y):
        return self.term(self.trunk(x), y)


def test_a_trunk_and_its_term_are_copied_between_steps() -> None:
    x, y, _ = samples()
    step = Watched()
    step(x, y).backward()
    for copy in (deepcopy(step), AveragedModel(step), pickle.loads(pickle.dumps(step))):
        torch.testing.assert_close(copy(x, y), step(x, y))
    with pytest.raises(ValueError, match="was not seen"):  # the copy of a term alone has no trunk
        deepcopy(step.term)(step.trunk(x), y)


def parts_of_unequal_size(rank: int, world: int) -> None:
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    x, y, _ = samples()
    own = slice(0, 3) if rank == 0 else slice(3, 8)
    step = Watched()
    part = x.detach()[own].clone().requires_grad_()
    value = step(part, y[own])
    value.backward()
    with distributed.local():
        expected = step(x, y)
        expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(part.grad / world, x.grad[own])


@pytest.mark.slow
def test_layers_of_parts_of_unequal_size() -> None:
    run_in_processes(parts_of_unequal_size, 2)
