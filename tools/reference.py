"""The reference pages of the documentation, from the catalog: written by `docs/conf.py` whenever Sphinx runs.

A method has a page: its name and paper, the formula of `docs/formulas.toml`, when to use it, the remarks at the top of
its module, a picture, an example that is run now, its rows in the tables of results, its settings from the docstring,
and its citation.
"""

from __future__ import annotations

import ast
import io
import re
import tomllib
import warnings
from contextlib import redirect_stdout
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from commands import commands_page
from generate import FAMILIES
from measured import rows_of, shown

import nearfar
from nearfar.catalog import METHODS, Method

DOCS = Path(__file__).parent.parent / "docs"
PACKAGES = {
    "Training": "nearfar.train",
    "Evaluation": "nearfar.evaluation",
    "Reports": "nearfar.report",
    "Search index": "nearfar.index",
    "Data": "nearfar.data",
    "Saved models": "nearfar.models",
    "Commands as functions": "nearfar.workflows",
    "Tools for learners": "nearfar.estimators",
    "Export": "nearfar.models.export",
}
LEARNERS_PAGE = "What every learner does"
LOSSES_PAGE = "What every loss does"
VERBS = (
    *("embed", "pair_distance", "pair_score", "get_metric", "kneighbors"),
    *("predict", "calibrate_threshold", "set_threshold", "predict_proba", "calibrate_probability", "score"),
    *("set_distance", "save", "load"),
)
"""Methods of all learners, in the order in which one uses them."""
SHARED: dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {  # class, what it stands for, its members
    LEARNERS_PAGE: (
        ("nearfar.estimators.base.FromLabels", "Learners from labels", ("fit",)),
        ("nearfar.estimators.base.FromPairs", "Learners from pairs", ("fit",)),
        ("nearfar.estimators.base.FromTriplets", "Learners from triplets", ("fit",)),
        ("nearfar.estimators.base.FromChunklets", "Learners from groups", ("fit",)),
        ("nearfar.estimators.base.FromSets", "Learners from sets of candidates", ("fit",)),
        (
            "nearfar.estimators.mahalanobis.Mahalanobis",
            "Linear learners",
            ("transform", "get_feature_names_out", "get_mahalanobis_matrix", "get_metric"),
        ),
        ("nearfar.estimators.kernel.KernelMetric", "Learners with kernels", ("transform",)),
        ("nearfar.estimators.fitted.Fitted", "All learners", VERBS),
    ),
    LOSSES_PAGE: (
        (
            "nearfar.deep.objective.terms.Term",
            "Losses and other terms",
            ("forward", "sample_losses", "weighted", "collect_stats", "learned_values"),
        ),
        ("nearfar.deep.pairwise.row_loss.RowLoss", "Losses of pairs and triplets", ("stats_",)),
    ),
}
SHARED_TITLES = {name.rpartition(".")[2]: title for classes in SHARED.values() for name, title, _ in classes}
TERMS = ("loss", "regularizer", "composition", "head", "memory")
OWN_OF_TERMS = {"get_logits", "probabilities", "drift", "watch", "assign", "learn"}
OWN_OF_SAMPLERS = {"set_epoch", "state_dict", "load_state_dict", "needs_embeddings", "refit"}
NOT_LISTED = {"takes", "distance", "dimensions", "trained_on", "fingerprint", "classes_", "decision_function"}
"""What pipelines and saved models ask of a learner, not people."""
TAKES = {
    "labels": "It learns from class labels.",
    "targets": "It learns from numbers as targets.",
    "pairs": "It learns from pairs that are similar or dissimilar, or from class labels.",
    "triplets": "It learns from triplets, or from class labels.",
    "quadruplets": "It learns from quadruplets, or from class labels.",
    "chunklets": "It learns from groups of similar rows, or from class labels.",
    "views": "It learns from several views of every item.",
    "sets": "It learns from sets of candidate classes.",
    "rows": "It compares every sample of a batch with the others.",
    "set": "Its value is one number for the whole batch.",
}
INPUTS = {"none": "", "rows": "samples of a batch", "set": "the whole batch", "targets": "numbers"}
SHORT_FORMS = {
    "T": r"^{\top}",
    "st": r"\text{s.t.}\ ",
    "argmin": r"\operatorname*{argmin}",
    "argmax": r"\operatorname*{argmax}",
    "mean": r"\operatorname*{mean}",
    "softmax": r"\operatorname{softmax}",
    "tr": r"\operatorname{tr}",
    "KL": r"\operatorname{KL}",
    "cov": r"\operatorname{cov}",
    "var": r"\operatorname{var}",
}
SUBSCRIPT = re.compile(
    r"(?<![\w'`|])(alpha|beta|gamma|lambda|mu|phi|psi|sigma|theta|cos|[A-Za-z])_([a-z]{1,3}|\d)(?![\w'`(])"
    r"(?:\^(\w|[+-](?!\w)))?"
)
LEARNER_EXAMPLE = """
from sklearn.datasets import load_iris
from nearfar import {name}

X, y = load_iris(return_X_y=True)
metric = {made}.fit(X[::3], y[::3])
print(metric.pair_distance(X[[[0, 1], [0, 149]]]).round(2))  # two rows of one class, and of two classes
"""
MEASURED = (  # table, page, heading of the section, the sentence; words in braces are columns of the method's row
    (
        "learners",
        "results_tables",
        "All learners",
        "On {tables} tables, its 3-NN accuracy differs from that of the plain distance by {mean} points on average, "
        "{worst} on the worst and {best} on the best table.",
    ),
    (
        "losses_omniglot",
        "results_scratch",
        "Every loss with default settings on Omniglot",
        "On unseen characters of Omniglot, after 10 epochs with default settings: Recall@1 {Recall@1}, MAP@R {MAP@R}.",
    ),
    (
        "losses_frozen",
        "results_pretrained",
        "Every loss on frozen features of photos",
        "As a linear layer on frozen features of photos: Recall@1 {Recall@1}, MAP@R {MAP@R} (0.409 for a closed-form "
        "whitening).",
    ),
    (
        "learners_photos",
        "results_tables",
        "Learners on photos of unseen products",
        "On photos of unseen products: MAP@R {MAP@R}, Recall@1 {Recall@1} (0.307 and 0.955 without learning).",
    ),
)
BATCH = """
import torch
from nearfar import {names}

torch.manual_seed(0)
embeddings = torch.randn(12, 5, requires_grad=True)  # the output of your network for 12 items
labels = torch.arange(12) % 4
loss = {made}
value = loss(embeddings, labels)
value.backward()
print(f"{{value.item():.4f}}")
"""
SAMPLER_EXAMPLE = """
from nearfar import {name}

labels = [0, 0, 0, 1, 1, 1, 2, 2, 2]
sampler = {made}
print(next(iter(sampler)))  # the items of the first batch
"""


class Page:
    """The entry of a method in `docs/formulas.toml`.

    Attributes
    ----------
    tex : list of str
        The formula, one line each, without the short forms.
    use : str
        When to use it, and when something else is better.
    example : str
        Python code instead of the default example of its kind, or "".
    """

    def __init__(self, entry: dict[str, Any]) -> None:
        self.tex = [expand(line) for line in entry["tex"]]
        self.use = entry["use"]
        self.example = entry.get("example", "")


def expand(line: str) -> str:
    """Write the short forms of a formula out.

    >>> expand(r"A\\T A")
    'A^{\\\\top} A'
    """
    for name, latex in SHORT_FORMS.items():
        line = re.sub(rf"\\{name}(?![A-Za-z])", latex.replace("\\", r"\\"), line)
    return line


def method_pages() -> dict[str, Page]:
    """Read `docs/formulas.toml`."""
    entries = tomllib.loads((DOCS / "formulas.toml").read_text(encoding="utf-8"))
    return {name: Page(entry) for name, entry in entries.items()}


def write(folder: Path, captions: dict[str, str] | None = None) -> None:
    """Write a page per method, an index of each family, and one of all; files that are right already are left alone."""
    folder.mkdir(exist_ok=True)
    about_methods = method_pages()
    works = tomllib.loads((DOCS / "citations.toml").read_text(encoding="utf-8"))
    rows = [(section[1:], table_rows(section[0])) for section in MEASURED]
    captions = captions or {}
    families = {title: [m for m in METHODS if m.home == home] for home, title in FAMILIES.items()}
    pages = {slug(title): family_page(title, methods) for title, methods in families.items() if methods}
    for methods in families.values():
        for method in methods:
            found = measured(method.name, rows)
            pages[method.name] = method_page(
                method,
                about_methods[method.name],
                results=found,
                work=works.get(method.name, ""),
                caption=captions.get(method.name, ""),
            )
    related = related_methods({name: page.use for name, page in about_methods.items()})
    for method in METHODS:
        pages[method.name] += related_section(method, related[method.name])
    pages |= {slug(title): shared_page(title, classes) for title, classes in SHARED.items()}
    pages |= {slug(title): package_page(title, module) for title, module in PACKAGES.items()}
    pages["commands"] = commands_page()
    pages["index"] = index_page(families)
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for path in folder.glob("*.rst"):
        if path.stem not in pages:
            path.unlink()


def slug(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower())


def heading(title: str, line: str) -> list[str]:
    return [title, line * len(title), ""]


def about(method: Method) -> tuple[str, str, str]:
    """Split the docstring of a method's module into the name of the method, its paper, and formula with remarks.

    What follows the paper in the first line belongs to the name.
    """
    first, _, rest = (ast.get_docstring(ast.parse(method.path.read_text()), clean=False) or "").partition("\n")
    name, _, after = first.rstrip(".").partition(" (")
    paper, _, more = after.partition(")")
    return name + more, paper or method.paper, rest.strip("\n")


def family_page(title: str, methods: list[Method]) -> str:
    lines = heading(title, "=")
    lines += [".. list-table::", "   :widths: 28 50 22", "   :header-rows: 1", ""]
    lines += ["   * - Name", "     - What it is", "     - Source"]
    for method in methods:
        name, paper, _ = about(method)
        lines += [f"   * - :ref:`{method.name}`", f"     - {name}", f"     - {paper}"]
    lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {method.name}" for method in methods), ""]
    return "\n".join(lines)


def table_rows(table: str) -> dict[str, dict[str, str]]:
    """Return the rows of a table of results by the method in their first column.

    A row of a method with settings, such as `TripletLoss(margin=0.1)`, is left out.
    """
    rows: dict[str, dict[str, str]] = {}
    for row in shown(rows_of(table)):
        named = re.fullmatch(r"`(\w+)(?:\(\))?`", next(iter(row.values())))
        if named:
            rows.setdefault(named[1], row)
    return rows


def measured(name: str, rows: list[tuple[tuple[str, str, str], dict[str, dict[str, str]]]]) -> list[str]:
    """Return a sentence for each table of results that has a row of the method, with a link to its section."""
    lines = []
    for (page, heading, sentence), cells in rows:
        if name in cells:
            anchor = heading.lower().replace(" ", "-")
            lines.append(f"- {filled(sentence, cells[name])} `{heading} <../{page}.html#{anchor}>`__")
    return lines


def filled(sentence: str, row: dict[str, str]) -> str:
    """Write the cells of a row into a sentence, where it has their columns in braces."""
    return re.sub(r"\{([^}]+)\}", lambda column: row[column[1]], sentence)


def citation(paper: str, work: str) -> str:
    """Return the authors, the title and the venue of a work.

    >>> citation("Schroff, Kalenichenko & Philbin, 2015", "FaceNet: A unified embedding. CVPR, 2015")
    'Schroff, Kalenichenko & Philbin. *FaceNet: A unified embedding.* CVPR, 2015.'
    """
    authors = re.sub(r",? \d{4}.*", "", paper.rpartition(": ")[2])
    authors = authors.removeprefix("after ").removeprefix("survey of ").rstrip(".")
    title, venue = re.split(r"(?<=[.?]) (?!.*[.?] )", work)
    return f"{authors}. *{title}* {venue}."


def method_page(method: Method, page: Page, *, results: list[str], work: str, caption: str) -> str:
    name, paper, head = about(method)
    lines = [f".. _{method.name}:", "", *heading(method.name, "="), f"**{name}** ({paper}).", ""]
    lines += [with_links(page.use, own=method.name), ""]
    for line in page.tex:
        lines += [".. math::", "", f"   {line}", ""]
    blocks = [dedent(block) for block in re.split(r"\n\s*\n", head)]
    for block in blocks[1:]:  # the first is the formula in plain characters
        lines += [*remark(block), ""]
    if method.takes in TAKES and method.kind not in ("sampler", "network"):
        lines += [TAKES[method.takes], ""]
    if caption:
        lines += [f".. figure:: ../pictures/methods/{method.name}.svg", f"   :alt: {caption}", "", f"   {caption}", ""]
    code = page.example.strip() or generated_example(method)
    if code:
        lines += [*heading("Example", "-"), ".. code-block:: python", "", indent(code, "   "), ""]
        lines += [".. code-block:: none", "   :class: output", "", indent(output_of(code, method.name), "   "), ""]
    if results:
        lines += [*heading("Measured", "-"), *results, ""]
    own, shared = members_of(method)
    lines += [*heading("Settings and methods", "-"), f".. autoclass:: nearfar.{method.name}"]
    lines += [f"   :members: {', '.join(own)}", ""] if own else [""]
    lines += shared_members(method, shared)
    if work:
        lines += [*heading("Citation", "-"), citation(paper, work), ""]
        lines += [".. code-block:: bibtex", "", indent(bibtex(paper, work), "   "), ""]
    return "\n".join(lines)


def members_of(method: Method) -> tuple[list[str], dict[str, str]]:
    """Return the methods that the page of a method describes, and those of the shared pages with their classes."""
    kind: Any = getattr(nearfar, method.name)
    homes = {name: members for classes in SHARED.values() for name, _, members in classes}
    own, shared = [], {}
    for name in dir(kind):
        owner = next((base for base in kind.__mro__ if name in vars(base)), object)
        if name.startswith("_") or not owner.__module__.startswith("nearfar"):
            continue
        described = [base for base in kind.__mro__ if name in homes.get(f"{base.__module__}.{base.__qualname__}", ())]
        if described and vars(owner)[name] is vars(described[0])[name]:
            shared[name] = f"{described[0].__module__}.{described[0].__qualname__}"
        elif is_own(method, name, vars(owner)[name]):
            own.append(name)
    return own, shared


def is_own(method: Method, name: str, member: Any) -> bool:
    """Return whether a method of a class is for its users, and not for the library."""
    member = getattr(member, "fget", getattr(member, "__func__", member))
    if not callable(member) or not member.__doc__ or isinstance(member, type):
        return False
    if method.kind in TERMS:
        return name in OWN_OF_TERMS
    if method.kind == "sampler":
        return name in OWN_OF_SAMPLERS
    if method.kind == "miner":
        return False
    return name not in NOT_LISTED and not re.fullmatch(r"set_\w+_request|of_scores|targets|extra_repr", name)


def shared_members(method: Method, shared: dict[str, str]) -> list[str]:
    """Return links to the methods that a class has in common with others of its kind."""
    if not shared:
        return []
    page = LOSSES_PAGE if method.kind in TERMS else LEARNERS_PAGE
    order = [name for classes in SHARED[page] for name in classes[2]]
    names = sorted(shared, key=order.index)
    calls = ", ".join(f":py:obj:`{name} <{shared[name]}.{name}>`" for name in names)
    return [f":doc:`{page} <{slug(page)}>`: {calls}.", ""]


def related_methods(uses: dict[str, str]) -> dict[str, list[str]]:
    """Return, for each method, those that its advice names, then those whose advice names it.

    >>> related_methods({"NCA": "or LMNN", "LMNN": "for neighbors"})
    {'NCA': ['LMNN'], 'LMNN': ['NCA']}
    """
    named = {name: [word for word in re.findall(r"\b[A-Z]\w+", use) if word in uses] for name, use in uses.items()}
    related = {}
    for name in uses:
        naming = [other for other, words in named.items() if name in words]
        related[name] = [other for other in dict.fromkeys([*named[name], *naming]) if other != name]
    return related


def related_section(method: Method, related: list[str]) -> str:
    family = FAMILIES[method.home]
    lines = heading("Related", "-")
    if related:
        lines += [", ".join(f":ref:`{name}`" for name in related) + ".", ""]
    lines += [f"All methods of the family: :doc:`{family} <{slug(family)}>`.", ""]
    return "\n".join(lines)


def bibtex(paper: str, work: str) -> str:
    """Return the entry of a work for BibTeX; authors are last names, as the list of citations has them.

    >>> print(bibtex("Schroff & Philbin, 2015", "FaceNet: A unified embedding. CVPR, 2015"))
    @inproceedings{schroff2015facenet,
      author = {Schroff and Philbin},
      title = {{FaceNet: A unified embedding}},
      booktitle = {CVPR},
      year = {2015},
    }
    """
    cited, title, venue = citation(paper, work).split("*")
    authors = re.split(r", | & ", cited.rstrip(". ").replace(" et al", " & others"))
    place, _, rest = venue.strip(". ").rpartition(", ") if "(early" not in venue else venue.strip(". ").partition(", ")
    year = rest[:4]
    first = re.sub(r"\W", "", authors[0].lower().replace(" ", ""))
    word = next(word for word in re.findall(r"\w+", title.lower()) if word not in ("a", "an", "the", "on", "in"))
    if place.startswith("arXiv:"):
        kind, fields = "misc", {"eprint": place.removeprefix("arXiv:"), "archiveprefix": "arXiv"}
    elif "Press" in place or place == "Teubner":
        kind, fields = "book", {"publisher": place}
    elif re.search(r" \d+(\(\d+\))?$", place):
        name, _, volume = place.rpartition(" ")
        number = volume.partition("(")[2].rstrip(")")
        kind, fields = "article", {"journal": name, "volume": volume.partition("(")[0]}
        fields |= {"number": number} if number else {}
    else:
        kind, fields = "inproceedings", {"booktitle": place}
    fields = {"author": " and ".join(authors), "title": f"{{{title.rstrip('.')}}}", **fields, "year": year}
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{first}{year}{word},", *lines, "}"])


def remark(block: str) -> list[str]:
    """Return a paragraph of the module's docstring as reStructuredText: in prose, x_ij becomes a formula.

    >>> remark("x_ij, N_i^+ and W_1^L of `split`, and |z|.")
    [':math:`x_{ij}`, :math:`N_{i}^{+}` and :math:`W_{1}^{L}` of ``split``, and \\\\|z\\\\|.']
    """
    if re.search(r"\s=\s|<-", block) and len(re.findall(r"[a-z]{4,}", block)) < 12:
        return [".. code-block:: none", "", indent(block, "   ")]
    prose_and_code = re.split(r"(``[^`]*``|`[^`]*`)", block)
    prose_and_code[::2] = [prose(piece) for piece in prose_and_code[::2]]
    prose_and_code[1::2] = [f"``{piece.strip('`')}``" for piece in prose_and_code[1::2]]
    return ["".join(prose_and_code)]


def prose(text: str) -> str:
    """Return text without code as reStructuredText."""
    pieces = SUBSCRIPT.split(text)
    plain = [re.sub(r"([*|`]|_(?!\w))", r"\\\1", piece) for piece in pieces[::4]]
    formulas = [
        f":math:`{symbol(letter)}_{{{index}}}{f'^{{{power}}}' if power else ''}`"
        for letter, index, power in zip(pieces[1::4], pieces[2::4], pieces[3::4], strict=True)
    ]
    return "".join(piece + formula for piece, formula in zip(plain, [*formulas, ""], strict=True))


def symbol(name: str) -> str:
    return f"\\{name}" if len(name) > 1 else name


def with_links(text: str, *, own: str) -> str:
    """Link the names of other methods in a text to their pages; code between double backquotes is left alone.

    >>> with_links("NCA for larger tables, with ``NCA``.", own="FastNCA")
    ':ref:`NCA` for larger tables, with ``NCA``.'
    """
    names = {method.name for method in METHODS} - {own}
    prose_and_code = re.split(r"(``.*?``)", text)
    prose_and_code[::2] = [
        re.sub(r"\b[A-Z]\w+\b", lambda word: f":ref:`{word[0]}`" if word[0] in names else word[0], prose)
        for prose in prose_and_code[::2]
    ]
    return "".join(prose_and_code)


def made(name: str, settings: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in settings.items())})"


def needed(method: Method) -> dict[str, Any]:
    """Return values of the settings without a default, as the tests set them."""
    parameters = signature(getattr(nearfar, method.name)).parameters.values()
    return {p.name: method.small[p.name] for p in parameters if p.default is Parameter.empty and p.name in method.small}


def generated_example(method: Method) -> str:
    """Return the shortest program that uses a method of its kind."""
    call = made(method.name, needed(method))
    if method.kind == "learner":
        text = LEARNER_EXAMPLE.format(name=method.name, made=call)
    elif method.kind in ("loss", "regularizer", "head", "composition"):
        text = BATCH.format(names=method.name, made=call)
    elif method.kind == "miner":
        text = BATCH.format(names=f"{method.name}, TripletLoss", made=f"TripletLoss(miner={call})")
    elif method.kind == "sampler":
        text = SAMPLER_EXAMPLE.format(name=method.name, made=f"{method.name}(labels, batch_size=4)")
    elif ">>>" in (getattr(nearfar, method.name).__doc__ or ""):
        text = ""  # the docstring has one
    else:
        raise ValueError(f"docs/formulas.toml: {method.name} is a {method.kind} and needs an example of its own")
    return text.strip()


def output_of(code: str, name: str) -> str:
    """Run an example and return what it prints."""
    printed = io.StringIO()
    with redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(compile(code, f"<example of {name}>", "exec"), {"__name__": "example"})
        except Exception as error:
            raise RuntimeError(f"the example of {name} fails: {error}\n\n{code}") from error
    return printed.getvalue().rstrip()


def shared_page(title: str, classes: tuple[tuple[str, str, tuple[str, ...]], ...]) -> str:
    lines = heading(title, "=")
    for name, _, members in classes:
        lines += [f".. autoclass:: {name}()", f"   :members: {', '.join(members)}", "   :member-order: bysource", ""]
    return "\n".join(lines)


def package_page(title: str, module: str) -> str:
    """Return the page of a package: its functions, then its classes."""
    package = import_module(module)
    classes = [name for name in package.__all__ if isinstance(getattr(package, name), type)]
    functions = [name for name in package.__all__ if name not in classes]
    lines = [*heading(title, "="), (package.__doc__ or "").partition("\n")[0], ""]
    if functions:
        lines += heading("Functions", "-")
    for name in functions:
        lines += [f".. autofunction:: {module}.{name}", ""]
    if classes:
        lines += heading("Classes", "-")
    for name in classes:
        thing = getattr(package, name)
        fields = getattr(thing, "_fields", ())  # a named tuple's docstring describes them
        requests = [own for own in vars(thing) if re.fullmatch(r"set_\w+_request", own)]  # scikit-learn's, not ours
        left_out = ", ".join([*fields, *requests])
        lines += [f".. autoclass:: {module}.{name}", "   :members:", f"   :exclude-members: {left_out}", ""]
    return "\n".join(lines)


def index_page(families: dict[str, list[Method]]) -> str:
    lines = heading("Methods and reference", "=")
    lines += ["Each method has a page with its formula, when to use it, an example, its settings and its paper.", ""]
    lines += [
        "To choose one, read `Which loss <../objectives.html#which-loss>`__ or",
        "`Which learner <../learners.html#which-learner-to-start-with>`__.",
        "",
    ]
    for title, methods in families.items():
        lines += [*heading(title, "-"), ".. list-table::", "   :widths: 28 40 22 10", "   :header-rows: 1", ""]
        lines += ["   * - Name", "     - What it is", "     - Source", "     - Learns from"]
        for method in methods:
            name, paper, _ = about(method)
            takes = INPUTS.get(method.takes, method.takes)
            lines += [f"   * - :ref:`{method.name}`", *(f"     - {cell}" for cell in (name, paper, takes))]
        lines += [""]
    pages = ["commands", *(slug(title) for title in (*families, *SHARED, *PACKAGES))]
    return "\n".join([*lines, ".. toctree::", "   :hidden:", "", *(f"   {page}" for page in pages), ""])
