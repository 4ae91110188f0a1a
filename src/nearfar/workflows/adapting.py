"""Queries of a new model for an index of an old one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..data.dataset import check_seed
from ..evaluation import recall_at_k
from ..index import QueryAdapter
from ..io.sources import has_embeddings
from ..models.embedded import embed_source
from ..quoting import quoted

if TYPE_CHECKING:
    from ..data import Dataset
    from ..index import QueryAdapter
    from ..numerics.types import AnyArray


def adapt(
    new: str | Path,
    old: str | Path,
    out: str | Path,
    *,
    kind: Literal["orthogonal", "linear", "residual"] = "orthogonal",
    rank: int | None = None,
    seed: int = 0,
) -> str:
    """Fit an adapter to two files of embeddings of the same items, save it, and return lines on how well it works.

    Parameters
    ----------
    new, old : str or Path
        Files of embeddings by the new model, and by the one that made the index.
    out : str or Path
        The .safetensors file to write.
    kind, rank, seed
        As for `nearfar.index.QueryAdapter`.
    """
    check_seed(seed)
    for name, file in (("NEW", Path(new)), ("OLD", Path(old))):
        if not has_embeddings(file):
            raise ValueError(f"{name}: {file}: expected a file of embeddings; `nearfar embed` writes one")
    embedded = embed_source(new, apart=False)
    items = embedded.dataset
    rows = embedded.rows
    others = embed_source(old, apart=False)
    old_rows = others.rows
    at = row_numbers_in(items, others.dataset)
    adapter = QueryAdapter(kind, rank=rank, seed=seed).fit(rows, old_rows[at])
    adapter.save(out)
    made = f"{out}: {kind} adapter from {rows.shape[1]} to {old_rows.shape[1]} dimensions, of {len(rows):,} items"
    return f"{made}\n{held_out_scores(adapter, items, rows, old_rows[at])}"


def row_numbers_in(items: Dataset, others: Dataset) -> list[int]:
    """Return the row numbers of items in another data set, by their names."""
    known = {name: place for place, name in enumerate(others.names)}
    missing = [name for name in items.names if name not in known]
    if missing:
        count = f"{len(missing)} of {len(items)}"
        raise ValueError(f"OLD: has no {quoted(missing[0])} ({count} items of NEW are missing); embed the same items")
    return [known[name] for name in items.names]


def held_out_scores(adapter: QueryAdapter, items: Dataset, new: AnyArray, old: AnyArray) -> str:
    """Return lines on how well held-out queries find the other items, with each model and with the adapter."""
    held = adapter.held_out_
    lines = [f"held-out items: cosine to the old embeddings {adapter.similarity_:.4f}"]
    labels = items.labels
    if len(items.classes) > 1:
        scores = {}
        for name, queries, gallery in (
            ("new", new[held], new[~held]),
            ("old", old[held], old[~held]),
            ("new on old", adapter.transform(new[held]), old[~held]),
        ):
            scores[name] = recall_at_k(queries, labels[held], 1, gallery=gallery, gallery_labels=labels[~held])
        shares = ", ".join(f"{name} {score:.4f}" for name, score in scores.items())
        kept = scores["new on old"] / max(scores["new"], 1e-12)
        lines.append(f"Recall@1 among the others: {shares}; the adapter keeps {kept:.3f} of the new model's")
    return "\n".join(lines)
