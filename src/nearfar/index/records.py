"""Items of an index, in memory: names, embeddings, labels and columns, and the checks that every store makes of them.

A column holds one number or text per item, such as a price, a shop or a product; filters and groups use it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ..labels import as_array, holds_texts, narrow_texts, text_array
from ..numerics.distances import as_rows
from ..numerics.types import AnyArray, Array, Bools, Ints
from ..quoting import count_of, quoted
from .filters import KEYWORDS, Kind

Columns = Mapping[str, Any]
COLUMN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
"""Names that a filter can write without quotes, and that LanceDB and Milvus accept for a field."""
RESERVED = ("name", "label", "embedding", *KEYWORDS)
"""Fields that every item has, and the keywords of filters."""
MAX_COLUMNS = 100
MAX_TEXT = 10_000  # characters of one value
PLURAL: dict[Kind, str] = {"number": "numbers", "text": "text"}  # kinds of columns, as messages name them


@dataclass(frozen=True, eq=False)
class Records:
    """Some items of an index.

    Attributes
    ----------
    names : ndarray of str, shape (n,)
        Name of each item.
    embeddings : ndarray of float32, shape (n, d)
        Embeddings.
    labels : ndarray of int64 or str, shape (n,), or None
        Class of each item.
    columns : mapping of str to ndarray of float64 or str, shape (n,)
        Values for filters and groups.
    """

    names: AnyArray
    embeddings: AnyArray
    labels: AnyArray | None = None
    columns: Mapping[str, AnyArray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        n, d = self.embeddings.shape
        columns = [*(["label"] if self.labels is not None else []), *self.columns]
        return f"Records of {n:,} x {d}" + (f" with {', '.join(columns)}" if columns else "")

    def column(self, name: str) -> AnyArray:
        """Return one column; `name` and `label` are columns, too."""
        if name == "name":
            return self.names
        if name == "label" and self.labels is not None:
            return self.labels
        return self.columns[name]

    def pick(self, rows: Any) -> Records:
        """Return the items at the given row numbers, or where a mask is True."""
        return Records(
            names=self.names[rows],
            embeddings=self.embeddings[rows],
            labels=None if self.labels is None else self.labels[rows],
            columns=picked_columns(self.columns, rows),
        )

    def named(self, names: Sequence[str]) -> Records:
        """Return the items with these names, in the order of the names; names that do not exist are left out."""
        rows = {name: row for row, name in enumerate(self.names.tolist())}
        return self.pick([rows[name] for name in names if name in rows])


class Hits(NamedTuple):
    """Neighbors, nearest first.

    Attributes
    ----------
    records : Records
        The items to which `positions` refer.
    distances : ndarray of shape (n, k)
        Distances; infinity if fewer than k were found.
    positions : ndarray of shape (n, k)
        Row numbers of `records`; -1 if fewer than k were found. As an index of NumPy, -1 means the last item: use
        `names`, or leave out the places that `counts` does not count.
    """

    records: Records
    distances: Array
    positions: Ints

    @property
    def counts(self) -> Ints:
        """Number of neighbors that each query has, of shape (n,); they come first in its row."""
        return (self.positions >= 0).sum(axis=1)

    @property
    def names(self) -> AnyArray:
        """Name of each neighbor, of shape (n, k); empty text if fewer than k were found.

        >>> Hits(records_of([[0.0], [1.0]], ["a", "b"]), np.array([[0.5, np.inf]]), np.array([[1, -1]])).names.tolist()
        [['b', '']]
        """
        names = np.full(self.positions.shape, "", dtype=self.records.names.dtype)
        there = self.positions >= 0
        names[there] = self.records.names[self.positions[there]]
        return names

    def without_self(self, names: Sequence[str], k: int, *, column: str = "", values: Sequence[Any] = ()) -> Hits:
        """Return the k nearest neighbors of queries that are items of the collection, without the items themselves.

        Parameters
        ----------
        names : sequence of str
            Name of each query (n,). A name that is not in the collection leaves out nothing.
        k : int
            Number of neighbors to keep. Search for ``k + 1`` first.
        column : str
            The column by which the search grouped its results, if any: the group of the query is left out, too, such as
            the other photos of its product.
        values : sequence of str or float
            Value of each query in this column (n,); NaN or empty text if it has none.

        Examples
        --------
        >>> records = records_of([[0.0], [1.0], [3.0]], ["a", "b", "c"])
        >>> hits = Hits(records, np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([[0, 1], [1, 0]]))
        >>> hits.without_self(["a", "b"], 1).positions
        array([[1],
               [0]])
        """
        there = self.positions >= 0
        rows = self.positions[there]
        counts = there.sum(axis=1)
        itself = np.zeros(self.positions.shape, dtype=bool)  # (n, k + 1): is the neighbor the query, or of its group?
        itself[there] = self.records.names[rows] == np.repeat(names, counts)
        if column:
            groups = self.records.column(column)[rows]
            same = groups == np.repeat(values, counts)  # a missing number, NaN, differs from itself
            if holds_texts(groups):
                same &= groups != ""
            itself[there] |= same
        order = np.argsort(itself, axis=1, kind="stable")[:, :k]  # the item itself last, the others as they were
        return self._replace(
            distances=np.take_along_axis(np.where(itself, np.inf, self.distances), order, axis=1),
            positions=np.take_along_axis(np.where(itself, -1, self.positions), order, axis=1),
        )


def records_of(embeddings: Any, names: Any, *, labels: Any = None, columns: Columns | None = None) -> Records:
    """Check items and return them as records, ready to be added to a collection.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings. An array of shape (0, d) makes an empty collection.
    names : sequence of str
        Name of each item; all must be different.
    labels : sequence of int or str, optional
        Class of each item.
    columns : dict of str to sequence, optional
        Values for filters and groups, one per item: numbers (NaN if missing) or text.

    Returns
    -------
    Records

    Raises
    ------
    ValueError
        If lengths differ, a name occurs twice, rows are not finite, or columns are neither numbers nor text.
    """
    rows = checked_embeddings(embeddings).copy()
    n = len(rows)
    records = Records(checked_names(names, n), rows, checked_labels(labels, n), checked_columns(columns, n))
    check_different(records.names)
    return records


def checked_about(about: Mapping[str, str] | None) -> dict[str, str]:
    """Return what is stored with a collection as a dict; raise a ValueError unless it is text."""
    entries = dict(about or {})
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in entries.items()):
        raise ValueError(f"about: expected a dict of text, got {quoted(entries)}")
    return entries


def names_in(names: str | Iterable[str]) -> list[str]:
    """Return names as a list; a text is one name."""
    if isinstance(names, str):
        return [names]
    return [str(name) for name in names]


def no_records(dimensions: int) -> Records:
    """Return records without items, of embeddings with that many dimensions."""
    return Records(np.empty(0, dtype=np.str_), np.empty((0, dimensions), dtype=np.float32))


def checked_queries(queries: Any, dimensions: int, k: Any) -> AnyArray:
    """Return queries as float32 rows of shape (n, dimensions).

    Raises
    ------
    ValueError
        If they have another number of columns, or k is below 1.
    """
    x = checked_rows(queries, "queries")
    if x.shape[1] != dimensions:
        raise ValueError(f"queries: expected {dimensions} columns as in the index, got {x.shape[1]}")
    check_k(k)
    return x


def check_k(k: Any) -> None:
    """Raise a ValueError unless k is a number of hits."""
    if not isinstance(k, Integral) or k < 1:
        raise ValueError(f"k: expected 1 or more, got {quoted(k)}")


def checked_embeddings(x: Any) -> AnyArray:
    """Return embeddings of shape (n, d) in float32; they may be an array without rows, of an empty collection."""
    shape = tuple(getattr(x, "shape", ()))
    if len(shape) == 2 and shape[0] == 0 and shape[1] > 0:
        return np.empty(shape, dtype=np.float32)
    return checked_rows(x, "embeddings")


def checked_rows(x: Any, name: str) -> AnyArray:
    """Return rows of shape (n, d) in float32, in the same memory if they already are float32.

    Raises
    ------
    ValueError
        If they are not finite, or larger than float32 can hold.
    """
    values = as_rows(x, name)
    with np.errstate(over="ignore"):
        rows = values.astype(np.float32, copy=False)
    # `as_rows` returns finite values, so that only the conversion can make infinities
    if rows is not values and not np.isfinite(rows).all():
        raise ValueError(f"{name}: expected values that float32 holds, up to 3.4e38")
    return rows


def checked_names(names: Any, n: int, taken: AnyArray | tuple[()] = ()) -> AnyArray:
    """Return the names of n items as an array of text, shape (n,).

    Parameters
    ----------
    names : sequence of str, or None
        None numbers the items.
    n : int
        Number of items.
    taken : ndarray of str
        Names that other items have already.
    """
    if names is None:
        return _free_numbers(n, taken)
    array = names if isinstance(names, np.ndarray) and names.dtype.kind == "U" else narrow_texts(names, "names")
    if array.shape != (n,):
        raise ValueError(f"names: expected {n}, one per embedding, got shape {array.shape}")
    return array


def _free_numbers(n: int, taken: AnyArray | tuple[()]) -> AnyArray:
    """Return the first n numbers, counted from the number of names taken, that are not names yet."""
    numbers = np.arange(len(taken), len(taken) + n)
    free = np.empty(0, dtype=np.str_)
    while len(free) < n:
        candidates = numbers.astype(np.str_)
        free = np.concatenate([free, candidates[~isin_few(candidates, those_of(taken, candidates))]])
        numbers += n
    return free[:n]


def those_of(names: AnyArray | tuple[()], few: AnyArray) -> AnyArray:
    """Return those of many names that are among a few others."""
    many = names if isinstance(names, np.ndarray) else text_array(names)
    return many[isin_few(many, few)]


def isin_few(names: AnyArray, few: AnyArray | set[str]) -> Bools:
    """Return whether each of many names (n,) is among a few others."""
    # np.isin would sort the many names, which takes ten times as long
    others = few if isinstance(few, set) else set(few.tolist())
    return np.fromiter((name in others for name in names.tolist()), dtype=bool, count=len(names))


def checked_labels(labels: Any, n: int) -> AnyArray | None:
    """Return labels as an array of int64 or text, shape (n,); None stays None."""
    if labels is None:
        return None
    array = as_array(labels)
    whole = array.dtype.kind == "f" and (np.abs(array) < 2**63).all() and (array == np.floor(array)).all()
    if whole:  # of a column that had missing numbers
        array = array.astype(np.int64)
    if array.shape != (n,):
        raise ValueError(f"labels: expected {n}, one per embedding, got shape {array.shape}")
    if n == 0 and array.dtype.kind not in "iu":
        return array.astype(np.str_)
    if array.dtype == object and any(isinstance(label, str) and label.endswith("\0") for label in array.tolist()):
        raise ValueError("labels: expected texts that do not end with the character NUL")
    if holds_texts(array):
        return array
    if array.dtype.kind not in "iuUS":
        raise ValueError(f"labels: expected whole numbers or text, got dtype {array.dtype}")
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    return array.astype(np.str_)


def joined_labels(labels: AnyArray, new: AnyArray) -> AnyArray:
    """Append labels to others of the same kind, numbers or text."""
    if (labels.dtype.kind == "i") != (new.dtype.kind == "i"):
        kinds = ["numbers" if part.dtype.kind == "i" else "text" for part in (labels, new)]
        raise ValueError(f"labels: expected {kinds[0]} as in the index, got {kinds[1]}")
    return np.concatenate([labels, new])


def check_different(names: AnyArray) -> None:
    """Raise a ValueError if a name occurs twice."""
    if len(set(names.tolist())) < len(names):
        unique, counts = np.unique(names, return_counts=True)
        twice = unique[counts > 1]
        more = f"{quoted(str(twice[0]))} occurs more than once ({count_of(len(twice), 'such name')})"
        raise ValueError(f"names: {more}; expected different ones; of a table, name=COLUMN takes another column")


def checked_columns(columns: Columns | None, n: int) -> dict[str, AnyArray]:
    """Return columns as arrays of float64 or text, shape (n,) each.

    Raises
    ------
    ValueError
        If a name cannot be used in a filter, a length is not n, or values are neither numbers nor text.
    """
    columns = dict(columns or {})
    if len(columns) > MAX_COLUMNS:
        raise ValueError(f"columns: expected up to {MAX_COLUMNS}, got {len(columns)}")
    return {name: _checked_column(name, values, n) for name, values in columns.items()}


def _checked_column(name: Any, values: Any, n: int) -> AnyArray:
    if not isinstance(name, str) or not COLUMN_NAME.fullmatch(name):
        raise ValueError(f"columns: expected names of letters, digits and _, got {quoted(name)}; rename it")
    if name in RESERVED:
        raise ValueError(f"columns: {quoted(name)} is reserved in an index; rename it")
    array = values if isinstance(values, np.ndarray) else _array_of(values)
    if array.dtype == object:
        array = _of_objects(array)
    if array.shape != (n,):
        raise ValueError(f"columns: expected {n} values of {quoted(name)}, one per item, got shape {array.shape}")
    if array.dtype.kind in "US" or holds_texts(array):
        at, longest = max(enumerate(map(len, array.tolist())), key=itemgetter(1), default=(0, 0))
        if longest > MAX_TEXT:
            raise ValueError(
                f"columns: the text of {quoted(name)} of item {at} (from 0) has {longest:,} characters; expected up to "
                f"{MAX_TEXT:,}: shorten it, or leave the column out"
            )
        return array.astype(np.str_) if array.dtype.kind == "S" else array
    if array.dtype.kind not in "fiub":
        raise ValueError(f"columns: expected numbers or text in {quoted(name)}, got dtype {array.dtype}")
    numbers = array.astype(np.float64)
    if np.isinf(numbers).any():
        raise ValueError(f"columns: {quoted(name)} holds infinity; leave such a value out (NaN)")
    return numbers


def _array_of(values: Any) -> AnyArray:
    if hasattr(values, "__array__"):
        return np.asarray(values)
    given = list(values)
    return text_array(given) if given and all(isinstance(value, str) for value in given) else np.asarray(given)


def _of_objects(values: AnyArray) -> AnyArray:
    """Return numbers or text, with NaN or empty text where a value is None."""
    present = [value for value in values if value is not None]
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in present):
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    return text_array("" if value is None else value for value in values)


def parsed_column(cells: Any) -> AnyArray:
    """Return the cells of a text table as numbers if all nonempty ones are numbers, else as text.

    >>> parsed_column(["1", "", "2.5"])
    array([1. , nan, 2.5])
    >>> parsed_column(["1", "a"]).tolist()
    ['1', 'a']
    """
    words = ["" if cell is None else str(cell).strip() for cell in cells]
    try:
        numbers = np.array([float(word) if word else np.nan for word in words])
    except ValueError:
        return text_array(words)
    if not any(words) or np.isinf(numbers).any():
        return text_array(words)
    return numbers


def column_kinds(columns: Mapping[str, AnyArray]) -> dict[str, Kind]:
    """Return for each column whether it holds numbers or text."""
    return {name: "text" if holds_texts(values) else "number" for name, values in columns.items()}


def picked_columns(columns: Mapping[str, AnyArray], rows: Any) -> dict[str, AnyArray]:
    """Return the rows at the given numbers, or where a mask is True, of all columns."""
    return {name: values[rows] for name, values in columns.items()}


def joined_columns(
    columns: Mapping[str, AnyArray], n: int, more: Mapping[str, AnyArray], m: int
) -> dict[str, AnyArray]:
    """Append the columns of m items to those of n; columns that one side lacks are filled with missing values.

    Raises
    ------
    ValueError
        If a column has numbers on one side and text on the other.
    """
    kinds = column_kinds(more) | column_kinds(columns)
    _check_kinds(more, kinds)
    return {
        name: np.concatenate([_or_missing(columns, name, kind, n), _or_missing(more, name, kind, m)])
        for name, kind in kinds.items()
    }


def _check_kinds(columns: Mapping[str, AnyArray], known: Mapping[str, Kind]) -> None:
    """Raise a ValueError if columns do not fit those of an index: one has another kind, or they are too many."""
    together = len((known.keys() | columns.keys()) - {"name", "label"})
    if together > MAX_COLUMNS:
        raise ValueError(f"columns: expected up to {MAX_COLUMNS}, got {together} with those of the index")
    for name, kind in column_kinds(columns).items():
        expected = known.get(name, kind)
        if kind != expected:
            raise ValueError(
                f"columns: expected {PLURAL[expected]} in {quoted(name)} as in the index, got {PLURAL[kind]}"
            )


def _or_missing(columns: Mapping[str, AnyArray], name: str, kind: Kind, n: int) -> AnyArray:
    if name in columns:
        return columns[name]
    return missing(kind, n)


def missing(kind: Kind, n: int) -> AnyArray:
    """Return n missing values: NaN, or empty text."""
    if kind == "number":
        return np.full(n, np.nan)
    return np.full(n, "", dtype=np.str_)


def counts_of_classes(labels: AnyArray) -> dict[str, int]:
    """Return the number of items of each class, sorted by name; "" is no class.

    >>> counts_of_classes(np.array(["b", "a", "", "b"]))
    {'a': 1, 'b': 2}
    """
    names, counts = np.unique(labels[labels != ""], return_counts=True)
    return {str(name): int(count) for name, count in zip(names, counts, strict=True)}


def check_column(name: str, columns: Collection[str]) -> None:
    """Raise a ValueError if a collection does not have a column."""
    if name not in columns:
        raise ValueError(f"column: there is no column {quoted(name)}; there are {', '.join(columns)}")


def check_new(records: Records, *, dimensions: int, labels: AnyArray | str | None, columns: Mapping[str, Kind]) -> None:
    """Raise a ValueError if items do not fit a collection.

    Parameters
    ----------
    records : Records
        The items to add.
    dimensions : int
        Number of dimensions of the collection's embeddings.
    labels : ndarray or str or None
        Labels of the collection, or None if it has none.
    columns : mapping of str to {"number", "text"}
        Columns of the collection.
    """
    if records.embeddings.shape[1] != dimensions:
        got = records.embeddings.shape[1]
        raise ValueError(f"embeddings: expected {dimensions} columns as in the index, got {got}")
    if (records.labels is None) != (labels is None):
        if labels is None:
            raise ValueError("labels: the index has no labels, the new items have some")
        raise ValueError("labels: the index has labels, the new items have none")
    _check_kinds(records.columns, columns)


def with_columns(records: Records, kinds: Mapping[str, Kind]) -> Records:
    """Return items with all columns of a collection; values that they lack are missing."""
    lacking = {name: missing(kind, len(records)) for name, kind in kinds.items() if name not in records.columns}
    return replace(records, columns={**records.columns, **lacking})


def check_known(names: Sequence[str], known: AnyArray) -> None:
    """Raise a ValueError for names that do not exist."""
    gone = text_array(names)
    unknown = np.unique(gone[~isin_few(gone, those_of(known, gone))])
    if len(unknown):
        count = f"{len(unknown)} of {len(gone)} are unknown"
        raise ValueError(f"names: the index has no {quoted(str(unknown[0]))} ({count})")
