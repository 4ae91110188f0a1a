"""Batches as episodes: the gradient of every mode is that of `EpisodicTrainer`, and runs learn with them."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from nearfar import JRS, EpisodicTrainer, TripletLoss
from nearfar.deep.episodes import Episode
from nearfar.deep.networks.embedder import Embedder
from nearfar.deep.networks.pair_terms import episode_of
from nearfar.train import TrainError, evaluate_run, train
from nearfar.train.checkpoint import load_tensors
from nearfar.train.papers.episodic import Episodes
from nearfar.train.setup import build

MODES = ("maml", "fomaml", "sequential")


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()


@pytest.mark.parametrize("mode", MODES)
def test_gradient_is_that_of_the_trainer(mode) -> None:
    torch.manual_seed(1)
    items, labels = torch.randn(12, 6, dtype=torch.double), torch.arange(3).repeat(4)
    one, other = network(), network()
    loss = TripletLoss(margin=1.0)
    Episodes(mode, 2, 0.3, 2).loss(one, loss, items, labels).backward()
    episode = Episode(items[:6], labels[:6], items[6:], labels[6:])
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    EpisodicTrainer(other, loss, optimizer, mode=mode, inner_lr=0.3, inner_steps=2).backward(episode)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(a.grad, b.grad)
    assert max(float(w.grad.abs().max()) for w in one.parameters()) > 1e-3


class Joined(torch.nn.Module):
    """Pooled features and embeddings side by side, as one vector."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__()
        self.embedder = embedder

    def forward(self, items: torch.Tensor) -> torch.Tensor:
        return torch.cat(self.embedder(items), 1)


@pytest.mark.parametrize("mode", MODES)
def test_terms_read_the_pooled_features_at_the_same_weights(mode) -> None:
    torch.manual_seed(1)
    items, labels = torch.randn(12, 6, dtype=torch.double), torch.arange(3).repeat(4)
    nets = []
    for _ in range(3):
        trunk = network()
        trunk.num_features = 3
        nets.append(Embedder(trunk, 2).double())
        nets[-1].load_state_dict(nets[0].state_dict())
    term = JRS(("pooled", "embedding"))
    episode = Episode(items[:6], labels[:6], items[6:], labels[6:])
    Episodes(mode, 2, 0.3, 2).loss(nets[0], term, items, labels).backward()

    def split(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return term(z[:, 3:], y, pooled=z[:, :3])

    for net, of, loss in ((nets[1], nets[1], term), (nets[2], Joined(nets[2]), split)):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        EpisodicTrainer(of, loss, optimizer, mode=mode, inner_lr=0.3, inner_steps=2).backward(episode)
    assert max(float(w.grad.abs().max()) for w in nets[2].parameters()) > 1e-3
    for ws in zip(*(net.parameters() for net in nets), strict=True):
        for w in ws[:2]:
            torch.testing.assert_close(w, ws[2])
            torch.testing.assert_close(w.grad, ws[2].grad)


def test_modes_differ() -> None:
    torch.manual_seed(1)
    items, labels = torch.randn(12, 6, dtype=torch.double), torch.arange(3).repeat(4)
    grads = []
    for mode in MODES[:2]:
        net = network()
        Episodes(mode, 2, 0.3, 1).loss(net, TripletLoss(margin=1.0), items, labels).backward()
        grads.append(net[0].weight.grad)
    assert not torch.allclose(*grads, rtol=1e-3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("objective", ["TripletLoss()", "AMSoftmaxLoss()", "JRDLoss()"])
def test_runs_learn_from_episodes(tmp_path, small, mode, objective) -> None:
    run = train(small(episodes=mode, objective=objective, steps=6), tmp_path / "run", progress=False)
    assert evaluate_run(run.folder).scores.recall_at[1] > 0.5


@pytest.mark.slow
def test_the_numbers_of_the_items_reach_the_objective_of_episodes(tmp_path, small) -> None:
    loop = build(small())
    own = f"MarginLoss(per_sample={len(loop.data.train)}, nu=0.1)"
    objective = f"CrossBatchMemory(loss=ContrastiveLoss(), size=50) + {own}"
    config = small(objective=objective, epochs=1, weight_decay=0, episodes="fomaml", shots=1)
    found, _ = load_tensors(train(config, tmp_path / "run", progress=False).folder / "last.safetensors")
    seen = [np.asarray(batch) for batch in loop.data.sampler]
    ids = found["objective.terms.0.ids"]
    assert set(ids.tolist()) <= set(np.concatenate(seen).tolist())
    assert_array_equal(found["objective.terms.0.classes"], loop.data.train.labels[ids])
    queries = [batch[episode_of(torch.tensor(loop.data.train.labels[batch]), 1).query] for batch in seen]
    learned = found["objective.terms.1.sample_offsets"].nonzero().flatten()
    assert set(learned.tolist()) == set(np.concatenate(queries).tolist())


def test_what_cannot_be_an_episode_is_told(tmp_path, small) -> None:
    with pytest.raises(TrainError, match="no class of the batch has more than shots=8"):
        train(small(episodes="maml", shots=8), tmp_path / "run", progress=False)
    with pytest.raises(TrainError, match=r"^episodes: SiameseHead scores the pairs of a whole batch"):
        train(small(episodes="maml", objective="TripletLoss() + SiameseHead()"), tmp_path / "run", progress=False)
    objective = "TripletLoss() + EnergyConfusion(layer='embedding')"
    with pytest.raises(
        TrainError,
        match=r"^episodes: EnergyConfusion\(layer='embedding'\) reads weights that the support has not adapted",
    ):
        train(small(episodes="fomaml", objective=objective), tmp_path / "run", progress=False)
    laplace = "CMLLoss() + 0.5*HORDE(features=8, loss=JMMD(layers=['embedding'], kernel='laplace'))"
    with pytest.raises(TrainError, match=r"^episodes: JMMD\(kernel='laplace'\) cannot be differentiated twice"):
        train(small(episodes="maml", objective=laplace), tmp_path / "run", progress=False)
    train(small(episodes="fomaml", objective=laplace, steps=1), tmp_path / "run", progress=False)
    with pytest.raises(TrainError, match="freeze_trunk"):
        small(episodes="maml", freeze_trunk=True)
    with pytest.raises(TrainError, match="freeze_epochs"):
        small(episodes="maml", freeze_epochs=1)
