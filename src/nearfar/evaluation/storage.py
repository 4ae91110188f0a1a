"""Scores of embeddings that are stored with fewer bytes: fewer dimensions, float16, int8 codes, or signs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from ..labels import class_numbers
from ..neighbors.codes import calibrate, from_int8, signs_of, to_binary, to_int8
from ..numerics.distances import as_rows, unit_rows
from ..numerics.types import AnyArray, Array, Ints
from .protocol import mean_score
from .rerank import RankedByValues, smallest
from .retrieval import retrieve

OVERSAMPLE = 4
"""Number of candidates for re-scoring per item of the largest class, all of which MAP@R needs."""
FEWEST_CANDIDATES = 100
MIN_DIMS = 8  # shorter prefixes are not tried


@dataclass(frozen=True)
class StoredScore:
    """Scores of embeddings in one storage format.

    Attributes
    ----------
    storage : str
        "float32", "float16", "int8", "binary", or "binary, then int8", which reorders candidates by a second code.
    dims : int
        Number of leading dimensions that are kept.
    bytes_searched : float
        Bytes per item that every search reads.
    bytes_stored : float
        Bytes per item that are stored.
    recall_at_1 : float
        Recall@1.
    map_at_r : float
        MAP@R.
    """

    storage: str
    dims: int
    bytes_searched: float
    bytes_stored: float
    recall_at_1: float
    map_at_r: float

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as a dictionary."""
        return asdict(self)


def storage_scores(
    embeddings: Any,
    labels: Any,
    *,
    gallery: Any = None,
    gallery_labels: Any = None,
    dims: Sequence[int] = (),
    distance: str = "cosine",
    calibration: Any = None,
    **protocol: Any,
) -> list[StoredScore]:
    """Score embeddings that are stored with fewer bytes; queries are encoded in the same way as the gallery.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings, as arrays or tensors.
    labels : array-like of shape (n,)
        Class of each embedding, of any hashable type.
    gallery : array-like of shape (m, d), optional
        Embeddings to search, as in `evaluate`.
    gallery_labels : array-like of shape (m,), optional
        Class of each gallery item.
    dims : sequence of int
        Numbers of leading dimensions to keep. By default, all, half and a quarter of them.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which embeddings are compared.
    calibration : array-like of shape (n, d), optional
        Rows that determine the range of the 8-bit codes and the center of the signs, such as training items. By
        default, the gallery, or the embeddings if there is none.
    **protocol
        Arguments `groups`, `gallery_groups` and `lone` of `evaluate`.

    Returns
    -------
    list of StoredScore
        For each number of dimensions, from the most bytes to the fewest.

    Raises
    ------
    ValueError
        If an argument is not valid, as in `evaluate`, or `dims` are not numbers of leading dimensions.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(40, 16)) + 3 * np.eye(16)[np.arange(40) % 4]
    >>> [(found.storage, found.bytes_searched) for found in storage_scores(rows, np.arange(40) % 4, dims=(16,))]
    [('float32', 64), ('float16', 32), ('int8', 16), ('binary, then int8', 2), ('binary', 2)]
    """
    x = as_rows(embeddings, "embeddings")
    if gallery is None:
        y = None
        calibrating = x
        searched_labels = labels
    else:
        y = as_rows(gallery, "gallery")
        calibrating = y
        searched_labels = gallery_labels
    if calibration is not None:
        calibrating = as_rows(calibration, "calibration")
    lone = protocol.pop("lone", "exclude")
    sizes = np.bincount(class_numbers(searched_labels)[0])
    # MAP@R reads as many places as a class has items
    candidates = max(FEWEST_CANDIDATES, OVERSAMPLE * int(sizes.max()))
    how = {"gallery_labels": gallery_labels, "distance": distance, "ks": (1,), **protocol}
    found = []
    for d in _lengths(dims, x.shape[1]):
        prefixes = _Rows(x[:, :d], None if y is None else y[:, :d])
        for stored in _formats(prefixes, calibrating[:, :d], distance, candidates):
            rows = stored.rows
            result = retrieve(rows.queries, labels, gallery=rows.gallery, rerank=stored.rescored, **how)
            found.append(
                StoredScore(
                    storage=stored.name,
                    dims=d,
                    bytes_searched=stored.searched,
                    bytes_stored=stored.kept,
                    recall_at_1=mean_score(result, result.found(1), lone),
                    map_at_r=mean_score(result, result.map_at_r, lone),
                )
            )
    return found


def _lengths(dims: Sequence[int], width: int) -> list[int]:
    if not dims:
        halves = {width, width // 2, width // 4}
        return sorted((d for d in halves if d >= min(MIN_DIMS, width)), reverse=True)
    for d in dims:
        if isinstance(d, bool) or not isinstance(d, Integral) or not 1 <= d <= width:
            raise ValueError(f"dims: expected integers from 1 to {width}, the number of dimensions, got {d!r:.40}")
    return sorted({int(d) for d in dims}, reverse=True)


class _Rows(NamedTuple):
    """Queries (n, d) and the gallery (m, d) that they search; None if they search each other."""

    queries: AnyArray
    gallery: AnyArray | None

    def converted(self, convert: Callable[[AnyArray], AnyArray]) -> _Rows:
        """Apply a conversion to both."""
        return _Rows(convert(self.queries), None if self.gallery is None else convert(self.gallery))


class _Stored(NamedTuple):
    """Rows as read from storage, their bytes, and the method that ranks them if it is not their distance."""

    name: str
    rows: _Rows
    searched: float
    kept: float
    rescored: RankedByValues | None = None


def _formats(rows: _Rows, calibrating: AnyArray, distance: str, candidates: int) -> Iterator[_Stored]:
    """Yield rows of d dimensions in each storage format, from the most bytes to the fewest."""
    d = rows.queries.shape[1]
    yield _Stored("float32", rows, searched=4 * d, kept=4 * d)
    yield _Stored("float16", rows.converted(_as_float16), searched=2 * d, kept=2 * d)

    codes = calibrate(calibrating)
    coded = rows.converted(lambda x: from_int8(to_int8(x, codes), codes))
    yield _Stored("int8", coded, searched=d, kept=d)

    # one bit per dimension: whether the value is above the mean
    size = -(-d // 8)
    center = calibrating.mean(axis=0)
    signs = rows.converted(lambda x: signs_of(to_binary(x, center), d))
    rescored = Rescored(*signs, *coded, candidates=candidates, distance=distance)
    yield _Stored("binary, then int8", rows, searched=size, kept=size + d, rescored=rescored)
    yield _Stored("binary", signs, searched=size, kept=size)


def _as_float16(rows: AnyArray) -> AnyArray:
    """Return rows as float32, rounded to float16 precision; values beyond its range are clipped, as 8-bit codes are."""
    largest = np.finfo(np.float16).max
    return np.clip(rows, -largest, largest).astype(np.float16).astype(np.float32)


class Rescored(RankedByValues):
    """Ranks by signs, and re-ranks the first candidates by more accurate rows; the other items keep their order.

    Parameters
    ----------
    queries, gallery : ndarray of shape (n, d), (m, d), or None
        Signs.
    second, second_gallery : ndarray of the same shapes
        More accurate rows, which order the candidates.
    candidates : int
        Number of candidates of each query.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which these rows are compared.
    """

    left: Array
    right: Array
    squares: Array
    candidates: int

    def __init__(
        self, queries: Any, gallery: Any, second: Any, second_gallery: Any, *, candidates: int, distance: str
    ) -> None:
        super().__init__(queries, gallery)
        right = second if second_gallery is None else second_gallery
        if distance == "cosine":
            self.left = unit_rows(second)
            self.right = unit_rows(right)
        else:
            self.left = second.astype(np.float64)
            self.right = right.astype(np.float64)
        self.squares = np.einsum("ij,ij->i", self.right, self.right)
        self.candidates = min(candidates, len(self.y) - self.leave_one_out)
        self.row_bytes = 48 * len(self.y) + 8 * self.candidates * self.right.shape[1]

    def all_values(self, rows: Ints) -> Array:
        # candidates have values in [0, 1], by the accurate rows; all others in [2, 3], by the share of unequal signs
        unequal = 0.5 - 0.5 * (self.x[rows] @ self.y.T).astype(np.float64) / self.x.shape[1]
        values = 2.0 + unequal
        if self.leave_one_out:
            unequal[np.arange(len(rows)), rows] = np.inf
        chosen = smallest(unequal, self.candidates)
        at = np.arange(len(rows))[:, None]
        # |y|^2 - 2 x.y = |x - y|^2 - |x|^2, which orders the candidates of one query, (b, candidates)
        exact = self.squares[chosen] - 2.0 * np.einsum("id,ijd->ij", self.left[rows], self.right[chosen])
        low = exact.min(axis=1, keepdims=True)
        wide = np.maximum(exact.max(axis=1, keepdims=True) - low, np.finfo(float).tiny)
        values[at, chosen] = (exact - low) / wide
        return values


def table_of(found: Sequence[StoredScore]) -> str:
    """Return the lines of a table."""
    lines = [f"{'storage':<20}{'dims':>6}{'searched':>10}{'stored':>8}{'Recall@1':>10}{'MAP@R':>8}"]
    for one in found:
        sizes = f"{one.dims:>6}{one.bytes_searched:>8,.0f} B{one.bytes_stored:>6,.0f} B"
        lines.append(f"{one.storage:<20}{sizes}{one.recall_at_1:>10.4f}{one.map_at_r:>8.4f}")
    return "\n".join(lines)
