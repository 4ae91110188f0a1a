"""Links from names in inline code to the pages that describe them, and drawings whose names are links.

Guides write `TripletLoss(margin=0.2)` or `nearfar train` as code. This extension makes links of the names in it, so
that no page has to name the address of another.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from naming import DRAWINGS, find_targets, targets_in_columns, with_links
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from nearfar.catalog import METHODS

ELSEWHERE = {
    "ndarray": "https://numpy.org/doc/stable/reference/generated/numpy.ndarray.html",
    "Tensor": "https://docs.pytorch.org/docs/stable/tensors.html",
    "Module": "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",
    "Path": "https://docs.python.org/3/library/pathlib.html#pathlib.Path",
    "RandomState": "https://numpy.org/doc/stable/reference/random/legacy.html#numpy.random.RandomState",
    "DataFrame": "https://pandas.pydata.org/docs/reference/api/pandas.DataFrame.html",
}
"""Types of other libraries in the lists of parameters."""
COMMANDS_PAGE = "reference/commands"


class LinkNames(SphinxPostTransform):
    """Makes links of the names in inline code."""

    default_priority = 700  # after the links that pages write themselves

    def run(self, **kwargs: Any) -> None:
        self.addresses = addresses_of(self.env, self.app.builder)
        self.commands = [name.removeprefix("nearfar ") for name in self.addresses if name.startswith("nearfar ")]
        self.options = options_of(self.env)
        for kind in (nodes.literal, nodes.title_reference):  # title references: `name` in docstrings
            for code in list(self.document.findall(kind)):
                if not is_linked_already(code) and is_ours(code):
                    self.link(code, code.astext())
        for kind in (nodes.emphasis, addnodes.literal_emphasis):  # types in lists of parameters
            for words in list(self.document.findall(kind)):
                if words.parent is not None and has_parent(words, nodes.field_body) and not is_linked_already(words):
                    self.link(words, words.astext(), self.addresses | ELSEWHERE)

    def link(self, code: nodes.TextElement, text: str, addresses: dict[str, str] | None = None) -> None:
        pieces = find_targets(text, addresses or self.addresses, self.commands)
        option = re.match(r"--[a-z][a-z-]+(?= |=|$)", text)
        if option and option[0] in self.options:
            pieces = [(option[0], self.options[option[0]]), (text[option.end() :], "")]
        here = self.env.docname
        if not any(target for _, target in pieces):
            return
        code.clear()
        for piece, target in pieces:
            if not piece:
                continue
            if not target or target == here or target.startswith(f"{here}#"):
                code += nodes.Text(piece)
            else:
                code += nodes.reference(piece, piece, internal="://" not in target, refuri=self.uri(target))

    def uri(self, target: str) -> str:
        if "://" in target:
            return target
        page, _, anchor = target.partition("#")
        address = self.app.builder.get_relative_uri(self.env.docname, page)
        return f"{address}#{anchor}" if anchor else address


def addresses_of(env: Any, builder: Any) -> dict[str, str]:
    """Return the page of each method, and the page and anchor of each public function, class and command."""
    python = env.get_domain("py").objects
    addresses = {}
    for name, entry in python.items():
        if name.startswith("nearfar.") and entry.docname.startswith("reference/"):
            addresses[name] = f"{entry.docname}#{entry.node_id}"
    addresses |= {method.name: f"reference/{method.name}" for method in METHODS}
    if COMMANDS_PAGE in env.found_docs:
        for command in re.findall(r"^\.\. _nearfar-([a-z]+):", Path(env.doc2path(COMMANDS_PAGE)).read_text(), re.M):
            addresses[f"nearfar {command}"] = f"{COMMANDS_PAGE}#nearfar-{command}"
    return addresses


def options_of(env: Any) -> dict[str, str]:
    """Return the address of each option: that of `nearfar train`, or else of the only command that has it."""
    owners: dict[str, list[tuple[str, str]]] = {}
    for (program, name), (page, anchor) in env.get_domain("std").progoptions.items():
        if program is not None and program.startswith("nearfar "):
            owners.setdefault(name, []).append((program, f"{page}#{anchor}"))
    addresses = {}
    for name, places in owners.items():
        chosen = dict(places).get("nearfar train") or (places[0][1] if len(places) == 1 else "")
        if chosen:
            addresses[name] = chosen
    return addresses


def is_linked_already(code: nodes.Element) -> bool:
    return has_parent(code, nodes.reference, nodes.title, addnodes.desc_signature)


def has_parent(node: nodes.Element, *kinds: type[nodes.Element]) -> bool:
    parent = node.parent
    while parent is not None:
        if isinstance(parent, kinds):
            return True
        parent = parent.parent
    return False


def is_ours(code: nodes.Element) -> bool:
    """Return whether a name is one of nearfar: in a table that compares libraries, only some columns are."""
    cell, row = code, code.parent
    while row is not None and not isinstance(row, nodes.row):
        cell, row = row, row.parent
    if row is None:
        return True
    head = next(iter(row.parent.parent.findall(nodes.thead)), None)
    if head is None:
        return True
    return targets_in_columns([entry.astext() for entry in head[0]])[row.index(cell)]


class InlineDrawings(SphinxPostTransform):
    """Puts drawings with names of methods into the page, so that the names are links."""

    default_priority = 5  # before images are collected
    formats = ("html", "dirhtml")

    def run(self, **kwargs: Any) -> None:
        for image in list(self.document.findall(nodes.image)):
            path = Path(image["uri"])
            if path.stem not in DRAWINGS or path.suffix != ".svg":
                continue
            drawing = (Path(self.env.srcdir) / "pictures" / path.name).read_text(encoding="utf-8")
            drawing = with_links(drawing[drawing.index("<svg") :], self.address)
            drawing = re.sub(r"\s*<metadata>.*?</metadata>", "", drawing, flags=re.S)
            drawing = drawing.replace("<svg ", f'<svg role="group" aria-label="{image.get("alt", "")}" ', 1)
            image.replace_self(nodes.raw("", f'<span class="drawing {path.stem}">{drawing}</span>', format="html"))

    def address(self, name: str) -> str:
        return self.app.builder.get_relative_uri(self.env.docname, f"reference/{name}")


def shorten_names(app: Any, document: nodes.document) -> None:
    """Leave out the modules of classes that stand for all learners or all losses, and name these."""
    titles = app.config.shared_titles
    for signature in document.findall(addnodes.desc_signature):
        name = str(signature.get("fullname", ""))
        owner = name.partition(".")[0]
        if owner not in titles or not str(signature.get("module", "")).startswith("nearfar."):
            continue
        for module in list(signature.findall(addnodes.desc_addname)):
            module.parent.remove(module)
        if name == owner:
            for title in signature.findall(addnodes.desc_name):
                title.clear()
                title += nodes.Text(titles[owner])
            for word in list(signature.findall(addnodes.desc_annotation)):  # "class"
                word.parent.remove(word)
            for arguments in list(signature.findall(addnodes.desc_parameterlist)):
                arguments.parent.remove(arguments)


SHELL = re.compile(r"(#.*\n|\s*\n)*\s*(nearfar|pip|python3?|make|conda|git|docker|curl|OMP_NUM_THREADS|torchrun) ?")
"""How a block begins that is for a shell, though its page does not say it."""


def mark_shell(app: Any, document: nodes.document) -> None:
    """Highlight blocks of commands as shell, and others without a language as plain text."""
    for block in document.findall(nodes.literal_block):
        if block.get("language", "default") in ("default", "none", "shell"):
            shell = block.get("language") == "shell" or SHELL.match(block.astext())
            block["language"] = "bash" if shell else "text"


class LinkTerms(SphinxPostTransform):
    """Makes a link of the first use of each word of the glossary on a page of the guides."""

    default_priority = 710

    def run(self, **kwargs: Any) -> None:
        here = self.env.docname
        terms = {
            name: anchor
            for name, _, kind, page, anchor, _ in self.env.get_domain("std").get_objects()
            if kind == "term" and page == "glossary" and name in FIRST_USES
        }
        if "/" in here or here in ("glossary", "index", "changelog", "contributing", "security"):
            return
        for text in list(self.document.findall(nodes.Text)):
            if not isinstance(text.parent, nodes.paragraph) or has_parent(text, nodes.table, nodes.figure):
                continue
            for name in list(terms):
                found = re.search(rf"(?<![\w-]){re.escape(name)}s?(?![\w-])", text)
                if found is None:
                    continue
                address = f"{self.app.builder.get_relative_uri(here, 'glossary')}#{terms.pop(name)}"
                link = nodes.reference(found[0], found[0], internal=True, refuri=address, classes=["term"])
                after = nodes.Text(text[found.end() :])
                text.parent.replace(text, [nodes.Text(text[: found.start()]), link, after])
                break  # the rest of this text is another node now


FIRST_USES = {
    *("anchor", "chance level", "checkpoint", "closed form", "embedding", "gallery", "held-out classes", "learner"),
    *("Mahalanobis metric", "margin", "miner", "objective", "proxy", "recipe", "regularizer", "sampler", "trunk"),
    *("unseen classes", "whitening"),
}
"""Words of the glossary that are linked; the others are too common."""


def describe_page(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give search engines and previews of links the first sentences of a page."""
    first = next(iter(doctree.findall(nodes.paragraph)), None) if doctree is not None else None
    if first is None:
        return
    text = escape(" ".join(first.astext().split())[:200], quote=True)
    title = escape(context.get("title", ""), quote=True)
    context["metatags"] = context.get("metatags", "") + (
        f'<meta name="description" content="{text}">\n'
        f'<meta property="og:title" content="{title}">\n<meta property="og:description" content="{text}">\n'
    )


def write_llms(app: Any, error: Exception | None) -> None:
    """Write `llms.txt`, a list of the pages with their titles, for programs that read the documentation."""
    if error is not None or app.builder.format != "html":
        return
    guides = [page for page in sorted(app.env.found_docs) if "/" not in page]
    lines = [
        f"# {app.config.project}",
        "",
        "> Metric learning in Python: losses, learners, training, evaluation, search.",
        "",
    ]
    lines += [f"- [{app.env.titles[page].astext()}]({app.builder.get_target_uri(page)})" for page in guides]
    lines += [f"- [Methods and reference]({app.builder.get_target_uri('reference/index')})", ""]
    (Path(app.outdir) / "llms.txt").write_text("\n".join(lines), encoding="utf-8")


def name_headings(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Tell screen readers the level of the captions in the menu, which the theme leaves out."""
    menu = context.get("furo_navigation_tree")
    if menu:
        context["furo_navigation_tree"] = menu.replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app: Any) -> dict[str, bool]:
    app.add_config_value("shared_titles", {}, "env")
    app.add_post_transform(LinkNames)
    app.add_post_transform(InlineDrawings)
    app.add_post_transform(LinkTerms)
    app.connect("doctree-read", shorten_names)
    app.connect("doctree-read", mark_shell)
    app.connect("html-page-context", describe_page)
    app.connect("build-finished", write_llms)
    app.connect("html-page-context", name_headings, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
