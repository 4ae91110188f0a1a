"""Every method of the library, one line each: the field's table of contents.

Lazy names, the command line, `nearfar list`, the tables of the documentation, `__init__.pyi` and the parameters of the
shared tests all come from here. Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from .quoting import quoted

HERE = Path(__file__).parent


class Method(NamedTuple):
    """One method of the field.

    Attributes
    ----------
    name : str
        Public class name; ``nearfar.<name>`` gives it.
    at : str
        Its module below ``src/nearfar``, a file or a package, and by that its place in the field's taxonomy.
    kind : str
        learner, loss, regularizer, miner, sampler, memory, head, network, wrapper, composition, distance.
    takes : str
        What it learns from: labels, targets (numbers), pairs, triplets, quadruplets, chunklets, views, sets (of candidate
        classes), none; for parts of an objective rows (anchors against a reference) or set (the batch as a whole).
    paper : str
        First author and year.
    ids : str
        Where the founding documents describe it (S: spectral, P: probabilistic, D: deep; "-" beyond them).
    small : dict
        Arguments with which the shared tests run it in well under a second.
    """

    name: str
    at: str
    kind: str
    takes: str
    paper: str
    ids: str
    small: dict[str, Any] = {}

    @property
    def home(self) -> str:
        """The folder, which is the method's family."""
        return self.at.rpartition("/")[0]

    @property
    def module(self) -> str:
        return "nearfar." + self.at.replace("/", ".")

    @property
    def stem(self) -> str:
        """The name of the module."""
        return self.at.rpartition("/")[2]

    @property
    def path(self) -> Path:
        """The file with the class."""
        package = HERE / self.at
        if package.is_dir():
            return package / "__init__.py"
        return HERE / f"{self.at}.py"


PROXIES = {"num_classes": 8, "embedding_dim": 5}

# fmt: off
METHODS = tuple(Method(*row) for row in (
    # A choice among the learners below
    ("AutoMetric", "estimators/choice/auto_metric", "learner", "labels", "Breiman 1984", "-", {"learners": ("LFDA", "GMML")}),
    # Spectral metric learning
    ("CovarianceMetric", "spectral/scatter/covariance", "learner", "none", "Mahalanobis 1936", "S1"),
    ("MMC", "spectral/scatter/mmc", "learner", "pairs", "Xing 2002", "S2 S3", {"max_iter": 50}),
    ("SideInformationMetric", "spectral/scatter/side_information", "learner", "pairs", "Ghodsi 2007", "S4"),
    ("FisherMetric", "spectral/scatter/fisher", "learner", "pairs", "Alipanahi 2008", "S5 S6"),
    ("RCA", "spectral/scatter/rca", "learner", "chunklets", "Shental 2002", "S7 P15"),
    ("DiscriminantWhitening", "spectral/scatter/discriminant_whitening", "learner", "labels", "Hatch 2006", "-"),
    ("DCA", "spectral/scatter/dca", "learner", "chunklets", "Hoi 2006", "S8"),
    ("HighDimensionalDCA", "spectral/scatter/high_dimensional_dca", "learner", "pairs", "Xiang 2008", "S9"),
    ("LLERegularizedMetric", "spectral/embedding/lle_regularized", "learner", "pairs", "Soleymani Baghshah 2009", "S10"),
    ("LFDA", "spectral/scatter/lfda", "learner", "labels", "Sugiyama 2007", "-"),
    ("FISHMML", "spectral/scatter/fish_mml", "learner", "views", "Zhang 2018", "S11"),
    ("LMNN", "spectral/margin/lmnn", "learner", "labels", "Weinberger 2005", "S12 S13 S14 S15", {"max_iter": 20}),
    ("SCML", "spectral/margin/scml", "learner", "triplets", "Shi 2014", "-"),
    ("IML", "spectral/margin/iml", "learner", "labels", "Gautheron 2019", "S16", {"max_iter": 20}),
    ("LLMA", "spectral/embedding/llma", "learner", "pairs", "Chang 2004", "S17", {"max_iter": 20}),
    ("NuSVMMetric", "spectral/margin/nu_svm", "learner", "pairs", "Tsang 2003", "S18"),
    ("MDSMetric", "spectral/embedding/mds", "learner", "labels", "Zhang 2003", "S19", {"max_iter": 20}),
    ("KernelSpectrumMetric", "spectral/kernel/spectrum", "learner", "pairs", "Yeung 2007", "S20"),
    ("KernelLLERegularizedMetric", "spectral/kernel/lle_regularized", "learner", "pairs", "Soleymani Baghshah 2009", "S21"),
    ("LaplacianRegularizedKernel", "spectral/kernel/laplacian_regularized", "learner", "pairs", "Soleymani Baghshah 2010", "S22"),
    ("KernelDCA", "spectral/kernel/kernel_dca", "learner", "chunklets", "Hoi 2006", "S23"),
    ("KernelFisherMetric", "spectral/kernel/kernel_fisher", "learner", "pairs", "Alipanahi 2008", "S24"),
    ("KernelNuSVMMetric", "spectral/kernel/kernel_nu_svm", "learner", "pairs", "Tsang 2003", "S25"),
    ("Kernelized", "spectral/kernel/kernelized", "wrapper", "labels", "Chatpatanasiri 2010", "-"),
    ("GMML", "spectral/geometric/gmml", "learner", "pairs", "Zadeh 2016", "S26 S27 S28"),
    ("LowRankGMML", "spectral/geometric/low_rank_gmml", "learner", "pairs", "Bhutani 2018", "S29"),
    ("PartialLabelGMML", "spectral/geometric/partial_label_gmml", "learner", "sets", "Zhou 2018", "S30"),
    ("SPDGMML", "spectral/geometric/spd_gmml", "learner", "pairs", "Zhu 2018", "S31"),
    ("GrassmannGMML", "spectral/geometric/grassmann_gmml", "learner", "pairs", "Zhu 2018", "S32"),
    ("StiefelSPDMetric", "spectral/geometric/stiefel_spd", "learner", "pairs", "Harandi 2017", "S33", {"max_iter": 20}),
    ("KernelStiefelSPDMetric", "spectral/kernel/kernel_stiefel_spd", "learner", "pairs", "Harandi 2017", "S34", {"max_iter": 20}),
    ("CDML", "spectral/geometric/cdml", "learner", "pairs", "Chen 2019", "S35", {"max_iter": 5}),
    ("AML", "spectral/adversarial/aml", "learner", "pairs", "Chen 2018", "S36", {"max_iter": 20}),
    # Probabilistic metric learning
    ("MCML", "probabilistic/collapsing/mcml", "learner", "pairs", "Globerson 2005", "P1", {"max_iter": 30}),
    ("KernelMCML", "probabilistic/collapsing/kernel_mcml", "learner", "pairs", "Globerson 2005", "P2", {"max_iter": 30}),
    ("NCA", "probabilistic/neighborhood/nca", "learner", "labels", "Goldberger 2004", "P3 P4 P5", {"max_iter": 30}),
    ("FastNCA", "probabilistic/neighborhood/fast_nca", "learner", "labels", "Yang 2012", "P6", {"max_iter": 30}),
    ("KernelNCA", "probabilistic/neighborhood/kernel_nca", "learner", "labels", "Goldberger 2004", "P7", {"max_iter": 30}),
    ("KernelFastNCA", "probabilistic/neighborhood/kernel_fast_nca", "learner", "labels", "Yang 2012", "P7", {"max_iter": 30}),
    ("MLKR", "probabilistic/neighborhood/mlkr", "learner", "targets", "Weinberger 2007", "-", {"max_iter": 30}),
    ("BayesianPairMetric", "probabilistic/bayesian/pair_metric", "learner", "pairs", "Yang 2007", "P8"),
    ("ActivePairSelector", "probabilistic/bayesian/active_pairs", "wrapper", "pairs", "Yang 2007", "P9"),
    ("BayesianNCA", "probabilistic/bayesian/bayesian_nca", "learner", "labels", "Wang 2018", "P10", {"max_iter": 20}),
    ("LDM", "probabilistic/neighborhood/ldm", "learner", "pairs", "Yang 2006", "P11", {"max_iter": 20}),
    ("ITML", "probabilistic/information/itml", "learner", "pairs", "Davis 2007", "P12", {"max_iter": 100}),
    ("OnlineITML", "probabilistic/information/online_itml", "learner", "pairs", "Davis 2007", "P13"),
    ("SDML", "probabilistic/information/sdml", "learner", "pairs", "Qi 2009", "-"),
    ("LSML", "probabilistic/information/lsml", "learner", "quadruplets", "Liu 2012", "-"),
    ("DMBK", "probabilistic/information/dmbk", "learner", "labels", "Feng 2019", "P14", {"max_iter": 30}),
    ("InformationGeometryMetric", "probabilistic/information/information_geometry", "learner", "labels", "Wang 2009", "P16"),
    ("KernelInformationGeometryMetric", "probabilistic/information/kernel_information_geometry", "learner", "labels", "Wang 2009", "P17"),
    ("LDML", "probabilistic/risk/ldml", "learner", "pairs", "Guillaumin 2009", "P18", {"max_iter": 50}),
    ("PCCA", "probabilistic/risk/pcca", "learner", "pairs", "Mignon 2012", "P19", {"max_iter": 50}),
    ("KernelPCCA", "probabilistic/risk/kernel_pcca", "learner", "pairs", "Mignon 2012", "P20", {"max_iter": 50}),
    ("PrivilegedMetric", "probabilistic/risk/privileged", "learner", "pairs", "Yang 2016", "P21", {"max_iter": 50}),
    # Deep: autoencoders
    ("Autoencoder", "deep/networks/autoencoder", "network", "none", "Goodfellow 2016", "D1"),
    ("DenoisingAutoencoder", "deep/networks/denoising_autoencoder", "network", "none", "Vincent 2008", "D2"),
    ("VariationalAutoencoder", "deep/networks/variational_autoencoder", "network", "none", "Kingma 2014", "D3"),
    # Deep: losses on a classification layer
    ("MSEHead", "deep/losses/mse_head", "head", "labels", "Ghojogh 2022", "D4", PROXIES),
    ("MAEHead", "deep/losses/mae_head", "head", "labels", "Ghojogh 2022", "D5", PROXIES),
    ("HuberHead", "deep/losses/huber_head", "head", "labels", "Huber 1964", "D6", PROXIES),
    ("KLHead", "deep/losses/kl_head", "head", "labels", "Kullback 1951", "D7", PROXIES),
    ("HingeHead", "deep/losses/hinge_head", "head", "labels", "Rosasco 2004", "D8", PROXIES),
    ("CrossEntropyHead", "deep/losses/cross_entropy_head", "head", "labels", "Boudiaf 2020", "D9", PROXIES),
    # Deep: Siamese networks, pair and triplet losses
    ("Siamese", "deep/networks/siamese", "wrapper", "triplets", "Bromley 1993", "D10"),
    ("PairSampler", "deep/samplers/pairs", "sampler", "labels", "Hadsell 2006", "D10"),
    ("TripletSampler", "deep/samplers/triplets", "sampler", "labels", "Hoffer 2015", "D10"),
    ("ContrastiveLoss", "deep/losses/contrastive", "loss", "rows", "Hadsell 2006", "D11"),
    ("GeneralizedContrastiveLoss", "deep/losses/generalized_contrastive", "loss", "rows", "Leyva-Vallina 2021", "D12"),
    ("TripletLoss", "deep/losses/triplet", "loss", "rows", "Schroff 2015", "D13"),
    ("NPairLoss", "deep/losses/n_pair", "loss", "rows", "Sohn 2016", "D14"),
    ("NCALoss", "deep/losses/nca", "loss", "rows", "Goldberger 2004", "D15"),
    ("ProxyNCALoss", "deep/losses/proxy_nca", "loss", "rows", "Movshovitz-Attias 2017", "D16", PROXIES),
    ("ProxyNCAPlusPlusLoss", "deep/losses/proxy_nca_plus_plus", "loss", "rows", "Teh 2020", "D17", PROXIES),
    ("SoftmaxTripletLoss", "deep/losses/softmax_triplet", "loss", "rows", "Ye 2019", "D18"),
    ("TripletGlobalLoss", "deep/losses/triplet_global", "loss", "set", "Kumar 2016", "D19"),
    ("AngularLoss", "deep/losses/angular", "loss", "rows", "Wang 2017", "D20"),
    ("SoftTripleLoss", "deep/losses/soft_triple", "loss", "rows", "Qian 2019", "D21", PROXIES),
    ("FisherTripletLoss", "deep/losses/fisher_triplet", "loss", "set", "Ghojogh 2020", "D22"),
    ("FisherContrastiveLoss", "deep/losses/fisher_contrastive", "loss", "set", "Ghojogh 2020", "D23"),
    ("AdversarialTriplet", "deep/losses/adversarial_triplet", "loss", "rows", "Duan 2018", "D24", {"embedding_dim": 5}),
    ("BatchAll", "deep/miners/batch_all", "miner", "rows", "Ding 2015", "D25"),
    ("BatchHard", "deep/miners/batch_hard", "miner", "rows", "Hermans 2017", "D26"),
    ("BatchSemiHard", "deep/miners/batch_semi_hard", "miner", "rows", "Schroff 2015", "D27"),
    ("EasyPositive", "deep/miners/easy_positive", "miner", "rows", "Xuan 2020", "D28"),
    ("LiftedLoss", "deep/losses/lifted", "loss", "rows", "Oh Song 2016", "D29"),
    ("CenterTripletLoss", "deep/losses/center_triplet", "loss", "set", "Lv 2019", "D30"),
    ("CrossBatchMemory", "deep/memory/cross_batch", "memory", "rows", "Wang 2020", "D31"),
    ("ExtremeDistance", "deep/miners/extreme_distance", "miner", "rows", "Sikaroudi 2020", "D32"),
    ("RandomNegative", "deep/miners/random_negative", "miner", "rows", "Ghojogh 2022", "D33"),
    ("DistanceWeighted", "deep/miners/distance_weighted", "miner", "rows", "Wu 2017", "D34"),
    ("MarginLoss", "deep/losses/margin", "loss", "rows", "Wu 2017", "D34"),
    ("BayesianUpdating", "deep/memory/bayesian_updating", "memory", "labels", "Sikaroudi 2021", "D35", {"num_classes": 8, "embedding_dim": 5}),
    ("HardNegativeContrastiveLoss", "deep/losses/hard_negative_contrastive", "loss", "rows", "Robinson 2021", "D36"),
    # Deep: discriminant, multi-modal, geometric, few-shot
    ("ProbabilisticDiscriminantLoss", "deep/losses/probabilistic_discriminant", "loss", "set", "Li 2019", "D37"),
    ("VirtualSampleLoss", "deep/losses/virtual_sample", "loss", "set", "Kim 2021", "D38"),
    ("DeepFisherLoss", "deep/losses/deep_fisher", "loss", "set", "Díaz-Vico 2017", "D39", PROXIES),
    ("MultiModalAutoencoder", "deep/networks/multi_modal", "network", "views", "Roostaiyan 2017", "D40"),
    ("LayeredGMML", "spectral/geometric/layered_gmml", "learner", "pairs", "Hajiabadi 2019", "D41"),
    ("BiMap", "deep/networks/bi_map", "network", "rows", "Huang 2017", "D42"),
    ("ReEig", "deep/networks/re_eig", "network", "rows", "Huang 2017", "D42"),
    ("LogEig", "deep/networks/log_eig", "network", "rows", "Huang 2017", "D42"),
    ("EpisodeSampler", "deep/samplers/episodes", "sampler", "labels", "Vinyals 2016", "D43"),
    ("EpisodicTrainer", "deep/networks/episodic", "wrapper", "labels", "Finn 2017", "D44"),
    ("MultiScaleRelationNet", "deep/networks/multi_scale_relation", "network", "labels", "Jiang 2021", "D45"),
    ("ContinuousSimilarityNet", "deep/networks/continuous_similarity", "network", "labels", "Xu 2019", "D46"),
    # Joint representation diversification
    ("AMSoftmaxLoss", "deep/losses/am_softmax", "loss", "rows", "Wang 2018", "D47", PROXIES),
    ("JRS", "deep/regularizers/jrs", "regularizer", "set", "Chu 2020", "D48 D49", {"layers": ("embedding",)}),
    ("JMMD", "deep/regularizers/jmmd", "regularizer", "set", "Chu 2020", "D50", {"layers": ("embedding",)}),
    ("JIntra", "deep/regularizers/jintra", "regularizer", "set", "Chu 2020", "D50", {"layers": ("embedding",)}),
    ("IntraClassPenalty", "deep/regularizers/intra_class", "regularizer", "rows", "Chu 2020", "D50"),
    ("JRDLoss", "deep/compositions/jrd", "composition", "rows", "Chu 2020", "D48", PROXIES),
    # Facility location
    ("FacilityLocationLoss", "deep/losses/facility_location", "loss", "set", "Oh Song 2017", "D53 D54 D55 D56"),
    ("ClassRatioSampler", "deep/samplers/class_ratio", "sampler", "labels", "Oh Song 2017", "D56"),
    ("MPerClassSampler", "deep/samplers/m_per_class", "sampler", "labels", "Hermans 2017", "-"),
    # Confusion-based metric learning
    ("EnergyConfusion", "deep/regularizers/energy_confusion", "regularizer", "set", "Chen 2019", "D57"),
    ("DiversityConfusion", "deep/regularizers/diversity_confusion", "regularizer", "set", "Chen 2022", "D58"),
    ("BinomialDevianceLoss", "deep/losses/binomial_deviance", "loss", "rows", "Yi 2014", "D59"),
    ("CMLLoss", "deep/compositions/cml", "composition", "rows", "Chen 2022", "D57 D58"),
    # What the tables of these papers compare with
    ("ALMNLoss", "deep/losses/almn", "loss", "rows", "Chen 2018", "D62"),
    ("BIERLoss", "deep/losses/bier", "loss", "rows", "Opitz 2017", "D62"),
    ("HDCLoss", "deep/losses/hdc", "loss", "rows", "Yuan 2017", "D62"),
    ("HDMLLoss", "deep/losses/hdml", "loss", "rows", "Zheng 2019", "D62", PROXIES),
    ("GroupAdversary", "deep/regularizers/group_adversary", "regularizer", "set", "Opitz 2020", "D62", {"embedding_dim": 5}),
    ("IndependentActivations", "deep/regularizers/independent_activations", "regularizer", "set", "Opitz 2017", "D62"),
    ("AttentionEnsemble", "deep/networks/attention_ensemble", "network", "labels", "Kim 2018", "D62"),
    ("EnsembleDivergence", "deep/regularizers/ensemble_divergence", "regularizer", "set", "Kim 2018", "D62"),
    ("HierarchicalTripletLoss", "deep/losses/hierarchical_triplet", "loss", "set", "Ge 2018", "-"),
    ("SmartMiningSampler", "deep/samplers/smart_mining", "sampler", "labels", "Harwood 2017", "-"),
    ("ClusterSampler", "deep/samplers/clusters", "sampler", "labels", "Sanakoyeu 2019", "-"),
    ("DivideAndConquer", "deep/compositions/divide_and_conquer", "loss", "set", "Sanakoyeu 2019", "-", {"objective": "TripletLoss()", "groups": 2}),
    # Beyond the founding documents
    ("SupConLoss", "deep/losses/sup_con", "loss", "rows", "Khosla 2020", "-"),
    ("NTXentLoss", "deep/losses/nt_xent", "loss", "rows", "Chen 2020", "-"),
    ("MultiSupConLoss", "deep/losses/multi_sup_con", "loss", "rows", "Zaigrajew 2022", "-"),
    ("GE2ELoss", "deep/losses/ge2e", "loss", "set", "Wan 2018", "-"),
    ("DecoupledContrastiveLoss", "deep/losses/decoupled_contrastive", "loss", "rows", "Yeh 2022", "-"),
    ("SelectivelyContrastiveLoss", "deep/losses/selectively_contrastive", "loss", "rows", "Xuan 2020", "-"),
    ("SigLIPLoss", "deep/losses/sig_lip", "loss", "rows", "Zhai 2023", "-"),
    ("VICRegLoss", "deep/losses/vicreg", "loss", "rows", "Bardes 2022", "-"),
    ("MultiSimilarityLoss", "deep/losses/multi_similarity", "loss", "rows", "Wang 2019", "-"),
    ("InformativePairs", "deep/miners/informative_pairs", "miner", "rows", "Wang 2019", "-"),
    ("EasyHard", "deep/miners/easy_hard", "miner", "rows", "Xuan 2020", "-"),
    ("PairMargins", "deep/miners/pair_margins", "miner", "rows", "Hadsell 2006", "-"),
    ("RandomSubset", "deep/miners/random_subset", "miner", "rows", "Musgrave 2020", "-"),
    ("UniformHistogram", "deep/miners/uniform_histogram", "miner", "rows", "Musgrave 2020", "-"),
    ("WideAngles", "deep/miners/wide_angles", "miner", "rows", "Wang 2017", "-"),
    ("LpDistance", "deep/distances/lp", "distance", "rows", "Minkowski 1910", "-"),
    ("SNRDistance", "deep/distances/snr", "distance", "rows", "Yuan 2019", "-"),
    ("HierarchicalSampler", "deep/samplers/hierarchical", "sampler", "labels", "Cakir 2019", "-"),
    ("CircleLoss", "deep/losses/circle", "loss", "rows", "Sun 2020", "-"),
    ("ProxyAnchorLoss", "deep/losses/proxy_anchor", "loss", "rows", "Kim 2020", "-", PROXIES),
    ("ArcFaceLoss", "deep/losses/arc_face", "loss", "rows", "Deng 2019", "-", PROXIES),
    ("CosFaceLoss", "deep/compositions/cos_face", "composition", "rows", "Wang 2018", "-", PROXIES),
    ("DynamicArcFaceLoss", "deep/losses/dynamic_arc_face", "loss", "rows", "Ha 2020", "-", PROXIES),
    ("SubCenterArcFaceLoss", "deep/losses/sub_center_arc_face", "loss", "rows", "Deng 2020", "-", PROXIES),
    ("SphereFaceLoss", "deep/losses/sphere_face", "loss", "rows", "Liu 2017", "-", PROXIES),
    ("AdaFaceLoss", "deep/losses/ada_face", "loss", "rows", "Kim 2022", "-", PROXIES),
    ("GeneralizedLiftedLoss", "deep/losses/generalized_lifted", "loss", "rows", "Hermans 2017", "-"),
    ("SNRContrastiveLoss", "deep/losses/snr_contrastive", "loss", "rows", "Yuan 2019", "-"),
    ("TupletMarginLoss", "deep/losses/tuplet_margin", "loss", "rows", "Yu 2019", "-"),
    ("P2SGradLoss", "deep/losses/p2s_grad", "loss", "rows", "Zhang 2019", "-", PROXIES),
    ("IntraPairVarianceLoss", "deep/losses/intra_pair_variance", "loss", "rows", "Yu 2019", "-"),
    ("ThresholdConsistentMarginLoss", "deep/losses/threshold_consistent_margin", "loss", "rows", "Zhang 2024", "-"),
    ("RankedListLoss", "deep/losses/ranked_list", "loss", "rows", "Wang 2019", "-"),
    ("HistogramLoss", "deep/losses/histogram", "loss", "rows", "Ustinova 2016", "-"),
    ("FastAPLoss", "deep/losses/fast_ap", "loss", "rows", "Cakir 2019", "-"),
    ("SmoothAPLoss", "deep/losses/smooth_ap", "loss", "rows", "Brown 2020", "-"),
    ("RecallAtKLoss", "deep/losses/recall_at_k", "loss", "rows", "Patel 2022", "-"),
    ("SiMix", "deep/compositions/si_mix", "composition", "set", "Patel 2022", "-", {"alpha": 0.5}),
    ("PNPLoss", "deep/losses/pnp", "loss", "rows", "Li 2022", "-"),
    ("PotentialFieldLoss", "deep/losses/potential_field", "loss", "set", "Bhatnagar 2025", "-", PROXIES),
    ("Matryoshka", "deep/compositions/matryoshka", "loss", "set", "Kusupati 2022", "-", {"objective": "TripletLoss()", "dims": (2, 5)}),
    ("Distill", "deep/memory/distill", "memory", "set", "Park 2019", "-", {"teacher": "runs/teacher"}),
    ("SparseCenters", "deep/regularizers/sparse_centers", "regularizer", "set", "Qian 2019", "-"),
    ("CenterInvariance", "deep/regularizers/center_invariance", "regularizer", "set", "Wu 2017", "-"),
    ("CenterNorms", "deep/regularizers/center_norms", "regularizer", "set", "Musgrave 2020", "-"),
    ("RegularFace", "deep/regularizers/regular_face", "regularizer", "set", "Zhao 2019", "-"),
    ("SphericalConstraint", "deep/regularizers/spherical_constraint", "regularizer", "set", "Zhang 2020", "-"),
    ("HORDE", "deep/regularizers/horde", "regularizer", "set", "Jacob 2019", "-", {"embedding_dim": 5}),
))
# fmt: on

BY_NAME = {method.name: method for method in METHODS}

# what other libraries call what is here under another name; docs/switching.md says what else differs
ELSEWHERE = {
    "AccuracyCalculator": "nearfar.evaluation.evaluate",
    "AllTripletsMiner": "BatchAll",
    "BalanceSampler": "MPerClassSampler",
    "AngularMiner": "WideAngles",
    "BatchEasyHardMiner": "EasyHard",
    "BatchHardMiner": "BatchHard",
    "CenterInvariantRegularizer": "CenterInvariance",
    "Covariance": "CovarianceMetric",
    "DistanceWeightedMiner": "DistanceWeighted",
    "GeneralizedLiftedStructureLoss": "GeneralizedLiftedLoss",
    "HardTripletsMiner": "BatchHard",
    "InferenceModel": "nearfar.index.Index",
    "InfoNCE": "NTXentLoss",
    "InfoNCELoss": "NTXentLoss",
    "InstanceLoss": "CrossEntropyHead",
    "LSI": "MMC",
    "LpRegularizer": "CenterNorms",
    "LargeMarginNearestNeighbor": "LMNN",
    "LargeMarginSoftmaxLoss": "SphereFaceLoss(unit_proxies=False)",
    "LiftedStructureLoss": "LiftedLoss",
    "MultiSimilarityMiner": "InformativePairs",
    "MultipleLosses": "a sum of losses",
    "MultipleNegativesRankingLoss": "NTXentLoss",
    "NPairsLoss": "NPairLoss",
    "NeighborhoodComponentsAnalysis": "NCA",
    "NormalizedSoftmaxLoss": "AMSoftmaxLoss(margin=0)",
    "PairMarginMiner": "PairMargins",
    "RegularFaceRegularizer": "RegularFace",
    "SelectivelyContrastiveTripletLoss": "SelectivelyContrastiveLoss",
    "SelfSupervisedLoss": "a loss whose labels are the numbers of the items",
    "SignalToNoiseRatioContrastiveLoss": "SNRContrastiveLoss",
    "SparseCentersRegularizer": "SparseCenters",
    "SphericalEmbeddingRegularizer": "SphericalConstraint",
    "TripletLossWithMiner": "TripletLoss(miner=...)",
    "TripletMarginLoss": "TripletLoss",
    "TripletMarginMiner": "TripletLoss(triplets='semihard')",
    "UniformHistogramMiner": "UniformHistogram",
}


def missing(name: str) -> str:
    """Say why `nearfar.<name>` is not there, and what may have been meant."""
    hint = suggest_method(name, [method.name for method in METHODS])
    return f"nearfar has no {quoted(name)}{hint} (`nearfar list` shows every method)"


def suggest_method(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Say what a name may have meant: what another library calls so, or else the names nearest to it; or nothing."""
    known = ELSEWHERE.get(name) or ELSEWHERE.get(name.removesuffix("_Supervised"))
    if known is None and name.removesuffix("_Supervised") in BY_NAME:
        known = name.removesuffix("_Supervised")
    if known is not None:
        return f"; here it is {known}"
    near = get_close_matches(name, names, n=2, cutoff=cutoff)
    return f"; did you mean {' or '.join(near)}?" if near else ""
