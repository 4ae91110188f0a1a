"""Settings are held against their annotations."""

from inspect import Parameter

import numpy as np
import pytest

import nearfar
from nearfar import GMML, LMNN, MMC, KernelDCA, StiefelSPDMetric
from nearfar.settings import Checked, check_options, check_settings, parameters_of, type_error_message


@pytest.mark.parametrize(
    ("annotation", "value", "fits"),
    [
        ("float", 0.5, True),
        ("float", 3, True),
        ("float", np.float32(0.5), True),
        ("float", np.array(0.5), True),
        ("float", float("nan"), False),
        ("float", True, False),
        ("float", None, False),
        ("float", np.array([0.5]), False),
        ("float | None", None, True),
        ("int", np.int64(3), True),
        ("int", 3.0, False),
        ("int", np.True_, False),
        ("bool", True, True),
        ("bool", np.True_, True),
        ("bool", 0, True),
        ("bool", 0.5, False),
        ("bool", "False", False),
        ("int | float", 0.5, True),
        ("str", 3, True),
        ("float | str", "x", True),
        ("AnyArray | float", [1.0], True),
        ("nn.Module | None", len, True),
        ("nn.Module | None", int, False),
        ("nn.Linear", 3, False),
    ],
)
def test_a_value_fits_one_of_the_kinds_of_its_annotation(annotation, value, fits):
    told = type_error_message(Parameter("size", Parameter.KEYWORD_ONLY, annotation=annotation), value)
    assert (told == "") == fits
    assert fits or told.endswith(f"; got {value!r}")


class Part(Checked):
    def __init__(
        self,
        width: "int | None" = None,
        *sizes: "int",
        rate: "float" = 1.0,
        scale: "float" = 1.0,
        block: "int | None" = None,
    ) -> None:
        self.sizes = sizes


def test_what_is_made_with_an_unfit_setting_says_which():
    assert Part(2, 3, 4, rate=0.5).sizes == (3, 4)
    with pytest.raises(ValueError, match=r"^Part: width must be an integer or None; got 2.5$"):
        Part(2.5)
    with pytest.raises(ValueError, match=r"^Part: rate must be finite, got inf$"):
        Part(rate=float("inf"))
    with pytest.raises(ValueError, match=r"^Part: block must be at least 1, got 0$"):
        Part(block=0)
    with pytest.raises(ValueError, match=r"^Part: scale must be positive, got 0.0$"):
        Part(scale=0.0)
    with pytest.raises(TypeError, match=r"^Part got an unexpected keyword argument 'color'; it takes width, "):
        Part(color=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'widths'; did you mean width"):
        Part(widths=1)


def test_what_takes_no_settings_is_given_none():
    class Bare(Checked):
        pass

    for args, settings in (((3,), {}), ((), {"k": 3})):
        with pytest.raises(TypeError, match=r"Bare\(\) takes no arguments"):
            Bare(*args, **settings)
    assert isinstance(Bare(), Bare)


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (MMC(diagonal="False"), "diagonal must be True or False; got 'False'"),
        (LMNN(n_neighbors=2.5), "n_neighbors must be an integer; got 2.5"),
        (StiefelSPDMetric(bias=float("nan")), "bias must be a number; got nan"),
        (KernelDCA(kernel="poly", coef0="1"), "coef0 must be a number; got '1'"),
    ],
)
def test_learners_are_checked_when_they_are_fitted(learner, words):
    with pytest.raises(ValueError, match=f"^{type(learner).__name__}: {words}"):
        learner.fit(np.eye(4), [0, 0, 1, 1])
    check_settings(GMML(n_pairs="all"))


@pytest.mark.parametrize("value", ["far", None, ["near"], 1])
def test_options_are_named_with_the_class_that_has_them(value):
    check_options(GMML(), {"near": 1, "none": 2}, how="near", where="none")
    with pytest.raises(ValueError) as caught:
        check_options(GMML(), {"near": 1, "none": 2}, how="near", where=value)
    assert str(caught.value) == f"GMML: where must be one of 'near', 'none'; got {value!r}"


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("LFDA", {"k": 7}, "here it is n_neighbors"),
        ("LMNN", {"k": 3}, "here it is n_neighbors"),
        ("ITML", {"n_constraints": 100}, "here it is n_pairs"),
        ("LSML", {"n_constraints": 100}, "here it is n_quadruplets"),
        ("RCA", {"n_chunks": 100}, "here it is n_chunklets"),
        ("ITML", {"preprocessor": np.eye(3)}, r"fit\(X, pairs=pairs, pair_labels=same\)"),
        ("ArcFaceLoss", {"embedding_size": 4}, "here it is embedding_dim"),
        ("NCALoss", {"softmax_scale": 1}, "here it is temperature"),
        ("TripletLoss", {"reducer": None}, "here it is reduction"),
        ("TripletLoss", {"embedding_regularizer": None}, r"loss \+ 0.1 \* regularizer"),
    ],
)
def test_names_of_settings_of_other_libraries_lead_to_ours(name, settings, told):
    pytest.importorskip("torch")
    (given,) = settings
    with pytest.raises(TypeError, match=rf"{name} got an unexpected keyword argument '{given}'; .*{told}"):
        getattr(nearfar, name)(**settings)


@pytest.mark.parametrize(
    ("given", "told"), [("indices_tuple", r"TripletLoss\(miner=BatchHard\(\)\)"), ("ref_emb", "here it is ref")]
)
def test_arguments_of_calls_of_other_libraries_lead_to_ours(given, told):
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=f"got an unexpected argument '{given}'; .*{told}"):
        nearfar.TripletLoss()(torch.eye(4), torch.arange(4), **{given: None})


def test_every_learner_still_shows_its_settings():
    for method in nearfar.catalog.METHODS:
        if method.kind == "learner":
            names = list(parameters_of(getattr(nearfar, method.name)))
            assert "args" not in names, method.name
