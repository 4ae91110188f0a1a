"""The small language in which texts name objectives, trunks, samplers, learners and augmentation.

A text such as ``"0.5*TripletLoss(margin=0.1, miner=BatchHard()) + mylosses:Own()"`` becomes an immutable tree; nothing
is imported, looked up or run here. The whole grammar::

    sum      = product {"+" product}
    product  = operand {"*" operand}
    operand  = value | call | "(" sum ")"
    call     = name ["(" [argument {"," argument}] ")"]
    argument = [word "="] sum
    name     = word {"." word} [":" (word | number)] | hub ":" anything but spaces and brackets
    value    = number | string | "None" | "True" | "False" | tuple | list | dict, as Python writes them

Whoever reads a tree decides which of these forms mean something to it: a sampler is one call, an objective a sum.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import Parameter
from math import isfinite
from typing import Any, NamedTuple, TypeVar

from .settings import suggest_name, type_error_message

HUBS = ("timm", "transformers")  # names of models, not of modules: "timm:resnet18.a1", "transformers:path/of/a/folder"
CONSTANTS = {"None": None, "True": True, "False": False}

LENGTH = 1_000_000  # characters; `class_counts` of a data set may list a number for each of its classes
MAX_NESTING = 20  # brackets inside brackets; each costs a few of Python's frames, of which there are a thousand
MAX_TERMS = 200  # calls and operands of + and *; the longest published objective has fewer than ten
MAX_NUMBER_LENGTH = 40  # characters of a number; `repr` of a float has up to 24
MAX_INTEGER = 2**64  # an integer beyond is no setting, and overflows where it is used
SHOWN_CHARACTERS = 60  # characters of a text that an error repeats
KEPT_TREES = 64  # texts that are not parsed again; a training has five, and their inner texts
KEPT_LENGTH = 10_000  # characters of such a text, so that numbers of many classes do not fill the memory


class ExpressionError(ValueError):
    """A text that cannot be understood; the message is one line and names the part."""


@dataclass(frozen=True)
class Literal:
    """A number, a string, None, True or False; `at` is its place in the text."""

    value: float | str | bool | None
    at: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True)
class ValueSequence:
    """A tuple or a list of values."""

    kind: type[tuple[Any, ...]] | type[list[Any]]
    items: tuple[Node, ...]
    at: int = field(default=0, compare=False)

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.items))
        if self.kind is list:
            return f"[{inner}]"
        return f"({inner},)" if len(self.items) == 1 else f"({inner})"


@dataclass(frozen=True)
class ValueMapping:
    """A dict of values."""

    items: tuple[tuple[Node, Node], ...]
    at: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return "{" + ", ".join(f"{key}: {value}" for key, value in self.items) + "}"


@dataclass(frozen=True)
class Argument:
    """One argument of a call; without a keyword its name is ""."""

    name: str
    value: Node

    def __str__(self) -> str:
        return f"{self.name}={self.value}" if self.name else str(self.value)


@dataclass(frozen=True)
class Call:
    """A name with its arguments; ``BatchHard`` and ``BatchHard()`` are the same."""

    name: str
    arguments: tuple[Argument, ...] = ()
    at: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"

    @property
    def module(self) -> str:
        """The module that the name leads to, such as "mylosses" of "mylosses:Own"; "" for any other name."""
        module, _, attribute = self.name.partition(":")
        return module if attribute.isidentifier() and module not in HUBS else ""


@dataclass(frozen=True)
class Plus:
    """A sum of at least two operands."""

    operands: tuple[Node, ...]
    at: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return " + ".join(f"({one})" if isinstance(one, Plus) else str(one) for one in self.operands)


@dataclass(frozen=True)
class Times:
    """A product of at least two operands."""

    operands: tuple[Node, ...]
    at: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return "*".join(f"({one})" if isinstance(one, (Plus, Times)) else str(one) for one in self.operands)


Node = Literal | ValueSequence | ValueMapping | Call | Plus | Times
Tree = TypeVar("Tree", Node, tuple[Node, ...])


def parse(text: str, expected: str = "a name with settings such as Name(setting=1)") -> Node:
    """Read a text; `expected` is what it should have been, for an error.

    Raises
    ------
    ExpressionError
        With the place of what cannot be understood.

    Examples
    --------
    >>> print(parse("TripletLoss( margin = .1 )+2 * BatchHard"))
    TripletLoss(margin=0.1) + 2*BatchHard()
    """
    return _parsed(text, expected, read_one)


def parse_list(text: str, expected: str) -> tuple[Node, ...]:
    """Read several expressions with commas between them; an empty text has none."""
    return _parsed(text, expected, read_list)


def _parsed(text: str, expected: str, read: Callable[[str, str], Tree]) -> Tree:
    """Read a text, which is parsed once: a run asks for its trunk where it chooses settings, opens data and builds."""
    if isinstance(text, str) and len(text) <= KEPT_LENGTH:
        with suppress(ExpressionError):  # which is raised again in the words of the caller
            return _kept_tree(text, read)
    return read(text, expected)


@lru_cache(maxsize=KEPT_TREES)
def _kept_tree(text: str, read: Callable[[str, str], Tree]) -> Tree:
    return read(text, "")


def read_one(text: str, expected: str) -> Node:
    """Read a text that has one expression."""
    parser = Parser(text, expected)
    found = parser.sum()
    parser.end()
    return found


def read_list(text: str, expected: str) -> tuple[Node, ...]:
    """Read a text that has a list of expressions."""
    parser = Parser(text, expected)
    found = []
    while parser.token.kind != "end":
        found.append(parser.sum())
        if parser.token.kind != "end":
            parser.take(",")
    return tuple(found)


def plain(node: Node) -> Any:
    """Return the Python value of a tree that holds values only.

    >>> plain(parse("{'sizes': (3, [4, -5.5])}"))
    {'sizes': (3, [4, -5.5])}
    """
    if isinstance(node, Literal):
        return node.value
    if isinstance(node, ValueSequence):
        return node.kind(map(plain, node.items))
    if isinstance(node, ValueMapping):
        return {plain(key): plain(value) for key, value in node.items}
    raise ExpressionError(f"expected a literal value such as 3, 'text' or (1, 2), got {shown(str(node))}")


def is_plain(node: Node) -> bool:
    """Return whether a tree is a value, and names nothing."""
    return isinstance(node, (Literal, ValueSequence, ValueMapping))


def is_number(node: Node) -> bool:
    """Return whether a tree is one number."""
    return isinstance(node, Literal) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool)


def walk(node: Node) -> Iterator[Node]:
    """Give a node and all that it holds."""
    yield node
    inner: tuple[Node, ...] = ()
    if isinstance(node, Call):
        inner = tuple(argument.value for argument in node.arguments)
    elif isinstance(node, (Plus, Times)):
        inner = node.operands
    elif isinstance(node, ValueSequence):
        inner = node.items
    elif isinstance(node, ValueMapping):
        inner = tuple(part for pair in node.items for part in pair)
    for part in inner:
        yield from walk(part)


def modules_in(text: str) -> tuple[str, ...]:
    """Return the modules of a user's own that a text names, also in texts among its settings; of no sense, none.

    >>> modules_in("mylosses:Own(miner=more.miners:Near()) + HORDE(loss='others:Far()')")
    ('more.miners', 'mylosses', 'others')
    """
    try:
        nodes = list(walk(parse(text)))
    except ExpressionError:
        return ()
    named = {node.module for node in nodes if isinstance(node, Call)} - {""}
    texts = [node.value for node in nodes if isinstance(node, Literal) and isinstance(node.value, str)]
    for inner in texts:
        if len(inner) < len(text):  # a text holds itself only where it is nothing but itself
            named.update(modules_in(inner))
    return tuple(sorted(named))


def settings_of(
    call: Call, takes: Mapping[str, Parameter], value: Callable[[Node], Any] | None = None, *, hands_on: bool = False
) -> dict[str, Any]:
    """Return the settings of a call by name, each checked against the parameter that takes it.

    Parameters
    ----------
    call : Call
    takes : mapping of str to Parameter
        The settings that there are.
    value : callable
        Makes the value of a setting from its tree; where not given, all are literals.
    hands_on : bool
        Whether other settings are allowed, which the called object passes on.

    Raises
    ------
    ExpressionError
        For an argument without a name, an unknown setting (the nearest is suggested), or a value of another kind.
    """
    settings = {}
    for name, node in ((argument.name, argument.value) for argument in call.arguments):
        if not name:
            first = next(iter(takes), "setting")
            raise ExpressionError(f"{call.name} takes only keywords, such as {first}=..., got {shown(str(node))}")
        if name not in takes and not hands_on:
            raise ExpressionError(f"{call.name} has no setting {name!r}{suggest_name(name, takes)}")
        if value is None and not is_plain(node):
            detail = f"{name} must be a literal value such as 3, 'text' or (1, 2)"
            raise ExpressionError(f"{call.name}: {detail}; got {shown(str(node))}")
        settings[name] = plain(node) if value is None else value(node)
        wrong = type_error_message(takes[name], settings[name]) if name in takes else ""
        if wrong:
            raise ExpressionError(f"{call.name}: {wrong}")
    return settings


def shown(text: str, at: int = 0) -> str:
    """Return a text in quotes, of a long one only the part around a place.

    >>> shown("a" * 100)[-6:]
    "aa...'"
    """
    start = max(0, min(at - SHOWN_CHARACTERS // 2, len(text) - SHOWN_CHARACTERS))
    before = "..." if start else ""
    after = "..." if start + SHOWN_CHARACTERS < len(text) else ""
    return repr(f"{before}{text[start : start + SHOWN_CHARACTERS]}{after}")


class _Token(NamedTuple):
    """One word of a text; its kind is "name", "number", "string", "end", or the sign itself."""

    kind: str
    text: str
    at: int


SPACE = re.compile(r"\s*")
WORD = re.compile(r"[^\W\d]\w*")
DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*+")
AFTER_COLON = re.compile(r":([^\W\d]\w*|\d+(?:\.\d*)?|\.\d+)")
HUB = re.compile(r":[^()\s]+")
NUMBER = re.compile(r"(?:\d[\d_]*+(?:\.[\d_]*+)?|\.\d[\d_]*+)(?:[eE][+-]?\d+)?")
STRING = re.compile(r"""'(?:\\.|[^'\\\n])*+'|"(?:\\.|[^"\\\n])*+\"""", re.DOTALL)
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "f": "\f"}
SIGNS = "()[]{},:=+*-"


class Parser:
    """Reads a text from left to right; `token` is the next word.

    Filters of an index (`nearfar.index.filters`) are another grammar on the same words, with more `signs`.
    """

    signs = SIGNS

    def __init__(self, text: str, expected: str) -> None:
        self.text = text
        self.expected = expected
        self.depth = 0
        self.terms = 0
        if not isinstance(text, str):
            raise ExpressionError(f"expected a text, {expected}; got {type(text).__name__}")
        if len(text) > LENGTH:
            raise ExpressionError(f"the text has {len(text):,} characters, and may have {LENGTH:,}: {shown(text)}")
        self.position = 0
        self.token = self._next()

    # The grammar

    def sum(self) -> Node:
        return self._operands("+", self._product, Plus)

    def _product(self) -> Node:
        return self._operands("*", self._operand, Times)

    def _operands(self, sign: str, read: Callable[[], Node], kind: Callable[..., Node]) -> Node:
        at = self.token.at
        found = [read()]
        while self.token.kind == sign:
            self._advance()
            found.append(read())
        return found[0] if len(found) == 1 else kind(tuple(found), at)

    def _operand(self) -> Node:
        token = self.token
        if token.kind == "name":
            return self._named()
        if token.kind in ("number", "+", "-"):
            return self._number()
        if token.kind == "string":
            self._advance()
            return Literal(self._string(token), token.at)
        if token.kind == "(":
            return self._brackets()
        if token.kind == "[":
            return ValueSequence(list, self._values("]"), token.at)
        if token.kind == "{":
            return self._dict()
        raise self._error("expected a name or a value")

    def _named(self) -> Node:
        token = self.token
        self._advance()
        if token.text in CONSTANTS:
            return Literal(CONSTANTS[token.text], token.at)
        self._count(token)
        if self.token.kind != "(":
            return Call(token.text, (), token.at)
        return Call(token.text, self._arguments(token), token.at)

    def _arguments(self, called: _Token) -> tuple[Argument, ...]:
        found: list[Argument] = []
        names: set[str] = set()
        self._open()
        while self.token.kind != ")":
            token = self.token
            name = ""
            if token.kind == "name" and self.text.startswith("=", self._skipped(self.position)):
                if not WORD.fullmatch(token.text):
                    raise self._error("expected the name of a setting")
                name = token.text
                self._advance()
                self._advance()
            if name and name in names:
                raise self._error(f"{called.text} is given {name!r} twice", token.at)
            names.add(name)
            found.append(Argument(name, self.sum()))
            self._comma(")")
        self._close(")")
        return tuple(found)

    def _brackets(self) -> Node:
        """Brackets around an expression, or a tuple."""
        at = self.token.at
        self._open()
        if self.token.kind == ")":
            self._close(")")
            return ValueSequence(tuple, (), at)
        first = self.sum()
        if self.token.kind == ")":
            self._close(")")
            return first
        self.take(",")
        rest = self._rest(")")
        return ValueSequence(tuple, tuple(map(self._value, (first, *rest))), at)

    def _values(self, closing: str) -> tuple[Node, ...]:
        self._open()
        return tuple(map(self._value, self._rest(closing)))

    def _rest(self, closing: str) -> list[Node]:
        found = []
        while self.token.kind != closing:
            found.append(self.sum())
            self._comma(closing)
        self._close(closing)
        return found

    def _dict(self) -> ValueMapping:
        at = self.token.at
        found = []
        self._open()
        while self.token.kind != "}":
            key = self._value(self.sum())
            if not isinstance(key, Literal):
                raise self._error("expected a key that is a number or a text", key.at)
            self.take(":")
            found.append((key, self._value(self.sum())))
            self._comma("}")
        self._close("}")
        return ValueMapping(tuple(found), at)

    def _value(self, node: Node) -> Node:
        if not is_plain(node):
            raise self._error("expected a number, a text or another value", node.at)
        return node

    def _number(self) -> Literal:
        first = self.token
        sign = 1
        if first.kind != "number":
            sign = -1 if first.kind == "-" else 1
            self._advance()
            if self.token.kind != "number":
                raise self._error(f"only a number may stand after {first.text!r} here, as in -1*Name()", first.at)
        token = self.token
        self._advance()
        if len(token.text) > MAX_NUMBER_LENGTH:
            raise self._error(f"a number has up to {MAX_NUMBER_LENGTH} characters", token.at)
        try:
            value = int(token.text) if re.fullmatch(r"[\d_]+", token.text) else float(token.text)
        except ValueError:
            raise self._error("expected a number", token.at) from None
        if not isfinite(value) or (isinstance(value, int) and value > MAX_INTEGER):
            raise self._error("this number is too large", token.at)
        return Literal(sign * value, first.at)

    def _string(self, token: _Token) -> str:
        def unescaped(found: re.Match[str]) -> str:
            code = found[1]
            if len(code) > 1:
                number = int(code[1:], 16)
                if number > 0x10FFFF:
                    raise self._error("there is no such character", token.at)
                return chr(number)
            return ESCAPES.get(code, f"\\{code}")  # as Python reads what is no escape

        return ESCAPE.sub(unescaped, token.text[1:-1])

    # Words

    def _next(self) -> _Token:
        start = self._skipped(self.position)
        if start == len(self.text):
            self.position = start
            return _Token("end", "", start)
        for kind, pattern in (("name", DOTTED), ("number", NUMBER), ("string", STRING)):
            found = pattern.match(self.text, start)
            if found:
                end = self._name_end(found) if kind == "name" else found.end()
                if kind == "number" and WORD.match(self.text, end):
                    raise self._error("expected a number", start)
                self.position = end
                return _Token(kind, self.text[start:end], start)
        sign = self.text[start]
        if sign not in self.signs:
            what = "this text has no end" if sign in "'\"" else f"{sign!r} is not allowed"
            if sign in "/\\":
                what += "; write a path in quotes"
            raise self._error(what, start)
        self.position = start + 1
        return _Token(sign, sign, start)

    def _name_end(self, found: re.Match[str]) -> int:
        """Return where a name ends, with what stands after a colon in it."""
        if found[0] in CONSTANTS:
            return found.end()
        of_hub = found[0] in HUBS and found.start() == self._skipped(0)
        after = (HUB if of_hub else AFTER_COLON).match(self.text, found.end())
        return found.end() if after is None else after.end()

    def _skipped(self, position: int) -> int:
        found = SPACE.match(self.text, position)
        return position if found is None else found.end()

    def _advance(self) -> None:
        self.token = self._next()

    def take(self, sign: str) -> None:
        """Go on after a sign, which must be there."""
        if self.token.kind != sign:
            raise self._error(f"expected {sign!r}")
        self._advance()

    def end(self) -> None:
        """Check that nothing is left."""
        if self.token.kind == "-":
            raise self._error("expected + or *; a difference is written + -1*Name()", self.token.at)
        if self.token.kind != "end":
            raise self._error("expected + or *")

    def _comma(self, closing: str) -> None:
        if self.token.kind != closing:
            if self.token.kind != ",":
                raise self._error(f"expected , or {closing}")
            self._advance()

    def _open(self) -> None:
        self.deeper()
        self._advance()

    def deeper(self) -> None:
        """Count one more bracket around what is read next."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self._error(f"brackets may be nested up to {MAX_NESTING} deep")

    def _close(self, sign: str) -> None:
        self.depth -= 1
        self.take(sign)

    def _count(self, token: _Token) -> None:
        self.terms += 1
        if self.terms > MAX_TERMS:
            raise self._error(f"a text may name up to {MAX_TERMS} parts", token.at)

    # Errors

    def _error(self, detail: str, at: int | None = None) -> ExpressionError:
        """Return the error of a place, by default that of the next word."""
        here = self.token.at if at is None else at
        rest = self.text[here : here + SHOWN_CHARACTERS]
        word = DOTTED.match(rest) or NUMBER.match(rest) or re.match(r"\S", rest)
        got = f", got {word[0]!r}" if word and at is None else ""
        place = f"at character {here + 1}" if rest.strip() else "at its end"
        return ExpressionError(f"{shown(self.text, here)} is not {self.expected}: {place}, {detail}{got}")
