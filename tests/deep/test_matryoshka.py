"""Nested prefixes: as text and as a term, with proxies of their own lengths."""

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar.deep.objective.parser import ObjectiveError, parse_objective

SIZES = {"num_classes": 4, "embedding_dim": 6, "class_counts": (3, 3, 3, 3)}


def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, 6, generator=generator, dtype=torch.float64).requires_grad_(), torch.arange(12) % 4


def test_each_prefix_has_proxies_of_its_own_length():
    nested = parse_objective("Matryoshka(AMSoftmaxLoss(scale=20) + 0.5*TripletLoss(), dims=(2, 6))", **SIZES).double()
    assert [tuple(p.shape) for p in nested.parameters()] == [(4, 2), (4, 6)]
    x, y = batch()
    parts = [term(x[:, :dim], y) for term, dim in zip(nested.terms, (2, 6), strict=True)]
    torch.testing.assert_close(nested(x, y), sum(parts))


def test_text_and_term_are_one():
    x, y = batch()
    text = parse_objective("0.5*Matryoshka(objective=TripletLoss(margin=0.3), dims=[2, 4], weights=[1, 0.25])", **SIZES)
    term = 0.5 * nearfar.Matryoshka(nearfar.TripletLoss(margin=0.3), (2, 4), weights=(1, 0.25))
    torch.testing.assert_close(text(x, y), term(x, y))
    torch.testing.assert_close(parse_objective(repr(text), **SIZES)(x, y), term(x, y))


def test_gradients_reach_the_prefixes_only():
    x, y = batch()
    nearfar.Matryoshka(nearfar.NTXentLoss(), (2, 4))(x, y).backward()
    assert x.grad[:, :4].abs().sum() > 0
    assert (x.grad[:, 4:] == 0).all()


def test_a_reference_is_cut_too():
    x, y = batch()
    ref = torch.randn(8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    told = {"ref_labels": torch.arange(8) % 4}
    nested = nearfar.Matryoshka("TripletLoss()", (3, 6))
    loss = nearfar.TripletLoss()
    torch.testing.assert_close(
        nested(x, y, ref=ref, **told), loss(x[:, :3], y, ref=ref[:, :3], **told) + loss(x, y, ref=ref, **told)
    )


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: nearfar.Matryoshka("TripletLoss()", (4, 2)), "dims must be increasing whole numbers"),
        (lambda: nearfar.Matryoshka("TripletLoss()", ()), "dims must be increasing whole numbers"),
        (lambda: nearfar.Matryoshka("TripletLoss()", (2.5,)), "dims must be increasing whole numbers"),
        (lambda: nearfar.Matryoshka("TripletLoss()", (2, 4), weights=(1,)), "weights must be 2 finite numbers"),
        (lambda: nearfar.Matryoshka("TripletLoss()", (2, 8))(*batch()), "expected at least 8 dimensions, got 6"),
        (lambda: parse_objective("Matryoshka(Tripletloss(), dims=(2,))", **SIZES), "no method is called 'Tripletloss'"),
    ],
)
def test_bad_settings_are_told(make, told):
    with pytest.raises((ValueError, ObjectiveError), match=told):
        make()


def test_an_objective_must_be_a_term():
    with pytest.raises(TypeError, match="Matryoshka: objective must be a loss"):
        nearfar.Matryoshka(3)
