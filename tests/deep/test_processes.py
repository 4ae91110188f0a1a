"""Several processes together equal one, in value, in every gradient and in what they remember."""

import inspect
import re
from datetime import timedelta
from functools import cache, partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist

import nearfar
from nearfar.catalog import METHODS
from nearfar.deep import distributed
from nearfar.deep.miners.base import Miner
from nearfar.deep.objective.relations import LabelSets
from nearfar.deep.objective.terms import Term

from ..processes import run_in_processes

pytestmark = pytest.mark.slow

DIM, POOLED, BATCH, REFS = 5, 7, 24, 10
SMALL = {m.name: m.small for m in METHODS} | {"SNRContrastiveLoss": {"zero_mean": 0.5}}
MINERS = [m.name for m in METHODS if m.kind == "miner"]
MORE_MINERS = {
    "assorted": partial(nearfar.ExtremeDistance, "assorted", "assorted"),
    "three": partial(nearfar.RandomNegative, 3),
}


@cache
def objectives():
    """Every term of the catalog, every miner, and terms inside terms."""
    made = {}
    for m in METHODS:
        alone = m.kind in ("loss", "regularizer", "composition", "head") or (m.kind == "memory" and m.takes != "rows")
        if alone:
            made[m.name] = partial(getattr(nearfar, m.name), **SMALL[m.name])
    teacher = torch.randn(BATCH, 4, generator=torch.Generator().manual_seed(2))
    made["Distill"] = partial(nearfar.Distill, teacher)
    miners = {name: getattr(nearfar, name) for name in MINERS} | MORE_MINERS
    for name, miner in miners.items():
        made[f"MarginLoss {name}"] = lambda miner=miner: nearfar.MarginLoss(nu=0.1, miner=miner())
        made[f"deviance {name}"] = lambda miner=miner: nearfar.BinomialDevianceLoss(miner=miner(), block=5)
    of_anchors = {
        "global": partial(nearfar.TripletGlobalLoss, over="triplets", miner=nearfar.RandomNegative()),
        "lifted": partial(nearfar.LiftedLoss, miner=nearfar.RandomNegative(2)),
        "variance": partial(nearfar.IntraPairVarianceLoss, miner=nearfar.DistanceWeighted()),
        "N pairs": nearfar.NPairLoss,
    }
    proxies = partial(nearfar.AMSoftmaxLoss, num_classes=8, embedding_dim=DIM)
    adversarial = partial(nearfar.AdversarialTriplet, DIM)
    return made | {
        **of_anchors,
        "memory": lambda: nearfar.CrossBatchMemory(nearfar.ContrastiveLoss(), size=30),
        "memory and draws": lambda: nearfar.CrossBatchMemory(nearfar.MarginLoss(miner=nearfar.DistanceWeighted()), 30),
        "memory of proxies": lambda: nearfar.CrossBatchMemory(proxies(), size=30),
        "scores": lambda: nearfar.JRS(("embedding", "class")) + proxies(),
        "centers": lambda: nearfar.RegularFace() + proxies(),
        "distance": lambda: nearfar.TripletLoss(distance=nearfar.LpDistance(1), block=5),
        "moments": lambda: nearfar.HORDE(DIM, loss=nearfar.NTXentLoss() + nearfar.JMMD(("embedding",)), features=16),
        "adversarial pairs": lambda: adversarial(loss=nearfar.NPairLoss(), miner=nearfar.RandomNegative(2)),
        "adversarial means": lambda: adversarial(loss=nearfar.IntraPairVarianceLoss()),
        "adversarial hinges": lambda: adversarial(loss=nearfar.BinomialDevianceLoss()),
        "harder negatives": lambda: nearfar.HDMLLoss(8, DIM, window=1),  # the second step has averages of the first
        "harder hinges": lambda: nearfar.HDMLLoss(8, DIM, window=1, loss=nearfar.IntraPairVarianceLoss()),
        "means of inputs": lambda: nearfar.CenterTripletLoss(center="input_mean"),
        "means of classes": lambda: nearfar.ProxyNCALoss(8, DIM, proxies="class_mean"),
        "samples": lambda: nearfar.MarginLoss(per_class=8, per_sample=BATCH, nu=0.1),
    }


def seed_processor(seed):
    """Seed as `torch.manual_seed` does, in a thousandth of its time: no accelerator is asked."""
    torch.default_generator.manual_seed(seed)


class Step(torch.nn.Module):
    """A network and an objective in one module, as the training engine wraps them."""

    def __init__(self, name):
        super().__init__()
        seed_processor(0)
        self.trunk, self.embed = torch.nn.Linear(6, POOLED), torch.nn.Linear(POOLED, DIM)
        self.prototypes = torch.nn.Parameter(torch.randn(REFS, DIM))
        self.objective = nearfar.TripletLoss() + 0.7 * objectives()[name]()

    def forward(self, batch, **how):
        pooled = self.trunk(batch["images"]).tanh()
        given = {"ids": batch["ids"], "pooled": pooled, **how}
        if "ref_images" in batch:
            given["ref"] = self.embed(self.trunk(batch["ref_images"]).tanh())
        if "ref_replicated" in batch:
            given |= {"ref": self.prototypes, "ref_replicated": True}
        if "ref_labels" in batch:
            given["ref_labels"] = batch["ref_labels"]
        return self.objective(self.embed(pooled), batch["labels"], **given)


# How the samples of a case are labeled, compared, and shared out

PARTS = {1: [BATCH], 2: [17, 7], 4: [11, 0, 7, 6]}
REF_PARTS = {1: [REFS], 2: [3, 7], 4: [4, 5, 0, 1]}
# Every objective, because its own code runs where a process has a part of the batch, or none of it
FOR_ALL = ("classes", "classes of one process")
# Few objectives, because kinds of labels and references are shared out by what objectives have in common
LABELED = ("ref", "own relation", "sets and ref", "sets", "prototypes", "relation", "relation and ref")
CASES_OF = {  # two processes for all, four for every kind of labels, and for references
    2: FOR_ALL + LABELED,
    4: ("classes", "ref", "own relation", "sets and ref", "relation and ref"),
}
# What every case must compare, if it is to find an error in it: losses of rows, of triplets of both sides, in two
# passes, with sums of their own; draws; the whole batch in each process
REACHED = {
    "BilateralRowLoss",
    "DistanceWeighted",
    "GeneralizedContrastiveLoss",
    "HistogramLoss",
    "IntraPairVarianceLoss",
}
REACHED |= {"MultiSupConLoss", "RandomNegative", "RowLoss", "SetTerm", "TwoPassLoss"}


@cache
def mechanisms(name):
    """Return the classes that decide what processes share for an objective: those of its terms and miners, or bases.

    A class decides itself if its module gathers, draws or reads which samples are those of the process, or if it is a
    term without a base; others leave that to the class that they are derived from.
    """
    found = set()
    for term in objectives()[name]().modules():
        for part in (term, getattr(term, "miner", None)):
            if isinstance(part, (Term, Miner)):
                own, base, *_ = type(part).__mro__
                text = Path(inspect.getfile(own)).read_text(encoding="utf-8")
                decides = base is Term or re.search(r"\bdistributed\.|\brng\b|\.anchors\b", text)
                found.add((own if decides else base).__name__)
    return found


@cache
def representatives(case, world):
    """Return the objectives that several processes compute in a case: few that use every mechanism, and one refused."""
    if case in FOR_ALL and world == 2:
        return list(objectives())
    chosen = {}
    refused = []
    for name in objectives():
        if not mechanisms(name) <= set().union(*chosen.values()):
            if "error" in single(name, case, world):
                refused.append(name)
            else:
                chosen[name] = mechanisms(name)
    assert set().union(*chosen.values()) >= REACHED
    return [*chosen, *refused[:1]]


def parts_of(case, world):
    """Return how many samples each process has."""
    return [BATCH, 0] if case == "classes of one process" else PARTS[world]


def own_part(parts, rank):
    return slice(sum(parts[:rank]), sum(parts[: rank + 1]))


def data(case, world, rank=None):
    """Return what a process passes, or what one process with all of it does."""
    g = torch.Generator().manual_seed(1)
    images = torch.randn(BATCH, 6, generator=g, dtype=torch.float64)
    refs = torch.randn(REFS, 6, generator=g, dtype=torch.float64)
    y, ref_y = torch.arange(BATCH) % 6, torch.arange(REFS) % 4
    y[5] = -1
    rows = slice(0, BATCH) if rank is None else own_part(parts_of(case, world), rank)
    columns = slice(0, REFS) if rank is None else own_part(REF_PARTS[world], rank)
    batch = {"images": images[rows], "labels": y[rows], "ids": torch.arange(BATCH)[rows]}
    if case.endswith("ref"):
        batch |= {"ref_images": refs[columns], "ref_labels": ref_y[columns]}
    if case == "prototypes":
        batch |= {"ref_replicated": True, "ref_labels": ref_y}
    if case.startswith("sets"):
        hot, ref_hot = (torch.nn.functional.one_hot(z.clamp_min(0), 8) | (torch.arange(8) == 7) for z in (y, ref_y))
        hot[5] = 0
        batch["labels"] = LabelSets(hot[rows], 0.4)
        if "ref_labels" in batch:
            batch["ref_labels"] = LabelSets(ref_hot[columns], 0.4)
    if case.endswith("relation"):
        relation = (y[:, None] == y).long()
        relation[5] = relation[:, 5] = relation[7, 9] = -1
        if case == "own relation":
            relation, whole = torch.full_like(relation, -1), relation
            for k in range(world):
                part = own_part(PARTS[world], k)
                relation[part, part] = whole[part, part]
        batch["labels"] = relation[rows, rows] if case == "own relation" else relation[rows]
    if case == "relation and ref":
        del batch["ref_labels"]
        batch["labels"] = torch.where(y[:, None] == -1, -1, (y[:, None] == ref_y).long())[rows]
    return batch


def outcome(name, batch, seed, **how):
    """Return the value, the parts, the gradients and the state after two steps, or the message of the error."""
    step = Step(name).double()
    seed_processor(seed)
    try:
        with torch.no_grad():
            step(batch, **how)
        value = step(batch, **how)
    except ValueError as error:
        return {"error": str(error)}
    value.backward()
    grads = {f"gradient of {key}": gradient(p) for key, p in step.named_parameters() if p.requires_grad}
    return {"value": value.detach(), **step.objective.parts_, **grads, **step.state_dict()}


def gradient(p):
    return torch.zeros_like(p) if p.grad is None else p.grad


def single(name, case, world):
    """Return the outcome of one process, which has what several have: relations of their own are as many as these."""
    return alone(name, case.removesuffix(" of one process"), world if case == "own relation" else 1)


@cache
def alone(name, case, world):
    return outcome(name, data(case, world), 7)


def of_processes(world, rank, chosen, group=None):
    """Return the outcomes of objectives by case; only the first process has the seed of the single one."""
    seed = 7 if rank == 0 else 100 + rank
    every = ((name, case) for case, names in chosen.items() for name in names)
    return {(name, case): outcome(name, data(case, world, rank), seed, group=group) for name, case in every}


def average_gradients(outcomes):
    """Put the mean gradients of some processes into what each of them found, as an optimizer step averages them.

    Here rather than by collective operations in the processes, which were a third of all that they exchanged.
    """
    for name_and_case in outcomes[0]:
        found = [outcome[name_and_case] for outcome in outcomes]
        if any("error" in part for part in found):
            continue
        for key in [key for key in found[0] if key.startswith("gradient of ")]:
            mean = torch.stack([part[key] for part in found]).mean(dim=0)
            for part in found:
                part[key] = mean


def told(function):
    """Return the type and the message of an error."""
    try:
        function()
    except (TypeError, ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def beside(rank, world):
    """Return what one process sees where the others do nothing, or something else."""
    loss, x, y = nearfar.TripletLoss(), torch.eye(6), torch.arange(6) % 2
    found = {}
    if rank == 0:
        with distributed.local():
            found["local"] = loss(x, y)
            found["world"] = distributed.world()
    found["rows"] = told(lambda: loss(x[:, : 6 - rank], y))
    found["ids"] = told(lambda: loss(x, y, ids=None if rank else y))
    found["ref"] = told(lambda: loss(x, y, **({"ref": x, "ref_labels": y} if rank else {})))
    found["kind"] = told(lambda: loss(x, LabelSets(x) if rank else y))
    found["relation"] = told(lambda: loss(x, torch.ones(6, 7)))
    found["prototypes"] = told(lambda: loss(x, y, ref=x[rank:], ref_labels=y[rank:], ref_replicated=True))
    bad = {  # what one process, or each in its way, cannot use
        "not finite": lambda: loss(x * torch.nan if rank else x, y),
        "no tensor": lambda: loss(None if rank else x, y),
        "unlike lengths": lambda: loss(x, y if rank else y[:5]),
        "degrees": lambda: loss(x, torch.full((6, 12), 1.0 + rank)),
        "degrees of one": lambda: loss(x, torch.full((6, 12), 1.0 - rank / 2)),
        "text": lambda: loss(x, ["ä" * 5000] if rank else y),
        "weights": lambda: loss.weighted(x, y, torch.full((6,), -1.0 if rank else 1.0)),
        "no losses": lambda: loss.sample_losses(None if rank else x, y),
        "two": lambda: loss(x[0], y) if rank else loss(x, y, ids=y[:3]),
    }
    found["refused"] = {name: told(call) for name, call in bad.items()}
    found["after"] = loss(x, y)
    z = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(nearfar.NTXentLoss()(z, y), z, create_graph=True)
    found["second derivative"] = told(slope.square().sum().backward)
    return found


def gathering(rank, world):
    """Return gradients of what is gathered, and of what is added to it."""
    other = torch.zeros(2 * world, DIM, requires_grad=True)
    older = other * 1.0  # older than the gathering, thus its gradient is read after that of the gathering
    x = torch.zeros(2, DIM, requires_grad=True)
    ((distributed.gather(x) + older) * (rank + 1)).sum().backward()
    return {"x": x.grad, "beside": other.grad}


def wrapped(rank, world):
    """Return the outcome of two steps inside DistributedDataParallel."""
    step = torch.nn.parallel.DistributedDataParallel(Step("NTXentLoss").double(), find_unused_parameters=True)
    batch = data("ref", world, rank)
    step(batch)
    value = step(batch)
    value.backward()
    return {"value": value.detach(), **{f"gradient of {k}": gradient(p) for k, p in step.module.named_parameters()}}


def sharded(rank, world):
    """Return what a method of an objective that FSDP2 has sharded does, before and after it is registered."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    loss, x, y, w = weighted_classes()
    own = slice(rank * 6 // world, (rank + 1) * 6 // world)
    fully_shard(loss, mesh=init_device_mesh("cpu", (world,)))
    found = {"refused": told(lambda: loss.weighted(x[own], y[own], w[y[own]]))}
    register_fsdp_forward_method(loss, "weighted")
    loss.weighted(x[own], y[own], w[y[own]]).backward()
    return {
        **found,
        "outside": told(lambda: (loss + nearfar.VICRegLoss())(x, y)),
        "grad": loss.proxies.grad.full_tensor(),
    }


def weighted_classes():
    torch.manual_seed(0)
    return nearfar.ArcFaceLoss(3, 6), torch.eye(6), torch.arange(6) % 3, torch.tensor([1.0, 2.0, 0.5])


def worker(rank, world, folder, chosen):
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(minutes=5))
    found = {"all": of_processes(world, rank, chosen)}
    if world == 2:
        found["beside"] = beside(rank, world)
        found["gathering"] = gathering(rank, world)
        found["wrapped"] = wrapped(rank, world)
        found["sharded"] = sharded(rank, world)
    if world == 4:  # processes 0 and 1 hold the same data, and so do 2 and 3
        groups = [dist.new_group([k, k + 2]) for k in range(2)]
        miner, other = groups[rank % 2], groups[1 - rank % 2]
        found["group"] = of_processes(2, rank // 2, {"ref": chosen["ref"]}, miner)
        x, y = torch.eye(4), [0, 0, 1, 1]
        found["outside"] = told(lambda: nearfar.TripletLoss()(x, y, group=other))
        found["no group"] = told(lambda: nearfar.TripletLoss()(x, y, group=3))
        with distributed.use_group(miner):
            found["sizes"] = distributed.world(), distributed.rank()
    torch.save(found, folder / f"{rank}.pt")
    dist.barrier()


@pytest.fixture(scope="module", params=[2, 4])
def every(request, tmp_path_factory):
    """The number of processes and what each of them found."""
    world, folder = request.param, tmp_path_factory.mktemp("found")
    chosen = {case: representatives(case, world) for case in CASES_OF[world]}
    run_in_processes(worker, world, folder, chosen)
    found = [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(world)]
    average_gradients([part["all"] for part in found])
    if world == 4:
        for members in ((0, 2), (1, 3)):
            average_gradients([found[rank]["group"] for rank in members])
    return world, found


def check(many, one, what):
    assert many.keys() == one.keys(), f"{what}: {many.get('error')} {one.get('error')}"
    for key, value in one.items():
        if key == "error":
            assert many[key] == value, what
        else:
            torch.testing.assert_close(
                many[key], value, rtol=1e-5, atol=1e-9, msg=lambda told, key=key: f"{what}: {key}: {told}"
            )


@pytest.mark.parametrize("case", CASES_OF[2])
def test_every_objective_equals_the_single_process(every, case):
    world, found = every
    if case not in CASES_OF[world]:
        pytest.skip("two processes suffice")
    refused = []
    for name in representatives(case, world):
        one = single(name, case, world)
        if "error" in one:
            refused.append(name)
        for rank in (0, world - 1):
            check(found[rank]["all"][name, case], one, f"{name}, {case}, process {rank} of {world}")
    if case in FOR_ALL and world == 2:
        assert refused == ["means of inputs"]  # it needs the raw inputs
    else:
        assert len(refused) <= 1  # in all other cases values are compared


def test_a_group_equals_the_single_process(every):
    world, found = every
    if world != 4:
        pytest.skip("needs processes in and outside a group")
    for rank in range(4):
        for name in representatives("ref", world):
            check(found[rank]["group"][name, "ref"], single(name, "ref", 2), f"{name}, process {rank}")
        assert found[rank]["sizes"] == (2, rank // 2)
        assert found[rank]["outside"].startswith(f"ValueError: group: this process, number {rank}, is not in it; call")
        assert found[rank]["no group"].startswith("TypeError: group: expected a process group of torch.distributed, g")


def test_what_processes_see_beside_one_another(every):
    world, found = every
    if world != 2:
        pytest.skip("two processes suffice")
    seen = [part["beside"] for part in found]
    assert seen[0].pop("world") == 1
    torch.testing.assert_close(seen[0].pop("local"), nearfar.TripletLoss()(torch.eye(6), torch.arange(6) % 2))
    assert seen[0] == seen[1]
    assert seen[0]["rows"] == "ValueError: embeddings: every process needs the same number of columns, got 6, 5"
    assert seen[0]["ids"] == "ValueError: ids: every process or none needs them (1 has them), got 1, 0"
    assert seen[0]["ref"] == "ValueError: ref: every process or none needs a reference (1 has one), got 0, 1"
    assert seen[0]["kind"].endswith("one kind (0 classes, 1 a relation matrix, 2 label sets), got 0, 2")
    columns = "one column per reference, 12 of all processes or [6, 6] of their own, got [7, 7]"
    assert seen[0]["relation"] == f"ValueError: labels: the relation matrix needs {columns}"
    assert seen[0]["prototypes"].endswith("ref_replicated: every process needs the same reference, got [6, 5] rows")
    refused = seen[0]["refused"]
    assert refused["not finite"] == "ValueError: embeddings: 6 of 6 rows are not finite (in process 1 of 2)"
    assert refused["no tensor"].startswith(
        "ValueError: embeddings: expected a (n, d) float tensor, got NoneType (in pro"
    )
    assert refused["unlike lengths"] == "ValueError: labels: expected one per embedding, 6, got 5 (in process 0 of 2)"
    assert refused["degrees"].startswith("ValueError: labels: the relation matrix holds numbers up to 1")
    assert refused["degrees of one"].startswith("ValueError: labels: the relation matrix has degrees between 0 and 1")
    assert refused["text"].startswith("ValueError: labels: expected (n,) integers or a relation matrix, got ['ää")
    assert (
        refused["two"] == "ValueError: ids: expected (6,) integers, got torch.int64 of shape (3,) (in process 0 of 2)"
    )
    assert refused["weights"].startswith("ValueError: weights: must be finite and not negative, got [-1.0")
    assert refused["weights"].endswith("(in process 1 of 2)")
    assert refused["no losses"].startswith(
        "ValueError: embeddings: expected a (n, d) float tensor, got NoneType (in pro"
    )
    torch.testing.assert_close(seen[0]["after"], nearfar.TripletLoss()(torch.eye(6).repeat(2, 1), [0, 1] * 6))
    assert "once_differentiable" in seen[0]["second derivative"]
    loss, x, y, w = weighted_classes()
    loss.weighted(x, y, w[y]).backward()
    for part in (part["sharded"] for part in found):
        advice = 'call register_fsdp_forward_method(objective, "weighted") of torch.distributed.fsdp first'
        assert part["refused"].endswith(f"weighted: this process has only shards of the parameters; {advice}")
        assert part["outside"].endswith("call it in the forward of the module that fully_shard was called on")
        torch.testing.assert_close(part["grad"], loss.proxies.grad)
    for rank in range(2):
        torch.testing.assert_close(found[rank]["gathering"]["x"], torch.full((2, DIM), 3.0))
        torch.testing.assert_close(found[rank]["gathering"]["beside"], torch.full((4, DIM), rank + 1.0))
        one = single("NTXentLoss", "ref", 1)
        check(found[rank]["wrapped"], {key: one[key] for key in found[rank]["wrapped"]}, "wrapped")


def test_a_replicated_reference_is_a_reference():
    x, y = torch.eye(4), [0, 0, 1, 1]
    for given in ({}, {"ref": x, "ref_labels": y}):
        with pytest.raises(ValueError, match="ref_replicated: needs ref=, rows that are the same in every process"):
            nearfar.TripletLoss()(x, y, ref_replicated=True, **given)


def test_contexts_end_with_what_was_before():
    with distributed.local():
        with distributed.use_group(None):
            assert distributed.world() == 1
        with pytest.raises(TypeError, match=r"group: .* got str; of a device mesh take"), distributed.use_group("dp"):
            pass
        assert distributed._group() is distributed.ALONE
    assert distributed._group() is None
