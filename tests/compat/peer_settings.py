"""Random settings of the losses of pytorch-metric-learning, each computed by it and by `nearfar.compat`.

A setting is a loss with its parameters, a distance, a reducer, a regularizer and class weights; and a call of it, with
labels, a miner, indices or references. `outcome` says how the two libraries agree: in value and gradients, both
with an error, or not. What differs on purpose is in `MEANT`, by the words with which docs/switching.md says it.
"""

from __future__ import annotations

import random
import warnings
from typing import NamedTuple

import pytorch_metric_learning as theirs
import torch
from pytorch_metric_learning import distances, losses, miners, reducers, regularizers
from pytorch_metric_learning.utils import loss_and_miner_utils as common

from nearfar.compat import pytorch_metric_learning as ours
from nearfar.compat.pytorch_metric_learning import (
    distances as our_distances,
)
from nearfar.compat.pytorch_metric_learning import (
    losses as our_losses,
)
from nearfar.compat.pytorch_metric_learning import (
    miners as our_miners,
)
from nearfar.compat.pytorch_metric_learning import (
    reducers as our_reducers,
)
from nearfar.compat.pytorch_metric_learning import (
    regularizers as our_regularizers,
)

assert theirs.__version__ == ours.__version__
THEIRS = {
    "losses": losses,
    "miners": miners,
    "distances": distances,
    "reducers": reducers,
    "regularizers": regularizers,
    "torch": torch,
}
OURS = {
    "losses": our_losses,
    "miners": our_miners,
    "distances": our_distances,
    "reducers": our_reducers,
    "regularizers": our_regularizers,
    "torch": torch,
}
C, D = 5, 6
PAIRS: dict[str, dict[str, tuple]] = {  # the names and some values of the parameters of each loss
    "ContrastiveLoss": {"pos_margin": (0, 0.2, 1), "neg_margin": (0, 0.5, 1)},
    "SignalToNoiseRatioContrastiveLoss": {"pos_margin": (0, 0.2), "neg_margin": (0.5, 1)},
    "TripletMarginLoss": {"margin": (0.05, 0.2), "swap": (False, True), "smooth_loss": (False, True)},
    "NTXentLoss": {"temperature": (0.07, 0.5)},
    "SupConLoss": {"temperature": (0.1, 0.5)},
    "MultiSimilarityLoss": {"alpha": (2, 1), "beta": (50, 10), "base": (0.5, 0.2)},
    "CircleLoss": {"m": (0.4, 0.25), "gamma": (80, 10)},
    "TupletMarginLoss": {"margin": (5.73, 20), "scale": (64, 8)},
    "IntraPairVarianceLoss": {"pos_eps": (0.01, 0.2), "neg_eps": (0.01, 0.2)},
    "ThresholdConsistentMarginLoss": {"lambda_plus": (1, 2), "margin_plus": (0.9, 0.5), "margin_minus": (0.5, 0.1)},
    "HistogramLoss": {"n_bins": (64, 16)},
    "FastAPLoss": {"num_bins": (10, 4)},
    "LiftedStructureLoss": {"neg_margin": (1, 0.5), "pos_margin": (0, 0.1)},
    "GeneralizedLiftedStructureLoss": {"neg_margin": (1, 0.5), "pos_margin": (0, 0.1)},
    "NCALoss": {"softmax_scale": (1, 4)},
    "NPairsLoss": {},
    "InstanceLoss": {"gamma": (64, 8)},
    "AngularLoss": {"alpha": (40, 30)},
    "MarginLoss": {"margin": (0.2, 0.5), "nu": (0, 0.1), "beta": (1.2, 0.8), "learn_beta": (False, True)},
    "PNPLoss": {"anneal": (0.1, 0.5), "variant": ("O", "Ds", "Dq", "Iu", "Ib")},
    "RankedListLoss": {"margin": (0.4,), "Tn": (1, 0), "alpha": (None, 1.2)},
}
PROXIES: dict[str, dict[str, tuple]] = {
    "ArcFaceLoss": {"margin": (28.6, 10), "scale": (64, 8)},
    "CosFaceLoss": {"margin": (0.35, 0.1), "scale": (64, 8)},
    "SubCenterArcFaceLoss": {"sub_centers": (2, 3), "scale": (64, 8)},
    "SphereFaceLoss": {"margin": (4, 2), "scale": (1, 4)},
    "LargeMarginSoftmaxLoss": {"margin": (4, 2), "scale": (1, 4)},
    "NormalizedSoftmaxLoss": {"temperature": (0.05, 0.5)},
    "ProxyNCALoss": {"softmax_scale": (1, 8)},
    "ProxyAnchorLoss": {"margin": (0.1, 0.3), "alpha": (32, 8)},
    "SoftTripleLoss": {"centers_per_class": (1, 3), "la": (20, 5), "gamma": (0.1, 1)},
}
DISTANCES = (
    "LpDistance()",
    "LpDistance(power=2)",
    "LpDistance(power=0.5)",
    "LpDistance(p=1)",
    "LpDistance(p=3, normalize_embeddings=False)",
    "LpDistance(normalize_embeddings=False)",
    "CosineSimilarity()",
    "CosineSimilarity(power=2)",
    "CosineSimilarity(p=1)",
    "DotProductSimilarity()",
    "DotProductSimilarity(normalize_embeddings=False)",
    "SNRDistance()",
)
REDUCERS = (
    "MeanReducer()",
    "SumReducer()",
    "AvgNonZeroReducer()",
    "ThresholdReducer(low=0.1)",
    "ThresholdReducer(high=0.9)",
    "ThresholdReducer(low=0.1, high=0.9)",
    "ClassWeightedReducer(torch.linspace(0.5, 2, 5))",
    "DivisorReducer()",
    "PerAnchorReducer()",
    "MultipleReducers({'pos_loss': reducers.SumReducer(), 'loss': reducers.SumReducer()})",
)
REGULARIZERS = ("LpRegularizer()", "LpRegularizer(p=1, power=2)", "ZeroMeanRegularizer()")
WEIGHT_REGULARIZERS = (
    "LpRegularizer()",
    "RegularFaceRegularizer()",
    "CenterInvariantRegularizer()",
)
MINERS = (
    "BatchHardMiner()",
    "BatchEasyHardMiner('easy', 'hard')",
    "BatchEasyHardMiner('hard', 'semihard', allowed_neg_range=(0.1, 1.2))",
    "BatchEasyHardMiner('all', 'easy')",
    "MultiSimilarityMiner(0.1)",
    "PairMarginMiner(0.2, 0.8)",
    "TripletMarginMiner(0.2)",
    "TripletMarginMiner(0.2, type_of_triplets='semihard')",
    "TripletMarginMiner(0.2, type_of_triplets='hard')",
    "TripletMarginMiner(0.2, type_of_triplets='easy')",
    "AngularMiner(20)",
    "HDCMiner(0.5)",
)
LABELS = ("even", "uneven", "one class", "all different", "one pair", "one sample", "empty", "signs", "with -1")
CALLS = ("plain",) * 4 + ("miner",) * 3 + ("triplets", "pairs", "repeated pairs", "no triplets", "no pairs")
REFS = ("none",) * 4 + ("other", "other", "same", "one", "empty")


class Setting(NamedTuple):
    """A loss and a call of it, by their texts and the names of kinds."""

    seed: int
    loss: str
    call: str
    labels: str
    ref: str
    miner: str

    @property
    def name(self) -> str:
        return self.loss.partition("(")[0].removeprefix("losses.")


def drawn(seed: int) -> Setting:
    """Return the setting of a seed."""
    rng = random.Random(seed)
    known = {**PAIRS, **PROXIES}
    name = rng.choice(list(known))
    given = {key: rng.choice(values) for key, values in known[name].items() if rng.random() < 0.5 or len(values) == 1}
    if name == "RankedListLoss":
        given = {"margin": 0.4, "Tn": 1, **given}
    words = [f"{key}={value!r}" for key, value in given.items()]
    if name in PROXIES:
        words += [f"num_classes={C}", f"embedding_size={D}"]
        if rng.random() < 0.2:
            words.append(f"weight_regularizer=regularizers.{rng.choice(WEIGHT_REGULARIZERS)}, weight_reg_weight=0.5")
    if rng.random() < 0.35:
        words.append(f"distance=distances.{rng.choice(DISTANCES)}")
    if rng.random() < 0.45:
        words.append(f"reducer=reducers.{rng.choice(REDUCERS)}")
    if rng.random() < 0.2:
        words.append(f"embedding_regularizer=regularizers.{rng.choice(REGULARIZERS)}, embedding_reg_weight=0.5")
    labels = "even" if rng.random() < 0.4 else rng.choice(LABELS)
    ref = rng.choice(REFS) if name not in WITHOUT_REF or rng.random() < 0.1 else "none"
    call = rng.choice(CALLS)
    if name in OF_MEMORY and rng.random() < 0.15:
        call = rng.choice(["memory", "memory and miner"])
        ref = "none"
    return Setting(seed, f"losses.{name}({', '.join(words)})", call, labels, ref, rng.choice(MINERS))


def labels_of(kind: str, n: int, rng: random.Random) -> torch.Tensor:
    """Return (n,) labels of a kind, in any order."""
    made = {
        "even": [i % C for i in range(n)],
        "signs": [i % C for i in range(n)],
        "with -1": [i % C - 1 for i in range(n)],
        "uneven": [min(C - 1, int(rng.expovariate(1))) for _ in range(n)],
        "one class": [2] * n,
        "all different": list(range(min(n, C))),
        "one pair": [0, 0, 1, 2],
        "one sample": [1],
        "empty": [],
    }[kind]
    rng.shuffle(made)
    return torch.tensor(made, dtype=torch.long)


def batch_of(setting: Setting) -> tuple:
    """Return embeddings, labels, references and their labels; the latter two are None, or the very first two."""
    rng = random.Random(setting.seed)
    g = torch.Generator().manual_seed(setting.seed)
    y = labels_of(setting.labels, 12, rng)
    x = torch.randn(len(y), D, generator=g, dtype=torch.float64)
    x = x + 2 * torch.randn(C, D, generator=g, dtype=torch.float64)[y] * rng.choice([0, 1])
    if setting.labels == "signs":  # orthants of the space: many distances are equal
        x = x.sign()
    if setting.ref == "none":
        return x, y, None, None
    if setting.ref == "same":
        return x, y, x, y
    m = {"other": 9, "one": 1, "empty": 0}[setting.ref]
    return x, y, torch.randn(m, D, generator=g, dtype=torch.float64), torch.arange(m) % C


def indices_of(setting: Setting, y: torch.Tensor, ref_y: torch.Tensor | None) -> tuple:
    """Return triplets or pairs of the batch, or of the batch with its references, some of them and in any order."""
    same = y[:, None] == (y if ref_y is None else ref_y)[None]
    pos, neg = same.clone(), ~same
    if ref_y is None or ref_y is y:
        pos.fill_diagonal_(False)
    g = torch.Generator().manual_seed(setting.seed)

    def some(*parts):
        number = len(parts[0])
        chosen = torch.randperm(number, generator=g)[: (number + 1) // 2]
        if setting.call == "repeated pairs":
            chosen = torch.cat([chosen, chosen[:2]])
        return [part[chosen] for part in parts]

    none = torch.zeros(0, dtype=torch.long)
    if setting.call == "no triplets":
        return none, none, none
    if setting.call == "no pairs":
        return none, none, none, none
    if setting.call == "triplets":
        return tuple(some(*(pos[:, :, None] & neg[:, None, :]).nonzero(as_tuple=True)))
    return (*some(*pos.nonzero(as_tuple=True)), *some(*neg.nonzero(as_tuple=True)))


def computed(setting: Setting, names: dict, state: dict | None):
    """Return the value and the gradients of a call, and the state of the loss; an error, where it is one."""
    torch.manual_seed(setting.seed)
    try:
        loss = eval(setting.loss, names)  # a text of this file
        loss = loss.double()
        if state:
            loss.load_state_dict(state)
        x, y, ref, ref_y = batch_of(setting)
        x.requires_grad_()
        if setting.ref == "same":
            ref, ref_y = x, y
        elif ref is not None:
            ref.requires_grad_()
        given = {} if ref is None else {"ref_emb": ref, "ref_labels": ref_y}
        indices = None
        if setting.call == "miner":
            with torch.no_grad():
                indices = eval(f"miners.{setting.miner}", THEIRS)(x, y, ref, ref_y)
        elif setting.call != "plain" and not setting.call.startswith("memory"):
            indices = indices_of(setting, y, ref_y)
    except Exception as error:
        return error, None
    start = {key: part.clone() for key, part in loss.state_dict().items()}
    try:
        if setting.call.startswith("memory"):
            value = of_memory(setting, names, loss, x, y)
        else:
            value = loss(x, y, indices, **given)
        inputs = [x, *([ref] if ref is not None and ref is not x else []), *loss.parameters()]
        inputs = [part for part in inputs if part.requires_grad]
        grads = torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True)
    except Exception as error:
        return error, start
    return [value.detach(), *grads], start


WITHOUT_REF = {*PROXIES, "HistogramLoss", "FastAPLoss", "NPairsLoss", "InstanceLoss", "PNPLoss", "RankedListLoss"}
NONZERO = {"ContrastiveLoss", "SignalToNoiseRatioContrastiveLoss", "TripletMarginLoss", "SupConLoss", "CircleLoss"}
OF_MEMORY = set(losses.CrossBatchMemory.supported_losses())
COLUMNS = {  # whose losses are (n, 1)
    "AngularLoss",
    "CircleLoss",
    "GeneralizedLiftedStructureLoss",
    "LiftedStructureLoss",
    "MultiSimilarityLoss",
    "TupletMarginLoss",
}
CRASHES = (RuntimeError, IndexError, TypeError, KeyError, AttributeError)  # not what a library raises on purpose


def few_pairs(setting):
    """Return whether the indices, or all pairs of the batch, have at most one pair of each kind."""
    x, y, ref, ref_y = batch_of(setting)
    if setting.call.startswith("memory"):
        seen = []

        def loss(x, y, indices, *ref):
            seen.append(all(len(part) <= 1 for part in indices))
            return 0

        of_memory(setting, THEIRS, losses.ContrastiveLoss(), x, y, instead=loss)
        return any(seen)
    if setting.call == "miner":
        indices = eval(f"miners.{setting.miner}", THEIRS)(x, y, ref, ref_y)
    elif setting.call != "plain":
        indices = indices_of(setting, y, ref_y)
    else:
        indices = common.get_all_pairs_indices(y, ref_y)
    return all(len(part) <= 1 for part in indices)


def rounds_to_zero(setting):
    """Return whether only the number of losses that are not 0 differs: their sums agree."""
    nonzero = "AvgNonZero" in setting.loss or (setting.name in NONZERO and "reducer=" not in setting.loss)
    if not nonzero:
        return False
    text = setting.loss.replace("reducer=reducers.AvgNonZeroReducer()", "reducer=reducers.SumReducer()")
    if text == setting.loss:
        text = text.replace("(", "(reducer=reducers.SumReducer(), ", 1)
    summed = setting._replace(loss=text)
    expected, state = computed(summed, THEIRS, None)
    found, _ = computed(summed, OURS, state)
    # roots of what is 0 up to rounding, too; and a margin that is reached exactly has a gradient on either side
    return agree(found, expected, only_value=setting.labels == "signs", rtol=2e-3)


def chooses_among_ties(setting, found, expected):
    """Return whether each library has mined for itself, or what was mined gives the same value."""
    return setting.call == "memory and miner" or agree(found, expected, only_value=True)


def is_number(result):
    return not isinstance(result, Exception)


def is_nan(result):
    return is_number(result) and any(part.isnan().any() for part in result)


MEANT = {  # words of docs/switching.md: whether a setting, with what was found and expected, is a case of it
    "`ClassWeightedReducer` for some losses": lambda s, f, e: "ClassWeighted" in s.loss and s.name in COLUMNS,
    "`TripletMarginLoss(swap=True)` with `ref_emb`": lambda s, f, e: "swap=True" in s.loss and s.ref in REFS[4:6],
    "`ThresholdConsistentMarginLoss` with `ref_emb`": (
        lambda s, f, e: s.name == "ThresholdConsistentMarginLoss" and s.ref in ("other", "one")
    ),
    "`RankedListLoss`, if dissimilar samples coincide": (
        lambda s, f, e: s.name == "RankedListLoss" and s.labels == "signs"
    ),
    "`LiftedStructureLoss` with `ref_emb` or in a `CrossBatchMemory`": (
        lambda s, f, e: s.name == "LiftedStructureLoss" and (s.ref in ("other", "one") or s.call.startswith("memory"))
    ),
    "the gradient exactly at a margin or at the edge of a bin": (
        lambda s, f, e: s.labels == "signs" and agree(f, e, only_value=True)
    ),
    "miners, if distances are equal": (
        lambda s, f, e: ("HDCMiner" in s.miner or s.labels == "signs") and chooses_among_ties(s, f, e)
    ),
    "the bins of `HistogramLoss`, unless": (
        lambda s, f, e: s.name == "HistogramLoss" and "n_bins" not in s.loss and agree(f, e, rtol=1e-2)
    ),
    "labels below 0 in losses with class weights": lambda s, f, e: "expected classes from 0" in str(f),
    "`CrossBatchMemory` with an `enqueue_mask` that lets nothing in": (
        lambda s, f, e: s.call.startswith("memory") and s.seed % (len(batch_of(s)[1]) + 1) == 0
    ),
    "losses that are 0 up to rounding, with `AvgNonZeroReducer`": lambda s, f, e: rounds_to_zero(s),
    "`DivisorReducer` with a loss that states no divisor": lambda s, f, e: "no divisor" in str(f),
    "losses of pairs, if the batch has at most one pair of each kind": (
        lambda s, f, e: s.name in PAIRS and is_number(f) and is_number(e) and few_pairs(s)
    ),
    "an empty batch, and other cases in which it returns NaN": lambda s, f, e: is_nan(e) and not is_nan(f),
    "cases in which it fails inside PyTorch": (
        lambda s, f, e: isinstance(e, CRASHES) and is_number(f) and not is_nan(f)
    ),
}


def of_memory(setting: Setting, names: dict, loss, x, y, instead=None):
    """Return the sum of the losses of three steps with a memory, in the last of which some samples only enter it."""
    miner = eval(f"miners.{setting.miner}", names) if setting.call == "memory and miner" else None
    memory = names["losses"].CrossBatchMemory(loss, D, 2 * len(y) + 3, miner).double()
    if instead is not None:
        del memory.loss
        memory.loss = instead
    value = memory(x, y) + memory(x.roll(1, 1), y)
    return value + memory(x, y, enqueue_mask=torch.arange(len(y)) < setting.seed % (len(y) + 1))


def outcome(setting: Setting) -> tuple[str, str]:
    """Return "equal", "both refuse", "refused", "meant" or "differ", and the details.

    "refused" is what `nearfar.compat` says that it does not have; "meant", what docs/switching.md says to be different.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, state = computed(setting, THEIRS, None)
        found, _ = computed(setting, OURS, state)
        if isinstance(expected, Exception) and isinstance(found, Exception):
            return "both refuse", ""
        if isinstance(found, NotImplementedError):
            return "refused", str(found)
        if agree(found, expected):
            return "equal", ""
        for words, holds in MEANT.items():
            if holds(setting, found, expected):
                return "meant", words
    return "differ", f"ours: {_short(found)}; theirs: {_short(expected)}"


def agree(found, expected, only_value=False, rtol=1e-4) -> bool:
    if not is_number(found) or not is_number(expected):
        return False
    pairs = list(zip(found, expected, strict=True))[: 1 if only_value else None]
    return all(
        torch.allclose(one, other.reshape(one.shape), rtol=rtol, atol=1e-2 * rtol, equal_nan=True)
        for one, other in pairs
    )


def _short(result) -> str:
    if isinstance(result, Exception):
        return f"{type(result).__name__}({str(result)[:100]!r})"
    return f"{result[0].item():.6g}, {[f'{grad.norm():.4g}' for grad in result[1:]]}"
