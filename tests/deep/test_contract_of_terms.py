"""What base classes of terms say holds for every term: reading has no effect, and no method is missing."""

from collections import deque
from contextlib import suppress

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar.catalog import METHODS
from nearfar.deep.objective.batch import make_batch
from nearfar.deep.pairwise.row_loss import RowLoss
from tests.test_losses import TERMS, batch, call, make

every_term = pytest.mark.parametrize("method", TERMS, ids=lambda m: m.name)


def tensors_of(term):
    """Return all tensors that a term holds, by where they are."""
    found = {}
    waiting = deque([("", vars(term))])
    while waiting:
        name, value = waiting.popleft()
        if isinstance(value, torch.Tensor):
            found[name] = value
        elif isinstance(value, dict):
            waiting.extend((f"{name}.{key}", part) for key, part in value.items())
        elif isinstance(value, (list, tuple)):
            waiting.extend((f"{name}.{place}", part) for place, part in enumerate(value))
        elif isinstance(value, torch.nn.Module) and value is not term:
            waiting.append((name, vars(value)))
    return found


def snapshot(term):
    held = {
        name: (id(value), value._version, value.requires_grad, value.grad_fn)
        for name, value in tensors_of(term).items()
    }
    return held, {name: value.clone() for name, value in term.state_dict().items()}, torch.get_rng_state()


def read_all(term):
    for name in dir(term):
        with suppress(AttributeError, ValueError):  # such as the layer that a term has only in a training run
            getattr(term, name)


@every_term
@pytest.mark.parametrize("block", [None, 5])
def test_reading_changes_nothing(method, block):
    term = make(method)
    if block is not None and hasattr(term, "block"):
        term.block = block
    x, y, pooled = batch()
    if isinstance(term, RowLoss):
        term.comparison(make_batch(x, y, None, None, pooled))
    else:
        call(term, x, y, pooled)
    for _ in range(2):
        before, state, random = snapshot(term)
        read_all(term)
        after, state_after, random_after = snapshot(term)
        assert after == before
        torch.testing.assert_close(state_after, state, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(random_after, random)
        call(term, x, y, pooled)


@every_term
def test_reading_between_a_call_and_its_backward_pass_changes_no_gradient(method):
    x, y, pooled = batch()
    term = make(method)
    if hasattr(term, "block"):
        term.block = 5
    read = deep_gradient(term, x, y, pooled, read_all)
    again = make(method)
    if hasattr(again, "block"):
        again.block = 5
    torch.testing.assert_close(read, deep_gradient(again, x, y, pooled, lambda _: None), rtol=0, atol=0)


def deep_gradient(term, x, y, pooled, between):
    torch.manual_seed(0)
    value = call(term, x, y, pooled)
    between(term)
    return torch.autograd.grad(value, x)[0]


KINDS = ("loss", "regularizer", "head", "miner", "composition", "memory", "distance")
INSTEAD = {"per_sample": "losses", "term": "loss_of_rows"}  # a method states the first, or the second, which calls it


@pytest.mark.parametrize("method", [m for m in METHODS if m.kind in KINDS], ids=lambda m: m.name)
def test_no_class_lacks_what_its_bases_promise(method):
    kind = getattr(nearfar, method.name)
    if not isinstance(kind, type):
        return  # a function that makes an objective
    for name in dir(kind):
        member = getattr(kind, name)
        function = member.fget if isinstance(member, property) else member
        code = getattr(function, "__code__", None)
        if code is None or not function.__module__.startswith("nearfar") or "NotImplementedError" not in code.co_names:
            continue
        base = next(parent for parent in kind.__mro__ if name in vars(parent))
        other = INSTEAD.get(name)
        stated = other is not None and getattr(kind, other) is not getattr(base, other)
        assert stated, f"{method.name}.{name} is only promised"
