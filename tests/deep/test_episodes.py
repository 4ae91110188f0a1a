"""Episodes: what the sampler draws, how a batch is cut, prototype and Siamese classification."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scipy.stats import chisquare

from nearfar.deep.episodes import classify, prototypes, split_episode
from nearfar.deep.networks.siamese_head import SiameseHead
from nearfar.deep.samplers.episodes import EpisodeSampler

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(9) * 5 - 1, np.arange(2, 11)))  # -1 is unknown
COUNTS = {4: 3, 9: 4, 14: 5, 19: 6, 24: 7, 29: 8, 34: 9, 39: 10}


def sampler(seed=0, query="balanced", **how):
    return EpisodeSampler(
        LABELS, **{"n_way": 3, "k_shot": 2, "n_query": 3, "n_episodes": 40} | how, seed=seed, query=query
    )


@pytest.mark.parametrize("query", ["balanced", "random"])
def test_every_batch_is_an_episode(query):
    drawn = sampler(query=query)
    assert drawn.left_out == 2  # 3 and 4 samples
    batches = list(drawn)
    assert len(batches) == len(drawn) == 40
    sizes = set()
    for batch in batches:
        assert len(batch) == len(set(batch)) == drawn.batch_size == 15
        episode = split_episode(torch.tensor(batch), torch.as_tensor(LABELS[batch]), 3, 2)
        assert episode.support_labels.tolist() == [0, 0, 1, 1, 2, 2]
        classes = LABELS[episode.support][::2]
        assert len(set(classes)) == 3
        assert all(COUNTS[c] >= 5 for c in classes)
        assert (classes[episode.query_labels] == LABELS[episode.query]).all()
        sizes.add(tuple(np.bincount(episode.query_labels, minlength=3)))
    assert (sizes == {(3, 3, 3)}) == (query == "balanced")


def test_classes_are_equally_likely():
    first = [LABELS[batch[0]] for batch in sampler(n_episodes=3000)]
    assert chisquare(np.unique(first, return_counts=True)[1]).pvalue > 1e-3
    assert len(set(first)) == 6


def test_seeds_epochs_and_resumption():
    a, b = sampler(seed=3), sampler(seed=3)
    first, second = list(a), list(a)
    assert first != second
    assert [first, second] == [list(b), list(b)]
    assert first != list(sampler(seed=4))
    middle = sampler(seed=3)
    running = iter(middle)
    assert [next(running) for _ in range(7)] == first[:7]
    resumed = sampler(seed=3)
    resumed.load_state_dict(middle.state_dict())
    assert list(resumed) == first[7:]
    with pytest.raises(ValueError, match="sampler state"):
        sampler(seed=3, query="random").load_state_dict(middle.state_dict())


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"n_way": 1}, "n_way: must be at least 2"),
        ({"k_shot": 0}, "k_shot: must be at least 1"),
        ({"n_query": 0}, "n_query: must be at least 1"),
        ({"n_episodes": 0}, "n_episodes: must be at least 1"),
        ({"query": "all"}, "query: must be one of balanced, random"),
        ({"n_way": 7}, r"n_way: 7 classes with 2 \+ 3 samples each are needed, got 6 of 8"),
    ],
)
def test_bad_settings_are_named(how, message):
    with pytest.raises(ValueError, match=message):
        sampler(**how)


def test_a_batch_that_is_no_episode_is_refused():
    items = torch.arange(6)
    with pytest.raises(ValueError, match="support of 2 samples of each of 2"):
        split_episode(items, torch.tensor([1, 2, 1, 2, 1, 2]), 2, 2)
    with pytest.raises(ValueError, match="support of 2 samples of each of 2"):
        split_episode(items, torch.tensor([1, 1, 1, 1, 1, 2]), 2, 2)
    with pytest.raises(ValueError, match="a query is of none"):
        split_episode(items, torch.tensor([1, 1, 2, 2, 1, 3]), 2, 2)


@pytest.mark.parametrize("normalize", [True, False])
def test_prototypes_and_the_nearest_of_them(normalize):
    rng = np.random.default_rng(0)
    z, y, q = rng.normal(size=(9, 4)), rng.permutation(np.arange(9) % 3), rng.normal(size=(20, 4))
    found = classify(*(torch.tensor(v) for v in (q, z, y)), 3, normalize=normalize).tolist()
    if normalize:
        z = z / np.sqrt((z**2).sum(1, keepdims=True))
    means = [np.mean([z[i] for i in range(9) if y[i] == c], axis=0) for c in range(3)]
    np.testing.assert_allclose(prototypes(torch.tensor(z), torch.tensor(y), 3), means)
    if normalize:
        means = [m / np.sqrt((m**2).sum()) for m in means]
        q = q / np.sqrt((q**2).sum(1, keepdims=True))
    assert found == [min(range(3), key=lambda c: ((row - means[c]) ** 2).sum()) for row in q]


def test_siamese_head_is_a_weighted_distance():
    torch.manual_seed(0)
    head = SiameseHead(5).double()
    with torch.no_grad():
        head.weight.copy_(torch.tensor([0.5, -1.0, 2.0, -0.1, 0.3]))
        head.bias.fill_(0.7)
    h, ref = torch.randn(4, 5).double().requires_grad_(), torch.randn(3, 5).double()
    odds = head(h, ref)
    for i in range(4):
        for j in range(3):
            expected = sum(head.weight[k] * (h[i, k] - ref[j, k]).abs() for k in range(5)) + head.bias
            torch.testing.assert_close(odds[i, j], expected)
    plain = ((h[:, None] - ref[None]).abs() * head.weight).sum(2) + head.bias
    for found, right in zip(
        *(torch.autograd.grad(v.sin().sum(), (h, head.weight)) for v in (odds, plain)), strict=True
    ):
        torch.testing.assert_close(found, right)


def test_siamese_loss_is_the_cross_entropy_of_pairs():
    torch.manual_seed(0)
    head, h, y = SiameseHead(3).double(), torch.randn(6, 3).double(), [0, 0, 1, 1, 2, 0]
    kinds = {True: [], False: []}
    for i in range(6):
        for j in range(i):
            p = head(h[i : i + 1], h[j : j + 1]).sigmoid()[0, 0]
            kinds[y[i] == y[j]].append(-(p if y[i] == y[j] else 1 - p).log())
    torch.testing.assert_close(
        head.loss(h, torch.tensor(y)), sum(torch.stack(kinds[k]).mean() for k in (True, False)) / 2
    )
    every = torch.stack(kinds[True] + kinds[False]).mean()
    torch.testing.assert_close(head.loss(h, torch.tensor(y), balanced=False), every)
    for labels in ([0] * 6, list(range(6))):
        assert torch.isfinite(head.loss(h * 0, torch.tensor(labels)))
    assert head.loss(h[:1], torch.tensor([0])) == 0


def test_samples_of_unknown_class_are_in_no_pair_of_the_siamese_loss():
    torch.manual_seed(0)
    head, h = SiameseHead(3), torch.randn(6, 3)
    y = torch.tensor([0, -1, 0, 1, -1, 1])
    torch.testing.assert_close(head.loss(h, y), head.loss(h[y >= 0], y[y >= 0]))
    assert head.loss(h, torch.full((6,), -1)) == 0


def test_siamese_head_learns_which_coordinates_count():
    rng = np.random.default_rng(0)
    y = torch.as_tensor(np.arange(60) % 6)
    centers = torch.as_tensor(rng.normal(size=(6, 4)), dtype=torch.float32) * torch.tensor([3.0, 3.0, 0.0, 0.0])
    h = centers[y] + torch.as_tensor(rng.normal(size=(60, 4)), dtype=torch.float32) * torch.tensor([0.2, 0.2, 3.0, 3.0])
    head = SiameseHead(4)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        head.loss(h, y).backward()
        optimizer.step()
    assert (head.weight[:2] < -0.5).all()
    assert (head.weight[2:].abs() < 0.3).all()
    support, labels = h[:12], y[:12]
    assert (head.classify(h[12:], support, labels, 6) == y[12:]).float().mean() > 0.9
    assert (classify(h[12:], support, labels, 6, normalize=False) == y[12:]).float().mean() < 0.7


@pytest.mark.parametrize("balanced", [True, False])
def test_siamese_pairs_are_counted_without_a_look_at_the_labels(balanced):
    rows, labels = torch.randn(9, 4, device="meta"), torch.zeros(9, dtype=torch.long, device="meta")
    assert SiameseHead(4).to("meta").loss(rows, labels, balanced=balanced).shape == ()
