"""`Scores`: the results of an evaluation with its protocol, as a table and as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from html import escape
from math import isnan
from typing import Any

OTHER_GROUPS = ", own class only in other groups"
WITHOUT_ITSELF = ", without the query itself"
OF_PRODUCTS = {"best": ", items are products by their best photo", "mean": ", items are products by all their photos"}
TIES = "equally near items in the order of their index"
NAMES_BY = {"recall_at_1": "Recall@1", "map_at_r": "MAP@R", "ndcg_at_10": "nDCG@10", "auc": "AUC"}
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
        clustering scores are None without clustering, and if every item forms its own class, for which every
        clustering into that many clusters is correct.
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
    n_in_gallery : int
        Number of queries that equal a gallery item of their class and can find it, which is probably the query itself.
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
    by : dict of str to dict
        Scores by other relevance than the class, such as ``{"genus": {"recall_at_1": 0.9, "map_at_r": 0.7}}``: by the
        name of a level, "labels in common", "levels in common" or "listed pairs".
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
    n_in_gallery: int = 0
    distance: str = "cosine"
    protocol: str = "leave-one-out"
    lone: str = "exclude"
    ties: str = TIES
    clusterer: str | None = None
    inertia: float | None = None
    rerank: str | None = None
    by: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with each K as a string. NaN becomes null in JSON files; `from_dict` reverses this."""
        return {name: _with_keys(value, str) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Scores:
        """Build scores from the result of `to_dict`; raise a ValueError if one is missing or of the wrong type."""
        import msgspec

        values = {name: _with_keys(value, _number) for name, value in data.items()}
        # JSON has no NaN, so None means NaN, except for clustering scores, where it means that there are none
        for name in values.keys() - OPTIONAL:
            values[name] = _measured(values[name])
        return msgspec.convert(values, cls)

    def rows(self) -> list[tuple[str, float, float | None]]:
        """Return (name, score, chance) of every score, in the order of the table."""
        found: list[tuple[str, float | None, float | None]] = []
        recall_by_chance = self.chance.get("recall_at", {})
        for k, value in self.recall_at.items():
            found.append((f"Recall@{k}", value, recall_by_chance.get(k)))
        precision_by_chance = self.chance.get("precision_at", {})
        for k, value in self.precision_at.items():
            if k > 1:  # Precision@1 is Recall@1
                found.append((f"Precision@{k}", value, precision_by_chance.get(k)))
        found += [
            ("MAP@R", self.map_at_r, self.chance.get("map_at_r")),
            ("R-precision", self.r_precision, self.chance.get("r_precision")),
            ("MRR", self.mrr, self.chance.get("mrr")),
            *self._rows_by(),
            ("NMI (arithmetic)", self.nmi, None),
            ("NMI (geometric)", self.nmi_geometric, None),
            ("AMI", self.ami, None),
            ("Pairwise F1", self.f1, None),
        ]
        return [(name, score, chance) for name, score, chance in found if score is not None]

    def _rows_by(self) -> list[tuple[str, float | None, float | None]]:
        by_chance = self.chance.get("by", {})
        return [
            (f"{NAMES_BY.get(score, score)}, {name}", value, by_chance.get(name, {}).get(score))
            for name, found in self.by.items()
            for score, value in found.items()
        ]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per score: its value, and that of a random ranking or NaN."""
        import pandas as pd

        rows = self.rows()
        columns = {"value": [value for _, value, _ in rows], "chance": [chance for _, _, chance in rows]}
        return pd.DataFrame(columns, index=pd.Index([name for name, _, _ in rows], name="score"), dtype=float)

    def _repr_html_(self) -> str:
        """Return the table of scores for a notebook."""
        lines = ["<table><thead><tr><th>score</th><th>value</th><th>chance</th></tr></thead><tbody>"]
        for name, value, chance in self.rows():
            if not isnan(value):
                by_chance = ""
                if chance is not None:
                    by_chance = f"{chance:.4f}"
                lines.append(f"<tr><td>{escape(name)}</td><td>{value:.4f}</td><td>{by_chance}</td></tr>")
        lines.append(f"</tbody></table><p>{escape(self.protocol_line())}</p>")
        return "".join(lines)

    def protocol_line(self) -> str:
        """Return one sentence on the queries, items and classes, the distance, and queries without a relevant item."""
        rule = "left out" if self.lone == "exclude" else "counted as misses"
        lone = f"{self.n_lone:,} without a relevant item {rule}" if self.n_lone else "each has a relevant item"
        queries = f"{self.n_queries:,} queries"
        if self.n_lone and self.lone == "exclude":
            queries = f"{self.n_queries - self.n_lone:,} of {queries}"
        return (
            f"{queries} of {self.n_classes:,} classes, each searching {self.n_gallery:,} items "
            f"({self.protocol}, {self.distance} distance); {self._in_gallery()}{lone}; "
            f"ties: {self.ties}{self._reranked_by()}"
        )

    def _in_gallery(self) -> str:
        if not self.n_in_gallery:
            return ""
        share = "all" if self.n_in_gallery == self.n_queries else f"{self.n_in_gallery:,} of the"
        return f"{share} queries are in the gallery and can find themselves; "

    def _reranked_by(self) -> str:
        if self.rerank is None:
            return ""
        return f"; re-ranked by {self.rerank}, which uses the test items jointly"

    def why_unscored(self) -> str:
        """Return one sentence on why there is no retrieval score, or an empty string if there is one."""
        if self.lone == "miss" or self.n_lone < self.n_queries:
            return ""
        other = "an item"
        if self.protocol.startswith("leave-one-out"):
            other = "another item"
        where = ""
        if self.protocol.endswith(OTHER_GROUPS):
            where = " in another group"
        found = f"none of the {self.n_queries:,} queries has {other} of its class to find{where}"
        return f"There is no retrieval score: {found} ({self.n_classes:,} classes); use items that share classes."

    def _why_certain(self) -> str:
        """Return one sentence if every item that a query searches is relevant, or an empty string if some are not."""
        _, score, chance = self.rows()[0]  # Recall@1
        if isnan(score) or chance is None or chance < 1:
            return ""
        return "These scores say nothing: no item that is searched is of another class; use items of several classes."

    def __str__(self) -> str:
        known = [row for row in self.rows() if not isnan(row[1])]
        lines = []
        wide = max([16, *(len(name) for name, _, _ in known)]) + 2
        if known:
            lines.append(f"{'score':<{wide}}{'value':>8}{'chance':>9}")
        for name, score, chance in known:
            line = f"{name:<{wide}}{score:>8.4f}"
            if chance is not None:
                line += f"{chance:>9.4f}"
            lines.append(line)
        lines.append(self.protocol_line())
        if reason := self.why_unscored() or self._why_certain():
            lines.append(reason)
        if self.clusterer is not None:
            lines += [f"clusters: {self.clusterer}"]
        return "\n".join(lines)


def _with_keys(value: Any, key: Any) -> Any:
    """Return a value with the keys of its dictionaries converted, at any depth."""
    if not isinstance(value, dict):
        return value
    return {key(name): _with_keys(inner, key) for name, inner in value.items()}


def _measured(value: Any) -> Any:
    """Return a value with every None replaced by NaN."""
    if isinstance(value, dict):
        return {name: _measured(inner) for name, inner in value.items()}
    if value is None:
        return float("nan")
    return value


def _number(name: str) -> int | str:
    """Return a key that is a number, such as the K of Recall@K, as an integer."""
    if str(name).isdigit():
        return int(name)
    return name
