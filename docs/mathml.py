"""Formulas as MathML, which browsers draw themselves: no script, no network, and screen readers can read them."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
NAMES = {"cos", "log", "sin", "tan"}  # of functions, which the converter sets without space, like a product of letters
SCRIPTS = {f"{{{NAMESPACE}}}{tag}" for tag in ("msub", "msup", "msubsup", "munder")}
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
    for row in root.iter(f"{{{NAMESPACE}}}mrow"):
        space_functions(list(row))
    return ElementTree.tostring(root, encoding="unicode")


def space_functions(parts: list[ElementTree.Element]) -> None:
    """Set thin spaces around the names of functions in a row, as TeX does: none before a parenthesis."""
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        name = part
        while name.tag in SCRIPTS:
            name = name[0]
        text = name.text or ""
        if text in NAMES:
            name.tag = f"{{{NAMESPACE}}}mo"
        if name.tag == f"{{{NAMESPACE}}}mo" and len(text) > 1 and text.isalpha():
            has_limit = part.tag == f"{{{NAMESPACE}}}munder"
            before_parenthesis = following is not None and following.text == "(" and not has_limit
            name.set("lspace", "0" if part is parts[0] else "0.17em")
            name.set("rspace", "0" if before_parenthesis else "0.17em")


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
