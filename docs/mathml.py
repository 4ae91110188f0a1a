"""Formulas as MathML, which browsers draw themselves: no script, no network, and screen readers can read them."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
WITH_LIMITS = {"argmax", "argmin", "max", "mean", "min"}  # what is written below them on a line of its own


def displayed(latex: str) -> str:
    """A formula on a line of its own, with the limits of operators below them."""
    ElementTree.register_namespace("", NAMESPACE)
    root = ElementTree.fromstring(convert(latex, display="block"))
    for element in root.iter(f"{{{NAMESPACE}}}msub"):
        operator = "".join(element[0].itertext())
        if operator in WITH_LIMITS:
            element.tag = f"{{{NAMESPACE}}}munder"
    for operator in root.iter(f"{{{NAMESPACE}}}mo"):
        if operator.text == "‖":  # a browser would stretch the first bar of a norm, and not the last one
            operator.set("stretchy", "false")
    return ElementTree.tostring(root, encoding="unicode")


def visit_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{displayed(node.astext().strip())}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx of the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True}
