"""A small but complete content, and what reads a page."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from nearfar.evaluation import evaluate
from nearfar.report import Curve, Items, ReportContent, build_report

SECTIONS = ["scores", "neighbors", "confused", "map", "distances", "spectrum", "training", "attention", "setup"]
NASTY = (
    "<script>alert(1)</script>",
    'a "quoted" $x^2$ & more',
    "]]></svg><img src=x onerror=alert(1)>",
    "{{ 7*7 }}",
    "ü/Ω",
)


@dataclass
class Page(HTMLParser):
    """The tags, attributes and text of a page."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for found, attrs in self.tags if found == tag]

    @property
    def sections(self) -> list[str | None]:
        return [attrs.get("id") for attrs in self.all("section")]


def read_page(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def digits(n: int = 150, classes: tuple[str, ...] = NASTY) -> Items:
    data = load_digits()
    chosen = np.flatnonzero(data.target >= 5)[:n]
    images = (data.images[chosen] * 255 / 16).astype(np.uint8)[..., None]
    embeddings = PCA(4, random_state=0).fit_transform(data.data[chosen])
    names = [f"digit {i}, {'of a file with a long name, ' * 5}" for i in chosen]
    return Items(embeddings, data.target[chosen] - 5, classes, names, images.__getitem__)


def full_content() -> ReportContent:
    items = digits()
    epochs = np.arange(1.0, 7.0)
    scores = evaluate(items.embeddings, items.labels)
    return ReportContent(
        title=f"Digits {NASTY[0]}",
        protocol=f"digits 5 to 9, {NASTY[2]}",
        scores=scores,
        baseline={"recall_at": {1: 0.9}, "map_at_r": 0.5},
        intervals={"recall_at_1": (0.6, 0.8)},
        queries=items,
        losses=[Curve("TripletLoss", epochs, 1 / epochs), Curve(NASTY[1], epochs, epochs)],
        recalls={1: [Curve("seen", epochs, epochs / 7), Curve("unseen", epochs, epochs / 9)]},
        best_epoch=4.0,
        attention=lambda image: image[::2, ::2].transpose(2, 0, 1),
        settings={"objective": NASTY[0], "nested": {"lr": 0.1}},
        environment={"python": "3"},
        command="nearfar train 'x<y'",
        notes=[NASTY[2]],
    )


@pytest.fixture(scope="session")
def full_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_report(full_content(), tmp_path_factory.mktemp("report") / "full.html")
