"""Learners fitted from the command line, and few-shot scores by a trained network of pairs."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

import nearfar
import nearfar.evaluation
from nearfar.data import open_dataset, open_task
from nearfar.models import load_learner
from nearfar.train import TrainConfig, embed_run, evaluate_run, train
from nearfar.train.rungs.closed_forms import best_form
from nearfar.workflows.fitting import choice_of, fit, make_learner

from . import forking
from .commands import run

SMALL = "max_iter=3, hidden=0"


@pytest.fixture
def rows(tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 12)
    X = rng.normal(size=(6, 7))[y] + 0.3 * rng.normal(size=(72, 7))
    np.savez(tmp_path / "rows.npz", X=X.astype(np.float32), y=y)
    return tmp_path / "rows.npz"


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        f"Autoencoder(n_components=3, {SMALL})",
        f"DenoisingAutoencoder(n_components=3, noise='masking', {SMALL})",
        f"VariationalAutoencoder(n_components=3, {SMALL})",
        f"MultiModalAutoencoder(n_components=3, view_sizes=(3, 4), pretrain=1, {SMALL})",
    ],
)
def test_autoencoders_are_fitted_scored_and_shown(text, rows, capsys, monkeypatch, tmp_path):
    file, held = tmp_path / "codes.safetensors", ["--test-class", "4", "--test-class", "5"]
    code, out, err = run(capsys, monkeypatch, "fit", rows, text, "--out", file, *held)
    assert (code, err) == (0, "")
    assert "train 48 rows of 4 classes" in out
    code, again, _ = run(capsys, monkeypatch, "evaluate", file, rows, *held)
    assert code == 0
    assert again.strip() in out  # the same scores on the same classes
    arrays = np.load(rows)
    seen = arrays["y"] < 4
    method = load_learner(file)
    expected = method.reconstruction_error(arrays["X"][~seen]).mean()
    assert f"Reconstruction error of these items: {expected:.4g}." in out
    expected = make_learner(text).fit(arrays["X"][seen], arrays["y"][seen]).reconstruction_error(arrays["X"][seen])
    assert f"Reconstruction error of training items: {expected.mean():.4g}." in out
    code, out, _ = run(capsys, monkeypatch, "report", file, rows, "--out", tmp_path / "page.html")
    assert code == 0
    assert "Reconstruction error of these items" in (tmp_path / "page.html").read_text()
    code, _, _ = run(capsys, monkeypatch, "embed", file, rows, "-o", tmp_path / "codes.npz")
    assert code == 0
    assert np.load(tmp_path / "codes.npz")["embeddings"].shape == (72, 3)


def test_any_learner_is_fitted_on_pixels(capsys, monkeypatch, tmp_path):
    file = tmp_path / "rca.safetensors"
    code, out, _ = run(capsys, monkeypatch, "fit", "digits", "RCA(n_components=5)", "-o", file)
    assert code == 0
    assert "Recall@1" in out
    assert "Reconstruction" not in out
    assert load_learner(file).components_.shape == (5, 64)
    code, out, _ = run(capsys, monkeypatch, "fit", "digits", "RCA", "-o", file, "--overwrite", "--quiet")
    assert (code, out) == (0, "")


def test_learners_are_read_from_text():
    learner = make_learner("Kernelized(learner=RCA(n_components=2))")
    assert isinstance(learner, nearfar.Kernelized)
    assert learner.learner.n_components == 2
    assert make_learner("Autoencoder", seed=7).random_state == 7
    assert make_learner("Autoencoder(random_state=3)", seed=7).random_state == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("GMML(t=0.3", "is not a learner such as"),
        ("GML()", "did you mean GMML"),
        ("GMML(0.3)", "GMML takes only keywords, such as t=..., got '0.3'"),
        ("MMC(max_iter='x')", "LEARNER: MMC: max_iter must be an integer; got 'x'"),
        ("GMML(t=0.3, t=0.5)", "LEARNER: .* GMML is given 't' twice"),
        ("GMML(tt=0.3)", "GMML has no setting 'tt'; did you mean t"),
        ("TripletLoss()", "TripletLoss is a loss"),
        ("Kernelized(learner=MLKR())", "MLKR learns from numbers, not from classes"),
        ("GMML(t=open('x'))", "nearfar has no 'open'"),
    ],
)
def test_bad_texts_are_named(text, message, rows, capsys, monkeypatch, tmp_path):
    code, _, err = run(capsys, monkeypatch, "fit", rows, text, "--out", tmp_path / "x.safetensors")
    assert code == 2
    assert err.count("\n") == 1
    with pytest.raises(ValueError, match=message):
        make_learner(text)
    assert not (tmp_path / "x.safetensors").exists()


def test_what_is_learned_from_standardized_columns_takes_them_as_they_are(rows, capsys, monkeypatch, tmp_path):
    X, y = (np.load(rows)[name] for name in "Xy")
    units = np.logspace(-3, 3, 7)
    np.savez(tmp_path / "units.npz", X=X * units + units, y=y)
    out, other = tmp_path / "gmml.safetensors", tmp_path / "other.safetensors"
    code, said, _ = run(capsys, monkeypatch, "fit", tmp_path / "units.npz", "GMML()", "--standardize", "-o", out)
    again = run(capsys, monkeypatch, "fit", rows, "GMML()", "--standardize", "-o", other)[1]
    assert code == 0
    one, two = (text[text.index("Recall@1") : text.index("baseline (raw inputs)")] for text in (said, again))
    assert one == two
    d, e = (load_learner(path).pair_distance([[0, 40]], Z) for path, Z in ((out, X * units), (other, X)))
    np.testing.assert_allclose(d, e, rtol=1e-4)


@pytest.mark.parametrize("options", [[], ["--standardize"]])
def test_a_report_weighs_the_features_of_a_table(options, capsys, monkeypatch, tmp_path):
    """Of columns in units far apart; only `right` tells the classes, and a fit on half of the rows says so, too."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 30)
    right = 3.0 * labels + rng.normal(size=180)
    columns = {"noise": 1000.0 * rng.normal(size=180), "right": right, "other": rng.normal(size=180)}
    lines = [",".join([*columns, "label"])]
    lines += [f"{a},{b},{c},c{y}" for *row, y in zip(*columns.values(), labels, strict=True) for a, b, c in [row]]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    learner = tmp_path / "rca.safetensors"
    code, _, err = run(capsys, monkeypatch, "fit", tmp_path / "table.csv", "RCA()", "-o", learner, *options)
    assert code == 0, err
    drawn = []
    monkeypatch.setattr("nearfar.report.build_report", lambda content, path: drawn.append(content) or path)
    code, _, err = run(
        capsys, monkeypatch, "report", learner, tmp_path / "table.csv", "--all", "-o", tmp_path / "r.html"
    )
    assert code == 0, err
    features = drawn[0].features
    assert list(features.names) == ["noise", "right", "other"]
    assert features.fits == 20
    assert features.weights.sum() == pytest.approx(1)
    assert features.weights[1] > 0.8
    assert features.low[1] > 0.7


@pytest.mark.parametrize("searched", [False, True])
def test_what_standardizing_alone_is_worth_is_told_beside_the_learner(searched, capsys, monkeypatch, tmp_path):
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(8), 20)
    X = rng.normal(size=(8, 3))[y] + rng.normal(size=(160, 3))
    X = (X * [1, 1, 30] + 5).round(4)  # raw rows hear the last column alone
    learned, asked = y < 4, (y >= 4) & (np.arange(160) % 4 == 0)
    split = np.where(learned, "train", np.where(asked, "query", "gallery") if searched else "test")
    lines = ["a,b,c,label,split", *(f"{a},{b},{c},{k},{s}" for (a, b, c), k, s in zip(X, y, split, strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    words = ["fit", tmp_path / "t.csv", "LFDA()", "-o", tmp_path / "x.safetensors"]
    outs = [run(capsys, monkeypatch, *words, *more)[1] for more in (["--standardize"], ["--overwrite"])]
    rows = X.astype(np.float32) / X[learned].std(axis=0)
    told = {"gallery": rows[split == "gallery"], "gallery_labels": y[split == "gallery"]} if searched else {}
    test = split == ("query" if searched else "test")
    alone = nearfar.evaluation.evaluate(rows[test], y[test], **told, distance="euclidean", clustering=False)
    line = f"standardized, without a learner: Recall@1 {alone.recall_at[1]:.4f}, MAP@R {alone.map_at_r:.4f}"
    line += " (euclidean distance)"
    assert all(line in out.splitlines() for out in outs)  # whether or not the learner has standardized columns


def test_a_learner_that_is_worse_than_its_rows_is_remarked_on(capsys, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 10)
    X = rng.normal(size=(12, 2))[y] * 5 + rng.normal(size=(120, 2))
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    words = ["fit", tmp_path / "rows.npz", "LFDA(n_components=1)", "--out", tmp_path / "worse.safetensors"]
    code, out, err = run(capsys, monkeypatch, *words)
    assert code == 0, err
    assert "- Without the learner, the raw inputs give better neighbors (Recall@1 " in out
    words = ["fit", tmp_path / "rows.npz", "GMML(t=0.3)", "--out", tmp_path / "good.safetensors"]
    code, out, err = run(capsys, monkeypatch, *words)
    assert code == 0, err
    assert "Without the learner" not in out


@pytest.mark.parametrize("searched", [False, True])
def test_a_learner_is_compared_with_the_closed_form_that_its_training_rows_choose(
    searched, capsys, monkeypatch, tmp_path
):
    """The columns that differ between classes are the smallest, which only a closed form that scales them can use."""
    rng = np.random.default_rng(0)
    y = np.arange(160) // 8
    X = rng.normal(size=(20, 6))[y] + 0.2 * rng.normal(size=(160, 6))
    X = np.concatenate([X, 30 * rng.normal(size=(160, 6))], axis=1)
    X, y, others = (X[:80], y[:80], (X[80:], y[80:])) if searched else (X, y, None)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    words = ["fit", "rows.npz", "RCA()", "--out", "learner.safetensors"]
    if others is not None:
        np.savez(tmp_path / "others.npz", X=others[0], y=others[1])
        words += ["--test", "others.npz"]
    monkeypatch.chdir(tmp_path)
    _, out, _ = run(capsys, monkeypatch, *words)
    (line,) = [line for line in out.splitlines() if line.startswith("closed form (raw rows, ")]
    task = open_task("rows.npz", test=words[-1] if searched else None, validation=0.0)
    form = best_form(task.train.array, task.train.labels, of_table=True)
    expected = nearfar.evaluation.evaluate(form.map(task.test.array), task.test.labels, clustering=False)
    assert f"Recall@1 {expected.recall_at[1]:.4f}, MAP@R {expected.map_at_r:.4f} (cosine distance)" in line
    _, out, _ = run(capsys, monkeypatch, "fit", "rows.npz", "LFDA(n_components=1)", *words[3:], "--overwrite")
    assert "A closed form (raw rows, " in out
    assert f"`nearfar fit DATA {form.options}`" in out


def test_views_are_standardized_column_by_column(rows, capsys, monkeypatch, tmp_path):
    """A learner that takes views in several forms is linear, too: each column is one of a single view."""
    out = tmp_path / "views.safetensors"
    text = "FISHMML(view_sizes=(3, 4))"
    code, _, said = run(capsys, monkeypatch, "fit", rows, text, "--standardize", "-o", out)
    assert (code, said) == (0, "")
    found = load_learner(out)
    task = open_task(str(rows), validation=0.0)
    scale = task.train.array.std(axis=0, dtype=np.float64)
    direct = nearfar.FISHMML(view_sizes=(3, 4)).fit(task.train.array / scale, task.train.labels)
    np.testing.assert_allclose(np.abs(found.components_ * scale), np.abs(direct.components_), atol=1e-4)
    for v, (L, view) in enumerate(zip(found.view_components_, ((0, 3), (3, 7)), strict=True)):
        np.testing.assert_allclose(L, found.components_[v * len(L) : (v + 1) * len(L), slice(*view)], rtol=1e-6)


@pytest.mark.parametrize("text", ["KernelDCA()", "Kernelized(learner=GMML())", "CDML()", "Autoencoder()", "SPDGMML()"])
def test_only_linear_learners_take_standardized_columns_back(text, rows, capsys, monkeypatch, tmp_path):
    out = tmp_path / "learner.safetensors"
    code, _, said = run(capsys, monkeypatch, "fit", rows, text, "--standardize", "-o", out)
    assert (code, said.count("\n"), out.exists()) == (2, 1, False)
    assert f"--standardize: {text.partition('(')[0]} is not a linear learner" in said


@pytest.fixture
def written(rows, tmp_path):
    """Write rows as a table with its columns in some order, under some names."""
    X, y = (np.load(rows)[name] for name in "Xy")

    def write(name, order, called="abcdefg"):
        table = np.column_stack([X[:, order], y])
        heading = ",".join([*(called[k] for k in order), "label"])
        np.savetxt(tmp_path / name, table, delimiter=",", header=heading, comments="", fmt="%.6g")
        return tmp_path / name

    return write


@pytest.mark.parametrize("text", ["LFDA()", "KernelDCA()", f"Autoencoder(n_components=3, {SMALL})"])
def test_columns_are_taken_by_their_names(text, written, capsys, monkeypatch, tmp_path):
    out = tmp_path / "learner.safetensors"
    first, turned = written("first.csv", range(7)), written("turned.csv", [3, 0, 6, 1, 2, 5, 4])
    run(capsys, monkeypatch, "fit", first, text, "-o", out)
    found = {}
    for path in (first, turned):
        code, _, err = run(capsys, monkeypatch, "embed", out, path, "-o", path.with_suffix(".npz"))
        assert (code, err) == (0, "")
        found[path] = np.load(path.with_suffix(".npz"))["embeddings"]
    np.testing.assert_allclose(found[turned], found[first], rtol=1e-5, atol=1e-6)
    other = written("other.csv", range(7), [*"abcdefz"])
    code, _, err = run(capsys, monkeypatch, "evaluate", out, other)
    assert (code, err.count("\n")) == (2, 1)
    assert "other: lacks 1 column of the training (g)" in err


def test_a_network_takes_columns_by_their_names_too(written, tmp_path):
    first, turned = written("first.csv", range(7)), written("turned.csv", [3, 0, 6, 1, 2, 5, 4])
    other, folder = written("other.csv", range(7), "abcdefz"), tmp_path / "run"
    tested = open_task(first, test=turned).test
    assert (tested.columns, tested.read(0).tolist()) == (tuple("abcdefg"), open_dataset(first).read(0).tolist())
    train(TrainConfig.of(data=first, test=turned, steps=2, batch_size=16), folder, progress=False)
    expected = embed_run(folder, first)
    np.testing.assert_array_equal(embed_run(folder, turned), expected)
    evaluate_run(folder)
    np.testing.assert_array_equal(np.load(folder / "test.npz")["embeddings"], expected)
    lacking = "other: lacks 1 column of the"
    with pytest.raises(ValueError, match=f"{lacking} network of {re.escape(str(folder))} "):
        embed_run(folder, other)
    with pytest.raises(ValueError, match=f"{lacking} training "):
        open_task(first, test=other)


def test_a_learner_is_not_saved_under_the_name_of_rows(rows, capsys, monkeypatch, tmp_path):
    code, _, err = run(capsys, monkeypatch, "fit", rows, "RCA()", "--out", tmp_path / "rca.npz")
    assert (code, err) == (2, f"nearfar: --out: {tmp_path / 'rca.npz'}: expected a file that ends in .safetensors\n")
    assert not (tmp_path / "rca.npz").exists()


def test_what_is_no_learner_has_no_kernel_form(rows, capsys, monkeypatch, tmp_path):
    words = ["fit", rows, "Kernelized(learner=3)", "--out", tmp_path / "x.safetensors"]
    code, _, err = run(capsys, monkeypatch, *words)
    assert (code, err.count("\n")) == (2, 1)
    assert "learner must be a learner of this library, such as RCA(); got 3" in err


def test_codes_have_distances_and_neighbors(rows):
    X = np.load(rows)["X"]
    for learner in (
        nearfar.Autoencoder(3, max_iter=2, random_state=0).fit(X),
        nearfar.MultiModalAutoencoder(3, view_sizes=(3, 4), max_iter=2, pretrain=1, random_state=0).fit(X),
    ):
        Z = learner.transform(X)
        apart = np.linalg.norm(Z[:, None] - Z[None], axis=2)
        np.testing.assert_allclose(learner.pair_distance([[0, 1], [4, 9]], X), apart[[0, 4], [1, 9]], rtol=1e-6)
        np.testing.assert_allclose(
            learner.pair_distance(np.stack([X[:5], X[5:10]], 1)), np.diag(apart[:5, 5:10]), rtol=1e-6
        )
        distances, indices = learner.kneighbors(X, n_neighbors=2)
        np.fill_diagonal(apart, np.inf)
        np.testing.assert_array_equal(indices, apart.argsort(1)[:, :2])
        np.testing.assert_allclose(distances, np.sort(apart, 1)[:, :2], rtol=1e-6)
        assert set(learner.set_threshold(1.0).predict([[0, 1]], X)) <= {1, -1}


@pytest.mark.slow
@pytest.mark.parametrize("network", ["MultiScaleRelationNet(width=4)", "ContinuousSimilarityNet(relations=2)"])
def test_few_shot_by_a_network_of_pairs(network, capsys, monkeypatch, tmp_path):
    small = ["--set", "image_size=16", "--sampler", "m_per_class:4", "--batch-size", "16", "--set", "steps=2"]
    small += ["--set", "validation=0", "--quiet"]
    code, _, err = run(
        capsys, monkeypatch, "train", "digits", "--objective", network, "--out", tmp_path / "run", *small
    )
    assert (code, err) == (0, "")
    few = ["--protocol", "few-shot", "--ways", "4", "--shots", "2", "--queries", "3", "--episodes", "6"]
    code, out, _ = run(capsys, monkeypatch, "evaluate", tmp_path / "run", *few, "--classifier", "scores")
    assert code == 0
    saved = json.loads((tmp_path / "run/few_shot.json").read_text())
    name = network.partition("(")[0]
    assert f"4-way 2-shot accuracy {saved['accuracy']:.4f} ± {saved['interval_95']:.4f} (scores, {name}; 6 epi" in out
    assert 0 < saved["accuracy"] <= 1
    code, _, err = run(capsys, monkeypatch, "evaluate", "digits.npz", *few, "--classifier", "scores")
    assert code == 2


def test_few_classes_are_halved(tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 20)
    X = rng.normal(size=(60, 5)) + 4 * np.eye(3, 5)[np.arange(60) // 20]
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    out = fit(str(tmp_path / "rows.npz"), "RCA()", tmp_path / "rca.safetensors")
    assert "60 rows of 3 classes, too few to hold any out; one half of each class is for learning" in out
    assert "30 queries of 3 classes" in out


@pytest.mark.slow
def test_a_warning_is_one_line_without_a_place_in_the_code(tmp_path):
    """In a process of its own: pytest shows warnings in its own way."""
    rng = np.random.default_rng(0)
    flat = np.c_[rng.normal(size=(60, 3)), np.zeros(60)]
    np.savez(tmp_path / "rows.npz", X=flat, y=np.arange(60) % 6)
    done = forking.run(
        "-m", "nearfar", "fit", tmp_path / "rows.npz", "RCA(shrinkage=0)", "-o", tmp_path / "rca.safetensors"
    )
    assert done.returncode == 0
    told = [line for line in done.stderr.splitlines() if "warning" in line]
    assert told[0].startswith("nearfar: warning: RCA: the within-chunklet covariance is singular")
    assert ".py" not in done.stderr


@pytest.mark.parametrize("classes", [2, 4])
def test_images_that_cannot_be_decoded_are_left_out_where_asked(classes, capsys, monkeypatch, tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for c in range(classes):
        (tmp_path / f"photos/{c}").mkdir(parents=True)
        for i in range(6):
            values = rng.integers(0, 99, (4, 4)) + 40 * c
            image.fromarray(values.astype(np.uint8)).save(tmp_path / f"photos/{c}/{i}.png")
    (tmp_path / "photos/0/bad.png").write_bytes(b"not an image")
    words = ["fit", tmp_path / "photos", "CovarianceMetric()", "-o", tmp_path / "m.safetensors"]
    code, _, err = run(capsys, monkeypatch, *words)
    assert code == 2
    assert "0/bad.png: cannot be decoded" in err
    assert not (tmp_path / "m.safetensors").exists()
    code, out, _ = run(capsys, monkeypatch, *words, "--skip-bad")
    assert code == 0
    assert "1 undecodable image left out" in out


def test_the_queries_of_a_split_search_its_gallery(capsys, monkeypatch, tmp_path):
    rng, y = np.random.default_rng(0), np.arange(48) % 6
    split = np.where(y < 4, "train", np.where(np.arange(48) < 16, "query", "gallery"))
    np.savez(tmp_path / "split.npz", X=rng.normal(size=(48, 4)) + y[:, None], y=y, split=split)
    code, out, _ = run(capsys, monkeypatch, "fit", tmp_path / "split.npz", "RCA", "-o", tmp_path / "rca.safetensors")
    assert code == 0
    assert "4 queries of 2 classes, each searching 12 items (query-gallery, euclidean distance)" in out


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_embeddings_of_a_learner_are_compared_as_the_learner_compares_them(
    distance, rows, capsys, monkeypatch, tmp_path
):
    file, embedded = tmp_path / "rca.safetensors", tmp_path / "rca.npz"
    words = ["fit", rows, "RCA(n_components=2)", "-o", file, "--distance", distance]
    code, out, _ = run(capsys, monkeypatch, *words)
    assert (code, f"Compared by {distance} distance, the one of --distance." in out) == (0, True)
    assert run(capsys, monkeypatch, "embed", file, rows, "-o", embedded)[0] == 0
    scores = [run(capsys, monkeypatch, "evaluate", *source)[1] for source in ((file, rows, "--all"), (embedded,))]
    table = slice(2, 12)
    assert scores[0].splitlines()[table] == scores[1].splitlines()[table]
    assert f"{distance} distance" in scores[1]
    for number, source in enumerate([(embedded,), (file, rows)]):
        code, out, _ = run(capsys, monkeypatch, "index", *source, "-o", tmp_path / f"rca{number}.index")
        assert (code, distance in out) == (0, True)


def test_rows_are_compared_before_the_learner_by_the_distance_that_suits_them(capsys, monkeypatch, tmp_path):
    """Directions tell the classes; the lengths of rows are noise, as in embeddings of texts."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 15)
    X = (rng.normal(size=(12, 8))[y] + 0.6 * rng.normal(size=(180, 8))) * rng.uniform(0.2, 5, size=(180, 1))
    np.savez(tmp_path / "texts.npz", embeddings=X, labels=y)
    np.savez(tmp_path / "unit.npz", embeddings=X / np.linalg.norm(X, axis=1, keepdims=True), labels=y)
    columns = [f"column{k}" for k in range(8)]
    lines = [",".join([*columns, "label"]), *(",".join(map(str, [*row, f"c{k}"])) for row, k in zip(X, y, strict=True))]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "learner.safetensors"

    def fit(data, learner, *words):
        code, said, err = run(capsys, monkeypatch, "fit", tmp_path / data, learner, "-o", out, "--overwrite", *words)
        assert (code, err) == (0, "")
        (before,) = [line for line in said.splitlines() if line.startswith("baseline (raw inputs)")]
        return said, before

    said, before = fit("texts.npz", "GMML(t=0.3)")
    assert "Compared by cosine distance, as the training rows before the learner." in said
    assert before.endswith("(cosine distance)")
    pair = ["--test-class", 3, "--test-class", 4]
    plain = run(capsys, monkeypatch, "evaluate", tmp_path / "texts.npz", *pair)[1]
    learned = run(capsys, monkeypatch, "evaluate", out, tmp_path / "texts.npz", "--all", *pair)[1]
    assert f"MAP@R {plain.split('MAP@R')[1].split()[0]} (cosine distance)" in learned
    assert "cosine distance)" in run(capsys, monkeypatch, "evaluate", out, tmp_path / "texts.npz", "--all")[1]
    said, before = fit("texts.npz", "GMML(t=0.3)", "--distance", "euclidean")
    assert "leave-one-out, euclidean distance" in said
    assert before.endswith("(cosine distance)")  # its own best
    said, before = fit("table.csv", "GMML(t=0.3)")
    assert "leave-one-out, euclidean distance" in said
    assert before.endswith("(euclidean distance)")
    said, before = fit("table.csv", "DiscriminantWhitening()")
    assert "Compared by cosine distance, for which DiscriminantWhitening is made." in said
    assert before.endswith("(euclidean distance)")


@pytest.mark.parametrize("protocol", ["retrieval", "subsets", "verification", "few-shot"])
def test_every_protocol_states_its_distance_and_takes_another(protocol, capsys, monkeypatch, tmp_path):
    y = np.repeat(np.arange(5), 24)
    np.savez(tmp_path / "rows.npz", X=np.random.default_rng(0).normal(size=(120, 4)), y=y)
    words = ["evaluate", tmp_path / "rows.npz", "--protocol", protocol]
    if protocol == "few-shot":
        words += ["--queries", 5, "--episodes", 10]
    for distance in ("cosine", "euclidean"):
        code, out, err = run(capsys, monkeypatch, *words, "--distance", distance)
        assert (code, err) == (0, "")
        assert distance in out
    assert "cosine" in run(capsys, monkeypatch, *words)[1]
    code, out, _ = run(capsys, monkeypatch, *words, "--json", "-o", tmp_path / "scores.json")
    assert code == 0
    found = json.loads(out)
    assert found == json.loads((tmp_path / "scores.json").read_text())
    assert found["scores"]["distance"] == "cosine"
    assert found["protocol"].startswith("rows")
    assert not {"NaN", "Infinity"} & set(re.findall(r"\w+", out))
    code, _, err = run(capsys, monkeypatch, *words, "-o", tmp_path / "scores.csv")
    assert (code, "--out: " in err, "expected a file that ends in .json" in err) == (2, True, True)


@pytest.mark.slow
def test_tests_without_partners_say_why_there_is_no_score(rows, capsys, monkeypatch, tmp_path):
    rng = np.random.default_rng(1)
    test = tmp_path / "alone.npz"
    np.savez(test, X=rng.normal(size=(9, 7)).astype(np.float32), y=np.arange(9) + 10)
    file, folder = tmp_path / "rca.safetensors", tmp_path / "run"
    calls = [
        ("fit", rows, "RCA()", "--test", test, "--out", file, "--standardize"),
        ("evaluate", file, test),
        ("train", rows, "--test", test, "--objective", "TripletLoss()", "--epochs", 1, "--batch-size", 8, "-o", folder),
    ]
    for call in calls:
        code, out, _ = run(capsys, monkeypatch, *call)
        assert code == 0
        assert out.count("There is no retrieval score: none of the 9 queries has another item of its class") == 1
        assert "nan" not in out
    assert evaluate_run(folder).remarks[0].startswith("There is no retrieval score")
    for place in ((folder,), (file, test)):
        assert run(capsys, monkeypatch, "report", *place, "--out", tmp_path / "page.html")[0] == 0
        assert "There is no retrieval score: none of the 9 queries" in (tmp_path / "page.html").read_text()


def test_images_of_several_sizes_are_for_a_network(tmp_path, capsys, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    for number in range(8):
        folder = tmp_path / "mixed" / f"class {number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        image.new("L", (20 + number, 30)).save(folder / f"{number}.png")
    code, _, err = run(capsys, monkeypatch, "fit", tmp_path / "mixed", "RCA()", "-o", tmp_path / "x.safetensors")
    assert code == 2
    assert re.search(r"expected images of one size, .* got 2\d x 30 and 2\d x 30 pixels; .* \(`nearfar train`\)", err)


@pytest.mark.parametrize("mixed", [False, True])
def test_row_numbers_copies_and_columns_that_are_not_used_are_told(mixed, tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal():.3f},{'red' if k % 3 else 'blue'},{k % 2}" for k in range(20)] * 2  # every row twice
    kept = rows if mixed else [f"{row.partition(',')[0]},{k % 2},{row[-1]}" for k, row in enumerate(rows)]
    lines = [f"{k},{row}" for k, row in enumerate(kept)]
    (tmp_path / "rows.csv").write_text("\n".join(["rownames,size,color,label", *lines]))
    code, out, _ = run(capsys, monkeypatch, "fit", tmp_path / "rows.csv", "GMML()", "--out", tmp_path / "a.safetensors")
    assert code == 0
    assert "- The column 'rownames' seems to number the rows, but is used as a feature" in out
    assert "also in training" not in out
    copies = ["size,color,label", *kept]
    (tmp_path / "rows.csv").write_text("\n".join(copies))
    code, out, _ = run(capsys, monkeypatch, "fit", tmp_path / "rows.csv", "GMML()", "--out", tmp_path / "b.safetensors")
    assert code == 0
    assert re.search(r"- \d+ test rows are also in training: scores will be too high\.", out)
    assert "seems to number" not in out
    lists = [f'{row[:-2]},"[{rng.normal():.3f},{k}]",{row[-1]}' for k, row in enumerate(kept)]
    (tmp_path / "rows.csv").write_text("\n".join(["size,color,code,label", *lists]))
    code, out, _ = run(capsys, monkeypatch, "fit", tmp_path / "rows.csv", "GMML()", "--out", tmp_path / "c.safetensors")
    assert code == 0
    assert "columns not used: size, color" in out


def test_it_is_told_why_the_choice_is_not_the_largest_score():
    def told(scores):
        about = {"chosen_": "Euclidean", "chosen_by_": "MAP@R on held-out classes", "fold_scores_": scores}
        return choice_of(SimpleNamespace(hold_out="classes", **about))

    assert told({"Euclidean": [0.5]}).endswith("classes: Euclidean 0.500.")
    better = told({"Euclidean": [0.5, 0.5], "LFDA": [0.4, 0.7]})
    assert better.endswith("LFDA 0.550, Euclidean 0.500 (not better by more than one standard error).")
    assert told({"Euclidean": []}).endswith(" chose Euclidean, as no part of the rows could be held out for a score.")
