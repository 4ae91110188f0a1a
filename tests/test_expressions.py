"""The language of the texts that name objectives, trunks, samplers, learners and augmentation."""

import inspect
import random
import re
from pathlib import Path

import pytest

from nearfar.catalog import METHODS
from nearfar.expressions import (
    MAX_NESTING,
    MAX_TERMS,
    Call,
    ExpressionError,
    is_plain,
    modules_in,
    parse,
    parse_list,
    plain,
    walk,
)

ROOT = Path(__file__).parent.parent
OPTIONS = r"--(?:objective|trunk|sampler|augment)[ =]+\"([^\"]+)\"|(?:objective|trunk|sampler|augment)=\"([^\"]+)\""
FORMS = [
    "TripletLoss",
    "TripletLoss(margin=0.1, miner=BatchHard()) + 0.5*NPairLoss(reg=0.01) + ContrastiveLoss*2",
    "-0.25*TripletLoss() + -1e-07*(NPairLoss() + 2*ArcFaceLoss())",
    "AdaFaceLoss(class_counts=[3, 4, 5], scale=None, unit=True, sizes=(1,), named={'a': (2, 'b'), 3: []})",
    "HORDE(embedding_dim=4, loss='mylosses:Far(text=\"x:y\")')",
    "deep.mylosses:Far(miner=mine:Near(k=3)) + 1.5*Other()",
    "conv4(width=32)",
    "timm:resnet18.a1(drop_rate=0.1, act='gelu')",
    "transformers:/models/a-vit.v2/best",
    "m_per_class:2",
    "class_ratio:.25",
    "Kernelized(learner=RCA(n_components=2))",
    "()",
]


def told_in_docs() -> list[str]:
    """The texts that the documentation gives to options and settings."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = [text for page in pages for pair in re.findall(OPTIONS, page.read_text()) for text in pair if text]
    assert len(found) > 10
    return sorted(set(found))


def told_in_recipes() -> list[str]:
    pytest.importorskip("msgspec")
    from nearfar.train.recipes import recipe, recipe_names

    settings = [recipe(name) for name in recipe_names()]
    return [one[key] for one in settings for key in ("objective", "trunk", "sampler", "augment") if one.get(key)]


@pytest.mark.parametrize("text", [*FORMS, *(f"{m.name}({m.small})".replace("{}", "") for m in METHODS if not m.small)])
def test_every_form_is_read_and_printed_as_it_is_read(text):
    node = parse(text)
    assert parse(str(node)) == node
    assert str(parse(str(node))) == str(node)


def test_every_text_in_docs_and_recipes_is_read_and_printed_as_it_is_read():
    for text in [*told_in_docs(), *told_in_recipes()]:
        nodes = parse_list(text, "a list")
        assert nodes
        assert parse_list(", ".join(map(str, nodes)), "a list") == nodes


@pytest.mark.parametrize(
    "value",
    [
        0,
        -3,
        2.5,
        -1e-300,
        1e22,
        True,
        None,
        "",
        "it's",
        'say "x:y"',
        "\n\t\\ \x00 ä \ud800 \U0001f600",
        (),
        (1,),
        (1, (2,)),
    ],
)
def test_values_are_those_of_python(value):
    assert repr(plain(parse(repr(value)))) == repr(value)
    assert repr(plain(parse(repr([value, {"a": value}])))) == repr([value, {"a": value}])


def test_a_tree_cannot_be_changed():
    node = parse("A(x=[1])")
    with pytest.raises(AttributeError):
        node.name = "B"
    first = plain(node.arguments[0].value)
    first.append(2)
    assert plain(node.arguments[0].value) == [1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at its end, expected a name or a value"),
        ("A(", "at its end"),
        ("A(x=1", "at its end, expected , or )"),
        ("A - B", "at character 3, expected + or *; a difference is written + -1*Name()"),
        ("A(x=1, x=2)", "at character 8, A is given 'x' twice"),
        ("A(b.c=1)", "at character 3, expected the name of a setting"),
        ("A('x", "at character 3, this text has no end"),
        ("A(x=1e999)", "at character 5, this number is too large"),
        ("A(x=" + "9" * 400 + ")", "at character 5, a number has up to 40 characters"),
        ("{(1,): 2}", "at character 2, expected a key"),
        ("(1, A())", "at character 5, expected a number, a text or another value"),
        ("mod:Name.part", "at character 9, '.' is not allowed"),
        ("mod:Name:part", "at character 9, expected + or *, got ':'"),
        ("lambda: 0", "got ':'"),
        ("A()()", "at character 4, expected + or *, got '('"),
        ("A" + "(" * 10_000, f"up to {MAX_NESTING} deep"),
        ("[" * 10_000, f"up to {MAX_NESTING} deep"),
        (" + ".join(["A()"] * 1500), f"up to {MAX_TERMS} parts"),
        ("A(" + "x" * 2_000_000, "has 2,000,002 characters"),
    ],
)
def test_an_error_is_one_short_line_that_says_where(text, message):
    with pytest.raises(ExpressionError, match=re.escape(message)) as told:
        parse(text)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 400


def test_random_texts_are_read_or_refused_and_nothing_else():
    rng = random.Random(0)
    words = [
        *"()[]{},:=+*-/.'\"\\ \n\0",
        "**",
        "==",
        "A",
        "b.c",
        "m:N",
        "timm:",
        "None",
        "1",
        ".5",
        "1e",
        "9" * 50,
        "0x1",
    ]
    words += ["ä", "\ud800", "\\x", "A(", "x=", "TripletLoss()", "lambda", "__import__('os')", "f'{a}'"]
    read, told = 0, []
    for _ in range(4000):
        text = "".join(rng.choices(words, k=rng.choice([1, 2, 3, 5, 9, 40])))
        try:
            node = parse(text)
        except ExpressionError as error:
            told.append(str(error))
            continue
        read += 1
        assert parse(str(node)) == node
    assert read > 100
    assert not [line for line in told if "\n" in line]


def test_changed_texts_are_read_or_refused_and_nothing_else():
    rng = random.Random(1)
    for text in FORMS * 40:
        at, end = sorted(rng.choices(range(len(text) + 1), k=2))
        other = rng.choice(FORMS)
        for changed in (
            text[:at] + text[end:],
            text[:at] + other + text[at:],
            text[:at] + text[at:end] * 30 + text[end:],
        ):
            try:
                node = parse(changed)
            except ExpressionError:
                continue
            assert parse(str(node)) == node


def test_texts_say_which_modules_they_name():
    assert modules_in(FORMS[5]) == ("deep.mylosses", "mine")
    assert modules_in(FORMS[4]) == ("mylosses", "x")
    for text in ("timm:resnet18", "transformers:vit", "m_per_class:2", "conv4", "not ( a text"):
        assert modules_in(text) == ()


def test_reading_needs_no_interpreter():
    """Neither Python's parser nor its evaluation stands behind it."""
    import nearfar.expressions as module

    source = inspect.getsource(module)
    assert not re.search(r"\b(?:eval|exec)\(|(?<!re\.)\bcompile\(|import ast\b|literal_eval", source)


@pytest.mark.parametrize("name", sorted({method.kind for method in METHODS}))
def test_names_of_the_catalog_are_names_of_the_language(name):
    for method in METHODS:
        if method.kind == name:
            assert parse(method.name) == Call(method.name)
            assert not is_plain(parse(method.name))
            assert list(walk(parse(method.name))) == [Call(method.name)]
