"""Rows of numbers from tables as they are: numbers with gaps, categories, dates, true and false, and texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from ..data.cells import FORMATS_OF_DATES, as_cells, days_in, is_dash, is_empty, readings_of_dates, unread_date
from ..data.checks.columns import remarks_on_readings
from ..data.dataset import ArrayReader, DataError, Dataset, some
from ..data.written_numbers import (
    MOST_UNREAD,
    PLAIN,
    notations_in_table,
    numeral_of,
    read,
)
from ..fit_warnings import warn
from ..numerics import checks
from ..numerics.standard_columns import constant
from ..numerics.types import AnyArray, Array
from ..quoting import count_of, quoted

WORDS_OF_TEXTS = 3.0  # mean number of words from which cells that hardly recur are texts
VOCABULARY = 2000  # words of a column of texts, the most frequent ones
FEWEST_RECUR = 0.2  # smallest share of cells that are among the categories of a column
SHOWN_COLUMNS = 4  # columns that a line names


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, or of true and false: (x - center) / scale, and `fill` for what is missing.

    Its cells are numbers or `written` as the example says, such as "$1,234.5".
    """

    kind: ClassVar[str] = "numbers"
    name: str
    fill: float
    center: float
    scale: float
    missing: int = 0
    written: str = PLAIN

    def values(self, cells: NDArray[Any]) -> Array:
        """Return the numbers in cells (n,); NaN where there is none."""
        return read(cells, self.written)

    def encode(self, cells: NDArray[Any]) -> Array:
        """Return (n, 1) numbers."""
        values = self.values(cells)
        unread = ~np.isfinite(values)
        self._warn_of([str(cell) for cell in cells[unread] if not (is_empty(cell) or is_dash(cell))], len(cells))
        values[unread] = self.fill
        return ((values - self.center) / self.scale)[:, None]

    def _warn_of(self, unread: Sequence[str], n: int) -> None:
        """Warn of cells that are not what they were in the training table, unless they are few."""
        if len(unread) > MOST_UNREAD * n:
            warn(
                f"column {quoted(self.name)}: {count_of(len(unread), 'cell')} of {n:,} cannot be read as in the "
                f"training table, as {self.kind} written like {self.written}; they count as missing: {some(unread, 2)}"
            )

    def outputs(self) -> list[str]:
        return [self.name]


@dataclass(frozen=True)
class DateColumn(NumberColumn):
    """A column of dates, as days: what holds for numbers holds for these."""

    kind: ClassVar[str] = "dates"
    written: str = "ISO"

    def values(self, cells: NDArray[Any]) -> Array:
        """Return the days since 1970 of cells (n,); NaN where there is no date."""
        return days_in(cells, self.written)


@dataclass(frozen=True)
class CategoryColumn:
    """A column of c categories, the last of which may hold all others.

    They become the vertices of a regular simplex, of which any two differ by 2 in squared distance: a category but the
    last becomes a unit vector in c - 1 dimensions, and the last one (1 - sqrt(c)) / (c - 1) in each of them. Unlike c
    columns of 0 and 1, these are not linearly dependent. A missing cell becomes the mean of the vertices.
    """

    kind: ClassVar[str] = "categories"
    name: str
    categories: list[str]
    others: bool
    missing: int = 0

    def encode(self, cells: NDArray[Any]) -> Array:
        """Return (n, c - 1) coordinates."""
        place = {category: k for k, category in enumerate(self.categories)}
        c = len(place) + self.others
        unknown = c - 1 if self.others else c  # a new category counts as missing if there are no others
        code = np.array([c if is_empty(cell) else place.get(str(cell), unknown) for cell in cells], dtype=np.intp)
        last = (1 - c**0.5) / (c - 1)
        found = np.zeros((len(cells), c - 1))
        unit = code < c - 1
        found[unit, code[unit]] = 1.0
        found[code == c - 1] = last
        found[code == c] = (1 + last) / c
        return found

    def outputs(self) -> list[str]:
        return [f"{self.name}_{category}" for category in self.categories[: len(self.categories) + self.others - 1]]


@dataclass(frozen=True)
class TextColumn:
    """A column of texts: TF-IDF of their words, and its projection onto `components` (k, number of words)."""

    kind: ClassVar[str] = "texts"
    name: str
    words: list[str]
    idf: list[float]
    components: list[list[float]]
    missing: int = 0

    def encode(self, cells: NDArray[Any]) -> Array:
        """Return (n, k) numbers; the zero vector for texts without known words."""
        from sklearn.feature_extraction.text import TfidfVectorizer  # for start-up time

        vectorizer = TfidfVectorizer(vocabulary=self.words, **TF_IDF)
        vectorizer.idf_ = np.array(self.idf)
        found: Array = vectorizer.transform(texts_in(cells)) @ np.array(self.components).T
        return found

    def outputs(self) -> list[str]:
        return [f"{self.name}_{k}" for k in range(len(self.components))]


@dataclass(frozen=True)
class UnusedColumn:
    """A column that is left out, and why."""

    kind: ClassVar[str] = "not used"
    name: str
    why: str
    missing: int = 0

    def encode(self, cells: NDArray[Any]) -> Array:
        return np.zeros((len(cells), 0))

    def outputs(self) -> list[str]:
        return []


Column = NumberColumn | DateColumn | CategoryColumn | TextColumn | UnusedColumn
KINDS: dict[str, type[Any]] = {
    kind.kind: kind for kind in (NumberColumn, DateColumn, CategoryColumn, TextColumn, UnusedColumn)
}
TF_IDF: dict[str, Any] = {"strip_accents": "unicode", "sublinear_tf": True}


class TableEncoder(TransformerMixin, BaseEstimator):
    """Turn a table with missing cells, categories, dates and texts into rows of numbers.

    Each column of the table has about the same influence on the Euclidean distance: numbers, dates (as days), and true
    and false are standardized, so that two rows differ by 2 in the mean square; any two categories of a column differ
    by 2 in the square; texts become vectors of TF-IDF of at most unit length.

    Parameters
    ----------
    max_categories : int
        Largest number of categories of a column. Those that are rarer, and those that the training table lacks, count
        as one more category.
    min_frequency : float
        Smallest share of the rows that a category needs, in [0, 1]; two rows at least. Rarer ones count as one more.
    text_components : int
        Dimensions of each column of texts: TF-IDF is reduced to them by a truncated singular value decomposition.
    random_state : int
        Seed of this decomposition.

    Attributes
    ----------
    columns_ : list
        What becomes of each column.
    remarks_ : list of str
        Sentences on columns that may be numbers or dates, but cannot be read safely.
    n_features_in_ : int
        Number of columns of the training table.
    feature_names_in_ : ndarray of str
        Their names.

    Notes
    -----
    The same can be put together from scikit-learn's `ColumnTransformer`, `SimpleImputer`, `OneHotEncoder` and
    `TfidfVectorizer`, column by column. This class chooses what a column needs by its cells, says what it chose
    (`describe`), and is saved in the file of a learner by ``nearfar fit``, as numbers and text.

    Missing numbers and dates become the median of the training table.

    Examples
    --------
    >>> table = {"height": ["1.70", "", "1.82", "1.64"], "eyes": ["blue", "brown", "brown", "blue"]}
    >>> encoder = TableEncoder().fit(table)
    >>> list(encoder.get_feature_names_out())
    ['height', 'eyes_blue']
    >>> print(encoder.describe())
    numbers, standardized: height (1 missing cell as the median)
    categories: eyes (2)
    """

    def __init__(
        self,
        max_categories: int = 30,
        *,
        min_frequency: float = 0.01,
        text_components: int = 16,
        random_state: int = 0,
    ) -> None:
        self.max_categories = max_categories
        self.min_frequency = min_frequency
        self.text_components = text_components
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Choose what becomes of each column.

        Parameters
        ----------
        X : DataFrame, mapping of str to sequence, array-like of shape (n, d), or Dataset
            The table.
        y : ignored
            Present for compatibility with scikit-learn.

        Returns
        -------
        self : TableEncoder

        Raises
        ------
        ValueError
            If no column can be used.
        """
        checks.counts(1, max_categories=self.max_categories, text_components=self.text_components)
        checks.between(0, 1, min_frequency=self.min_frequency)
        table = columns_of(X, least=2)
        notations = notations_in_table(table)
        columns = [self._column(name, cells, notations.get(name)) for name, cells in table.items()]
        if not any(column.outputs() for column in columns):
            whys = [f"{column.name} ({column.why})" for column in columns if isinstance(column, UnusedColumn)]
            raise ValueError(
                f"TableEncoder: X has no column to learn from: {some(whys, SHOWN_COLUMNS) or 'it is empty'}"
            )
        self.columns_ = columns
        self.remarks_ = list(remarks_on_readings(table))
        self.n_features_in_ = len(columns)
        self.feature_names_in_ = np.array([*table], dtype=object)
        return self

    def _column(self, name: str, cells: NDArray[Any], notation: str | None) -> Column:
        """Return what becomes of a column whose numbers have a notation; None if it has none, "" if it is not safe."""
        empty = np.array([is_empty(cell) for cell in cells], dtype=bool)
        missing = int(empty.sum())
        given = cells[~empty]
        if not len(given):
            return UnusedColumn(name, "it is empty", missing)
        if not are_scalars(given):
            return UnusedColumn(name, "its cells are lists", missing)
        if all(str(cell) == str(given[0]) for cell in given):
            return UnusedColumn(name, "all cells are equal", missing)
        if notation == "":
            return UnusedColumn(name, "its commas may be decimal or of thousands", missing)
        if notation is not None:
            return self._numbers(NumberColumn(name, 0.0, 0.0, 1.0, written=notation), cells)
        formats = readings_of_dates([cell for cell in given if not is_dash(cell)])
        if len(formats) > 1:
            return UnusedColumn(name, f"its dates may be {' or '.join(formats)}", missing)
        if formats:
            return self._numbers(DateColumn(name, 0.0, 0.0, 1.0, written=formats[0]), cells)
        found = self._words(name, [str(cell) for cell in given], len(cells), missing)
        if not isinstance(found, CategoryColumn) and unread_date(given):
            return UnusedColumn(name, "its dates are not all written in one way that can be read", missing)
        return found

    def _numbers(self, column: NumberColumn, cells: NDArray[Any]) -> Column:
        """Return a column of numbers with the median, mean and standard deviation of its cells."""
        values = column.values(cells)
        known = np.isfinite(values)
        fill = float(np.median(values[known]))
        values[~known] = fill
        scale = float(values.std())
        center = float(values.mean())
        if not np.isfinite(scale) or constant(np.array(scale), np.array(center)):
            return UnusedColumn(column.name, "all numbers are equal", int((~known).sum()))
        return replace(column, fill=fill, center=center, scale=scale, missing=int((~known).sum()))

    def _words(self, name: str, given: Sequence[str], n: int, missing: int) -> Column:
        """Return a column of categories or of texts, or one that is not used because its cells hardly recur."""
        counts = Counter(given)
        least = max(2, int(np.ceil(self.min_frequency * n)))
        ranked = sorted(counts, key=lambda text: (-counts[text], text))
        often = [text for text in ranked if counts[text] >= least][: self.max_categories]
        covered = sum(counts[text] for text in often)
        if 2 * covered >= len(given):
            return CategoryColumn(name, sorted(often), covered < len(given), missing)
        if np.mean([len(text.split()) for text in given]) >= WORDS_OF_TEXTS:
            return self._texts(name, given, missing)
        if covered >= FEWEST_RECUR * len(given):
            return CategoryColumn(name, sorted(often), True, missing)
        return UnusedColumn(name, "its texts hardly recur", missing)

    def _texts(self, name: str, given: Sequence[str], missing: int) -> Column:
        """Return a column of texts with its words and their projection."""
        from sklearn.decomposition import TruncatedSVD  # for start-up time
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(min_df=2, max_features=VOCABULARY, **TF_IDF)
        try:
            found = vectorizer.fit_transform(given)
        except ValueError:  # no word is in two texts
            return UnusedColumn(name, "its words hardly recur", missing)
        words = vectorizer.get_feature_names_out().tolist()
        components = [[1.0]]
        if len(words) > 1:  # else there is nothing to reduce, which a decomposition refuses
            k = min(self.text_components, *found.shape)
            with np.errstate(invalid="ignore"):  # the share of a variance of 0, where all texts have the same words
                components = TruncatedSVD(k, random_state=self.random_state).fit(found).components_.tolist()
        return TextColumn(name, words, vectorizer.idf_.tolist(), components, missing)

    def transform(self, X: Any) -> Array:
        """Return the rows as numbers.

        Parameters
        ----------
        X : DataFrame, mapping of str to sequence, array-like of shape (n, d), or Dataset
            A table with the columns of the training table, in any order; other columns are not used.

        Returns
        -------
        ndarray of shape (n, k)
            Numbers, finite.

        Raises
        ------
        ValueError
            If a column is missing.
        """
        check_is_fitted(self)
        table = columns_of(X)
        if not hasattr(X, "columns") and not isinstance(X, (Mapping, Dataset)) and len(table) != self.n_features_in_:
            expected = f"TableEncoder is expecting {self.n_features_in_} features as input"
            raise ValueError(f"X has {len(table)} features, but {expected}")
        missing = [column.name for column in self.columns_ if column.outputs() and column.name not in table]
        if missing:
            columns = "column" if len(missing) == 1 else "columns"
            raise DataError(
                f"X: lacks the {columns} {some(list(map(repr, missing)), SHOWN_COLUMNS)} of the training table; "
                f"it has {some(list(map(repr, table)), SHOWN_COLUMNS)}"
            )
        return np.hstack([column.encode(table[column.name]) for column in self.columns_ if column.outputs()])

    def get_feature_names_out(self, input_features: Any = None) -> AnyArray:
        """Return the names of the columns of `transform`: "height", "eyes_blue", "comment_0".

        Parameters
        ----------
        input_features : ignored
            Present for compatibility with scikit-learn.

        Returns
        -------
        ndarray of shape (k,)
            Names, all different.
        """
        check_is_fitted(self)
        names = [name for column in self.columns_ for name in column.outputs()]
        seen: Counter[str] = Counter()
        found = []
        for name in names:
            seen[name] += 1
            found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
        return np.array(found, dtype=object)

    def describe(self) -> str:
        """Return a line on each kind of columns: which they are, and what becomes of them."""
        check_is_fitted(self)
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        titles = {
            "numbers": "numbers, standardized",
            "dates": "dates, as standardized days",
            "categories": "categories",
            "texts": "texts, TF-IDF",
            "not used": "not used",
        }
        for kind, title in titles.items():
            columns = [column for column in self.columns_ if column.kind == kind]
            if columns:
                # first those of which more than their name is said
                columns.sort(key=lambda column: not _detail(column))
                shown = [f"{column.name}{_detail(column)}" for column in columns[:SHOWN_COLUMNS]]
                more = [f"and {len(columns) - SHOWN_COLUMNS} more"] if len(columns) > SHOWN_COLUMNS else []
                yield f"{title}: {', '.join([*shown, *more])}"

    def encoded(self, items: Dataset) -> Dataset:
        """Return the rows of a data set as numbers.

        Parameters
        ----------
        items : Dataset
            Rows of a table, with cells or numbers.

        Returns
        -------
        Dataset
            The same rows; they keep their cells, so that encoding them again changes nothing.

        Raises
        ------
        DataError
            If they lack a column.
        """
        cells = items.with_cells()
        try:
            rows = self.transform(cells.columns).astype(np.float32)
        except DataError as error:
            raise DataError(f"{items.name}{str(error).removeprefix('X')}") from error
        names = tuple(self.get_feature_names_out())
        about: dict[str, Any] = {"array": rows, "read": ArrayReader(rows), "columns": names, "cells": cells}
        return replace(items, kind="row", texts=None, **about)

    def as_plain(self) -> dict[str, Any]:
        """Return all that `restored` needs as numbers, text and lists, to save it."""
        check_is_fitted(self)
        columns = [{"kind": column.kind, **asdict(column)} for column in self.columns_]
        return {"settings": self.get_params(), "columns": columns}

    @classmethod
    def restored(cls, plain: Mapping[str, Any]) -> TableEncoder:
        """Return the encoder that `as_plain` described.

        Raises
        ------
        ValueError
            If the description is damaged.
        """
        try:
            encoder = cls(**plain["settings"])
            columns = [restored_column(about) for about in plain["columns"]]
            encoder.columns_ = columns
            encoder.n_features_in_ = len(columns)
            encoder.feature_names_in_ = np.array([column.name for column in columns], dtype=object)
            one_row = {column.name: np.full(1, None, dtype=object) for column in columns}
            if not np.isfinite(encoder.transform(one_row)).all():
                raise ValueError("its numbers are not finite")
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ValueError(f"the encoding of its table is damaged: {quoted(str(error))}") from error
        return encoder

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def restored_column(about: Mapping[str, Any]) -> Column:
    """Return the column that a file describes; raise a ValueError if it is none that `TableEncoder.fit` makes."""
    kind = KINDS[about["kind"]]
    column: Column = kind(**{name: value for name, value in about.items() if name != "kind"})
    for one in fields(kind):
        if not FITS[str(one.type)](getattr(column, one.name)):
            raise ValueError(f"{one.name}: expected {one.type}, got {quoted(getattr(column, one.name))}")
    if isinstance(column, NumberColumn) and not column.scale > 0:
        raise ValueError("scale must be above 0")
    if isinstance(column, DateColumn) and column.written not in FORMATS_OF_DATES:
        raise ValueError(f"written: expected one of {', '.join(FORMATS_OF_DATES)}, got {quoted(column.written)}")
    if type(column) is NumberColumn and column.written != PLAIN:
        numeral_of(column.written)
    if isinstance(column, CategoryColumn) and len(set(column.categories)) + column.others < 2:
        raise ValueError("categories: expected two or more")
    if isinstance(column, TextColumn) and {len(row) for row in (column.idf, *column.components)} != {len(column.words)}:
        raise ValueError("words: expected as many as idf and components have")
    return column


def _is_list_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(type(one) is kind for one in value)


FITS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: type(value) is str,
    "int": lambda value: type(value) is int,
    "bool": lambda value: type(value) is bool,
    "float": lambda value: type(value) is float,
    "list[str]": _is_list_of(str),
    "list[float]": _is_list_of(float),
    "list[list[float]]": lambda value: isinstance(value, list) and all(map(_is_list_of(float), value)),
}
"""Whether a value of a file is one of the type of a field."""


def columns_of(X: Any, least: int = 1) -> dict[str, NDArray[Any]]:
    """Return the columns of a table by their names; those of an array are x0, x1, ..."""
    if isinstance(X, Dataset):
        return dict(X.with_cells().columns)
    if isinstance(X, Mapping) and not issparse(X):  # a dok_array is a mapping
        return {str(name): as_cells(column) for name, column in X.items()}
    if hasattr(X, "collect_schema") and hasattr(X, "collect"):
        raise TypeError("TableEncoder: X must be in memory; got a LazyFrame; pass X.collect()")
    if hasattr(X, "columns"):
        return columns_of_frame(X)
    rows = check_array(X, dtype=None, ensure_all_finite=False, ensure_min_samples=least, estimator="TableEncoder")
    return {f"x{k}": rows[:, k].astype(object) for k in range(rows.shape[1])}


def columns_of_frame(X: Any) -> dict[str, NDArray[Any]]:
    """Return the columns of a data frame by their names; periods of time are the day on which they begin."""
    counts = Counter(map(str, X.columns))
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise ValueError(f"TableEncoder: X has two columns of the name {quoted(twice[0])}; rename one of them")
    columns = {str(name): X[name] for name in X.columns}
    for name, column in columns.items():
        if str(getattr(column, "dtype", "")).startswith("period["):
            columns[name] = column.dt.to_timestamp()
    return {name: as_cells(column) for name, column in columns.items()}


def are_scalars(cells: Iterable[Any]) -> bool:
    """Return whether no cell is a list or an object."""
    return not any(isinstance(cell, (list, dict, np.ndarray)) for cell in cells)


def texts_in(cells: Iterable[Any]) -> list[str]:
    """Return cells as texts; missing ones are empty."""
    return ["" if is_empty(cell) else str(cell) for cell in cells]


def _detail(column: Column) -> str:
    """Return what a line says of a column besides its name, in brackets; "" if nothing."""
    if isinstance(column, UnusedColumn):
        return f" ({column.why})"
    parts = []
    if isinstance(column, CategoryColumn):
        parts.append(f"{len(column.categories)} and others" if column.others else str(len(column.categories)))
    if isinstance(column, TextColumn):
        parts.append(f"{count_of(len(column.words), 'word')} in {count_of(len(column.components), 'dimension')}")
    if type(column) is NumberColumn and column.written != PLAIN:
        parts.append(f"written like {column.written}")
    if column.missing:
        how = " as the median" if isinstance(column, NumberColumn) else ""
        parts.append(f"{count_of(column.missing, 'missing cell')}{how}")
    return f" ({'; '.join(parts)})" if parts else ""
