"""The names of pytorch-metric-learning give its values and gradients on this engine."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("pytorch_metric_learning")

from pytorch_metric_learning import distances as their_distances
from pytorch_metric_learning import losses as their_losses
from pytorch_metric_learning import miners as their_miners
from pytorch_metric_learning import reducers as their_reducers
from pytorch_metric_learning import regularizers as their_regularizers
from pytorch_metric_learning import samplers as their_samplers
from pytorch_metric_learning.utils import loss_and_miner_utils as their_utils
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator as TheirCalculator
from pytorch_metric_learning.utils.inference import MatchFinder as TheirFinder

from nearfar.compat.pytorch_metric_learning import distances, losses, miners, reducers, regularizers, samplers
from nearfar.compat.pytorch_metric_learning.utils import loss_and_miner_utils as utils
from nearfar.compat.pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from nearfar.compat.pytorch_metric_learning.utils.distributed import DistributedLossWrapper
from nearfar.compat.pytorch_metric_learning.utils.inference import CustomKNN, FaissKNN, InferenceModel, MatchFinder
from nearfar.deep.distributed import local as alone

from ..processes import run_in_processes
from .peer_settings import MEANT, drawn, outcome
from .peer_settings import PROXIES as SETTINGS_OF_WEIGHTS

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
    "losses.ArcFaceLoss(C, D, reducer=reducers.ClassWeightedReducer(torch.linspace(0.5, 2, C)))",
    "losses.NormalizedSoftmaxLoss(C, D, distance=distances.DotProductSimilarity(normalize_embeddings=False))",
]
REDUCERS = [
    "reducers.MeanReducer()",
    "reducers.SumReducer()",
    "reducers.ThresholdReducer(low=0.1, high=0.9)",
    "reducers.AvgNonZeroReducer()",
]
OF_PAIRS = [
    "losses.ContrastiveLoss(0.1, 0.9, distance={d}, reducer={r})",
    "losses.TripletMarginLoss(0.2, swap=True, distance={d}, reducer={r})",
    "losses.NTXentLoss(0.2, distance={d}, reducer={r})",
    "losses.MultiSimilarityLoss(distance={d}, reducer={r})",
    "losses.SupConLoss(0.2, distance={d}, reducer={r})",
    "losses.IntraPairVarianceLoss(distance={d}, reducer={r})",
    "losses.NCALoss(distance={d}, reducer={r})",
    "losses.GeneralizedLiftedStructureLoss(pos_margin=0.1, distance={d}, reducer={r})",
    "losses.LiftedStructureLoss(pos_margin=0.1, distance={d}, reducer={r})",
    "losses.CircleLoss(reducer={r})",
    "losses.TupletMarginLoss(reducer={r})",
]
MORE = [
    "losses.AngularLoss()",
    "losses.MarginLoss()",
    "losses.MarginLoss(nu=0.1, learn_beta=True)",
    "losses.MarginLoss(nu=0.1, learn_beta=True, num_classes=6)",
    "losses.MarginLoss(distance=distances.CosineSimilarity(), beta=0.4)",
    "losses.MarginLoss(reducer=reducers.MeanReducer())",
    "losses.NPairsLoss()",
    "losses.InstanceLoss()",
    "losses.RankedListLoss(0.4, 10, Tp=2)",
    "losses.PNPLoss(variant='Dq')",
    "losses.PNPLoss(variant='Ib')",
    "losses.ThresholdConsistentMarginLoss(lambda_plus=2, lambda_minus=0.5)",
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
    return [eval(text, {**names, "C": C, "D": D, "torch": torch}) for names in (OURS, THEIRS)]


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


LISTS = [*PAIRS, "losses.AngularLoss()", "losses.ThresholdConsistentMarginLoss()", "losses.HistogramLoss(n_bins=64)"]
LISTS += ["losses.FastAPLoss()", "losses.MarginLoss()", "losses.ContrastiveLoss(reducer=reducers.SumReducer())"]
NEED_LABELS = ("NCA", "Angular", "FastAP")


@pytest.mark.parametrize("text", LISTS)
def test_losses_of_mined_triplets(text):
    x, y = batch()
    ours, there = both(text)
    found = their_miners.TripletMarginMiner(0.3)(x, y)
    assert len(torch.unique(torch.stack(found[:2]), dim=1).T) < len(found[0])  # pairs are listed several times
    same(ours(x, y, found), there(x, y, found), x)
    if not any(name in text for name in NEED_LABELS):
        same(ours(x, indices_tuple=found), there(x, indices_tuple=found), x)


@pytest.mark.parametrize("text", LISTS)
def test_pairs_that_are_listed_several_times(text):
    x, y = batch()
    ours, there = both(text)
    a, p, b, n = their_miners.MultiSimilarityMiner()(x, y)
    found = torch.cat([a, a[:5]]), torch.cat([p, p[:5]]), torch.cat([b, b[:9]]), torch.cat([n, n[:9]])
    same(ours(x, y, found), there(x, y, found), x)


@pytest.mark.parametrize("text", ["losses.AngularLoss()", "losses.FastAPLoss()", "losses.NTXentLoss()"])
def test_indices_without_dissimilar_pairs(text):
    x, y = batch()
    ours, there = both(text)
    a, p, _, _ = their_miners.MultiSimilarityMiner()(x, y)
    none = a[:0]
    same(ours(x, y, (a, p, none, none)), there(x, y, (a, p, none, none)), x)


def give(ours, there):
    there.double()
    ours.double().load_state_dict(there.state_dict())


@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize("text", OF_PAIRS)
def test_losses_with_any_distance_and_reducer(text, reducer):
    x, y = batch()
    for distance in ("distances.LpDistance(p=1)", "distances.CosineSimilarity()"):
        if "{d}" in text or "Cosine" in distance:
            ours, there = both(text.format(d=distance, r=reducer))
            same(ours(x, y), there(x, y), x)


@pytest.mark.parametrize("text", OF_PAIRS)
def test_losses_with_any_distance_and_references(text):
    x, y = batch()
    ref, ref_y = batch(1, 15)
    found = their_miners.MultiSimilarityMiner()(x, y, ref, ref_y)
    ours, there = both(text.format(d="distances.LpDistance(p=3)", r="reducers.MeanReducer()"))
    value = ours(x, y, found, ref, ref_y)
    if "LiftedStructureLoss(pos" in text or "swap" in text:  # these find other samples by the numbers of references
        assert value.isfinite()
    else:
        same(value, there(x, y, found, ref, ref_y), x)


@pytest.mark.parametrize("text", MORE)
def test_more_losses(text):
    x, y = batch()
    ours, there = both(text)
    same(ours(x, y), there(x, y), x)


@pytest.mark.parametrize("text", ["losses.CircleLoss({r})", "losses.NTXentLoss({r})", "losses.TripletMarginLoss({r})"])
def test_losses_weighted_by_class(text):
    x, y = batch()
    weights = torch.linspace(0.5, 2, C, dtype=torch.float64)
    value = eval(text.format(r="reducer=reducers.ClassWeightedReducer(weights)"), {**OURS, "weights": weights})(x, y)
    single = both(text.format(r="reducer=reducers.DoNothingReducer()"))[1](x, y)["loss"]
    anchors = single["indices"][0] if isinstance(single["indices"], tuple) else single["indices"]
    # the other library multiplies the (n, 1) losses of some methods with (n,) weights, an (n, n) matrix
    same(value, (single["losses"].flatten() * weights[y[anchors]]).mean(), x)


def test_losses_of_anchors():
    x, y = batch()
    ours, there = both("losses.NTXentLoss(0.2, reducer=reducers.PerAnchorReducer(reducers.AvgNonZeroReducer()))")
    same(ours(x, y), there(x, y), x)
    with pytest.raises(NotImplementedError, match="losses of triplets are not supported"):
        losses.TripletMarginLoss(reducer=reducers.PerAnchorReducer())(x, y)


def test_mined_margins():
    x, y = batch()
    ours, there = both("losses.MarginLoss(nu=0.1, learn_beta=True, num_classes=6)")
    found = their_miners.TripletMarginMiner(0.3)(x, y)
    same(ours(x, y, found), there(x, y, found), x)
    with pytest.raises(ValueError, match="labels are needed with num_classes"):
        ours(x, indices_tuple=found)


def test_views_without_labels():
    a, b = batch()[0], batch(1)[0]
    ours, there = both("losses.VICRegLoss()")
    same(ours(a, ref_emb=b), there(a, ref_emb=b), a)
    with pytest.raises(ValueError, match="ref_emb is the second view"):
        ours(a)


def test_proxies_of_a_random_walk():
    x, _ = batch()
    ours, there = both("losses.ManifoldLoss(D, K=4, margin=0.01)")
    give(ours, there)
    own = torch.arange(24) % 4
    torch.testing.assert_close(ours(x, indices_tuple=own), there(x, indices_tuple=own), rtol=1e-5, atol=1e-7)
    assert ours(x).isfinite()


def test_two_steps_of_a_dynamic_margin():
    ours, there = both("losses.DynamicSoftMarginLoss()")
    x, y = batch()
    torch.testing.assert_close(ours(x, y), there(x, y), rtol=1e-6, atol=1e-6)
    first = ours.histogram.clone()
    ours(x, y).backward()
    ours(x, y).backward()  # the first step's graph is not needed
    torch.testing.assert_close(ours.histogram, first, rtol=1e-4, atol=1e-4)


def test_one_class():
    x, _ = batch()
    y = torch.zeros(24, dtype=torch.int64)
    for name in ("SupConLoss", "NTXentLoss", "TripletMarginLoss", "CircleLoss", "MarginLoss", "AngularLoss"):
        ours, there = both(f"losses.{name}()")
        torch.testing.assert_close(ours(x, y), there(x, y), check_dtype=False)


def test_losses_of_your_own():
    class Mine(losses.GenericPairLoss):
        def _compute_loss(self, pos_pairs, neg_pairs, indices_tuple):
            a1, p, _, _ = indices_tuple
            return {"loss": {"losses": pos_pairs, "indices": (a1, p), "reduction_type": "pos_pair"}}

    x, y = batch()
    d = distances.LpDistance()(x)
    pairs = (y[:, None] == y) & ~torch.eye(24, dtype=torch.bool)
    torch.testing.assert_close(Mine(mat_based_loss=False)(x, y), d[pairs].mean())


@pytest.mark.parametrize("mined", [False, True])
@pytest.mark.parametrize("text", PROXIES)
def test_losses_with_class_weights(text, mined):
    x, y = batch()
    ours, there = both(text)
    give(ours, there)
    found = their_miners.BatchHardMiner()(x, y) if mined else None
    same(ours(x, y, found), there(x, y, found), x)
    weights = [next(iter(loss.parameters())) for loss in (ours, there)]
    slopes = [torch.autograd.grad(loss(x, y), w)[0] for loss, w in zip((ours, there), weights, strict=True)]
    torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(ours.get_logits(x), there.get_logits(x))


def test_proxy_anchor():
    x, y = batch()
    ours, there = both("losses.ProxyAnchorLoss(C, D)")
    give(ours, there)
    same(ours(x, y), there(x, y), x)
    found = their_miners.BatchHardMiner()(x, y)
    same(ours(x, y, found), there(x, y, found), x)
    summed = both("losses.ProxyAnchorLoss(C, D, reducer=reducers.SumReducer())")
    give(*summed)
    same(summed[0](x, y), summed[1](x, y), x)


def test_squared_cosines():
    x, y = batch()
    ours, there = both("losses.P2SGradLoss(D, C)")
    give(ours, there)
    torch.testing.assert_close(ours(x, y), there(x, y), rtol=1e-6, atol=1e-7)  # theirs scales by steps of 1e-5


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("text", MINERS)
def test_miners(text, reference):
    x, y = batch()
    ours, there = both(text)
    more = batch(1, 15) if reference else ()
    assert_same_indices(ours(x, y, *more), there(x, y, *more))


def assert_same_indices(one, other):
    assert len(one) == len(other)
    halves = [slice(0, 3)] if len(one) == 3 else [slice(0, 2), slice(2, 4)]
    for half in halves:
        found = [sorted(zip(*(part.tolist() for part in indices[half]), strict=True)) for indices in (one, other)]
        assert found[0] == found[1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_miners_of_any_distance_in_half_precision(dtype):
    x, y = batch()
    miner = miners.BatchHardMiner(distance=distances.LpDistance(p=1))
    assert [len(part) for part in miner(x.to(dtype), y)] == [24, 24, 24]


def test_pairs_of_an_empty_batch():
    x, y = batch(n=0)
    assert [len(part) for part in miners.MultiSimilarityMiner()(x, y)] == [0, 0, 0, 0]


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
    with pytest.raises(ValueError, match="no references; call train_knn first"):
        ours.get_nearest_neighbors(items[:2], 3)
    ours.train_knn(items[:20], batch_size=8)
    ours.add_to_knn(items[20:])
    d, found = ours.get_nearest_neighbors(items[:5], 3)
    z = torch.nn.functional.normalize(trunk(items)).detach()
    exact = torch.cdist(z[:5], z).square().topk(3, 1, largest=False)
    assert torch.equal(found, exact.indices)
    torch.testing.assert_close(d, exact.values, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="k: expected at most 30, the number of items, got 31"):
        ours.get_nearest_neighbors(items, 31)
    assert ours.is_match(items[:4], items[:4], threshold=0.99).all()
    assert ours.is_match(items[0:1], items[0:1]) is True  # with the threshold that the other library has by default
    found = ours.get_matches(items[:4])
    assert isinstance(found, np.ndarray)
    assert found.diagonal().all()


def test_references_of_a_search_are_saved(tmp_path):
    items = batch(n=30)[0].detach().float()
    ours = InferenceModel(torch.nn.Linear(D, 4))
    ours.knn_func.train(items.numpy()[:, :4])
    ours.save_knn_func(tmp_path / "items.safetensors")
    again = InferenceModel(ours.trunk)
    again.load_knn_func(tmp_path / "items.safetensors")
    assert torch.equal(again.get_nearest_neighbors(items, 3)[1], ours.get_nearest_neighbors(items, 3)[1])
    with pytest.raises(ValueError, match="no references to save; call train first"):
        InferenceModel(ours.trunk).save_knn_func(tmp_path / "none.safetensors")


def test_references_are_added_where_the_others_are():
    search = FaissKNN()
    search.train(torch.ones(3, 2, device="meta"))
    search.add(np.ones((2, 2)))
    assert search.index.device.type == "meta"
    assert len(search.index) == 5


def test_items_are_put_where_the_network_is():
    ours = InferenceModel(torch.nn.Linear(D, 4, device="meta"))
    assert ours.get_embeddings(torch.randn(3, D)).device.type == "meta"


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


@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.parametrize("labels", [[0] * 3 + [1] * 10 + [2] * 8, [7, 2, 2, -1, 7, 2, -1, -1, 7] * 3, list("dbbaddc")])
def test_seeded_sampler_draws_what_the_original_draws(labels, batch_size):
    drawn = []
    for module in (samplers, their_samplers):
        sampler = module.MPerClassSampler(labels, 4, batch_size=batch_size, length_before_new_iter=40)
        np.random.seed(0)  # noqa: NPY002  # which the original draws from
        drawn.append([list(sampler), list(sampler)])
    assert drawn[0] == drawn[1]


def test_sampler_of_fixed_triplets():
    labels = np.array([0] * 3 + [1] * 1 + [2] * 8)
    ours = samplers.FixedSetOfTriplets(labels, 50)
    drawn = np.array(list(ours)).reshape(50, 3)
    assert len(ours) == 150
    assert (labels[drawn[:, 0]] == labels[drawn[:, 1]]).all()
    assert (labels[drawn[:, 0]] != labels[drawn[:, 2]]).all()
    assert (drawn[:, 0] != drawn[:, 1]).all()
    again = np.array(list(ours)).reshape(50, 3)
    assert sorted(map(tuple, drawn)) == sorted(map(tuple, again))
    with pytest.raises(ValueError, match="labels: expected two classes, one of them with two samples"):
        samplers.FixedSetOfTriplets([0, 1], 5)


def test_sampler_of_groups():
    classes = np.repeat(np.arange(12), 5)
    groups = classes // 3
    labels = np.stack([classes, groups], axis=1)
    ours = samplers.HierarchicalSampler(labels, 12, 2, batches_per_super_tuple=3)
    batches = list(ours)
    assert len(ours) == len(batches) == 18
    for found in batches:
        assert np.unique(groups[found], return_counts=True)[1].tolist() == [6, 6]
        assert (np.unique(classes[found], return_counts=True)[1] == 2).all()
    tuples = [tuple(np.unique(groups[found])) for found in batches]
    assert all(tuples.count(pair) == 3 for pair in tuples)
    whole = samplers.HierarchicalSampler(labels, 20, "all")
    assert all(len(np.unique(classes[found])) == 4 for found in whole)
    with pytest.raises(ValueError, match="must be a multiple of 2 groups times 2 samples, got 14"):
        samplers.HierarchicalSampler(labels, 14, 2)


def test_distance_weighted_triplets():
    torch.manual_seed(0)
    angle = torch.linspace(0, 3, 200, dtype=torch.float64)
    x = torch.stack([angle.cos(), angle.sin()], dim=1)
    y = torch.arange(200) % 2
    a, p, n = miners.DistanceWeightedMiner(0, 1.2)(x, y)
    assert len(a) == 200 * 99
    assert (y[a] == y[p]).all()
    assert (y[a] != y[n]).all()
    d = (x[a] - x[n]).norm(dim=1)
    assert d.max() < 1.2
    assert d.histc(6, 0, 1.2).min() > 0.7 * len(d) / 6  # all distances come about equally often
    assert not len(miners.DistanceWeightedMiner(0.1, 0.001)(x, y)[0])
    with pytest.raises(ValueError, match="must be an LpDistance with p=2"):
        miners.DistanceWeightedMiner(distance=distances.CosineSimilarity())


def same_tuples(ours, there):
    return len(ours) == len(there) and all(torch.equal(one, other) for one, other in zip(ours, there, strict=True))


@pytest.mark.parametrize("reference", [False, True])
def test_tuples_of_indices(reference):
    _, y = batch()
    ref_y = batch(1, 15)[1] if reference else None
    pairs = utils.get_all_pairs_indices(y, ref_y)
    assert same_tuples(pairs, their_utils.get_all_pairs_indices(y, ref_y))
    assert same_tuples(utils.get_all_triplets_indices(y, ref_y), their_utils.get_all_triplets_indices(y, ref_y))
    some = tuple(part[::3] for part in pairs)
    assert same_tuples(utils.convert_to_triplets(some, y), their_utils.convert_to_triplets(some, y))
    for number in (None, 5):
        a, p, n = utils.get_random_triplet_indices(y, ref_y, t_per_anchor=number)
        others = y if ref_y is None else ref_y
        assert len(a)
        assert (y[a] == others[p]).all()
        assert (y[a] != others[n]).all()


@pytest.mark.parametrize(
    "settings", [{"k": 3}, {"k": "max_bin_count"}, {"avg_of_avgs": True}, {"return_per_class": True}]
)
def test_scores_from_neighbors(settings):
    pytest.importorskip("faiss")
    x, y = batch(n=60)
    ref, ref_y = batch(1, 50)
    given = [part.detach().numpy() for part in (x, y, ref, ref_y)]
    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r", "mean_average_precision")
    ours = AccuracyCalculator(include=(*names, "mean_reciprocal_rank"), **settings)
    there = TheirCalculator(include=(*names, "mean_reciprocal_rank"), **settings)
    for arguments in (given, given[:2]):
        one, other = ours.get_accuracy(*arguments), there.get_accuracy(*arguments)
        assert set(one) == set(other)
        for name in one:
            assert one[name] == pytest.approx(other[name], abs=1e-6)


def test_clusters_of_single_samples():
    x = torch.arange(5.0)[:, None]
    assert AccuracyCalculator(include=("NMI", "AMI")).get_accuracy(x, torch.arange(5)) == {"NMI": 1, "AMI": 1}


def test_as_many_neighbors_as_the_largest_class_of_a_query():
    pytest.importorskip("faiss")
    x, y = batch(n=20)
    ref, ref_y = batch(1, 60)
    ref_y = torch.where(torch.arange(60) < 40, C, ref_y)  # most references are of a class that no query has
    given = [part.detach().numpy() for part in (x, y, ref, ref_y)]
    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r", "mean_average_precision")
    made = [kind(include=names, k="max_bin_count") for kind in (AccuracyCalculator, TheirCalculator)]
    ours, there = (calculator.get_accuracy(*given) for calculator in made)
    assert ours == pytest.approx(there, abs=1e-6)


def test_scores_by_a_comparison_of_labels():
    pytest.importorskip("faiss")
    x, y = batch(n=40)
    labels = torch.stack([y, torch.arange(40) % 3], dim=1).numpy()

    def alike(a, b):
        return (a[..., 0] == b[..., 0]) & (a[..., 1] != b[..., 1])

    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    made = [kind(include=names, label_comparison_fn=alike) for kind in (AccuracyCalculator, TheirCalculator)]
    rows = x.detach().numpy()
    given = (rows[:20], labels[:20], rows[20:], labels[20:])
    ours, there = (calculator.get_accuracy(*given) for calculator in made)
    assert ours == pytest.approx(there, abs=1e-6)


def test_neighbors_of_coinciding_rows_leave_out_the_query():
    x = torch.zeros(6, 2)
    d, found = CustomKNN(distances.LpDistance(normalize_embeddings=False))(x, 3, x, ref_includes_query=True)
    assert found.shape == d.shape == (6, 3)
    assert not (found == torch.arange(6)[:, None]).any()


def test_matches():
    x, ref = batch()[0].detach(), batch(1)[0].detach()
    ours, there = both("distances.CosineSimilarity()")
    finders = [MatchFinder(ours, 0.5), TheirFinder(there, 0.5)]
    pairs = [np.asarray(finder.get_matching_pairs(x, ref)) for finder in finders]
    assert (pairs[0] == pairs[1]).all()
    x, ref = torch.nn.functional.normalize(x), torch.nn.functional.normalize(ref)  # theirs takes unit rows only
    rows = [finder.is_match(x, ref) for finder in finders]
    assert (rows[0] == rows[1]).all()


def test_statistics_are_not_collected():
    with pytest.warns(UserWarning, match="no statistics are collected here"):
        losses.TripletMarginLoss(collect_stats=True)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: losses.CircleLoss(distance=distances.LpDistance()), ValueError, "must be CosineSim"),
        (
            lambda: losses.HistogramLoss(reducer=reducers.SumReducer()),
            NotImplementedError,
            "expected mean, got Sum",
        ),
        (lambda: losses.HistogramLoss(n_bins=10, delta=0.4), AssertionError, "delta must be 2 / n_bins"),
        (lambda: losses.RankedListLoss(1, 0, imbalance=2), AssertionError, "imbalance must be between 0 and 1"),
        (lambda: losses.HistogramLoss()(torch.eye(4), torch.zeros(4), ref_emb=torch.eye(4)), ValueError, "ref_emb is"),
        (lambda: losses.InstanceLoss()(torch.eye(4), torch.zeros(4), ()), ValueError, "indices_tuple is not supported"),
        (lambda: losses.PNPLoss()(torch.eye(4), torch.zeros(4), ()), ValueError, "indices_tuple is not supported"),
        (lambda: losses.FastAPLoss()(torch.eye(4), torch.zeros(4), ref_emb=torch.eye(4)), ValueError, "ref_emb is"),
        (lambda: losses.NCALoss()(torch.eye(4), indices_tuple=()), ValueError, "NCALoss: labels are needed"),
        (
            lambda: losses.SmoothAPLoss(),
            NotImplementedError,
            "SmoothAPLoss is not supported; that of 2.9 ranks a query",
        ),
        (lambda: samplers.TuplesToWeightsSampler(), NotImplementedError, "TuplesToWeightsSampler is not supported"),
        (
            lambda: regularizers.LpRegularizer(reducer=reducers.SumReducer()),
            NotImplementedError,
            "only the default works",
        ),
        (lambda: FaissKNN(gpus=[0]), NotImplementedError, "gpus: not supported, because vectors are compared"),
        (lambda: losses.NoSuchLoss(), AttributeError, "has no attribute 'NoSuchLoss'"),
        (lambda: losses.ContrastiveLoss(margin=1), TypeError, r"unknown settings \['margin'\]"),
        (lambda: reducers.ThresholdReducer(), ValueError, "at least one of low and high"),
        (lambda: miners.BatchEasyHardMiner("semihard", "all"), ValueError, "cannot be used in combination"),
        (lambda: AccuracyCalculator(k=1.5), ValueError, "k must be a positive integer"),
        (lambda: AccuracyCalculator(avg_of_avgs=True, return_per_class=True), ValueError, "cannot both be True"),
        (lambda: AccuracyCalculator(include=("mAP",)), ValueError, "unknown score 'mAP'"),
        (lambda: losses.CrossBatchMemory(losses.ArcFaceLoss(C, D), D), ValueError, "not supported for ArcFaceLoss"),
        (lambda: losses.ArcFaceLoss(C, D, margin=-10), ValueError, "margin is in degrees, from 0 to 180, got -10"),
        (lambda: losses.NTXentLoss()(torch.eye(4)), ValueError, "labels: needed without indices_tuple"),
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
    for text in [*PROXIES, "losses.ProxyAnchorLoss(C, D)", "losses.P2SGradLoss(D, C)"]:
        ours, there = [{name: value.shape for name, value in loss.state_dict().items()} for loss in both(text)]
        assert ours == there


@pytest.mark.parametrize("text", ["losses.MarginLoss()", "losses.DynamicSoftMarginLoss()"])
def test_checkpoints_without_constants_load(text):
    ours, there = both(text)
    assert not there.state_dict()
    ours.load_state_dict(there.state_dict())


def test_progress_of_a_dynamic_margin_is_saved():
    x, y = batch()
    first, second = both("losses.DynamicSoftMarginLoss()")[0], both("losses.DynamicSoftMarginLoss()")[0]
    first(x, y)
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(first.histogram, second.histogram, check_dtype=False)


def test_outliers_of_several_centers():
    x, y = batch(n=60)
    ours, there = both("losses.SubCenterArcFaceLoss(num_classes=C, embedding_size=D)")
    give(ours, there)
    outliers, centers = ours.get_outliers(x, y, threshold=80)
    expected, expected_centers = there.get_outliers(x, y, threshold=80)
    assert sorted(outliers.tolist()) == sorted(expected.tolist())
    torch.testing.assert_close(centers, expected_centers)


def test_single_losses():
    x, y = batch()
    ours, there = both("losses.TripletMarginLoss(0.2, reducer=reducers.DoNothingReducer())")
    one, other = ours(x, y)["loss"], there(x, y)["loss"]
    torch.testing.assert_close(one["losses"], other["losses"])
    assert same_tuples(one["indices"], other["indices"])
    assert one["reduction_type"] == other["reduction_type"] == "triplet"


@pytest.mark.parametrize("text", ["losses.TripletMarginLoss()", "losses.ArcFaceLoss(4, 8)", "losses.SupConLoss()"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_whole_numbers_in_a_tensor_of_floats_are_labels(text, dtype):
    torch.manual_seed(0)
    loss = eval(text, OURS)  # a text of this file
    x, y = torch.randn(16, 8), torch.arange(16) // 4
    torch.testing.assert_close(loss(x, y.to(dtype)), loss(x, y), rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"labels: expected whole numbers, one for each class, got 0\.5"):
        loss(x, y.to(dtype) + 0.5)


KINDS_OF_NUMBERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint32, torch.float32]


@pytest.mark.parametrize("text", [*PAIRS, *WITHOUT_INDICES, *MORE, "losses.ArcFaceLoss(C, D)"])
def test_labels_are_numbers_of_any_kind(text):
    x, y = batch(n=12)
    loss, _ = both(text)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        expected = loss(x, y)
        for kind in KINDS_OF_NUMBERS:
            torch.manual_seed(0)
            torch.testing.assert_close(loss(x, y.to(kind)), expected, rtol=0, atol=0)


SELF = [text for text in OF_PAIRS if "Circle" not in text and "Tuplet" not in text]


@pytest.mark.parametrize("distance", ["None", "distances.LpDistance(p=3)"])
@pytest.mark.parametrize("text", SELF)
def test_samples_are_their_own_references_only_as_the_very_tensors(text, distance):
    x, y = batch(n=16)
    y = y.int()
    other = x.detach().flip(0)
    ours, there = both(text.format(d=distance, r="None"))
    same(ours(x, y, ref_emb=x, ref_labels=y), ours(x, y), x)
    same(ours(x, y, ref_emb=x, ref_labels=y.clone()), ours(x, y, ref_emb=x.clone(), ref_labels=y.clone()), x)
    same(ours(x, y, ref_emb=other, ref_labels=y), ours(x, y, ref_emb=other, ref_labels=y.clone()), x)
    if "Triplet" not in text and "Lifted" not in text:
        torch.testing.assert_close(ours(x, y, ref_emb=other, ref_labels=y), there(x, y, None, other, y.clone()))


# HDCMiner chooses among equal distances; MultiSimilarityMiner leaves out the diagonal of the very tensors
@pytest.mark.parametrize("text", [text for text in MINERS if "HDC" not in text and "MultiSim" not in text])
def test_miners_read_the_labels_of_references_that_are_the_samples(text):
    x, y = batch(n=16)
    moved = (y + torch.arange(16) % 2) % C
    ours, there = both(text)
    assert_same_indices(ours(x, y, x, moved), there(x, y, x, moved))


def test_references_and_miners_take_whole_numbers_too():
    torch.manual_seed(0)
    loss, x, y, ref = losses.TripletMarginLoss(), torch.randn(16, 8), torch.arange(16) // 4, torch.randn(16, 8)
    assert loss(x, y, ref_emb=ref, ref_labels=y.float()) == loss(x, y, ref_emb=ref, ref_labels=y)
    found = [miners.BatchHardMiner()(x, labels) for labels in (y, y.float())]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("name", ["trainers", "testers", "datasets", "utils.logging_presets"])
def test_a_module_that_is_not_here_says_what_to_use_instead(name):
    package, _, module = f"nearfar.compat.pytorch_metric_learning.{name}".rpartition(".")
    with pytest.raises(ImportError, match=rf"has no {module}: .*docs/switching\.md#what-is-missing"):
        exec(f"from {package} import {module}")
    with pytest.raises(ImportError, match="cannot import name"):
        exec(f"from {package} import nothing")


@pytest.mark.parametrize(
    "text", ["miners.TripletMarginMiner(0.2, type_of_triplets='semihard')", "miners.PairMarginMiner()"]
)
def test_miners_count_what_they_found_as_scripts_print_it(text):
    x, y = torch.randn(16, 8, generator=torch.Generator().manual_seed(0)), torch.arange(16) // 4
    ours, other = eval(text, OURS), eval(text, THEIRS)
    for miner in (ours, other):
        miner(x, y)
    for name in ("num_triplets", "num_pos_pairs", "num_neg_pairs"):
        assert getattr(ours, name) == getattr(other, name, 0), name
    assert ours.num_triplets + ours.num_pos_pairs > 0


def test_indices_are_put_where_the_embeddings_are():
    class Listing(losses.BaseMetricLossFunction):
        def compute_loss(self, embeddings, labels, indices_tuple, ref_emb, ref_labels):
            assert {part.device.type for part in indices_tuple} == {"meta"}
            return self.zero_losses()

    x = torch.ones(4, 2, device="meta")
    assert Listing()(x, indices_tuple=(torch.arange(2),) * 3).device.type == "meta"


def compat_value(text, x, y, **more):
    torch.manual_seed(0)
    loss = eval(text, {**OURS, "C": C, "D": D, "torch": torch}).double()
    return loss, loss(x, y, **more)


SHARED = [
    "losses.MultiSimilarityLoss()",
    "losses.SupConLoss()",
    "losses.ArcFaceLoss(C, D, reducer=reducers.SumReducer())",
    "losses.NormalizedSoftmaxLoss(C, D, embedding_regularizer=regularizers.LpRegularizer())",
    "losses.TripletMarginLoss(0.2, reducer=reducers.ClassWeightedReducer(torch.linspace(0.5, 2, C)))",
]
SHARED_WITH_INDICES = [
    "losses.ContrastiveLoss()",
    "losses.MultiSimilarityLoss()",
    "losses.FastAPLoss()",
    "losses.NCALoss()",
    "losses.ArcFaceLoss(C, D)",
    "losses.TripletMarginLoss(0.2)",
    "losses.TripletMarginLoss(0.2, distance=distances.LpDistance(p=1))",
    "losses.TripletMarginLoss(0.2, reducer=reducers.ThresholdReducer(low=0.1))",
]


def shared_batch():
    x = batch()[0].detach()
    return x, (torch.arange(24) >= 10).long()  # each of two processes holds one class


def shared_indices(own):
    """Return triplets within the part of a process: every third sample is said to be dissimilar to the others."""
    labels = torch.arange(10 if own == 0 else 14) % 3
    a, p, n = utils.get_all_triplets_indices(labels)
    return a[own::2], p[own::2], n[own::2]


def shared_losses(rank, world):
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    own = slice(0, 10) if rank == 0 else slice(10, 24)  # parts of unequal size
    for indices in (None, shared_indices(rank)):
        for text in SHARED if indices is None else SHARED_WITH_INDICES:
            x, y = shared_batch()
            part = x[own].clone().requires_grad_()
            loss, value = compat_value(text, part, y[own], indices_tuple=indices)
            value.backward()
            x.requires_grad_()
            with alone():
                every = indices
                if indices is not None:
                    both_parts = zip(shared_indices(0), shared_indices(1), strict=True)
                    every = tuple(torch.cat([one, other + 10]) for one, other in both_parts)
                expected_loss, expected = compat_value(text, x, y, indices_tuple=every)
                expected.backward()
            torch.testing.assert_close(value, expected, msg=text)
            torch.testing.assert_close(part.grad / world, x.grad[own], msg=text)
            for one, other in zip(loss.parameters(), expected_loss.parameters(), strict=True):
                torch.distributed.all_reduce(one.grad)
                torch.testing.assert_close(one.grad / world, other.grad, msg=text)
    memory = losses.CrossBatchMemory(losses.ContrastiveLoss(), D, memory_size=60)
    expected_memory = losses.CrossBatchMemory(losses.ContrastiveLoss(), D, memory_size=60)
    for step in range(4):
        x, y = batch(step)
        x = x.detach()
        part = x[own].clone().requires_grad_()
        value = DistributedLossWrapper(memory)(part, y[own])
        value.backward()
        with alone():
            x.requires_grad_()
            expected = expected_memory(x, y)
            expected.backward()
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(part.grad / world, x.grad[own])


@pytest.mark.parametrize("start", range(0, 300, 15))
def test_random_settings_differ_only_as_the_page_on_switching_says(start):
    """`tools/fuzz_peer.py` runs more."""
    found = {seed: outcome(drawn(seed)) for seed in range(start, start + 15)}
    assert not {seed: details for seed, (word, details) in found.items() if word == "differ"}
    assert "equal" in {word for word, _ in found.values()}


def test_what_differs_on_purpose_is_on_the_page_on_switching():
    page = (Path(__file__).parents[2] / "docs/switching.md").read_text()
    table = page.partition("### Intentional differences")[2].partition("### ")[0]
    assert [words for words in MEANT if f"| {words}" not in table] == []


AS_THEIRS = [  # a setting, and how the loss is called
    ("losses.PNPLoss(anneal=0.1)", {"labels": [0, 0, 1, 1, 1, 2, 3, 4]}),
    ("losses.SupConLoss()", {"labels": [0, 0, 1, 1, 2, 2, 3, 3], "pairs": ([0, 2, 4], [1, 3, 5], [0, 2], [4, 6])}),
    (
        "losses.LiftedStructureLoss()",
        {"labels": [0, 0, 1, 1, 2, 2, 3, 3], "pairs": ([0, 2, 4], [1, 3, 5], [0, 1], [4, 6])},
    ),
    ("losses.HistogramLoss(n_bins=64)", {"labels": [0, 0, 1, 1, 1, 2, 3, 4]}),
    ("losses.TripletMarginLoss(0.2, distance=distances.LpDistance(power=0.5))", {"labels": [0, 0, 1, 1, 2, 2, 3, 3]}),
    ("losses.ContrastiveLoss()", {"labels": [-1, -1, 0, 0, 1, 1, -1, 2]}),
]


@pytest.mark.parametrize(("text", "call"), AS_THEIRS)
def test_calls_that_differed_once(text, call):
    x, _ = batch(n=8)
    y = torch.tensor(call["labels"])
    indices = tuple(torch.tensor(part) for part in call["pairs"]) if "pairs" in call else None
    ours, there = both(text)
    one, other = ours(x, y, indices), there(x, y, indices)
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)  # SupConLoss divides by the number plus 1e-5 there
    grads = [torch.autograd.grad(value, x)[0] for value in (one, other)]
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", [*SETTINGS_OF_WEIGHTS, "HistogramLoss", "PNPLoss", "ThresholdConsistentMarginLoss"])
@pytest.mark.parametrize("distance", ["CosineSimilarity(power=2)", "CosineSimilarity(p=1)"])
def test_other_cosines_are_taken_or_refused(name, distance):
    sizes = "num_classes=C, embedding_size=D, " if name in SETTINGS_OF_WEIGHTS else ""
    text = f"losses.{name}({sizes}distance=distances.{distance})"
    if name == "NormalizedSoftmaxLoss":
        x, y = batch(n=12)
        ours, there = both(text)
        give(ours, there)
        same(ours(x, y % C), there(x, y % C), x)
        return
    with pytest.raises(NotImplementedError, match=f"{name}: distance: only "):
        both(text)


@pytest.mark.parametrize("number", range(9))
def test_a_memory_of_few_or_no_new_samples(number):
    x, y = batch(n=8)
    values = []
    for module in (losses, their_losses):
        memory = module.CrossBatchMemory(module.NCALoss(), D, 32).double()
        values.append(memory(x, y) + memory(x, y, enqueue_mask=torch.arange(8) < number))
    assert values[0].isfinite()
    if number > 0 and not values[1].isnan():
        torch.testing.assert_close(*values)


def test_class_weights_have_classes_from_0():
    with pytest.raises(ValueError, match=r"ArcFaceLoss: labels: expected classes from 0 to 5, got -1"):
        losses.ArcFaceLoss(C, D)(torch.randn(3, D), torch.tensor([0, 1, -1]))


def shared_weights(rank, world):
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    own = slice(0, 10) if rank == 0 else slice(10, 24)
    for text in ("losses.ArcFaceLoss(C, D)", "losses.ProxyAnchorLoss(C, D)", "losses.MarginLoss(learn_beta=True)"):
        wrapped, single = [], []
        for steps in (wrapped, single):
            torch.manual_seed(0)
            loss = eval(text, {**OURS, "C": C, "D": D}).double()
            optimizer = torch.optim.SGD(loss.parameters(), lr=0.1)
            for step in range(5):
                x, y = batch(step)
                optimizer.zero_grad()
                if steps is wrapped:
                    DistributedLossWrapper(loss)(x[own].detach(), y[own]).backward()
                else:
                    with alone():
                        loss(x.detach(), y).backward()
                optimizer.step()
            steps += [parameter.detach() for parameter in loss.parameters()]
        torch.testing.assert_close(wrapped, single, msg=text)  # in each process, and so the same in all
    empty = slice(0, 24) if rank == 0 else slice(24, 24)  # a process without samples keeps no other waiting
    x, y = batch()
    loss = losses.ArcFaceLoss(C, D).double()
    DistributedLossWrapper(loss)(x[empty].detach(), y[empty]).backward()
    assert loss.W.grad.any()


def test_parameters_are_the_same_in_all_processes():
    run_in_processes(shared_weights, 2)


def test_several_processes_share_a_batch():
    run_in_processes(shared_losses, 2)
