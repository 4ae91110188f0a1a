"""Formulas of the documentation as MathML: what the converter leaves out is added."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("docutils")
pytest.importorskip("latex2mathml")

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture
def displayed(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    monkeypatch.delitem(sys.modules, "mathml", raising=False)
    from mathml import displayed

    return lambda latex: list(ElementTree.fromstring(displayed(latex)).iter())


def named(elements, text):
    return [element for element in elements if element.text == text]


def test_limits_are_below_their_operator(displayed):
    (below,) = [element for element in displayed(r"\min_{M} f(M)") if element.tag.endswith("munder")]
    assert below[0].text == "min"


def test_both_bars_of_a_norm_have_one_size(displayed):
    bars = named(displayed(r"\lVert x - y \rVert^2"), "‖")
    assert [bar.get("stretchy") for bar in bars] == ["false", "false"]


def test_names_of_functions_are_set_apart_from_letters(displayed):
    elements = displayed(r"s \cos \theta + p \log(p)")
    (cosine,), (logarithm,) = named(elements, "cos"), named(elements, "log")
    assert cosine.tag.endswith("}mo")
    assert (cosine.get("lspace"), cosine.get("rspace")) == ("0.17em", "0.17em")
    assert (logarithm.get("lspace"), logarithm.get("rspace")) == ("0.17em", "0")  # none before the parenthesis


def test_an_operator_with_a_limit_keeps_its_distance_from_a_parenthesis(displayed):
    (mean,) = named(displayed(r"\operatorname{mean}_i (1 - x_i)"), "mean")
    assert mean.get("rspace") == "0.17em"
