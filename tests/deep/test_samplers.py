"""Batch samplers: what an epoch holds, seeds, ranks, resumption, bad input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from nearfar import TripletLoss
from nearfar.deep import distributed
from nearfar.deep.samplers.base import BatchSampler, by_class, deal, occurrences
from nearfar.deep.samplers.class_ratio import ClassRatioSampler
from nearfar.deep.samplers.clusters import ClusterSampler
from nearfar.deep.samplers.embedded import EmbeddingSampler
from nearfar.deep.samplers.hierarchical import HierarchicalSampler
from nearfar.deep.samplers.m_per_class import MPerClassSampler
from nearfar.deep.samplers.pairs import PairSampler
from nearfar.deep.samplers.random import RandomBatchSampler
from nearfar.deep.samplers.resolve import make_sampler
from nearfar.deep.samplers.smart_mining import SmartMiningSampler
from nearfar.deep.samplers.triplets import TripletSampler

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(11) * 7, np.arange(1, 12)))  # 66 samples
EMBEDDINGS = np.random.default_rng(1).normal(size=(66, 4))


def fitted(sampler: EmbeddingSampler) -> EmbeddingSampler:
    sampler.refit(EMBEDDINGS)
    return sampler


MAKERS: dict[str, Callable[[int], BatchSampler]] = {
    "random": lambda seed: RandomBatchSampler(LABELS, 8, seed=seed),
    "m_per_class": lambda seed: MPerClassSampler(LABELS, 2, 8, seed=seed, rounds=2),
    "pairs": lambda seed: PairSampler(LABELS, 8, seed=seed),
    "triplets": lambda seed: TripletSampler(LABELS, 12, seed=seed),
    "weighted": lambda seed: MPerClassSampler(LABELS, 2, 8, seed=seed, rounds=2, weights=np.arange(66) % 5 + 0.5),
    "hierarchical": lambda seed: HierarchicalSampler(LABELS, LABELS // 21, 2, 8, seed=seed, rounds=2),
    "class_ratio": lambda seed: ClassRatioSampler(LABELS, 8, 0.5, seed=seed, rounds=2),
    "smart_mining": lambda seed: fitted(SmartMiningSampler(LABELS, 8, negatives=2, neighbors=5, seed=seed)),
    "clusters": lambda seed: fitted(ClusterSampler(LABELS, 8, m=2, clusters=3, seed=seed)),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[[int], BatchSampler]:
    return MAKERS[request.param]


def test_batches_are_lists_of_int_and_as_many_as_len(make: Callable[[int], BatchSampler]) -> None:
    sampler = make(0)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    assert all(isinstance(batch, list) and len(batch) == sampler.batch_size for batch in batches)
    assert all(type(index) is int and 0 <= index < len(LABELS) for batch in batches for index in batch)


def test_same_seed_same_epochs_and_epochs_differ(make: Callable[[int], BatchSampler]) -> None:
    a, b, other = make(3), make(3), make(4)
    first, second = list(a), list(a)
    assert first != second
    assert [first, second] == [list(b), list(b)]
    assert first != list(other)
    a.set_epoch(0)
    assert list(a) == first


def test_broken_off_iteration_starts_the_epoch_again(make: Callable[[int], BatchSampler]) -> None:
    sampler = make(0)
    peek = next(iter(sampler))
    assert next(iter(sampler)) == peek
    assert len(list(sampler)) == len(sampler)


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_share_the_global_batches(
    make: Callable[[int], BatchSampler], world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = list(make(5))
    monkeypatch.setattr(distributed, "world", lambda: world)
    parts = []
    for rank in range(world):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        parts.append(list(make(5)))
    together = [[index for part in batch for index in part] for batch in zip(*parts, strict=True)]
    assert together == alone


def test_batch_size_must_divide_among_processes(
    make: Callable[[int], BatchSampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "world", lambda: 5)
    monkeypatch.setattr(distributed, "rank", lambda: 0)
    with pytest.raises(ValueError, match=r"batch_size: must divide among 5 processes, got (8|12)"):
        list(make(0))


def test_batches_that_accelerate_divides_are_refused(
    make: Callable[[int], BatchSampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = pytest.importorskip("accelerate.data_loader")
    monkeypatch.setattr(distributed, "world", lambda: 2)
    monkeypatch.setattr(distributed, "rank", lambda: 0)
    for split in (False, True):
        divided = shards.BatchSamplerShard(make(0), num_processes=2, process_index=0, split_batches=split)
        with pytest.raises(ValueError, match=r"Sampler: gives each of 2 processes its part .* Accelerator\.prepare"):
            next(iter(divided))
    assert len(next(iter(make(0)))) in (4, 6)


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_that_accelerate_dispatches_are_refused(
    make: Callable[[int], BatchSampler], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `dispatch_batches=True`, the first process reads all batches and sends parts of them to the others."""
    shards = pytest.importorskip("accelerate.data_loader")
    pytest.importorskip("accelerate").PartialState()
    monkeypatch.setattr(distributed, "world", lambda: 2)
    monkeypatch.setattr(distributed, "rank", lambda: 0)
    for split in (False, True):
        items = torch.arange(100)
        loader = shards.DataLoaderDispatcher(
            items, batch_sampler=make(0), num_workers=workers, split_batches=split, use_stateful_dataloader=False
        )
        with pytest.raises(ValueError, match=r"Sampler: gives each of 2 processes its part .* Accelerator\.prepare"):
            next(iter(loader))


@pytest.mark.parametrize("before", range(0, 14, 3))
def test_resumes_in_the_middle(make: Callable[[int], BatchSampler], before: int) -> None:
    def stream(sampler: BatchSampler):
        while True:
            yield from sampler

    whole = stream(make(1))
    sampler = make(1)
    running = stream(sampler)
    expected = [next(whole) for _ in range(before + 12)]
    assert [next(running) for _ in range(before)] == expected[:before]
    resumed = make(1)
    resumed.load_state_dict(sampler.state_dict())
    after = stream(resumed)
    assert [next(after) for _ in range(12)] == expected[before:]


def test_state_of_a_loader_that_asks_ahead(make: Callable[[int], BatchSampler]) -> None:
    sampler = make(1)
    batches = list(sampler)  # the loader asked for all of them, training finished two
    resumed = make(1)
    resumed.load_state_dict(sampler.state_dict(done=2))
    resumed.set_epoch(0)
    assert list(resumed) == batches[2:]
    assert list(resumed) == list(sampler)


def test_state_of_other_settings_is_refused(make: Callable[[int], BatchSampler]) -> None:
    with pytest.raises(ValueError, match="sampler state: taken with"):
        make(1).load_state_dict(make(2).state_dict())


def test_random_visits_every_sample_and_completes_the_last_batch() -> None:
    seen = Counter(index for batch in RandomBatchSampler(LABELS, 8) for index in batch)
    assert set(seen) == set(range(66))
    assert sum(seen.values()) == 72
    assert max(seen.values()) == 2
    dropped = Counter(index for batch in RandomBatchSampler(LABELS, 8, drop_last=True) for index in batch)
    assert len(dropped) == 64
    assert set(dropped.values()) == {1}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    m=st.integers(1, 5),
    per_batch=st.integers(1, 6),
    rounds=st.integers(1, 4),
    drop_last=st.booleans(),
    seed=st.integers(0, 9),
)
def test_m_per_class_epoch(counts: list[int], m: int, per_batch: int, rounds: int, drop_last: bool, seed: int) -> None:
    per_batch = min(per_batch, len(counts))
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    options = {"rounds": rounds, "drop_last": drop_last, "seed": seed}
    batches = np.array(list(MPerClassSampler(y, m, m * per_batch, **options)))
    classes = y[batches].reshape(len(batches), per_batch, m)
    assert (classes == classes[..., :1]).all()  # m of each class
    assert all(len(set(row)) == per_batch for row in classes[..., 0])  # distinct classes
    visits = np.bincount(classes[..., 0].ravel(), minlength=len(counts))
    whole = len(counts) % per_batch == 0
    assert (visits == rounds).all() if whole else (visits <= rounds).all() if drop_last else (visits >= rounds).all()
    drawn = np.bincount(batches.ravel(), minlength=len(y))
    for c in range(len(counts)):  # dealt evenly: no sample again before all have come
        assert np.ptp(drawn[y == c]) <= 1
    for group, c in zip(batches.reshape(-1, m), classes[..., 0].ravel(), strict=True):
        assert len(set(group)) == min(m, counts[c])


def test_m_per_class_visits_every_class_once() -> None:
    y = np.repeat(np.arange(12), 5)
    batches = list(MPerClassSampler(y, 3, 12))
    assert sorted(y[batches].reshape(-1, 3)[:, 0]) == list(range(12))
    assert all(len(set(batch)) == 12 for batch in batches)


def test_small_classes_take_part_unless_left_out() -> None:
    kept = MPerClassSampler(LABELS, 4, 8)
    assert kept.left_out == 0
    assert set(LABELS[list(kept)].ravel()) == set(LABELS)
    strict = MPerClassSampler(LABELS, 4, 8, allow_repeat=False)
    assert strict.left_out == 3
    assert set(LABELS[list(strict)].ravel()) == set(LABELS) - {0, 7, 14}


def test_rounds_none_is_about_as_long_as_the_data() -> None:
    y = np.repeat(np.arange(20), 30)
    for sampler in (MPerClassSampler(y, 2, 20, rounds=None), ClassRatioSampler(y, 20, 0.25, rounds=None)):
        assert abs(len(sampler) * 20 - len(y)) <= 4 * 20 / 2  # to the nearest whole round


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(1, 9), min_size=4, max_size=14),
    size=st.integers(1, 16),
    ratio=st.sampled_from([0.25, 0.5, 0.75, 1.0]),
    seed=st.integers(0, 9),
)
def test_class_ratio_batch(counts: list[int], size: int, ratio: float, seed: int) -> None:
    size = min(size, len(counts))
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    sampler = ClassRatioSampler(y, size, ratio, seed=seed)
    visited: Counter[int] = Counter()
    for batch in sampler:
        chosen = set(y[batch])
        assert len(chosen) == max(1, round(ratio * size))
        assert len(set(batch)) == min(size, sum(counts[c] for c in chosen))
        visited.update(chosen)
    assert set(visited) == set(range(len(counts)))
    assert max(visited.values()) <= 2


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(1, 6), min_size=2, max_size=8),
    half=st.integers(1, 6),
    similar=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    seed=st.integers(0, 9),
)
def test_pairs(counts: list[int], half: int, similar: float, seed: int) -> None:
    assume(not similar or max(counts) > 1)  # refused: no pair is similar
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    half = min(half, len(y))
    found = np.array(list(PairSampler(y, 2 * half, similar=similar, seed=seed))).reshape(-1, half, 2)
    anchors, partners = found[..., 0], found[..., 1]
    alone = np.array(counts)[y] == 1
    share = round(similar * half)
    room = len(anchors) * (half - share)  # for samples that are alone in their class
    left_out = set(range(len(y))) - set(anchors.ravel().tolist())
    assert alone[list(left_out)].all()
    assert len(left_out) == max(0, alone.sum() - room)
    assert (anchors != partners).all()
    assert ((y[anchors] == y[partners]) == (np.arange(half) < share)).all()


def test_partners_are_uniform() -> None:
    y = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2])
    seen: Counter[tuple[int, int]] = Counter()
    sampler = TripletSampler(y, 27)
    for _ in range(400):
        for a, p, n in np.reshape(next(iter(sampler)), (-1, 3)):
            seen.update([("p", a, p), ("n", a, n)])
        sampler.set_epoch(sampler.epoch + 1)
    for a in range(9):
        for kind, others in (("p", (y == y[a]) & (np.arange(9) != a)), ("n", y != y[a])):
            drawn = np.array([seen[kind, a, b] for b in range(9)])
            share = 400 / others.sum()
            assert (drawn[~others] == 0).all()
            assert (abs(drawn[others] - share) <= 5 * np.sqrt(share)).all()


def test_triplets_visit_every_anchor_once() -> None:
    y = np.array([3, 3, 3, 1, 1, 8, -1, 3])
    batches = np.array(list(TripletSampler(y, 9))).reshape(-1, 3)
    assert sorted(batches[:, 0]) == [0, 1, 2, 3, 4, 7]  # neither the lone nor the unknown one
    assert (y[batches[:, 0]] == y[batches[:, 1]]).all()
    assert (batches[:, 0] != batches[:, 1]).all()
    assert (y[batches[:, 0]] != y[batches[:, 2]]).all()
    assert -1 not in y[batches]


def test_given_triplets_come_once_an_epoch_and_are_part_of_the_state() -> None:
    mined = [[0, 1, 5], [2, 3, 4], [5, 4, 0], [1, 0, 3]]
    sampler = TripletSampler(LABELS, 6, triplets=mined)
    rows = [tuple(row) for batch in sampler for row in np.reshape(batch, (-1, 3))]
    assert sorted(rows) == sorted(map(tuple, mined))
    with pytest.raises(ValueError, match="sampler state"):
        TripletSampler(LABELS, 6, triplets=mined[::-1]).load_state_dict(sampler.state_dict())


def test_unknown_labels_are_never_drawn() -> None:
    y = np.repeat([-1, 3, 5, 8], 6)
    for sampler in (MPerClassSampler(y, 2, 6), ClassRatioSampler(y, 6, 0.5)):
        assert -1 not in y[list(sampler)]
        assert set(y[list(sampler)].ravel()) == {3, 5, 8}


def test_labels_may_be_strings() -> None:
    y = np.array(["crow", "owl", "crow", "owl", "jay", "jay"])
    names = y[list(MPerClassSampler(y, 2, 6))]
    assert sorted(names.ravel()) == sorted(y)


@pytest.mark.parametrize(
    ("make_bad", "says"),
    [
        (lambda: MPerClassSampler(LABELS, 2, 24), r"batch_size=24 with m=2 needs 12 classes, got 11; 22 would do"),
        (lambda: MPerClassSampler(LABELS, 4, 48, allow_repeat=False), r"m=4 \(3 classes with fewer than 4 .* got 8"),
        (lambda: MPerClassSampler(LABELS, 3, 8), r"must be a multiple of m, got batch_size=8 and m=3"),
        (lambda: MPerClassSampler(LABELS, 0, 8), r"m: must be at least 1, got 0"),
        (lambda: MPerClassSampler(LABELS, 2, 8, seed=-1), r"seed: must be at least 0, got -1"),
        (lambda: MPerClassSampler(LABELS, 2, 8, rounds=0), r"rounds: must be at least 1, got 0"),
        (
            lambda: ClassRatioSampler(LABELS, 64, 0.25),
            r"batch_size=64 with ratio=0.25 needs 16 classes, got 11; 44 would do",
        ),
        (lambda: ClassRatioSampler(LABELS, 8, 1.5), r"ratio: must be in \(0, 1\], got 1.5"),
        (lambda: RandomBatchSampler(LABELS, 67), r"batch_size: 67 is more than the 66 items"),
        (lambda: RandomBatchSampler(LABELS, 0), r"batch_size: must be at least 1, got 0"),
        (lambda: PairSampler(LABELS, 7), r"batch_size: must be even and at most 2 x 66 samples, got 7"),
        (lambda: PairSampler(LABELS, 8, similar=2), r"similar: must be in \[0, 1\], got 2"),
        (lambda: PairSampler([1, 1, 1], 2), r"labels: dissimilar pairs need two classes, got 1"),
        (lambda: PairSampler([1, 2, 3], 2), r"labels: similar pairs need a class of two samples, got 3 of one"),
        (lambda: MPerClassSampler([], 2, 4), r"needs 2 classes, got 0$"),
        (lambda: TripletSampler(LABELS, 8), r"batch_size: must be a multiple of 3, at most 3 x 65 triplets, got 8"),
        (
            lambda: TripletSampler([1, 1, 1], 3),
            r"labels: expected a class with two samples and another class, got none",
        ),
        (
            lambda: TripletSampler([1, 2, 3], 3),
            r"labels: expected a class with two samples and another class, got none",
        ),
        (lambda: TripletSampler(LABELS, 3, triplets=[[0, 1]]), r"triplets: expected \(t, 3\) indices, got shape"),
        (lambda: TripletSampler(LABELS, 3, triplets=[[0, 1, 66]]), r"triplets: indices must be in 0..65, got 0..66"),
        (lambda: MPerClassSampler(np.zeros((3, 2)), 1, 1), r"labels: expected one class per sample"),
        (lambda: MPerClassSampler([0.0, np.nan, 1.0], 1, 1), r"labels: 1 of 3 are missing"),
        (lambda: MPerClassSampler(np.array(["a", None, None], dtype=object), 1, 1), r"labels: 2 of 3 are missing"),
        (lambda: make_sampler("m_per_class", LABELS, 8), r"sampler: expected .* got 'm_per_class'"),
        (lambda: make_sampler("class_ratio:x", LABELS, 8), r"sampler: expected .* got 'class_ratio:x'"),
        (lambda: make_sampler("shuffle", LABELS, 8), r"sampler: expected .* got 'shuffle'"),
        (lambda: make_sampler("shuffle:2", LABELS, 8), r"sampler: expected .* got 'shuffle:2'"),
        (lambda: make_sampler("auto:2", LABELS, 8), r"sampler: expected .* got 'auto:2'"),
        (lambda: make_sampler("random:2", LABELS, 8), r"sampler: expected .* got 'random:2'"),
        (
            lambda: make_sampler("SmartMineSampler()", LABELS, 8),
            r"got 'SmartMineSampler\(\)'; did you mean SmartMiningSampler\?$",
        ),
        (
            lambda: make_sampler("SmartMiningSampler(negative=2)", LABELS, 8),
            r"^sampler 'SmartMiningSampler\(negative=2\)': SmartMiningSampler has no setting 'negative'; did you mean",
        ),
        (lambda: make_sampler("ClusterSampler(seed=2)", LABELS, 8), r"ClusterSampler has no setting 'seed'"),
        (lambda: make_sampler("ClusterSampler(3)", LABELS, 8), r"takes only keywords, such as m=..., got '3'"),
        (
            lambda: make_sampler("HierarchicalSampler(m=2)", LABELS, 8),
            r"^sampler 'HierarchicalSampler\(m=2\)': .*missing 1 required positional argument: 'groups'",
        ),
        (
            lambda: make_sampler("EpisodeSampler(n_way=2)", LABELS, 8),
            r"^sampler: EpisodeSampler does not make batches for a run",
        ),
        (lambda: TripletSampler([0, 0, 1], 9), r"batch_size: must be a multiple of 3, at most 3 x 2 triplets, got 9"),
    ],
)
def test_bad_input(make_bad: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make_bad()


@pytest.mark.parametrize("make_bad", [lambda: MPerClassSampler(LABELS, 2, 16 / 2), lambda: PairSampler(LABELS, 8.0)])
def test_a_batch_size_that_is_no_integer_is_named(make_bad: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"batch_size must be an integer; got 8.0"):
        make_bad()


def test_text_is_no_switch() -> None:
    with pytest.raises(ValueError, match="PairSampler: drop_last must be True or False; got 'no'"):
        PairSampler(LABELS, 8, drop_last="no")


def test_unknown_labels_are_no_class_of_the_auto_sampler() -> None:
    labels = np.repeat([-1, *range(7)], 5)  # with the unknown, eight
    assert make_sampler("auto", labels, 32).settings()["m"] == 8


class Halves(BatchSampler):
    """One of a user's own: the first half of the samples, then the second."""

    def __init__(self, labels, batch_size: int, *, seed: int = 0, backward: bool = False) -> None:
        super().__init__(len(labels), batch_size, seed)
        self.order = np.arange(len(labels) // batch_size * batch_size)
        if backward:
            self.order = self.order[::-1]

    def batches_per_epoch(self) -> int:
        return len(self.order) // self.batch_size

    def plan(self, rng: np.random.Generator) -> np.ndarray:
        return self.order.reshape(-1, self.batch_size)


def test_a_text_names_a_sampler_of_ones_own() -> None:
    sampler = make_sampler(f"{__name__}:Halves(backward=True)", LABELS, 33, seed=5)
    assert (type(sampler), sampler.seed) == (Halves, 5)
    assert list(sampler) == [list(range(65, 32, -1)), list(range(32, -1, -1))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no_such:Sampler", "No module named 'no_such'; the folder that holds it must be on PYTHONPATH"),
        (f"{__name__}:Thirds", "has no attribute 'Thirds'"),
        (f"{__name__}:TripletLoss", "expected a subclass of nearfar.deep.samplers.base.BatchSampler, got the class"),
        ("torch.utils.data:BatchSampler", "expected something from a module of your own, not from torch.utils.data"),
        (f"{__name__}:Halves(forward=1)", "unexpected keyword argument 'forward'"),
        ("a:b:c", "package.module:Name.*at character 4"),
        ("mod:Name.part", "package.module:Name.*at character 9, '.' is not allowed"),
        (".mod:Name", "package.module:Name.*at character 1"),
        (f"{__name__}:Halves(", "at its end, expected a name or a value"),
        (f"{__name__}:Halves(backward=True)(seed=3)", r"expected \+ or \*, got '\('"),
        (f"{__name__}:Halves(seed=1) + f(seed=2)", "expected .*m_per_class"),
        (f"{__name__}:Halves(**{{'backward': True}})", r"expected a name or a value, got '\*'"),
        (f"{__name__}:Halves(1)", "takes only keywords, such as setting=..., got '1'"),
        (
            f"{__name__}:Halves(backward=open('x'))",
            "backward must be a literal value such as 3, 'text' or \\(1, 2\\); got .*open",
        ),
    ],
)
def test_a_sampler_of_ones_own_that_cannot_be_made_is_told(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^sampler(: | ['\"].*['\"]: ).*{message}"):
        make_sampler(text, LABELS, 8)


def test_samplers_by_text() -> None:
    assert isinstance(make_sampler("random", LABELS, 8), RandomBatchSampler)
    pairs = make_sampler("m_per_class:2", LABELS, 8, seed=4)
    assert isinstance(pairs, MPerClassSampler)
    assert (pairs.m, pairs.seed) == (2, 4)
    ratio = make_sampler("class_ratio:0.25", LABELS, 8)
    assert isinstance(ratio, ClassRatioSampler)
    assert ratio.ratio == 0.25
    named = make_sampler("MPerClassSampler(m=2)", LABELS, 8, seed=4)
    assert list(named) == list(pairs)
    mining = make_sampler("SmartMiningSampler(negatives=2, neighbors=3)", LABELS, 8, seed=4)
    assert isinstance(mining, SmartMiningSampler)
    assert (mining.negatives, mining.neighbors, mining.seed, len(mining)) == (2, 3, 4, 8)


@pytest.mark.parametrize("text", ["auto", "random", "m_per_class:2", "class_ratio:0.5"])
def test_epochs_of_samplers_by_text_are_as_long_as_the_data_and_seeded(text: str) -> None:
    labels = np.repeat(np.arange(4), 100)
    first, again, other = (make_sampler(text, labels, 8, seed=seed) for seed in (3, 3, 4))
    assert len(first) == 50
    assert list(first) == list(again) != list(other)


def test_the_smallest_sets_that_will_do() -> None:
    assert len(PairSampler([5, 5], 2, similar=1.0)) == 2
    assert len(RandomBatchSampler([1, 2, 3], 3)) == 1
    assert len(TripletSampler([0, 0, 1], 6)) == 1


def test_parts() -> None:
    assert occurrences(np.array([2, 0, 2, 2, 0])).tolist() == [0, 0, 1, 2, 1]
    hands = deal(7, 3, np.random.default_rng(0), drop_last=False)
    assert hands.shape == (3, 3)
    assert set(hands.ravel()) == set(range(7))
    classes = by_class(["b", "a", "b"])
    assert classes.order.tolist() == [1, 0, 2]
    assert classes.counts.tolist() == [1, 2]


def test_an_epoch_that_was_given_can_be_asked_for_again():
    sampler = MPerClassSampler([k % 9 for k in range(90)], m=2, batch_size=6)
    first, second = list(sampler), list(sampler)
    assert first != second
    for epoch, batches in ((0, first), (0, first), (1, second)):
        sampler.set_epoch(epoch)
        assert list(sampler) == batches


def test_a_loss_tells_batches_of_batches_apart() -> None:
    y = torch.arange(24) // 4
    data, batches = TensorDataset(torch.randn(24, 3), y), MPerClassSampler(y, m=2, batch_size=6)
    for x, labels in DataLoader(data, batch_sampler=batches):
        assert TripletLoss()(x, labels) > 0
    for x, labels in DataLoader(data, sampler=batches, batch_size=6):
        with pytest.raises(ValueError, match=r"embeddings: got a batch of batches, \(2, 6, 3\); .*batch_sampler="):
            TripletLoss()(x, labels)
    with pytest.raises(ValueError, match=r"embeddings: expected a \(n, d\) float tensor, got .* of shape \(2, 6, 3\)"):
        TripletLoss()(torch.randn(2, 6, 3), y[:2])


def test_weights_of_samples():
    labels = np.arange(60) % 3
    weights = np.where(labels == 2, 3.0, 1.0)
    weights[labels == 0] = 0
    sampler = RandomBatchSampler(labels, 20, weights=weights, seed=1)
    assert len(sampler) == 3
    drawn = np.concatenate([batch for _ in range(40) for batch in sampler])
    shares = np.bincount(labels[drawn], minlength=3) / len(drawn)
    np.testing.assert_allclose(shares, [0, 0.25, 0.75], atol=0.04)
    state = sampler.state_dict()
    with pytest.raises(ValueError, match="sampler state: taken with"):
        RandomBatchSampler(labels, 20, seed=1).load_state_dict(state)


@pytest.mark.parametrize("weights", [np.ones(59), -np.ones(60), np.full(60, np.nan), np.zeros(60)])
def test_weights_that_are_no_weights(weights):
    with pytest.raises(ValueError, match="weights: "):
        RandomBatchSampler(np.zeros(60, int), 20, weights=weights)


@pytest.mark.parametrize("groups_per_batch", [1, 2, 4])
def test_batches_of_few_groups(groups_per_batch: int) -> None:
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(24), 6))
    groups = y % 4
    sampler = HierarchicalSampler(y, groups, 2, 8, groups_per_batch=groups_per_batch, rounds=None)
    assert abs(len(sampler) * 8 - len(y)) <= 32
    batches = np.array(list(sampler))
    seen = np.bincount(batches.ravel(), minlength=len(y))
    for batch in batches:
        assert len(set(batch)) == 8
        assert Counter(groups[batch].tolist()) == dict.fromkeys(set(groups[batch]), 8 // groups_per_batch)
        assert len(set(groups[batch])) == groups_per_batch
        assert set(Counter(y[batch].tolist()).values()) == {2}
    assert np.ptp(seen) <= 1


def test_a_small_group_gives_its_classes_several_times() -> None:
    y = np.repeat([0, 1, 2, 3, 4], 4)
    batches = np.array(list(HierarchicalSampler(y, y > 0, 1, 8, rounds=3)))
    assert Counter(y[batches].ravel())[0] == 12
    assert all(len(set(batch)) == 8 for batch in batches)


def test_samples_of_a_class_by_weights() -> None:
    y = np.repeat(np.arange(4), 5)
    weights = np.tile([0.0, 1.0, 1.0, 2.0, 0.0], 4)
    weights[15:] = 0
    sampler = MPerClassSampler(y, 4, 8, rounds=300, weights=weights)
    assert sampler.left_out == 1
    drawn = np.bincount(np.ravel(list(sampler)), minlength=20).reshape(4, 5)
    assert (drawn[3] == 0).all()
    assert (drawn[:, [0, 4]] == 0).all()
    for row in drawn[:3]:
        share = row.sum() * np.array([0.25, 0.25, 0.5])
        assert (abs(row[1:4] - share) <= 5 * np.sqrt(share)).all()
    with pytest.raises(ValueError, match="sampler state"):
        sampler.load_state_dict(MPerClassSampler(y, 4, 8, rounds=300, weights=weights**2).state_dict())


@pytest.mark.parametrize(
    ("make_it", "says"),
    [
        (
            lambda: HierarchicalSampler([0, 1], [0], 1, 2),
            r"groups: expected one for each of 2 labels, got shape \(1,\)",
        ),
        (lambda: HierarchicalSampler([0, 0, 1], [0, 1, 1], 1, 2), "groups: a class must be in one group; sample 1"),
        (lambda: HierarchicalSampler([0, 1], [0, 1], 2, 6), "batch_size: must be a multiple of m=2 times groups_per_b"),
        (lambda: HierarchicalSampler([0, 1], [0, 0], 1, 2), "needs 2 classes, got 1"),
        (lambda: MPerClassSampler([0, 1], 1, 2, weights=[1.0]), "weights: expected one for each of 2 samples"),
        (lambda: MPerClassSampler([0, 1], 1, 2, weights=[1.0, -1.0]), "weights: must be finite and not negative"),
        (lambda: MPerClassSampler([0, 1], 1, 2, weights=[1.0, 0.0]), "1 classes with fewer than 1 samples or without"),
    ],
)
def test_bad_groups_and_weights_are_named(make_it: Callable[[], BatchSampler], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make_it()
