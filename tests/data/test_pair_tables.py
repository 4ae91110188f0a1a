"""Tables of pairs, triplets, and queries with documents: their items, classes, and what is known of pairs."""

import numpy as np
import pytest
from PIL import Image

from nearfar.data import DataError, open_dataset, open_items, open_task
from nearfar.data.listed import UNSURE
from nearfar.data.open import read_levels, with_pairs
from nearfar.data.readers.pair_tables import listed_in
from nearfar.data.readers.texts import first_words
from nearfar.io.cells import write_table
from nearfar.workflows.verification import read_pair_list


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def known(items):
    """Return the degree of each listed pair by the names of its items."""
    listed = items.listed
    return {
        frozenset((items.names[i], items.names[j])): float(degree)
        for i, j, degree in zip(listed.i, listed.j, listed.degree, strict=True)
    }


def tuples(items):
    return [[items.names[at] for at in one if at >= 0] for one in items.listed.tuples]


def test_triplets_are_items_whose_classes_are_what_similar_pairs_connect(tmp_path):
    table = write(tmp_path / "t.csv", "anchor,positive,negative", "a b,b c,x y", "b c,c d,z w", "x y,x z,a b")
    items = open_dataset(str(table))
    assert items.kind == "text"
    assert items.names == ("a b", "b c", "x y", "c d", "z w", "x z")
    assert [items.classes[label] for label in items.labels] == ["a b", "a b", "x y", "a b", "z w", "x y"]
    pairs = {("a b", "b c"): 1, ("a b", "x y"): 0, ("b c", "c d"): 1, ("b c", "z w"): 0, ("x y", "x z"): 1}
    assert known(items) == {frozenset(names): degree for names, degree in pairs.items()}
    assert tuples(items) == [["a b", "b c", "x y"], ["b c", "c d", "z w"], ["x y", "x z", "a b"]]
    assert items.listed.by_class


def test_queries_have_documents_and_any_number_of_hard_negatives(tmp_path):
    (tmp_path / "q.jsonl").write_text(
        '{"query": "q", "document": "d", "negative": ["x", "y"]}\n{"query": "r", "document": "e", "negative": []}\n'
    )
    assert tuples(open_dataset(str(tmp_path / "q.jsonl"))) == [["q", "d", "x", "y"], ["r", "e"]]
    table = write(tmp_path / "q.csv", "query,document,negative1,negative_2", "q,d,x,y", "r,e,,")
    assert tuples(open_dataset(str(table))) == [["q", "d", "x", "y"], ["r", "e"]]


def test_degrees_are_relative_to_the_largest(tmp_path):
    table = write(tmp_path / "s.csv", "sentence1,sentence2,score", "a,b,5", "c,d,2.5", "e,f,0")
    items = open_dataset(str(table))
    assert [*known(items).values()] == [1, 0.5, 0]
    assert not items.listed.by_class
    table = write(tmp_path / "p.csv", "text1,text2,similar", "a,b,-1", "c,d,1", "e,f,true")
    with pytest.raises(DataError, match="row 3"):
        open_dataset(str(write(tmp_path / "w.csv", "text1,text2,similar", "a,b,1", "c,d,0", "e,f,perhaps")))
    assert [*known(open_dataset(str(table))).values()] == [0, 1, 1]


def test_pairs_of_photos(tmp_path):
    for name in "abc":
        Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / f"{name}.png")
    table = write(tmp_path / "p.csv", "path1,path2,similar", "a.png,b.png,1", "a.png,c.png,0")
    items = open_dataset(str(table))
    assert (items.kind, items.names) == ("image", ("a.png", "b.png", "c.png"))
    write(tmp_path / "p.csv", "path1,path2,similar", "a.png,b.png,1", "a.png,d.png,0")
    with pytest.raises(DataError, match=r"1 of 3 images do not exist: d\.png"):
        open_dataset(str(table))


def test_what_is_listed_follows_the_items(tmp_path):
    table = write(tmp_path / "t.csv", "anchor,positive,negative", *(f"a{i},b{i},c{i}" for i in range(12)))
    task = open_task(str(table), validation=0)
    whole = known(open_items(str(table)))
    for part in (task.train, task.test):
        there = set(part.names)
        assert known(part) == {names: degree for names, degree in whole.items() if names <= there}
        assert all(one[0][0] == "a" and len(one) > 1 for one in tuples(part))
    joined = task.train.joined(task.test)
    assert known(joined).items() <= whole.items()
    assert len(joined.listed) == len(task.train.listed) + len(task.test.listed)
    assert task.train.subset([0]).listed is None


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["anchor,positive", "a,"], "column 'positive' is empty in row 1"),
        (
            ["text1,text2,similar", "a,a,1", "b,b,0", "c,c,0", "a,b,1"],
            r"row 2 pairs 'b' with itself as different, the first of 2 such rows; .*--skip-bad",
        ),
        (["anchor,positive,negative", "a,b,c", "a,d,a"], r"row 2 pairs 'a' with itself as different.* 1 such row;"),
        (["text1,text2,similar", "a,b,1", "c,d,1", "b,a,0"], "lists 'b' and 'a' with .* degrees, in rows 1 and 3;"),
        (["anchor,positive,negative", "c,d,e", "a,b,b"], "lists 'a' and 'b' with two different degrees, in row 2;"),
        (["text1,text2,similar", "a,b,match"], "has 'match' in row 1; expected 1 or 0, yes or no, true or false, or a"),
        (["text1,text2,similar", "a,b,-3"], "has '-3' in row 1; expected 0 or more"),
    ],
)
def test_a_bad_pair_is_one_line(tmp_path, lines, says):
    with pytest.raises(DataError, match=says):
        open_dataset(str(write(tmp_path / "bad.csv", *lines)))


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("kind", ["text", "image"])
def test_a_pair_of_an_item_with_itself_is_left_out_and_counted(tmp_path, kind, split):
    ending = ".png" if kind == "image" else ""
    names = [f"{letter}{ending}" for letter in "abcdef"]
    if kind == "image":
        for name in names:
            Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / name)
    a, b, c, d, e, f = names
    rows = [(a, a, 1, "train"), (a, b, 1, "train"), (c, c, 1, "test"), (d, e, 0, "test"), (f, f, 0, "train")]
    head = "left,right,same,split" if split else "left,right,same"
    lines = [",".join(map(str, row[: 4 if split else 3])) for row in rows]
    items = open_items(str(write(tmp_path / "p.csv", head, *lines[:4])))
    assert {*items.names} == {*names[:5]}  # an item with no other pair stays
    assert known(items) == {frozenset((a, b)): 1, frozenset((d, e)): 0}
    assert "2 pairs of an item with itself left out" in " ".join(items.notes)
    with pytest.raises(DataError, match=f"row 5 pairs '{f}' with itself as different"):
        open_items(str(write(tmp_path / "p.csv", head, *lines)))
    items = open_items(str(tmp_path / "p.csv"), skip_bad=True)
    assert known(items) == {frozenset((a, b)): 1, frozenset((d, e)): 0}
    assert "1 pair of an item with itself as different left out" in " ".join(items.notes)


def test_rows_of_one_item_keep_their_other_negatives(tmp_path):
    table = write(tmp_path / "t.csv", "anchor,positive,negative", "a,a,b", "c,d,c", "d,a,b")
    items = open_items(str(table), skip_bad=True)
    assert tuples(items) == [["a", "b"], ["c", "d"], ["d", "a", "b"]]
    asks = open_items(str(write(tmp_path / "q.csv", "query,document", "a,a", "b,c"))).listed.asks
    assert asks.tolist() == [False, True, False]  # what is also a document is searched


def test_mined_negatives_name_items_and_doubtful_ones_are_unknown(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", X=rng.normal(size=(24, 3)), y=np.arange(24) % 6)
    task = open_task(str(tmp_path / "rows.npz"), validation=0)
    a, b, c, d = task.train.names[:4]
    rows = [f"{a},{b},negative", f"{a},{c},doubtful", f"{c},{a},negative", f"{b},{d},negative"]
    table = write(tmp_path / "hard.csv", "name,negative,use", *rows)
    found = with_pairs(task, str(table))
    assert known(found.train) == {frozenset((a, b)): 0, frozenset((a, c)): UNSURE, frozenset((b, d)): 0}
    assert "2 pairs listed in hard.csv, 1 doubtful ones left out." in found.protocol
    write(table, "name,negative", f"{a},nobody")
    with pytest.raises(DataError, match=r"hard.csv: names 'nobody' in row 1, but the data have no item of that name"):
        with_pairs(task, str(table))
    write(table, "name,other", f"{a},{b}")
    with pytest.raises(DataError, match=r"expected the columns of pairs, such as anchor,pos.* it has name,other"):
        with_pairs(task, str(table))


@pytest.mark.parametrize("seed", range(4))
def test_a_column_split_is_honored_and_no_item_is_in_two_parts(tmp_path, seed):
    rng = np.random.default_rng(seed)
    words = [f"w{number}" for number in range(99)]
    roles = np.array(["train", "train", "validation", "test"])
    rows = [(*rng.choice(99, 3, replace=False), rng.choice(roles)) for _ in range(40)]
    lines = [f"{words[a]},{words[b]},{words[c]},{role}" for a, b, c, role in rows]
    table = write(tmp_path / "t.csv", "anchor,positive,negative,split", *lines)
    task = open_task(str(table))
    parts = {"train": task.train, "validation": task.validation, "test": task.test}
    there = {role: set(part.names) for role, part in parts.items() if part is not None}
    assert len(set().union(*there.values())) == sum(map(len, there.values()))
    for role, part in parts.items():
        named = {frozenset((words[a], words[b])) for a, b, _, of in rows if of == role}
        assert part is None or {pair for pair, degree in known(part).items() if degree} <= named
    # every test row is there, with all of its items
    assert there["test"] == {words[at] for *ends, of in rows if of == "test" for at in ends}
    left_out = sum({words[a], words[b]} - there.get(of, set()) != set() for a, b, _, of in rows)
    assert f"{left_out} rows with an item of validation or test left out of the parts before" in task.protocol
    assert "split by the columns of t.csv" in task.protocol


def test_parts_of_pairs_that_cannot_be_are_one_line(tmp_path):
    table = write(tmp_path / "t.csv", "anchor,positive,split", "a,b,train", "c,d,query")
    with pytest.raises(DataError, match="has rows of query; expected a split of train, validation, test"):
        open_items(str(table))
    write(table, "anchor,positive,split", "a,b,train", "a,c,test")
    with pytest.raises(DataError, match="no train row has items of its own"):
        open_items(str(table))


@pytest.mark.parametrize(
    "head",
    ["question1,question2,is_duplicate", "sentence1,sentence2,label", "text1,text2,similar", "left,right,same"],
)
def test_a_pair_is_similar_as_its_column_says_and_other_columns_are_named(tmp_path, head):
    items = open_items(str(write(tmp_path / "q.csv", f"{head},id", "a b,c d,1,7", "a b,e f,0,8")))
    assert [*known(items).values()] == [1, 0]
    assert "columns not used: id" in " ".join(items.notes)


def test_queries_search_the_documents_only(tmp_path):
    lines = [f"q{i},d{i},x{i % 3},{1 + i % 2}" for i in range(12)]
    table = write(tmp_path / "q.csv", "query,document,negative,relevance", *lines, "d1,d0,x0,1")
    task = open_task(str(table), validation=0)
    assert task.gallery is not None
    assert all(name[0] == "q" for name in task.test.names)
    assert all(name[0] in "dx" for name in task.gallery.names)  # d1 is a query and a document
    assert task.test.classes == task.gallery.classes
    listed = task.test.listed
    both = (*task.test.names, *task.gallery.names)
    ends = [(both[i], both[j]) for i, j in zip(listed.i, listed.j, strict=True)]
    whole = open_items(str(table))
    there = {*both}
    assert {frozenset(pair) for pair in ends} == {pair for pair in known(whole) if pair <= there}
    part = task.test.subset([1])
    first = task.test.names[1]
    assert {(part.names + task.gallery.names)[at] for at in part.listed.i} - {*task.gallery.names} == {first}
    # of triplets, all items search each other
    assert open_task(str(write(tmp_path / "t.csv", "anchor,positive", "a,b", "c,d", "e,f", "g,h"))).gallery is None


@pytest.mark.parametrize("head", ["left,right,same", "text1,text2,similar", "question1,question2,is_duplicate"])
def test_verification_reads_every_table_of_pairs(head, tmp_path):
    found = read_pair_list(write(tmp_path / "p.csv", head, "a,b,1", "a,c,0"))
    assert [(pair.left, pair.right, pair.same) for pair in found.pairs] == [("a", "b", True), ("a", "c", False)]
    with pytest.raises(ValueError, match=r"line 2: .*expected 1 or 0, got 'perhaps'"):
        read_pair_list(write(tmp_path / "p.csv", head, "a,b,perhaps"))


def test_left_and_right_without_same_are_features(tmp_path):
    assert open_items(str(write(tmp_path / "t.csv", "left,right,label", "1,2,a", "3,4,b"))).kind == "row"


def test_names_of_texts_survive_a_table(tmp_path):
    texts = [f"{'word ' * 14}{'x' * cut} {'more ' * cut}" for cut in range(12)] + ["  padded  text ", "=a formula"]
    names = first_words(texts)
    write_table(tmp_path / "hard.csv", ("name", "negative"), list(zip(names[1:], names, strict=False)))
    listed, _ = listed_in(str(tmp_path / "hard.csv"), names)
    assert len(listed) == len(texts) - 1
    # names of files may end with a space
    write_table(tmp_path / "hard.csv", ("name", "negative"), [("a ", " b")])
    assert len(listed_in(str(tmp_path / "hard.csv"), ["a ", " b"])[0]) == 1


def test_a_column_label_with_names_is_no_degree(tmp_path):
    items = open_items(str(write(tmp_path / "q.csv", "question,answer,label", "a b,c d,cards", "a c,e f,money")))
    assert [*known(items).values()] == [1, 1]
    assert "columns not used: label" in " ".join(items.notes)


def test_labels_from_0_to_1_are_degrees(tmp_path):
    table = write(tmp_path / "l.csv", "sentence1,sentence2,label", "a b,c d,0.5", "g h,i j,1.0")  # of the STS benchmark
    assert [*known(open_dataset(str(table))).values()] == [0.5, 1]


@pytest.mark.parametrize(
    "lines",
    [
        ["title,category", "red shoe,shoes", "blue boot,boots"],
        ["brand,title,color", "Acme,red shoe,red", "Bolt,blue boot,blue"],
        ["title,review,score", "red shoe,too small,0.2", "blue boot,nice,1"],
    ],
)
def test_texts_in_columns_of_other_names_are_no_pairs(lines, tmp_path):
    with pytest.raises(DataError, match=r"has no column of classes .* call the columns of pairs anchor, positive"):
        open_dataset(str(write(tmp_path / "t.csv", *lines)))


def test_a_table_of_open_metric_learning_has_its_roles_boxes_and_categories(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    for i in range(6):
        Image.fromarray(pixels + np.uint8(i)).save(tmp_path / f"{i}.png")
    write(
        tmp_path / "df.csv",
        ",label,path,split,is_query,is_gallery,category,x_1,x_2,y_1,y_2",
        "0,6,0.png,train,,,shoes,,,,",
        "1,7,1.png,train,,,shoes,2,10,1,7",
        "2,8,2.png,validation,True,False,hats,,,,",
        "3,8,3.png,validation,False,True,hats,,,,",
        "4,9,4.png,validation,True,False,hats,2,10,1,7",
        "5,9,5.png,validation,False,True,hats,,,,",
    )
    task = open_task(str(tmp_path / "df.csv"))
    assert task.train.names == ("0.png", "1.png")
    assert task.train.read(1).shape[:2] == (6, 8)  # x_1 to x_2, y_1 to y_2
    assert task.test.names == ("2.png", "4.png")
    assert task.gallery.names == ("3.png", "5.png")
    levels = read_levels([str(tmp_path / "df.csv")], "label", ("category",))
    assert levels.levels == ("label", "category")
