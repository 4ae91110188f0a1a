"""What every term keeps on any device: it waits for no number, and where there is no float64 it needs none."""

from inspect import signature

import pytest

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import nearfar
from nearfar.deep import SampledClasses, distributed, precision
from nearfar.deep.pairwise import comparison
from nearfar.deep.proxies import class_softmax
from nearfar.deep.rng import to_device
from nearfar.deep.wholebatch import batch_classes
from tests.test_losses import TERMS, batch, make

WAITS = {
    "FacilityLocationLoss": "its greedy search runs on the processor",
    "AdversarialTriplet": "it lists the triplets that its generator reads",
    "VirtualSampleLoss": "it lists the similar pairs, each with a draw of its own",
    "SiMix": "it lists the pairs of each class, which it mixes",
    "AngularLoss": "one pass over a row for each positive: it asks for their largest number once",
    "SmoothAPLoss": "as AngularLoss",
    "RecallAtKLoss": "as AngularLoss",
    "PNPLoss": "as AngularLoss",
}
LABELS = [0, 0, 1, 1, 1, 2, 3, 4, 4, 5, -1, -1] * 2


def settings(method, block):
    return {"block": block} if "block" in signature(getattr(nearfar, method.name)).parameters else {}


def on_meta(term, x, y, pooled):
    x = x.detach().float().to("meta").requires_grad_()
    value = term.float().to("meta")(x, y.to("meta"), pooled=pooled.float().to("meta"))
    value.backward()
    assert value.shape == ()
    assert x.grad is not None
    assert x.grad.shape == x.shape


@pytest.mark.slow
@pytest.mark.parametrize("block", [None, 5])
@pytest.mark.parametrize("method", TERMS, ids=lambda m: m.name)
def test_no_term_waits_for_a_device(method, block):
    """The device "meta" has shapes and no numbers: what reads one, or makes a shape of one, raises there."""
    term = make(method, **settings(method, block))
    if method.name in WAITS:
        with pytest.raises((RuntimeError, NotImplementedError), match=r"(?i)meta"):
            on_meta(term, *batch(labels=LABELS))
    else:
        on_meta(term, *batch(labels=LABELS))


@pytest.mark.parametrize(
    "miner", ["BatchAll", "BatchHard", "BatchSemiHard", "EasyPositive", "ExtremeDistance", "EasyHard", "PairMargins"]
)
def test_no_miner_waits_for_a_device(miner):
    on_meta(nearfar.ContrastiveLoss(miner=getattr(nearfar, miner)()), *batch(labels=LABELS))


def test_no_memory_waits_for_a_device():
    on_meta(nearfar.CrossBatchMemory(nearfar.ContrastiveLoss(), size=40, embedding_dim=5), *batch(labels=LABELS))


@pytest.mark.parametrize("positives", ["one", "each"])
def test_no_gaussians_wait_for_a_device(positives):
    on_meta(nearfar.BayesianUpdating(8, 5, positives=positives, max_classes=1), *batch(4, labels=[0, 1, 1, -1]))


@pytest.mark.parametrize("sparse", [False, True])
def test_no_drawn_classes_wait_for_a_device(sparse):
    """Where the share has more classes than the batch has samples, as usual, its classes need not be counted."""
    on_meta(SampledClasses(nearfar.CosFaceLoss(60, 5), share=0.5, sparse=sparse), *batch(labels=LABELS))


def test_a_gpu_takes_drawn_numbers_in_turn():
    class Drawn:
        """Numbers on the host, which only pinned memory hands over without waiting."""

        pinned = False

        def pin_memory(self):
            pinned = Drawn()
            pinned.pinned = True
            return pinned

        def to(self, device, *, non_blocking=False):
            return self.pinned and non_blocking

    assert to_device(Drawn(), torch.device("cuda"))
    assert not to_device(Drawn(), torch.device("cpu"))


def test_what_waits_is_a_term():
    assert WAITS.keys() <= {method.name for method in TERMS}


class NoCopies(TorchFunctionMode):
    """Refuses to copy numbers from the host to a device, for which both wait; the device "meta" would not notice."""

    MAKERS = (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.device.type == "meta":
            from_host = isinstance(args[0], torch.Tensor) and args[0].device.type == "cpu"
            if function in self.MAKERS or (function is torch.Tensor.to and from_host):
                raise TypeError(f"{function}: copies {args} from the host")
        return found


@pytest.mark.slow
@pytest.mark.parametrize("block", [None, 5])
@pytest.mark.parametrize("method", [m for m in TERMS if m.name not in WAITS], ids=lambda m: m.name)
def test_no_term_copies_from_the_host(method, block):
    copy_nothing(make(method, **settings(method, block)))


def copy_nothing(term):
    x, y, pooled = (part.detach().to("meta") for part in batch(labels=LABELS))
    x = x.float().requires_grad_()
    term = term.float().to("meta")
    with NoCopies():
        term(x, y, pooled=pooled.float()).backward()


@pytest.mark.parametrize("name", ["CosFaceLoss", "SubCenterArcFaceLoss", "ProxyAnchorLoss", "CrossEntropyHead"])
def test_no_loss_with_very_many_classes_copies_from_the_host(name, monkeypatch):
    monkeypatch.setattr(class_softmax, "FULL", 100)  # numbers of a part, of which there are several
    copy_nothing(getattr(nearfar, name)(60, 5))


class Stop(Exception):
    """Ends a call where it would wait for other processes."""


def test_outlines_travel_by_a_device_that_all_processes_have(monkeypatch):
    """A process that rejects its part may have it elsewhere, and would wait on another backend than the others."""
    seen = []

    def stop(x, sizes=None):
        seen.append(x.device.type)
        raise Stop

    monkeypatch.setattr(distributed, "world", lambda: 2)
    monkeypatch.setattr(distributed, "device", lambda: torch.device("cpu"))
    monkeypatch.setattr(distributed, "gather_numbers", stop)
    for labels in (torch.arange(6) % 2, torch.arange(5)):  # five labels of six embeddings are rejected
        with pytest.raises(Stop):
            nearfar.TripletLoss()(torch.ones(6, 2, device="meta"), labels)
    assert seen == ["cpu", "cpu"]


class NoFloat64(TorchDispatchMode):
    """Refuses to make a float64 tensor, as Apple's MPS does."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64 and tensor.ndim:
                raise TypeError(f"{function}: this device has no float64")
        return found


ON_THE_HOST = {
    "FacilityLocationLoss": "its search runs on the processor, in float64",
    "VirtualSampleLoss": "its draws are made on the processor",
}


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("method", [m for m in TERMS if m.name not in ON_THE_HOST], ids=lambda m: m.name)
def test_every_term_computes_where_there_is_no_float64(method, monkeypatch):
    term = make(method).float()
    x, y, pooled = batch(dtype=torch.float32)
    expected = term(x, y, pooled=pooled).detach()
    torch.manual_seed(0)
    again = make(method).float()
    monkeypatch.setattr(precision, "WITHOUT_FLOAT64", {"cpu"})
    with NoFloat64():
        value = again(x, y, pooled=pooled)
        value.backward()
    torch.testing.assert_close(value.detach(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("miner", [nearfar.RandomNegative, nearfar.DistanceWeighted])
def test_draws_where_there_is_no_float64(miner, monkeypatch):
    x, y, _ = batch(dtype=torch.float32)
    monkeypatch.setattr(precision, "WITHOUT_FLOAT64", {"cpu"})
    with NoFloat64():
        nearfar.TripletLoss(0.5, miner=miner())(x, y).backward()
    assert x.grad.isfinite().all()


OF_CLASSES = ["JRS", "JMMD", "JIntra", "EnergyConfusion", "CenterTripletLoss", "ProbabilisticDiscriminantLoss"]
LAPLACE = {name: {"kernel": "laplace"} for name in OF_CLASSES[:3]}


@pytest.mark.parametrize(
    "labels", [LABELS, [3] * 24, list(range(24)), [-1] * 23 + [2]], ids=["some", "one", "all", "no"]
)
@pytest.mark.parametrize(("name", "how"), [*((name, {}) for name in OF_CLASSES), *LAPLACE.items()])
@pytest.mark.filterwarnings("ignore:.*no class of the batch has two samples")
def test_classes_counted_by_their_first_samples_give_the_same(name, how, labels, monkeypatch):
    """As on a device: places for as many classes as there are samples, of which some stay empty."""
    method = next(m for m in TERMS if m.name == name)
    term = make(method, **how)
    found = []
    for host in (True, False):
        x, y, pooled = batch(labels=labels)
        with monkeypatch.context() as patched:
            if not host:
                for module in (comparison, batch_classes):
                    patched.setattr(module, "on_host", lambda x: False)
            value = term(x, y, pooled=pooled)
            found.append((value.detach(), torch.autograd.grad(value, x)[0]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-9)
