"""Adversarial, discriminant, multi-scale and continuous similarity learning on Omniglot, beside the triplet loss.

    python bench/deep_table.py images_background_small1.zip images_background_small2.zip --out runs/deep_table

The grid below is all that is tried. Every setting is trained with the seed of SELECTION, and the one with the highest
MAP@R of the validation classes (carved from the training classes by the seed; they also choose the checkpoint) is
chosen; the test classes are not scored. Then it is trained again with the seeds FINAL, and scored once on the test
classes. `selection.json` and `table.md` in the folder hold what was found; what is finished there is not repeated.

Objectives are scored by the cosine of embeddings. The two networks define no embedding: their own scores of pairs rank
all items, for each fourth item as the query. The scales of the relation network are those of a trunk that the chosen
triplet loss has trained with the same seed, because its paper trains the scales beforehand.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar import ContinuousSimilarityNet, MultiScaleRelationNet
from nearfar.data import Dataset
from nearfar.data.loader import make_loader
from nearfar.deep.episodes import split_episode
from nearfar.deep.networks.conv4 import Conv4
from nearfar.deep.networks.scales import Conv4Scales
from nearfar.deep.samplers.base import BatchSampler
from nearfar.deep.samplers.episodes import EpisodeSampler
from nearfar.deep.samplers.m_per_class import MPerClassSampler
from nearfar.models import load_embedder
from nearfar.train import TrainConfig, train
from nearfar.train.checkpoint import load_tensors, replace_file, save_tensors
from nearfar.train.compare import Trial, run_trial, slug
from nearfar.train.features import as_floats
from nearfar.train.optim import rate_factor
from nearfar.train.run import write_json
from nearfar.train.setup import build
from nearfar.train.training_data import TrainingData

SELECTION, FINAL = (11,), (21, 22, 23)
EVERY = 4  # each fourth test item is a query of the networks, which compare 2,120 x 2,120 pairs otherwise
SCORES = ("recall_at_1", "map_at_r")
CLASSES = ("Japanese_(katakana)", "Sanskrit", "Tagalog")
COMMON: dict[str, Any] = {
    "precision": "bf16",
    "lr": 0.002,
    "schedule": "cosine",
    "sampler": "m_per_class:4",
    "eval_every": 2,
    "augment": "affine(degrees=20,scale=(0.7,1.3),shear=20,translate=0.1)",
}


class Setting(NamedTuple):
    """What is trained: an objective, or the arguments of a network; and fields of the config that differ."""

    text: str
    config: dict[str, Any] = {}
    network: dict[str, Any] = {}

    def __str__(self) -> str:
        more = ", ".join(f"{key}={value}" for key, value in self.config.items())
        return f"{self.text}; {more}" if more else self.text


def around(**settings: Any) -> Setting:
    """A tenth of the adversarial loss on unit vectors, beside a triplet loss on real negatives."""
    more = "".join(f", {key}={value}" for key, value in settings.items())
    own = f"AdversarialTriplet(normalize=True, loss=TripletLoss(margin=0.2), alpha=0.2{more})"
    return Setting(f"TripletLoss(margin=0.2) + 0.1*{own}")


def relation(scale: float, ways: int, shots: int, queries: int) -> Setting:
    text = f"MultiScaleRelationNet(scale={scale:g}), episodes of {ways} x ({shots} + {queries})"
    return Setting(text, network={"scale": scale, "episode": (ways, shots, queries)})


def similarity(update: str, balanced: bool) -> Setting:
    how = {"update": update, "balanced": balanced}
    return Setting(f"ContinuousSimilarityNet(update={update!r}, balanced={balanced})", network=how)


GRID: dict[str, list[Setting]] = {
    "TripletLoss": [Setting("TripletLoss(margin=0.1)"), Setting("TripletLoss(margin=0.2)")],
    "AdversarialTriplet": [
        Setting("AdversarialTriplet(pretrain=3)"),
        Setting("AdversarialTriplet(pretrain=3, normalize=True, loss=TripletLoss(margin=0.2), alpha=0.2)"),
        around(),
        around(pretrain=3),
    ],
    "VirtualSampleLoss": [
        Setting("VirtualSampleLoss(margin=0.5)", {"lr_embedding": 0.0}),
        Setting("VirtualSampleLoss(margin=0.2)", {"lr_embedding": 0.0}),
        Setting("VirtualSampleLoss(margin=0.1)", {"lr_embedding": 0.0}),
        Setting("VirtualSampleLoss(margin=0.5, layer='embedding')"),
        Setting("VirtualSampleLoss(margin=0.1, layer='embedding')"),
    ],
    "DeepFisherLoss": [
        Setting("DeepFisherLoss()"),
        Setting("DeepFisherLoss()", {"lr_proxies": 0.02}),
        Setting("DeepFisherLoss(embedding_dim=None)", {"embedding_dim": 116}),
    ],
    "ProbabilisticDiscriminantLoss": [
        Setting("ProbabilisticDiscriminantLoss()"),
        Setting("ProbabilisticDiscriminantLoss()", {"lr": 0.0002}),
        Setting("ProbabilisticDiscriminantLoss()", {"lr_embedding": 0.0}),
        Setting("ProbabilisticDiscriminantLoss(form='log')"),
        Setting("ProbabilisticDiscriminantLoss(normalize=True)"),
        Setting("ProbabilisticDiscriminantLoss(normalize=True, form='log')"),
    ],
    "MultiScaleRelationNet": [relation(1, 5, 5, 15), relation(10, 20, 1, 5)],
    "ContinuousSimilarityNet": [similarity("fixed", False), similarity("fixed", True)],
}


# Scores of pairs


def retrieval(scores: NDArray[np.float32], labels: NDArray[np.int64], every: int = 1) -> tuple[float, float]:
    """Return Recall@1 and MAP@R; row i of the scores ranks all n items but i * every, equal ones by their index."""
    query = np.arange(0, len(labels), every)
    scores = scores.copy()
    scores[np.arange(len(query)), query] = -np.inf
    relevant = labels[np.argsort(-scores, axis=1, kind="stable")[:, :-1]] == labels[query, None]
    R = relevant.sum(1)
    rank = np.arange(1, relevant.shape[1] + 1)
    precision = relevant.cumsum(1) / rank
    found = (precision * relevant * (rank <= R[:, None])).sum(1) / np.maximum(R, 1)
    return float(relevant[R > 0, 0].mean()), float(found[R > 0].mean())


def all_items(dataset: Dataset) -> Tensor:
    return torch.cat([as_floats(items) for items, _, _ in make_loader(dataset, batch_size=256)])


@torch.no_grad()
def relation_scores(net: MultiScaleRelationNet, items: Tensor, every: int) -> NDArray[np.float32]:
    """Every item as a class of its own, each `every`-th as a query."""
    maps = net.scales(items)
    query = [m[::every] for m in maps]
    rows = [net.relate([m[i : i + 16] for m in query], maps) for i in range(0, len(query[0]), 16)]
    return torch.cat(rows).numpy()


@torch.no_grad()
def similarity_scores(net: ContinuousSimilarityNet, items: Tensor, every: int) -> NDArray[np.float32]:
    z = net.trunk(items)
    rows = [(net.scores(part, z) + net.scores(z, part).T) / 2 for part in z[::every].split(32)]
    return torch.cat(rows).numpy()


# Training of the networks


class Learner(NamedTuple):
    """A network, what draws its batches, the loss of a batch, and its scores of all pairs."""

    net: nn.Module
    sampler: BatchSampler
    loss: Callable[[Tensor, Tensor], Tensor]
    scores: Callable[[Tensor, int], NDArray[np.float32]]


def relation_learner(data: TrainingData, setting: Setting, pretrained: Path, steps: int) -> Learner:
    trunk = load_embedder(pretrained).trunk
    assert isinstance(trunk, Conv4)
    ways, shots, queries = setting.network["episode"]
    net = MultiScaleRelationNet(Conv4Scales(trunk, skip=1), scale=setting.network["scale"])
    sampler = EpisodeSampler(data.train.labels, ways, shots, queries, steps, seed=data.config.seed)
    return Learner(net, sampler, lambda x, y: net.loss(split_episode(x, y, ways, shots)), partial(relation_scores, net))


def similarity_learner(data: TrainingData, setting: Setting, _: Path, steps: int) -> Learner:
    net = ContinuousSimilarityNet(64, Conv4(), **setting.network)
    sampler = MPerClassSampler(data.train.labels, 4, 64, seed=data.config.seed, rounds=None)
    return Learner(net, sampler, net.loss, partial(similarity_scores, net))


NETWORKS = {"MultiScaleRelationNet": relation_learner, "ContinuousSimilarityNet": similarity_learner}


def batches(data: TrainingData, sampler: BatchSampler, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Give as many batches as asked for, augmented."""
    loader, step = make_loader(data.train, batch_sampler=sampler, seed=data.config.seed), 0
    generator = data.augment.generator
    assert generator is not None
    while True:
        for items, labels, _ in loader:
            if step == steps:
                return
            generator.manual_seed(int(np.random.SeedSequence((data.config.seed, step)).generate_state(1)[0]))
            yield data.augment(as_floats(items)), labels
            step += 1


def train_network(name: str, setting: Setting, config: TrainConfig, folder: Path, pretrained: Path) -> list[float]:
    """Train as many batches as the objectives get, and keep the best weights; returns the validation MAP@R."""
    done = folder / "curve.json"
    if done.exists():
        found: list[float] = json.loads(done.read_text())
        return found
    data = build(config).data
    assert data.unseen is not None
    items, labels = all_items(data.unseen), data.unseen.labels
    torch.manual_seed(config.seed)
    learner = NETWORKS[name](data, setting, pretrained, data.steps)
    factor = rate_factor(config, len(data.sampler), data.steps)
    optimizer = torch.optim.Adam(learner.net.parameters(), lr=config.lr)
    curve: list[float] = []
    for step, batch in enumerate(batches(data, learner.sampler, data.steps)):
        learner.net.train()
        optimizer.param_groups[0]["lr"] = config.lr * factor(step)
        optimizer.zero_grad()
        loss = learner.loss(*batch)
        if not torch.isfinite(loss):
            raise FloatingPointError(f"{setting}: step {step}: the loss is {float(loss)}")
        loss.backward()
        optimizer.step()
        if step + 1 in (data.steps // 2, data.steps):
            learner.net.eval()
            curve.append(retrieval(learner.scores(items, 1), labels)[1])
            if curve[-1] == max(curve):
                folder.mkdir(parents=True, exist_ok=True)
                save_tensors(folder / "best.safetensors", dict(learner.net.state_dict()), {})
    write_json(done, curve)
    return curve


def score_network(name: str, setting: Setting, config: TrainConfig, folder: Path, pretrained: Path) -> dict[str, float]:
    """Score the best weights on the test classes."""
    done = folder / "scores.json"
    if not done.exists():
        data = build(config).data
        learner = NETWORKS[name](data, setting, pretrained, data.steps)
        learner.net.load_state_dict(load_tensors(folder / "best.safetensors")[0])
        learner.net.eval()
        scores = learner.scores(all_items(data.task.test), EVERY)
        recall, map_at_r = retrieval(scores, data.task.test.labels, EVERY)
        write_json(done, {"recall_at_1": recall, "map_at_r": map_at_r})
    found: dict[str, float] = json.loads(done.read_text())
    return found


# The table


class Table:
    """Selection and scores, in one folder."""

    def __init__(self, base: TrainConfig, out: Path) -> None:
        self.base, self.out = base, out
        self.chosen: dict[str, Setting] = {}
        self.report: dict[str, Any] = {}

    def config(self, setting: Setting, seed: int) -> TrainConfig:
        objective = {} if setting.network else {"objective": setting.text}
        return self.base.replace(seed=seed, **objective, **setting.config)

    def folder(self, setting: Setting, seed: int) -> Path:
        return self.out / f"{slug(str(setting))}-{self.config(setting, seed).digest[:8]}-seed{seed}"

    def pretrained(self, seed: int) -> Path:
        return self.folder(self.chosen["TripletLoss"], seed)

    def curve(self, name: str, setting: Setting, seed: int) -> list[float]:
        """Train, and return the MAP@R of the validation classes while training."""
        config, folder = self.config(setting, seed), self.folder(setting, seed)
        if name in NETWORKS:
            return train_network(name, setting, config, folder, self.pretrained(seed))
        done = folder / "curve.json"
        if not done.exists():
            train(config, folder, resume=(folder / "config.json").exists(), progress=False)
            rows = csv.DictReader((folder / "metrics.csv").read_text().splitlines())
            write_json(done, [float(row["unseen_map_at_r"]) for row in rows if row.get("unseen_map_at_r")])
        found: list[float] = json.loads(done.read_text())
        return found

    def select(self, name: str) -> None:
        """Choose the setting of a method by the validation classes."""
        curves = {str(s): [self.curve(name, s, seed) for seed in SELECTION] for s in GRID[name]}
        best = {text: mean(max(curve) for curve in found) for text, found in curves.items()}
        self.chosen[name] = max(GRID[name], key=lambda s: best[str(s)])
        self.report[name] = {"chosen": str(self.chosen[name]), "validation_map_at_r": best, "curves": curves}
        write_json(self.out / "selection.json", self.report)
        print(name, *(f"  {value:.3f} {text}" for text, value in best.items()), sep="\n", flush=True)

    def score(self, name: str, seed: int) -> dict[str, float]:
        """Train what was chosen, and score it on the test classes."""
        setting = self.chosen[name]
        config, folder = self.config(setting, seed), self.folder(setting, seed)
        if name in NETWORKS:
            self.curve(name, setting, seed)
            return score_network(name, setting, config, folder, self.pretrained(seed))
        content = run_trial(Trial(setting.text, config, folder))
        return {key: _flat(content["scores"])[key] for key in SCORES} | {
            f"raw_{key}": _flat(content["raw"])[key] for key in SCORES
        }

    def run(self) -> str:
        """Choose, train and score method by method, and return the table."""
        lines = [["setting", "Recall@1", "MAP@R"], ["---", "---:", "---:"]]
        for name in GRID:
            self.select(name)
            found = [self.score(name, seed) for seed in FINAL]
            if len(lines) == 2:
                lines.append(["raw pixels", *(f"{found[0][f'raw_{key}']:.3f}" for key in SCORES)])
            lines.append([f"`{self.chosen[name]}`", *(_spread([f[key] for f in found]) for key in SCORES)])
            print(*lines[-1], flush=True)
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _flat(scores: dict[str, Any]) -> dict[str, float]:
    return {"recall_at_1": scores["recall_at"]["1"], "map_at_r": scores["map_at_r"]}


def _spread(values: list[float]) -> str:
    return f"{mean(values):.3f} ± {stdev(values):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="the zip to train on")
    parser.add_argument("test", help="the zip with the test alphabets")
    parser.add_argument("--out", type=Path, default=Path("runs/deep_table"))
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    base = TrainConfig.of(
        data=options.data, test=options.test, test_classes=CLASSES, epochs=options.epochs, device="cpu", **COMMON
    )
    text = Table(base, options.out).run()
    replace_file(options.out / "table.md", f"{text}\n".encode())
    print(text)


if __name__ == "__main__":
    main()
