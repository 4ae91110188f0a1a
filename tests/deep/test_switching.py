"""The rows of the page on switching are equations: both libraries give one value and one gradient."""

import math
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")

from pytorch_metric_learning import distances, losses, miners, reducers

import nearfar
from nearfar.catalog import BY_NAME, ELSEWHERE
from nearfar.compat import pytorch_metric_learning as here

C, D = 8, 16
PAGE = Path(__file__).parents[2] / "docs" / "switching.md"
ROWS = re.findall(r"^\| `(losses\..*?)`(?: with `(miners\..*?)`)? \| `(.*)` \|$", PAGE.read_text(), re.M)
THEIRS = {"losses": losses, "miners": miners, "distances": distances, "reducers": reducers, "C": C, "D": D}


def ours(text):
    names = {name: getattr(nearfar, name) for name in set(re.findall(r"[A-Z]\w+(?=\()", text))}
    return eval(text, {**names, "C": C, "D": D, "radians": math.radians}).double()


def give_proxies(loss, to):
    """Copy class weights in their own layout."""
    proxies = loss.proxies.detach()
    class_by_class = proxies.unflatten(0, (-1, C)).transpose(0, 1).flatten(0, 1)
    name = next(name for name in ("W", "fc", "proxies") if hasattr(to, name))
    getattr(to, name).data = class_by_class if name == "proxies" else class_by_class.T.contiguous()


def test_the_page_has_rows():
    assert len(ROWS) > 15


def test_the_page_names_every_loss():
    names = {name for name in vars(losses) if name.endswith("Loss")} - {"GenericPairLoss"}  # a base of others
    assert {name for name in names if f"`{name}" not in PAGE.read_text().replace("losses.", "")} == set()


@pytest.mark.parametrize("sizes", [[6] * C, [9, 2, 3, 4, 2, 5, 3, 2]], ids=["even", "uneven"])
@pytest.mark.parametrize(("loss", "miner", "here"), ROWS, ids=[row[2] for row in ROWS])
def test_both_sides_are_one(loss, miner, here, sizes):
    torch.manual_seed(0)
    y = torch.arange(C).repeat_interleave(torch.tensor(sizes))
    x = torch.randn(len(y), D, dtype=torch.float64, requires_grad=True)
    there, here = eval(loss, dict(THEIRS)), ours(here)
    if hasattr(here, "proxies"):
        give_proxies(here, there)
    value = there(x, y, eval(miner, dict(THEIRS))(x, y)) if miner else there(x, y)
    (slope,) = torch.autograd.grad(value, x)
    mine = here(x, y)
    torch.testing.assert_close(mine, value, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(mine, x)[0], slope, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("here", [row[2] for row in ROWS if "Face" in row[2] or row[2].startswith("AMSoftmax")])
def test_logits_are_one(here):
    there, mine = eval(next(row[0] for row in ROWS if row[2] == here), dict(THEIRS)), ours(here)
    give_proxies(mine, there)
    x = torch.randn(9, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(mine.get_logits(x), there.get_logits(x))


def views():
    g = torch.Generator().manual_seed(0)
    return [0.5 * torch.randn(12, D, generator=g, dtype=torch.float64).requires_grad_() for _ in range(2)]


def same(mine, theirs, inputs):
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)
    slopes = [torch.autograd.grad(value, inputs, retain_graph=True) for value in (mine, theirs)]
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-12)


def test_two_views_by_a_reference():
    a, b = views()
    n = torch.arange(len(a))
    mine = nearfar.VICRegLoss(variance=12.5)(a, n, ref=b, ref_labels=n)
    same(mine, losses.VICRegLoss()(a, ref_emb=b), [a, b])


def test_two_views_as_one_batch():
    a, b = views()
    n, temperature = torch.arange(len(a)), 0.1
    mine, theirs = nearfar.NTXentLoss(temperature), losses.NTXentLoss(temperature)
    same(mine(torch.cat([a, b]), n.repeat(2)), losses.SelfSupervisedLoss(theirs)(a, b), [a, b])
    one_sided = losses.SelfSupervisedLoss(theirs, symmetric=False)(a, b)
    same(mine(a, n, ref=b, ref_labels=n), one_sided, [a, b])


def test_three_views_are_pairs_of_two():
    """Each view of a sample is a positive of the two others, and all else is a negative: written as plain loops."""
    a, b = views()
    c = a.detach().flip(1).requires_grad_()
    n = torch.arange(len(a))
    mine = nearfar.SupConLoss(temperature=0.1)
    cosines = torch.nn.functional.normalize(torch.cat([a, b, c]))
    cosines = cosines @ cosines.T / 0.1
    anchors = []
    for i in range(3 * len(a)):
        others = [j for j in range(3 * len(a)) if j != i]
        near = [cosines[i, j] for j in others if j % len(a) == i % len(a)]
        anchors.append(cosines[i, others].logsumexp(0) - sum(near) / len(near))
    expected = sum(anchors) / len(anchors)
    same(mine(torch.cat([a, b, c]), n.repeat(3)), expected, [a, b, c])
    peer = here.losses.SelfSupervisedLoss(here.losses.SupConLoss(temperature=0.1))
    torch.testing.assert_close(peer(a, b, c), expected)
    one_sided = here.losses.SelfSupervisedLoss(here.losses.NTXentLoss(temperature=0.1), symmetric=False)
    theirs = losses.NTXentLoss(temperature=0.1)
    given = {"ref_emb": torch.cat([b, c]), "ref_labels": n.repeat(2)}
    same(one_sided(a, b, c), theirs(a, n, **given), [a, b, c])
    found = nearfar.NTXentLoss(temperature=0.1)(a, n, ref=given["ref_emb"], ref_labels=given["ref_labels"])
    same(found, theirs(a, n, **given), [a, b, c])


@pytest.mark.parametrize("variant", ["O", "Iu", "Ib", "Ds", "Dq"])
def test_every_sample_a_positive_of_itself(variant):
    x = views()[0]
    y = torch.arange(len(x)) // 3
    mine = nearfar.PNPLoss(variant, b=3.0, alpha=0.5)(x, y, ref=x.clone(), ref_labels=y)
    same(mine, losses.PNPLoss(variant=variant, b=3, alpha=0.5)(x, y), [x])


def test_the_mean_over_all_cosines():
    x = views()[0]
    y, here, there = torch.arange(len(x)) % C, ours("P2SGradLoss(C, D)"), losses.P2SGradLoss(D, C)
    there.weight.data = torch.nn.functional.normalize(here.proxies.detach()).T.contiguous()
    value, theirs = 2 / C * here(x, y), there(x, y)
    torch.testing.assert_close(value, theirs, rtol=1e-6, atol=0)  # their proxies have unit length to 1e-7
    slopes = [torch.autograd.grad(one, x, retain_graph=True)[0] for one in (value, theirs)]
    torch.testing.assert_close(*slopes, rtol=1e-5, atol=1e-7)


def test_a_sample_alone_in_its_class():
    x = views()[0]
    y = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 5])
    lifted = losses.GeneralizedLiftedStructureLoss(neg_margin=1)(x, y)
    u = torch.nn.functional.normalize(x)
    alone = [(1 - (u[i] - u[torch.arange(12) != i]).norm(dim=1)).logsumexp(0).clamp_min(0) for i in (10, 11)]
    same((10 * nearfar.GeneralizedLiftedLoss(margin=1, normalize=True)(x, y) + sum(alone)) / 12, lifted, [x])
    relation = (y[:, None] == y).long()
    relation[10, 11] = relation[11, 10] = -1
    same(nearfar.HistogramLoss(64)(x, relation), losses.HistogramLoss(64)(x, y), [x])


def test_their_names_lead_to_ours_or_to_none():
    """A name like one of ours that is another method would mislead."""
    without = {"DynamicSoftMarginLoss", "ManifoldLoss", "GenericPairLoss"}
    without |= {"HDCMiner", "BaseMiner"}
    names = {name for part in (losses, miners) for name in vars(part) if name.endswith(("Loss", "Miner"))}
    assert names - set(BY_NAME) - set(ELSEWHERE) == without
