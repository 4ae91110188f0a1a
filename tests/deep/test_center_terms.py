"""Regularizers of class centers: of proxies, of several centers of each class, and of the means of a batch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar import CenterInvariance, CenterNorms, RegularFace, SparseCenters
from nearfar.deep import SampledClasses, parse_objective
from tests.references import center_invariance, center_norms, regular_face, sparse_centers

C, D = 5, 4
TERMS = [
    (CenterInvariance(), center_invariance.penalty),
    (CenterNorms(), center_norms.penalty),
    (CenterNorms(1.0, 2.0), lambda w: center_norms.penalty(w, 1.0, 2.0)),
    (RegularFace(), regular_face.penalty),
]


def batch():
    g = torch.Generator().manual_seed(0)
    return torch.randn(8, D, generator=g, dtype=torch.float64, requires_grad=True), torch.arange(8) % C


@pytest.mark.parametrize(("term", "penalty"), TERMS, ids=lambda part: repr(part) if hasattr(part, "forward") else "")
@pytest.mark.parametrize(
    "make",
    [
        lambda: nearfar.ArcFaceLoss(C, D),
        lambda: nearfar.CrossEntropyHead(C, D),
        lambda: nearfar.CrossBatchMemory(nearfar.AMSoftmaxLoss(C, D), size=4),
        lambda: SampledClasses(nearfar.AMSoftmaxLoss(C, D), share=0.9),
    ],
    ids=["proxies", "head", "memory", "sampled"],
)
def test_the_proxies_of_another_loss_are_the_centers(make, term, penalty):
    torch.manual_seed(0)
    objective = make().double() + 0.5 * term
    x, y = batch()
    objective(x, y)
    proxies = next(p for name, p in objective.named_parameters() if name.endswith("proxies"))
    (value,) = [part for name, part in objective.parts_.items() if name == type(term).__name__]
    expected = penalty(list(proxies))
    torch.testing.assert_close(value, expected.detach())
    found = objective.terms[1].penalty(proxies[None], torch.ones(C, dtype=torch.bool))
    slopes = [torch.autograd.grad(one, proxies)[0] for one in (found, expected)]
    torch.testing.assert_close(*slopes)


def test_sparse_centers_are_those_of_soft_triple():
    x, y = batch()
    torch.manual_seed(0)
    own = nearfar.SoftTripleLoss(C, D, centers=3, tau=0.3).double()
    torch.manual_seed(0)
    apart = nearfar.SoftTripleLoss(C, D, centers=3, tau=0).double() + 0.3 * SparseCenters()
    torch.testing.assert_close(apart(x, y), own(x, y))
    proxies = own.proxies
    expected = sparse_centers.penalty(proxies.unflatten(0, (3, C)))
    found = SparseCenters().penalty(proxies.unflatten(0, (3, C)), torch.ones(C, dtype=torch.bool))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(one, proxies)[0] for one in (found, expected)))


def test_of_several_centers_the_nearest_of_another_class_counts():
    w = torch.randn(2, 3, D, dtype=torch.float64)
    units = torch.nn.functional.normalize(w, dim=2)
    others = [
        [units[k, c] @ units[j, e] for j in range(2) for e in range(3) if e != c] for k in range(2) for c in range(3)
    ]
    expected = torch.stack([torch.stack(row).max() for row in others]).mean()
    torch.testing.assert_close(RegularFace().penalty(w, torch.ones(3, dtype=torch.bool)), expected)


def test_in_text_and_bad_settings():
    objective = parse_objective("SubCenterArcFaceLoss() + 0.1*SparseCenters()", num_classes=C, embedding_dim=D)
    x, y = batch()
    assert objective.double()(x, y).isfinite()
    for how in ({"p": 0.5}, {"power": 0.0}):
        with pytest.raises(ValueError, match=f"CenterNorms: {next(iter(how))} must be at least 1"):
            CenterNorms(**how)
