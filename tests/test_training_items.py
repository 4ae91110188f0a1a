"""Models know what they have learned from, and scores leave it out."""

import shutil

import numpy as np
import pytest

pytest.importorskip("torch")

import nearfar
from nearfar.data import Dataset, open_dataset, open_task
from nearfar.data.checks.training_items import among, known_classes, mark_items, marks_of
from nearfar.io import tensor_file, training_marks
from nearfar.io.training_marks import TrainingMarks, mark_rows
from nearfar.train import DeepMetric, TrainConfig, Watcher, train

from .commands import run
from .data.conftest import class_folders, write, zipped

SMALL = {
    "trunk": "mlp(width=8, depth=1)",
    "embedding_dim": 4,
    "epochs": 1,
    "batch_size": 16,
    "device": "cpu",
    "keep": "trained",
}


def rows_file(path, classes=8, each=6, d=5, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), each)
    X = rng.normal(size=(classes, d))[y] * 3 + rng.normal(size=(len(y), d))
    np.savez(path, X=X.astype(np.float32), y=y)
    return path


@pytest.fixture
def fitted(tmp_path, capsys, monkeypatch):
    """A file of 48 rows, and a learner that was fitted on the half of its classes."""
    rows = rows_file(tmp_path / "rows.npz")
    assert run(capsys, monkeypatch, "fit", rows, "RCA()", "-o", tmp_path / "rca.safetensors")[0] == 0
    return rows, tmp_path / "rca.safetensors"


def recall(out):
    return next(line.split()[1] for line in out.splitlines() if line.startswith("Recall@1"))


def test_a_learner_is_scored_on_the_rows_that_it_has_not_seen(fitted, capsys, monkeypatch, tmp_path):
    rows, learner = fitted
    code, out, err = run(capsys, monkeypatch, "evaluate", learner, rows)
    assert (code, err) == (0, "")
    assert "24 of 48 rows were in the training of rca.safetensors, and are left out; --all scores them, too." in out
    assert out.startswith("rows, 24 items of 4 classes;")
    fit_again = run(capsys, monkeypatch, "fit", rows, "RCA()", "-o", tmp_path / "again.safetensors")[1]
    assert recall(out) == recall(fit_again)  # the score that its fit told
    _, both, _ = run(capsys, monkeypatch, "evaluate", learner, rows, "--all")
    assert both.startswith("rows, 48 items of 8 classes;")
    assert "24 of 48 rows were in the training of rca.safetensors, and are scored, too: in part, these are" in both


@pytest.mark.slow
def test_a_score_on_training_items_alone_is_marked(fitted, capsys, monkeypatch, tmp_path):
    rows, learner = fitted
    task = open_task(rows, validation=0.0)
    np.savez(tmp_path / "seen.npz", X=task.train.array, y=task.train.labels)
    code, out, _ = run(capsys, monkeypatch, "evaluate", learner, tmp_path / "seen.npz")
    assert code == 0
    assert "all 24 rows were in the training of rca.safetensors: these are training scores" in out
    page = tmp_path / "page.html"
    assert run(capsys, monkeypatch, "report", learner, tmp_path / "seen.npz", "-o", page)[0] == 0
    assert "All 24 rows were in the training of rca.safetensors" in page.read_text()
    _, out, _ = run(capsys, monkeypatch, "evaluate", learner, tmp_path / "seen.npz", "--protocol", "verification")
    assert "these are training scores" in out
    few = ("--protocol", "few-shot", "--ways", "2", "--queries", "2", "--episodes", "5")
    assert "these are training scores" in run(capsys, monkeypatch, "evaluate", learner, tmp_path / "seen.npz", *few)[1]


@pytest.mark.slow
def test_the_page_of_a_learner_shows_rows_that_it_has_not_seen(fitted, capsys, monkeypatch, tmp_path):
    rows, learner = fitted
    page = tmp_path / "page.html"
    assert run(capsys, monkeypatch, "report", learner, rows, "-o", page)[0] == 0
    text = page.read_text()
    assert "24 of 48 rows were in the training of rca.safetensors, and are left out" in text
    assert "training scores" not in text


@pytest.mark.slow
def test_models_that_are_compared_leave_out_what_one_of_them_has_seen(fitted, capsys, monkeypatch, tmp_path):
    rows, learner = fitted
    other = tmp_path / "other.safetensors"
    held = [word for name in "4567" for word in ("--test-class", name)]
    assert run(capsys, monkeypatch, "fit", rows, "RCA()", "-o", other, *held)[0] == 0
    seen = [among(nearfar.load(model).trained_on, open_dataset(rows)) for model in (learner, other)]
    left = int((~(seen[0] | seen[1])).sum())
    page = tmp_path / "page.html"
    assert run(capsys, monkeypatch, "report", learner, rows, "--against", other, "-o", page)[0] == 0
    assert f"rows, {left} items" in page.read_text()


def test_listed_pairs_may_be_of_training_items(fitted, capsys, monkeypatch, tmp_path):
    rows, learner = fitted
    (tmp_path / "pairs.csv").write_text("left,right,same\nrows[0],rows[1],1\nrows[0],rows[40],0\n")
    words = ("evaluate", learner, rows, "--protocol", "verification", "--pairs", tmp_path / "pairs.csv")
    code, out, _ = run(capsys, monkeypatch, *words)
    assert code == 0
    assert "24 of 48 rows were in the training of rca.safetensors, and are scored, too" in out


def test_models_of_before_say_that_they_do_not_know(capsys, monkeypatch, tmp_path):
    rows = rows_file(tmp_path / "rows.npz")
    items = open_dataset(rows)
    nearfar.RCA().fit(items.array, items.labels).save(tmp_path / "old.safetensors")
    arrays, text = tensor_file.read(tmp_path / "old.safetensors")
    own = {name: array for name, array in arrays.items() if not name.startswith("training/")}
    tensor_file.write(tmp_path / "old.safetensors", own, {name: text[name] for name in text if name != "training"})
    code, out, _ = run(capsys, monkeypatch, "evaluate", tmp_path / "old.safetensors", rows)
    assert code == 0
    assert "old.safetensors has no list of its training items; some of these items may be among them" in out


def test_a_run_is_scored_on_other_data_without_its_training_items(capsys, monkeypatch, tmp_path):
    rows = rows_file(tmp_path / "rows.npz")
    config = TrainConfig.of(data=str(rows), **SMALL)
    folder = train(config, tmp_path / "run", progress=False).folder
    task = open_task(rows)
    learned = len(task.train) + len(task.validation)
    code, out, _ = run(capsys, monkeypatch, "evaluate", folder, rows)
    assert code == 0
    assert f"{learned} of 48 rows were in the training of run, and are left out; --all scores them, too." in out
    assert "have names of classes" not in out
    fresh = rows_file(tmp_path / "fresh.npz", seed=1)
    _, out, _ = run(capsys, monkeypatch, "evaluate", folder, fresh)
    assert "rows were in the training" not in out
    known = len(task.train.classes) + len(task.validation.classes)
    assert f"{known} of 8 classes have the names of classes in the training of run: not zero-shot" in out
    code, _, err = run(capsys, monkeypatch, "evaluate", folder, "--all")
    assert (code, err[:15]) == (2, "nearfar: --all:")


def test_images_are_known_by_their_files_whatever_their_size_or_archive(tmp_path):
    files = class_folders(6, 4)
    folder = write(tmp_path / "set", files)
    packed = zipped(tmp_path / "other.zip", files)
    plain = mark_items(open_dataset(folder))
    assert len(set(plain.tolist())) == len(plain)
    np.testing.assert_array_equal(mark_items(open_dataset(folder, image_size=7)), plain)
    np.testing.assert_array_equal(mark_items(open_dataset(packed)), plain)
    np.testing.assert_array_equal(mark_items(open_dataset(folder).subset([3, 1]).subset([1, 0])), plain[[1, 3]])


@pytest.mark.parametrize("how", [{"image_size": 16}, {"symmetries": "rotations"}, {}])
def test_training_items_in_memory_are_known_whatever_the_training_made_of_them(how, tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (32, 12, 12), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", X=images, y=np.repeat(np.arange(8), 4))
    folder = train(TrainConfig.of(data=str(tmp_path / "images.npz"), **SMALL, **how), tmp_path / "run", progress=False)
    seen = among(nearfar.load(folder.folder).trained_on, open_dataset(tmp_path / "images.npz"))
    task = open_task(tmp_path / "images.npz")
    expected = np.isin(task.train.array, images).any() and {*task.train.names, *task.validation.names}
    assert {f"images[{i}]" for i in np.flatnonzero(seen)} == expected


class AtFirstStep(Watcher):
    """Calls a function after the first batch."""

    def __init__(self, look):
        self.look = look

    def on_step(self, step, epoch, record):
        if step == 1:
            self.look()

    def on_epoch(self, row):
        pass

    def close(self):
        pass


def test_the_first_batch_does_not_wait_until_all_training_items_are_read(tmp_path):
    config = TrainConfig.of(data=str(rows_file(tmp_path / "rows.npz")), **SMALL)
    marked = tmp_path / "run" / "training-items.safetensors"
    there = []
    train(config, tmp_path / "run", progress=False, watchers=[AtFirstStep(lambda: there.append(marked.exists()))])
    assert there == [False]
    assert marked.exists()


def test_a_run_that_begins_anew_forgets_the_items_of_one_that_was_killed(tmp_path):
    rows = rows_file(tmp_path / "rows.npz")
    config = TrainConfig.of(data=str(rows), **SMALL)
    run = train(config, tmp_path / "first", progress=False).folder
    expected = TrainingMarks.read(run / "training-items.safetensors").items
    killed = tmp_path / "killed"
    killed.mkdir()
    shutil.copy(run / "config.json", killed)
    marks_of(open_dataset(rows_file(tmp_path / "other.npz", seed=1))).write(killed / "training-items.safetensors")
    train(config, killed, resume=True, progress=False)
    np.testing.assert_array_equal(TrainingMarks.read(killed / "training-items.safetensors").items, expected)


def test_rows_are_known_by_their_numbers_in_any_order_of_columns():
    rows = np.array([[0.0, 1], [2, 3], [4, 5]], dtype=np.float32)
    told = Dataset.from_array("a", rows[:2], ["x", "y"], columns=("u", "v"))
    asked = Dataset.from_array("b", np.array([[5, 4], [1, -0.0]], np.float32), ["y", "z"], columns=("v", "u"))
    marked = marks_of(told)
    assert among(marked, asked).tolist() == [False, True]
    assert known_classes(marked, asked) == 1


def test_very_many_items_are_counted_only(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(training_marks, "MOST", 10)
    rows = rows_file(tmp_path / "rows.npz")
    learner = tmp_path / "rca.safetensors"
    assert run(capsys, monkeypatch, "fit", rows, "RCA()", "-o", learner)[0] == 0
    marked = nearfar.load(learner).trained_on
    assert (len(marked.items), marked.count, marked.complete) == (0, 24, False)
    assert (
        "has no list of its training items, because they were more than"
        in run(capsys, monkeypatch, "evaluate", learner, rows)[1]
    )


def test_a_damaged_list_is_told(fitted, capsys, monkeypatch):
    rows, learner = fitted
    arrays, text = tensor_file.read(learner)
    tensor_file.write(learner, arrays, text | {"training": "[]"})
    code, _, err = run(capsys, monkeypatch, "evaluate", learner, rows)
    assert (code, err) == (2, f"nearfar: {learner}: the list of its training items is damaged\n")


def test_an_estimator_keeps_its_training_items(tmp_path):
    items = open_dataset(rows_file(tmp_path / "rows.npz"))
    metric = DeepMetric(trunk="mlp(width=8, depth=1)", epochs=1, random_state=0, settings={"device": "cpu"})
    metric.fit(items.array[:30], items.labels[:30]).save(tmp_path / "run")
    DeepMetric.load(tmp_path / "run").save(tmp_path / "again")
    for folder in ("run", "again"):
        assert among(nearfar.load(tmp_path / folder).trained_on, items).tolist() == [True] * 30 + [False] * 18


def test_a_learner_that_was_fitted_in_python_keeps_its_training_items(capsys, monkeypatch, tmp_path):
    rows = rows_file(tmp_path / "rows.npz")
    items = open_dataset(rows)
    learner = nearfar.RCA().fit(items.array[:30].astype(np.float64), items.labels[:30])
    learner.save(tmp_path / "rca.safetensors")
    nearfar.RCA.load(tmp_path / "rca.safetensors").save(tmp_path / "again.safetensors")
    for name in ("rca", "again"):
        marked = nearfar.load(tmp_path / f"{name}.safetensors").trained_on
        assert among(marked, items).tolist() == [True] * 30 + [False] * 18
        assert (marked.count, known_classes(marked, items)) == (30, 5)
    _, out, _ = run(capsys, monkeypatch, "evaluate", tmp_path / "rca.safetensors", rows)
    assert "30 of 48 rows were in the training of rca.safetensors, and are left out" in out


def test_a_stream_keeps_the_items_of_all_its_steps(tmp_path):
    items = open_dataset(rows_file(tmp_path / "rows.npz"))
    learner = nearfar.NCA(random_state=0)
    for part in (slice(0, 12), slice(12, 30)):
        learner.partial_fit(items.array[part], items.labels[part])
    learner.save(tmp_path / "nca.safetensors")
    marked = nearfar.load(tmp_path / "nca.safetensors").trained_on
    assert (among(marked, items).sum(), marked.count, known_classes(marked, items)) == (30, 30, 5)
    learner.fit(items.array[:12], items.labels[:12]).save(tmp_path / "nca.safetensors")
    assert nearfar.load(tmp_path / "nca.safetensors").trained_on.count == 12


def test_modalities_are_known_side_by_side(tmp_path):
    items = open_dataset(rows_file(tmp_path / "rows.npz"))
    views = [items.array[:30, :2], items.array[:30, 2:]]
    nearfar.FISHMML().fit(views, items.labels[:30]).save(tmp_path / "a")
    nearfar.MultiModalAutoencoder(2, max_iter=1, random_state=0).fit(views).save(tmp_path / "b")
    for name in "ab":
        assert among(nearfar.load(tmp_path / name).trained_on, items).tolist() == [True] * 30 + [False] * 18


@pytest.mark.parametrize("d", [1, 2, 5])
def test_marks_of_rows_differ_where_a_number_does(d):
    numbers = np.float32([0, 1, -1, 2, 0.5, 1e-30, 1e30, 3, 4, 256])
    grid = np.stack(np.meshgrid(*[numbers] * min(d, 4)), axis=-1).reshape(-1, min(d, 4))
    rows = np.pad(grid, ((0, 0), (0, d - grid.shape[1])))
    marks = mark_rows(rows)
    assert len(np.unique(marks)) == len(rows)
    np.testing.assert_array_equal(mark_rows(rows[::-1])[::-1], marks)
    np.testing.assert_array_equal(mark_rows(rows[3:4].astype(np.float64)), marks[3:4])
    assert not np.isin(mark_rows(np.pad(rows, ((0, 0), (0, 1)))), marks).any()  # another width


def test_marks_of_rows_are_those_of_the_formula(monkeypatch):
    monkeypatch.setattr(training_marks, "NUMBERS_AT_ONCE", 12)  # three rows at a time
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(7, 3)).astype(np.float32)

    def mixed(value):
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % 2**64
        return value ^ (value >> 31)

    for row, mark in zip(rows, mark_rows(rows), strict=True):
        total = 3
        for j, (low, high) in enumerate([(row[0], row[1]), (row[2], np.float32(0))]):
            word = int(low.view(np.uint32)) + (int(high.view(np.uint32)) << 32)
            factor = mixed(j * training_marks.ODD % 2**64) | 1
            word = (word + j) * factor % 2**64
            total += (word ^ (word >> 32)) * factor
        assert int(np.int64(mark).view(np.uint64)) == mixed(total % 2**64)


def test_classes_of_a_learner_in_another_spelling_are_named(tmp_path, capsys, monkeypatch):
    for name, classes in {"train": ("Cat", "owl"), "test": ("cat", "Dog")}.items():
        rows = [f"{i % 7},{i % 5 + len(name)},{label}" for i, label in enumerate(classes * 6)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,label", *rows]))
    learner = tmp_path / "rca.safetensors"
    out = run(capsys, monkeypatch, "fit", tmp_path / "train.csv", "RCA()", "--final", "-o", learner)[2]
    assert out == ""
    _, out, _ = run(capsys, monkeypatch, "evaluate", learner, tmp_path / "test.csv")
    assert "1 of 2 classes are spelled almost like classes in the training of rca.safetensors (cat)" in out
