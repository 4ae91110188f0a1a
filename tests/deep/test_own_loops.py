"""What training loops of others do around an objective: other modes of PyTorch, weights that learn, foreign parts."""

import pickle
from copy import deepcopy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn

import nearfar
from nearfar.deep import LabelSets, SampledClasses, Sum
from nearfar.deep.objective.batch import make_batch
from tests.test_losses import CLASSES, DIM, TERMS, batch, make

PROXY_MEMORY = nearfar.CrossBatchMemory(nearfar.ArcFaceLoss(CLASSES, DIM), size=50)
MEMORIES = [nearfar.CrossBatchMemory(nearfar.TripletLoss(), size=50), PROXY_MEMORY]


def test_training_goes_on_after_a_call_in_inference_mode():
    x, y, pooled = batch(12, dtype=torch.float32)
    for term in [make(method).float() for method in TERMS] + MEMORIES:  # in training mode, as a loop leaves it
        with torch.inference_mode():
            value = term(x.clone(), y.clone(), pooled=pooled.clone())
        assert not value.requires_grad
        kept = {name: held for name, held in term.state_dict().items() if held.is_inference()}
        assert not kept, f"{term}: {list(kept)} cannot be differentiated later"
        for _ in range(2):
            term(x, y, pooled=pooled).backward()
    with torch.inference_mode():
        MEMORIES[0].sample_losses(x.clone(), y.clone())
    assert not MEMORIES[0].features.is_inference()


def test_a_weight_that_should_learn_is_refused():
    loss = nearfar.TripletLoss()
    learned = nn.Parameter(torch.tensor(0.5))
    made = (
        lambda: learned * loss,
        lambda: loss * learned,
        lambda: loss * (2 * learned),
        lambda: loss / learned,
        lambda: Sum([(learned, loss)]),
    )
    for make_sum in made:
        with pytest.raises(TypeError, match="weights of an objective are constants, got a tensor with a gradient; "):
            make_sum()
    for wrong in ("a", torch.ones(2), None, loss):
        with pytest.raises(TypeError, match="multiply a term by a number, "):
            loss * wrong
    assert repr(Sum([(torch.tensor(0.5), loss), (np.float32(2), loss)])) == "0.5*TripletLoss() + 2*TripletLoss()"


def test_a_similarity_and_a_miner_of_another_library_are_refused():
    class Similarity(nn.Module):
        is_inverted = True

        def forward(self, a, b):
            return a @ b.T

    class Miner(nn.Module):
        def mine(self, *args):
            return args

    with pytest.raises(ValueError, match="distance: Similarity is larger for nearer vectors; "):
        nearfar.TripletLoss(distance=Similarity())
    with pytest.raises(TypeError, match="miner: Miner makes tuples of indices; "):
        nearfar.TripletLoss(miner=Miner())


X = torch.randn(6, 4)
WRONG_INPUT = {
    "numpy": (X.numpy(), [0] * 6, r"got ndarray; torch.as_tensor makes one"),
    "lists": (X.tolist(), [0] * 6, r"got list; torch.as_tensor makes one"),
    "outputs": ({"hidden": X, "pooled": X}, [0] * 6, r"got dict; pass one of its entries, 'hidden', 'pooled'"),
    "complex": (torch.complex(X, X), [0] * 6, r"complex64 of shape \(6, 4\); torch.view_as_real\(x\).flatten\(1\)"),
    "sparse": (X.to_sparse(), [0] * 6, r"embeddings: expected a dense tensor, got torch.sparse_coo; x.to_dense\(\)"),
    "float labels": (X, torch.zeros(6), r"float32 of shape \(6,\); classes are integers, labels.long\(\)"),
    "a column": (X, torch.zeros(6, 1), r"6, got 1; classes are \(n,\) integers, labels.flatten\(\)"),
    "one-hot": (X, torch.eye(3)[[0, 1, 2, 0, 1, 2]], r"labels.argmax\(1\) of one-hot rows; .* LabelSets\(labels\)"),
    "flat sets": (X, LabelSets(torch.zeros(6)), r"labels: LabelSets need a \(n, C\) matrix, got shape \(6,\)"),
    "unknown": (X, LabelSets(-torch.eye(6)), r"labels: LabelSets need numbers from 0 to 1, got -1"),
    "counts": (X, LabelSets(3 * torch.eye(6)), r"labels: LabelSets need numbers from 0 to 1, got 3"),
}


@pytest.mark.parametrize("name", WRONG_INPUT)
def test_wrong_input_names_what_to_do(name):
    x, y, message = WRONG_INPUT[name]
    with pytest.raises((TypeError, ValueError), match=message):
        nearfar.TripletLoss()(x, y)


def test_wrong_numbers_and_sets_name_what_to_do():
    with pytest.raises(ValueError, match=r"^ids: expected \(n,\) integers, got \['a', "):
        nearfar.TripletLoss()(X, [0] * 6, ids=["a"] * 6)
    with pytest.raises(ValueError, match=r"labels must be in 0..2, got -100; -1 is an unknown class"):
        nearfar.ArcFaceLoss(3, 4)(X, [-100] * 6)
    for sets in ([["a"], ["b"]], [1, 2], [[0.5]]):
        with pytest.raises(ValueError, match="sets: expected a list of class numbers for each sample, got"):
            LabelSets.of(sets)
    with pytest.raises(ValueError, match=r"embeddings: expected a \(n, d\) float tensor, got torch.int64"):
        nearfar.ArcFaceLoss(3, 4).get_logits(X.long())


def test_a_call_that_is_wrapped_in_autocast_is_computed_in_full_precision():
    """As `Accelerator.prepare` wraps it with mixed_precision="bf16"."""
    x, y, _ = batch(12, dtype=torch.float32)
    for term in (nearfar.TripletLoss(), nearfar.ArcFaceLoss(CLASSES, DIM) + nearfar.JRS(layers=("class",))):
        value = term(x, y)
        term.forward = torch.autocast("cpu", torch.bfloat16)(term.forward)
        torch.testing.assert_close(term(x, y), value, rtol=0, atol=0)


def test_what_a_term_keeps_of_a_call_in_a_transform_can_be_copied():
    x, y, pooled = batch(12, dtype=torch.float32)
    keeping = [method for method in TERMS if method.name in ("AdversarialTriplet", "CMLLoss", "HDMLLoss")]
    assert len(keeping) == 3
    for term in [make(method).float() for method in keeping] + [deepcopy(term) for term in MEMORIES]:
        plain = deepcopy(term)
        slope = torch.func.grad(lambda z, term=term: term(z, y, pooled=pooled))(x.detach())
        (expected,) = torch.autograd.grad(plain(x, y, pooled=pooled), x)
        torch.testing.assert_close(slope, expected)
        again = pickle.loads(pickle.dumps(deepcopy(term)))
        torch.testing.assert_close(again.state_dict(), plain.state_dict())
        torch.testing.assert_close(again(x, y, pooled=pooled), plain(x, y, pooled=pooled))


def test_averages_of_weights_are_finite():
    """Also for an average that is made before the first batch, from which a memory takes the width of its features."""
    x, y, pooled = batch(24, dtype=torch.float32)
    lazy = nearfar.CrossBatchMemory(nearfar.TripletLoss(), size=50)
    means = [nearfar.ProxyNCALoss(CLASSES, DIM, proxies="class_mean"), nearfar.HDMLLoss(CLASSES, DIM, window=2)]
    with_buffers = [term for term in (make(method).float() for method in TERMS) if list(term.buffers())]
    for term in [*with_buffers, *means, PROXY_MEMORY, lazy]:
        model = nn.ModuleDict({"network": nn.Linear(DIM, DIM), "objective": term})
        averages = [torch.optim.swa_utils.AveragedModel(model, use_buffers=also) for also in (False, True)]
        for _ in range(3):
            term(model["network"](x), y, pooled=pooled)
            for average in averages:
                average.update_parameters(model)
        for average in averages:
            for name, value in average.module.state_dict().items():
                assert value.isfinite().all(), (term, name)
            assert average.module["objective"](x, y, pooled=pooled).isfinite(), term


def test_what_is_remembered_is_saved_but_is_not_mixed():
    x, y, _ = batch(12, dtype=torch.float32)
    memory, labels = nearfar.CrossBatchMemory(nearfar.TripletLoss(), size=50), y
    empty = memory.state_dict()
    assert not list(memory.buffers())
    for _ in range(2):
        memory(x, labels)
    ways = {
        "copy": deepcopy,
        "pickle": lambda term: pickle.loads(pickle.dumps(term)),
        "half": lambda term: deepcopy(term).half(),
        "double": lambda term: deepcopy(term).double().float(),
        "state": lambda term: loaded(term, None),
        "state of known width": lambda term: loaded(term, DIM),
        "state on meta": lambda term: loaded(term, DIM, device="meta", assign=True),
    }
    later = 2 * x
    copies = {name: way(memory) for name, way in ways.items()}
    value = memory(later, labels)
    for name, again in copies.items():
        assert again.features.dtype == torch.float32, name
        torch.testing.assert_close(again(later, labels), value, msg=name)
    memory.load_state_dict(empty)  # as before the first batch
    torch.testing.assert_close(memory(x, labels), memory.loss(x, labels))
    with pytest.raises(RuntimeError, match=r"features: the memory has shape \(50, 5\), got \(50, 4\)"):
        memory.load_state_dict({**memory.state_dict(), "features": torch.zeros(50, 4)})
    with pytest.raises(RuntimeError, match=r"Missing key.*position"):
        memory.load_state_dict({name: part for name, part in memory.state_dict().items() if name != "position"})


def loaded(memory, width, device="cpu", **settings):
    with torch.device(device):
        again = nearfar.CrossBatchMemory(nearfar.TripletLoss(), size=50, embedding_dim=width)
    again.load_state_dict(memory.state_dict(), **settings)
    return again


def test_objectives_of_the_device_meta_take_a_state():
    x, y, pooled = batch(12, dtype=torch.float32)
    for method in TERMS:
        term = make(method).float().eval()
        with torch.device("meta"):
            empty = make(method).float().eval()
        empty.to_empty(device="cpu")
        with torch.no_grad():
            for part in empty.buffers():
                part.fill_(7)  # what was in the memory
        empty.load_state_dict(term.state_dict())
        torch.manual_seed(0)
        value = term(x, y, pooled=pooled)
        torch.manual_seed(0)
        torch.testing.assert_close(empty(x, y, pooled=pooled), value, msg=method.name)


def test_a_process_without_samples_uses_every_parameter():
    """DistributedDataParallel would wait for the gradient of any other."""
    x, y, pooled = batch(12, dtype=torch.float32)
    sampled = [SampledClasses(nearfar.ArcFaceLoss(CLASSES, DIM)), SampledClasses(nearfar.ProxyAnchorLoss(CLASSES, DIM))]
    unknown = torch.full_like(y, -1)
    for term in [make(method).float() for method in TERMS] + MEMORIES + sampled:
        parameters = [x, *(part for part in term.parameters() if part.requires_grad)]
        for labels, anchors in ((y, slice(12, 12)), (unknown, slice(0, 12))):
            value = term.local_value(make_batch(x, labels, None, None, pooled)._replace(anchors=anchors))
            found = torch.autograd.grad(value, parameters, allow_unused=True)
            assert all(part is not None and part.isfinite().all() for part in found), (term, labels, anchors)
    shares = make_batch(x, LabelSets(torch.eye(CLASSES)[y]), None, None, None)._replace(anchors=slice(12, 12))
    for term in (nearfar.ArcFaceLoss(CLASSES, DIM), nearfar.CrossEntropyHead(CLASSES, DIM)):
        for part in (shares, shares._replace(y=y)):
            losses = term.local_sample_losses(part)
            assert torch.autograd.grad(losses.sum(), term.proxies)[0].abs().sum() == 0
