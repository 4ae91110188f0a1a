"""Losses, called ``loss(embeddings, labels, indices_tuple, ref_emb, ref_labels)``."""

from ..absent import Absent, find
from .base import BaseMetricLossFunction
from .batches import InstanceLoss, ManifoldLoss, NCALoss, NPairsLoss, PNPLoss, RankedListLoss, VICRegLoss
from .pairs import (
    CircleLoss,
    ContrastiveLoss,
    FastAPLoss,
    GeneralizedLiftedStructureLoss,
    GenericPairLoss,
    HistogramLoss,
    IntraPairVarianceLoss,
    LiftedStructureLoss,
    MultiSimilarityLoss,
    NTXentLoss,
    SignalToNoiseRatioContrastiveLoss,
    SupConLoss,
    ThresholdConsistentMarginLoss,
    TupletMarginLoss,
)
from .triplets import AngularLoss, DynamicSoftMarginLoss, MarginLoss, TripletMarginLoss
from .weights import (
    ArcFaceLoss,
    CosFaceLoss,
    LargeMarginSoftmaxLoss,
    NormalizedSoftmaxLoss,
    P2SGradLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    SoftTripleLoss,
    SphereFaceLoss,
    SubCenterArcFaceLoss,
    WeightRegularizerMixin,
)
from .wrappers import BaseLossWrapper, CrossBatchMemory, MultipleLosses, SelfSupervisedLoss

ABSENT = {"SmoothAPLoss": "that of 2.9 ranks a query among its own results; nearfar.SmoothAPLoss reads the labels"}

__all__ = [
    "AngularLoss",
    "ArcFaceLoss",
    "BaseLossWrapper",
    "BaseMetricLossFunction",
    "CircleLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "CrossBatchMemory",
    "DynamicSoftMarginLoss",
    "FastAPLoss",
    "GeneralizedLiftedStructureLoss",
    "GenericPairLoss",
    "HistogramLoss",
    "InstanceLoss",
    "IntraPairVarianceLoss",
    "LargeMarginSoftmaxLoss",
    "LiftedStructureLoss",
    "ManifoldLoss",
    "MarginLoss",
    "MultiSimilarityLoss",
    "MultipleLosses",
    "NCALoss",
    "NPairsLoss",
    "NTXentLoss",
    "NormalizedSoftmaxLoss",
    "P2SGradLoss",
    "PNPLoss",
    "ProxyAnchorLoss",
    "ProxyNCALoss",
    "RankedListLoss",
    "SelfSupervisedLoss",
    "SignalToNoiseRatioContrastiveLoss",
    "SoftTripleLoss",
    "SphereFaceLoss",
    "SubCenterArcFaceLoss",
    "SupConLoss",
    "ThresholdConsistentMarginLoss",
    "TripletMarginLoss",
    "TupletMarginLoss",
    "VICRegLoss",
    "WeightRegularizerMixin",
]


def __getattr__(name: str) -> type[Absent]:
    return find(__name__, ABSENT, name)
