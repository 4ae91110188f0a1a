"""The scores of one evaluation: values, counts and the rules they follow, as a table and as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from html import escape
from math import isnan
from typing import Any

OTHER_GROUPS = ", own class only in other groups"
OF_PRODUCTS = {"best": ", items are products by their best photo", "mean": ", items are products by all their photos"}
TIES = "equally near items in the order of their index"
OPTIONAL = ("nmi", "nmi_geometric", "ami", "f1", "clusterer", "inertia", "rerank")


@dataclass(frozen=True)
class Scores:
    """Scores of embeddings against their classes, in [0, 1] or NaN if undefined; AMI can be slightly negative.

    Attributes
    ----------
    recall_at : dict of int to float
        Recall@K for each K: the fraction of queries with a relevant item among the first K.
    precision_at : dict of int to float
        Precision@K for each K: the mean fraction of relevant items among the first K.
    map_at_r : float
        MAP@R, the mean over queries of the average precision over the R nearest items.
    r_precision : float
        Mean fraction of relevant items among the R nearest.
    mrr : float
        Mean reciprocal rank of the first relevant item.
    nmi : float or None
        Normalized mutual information of k-means clusters and classes, with the arithmetic mean of entropies. All
        clustering scores are None without clustering, and if every item is a class of its own, which any clustering
        into that many clusters gets right.
    nmi_geometric : float or None
        The same with the geometric mean.
    ami : float or None
        Adjusted mutual information.
    f1 : float or None
        F1 score of pairs.
    n_queries : int
        Number of queries given.
    n_gallery : int
        Maximum number of items that a query can find.
    n_classes : int
        Number of classes of the queries.
    n_lone : int
        Number of queries without a relevant item.
    chance : dict
        Expected scores of a random ranking, by the same names.
    distance : str
        Distance by which embeddings were compared.
    protocol : str
        "leave-one-out" or "query-gallery", and whether groups were given.
    lone : str
        Whether queries without a relevant item are left out ("exclude") or count as misses ("miss").
    ties : str
        Rule for ties.
    clusterer : str or None
        Engine, restarts and seed of the clustering.
    inertia : float or None
        Sum of squared distances to the cluster centers.
    rerank : str or None
        Method that reordered the neighbors of each query with the help of other test items.
    """

    recall_at: dict[int, float]
    precision_at: dict[int, float]
    map_at_r: float
    r_precision: float
    mrr: float
    nmi: float | None
    nmi_geometric: float | None
    ami: float | None
    f1: float | None
    n_queries: int
    n_gallery: int
    n_classes: int
    n_lone: int
    chance: dict[str, Any] = field(default_factory=dict)
    distance: str = "cosine"
    protocol: str = "leave-one-out"
    lone: str = "exclude"
    ties: str = TIES
    clusterer: str | None = None
    inertia: float | None = None
    rerank: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with each K as a string. NaN becomes null in JSON files; `from_dict` reverses this."""
        return {name: _with_keys(value, str) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Scores:
        """Build scores from the result of `to_dict`; raise a ValueError if one is missing or of the wrong type."""
        import msgspec

        known = {name: _with_keys(value, _number) for name, value in data.items()}
        return msgspec.convert(
            {name: value if name in OPTIONAL else _measured(value) for name, value in known.items()}, cls
        )

    def rows(self) -> list[tuple[str, float, float | None]]:
        """Return (name, score, chance) of every score, in the order of the table."""
        found: list[tuple[str, float | None, float | None]] = []
        for name, values in (("Recall@", self.recall_at), ("Precision@", self.precision_at)):
            chances = self.chance.get("recall_at" if name == "Recall@" else "precision_at", {})
            found += [
                (f"{name}{k}", value, chances.get(k)) for k, value in values.items() if k > 1 or name == "Recall@"
            ]
        found += [
            ("MAP@R", self.map_at_r, self.chance.get("map_at_r")),
            ("R-precision", self.r_precision, self.chance.get("r_precision")),
            ("MRR", self.mrr, self.chance.get("mrr")),
            ("NMI (arithmetic)", self.nmi, None),
            ("NMI (geometric)", self.nmi_geometric, None),
            ("AMI", self.ami, None),
            ("Pairwise F1", self.f1, None),
        ]
        return [(name, score, chance) for name, score, chance in found if score is not None]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per score: its value, and that of a random ranking or NaN."""
        import pandas as pd

        rows = self.rows()
        columns = {"value": [value for _, value, _ in rows], "chance": [chance for _, _, chance in rows]}
        return pd.DataFrame(columns, index=pd.Index([name for name, _, _ in rows], name="score"), dtype=float)

    def _repr_html_(self) -> str:
        """The table of scores in a notebook."""
        lines = ["<table><thead><tr><th>score</th><th>value</th><th>chance</th></tr></thead><tbody>"]
        for name, value, chance in self.rows():
            if not isnan(value):
                by_chance = "" if chance is None else f"{chance:.4f}"
                lines.append(f"<tr><td>{name}</td><td>{value:.4f}</td><td>{by_chance}</td></tr>")
        lines.append(f"</tbody></table><p>{escape(self.protocol_line())}</p>")
        return "".join(lines)

    def protocol_line(self) -> str:
        """Return one sentence on the queries, items and classes, the distance, and queries without a relevant item."""
        lone = "left out" if self.lone == "exclude" else "counted as misses"
        return (
            f"{self.n_queries:,} queries of {self.n_classes:,} classes, each searching {self.n_gallery:,} items "
            f"({self.protocol}, {self.distance} distance); {self.n_lone:,} without a relevant item {lone}; "
            f"ties: {self.ties}{self._told_together()}"
        )

    def _told_together(self) -> str:
        if self.rerank is None:
            return ""
        return f"; re-ranked by {self.rerank}: test items were looked at together"

    def why_unscored(self) -> str:
        """Return one sentence on why there is no retrieval score, or an empty string if there is one."""
        if self.lone == "miss" or self.n_lone < self.n_queries:
            return ""
        other = "another item" if self.protocol.startswith("leave-one-out") else "an item"
        where = " in another group" if self.protocol.endswith(OTHER_GROUPS) else ""
        found = f"none of the {self.n_queries:,} queries has {other} of its class to find{where}"
        return f"There is no score of retrieval: {found} ({self.n_classes:,} classes); score items that share classes."

    def __str__(self) -> str:
        known = [row for row in self.rows() if not isnan(row[1])]
        lines = [f"{'score':<18}{'value':>8}{'chance':>9}"] if known else []
        for name, score, chance in known:
            lines.append(f"{name:<18}{score:>8.4f}" + ("" if chance is None else f"{chance:>9.4f}"))
        lines += [self.protocol_line(), *filter(None, [self.why_unscored()])]
        if self.clusterer is not None:
            lines += [f"clusters: {self.clusterer}"]
        return "\n".join(lines)


def _with_keys(value: Any, key: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key(name): _with_keys(inner, key) for name, inner in value.items()}


def _measured(value: Any) -> Any:
    """NaN for every None."""
    if isinstance(value, dict):
        return {name: _measured(inner) for name, inner in value.items()}
    return float("nan") if value is None else value


def _number(name: str) -> int | str:
    return int(name) if str(name).isdigit() else name
