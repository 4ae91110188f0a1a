"""Networks of pairs as parts of an objective: the same values as on their own, trained and scored like any other."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nearfar.deep.episodes import Episode
from nearfar.deep.networks.continuous_similarity import ContinuousSimilarityNet
from nearfar.deep.networks.conv4 import Conv4
from nearfar.deep.networks.embedder import Embedder
from nearfar.deep.networks.mlp import MLP
from nearfar.deep.networks.multi_scale_relation import MultiScaleRelationNet
from nearfar.deep.networks.pair_terms import PairTerm, episode_of
from nearfar.deep.networks.scales import Conv4Scales
from nearfar.deep.objective.parser import parse_objective
from nearfar.train.network import Trainable, as_sum

RELATION = "MultiScaleRelationNet(channels=(8, 8), width=4, hidden=5)"
SIMILARITY = "ContinuousSimilarityNet(relations=3, hidden=5, balanced=False)"
SIAMESE = "SiameseHead()"
Y = torch.tensor([5, 2, 9, 2, 5, 9, 9, 5])


def embedder():
    torch.manual_seed(0)
    return Embedder(Conv4(1, 8), embedding_dim=6).eval()


def step(text):
    torch.manual_seed(1)
    return Trainable(embedder(), as_sum(parse_objective(text, num_classes=10, embedding_dim=6)))


def images(n=8):
    return torch.rand(n, 1, 16, 16, generator=torch.Generator().manual_seed(2))


def relation_network(made):
    """The network of the term, on its own."""
    net = made.objective.terms[0].net
    alone = MultiScaleRelationNet(Conv4Scales(made.embedder.trunk, 2), width=4, hidden=5, scale=10.0)
    alone.relations, alone.score = net.relations, net.score
    return alone


def test_first_samples_of_a_class_are_its_support():
    episode = episode_of(Y, 1)
    assert episode.support.tolist() == [0, 1, 2]
    assert episode.support_labels.tolist() == [1, 0, 2]
    assert episode.query.tolist() == [3, 4, 5, 6, 7]
    assert episode.query_labels.tolist() == [0, 1, 2, 2, 1]
    assert episode_of(Y, 2).query.tolist() == [6, 7]


@pytest.mark.parametrize("text", [RELATION, SIMILARITY, SIAMESE, f"TripletLoss() + {SIAMESE}"])
def test_samples_of_unknown_class_are_left_out(text):
    made, x, y = step(text), images(), torch.where(Y == 9, -1, Y)
    torch.testing.assert_close(made(x, y), made(x[y >= 0], y[y >= 0]))


def test_siamese_term_is_the_head_on_the_embeddings():
    made, x = step(SIAMESE), images()
    head, h = made.objective.terms[0].net, made.embedder(x).embedding
    torch.testing.assert_close(made(x, Y), head.loss(h, Y))
    rows = episode_of(Y, 1)
    scores = made.objective.terms[0].score([h[rows.query]], [h[rows.support]], rows.support_labels, 3)
    assert (scores.argmax(1) == head.classify(h[rows.query], h[rows.support], rows.support_labels, 3)).all()


def test_relation_term_is_the_network_on_the_episode():
    made, x = step(RELATION), images()
    rows = episode_of(Y, 1)
    alone = relation_network(made)
    expected = alone.loss(Episode(x[rows.support], rows.support_labels, x[rows.query], rows.query_labels))
    value = made(x, Y)
    torch.testing.assert_close(value, expected)
    weight = made.embedder.trunk.blocks[0][0].weight
    torch.testing.assert_close(torch.autograd.grad(value, weight)[0], torch.autograd.grad(expected, weight)[0])


def test_similarity_term_is_the_network_on_embeddings():
    made, x = step(SIMILARITY), images()
    term = made.objective.terms[0]
    alone = ContinuousSimilarityNet(6, Embeddings(made.embedder), relations=3, hidden=5)
    alone.pair, alone.score = term.net.pair, term.net.score
    expected, value = alone.loss(x, Y), made(x, Y)
    torch.testing.assert_close(value, expected)
    weight = made.embedder.layer.weight
    torch.testing.assert_close(torch.autograd.grad(value, weight)[0], torch.autograd.grad(expected, weight)[0])


class Embeddings(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, items):
        return self.inner(items).embedding


@pytest.mark.parametrize("text", [RELATION, SIMILARITY])
def test_scores_of_classes_are_those_of_the_network(text):
    made, x = step(text), images()
    term, labels = made.objective.terms[0], torch.tensor([0, 0, 1])
    parts = term.features(made.embedder, x)
    found = term.score([part[3:] for part in parts], [part[:3] for part in parts], labels, 2)
    assert found.shape == (5, 2)
    if text == RELATION:
        torch.testing.assert_close(found, relation_network(made)(x[3:], x[:3], labels))
    else:
        pairs = term.net(parts[0])  # of all items, symmetric
        torch.testing.assert_close(found[:, 0], pairs[3:, :2].mean(1))
        torch.testing.assert_close(found[:, 1], pairs[3:, 2])


def test_they_add_to_losses_and_name_themselves():
    made = step(f"{RELATION} + 0.5*TripletLoss() + {SIMILARITY}")
    assert made.objective.names() == ["MultiScaleRelationNet", "TripletLoss", "ContinuousSimilarityNet"]
    value, parts = made(images(), Y), made.objective.parts_
    own = parts["MultiScaleRelationNet"] + 0.5 * parts["TripletLoss"] + parts["ContinuousSimilarityNet"]
    torch.testing.assert_close(value.detach(), own)


@pytest.mark.slow
@pytest.mark.parametrize("text", [RELATION, SIMILARITY, SIAMESE])
def test_training_lowers_the_loss(text):
    made = step(text)
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.normal(size=(4, 1, 16, 16)).repeat(4, 0) + 0.1 * rng.normal(size=(16, 1, 16, 16))).float()
    y = torch.arange(4).repeat_interleave(4)
    optimizer = torch.optim.Adam(made.train().parameters(), lr=1e-2)
    values = []
    for _ in range(60):
        value = made(x, y)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(float(value.detach()))
    assert np.mean(values[-5:]) < 0.7 * values[0]


def test_bad_use_is_named():
    made = step(RELATION)
    term = made.objective.terms[0]
    assert isinstance(term, PairTerm)
    with pytest.raises(ValueError, match="needs the items; call `see"):
        term(torch.rand(4, 6), torch.tensor([0, 0, 1, 1]))
    with pytest.raises(ValueError, match="no class of the batch has more than shots=1 samples"):
        made(images(3), torch.arange(3))
    with pytest.raises(ValueError, match="channels must be up to 4 times 8"):
        step("MultiScaleRelationNet()")(images(), Y)
    rows = Trainable(Embedder(MLP(6, width=8), 4), as_sum(parse_objective("MultiScaleRelationNet()", embedding_dim=4)))
    with pytest.raises(ValueError, match="needs images and the trunk conv4"):
        rows(torch.rand(8, 6), Y)
    with pytest.raises(ValueError, match="has no setting 'ways'"):
        parse_objective("MultiScaleRelationNet(ways=3)")
