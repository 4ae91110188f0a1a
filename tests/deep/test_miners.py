"""Miners choose what the plain loops choose, and the triplet loss on them is the published one."""

from importlib import import_module

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar.deep.rows import Comparison

Y = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 4])


def compare(y=Y, seed=0):
    x = torch.randn(len(y), 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    whole = Comparison(x, y, x, y, slice(0, len(y)), True, "sq_euclidean", False)
    return x, whole.block(x, x, 0, len(y))


@pytest.mark.parametrize("name", ["BatchHard", "BatchSemiHard"])
@pytest.mark.parametrize("seed", range(5))
def test_chooses_what_the_loops_choose(name, seed):
    _, rows = compare(seed=seed)
    mined = getattr(nearfar, name)()(rows)
    stem = next(m.path.stem for m in nearfar.catalog.METHODS if m.name == name)
    expected = import_module(f"tests.references.{stem}").reference(rows.d.tolist(), Y.tolist())
    chosen = {(int(a), int(p)): int(mined.partner[a, p]) for a, p in mined.pos.nonzero()}
    assert chosen == expected
    for (a, _), n in chosen.items():
        assert mined.neg[a, n]


def test_batch_all_is_every_comparison():
    _, rows = compare()
    assert nearfar.BatchAll()(rows) is rows


def test_batch_hard_loss_is_the_published_one():
    x, rows = compare()
    loss = nearfar.TripletLoss(0.5, normalize=False, mine=nearfar.BatchHard(), reduction="valid")
    total, anchors = 0.0, 0
    for a in range(len(Y)):
        if rows.pos[a].any():
            total += max(rows.d[a][rows.pos[a]].max() - rows.d[a][rows.neg[a]].min() + 0.5, 0)
            anchors += 1
    assert float(loss(x, Y)) == pytest.approx(float(total) / anchors)


def test_equal_embeddings_give_log_two_or_the_margin():
    x = torch.ones(6, 3)
    y = torch.tensor([0, 0, 1, 1, 2, 2])
    assert float(nearfar.TripletLoss(soft=True, mine=nearfar.BatchHard())(x, y)) == pytest.approx(0.6931472)
    assert float(nearfar.TripletLoss(0.3, mine=nearfar.BatchHard())(x, y)) == pytest.approx(0.3)


def test_semi_hard_pairs_stay_below_the_margin():
    _, rows = compare()
    mined = nearfar.BatchSemiHard(fallback="skip")(rows)
    gap = rows.d - rows.d.gather(1, mined.partner)
    assert (gap[mined.pos] < 0).all()
    assert mined.pos.sum() < nearfar.BatchSemiHard()(rows).pos.sum()
    window = nearfar.BatchSemiHard(fallback="skip", window=0.5)(rows)
    assert (rows.d.gather(1, window.partner) < rows.d + 0.5)[window.pos].all()


@pytest.mark.parametrize("mine", [nearfar.BatchHard(), nearfar.BatchSemiHard(), nearfar.BatchSemiHard("hardest")])
@pytest.mark.parametrize("labels", [[], [0], [0, 0, 0], [0, 1, 2], [0, 0, -1]])
def test_a_miner_that_finds_nothing_never_raises(mine, labels):
    x = torch.randn(len(labels), 3, requires_grad=True)
    value = nearfar.TripletLoss(mine=mine)(x, torch.tensor(labels, dtype=torch.long))
    value.backward()
    assert value == 0
    assert (x.grad == 0).all()


@pytest.mark.parametrize("block", [1, 5])
def test_mined_losses_do_not_depend_on_the_block(block):
    x, _ = compare()
    for mine in (nearfar.BatchHard(), nearfar.BatchSemiHard()):
        torch.testing.assert_close(
            nearfar.TripletLoss(mine=mine, block=block)(x, Y), nearfar.TripletLoss(mine=mine)(x, Y)
        )


def test_unknown_fallback_is_named():
    with pytest.raises(ValueError, match="fallback must be one of farthest, hardest, skip, got 'none'"):
        nearfar.BatchSemiHard("none")
