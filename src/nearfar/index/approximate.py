"""Approximate search by faiss: it proposes, exact distances order what it proposed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ..numerics.distances import chunks, pair_distances, starts, unit_rows
from ..numerics.types import AnyArray, Array, Ints
from ..quoting import PATH, quoted, shorten

FAISS_CANDIDATES = 2  # that faiss is asked for, for each neighbor that is wanted

# What faiss's index factory is given. It reads more than that, but texts may come from strangers' files, and with some
# it ends the process: nested brackets, graphs of one link, codes of no bits.
MAX_RECIPE_LENGTH = 100  # characters; recipes of the literature have 10 to 40
LINKS = r"(?:[2-9]|[1-9]\d|1\d\d|2[0-4]\d|25[0-6])"  # 2 to 256 of each point of a graph
CODE = r"(?:Flat|SQ(?:4|6|8|fp16|bf16)|PQ[1-9]\d{0,3}(?:x(?:[4-9]|1[0-6]))?(?:fs)?|LSH|RaBitQ)"
GRAPH = rf"(?:HNSW(?:{LINKS})?|NSG(?:{LINKS})?)"
TRANSFORM = r"(?:(?:PCA|PCAR|PCAW|PCAWR|ITQ)[1-9]\d{0,3}|OPQ[1-9]\d{0,2}(?:_[1-9]\d{0,3})?|L2norm)"
LISTS = rf"IVF[1-9]\d{{0,6}}(?:_HNSW{LINKS})?"
RECIPE = re.compile(rf"(?:{TRANSFORM},){{0,2}}(?:{LISTS},{CODE}|{GRAPH}(?:[,_]{CODE})?|{CODE})(?:,RFlat)?")
MAX_SETTING_DIGITS = 6  # digits of a setting of the search


def check_recipe(recipe: str) -> None:
    """Raise a ValueError if a text is no recipe that we hand to faiss: at most two transforms, a structure, codes.

    Transforms are PCA64, PCAR64, PCAW64, ITQ64, OPQ16, OPQ16_64 and L2norm; structures IVF256, IVF256_HNSW32, HNSW32
    and NSG32; codes Flat, SQ8 (4, 6, fp16, bf16), PQ16, PQ16x4, PQ16x4fs, LSH and RaBitQ; RFlat at the end orders what
    codes have found. What follows a semicolon is checked when the index is built.
    """
    if isinstance(recipe, str) and len(recipe) <= MAX_RECIPE_LENGTH and RECIPE.fullmatch(recipe.partition(";")[0]):
        return
    known = "exact, or a recipe of faiss such as HNSW32, IVF256,Flat or OPQ16_64,IVF256,PQ16"
    raise ValueError(f"engine: expected {known}, got {quoted(recipe)}")


class Approximate:
    """An approximate search of rows by a faiss index.

    Parameters
    ----------
    rows : ndarray of float32, shape (m, d)
        Rows to search.
    distance : {"euclidean", "sqeuclidean", "cosine"}
        Distance by which rows are compared.
    recipe : str
        A faiss index factory string, optionally followed by a semicolon and search parameters: "HNSW32;efSearch=64",
        "IVF256,Flat;nprobe=16". Without `nprobe`, faiss searches only one list of an IVF index. See `check_recipe`.

    Raises
    ------
    ImportError
        If faiss is not installed.
    ValueError
        If the recipe or a search parameter is not supported, or there are too few rows for it.
    """

    def __init__(self, rows: AnyArray, distance: str, recipe: str) -> None:
        check_recipe(recipe)
        try:
            import faiss
        except ImportError as error:
            raise ImportError(f"engine={quoted(recipe)} needs faiss: pip install 'nearfar[ann]'") from error
        self.rows = rows
        self.distance = distance
        compared = self._as_compared(rows)
        (made, _, settings) = recipe.partition(";")
        try:
            self._index: Any = faiss.index_factory(rows.shape[1], made, faiss.METRIC_L2)
            self._index.train(compared)
            self._index.add(compared)
        except RuntimeError as error:
            reason = shorten(str(error).strip().rpartition(": ")[2], PATH)
            raise ValueError(f"engine: faiss cannot index {len(rows)} rows as {quoted(made)} ({reason})") from None
        for setting in filter(None, (part.strip() for part in settings.split(","))):
            self._set(faiss, made, setting)

    def _set(self, faiss: Any, made: str, setting: str) -> None:
        """Set one thing of the search, such as nprobe=16."""
        name, _, number = (part.strip() for part in setting.partition("="))
        if not (number.isascii() and number.isdecimal() and len(number) <= MAX_SETTING_DIGITS and int(number) > 0):
            raise ValueError(f"engine: expected a setting of the search such as nprobe=16, got {quoted(setting)}")
        try:
            faiss.ParameterSpace().set_index_parameter(self._index, name, int(number))
        except RuntimeError:
            known = "that of IVF is nprobe, that of HNSW efSearch"
            raise ValueError(f"engine: {quoted(made)} has no setting {quoted(name)} of the search ({known})") from None

    def _as_compared(self, rows: AnyArray) -> AnyArray:
        """Return rows as faiss compares them: the order of cosines is that of Euclidean distances between unit rows."""
        if self.distance != "cosine":
            return np.ascontiguousarray(rows, dtype=np.float32)
        unit = np.empty(rows.shape, dtype=np.float32)
        for start, part in zip(starts(rows), chunks(rows), strict=True):
            unit[start : start + len(part)] = unit_rows(part)
        return unit

    def nearest(self, queries: AnyArray, k: int) -> tuple[Array, Ints]:
        """Return distances (n, k) and rows (n, k), nearest first; infinity and -1 if fewer than k were found."""
        wanted = min(FAISS_CANDIDATES * k, len(self.rows))
        found = self._index.search(self._as_compared(queries), wanted)[1].astype(np.intp)
        pairs = np.broadcast_to(np.arange(len(found))[:, None], found.shape)
        exact = pair_distances(queries, self.rows, pairs, np.maximum(found, 0), self.distance)
        exact[found < 0] = np.inf
        order = np.lexsort((found, exact))[:, :k]
        return np.take_along_axis(exact, order, 1), np.take_along_axis(found, order, 1)
