"""The names of pytorch-metric-learning give its values and gradients on this engine."""

import pytest

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("pytorch_metric_learning")

from pytorch_metric_learning import distances as their_distances
from pytorch_metric_learning import losses as their_losses
from pytorch_metric_learning import miners as their_miners
from pytorch_metric_learning import reducers as their_reducers
from pytorch_metric_learning import regularizers as their_regularizers
from pytorch_metric_learning import samplers as their_samplers
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator as TheirCalculator

from nearfar.compat.pytorch_metric_learning import distances, losses, miners, reducers, regularizers, samplers
from nearfar.compat.pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from nearfar.compat.pytorch_metric_learning.utils.distributed import DistributedLossWrapper
from nearfar.compat.pytorch_metric_learning.utils.inference import InferenceModel

OURS = {"losses": losses, "miners": miners, "distances": distances, "reducers": reducers, "regularizers": regularizers}
THEIRS = {
    "losses": their_losses,
    "miners": their_miners,
    "distances": their_distances,
    "reducers": their_reducers,
    "regularizers": their_regularizers,
}
C, D = 6, 8
PAIRS = [
    "losses.ContrastiveLoss()",
    "losses.ContrastiveLoss(pos_margin=0.3, neg_margin=1.2)",
    "losses.ContrastiveLoss(1, 0, distance=distances.CosineSimilarity())",
    "losses.ContrastiveLoss(0.1, 0.9, reducer=reducers.MeanReducer())",
    "losses.ContrastiveLoss(embedding_regularizer=regularizers.LpRegularizer(), embedding_reg_weight=0.5)",
    "losses.SignalToNoiseRatioContrastiveLoss()",
    "losses.ContrastiveLoss(distance=distances.LpDistance(p=1))",
    "losses.TripletMarginLoss(0.2, distance=distances.SNRDistance())",
    "losses.TripletMarginLoss(0.2, distance=distances.LpDistance(p=3, normalize_embeddings=False))",
    "losses.TripletMarginLoss(0.2)",
    "losses.TripletMarginLoss(0.2, swap=True)",
    "losses.TripletMarginLoss(0.2, smooth_loss=True)",
    "losses.TripletMarginLoss(0.1, distance=distances.CosineSimilarity(), reducer=reducers.MeanReducer())",
    "losses.MultiSimilarityLoss()",
    "losses.CircleLoss()",
    "losses.NTXentLoss(0.2)",
    "losses.SupConLoss()",
    "losses.NCALoss()",
    "losses.LiftedStructureLoss()",
    "losses.TupletMarginLoss()",
    "losses.IntraPairVarianceLoss()",
]
WITHOUT_INDICES = [
    "losses.HistogramLoss(n_bins=64)",
    "losses.ThresholdConsistentMarginLoss()",
    "losses.FastAPLoss()",
    "losses.GeneralizedLiftedStructureLoss()",
]
PROXIES = [
    "losses.ArcFaceLoss(C, D)",
    "losses.CosFaceLoss(C, D)",
    "losses.NormalizedSoftmaxLoss(C, D)",
    "losses.SubCenterArcFaceLoss(num_classes=C, embedding_size=D)",
    "losses.ProxyNCALoss(C, D)",
    "losses.SoftTripleLoss(C, D)",
    "losses.SphereFaceLoss(C, D)",
    "losses.LargeMarginSoftmaxLoss(C, D)",
]
MINERS = [
    "miners.BatchHardMiner()",
    "miners.BatchHardMiner(distance=distances.CosineSimilarity())",
    *(
        f"miners.BatchEasyHardMiner({p!r}, {n!r})"
        for p in ("hard", "easy", "all", "semihard")
        for n in ("hard", "easy", "all", "semihard")
        if {p, n} not in ({"semihard"}, {"semihard", "all"})
    ),
    "miners.BatchEasyHardMiner('hard', 'hard', allowed_pos_range=(0.5, 1.2), allowed_neg_range=(0.8, 1.5))",
    "miners.BatchEasyHardMiner('easy', 'hard', distance=distances.CosineSimilarity())",
    "miners.AngularMiner(25)",
    "miners.HDCMiner(0.3)",
    "miners.HDCMiner(0.5, distance=distances.CosineSimilarity())",
    "miners.MultiSimilarityMiner()",
    "miners.PairMarginMiner(0.9, 1.1)",
    "miners.PairMarginMiner(0.2, 0.1, distance=distances.CosineSimilarity())",
    *(f"miners.TripletMarginMiner(0.1, {kind!r})" for kind in ("all", "hard", "semihard", "easy")),
    "miners.TripletMarginMiner(0.1, 'semihard', distance=distances.CosineSimilarity())",
]


def batch(seed=0, n=24):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, D, generator=g, dtype=torch.float64).requires_grad_()
    return x, torch.randint(0, C, (n,), generator=g)


def both(text):
    return [eval(text, {**names, "C": C, "D": D}) for names in (OURS, THEIRS)]


def same(one, other, x):
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    slopes = [torch.autograd.grad(value, x, retain_graph=True)[0] for value in (one, other)]
    torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("text", PAIRS + WITHOUT_INDICES)
def test_losses(text):
    x, y = batch()
    ours, there = both(text)
    same(ours(x, y), there(x, y), x)


@pytest.mark.parametrize("text", [text for text in PAIRS if "swap" not in text and "Lifted" not in text])
def test_losses_with_references(text):
    x, y = batch()
    ref, ref_y = batch(1, 15)
    ours, there = both(text)
    same(ours(x, y, ref_emb=ref, ref_labels=ref_y), there(x, y, ref_emb=ref, ref_labels=ref_y), x)


@pytest.mark.parametrize("miner", ["miners.MultiSimilarityMiner()", "miners.BatchEasyHardMiner('all', 'hard')"])
@pytest.mark.parametrize("text", PAIRS)
def test_losses_of_mined_pairs(text, miner):
    x, y = batch()
    ours, there = both(text)
    found = both(miner)[1](x, y)
    same(ours(x, y, found), there(x, y, found), x)


@pytest.mark.parametrize("text", [text for text in PAIRS if "Triplet" in text])
def test_losses_of_mined_triplets(text):
    x, y = batch()
    ours, there = both(text)
    found = their_miners.TripletMarginMiner(0.3)(x, y)
    same(ours(x, y, found), there(x, y, found), x)
    same(ours(x, indices_tuple=found), there(x, indices_tuple=found), x)


def give(ours, there):
    proxies = ours.term.proxies.data
    by_class = proxies.double().unflatten(0, (-1, C)).transpose(0, 1).flatten(0, 1)
    name = next(name for name in ("W", "fc", "proxies") if hasattr(there, name))
    getattr(there, name).data = by_class if name == "proxies" else by_class.T.contiguous()
    ours.double()


@pytest.mark.parametrize("mined", [False, True])
@pytest.mark.parametrize("text", PROXIES)
def test_losses_with_class_weights(text, mined):
    x, y = batch()
    ours, there = both(text)
    give(ours, there)
    found = their_miners.BatchHardMiner()(x, y) if mined else None
    same(ours(x, y, found), there(x, y, found), x)


def test_proxy_anchor():
    x, y = batch()
    ours, there = both("losses.ProxyAnchorLoss(C, D)")
    give(ours, there)
    same(ours(x, y), there(x, y), x)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("text", MINERS)
def test_miners(text, reference):
    x, y = batch()
    ours, there = both(text)
    more = batch(1, 15) if reference else ()
    one, other = ours(x, y, *more), there(x, y, *more)
    assert len(one) == len(other)
    halves = [slice(0, 3)] if len(one) == 3 else [slice(0, 2), slice(2, 4)]
    for half in halves:
        found = [sorted(zip(*(part.tolist() for part in indices[half]), strict=True)) for indices in (one, other)]
        assert found[0] == found[1]


def test_pairs_of_a_histogram():
    x, y = batch(n=40)
    ours, there = both("miners.UniformHistogramMiner(5, 3, 4)")
    for one, other in zip(ours(x, y), there(x, y), strict=True):
        assert one.shape == other.shape
    a, p, b, n = ours(x, y)
    assert (y[a] == y[p]).all()
    assert (y[b] != y[n]).all()


@pytest.mark.parametrize(
    "text", ["LpRegularizer(p=1, power=2)", "RegularFaceRegularizer()", "CenterInvariantRegularizer()"]
)
def test_penalties_of_class_weights(text):
    x, _ = batch()
    ours, there = both(f"regularizers.{text}")
    same(ours(x), there(x), x)


@pytest.mark.parametrize(
    "text",
    [
        "distances.LpDistance()",
        "distances.LpDistance(p=1, power=2, normalize_embeddings=False)",
        "distances.CosineSimilarity()",
        "distances.DotProductSimilarity(normalize_embeddings=False)",
        "distances.SNRDistance()",
    ],
)
def test_distances(text):
    x, ref = batch()[0], batch(1)[0]
    ours, there = both(text)
    same(ours(x, ref).sum(), there(x, ref).sum(), x)
    torch.testing.assert_close(ours(x), there(x), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ours.pairwise_distance(x, ref), there.pairwise_distance(x, ref))
    assert ours.is_inverted == there.is_inverted


@pytest.mark.parametrize("miner", [None, "miners.MultiSimilarityMiner()"])
@pytest.mark.parametrize("text", ["losses.ContrastiveLoss()", "losses.TripletMarginLoss(0.2)", "losses.NTXentLoss()"])
def test_memories(text, miner):
    ours, there = both(text)
    chosen = both(miner) if miner else (None, None)
    ours = losses.CrossBatchMemory(ours, D, memory_size=60, miner=chosen[0])
    there = their_losses.CrossBatchMemory(there, D, memory_size=60, miner=chosen[1])
    for step in range(4):
        x, y = batch(step)
        same(ours(x, y), there(x, y), x)


def test_two_views():
    a, b = batch()[0], batch(1)[0]
    for symmetric in (True, False):
        ours, there = both("losses.NTXentLoss()")
        value = losses.SelfSupervisedLoss(ours, symmetric)(a, b)
        same(value, their_losses.SelfSupervisedLoss(there, symmetric)(a, b), a)


def test_sums_of_losses():
    x, y = batch()
    made = [both("losses.ContrastiveLoss()"), both("losses.MultiSimilarityLoss()")]
    mined = [both("miners.MultiSimilarityMiner()"), [None, None]]
    sums = [
        kind([pair[k] for pair in made], [pair[k] for pair in mined], [0.5, 2.0])
        for k, kind in enumerate((losses.MultipleLosses, their_losses.MultipleLosses))
    ]
    same(sums[0](x, y), sums[1](x, y), x)
    same(DistributedLossWrapper(sums[0])(x, y), sums[1](x, y), x)


@pytest.mark.parametrize("split", [False, True])
def test_scores(split):
    pytest.importorskip("faiss")
    x, y = batch(n=60)
    x = x.detach()
    given = (x[:30], y[:30], x[30:], y[30:]) if split else (x, y)
    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    there = TheirCalculator(include=names).get_accuracy(*(part.numpy() for part in given))
    assert AccuracyCalculator(include=names).get_accuracy(*given) == pytest.approx(there, abs=1e-9)
    assert set(AccuracyCalculator(exclude=("NMI",)).get_accuracy(*given)) == {
        *names,
        "AMI",
        "mean_average_precision",
        "mean_reciprocal_rank",
    }


def test_search_with_a_network():
    trunk = torch.nn.Linear(D, 4)
    items, _ = batch(n=30)
    items = items.detach().float()
    ours = InferenceModel(trunk)
    with pytest.raises(ValueError, match="train_knn comes first"):
        ours.get_nearest_neighbors(items[:2], 3)
    ours.train_knn(items[:20], batch_size=8)
    ours.add_to_knn(items[20:])
    d, found = ours.get_nearest_neighbors(items[:5], 3)
    z = torch.nn.functional.normalize(trunk(items)).detach()
    exact = torch.cdist(z[:5], z).square().topk(3, 1, largest=False)
    assert torch.equal(found, exact.indices)
    torch.testing.assert_close(d, exact.values, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="k: 31 neighbors are more than the 30 items"):
        ours.get_nearest_neighbors(items, 31)
    assert ours.is_match(items[:4], items[:4], threshold=0.99).all()


def test_samplers():
    labels = [0] * 3 + [1] * 10 + [2] * 8 + [3] * 9
    ours = samplers.MPerClassSampler(labels, 4, batch_size=8, length_before_new_iter=40)
    assert len(ours) == len(their_samplers.MPerClassSampler(labels, 4, 8, 40))
    drawn = list(ours)
    assert len(drawn) == len(ours)
    for first in range(0, len(drawn), 8):
        classes = [labels[i] for i in drawn[first : first + 8]]
        assert len(set(classes)) == 2
        assert classes[0:4] == classes[:1] * 4


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: losses.NTXentLoss(distance=distances.LpDistance()),
            NotImplementedError,
            "only cosine are here, got eu",
        ),
        (
            lambda: losses.NTXentLoss(distance=distances.SNRDistance()),
            NotImplementedError,
            "SNRDistance with the",
        ),
        (lambda: losses.TripletMarginLoss(triplets_per_anchor=5), NotImplementedError, "only 'all'"),
        (lambda: losses.NCALoss(reducer=reducers.AvgNonZeroReducer()), NotImplementedError, "only mean, none are here"),
        (
            lambda: losses.LiftedStructureLoss()(torch.eye(4), torch.zeros(4), None, torch.eye(4), torch.zeros(4)),
            NotImplementedError,
            "LiftedStructureLoss: ref_emb",
        ),
        (
            lambda: losses.MarginLoss(),
            NotImplementedError,
            "MarginLoss is not here; nearfar.MarginLoss counts each pair",
        ),
        (lambda: miners.DistanceWeightedMiner(), NotImplementedError, "DistanceWeightedMiner is not here"),
        (lambda: losses.NoSuchLoss(), AttributeError, "has no attribute 'NoSuchLoss'"),
        (lambda: losses.ContrastiveLoss(margin=1), TypeError, r"unknown settings \['margin'\]"),
        (lambda: reducers.ThresholdReducer(low=0.5), NotImplementedError, "only low=0 is here"),
        (lambda: miners.BatchEasyHardMiner("semihard", "all"), ValueError, "cannot be used in combination"),
        (lambda: AccuracyCalculator(k=5), NotImplementedError, "k: scores take all neighbors"),
        (lambda: AccuracyCalculator(include=("mAP",)), ValueError, "no score is called 'mAP'"),
        (lambda: losses.CrossBatchMemory(losses.ArcFaceLoss(C, D), D), ValueError, "not supported for ArcFaceLoss"),
        (lambda: losses.NTXentLoss()(torch.eye(4)), ValueError, "labels: needed where there is no indices_tuple"),
        (lambda: losses.NTXentLoss()(torch.eye(4), torch.zeros(3)), ValueError, "must equal number of labels"),
        (lambda: losses.NTXentLoss()(torch.eye(4), None, (torch.zeros(1),)), ValueError, "indices_tuple: expected 3"),
    ],
)
def test_what_cannot_be_expressed_says_so(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_every_name_of_theirs_can_be_imported():
    for ours, there in ((losses, their_losses), (miners, their_miners), (samplers, their_samplers)):
        names = [name for name in vars(there) if name[0].isupper() and not name.endswith("Mixin")]
        assert len(names) > 3
        assert all(isinstance(getattr(ours, name), type) for name in names)


def test_class_weights_under_their_name():
    loss = losses.ArcFaceLoss(C, D)
    assert loss.W.shape == (D, C)
    torch.testing.assert_close(loss.W.T, loss.term.proxies)


def test_single_losses():
    x, y = batch()
    single = losses.TripletMarginLoss(0.2, reducer=reducers.DoNothingReducer())(x, y)
    assert single.shape == (24,)
    torch.testing.assert_close(single.mean(), losses.TripletMarginLoss(0.2)(x, y))
