"""Miners choose what the plain loops choose, and the triplet loss on them is the published one."""

from importlib import import_module

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar.deep.pairwise.comparison import Comparison

Y = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 4])


def compare(y=Y, seed=0):
    x = torch.randn(len(y), 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    whole = Comparison(x, y, x, y, slice(0, len(y)), True, "sq_euclidean", False)
    return x, whole.block(x, x, 0, len(y))


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("name", ["BatchHard", "BatchSemiHard"])
@pytest.mark.parametrize("seed", range(5))
def test_chooses_what_the_loops_choose(name, seed):
    _, rows = compare(seed=seed)
    mined = getattr(nearfar, name)()(rows)
    stem = next(m.stem for m in nearfar.catalog.METHODS if m.name == name)
    expected = import_module(f"tests.references.{stem}").reference(rows.d.tolist(), Y.tolist())
    positive, negative, keep = mined.triplets
    chosen = {(int(a), int(positive[a, k])): int(negative[a, k]) for a, k in keep.nonzero()}
    assert chosen == expected
    assert {(int(a), int(p)) for a, p in mined.pos.nonzero()} == set(expected)
    assert {(int(a), int(n)) for a, n in mined.neg.nonzero()} == {(a, n) for (a, _), n in expected.items()}


def test_batch_all_is_every_comparison():
    _, rows = compare()
    assert nearfar.BatchAll()(rows) is rows


def test_batch_hard_loss_is_the_published_one():
    x, rows = compare()
    loss = nearfar.TripletLoss(0.5, normalize=False, miner=nearfar.BatchHard(), reduction="valid")
    total, anchors = 0.0, 0
    for a in range(len(Y)):
        if rows.pos[a].any():
            total += max(rows.d[a][rows.pos[a]].max() - rows.d[a][rows.neg[a]].min() + 0.5, 0)
            anchors += 1
    assert float(loss(x, Y)) == pytest.approx(float(total) / anchors)


def test_equal_embeddings_give_log_two_or_the_margin():
    x = torch.ones(6, 3)
    y = torch.tensor([0, 0, 1, 1, 2, 2])
    assert float(nearfar.TripletLoss(soft=True, miner=nearfar.BatchHard())(x, y)) == pytest.approx(0.6931472)
    assert float(nearfar.TripletLoss(0.3, miner=nearfar.BatchHard())(x, y)) == pytest.approx(0.3)


def gaps(rows, mined):
    positive, negative, keep = mined.triplets
    return (rows.d.gather(1, positive) - rows.d.gather(1, negative))[keep]


def test_semi_hard_pairs_stay_below_the_margin():
    _, rows = compare()
    mined = nearfar.BatchSemiHard(fallback="skip")(rows)
    assert (gaps(rows, mined) < 0).all()
    assert mined.pos.sum() < nearfar.BatchSemiHard()(rows).pos.sum()
    window = nearfar.BatchSemiHard(fallback="skip", window=0.5)(rows)
    assert (gaps(rows, window) > -0.5).all()


@pytest.mark.parametrize("few", [0, 12])
def test_columns_and_sorting_give_the_same_numbers(few, monkeypatch):
    from nearfar.deep.pairwise import hinges

    g = torch.Generator().manual_seed(0)
    t, v = torch.randn(6, 4, generator=g).double(), torch.randn(6, 9, generator=g).double()
    t[0, 1], v[1, 2], v[2, :] = -torch.inf, torch.inf, torch.inf
    monkeypatch.setattr(hinges, "MAX_POSITIVES_WITHOUT_SORT", few)
    value, active = hinges.hinges(t, v)
    torch.testing.assert_close(value, (t[:, :, None] - v[:, None]).clamp_min(0).sum((1, 2)))
    torch.testing.assert_close(active.long(), (v[:, None] < t[:, :, None]).sum(2))
    columns, found = hinges.next_above(t, v)
    above = torch.where(v[:, None] > t[:, :, None], v[:, None], torch.inf)
    assert (found == (above.amin(2) < torch.inf)).all()
    assert (columns == above.argmin(2))[found].all()


@pytest.mark.parametrize("miner", [nearfar.BatchHard(), nearfar.BatchSemiHard(), nearfar.BatchSemiHard("hardest")])
@pytest.mark.parametrize("labels", [[], [0], [0, 0, 0], [0, 1, 2], [0, 0, -1]])
def test_a_miner_that_finds_nothing_never_raises(miner, labels):
    x = torch.randn(len(labels), 3, requires_grad=True)
    value = nearfar.TripletLoss(miner=miner)(x, torch.tensor(labels, dtype=torch.long))
    value.backward()
    assert value == 0
    assert (x.grad == 0).all()


@pytest.mark.parametrize("block", [1, 5])
def test_mined_losses_do_not_depend_on_the_block(block):
    x, _ = compare()
    for miner in (nearfar.BatchHard(), nearfar.BatchSemiHard()):
        torch.testing.assert_close(
            nearfar.TripletLoss(miner=miner, block=block)(x, Y), nearfar.TripletLoss(miner=miner)(x, Y)
        )


@pytest.mark.parametrize("name", [m.name for m in nearfar.catalog.METHODS if m.kind == "miner"])
def test_a_miner_called_as_elsewhere_says_where_it_belongs(name):
    x, _ = compare()
    for given in ((x, Y), (x,), (x, Y, x, Y)):
        with pytest.raises(TypeError, match=rf"{name}: a miner is a part of a loss.*TripletLoss\(miner={name}\(\)\)"):
            getattr(nearfar, name)()(*given)


def test_unknown_fallback_is_named():
    with pytest.raises(ValueError, match="fallback must be one of 'farthest', 'hardest', 'skip'; got 'none'"):
        nearfar.BatchSemiHard("none")


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("fallback", ["farthest", "hardest", "skip"])
@pytest.mark.parametrize("window", [None, 1.0, 4.0])
def test_semi_hard_fallbacks_and_windows_are_those_of_the_loops(fallback, window):
    _, rows = compare(seed=1)
    expected, fell, cut = {}, 0, 0
    for a, p in rows.pos.nonzero().tolist():
        d, negatives = rows.d[a].tolist(), rows.neg[a].nonzero()[:, 0].tolist()
        farther = [n for n in negatives if d[n] > d[p]]
        fell += not farther
        if farther or fallback != "skip":
            best = max if fallback == "farthest" and not farther else min
            n = best(farther or negatives, key=d.__getitem__)
            if window is None or d[n] < d[p] + window:
                expected[a, p] = n
            else:
                cut += 1
    positive, negative, keep = nearfar.BatchSemiHard(fallback=fallback, window=window)(rows).triplets
    assert {(int(a), int(positive[a, k])): int(negative[a, k]) for a, k in keep.nonzero()} == expected
    assert expected
    assert fell
    assert cut or window != 1.0
