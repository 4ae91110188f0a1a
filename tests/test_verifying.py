"""``nearfar evaluate --protocol verification`` and ``nearfar duplicates``."""

import csv
import itertools
import json

import numpy as np
import pytest

import nearfar
from nearfar.evaluation import identify, verify, verify_pairs
from nearfar.workflows.verification import read_pair_list

from .commands import run

rng = np.random.default_rng(0)
Y = np.repeat(["a", "b", "c"], 20)
X = rng.normal(size=(3, 5))[np.repeat(np.arange(3), 20)] + 0.7 * rng.normal(size=(60, 5))


@pytest.fixture
def rows(tmp_path):
    np.savez(tmp_path / "rows.npz", X=X, y=Y)
    return tmp_path / "rows.npz"


def test_embeddings_and_learners_are_verified(rows, capsys, monkeypatch, tmp_path):
    code, out, _ = run(capsys, monkeypatch, "evaluate", rows, "--protocol", "verification")
    assert code == 0
    assert out == f"rows, 60 items of 3 classes.\n\n{verify(X, Y)}\n"
    learner = nearfar.RCA().fit(X, Y)
    learner.save(tmp_path / "rca.safetensors")
    words = ["evaluate", tmp_path / "rca.safetensors", rows, "--protocol", "verification"]
    code, out, _ = run(capsys, monkeypatch, *words)
    assert code == 0
    assert str(verify(learner.transform(X), Y, distance="euclidean")) in out


def test_what_searches_a_gallery_is_verified_against_it(capsys, monkeypatch, tmp_path):
    about = "6 items of 2 classes, searching a gallery of 11 items of 2 classes"
    np.savez(tmp_path / "g.npz", X=X[20:26], y=Y[15:21], gallery_embeddings=X[30:41], gallery_labels=Y[15:26])
    code, out, _ = run(capsys, monkeypatch, "evaluate", tmp_path / "g.npz", "--protocol", "verification")
    assert code == 0
    assert out == f"g, {about}.\n\n{verify(X[20:26], Y[15:21], gallery=X[30:41], gallery_labels=Y[15:26])}\n"


def test_the_gallery_of_a_run_is_searched_whatever_is_asked(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", X=X, y=Y, split=np.where(rng.random(60) < 0.4, "train", np.tile(["query", "gallery"], 30)))
    words = ["--set", "validation=0", "--epochs", "1", "--set", "device=cpu", "--quiet"]
    assert run(capsys, monkeypatch, "train", "rows.npz", "--out", "run", *words)[0] == 0
    with np.load("run/test.npz") as file:
        own, there = [(file[f"{p}embeddings"], file[f"{p}classes"][file[f"{p}labels"]]) for p in ("", "gallery_")]
    code, out, _ = run(capsys, monkeypatch, "evaluate", "run", "--protocol", "verification")
    assert code == 0
    assert out.endswith(f"\n\n{verify(*own, gallery=there[0], gallery_labels=there[1])}\n")
    code, out, _ = run(capsys, monkeypatch, "evaluate", "run", "--test-class", "b")
    assert code == 0
    of_b = own[1] == "b"
    scores = nearfar.evaluation.evaluate(own[0][of_b], own[1][of_b], gallery=there[0], gallery_labels=there[1])
    assert str(scores) in out


def test_queries_are_identified_in_a_gallery(rows, capsys, monkeypatch, tmp_path):
    cameras = np.arange(60) % 4
    gallery = {"gallery": X[8:38], "gallery_labels": Y[8:38], "gallery_groups": cameras[8:38]}
    query = np.r_[:8, 38:60]  # those of c are not enrolled
    own = {"embeddings": X[query], "labels": Y[query], "groups": cameras[query]}
    there = {name.replace("gallery_", "") if "_" in name else "embeddings": part for name, part in gallery.items()}
    np.savez(tmp_path / "g.npz", **own, **{f"gallery_{name}": part for name, part in there.items()})
    words = ["evaluate", tmp_path / "g.npz", "--protocol", "identification", "--far", "0.2"]
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, err) == (0, "")
    found = identify(X[query], Y[query], groups=cameras[query], fars=0.2, **gallery)
    assert found.n_unknown == 20
    about = "g, 30 items of 3 classes, searching a gallery of 30 items of 2 classes"
    assert out == f"{about}.\n\n{found}\n"
    code, _, err = run(capsys, monkeypatch, "evaluate", rows, "--protocol", "identification")
    assert (code, err.count("\n")) == (2, 1)
    assert "none of the 60 is of a class that is not in the gallery" in err


@pytest.mark.parametrize("protocol", ["retrieval", "verification", "identification"])
def test_queries_of_a_file_or_of_data_search_their_gallery(protocol, capsys, monkeypatch, tmp_path):
    """In a table of embeddings, an .npz with a split, and data for a learner; items of the training are left out."""
    split = np.where(np.arange(60) % 20 < 4, "train", np.where(Y == "c", "query", np.tile(["query", "gallery"], 30)))
    query, gallery = split == "query", split == "gallery"
    lines = [",".join([*map(repr, row.tolist()), label, role]) for row, label, role in zip(X, Y, split, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["p,q,r,s,t,label,split", *lines]))
    np.savez(tmp_path / "t.npz", embeddings=X, labels=Y, split=split)
    nearfar.CovarianceMetric().fit(X).save(tmp_path / "c.safetensors")
    learned = nearfar.CovarianceMetric().fit(X).transform(X)
    score = {"retrieval": nearfar.evaluation.evaluate, "verification": verify, "identification": identify}[protocol]
    for words, rows, distance in (
        (["t.csv"], X, "euclidean"),
        (["t.npz"], X, "cosine"),
        (["c.safetensors", tmp_path / "t.csv"], learned, "euclidean"),
    ):
        asked = ["evaluate", tmp_path / words[0], *words[1:], "--protocol", protocol]
        code, out, err = run(capsys, monkeypatch, *asked)
        assert (code, err) == (0, "")
        told = {"gallery": rows[gallery], "gallery_labels": Y[gallery], "distance": distance}
        expected = str(score(rows[query], Y[query], **told)).split("NMI")[0]
        assert "t, 32 items of 3 classes, searching a gallery of 16 items of 2 classes" in out
        assert expected in out
    (tmp_path / "pairs.csv").write_text("left,right,same\nt[0],t[1],1\nt[0],t[59],0\n")  # an item of the training
    words = ["evaluate", tmp_path / "t.csv", "--protocol", "verification", "--pairs", tmp_path / "pairs.csv"]
    assert "t, 60 items of 3 classes, pairs of" in run(capsys, monkeypatch, *words)[1]


def test_a_run_keeps_what_identification_found(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    split = np.where(np.arange(60) % 20 < 8, "train", np.where(Y == "c", "query", np.tile(["query", "gallery"], 30)))
    np.savez("rows.npz", X=X, y=Y, split=split)
    words = ["--set", "validation=0", "--epochs", "1", "--set", "device=cpu", "--quiet"]
    assert run(capsys, monkeypatch, "train", "rows.npz", "--out", "run", *words)[0] == 0
    code, out, _ = run(capsys, monkeypatch, "evaluate", "run", "--protocol", "identification")
    assert code == 0
    found = json.loads((tmp_path / "run" / "identification.json").read_text())
    assert (found["n_known"], found["n_unknown"], found["n_gallery"]) == (12, 12, 12)
    assert f"{found['rank_1']:.4f}" in out


def test_listed_pairs_are_verified(rows, capsys, monkeypatch, tmp_path):
    pairs = [(0, 1, "1"), (0, 30, "0"), (2, 3, "Yes"), (41, 45, "same"), (41, 7, "-1")]
    with (tmp_path / "pairs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["same", "left", "right"])
        writer.writerows([(same, f"rows[{i}]", f"rows[{j}]") for i, j, same in pairs])
    words = ["evaluate", rows, "--protocol", "verification", "--pairs", tmp_path / "pairs.csv"]
    code, out, _ = run(capsys, monkeypatch, *words)
    assert code == 0
    ij = [pair[:2] for pair in pairs]
    assert str(verify_pairs(X, ij, [True, False, True, True, False])) in out


def test_listed_pairs_name_items_of_the_gallery_too(capsys, monkeypatch, tmp_path):
    names = [f"item{i}" for i in range(60)]
    arrays = {"X": X[20:30], "y": Y[20:30], "names": names[20:30]}
    np.savez(
        tmp_path / "g.npz", **arrays, gallery_X=X[25:50], gallery_y=Y[25:50], gallery_names=[*names[25:49], "item20"]
    )
    ij = [(20, 26), (21, 44), (45, 35), (36, 22), (20, 41)]
    same = [bool(Y[i] == Y[j]) for i, j in ij]
    lines = [f"item{i},item{j},{int(s)}" for (i, j), s in zip(ij, same, strict=True)]
    (tmp_path / "pairs.csv").write_text("\n".join(["left,right,same", *lines]))
    words = ["evaluate", tmp_path / "g.npz", "--protocol", "verification", "--pairs", tmp_path / "pairs.csv"]
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, err) == (0, "")
    about = "g, 10 items of 1 class, searching a gallery of 25 items of 2 classes"
    assert out == f"{about}, pairs of {tmp_path / 'pairs.csv'}.\n\n{verify_pairs(X, ij, same)}\n"


def test_the_pairs_of_lfw(capsys, monkeypatch, tmp_path):
    """Ten folds of pairs.txt, each the pairs of one person and then as many of two."""
    people = {"a": "Ann_Lee", "b": "Bob_Poe", "c": "Cy_Roe"}
    names = [f"lfw/{people[y]}/{people[y]}_{i:04d}.jpg" for i, y in enumerate(Y)]
    np.savez(tmp_path / "faces.npz", X=X, y=Y, names=names)
    first, second = np.flatnonzero(Y == "a"), np.flatnonzero(Y == "b")
    lines, ij = ["2\t3"], []
    for fold in range(2):
        alike, apart = first[3 * fold : 3 * fold + 4], second[3 * fold : 3 * fold + 3]
        ij += [*itertools.pairwise(alike), *zip(alike[:-1], apart, strict=True)]
        lines += [f"Ann_Lee\t{i}\t{j}" for i, j in ij[-6:-3]]
        lines += [f"Ann_Lee\t{i}\tBob_Poe\t{j}" for i, j in ij[-3:]]
    same, folds = [True, True, True, False, False, False] * 2, [0] * 6 + [1] * 6
    words = ["evaluate", tmp_path / "faces.npz", "--protocol", "verification", "--pairs", tmp_path / "pairs.txt"]
    for text, told in (("\n".join(lines), folds), ("\n".join(["6", *lines[1:]]), None), ("\n".join(lines[1:]), None)):
        (tmp_path / "pairs.txt").write_text(text)
        code, out, err = run(capsys, monkeypatch, *words)
        assert (code, err) == (0, "")
        assert out.endswith(f"\n\n{verify_pairs(X, ij, same, folds=told)}\n")
    for line, message in (
        ("Ann_Lee 1 999", "line 14: faces has no 'Ann_Lee/Ann_Lee_0999'; its first item is 'lfw/Ann_Lee/"),
        (
            "Ann_Lee 1",
            "line 14: expected NAME A B or NAME A OTHER B as in LFW, or lines that all are 1 LEFT RIGHT or",
        ),
        ("Ann_Lee 1 x", "line 14: expected NAME A B or NAME A OTHER B"),
        ("Ann_Lee 1 \N{SUPERSCRIPT TWO}", "line 14: expected NAME A B or NAME A OTHER B"),
    ):
        (tmp_path / "pairs.txt").write_text("\n".join([*lines, line]))
        code, _, err = run(capsys, monkeypatch, *words)
        assert (code, err.count("\n")) == (2, 1)
        assert message in err


ANSWERS = {"1": "0", "target": "nontarget", "Genuine": "impostor"}
TRIALS = ["{same} {left} {right}", "{left} {right} {same}", "{left}\t{right}\t{same}", "{same}  {left}   {right}"]


@pytest.mark.parametrize("form", TRIALS)
@pytest.mark.parametrize("yes", ANSWERS)
@pytest.mark.parametrize("name", ["trials", "veri_test.txt"])
def test_trials_of_speakers(form, yes, name, tmp_path):
    told = [("id1/a/1.wav", "id1/b/2.wav", True), ("id1/a/1.wav", "id2/c/3.wav", False)]
    lines = [form.format(left=i, right=j, same=yes if same else ANSWERS[yes]) for i, j, same in told]
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    found = read_pair_list(tmp_path / name)
    assert [(pair.left, pair.right, pair.same) for pair in found.pairs] == told
    assert not found.lfw
    (tmp_path / name).write_text("\n".join([*lines, "id1/a/1.wav id2/c/3.wav"]))
    with pytest.raises(ValueError, match=r"line 3: expected (1 LEFT RIGHT|LEFT RIGHT 1) as in the lines before"):
        read_pair_list(tmp_path / name)


@pytest.mark.parametrize("sign", [",", "\t", ";", "|"])
def test_a_table_of_pairs_may_have_other_signs_between_its_columns(sign, tmp_path):
    rows = [["left", "right", "same"], ["a b", "c", "1"], ["d", "e", "0"]]
    for name in ("pairs.csv", "pairs.tsv", "pairs.txt"):
        (tmp_path / name).write_text("\r\n".join(sign.join(row) for row in rows))
        assert [pair[1:4] for pair in read_pair_list(tmp_path / name).pairs] == [("a b", "c", True), ("d", "e", False)]


@pytest.mark.parametrize("kind", ["npz", "csv", "parquet"])
def test_listed_pairs_need_no_classes(kind, capsys, monkeypatch, tmp_path):
    file = tmp_path / f"rows.{kind}"
    names = [f"item {i}" for i in range(60)]
    if kind == "npz":
        np.savez(file, embeddings=X, names=names)
    elif kind == "csv":
        cells = [[name, *map(repr, row.tolist())] for name, row in zip(names, X, strict=True)]
        file.write_text("\n".join(",".join(row) for row in [["name", *"abcde"], *cells]))
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        pyarrow = pytest.importorskip("pyarrow")
        parquet.write_table(pyarrow.table({"name": names, "embedding": X.tolist()}), file)
    pairs = [(0, 1), (0, 30), (2, 3), (41, 7)]
    lines = [f"item {i},item {j},{int(Y[i] == Y[j])}" for i, j in pairs]
    (tmp_path / "pairs.csv").write_text("\n".join(["left,right,same", *lines]))
    words = ["evaluate", file, "--protocol", "verification", "--pairs", tmp_path / "pairs.csv"]
    code, out, _ = run(capsys, monkeypatch, *words, "--distance", "cosine")
    assert code == 0
    about = f"rows, 60 items, pairs of {tmp_path / 'pairs.csv'}."
    assert out == f"{about}\n\n{verify_pairs(X.astype(np.float32), pairs, [Y[i] == Y[j] for i, j in pairs])}\n"


def test_a_list_of_lfw_with_empty_folds_is_refused(rows, capsys, monkeypatch, tmp_path):
    (tmp_path / "pairs.txt").write_text("10 0\nAnn_Lee 1 2\n")
    words = ["evaluate", rows, "--protocol", "verification", "--pairs", tmp_path / "pairs.txt"]
    code, _, err = run(capsys, monkeypatch, *words)
    assert (code, err.count("\n")) == (2, 1)
    assert "pairs.txt, line 1: expected numbers of folds and of pairs of at least 1, got 0" in err


def test_pairs_without_a_fold_have_no_folds(rows, capsys, monkeypatch, tmp_path):
    lines = [f"rows[0],rows[{j}],{int(Y[0] == Y[j])}," for j in range(1, 60)]
    (tmp_path / "pairs.csv").write_text("\n".join(["left,right,same,fold", *lines]))
    words = ["evaluate", rows, "--protocol", "verification", "--pairs", tmp_path / "pairs.csv"]
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, err) == (0, "")
    assert "folds" not in out


def test_folds_of_listed_pairs_stand_in_a_column(rows, capsys, monkeypatch, tmp_path):
    lines = [f"rows[0],rows[{j}],{int(Y[0] == Y[j])},{'ab'[j % 2]}" for j in range(1, 60)]
    (tmp_path / "pairs.csv").write_text("\n".join(["left,right,same,fold", *lines]))
    words = ["evaluate", rows, "--protocol", "verification", "--pairs", tmp_path / "pairs.csv"]
    assert "accuracy of 2 folds by the best threshold of the others: " in run(capsys, monkeypatch, *words)[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("left,right\nrows[0],rows[1]\n", "expected the columns left, right and same, got left, right"),
        ("left,right,same\nrows[0],rows[99],1\n", "line 2: rows has no 'rows[99]'; its first item is 'rows[0]'"),
        ("left,right,same\nrows[0],rows[1],1\nrows[0],rows[2],maybe\n", "line 3: same: expected 1 or 0, got 'maybe'"),
        ("left,right,same\n\nrows[0],rows[1],1\n\nrows[0],rows[2],maybe\n", "line 5: same: expected 1 or 0"),
        ("left,right,same\nrows[0],rows[1],1\n", "there is no pair of two classes"),
        ("left,right,same\nrows[0],é,1\n".encode("latin-1"), "is not UTF-8; save it as CSV in UTF-8"),
        ("left,right,same\nrows[0],rows[1],1\n".encode("utf-16"), "is not UTF-8; save it as CSV in UTF-8"),
        (f"left,right,same\n{'x' * 140_000},rows[1],1\n", "not a readable CSV file (field larger than"),
        (None, "pairs.csv: no such file"),
    ],
)
def test_bad_lists_of_pairs_are_one_line(text, message, rows, capsys, monkeypatch, tmp_path):
    if text is not None:
        (tmp_path / "pairs.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    words = ["evaluate", rows, "--protocol", "verification", "--pairs", tmp_path / "pairs.csv"]
    code, _, err = run(capsys, monkeypatch, *words)
    assert (code, err.count("\n")) == (2, 1)
    assert message in err


def test_pairs_belong_to_verification(rows, capsys, monkeypatch):
    code, _, err = run(capsys, monkeypatch, "evaluate", rows, "--pairs", "pairs.csv")
    assert (code, err) == (2, "nearfar: --pairs: works only with --protocol verification\n")
    code, _, err = run(capsys, monkeypatch, "evaluate", rows, "--far", "0.1")
    assert (code, err) == (2, "nearfar: --far: works only with --protocol verification or identification\n")


def test_rates_of_false_accepts_are_chosen(rows, capsys, monkeypatch, tmp_path):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("left,right,same\n" + "".join(f"rows[0],rows[{j}],{int(j < 20)}\n" for j in range(1, 60)))
    for words in ([], ["--pairs", pairs]):
        asked = ["evaluate", rows, "--protocol", "verification", "--far", "0.2", "--far", "0.02", *words]
        code, out, _ = run(capsys, monkeypatch, *asked)
        assert code == 0
        assert [line.split()[3] for line in out.splitlines() if line.startswith("TAR")] == ["0.2", "0.02"]
        few = "at FAR 0.02, no pair of two classes may be accepted: 40 are too few to measure such a rate"
        assert out.endswith(f"{few}\n") == bool(words)
    code, _, err = run(capsys, monkeypatch, "evaluate", rows, "--protocol", "verification", "--far", "2")
    assert (code, err) == (2, "nearfar: --far: expected rates between 0 and 1, got 2.0\n")


@pytest.fixture
def index(tmp_path):
    found = nearfar.index.Index(
        [[1.0, 0], [0, 1], [1, 0.01], [0, -1], [0.02, 1], [1, 0]],
        names=["one", "two", "one again", "far", "two again", "copy"],
        labels=["x", "y", "x", "z", "w", "x"],
    )
    found.save(tmp_path / "six.index")
    return tmp_path / "six.index"


def test_duplicates_are_grouped(index, capsys, monkeypatch, tmp_path):
    code, out, _ = run(capsys, monkeypatch, "duplicates", index, "--within", "0.001")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "group 0: 3 items"
    assert [line.split()[1:] for line in lines[1:4]] == [["x", "one"], ["x", "one", "again"], ["x", "copy"]]
    assert lines[4] == "group 1: 2 items of 2 classes"
    assert lines[-2] == "2 groups of 5 items within 0.001; 1 with several classes"
    fit = (
        "of 4 pairs within 0.001, 3 are of one class (precision 0.750); "
        "of 3 pairs of one class, 3 are within it (recall 1.000)"
    )
    assert lines[-1] == fit
    code, out, _ = run(capsys, monkeypatch, "duplicates", index, "--within", "0.001", "-o", tmp_path / "groups.csv")
    assert code == 0
    assert out.splitlines()[-1] == fit
    with (tmp_path / "groups.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["name"] for row in table] == ["one", "one again", "copy", "two", "two again"]
    assert [row["group"] for row in table] == ["0", "0", "0", "1", "1"]
    assert [row["class"] for row in table] == ["x", "x", "x", "y", "w"]
    assert [row["decision"] for row in table] == ["keep", "remove", "remove", "", ""]  # the others differ in class
    assert float(table[0]["distance"]) == 0
    assert float(table[3]["distance"]) == pytest.approx(1 - 1 / np.hypot(1, 0.02), rel=1e-4)


def test_a_table_of_duplicates_has_the_columns_of_the_index(index, capsys, monkeypatch, tmp_path):
    found = nearfar.index.Index.load(index)
    titles = [f"title of {name}" for name in found.names]
    columns = {"title": titles, "price": [1.0, 2.5, 3, 4, 5, 6], "decision": ["maybe"] * 6}
    nearfar.index.Index(found.embeddings, names=found.names, labels=found.labels, columns=columns).save(
        tmp_path / "shop.index"
    )
    table = tmp_path / "groups.csv"
    code, _, err = run(capsys, monkeypatch, "duplicates", tmp_path / "shop.index", "--within", "0.001", "-o", table)
    assert (code, err) == (0, "")
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]] == ["group", "distance", "class", "name", "decision", "title", "price"]
    assert all(row["title"] == f"title of {row['name']}" for row in rows)
    assert [row["price"] for row in rows] == ["1", "3", "6", "2.5", "5"]
    assert [row["decision"] for row in rows] == ["keep", "remove", "remove", "", ""]
    code, out, err = run(
        capsys, monkeypatch, "suspects", tmp_path / "shop.index", "--decided", table, "-o", tmp_path / "kept.npz"
    )
    assert "2 removed" in out, err


def test_the_nearest_pairs_come_first(index, capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "duplicates", index, "-k", "4")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 5
    assert lines[0].split() == ["0", "one", "copy"]
    assert lines[3].split() == ["0.0001999", "*", "two", "two", "again"]


def test_bad_questions_for_duplicates_are_one_line(index, capsys, monkeypatch, tmp_path):
    for words, message in (
        (["-o", tmp_path / "x.csv"], "--within: give a distance, because no pair is so much nearer than others"),
        (["--within", "-1"], "within: expected a distance of at least 0"),
        (["-k", "0"], "k: expected 1"),
    ):
        code, _, err = run(capsys, monkeypatch, "duplicates", index, *words)
        assert (code, err.count("\n")) == (2, 1)
        assert message in err
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize("protocol", ["verification", "identification"])
def test_wrong_options_are_refused_before_anything_is_embedded(rows, capsys, monkeypatch, tmp_path, protocol):
    monkeypatch.setattr("nearfar.workflows.verification.embed_source", lambda *_, **__: pytest.fail("embedded"))
    words = ["evaluate", rows, "--protocol", protocol]
    code, _, err = run(capsys, monkeypatch, *words, "--far", "0.01", "--far", "2")
    assert (code, err) == (2, "nearfar: --far: expected rates between 0 and 1, got 0.01, 2.0\n")
    if protocol == "verification":
        (tmp_path / "pairs.csv").write_text("a,b,same\nx,y,1\n")
        for file, message in (
            ("pairs.csv", "expected the columns left, right and same"),
            ("none.csv", "none.csv: no such file"),
        ):
            code, _, err = run(capsys, monkeypatch, *words, "--pairs", tmp_path / file)
            assert (code, message in err) == (2, True)
