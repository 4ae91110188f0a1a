"""Filters such as ``price < 10 and shop == "a"``: read by the project's parser, never run as code.

The grammar::

    filter      = conjunction {"or" conjunction}
    conjunction = negation {"and" negation}
    negation    = "not" negation | "(" filter ")" | comparison
    comparison  = column ("==" | "!=" | "<" | "<=" | ">" | ">=") value
                | column ["not"] "in" "[" value {"," value} "]"
                | column ["not"] "contains" string
                | column "is" ["not"] "missing"
    value       = number | string

A filter is checked against the columns that there are, and then either compared with arrays (`mask`) or written in the
language of an engine (`sql`). Where a number is missing, every comparison with it is false; a text is missing
where it is empty. Dates are texts such as "2026-01-31", whose order is that of time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..expressions import ExpressionError, Parser
from ..labels import holds_texts
from ..numerics.types import AnyArray, Bools
from ..quoting import quoted

Kind = Literal["number", "text"]
Value = float | str

COMPARE: dict[str, Callable[[AnyArray, Value], Bools]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
KEYWORDS = ("and", "or", "not", "in")
MAX_CONDITIONS = 100  # comparisons in a filter; each of them is one pass over a column
EXPECTED = 'a filter such as price < 10 and shop == "a"'


@dataclass(frozen=True)
class Condition:
    """A comparison of one column with a value, with several values ("in"), or with none ("missing")."""

    column: str
    sign: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Every:
    """All parts hold."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class Either:
    """At least one part holds."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class Not:
    """The part does not hold."""

    part: Filter


Filter = Condition | Every | Either | Not


def parse_filter(text: str, columns: Mapping[str, Kind]) -> Filter:
    """Parse a filter on the given columns.

    Parameters
    ----------
    text : str
        The filter, such as ``price < 10 and shop == "a"``.
    columns : mapping of str to {"number", "text"}
        Type of each column that can be compared.

    Returns
    -------
    Filter
        A tree of conditions.

    Raises
    ------
    ValueError
        In one line: the position of what cannot be parsed, a column that does not exist, or text compared with a
        number.

    Examples
    --------
    >>> parse_filter("price < 10", {"price": "number"})
    Condition(column='price', sign='<', values=(10,))
    """
    try:
        parser = _FilterParser(text, EXPECTED)
        found = parser.either()
        parser.end()
    except ExpressionError as error:
        raise ValueError(f"filter: {error}") from None
    for condition in conditions(found):
        _check(condition, columns)
    return found


def conditions(tree: Filter) -> Iterator[Condition]:
    """Yield the comparisons of a filter, from left to right."""
    if isinstance(tree, Condition):
        yield tree
    elif isinstance(tree, Not):
        yield from conditions(tree.part)
    else:
        for part in tree.parts:
            yield from conditions(part)


def mask(tree: Filter, columns: Mapping[str, AnyArray]) -> Bools:
    """Return the rows for which a filter holds, as booleans of shape (n,).

    Examples
    --------
    >>> columns = {"price": np.array([3.0, 12.0, np.nan])}
    >>> mask(parse_filter("not price < 10", {"price": "number"}), columns).tolist()
    [False, True, True]
    """
    if isinstance(tree, Not):
        return ~mask(tree.part, columns)
    if isinstance(tree, Every):
        return np.logical_and.reduce([mask(part, columns) for part in tree.parts])
    if isinstance(tree, Either):
        return np.logical_or.reduce([mask(part, columns) for part in tree.parts])
    column = columns[tree.column]
    if tree.sign == "in":
        return np.isin(column, np.array(tree.values))
    if tree.sign == "missing":
        if column.dtype.kind == "f":
            return np.isnan(column)
        return column == "" if holds_texts(column) else np.zeros(len(column), dtype=bool)  # numbers of classes
    if tree.sign == "contains":
        if column.dtype == object:
            return np.array([str(tree.values[0]) in text for text in column.tolist()], dtype=bool)
        return np.asarray(np.strings.find(column, str(tree.values[0])) >= 0)
    holds = COMPARE[tree.sign](column, tree.values[0])
    if tree.sign == "!=" and column.dtype.kind == "f":
        holds &= ~np.isnan(column)  # the other comparisons are false there by themselves
    return holds


def sql(tree: Filter) -> str:
    """Return a filter as SQL, in which missing numbers are nulls.

    Examples
    --------
    >>> sql(parse_filter("shop == 'a' or price in [1, 2]", {"shop": "text", "price": "number"}))
    "(coalesce(`shop` = 'a', false) OR coalesce(`price` IN (1.0, 2.0), false))"
    """
    if isinstance(tree, Not):
        return f"(NOT {sql(tree.part)})"
    if isinstance(tree, Every):
        return "(" + " AND ".join(map(sql, tree.parts)) + ")"
    if isinstance(tree, Either):
        return "(" + " OR ".join(map(sql, tree.parts)) + ")"
    values = [sql_value(value) for value in tree.values]
    if tree.sign == "missing":
        return f"coalesce(CAST(`{tree.column}` AS string) = '', true)"  # an empty text, or null
    if tree.sign == "contains":
        return f"coalesce(strpos(`{tree.column}`, {values[0]}) > 0, false)"
    if tree.sign == "in":
        compared = f"IN ({', '.join(values)})"
    else:
        compared = f"{'=' if tree.sign == '==' else tree.sign} {values[0]}"
    return f"coalesce(`{tree.column}` {compared}, false)"  # a comparison with null is neither true nor false in SQL


def sql_value(value: Value) -> str:
    """Return a number or a text as SQL writes it.

    >>> sql_value("it's")
    "'it''s'"
    """
    if isinstance(value, str):
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    return repr(float(value))


def _check(condition: Condition, columns: Mapping[str, Kind]) -> None:
    name = condition.column
    if name not in columns:
        there = ", ".join(columns)
        raise ValueError(f"filter: there is no column {quoted(name)}; there are {there}")
    if condition.sign == "contains" and columns[name] != "text":
        raise ValueError(f"filter: column {quoted(name)} holds numbers; contains works only for text")
    wrong = next((value for value in condition.values if isinstance(value, str) != (columns[name] == "text")), None)
    if wrong is not None:
        raise ValueError(f"filter: column {quoted(name)} holds {_PLURAL[columns[name]]}, got {quoted(wrong)}")


_PLURAL = {"number": "numbers", "text": "text"}


class _FilterParser(Parser):
    """Reads filters; each method reads one line of the grammar."""

    signs = "()[],=<>!+-"

    def either(self) -> Filter:
        parts = [self._every()]
        while self._keyword("or"):
            parts.append(self._every())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _every(self) -> Filter:
        parts = [self._negation()]
        while self._keyword("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _negation(self) -> Filter:
        if self._keyword("not"):
            self.deeper()  # as a bracket, so that a long row of them does not exhaust Python's frames
            part = self._negation()
            self.depth -= 1
            return Not(part)
        if self.token.kind == "(":
            self._open()
            inside = self.either()
            self._close(")")
            return inside
        return self._condition()

    def _condition(self) -> Filter:
        token = self.token
        if token.kind != "name" or token.text in KEYWORDS or not token.text.isidentifier():
            raise self._error("expected the name of a column")
        self._advance()
        self._count_condition()
        if self._keyword("is"):
            present = self._keyword("not")
            if not self._keyword("missing"):
                raise self._error("expected missing or not missing")
            missing = Condition(token.text, "missing", ())
            return Not(missing) if present else missing
        differs = self._keyword("not")
        inside: Condition | None = None
        if self._keyword("in"):
            inside = Condition(token.text, "in", self._list())
        elif self._keyword("contains"):
            inside = Condition(token.text, "contains", (self._text(),))
        if inside is not None:
            return Not(inside) if differs else inside
        if differs:
            raise self._error("expected in or contains")
        return Condition(token.text, self._sign(), (self._literal(),))

    def _sign(self) -> str:
        first = self.token
        if first.kind not in "=<>!" or first.kind == "":
            raise self._error("expected a comparison: == != < <= > >= in, contains or is missing")
        self._advance()
        if self.token.kind == "=" and self.token.at == first.at + 1:
            self._advance()
            return f"{first.kind}="
        if first.kind in "<>":
            return first.kind
        raise self._error("expected == or !=", first.at)

    def _list(self) -> tuple[Value, ...]:
        if self.token.kind != "[":
            raise self._error("expected a list such as [1, 2]")
        self._open()
        found = [self._literal()]
        while self.token.kind == ",":
            self._advance()
            found.append(self._literal())
        self._close("]")
        if len({isinstance(value, str) for value in found}) > 1:
            raise self._error("expected a list of numbers or a list of text")
        return tuple(found)

    def _text(self) -> str:
        if self.token.kind != "string":
            raise self._error("expected a text in quotes")
        value = self._literal()
        assert isinstance(value, str)  # by the kind of its token
        return value

    def _literal(self) -> Value:
        token = self.token
        if token.kind == "string":
            self._advance()
            return self._string(token)
        if token.kind not in ("number", "+", "-"):
            raise self._error("expected a number or a text in quotes")
        value = self._number().value
        assert isinstance(value, (int, float))  # as the parser reads numbers
        return value

    def _keyword(self, word: str) -> bool:
        """Go on after a word, if it is the next."""
        if self.token.kind != "name" or self.token.text != word:
            return False
        self._advance()
        return True

    def _count_condition(self) -> None:
        self.terms += 1
        if self.terms > MAX_CONDITIONS:
            raise self._error(f"a filter may have up to {MAX_CONDITIONS} comparisons")

    def end(self) -> None:
        """Check that nothing is left."""
        if self.token.kind != "end":
            raise self._error("expected and, or, or the end")
