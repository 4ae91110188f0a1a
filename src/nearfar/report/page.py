"""Join the sections to one self-contained HTML file."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ..evaluation.collapse import collapse
from ..io.atomic_files import atomic_write
from ..quoting import significant
from . import sections
from .analysis import Analysis, analyze
from .content import ReportContent
from .paired_section import compared, verdict
from .pictures import Thumbnails
from .plots import Html, Plotter
from .retrieval import class_recall
from .score_rows import ScoreRow, score_intervals_of, score_rows
from .sections import Drawings, Section

MAX_PAGE_BYTES = 4_800_000  # maximum size of the file, if possible
SIDES = (128, 96, 64, 40)  # sides of the pictures in pixels; the first that keeps the file small enough is used
HEADLINES = ("recall_at_1", "map_at_r", "nmi")


def build_report(content: ReportContent, path: str | Path) -> Path:
    """Write a report as one self-contained HTML file.

    Parameters
    ----------
    content : ReportContent
        What to show; sections without content are left out.
    path : str or Path
        File to write, completely or not at all.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> content = ReportContent("Tiny", "three scores, no data", {"map_at_r": 0.5})
    >>> build_report(content, Path(tempfile.mkdtemp()) / "report.html").name
    'report.html'
    """
    analysis = analyze(content)
    if not score_intervals_of(content):
        content = replace(content, intervals=analysis.intervals)
    return write(Path(path), shrink_to_limit(lambda side: render(content, analysis, side)))


def shrink_to_limit(rendered: Callable[[int], str]) -> bytes:
    """Return the page with the largest pictures that keep it small enough; `rendered` takes their side."""
    for side in SIDES:
        page = rendered(side).encode(errors="replace")
        if len(page) <= MAX_PAGE_BYTES:
            break
    return page


def render(content: ReportContent, analysis: Analysis, side: int) -> str:
    """Return the page with pictures of at most `side` pixels."""
    queries = Thumbnails(content.queries, side) if content.queries else None
    gallery = Thumbnails(content.gallery, side, like=queries) if content.gallery else queries
    drawings = Drawings(queries, gallery, Plotter())
    shown = all_sections(content, analysis, drawings)
    return template("page").render(
        content=content,
        sections=shown,
        tiles=[s for key in HEADLINES for s in score_rows(content) if s.key == key],
        headline=headline(content),
        findings=findings(content, analysis),
        **script_of("tables", "map"),
    )


def all_sections(content: ReportContent, analysis: Analysis, drawings: Drawings) -> list[Section]:
    """Return the sections that have something to show, in the order of the page."""
    shown = [
        sections.scores(content),
        compared(content, analysis.against, drawings),
        sections.neighbors(analysis.failures, drawings),
        sections.confused(analysis, drawings),
        sections.flat_map(content, analysis, drawings),
        sections.distances(content, analysis, drawings),
        sections.directions(analysis, drawings),
        sections.features(content),
        sections.ladder(content),
        sections.theory(content),
        sections.training(content, drawings),
        sections.attention(content, analysis, drawings),
        sections.setup(content),
    ]
    return [section for section in shown if section is not None]


def headline(content: ReportContent) -> str:
    """Return one sentence on how good the model is."""
    first = next((s for s in score_rows(content) if s.key == "recall_at_1"), None)
    if first is None:
        return ""
    share = _of_hundred(first.value)
    return f"The nearest neighbor of {share} of 100 queries is of the right class{_compared(first, content)}."


def _compared(score: ScoreRow, content: ReportContent) -> str:
    others = ((content.baseline_name, score.baseline), ("chance", score.chance))
    compared = [f"{name}: {_of_hundred(value)}" for name, value in others if value is not None]
    return f" ({', '.join(compared)})" if compared else ""


def _of_hundred(share: float) -> str:
    """Return a share of 100, which is 0 or 100 only if the share is.

    >>> _of_hundred(0.756), _of_hundred(0.997), _of_hundred(1.0), _of_hundred(0.9998), _of_hundred(0.0002)
    ('76', '99.7', '100', 'more than 99.9', 'less than 0.1')
    """
    if share in (0, 1) or 0.01 <= share <= 0.99:
        return f"{100 * share:.0f}"
    text = f"{100 * share:.1f}"
    if text == "0.0":
        return "less than 0.1"
    if text == "100.0":
        return "more than 99.9"
    return text


def findings(content: ReportContent, analysis: Analysis) -> list[tuple[str, str]]:
    """Return the main findings as pairs of the anchor of their section and a sentence."""
    sentences = []
    if analysis.against:
        sentences.append(("against", verdict(analysis.against, content)))
    section_of_remarks = "training" if content.losses or content.recalls else "scores"
    sentences += [(section_of_remarks, remark.replace("`", "")) for remark in content.remarks]  # of commands
    if analysis.failures:
        sentences.extend(_failings(analysis))
    if analysis.verification:
        threshold = analysis.verification.eer_threshold
        rate = analysis.verification.eer
        limit = f"A threshold of {significant(threshold, 3)}"
        sentence = f"{limit} misjudges {rate:.1%} of same-class and of different-class pairs."
        sentences.append(("distances", sentence))
    if content.queries is not None and not any("collapsed" in remark for remark in content.remarks):
        finding = collapse(content.queries.embeddings, content.distance)
        if finding:
            sentences.append(("spectrum", finding))
    if analysis.spectrum:
        used = analysis.spectrum.effective_dimension
        d = len(analysis.spectrum.eigenvalues)
        sentences.append(("spectrum", f"The embedding has an effective dimension of {used:.1f} out of {d}."))
    return sentences


def _failings(analysis: Analysis) -> list[tuple[str, str]]:
    failures = analysis.failures
    assert failures is not None
    classes, recall, _ = class_recall(failures.retrieved)
    names = failures.retrieved.queries.classes
    hardest = int(np.argmin(recall))
    sentences = []
    if failures.confused:
        worst = failures.confused[0]
        pair = f"{names[worst.first]} and {names[worst.second]}"
        sentence = (
            f"Most confused: {pair}; {worst.rate:.0%} of their queries have a nearest neighbor of the other class."
        )
        sentences.append(("confused", sentence))
    if len(classes) > 1 and recall[hardest] < 1:
        sentences.append(("confused", f"Hardest class: {names[classes[hardest]]}, Recall@1 {recall[hardest]:.2f}."))
    return sentences


def template(name: str) -> Any:
    """Return a template of this package, which escapes all values."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["significant"] = significant
    return environment.get_template(f"{name}.html.j2")


def script_of(*names: str) -> dict[str, str]:
    """Return the script of a page, also for its sounds, and the policy by which a browser runs it and no other.

    Names of files and classes come from strangers. Templates escape them, and the policy would keep a script among them
    from running even if one did not.

    >>> script_of("tables")["policy"].partition(";")[0]
    "default-src 'none'"
    """
    folder = Path(__file__).parent / "templates"
    script = "".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in (*names, "sounds"))
    digest = base64.b64encode(sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    )
    return {"script": Html(script), "policy": policy}


def write(path: Path, page: bytes) -> Path:
    """Write a file, completely or not at all, and create its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(page)
    return path
