"""Final models: trained on all classes as an evaluated run was, and never scored on them without saying so."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from safetensors.torch import save_file

from nearfar.data import DataError, Dataset, open_dataset, open_task
from nearfar.data.open import open_whole
from nearfar.deep.networks.trunks import make_trunk
from nearfar.io.training_marks import TrainingMarks
from nearfar.report.run import ReportError, report_run
from nearfar.train import DeepMetric, TrainConfig, TrainError, evaluate_run, open_run, train, train_final
from nearfar.train.checkpoint import load_tensors, read_about, save_tensors
from nearfar.train.features import _stamps
from nearfar.train.final import final_config, final_summary
from nearfar.train.rungs.untrained import save_untrained
from nearfar.train.task import with_resolved_folder

from ..commands import run
from ..data.conftest import class_folders, write
from ..test_training_items import SMALL, rows_file


@pytest.fixture
def evaluated(tmp_path):
    rows = rows_file(tmp_path / "rows.npz")
    config = TrainConfig.of(data=str(rows), **{**SMALL, "epochs": 3, "ks": (1, 2)})
    made = train(config, tmp_path / "run", progress=False)
    evaluate_run(made)
    return made


def test_a_final_model_learns_from_all_classes_for_as_long_as_the_best_checkpoint(evaluated, tmp_path):
    final = train_final(evaluated, tmp_path / "final", progress=False)
    assert final.config.final == str(evaluated.folder)
    assert (final.epoch, final.config.epochs) == (evaluated.best_epoch, evaluated.best_epoch)
    about = read_about(open_run(final.folder).best)
    assert (about["num_classes"], about["final"]) == (8, str(evaluated.folder))
    kept = {"epochs", "steps", "patience", "final"}
    own, others = final.config.to_dict(), evaluated.config.to_dict()
    assert {name: own[name] for name in own.keys() - kept} == {name: others[name] for name in own.keys() - kept}
    train(None, final.folder, resume=True, progress=False)  # there is nothing left to do


def test_relative_paths_refer_to_the_folder_in_which_the_run_was_started(evaluated, monkeypatch, tmp_path):
    (tmp_path / "tower").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    objective = "Distill(kind='cosine', teacher='run') + 0.5*Distill(teacher='run')"
    config = TrainConfig.of(data="rows.npz", objective=objective, **{**SMALL, "epochs": 1, "ks": (1, 2)})
    made = train(config, "student", progress=False)
    evaluate_run(made)
    monkeypatch.chdir(tmp_path / "elsewhere")
    final = train_final("../student", "final", progress=False)
    teacher = repr(str(tmp_path / "run"))
    assert final.config.objective == f"Distill(kind='cosine', teacher={teacher}) + 0.5*Distill(teacher={teacher})"
    assert (
        with_resolved_folder("transformers:tower(pool='cls')", tmp_path) == f"transformers:{tmp_path}/tower(pool='cls')"
    )
    for trunk in ("mlp(width=8)", "timm:resnet18", "transformers:owner/name"):
        assert with_resolved_folder(trunk, tmp_path) == trunk


@pytest.mark.parametrize(
    "how",
    [
        {"epochs": 2, "validation": 0.0},
        {"epochs": 2, "schedule": "cosine"},
        {"steps": 5},
        {"steps": 1},
        {"epochs": 20, "schedule": "cosine", "patience": 1},
        {"epochs": 20, "patience": 1},
    ],
    ids=lambda how: " ".join(how),
)
def test_a_final_model_sees_each_item_as_often_as_the_run(how, tmp_path):
    rows = rows_file(tmp_path / "rows.npz", classes=16)
    made = train(TrainConfig.of(data=str(rows), **{**SMALL, **how}), tmp_path / "run", progress=False)
    evaluate_run(made, clustering=False)
    chosen = read_about(open_run(made.folder).checkpoint("last" if how.get("schedule") == "cosine" else "best"))
    passes = chosen["step"] / chosen["steps_per_epoch"]
    final = train_final(made, tmp_path / "final", progress=False)
    of_final = read_about(open_run(final.folder).best)
    assert of_final["steps_per_epoch"] > chosen["steps_per_epoch"]  # there are more items
    assert final.step == max(1, round(passes * of_final["steps_per_epoch"]))
    if "patience" in how:
        assert final.epoch < how["epochs"]
    assert f"{final.step:,} batch" in final_summary(final)


def test_a_final_model_has_no_score_of_its_own(evaluated, capsys, monkeypatch, tmp_path):
    final = tmp_path / "final"
    code, out, err = run(capsys, monkeypatch, "train", "--final", evaluated.folder, "--out", final)
    assert code == 0, err
    assert "a final model, trained on all classes" in out
    assert f"{evaluated.folder} has the same settings: Recall@1" in out
    assert "NOT disjoint" not in err
    for words in (["evaluate", final], ["report", final], ["evaluate", final, "--protocol", "verification"]):
        code, _, err = run(capsys, monkeypatch, *words)
        assert code == 2
        assert "is a final model" in err
        assert str(evaluated.folder) in err
    with pytest.raises(TrainError, match="is a final model"):
        evaluate_run(final)
    with pytest.raises(ReportError, match="is a final model"):
        report_run(final)
    code, out, _ = run(capsys, monkeypatch, "evaluate", final, tmp_path / "rows.npz")
    assert code == 0
    assert "all 48 rows were in the training of final: these are training scores" in out
    fresh = rows_file(tmp_path / "fresh.npz", seed=3)
    assert "final is a final model, which was trained on all" in run(capsys, monkeypatch, "evaluate", final, fresh)[1]
    assert "8 of 8 classes have the names of classes" in run(capsys, monkeypatch, "evaluate", final, fresh)[1]
    code, out, _ = run(capsys, monkeypatch, "train", "--resume", "--out", final)
    assert (code, "a final model" in out) == (0, True)


def test_what_a_final_model_cannot_be_made_of_is_told(evaluated, capsys, monkeypatch, tmp_path):
    code, _, err = run(capsys, monkeypatch, "train", "digits", "--final", evaluated.folder, "--out", tmp_path / "f")
    assert (code, err.startswith("nearfar: DATA: does not work with --final")) == (2, True)
    code, _, err = run(capsys, monkeypatch, "train", "--lr", "1", "--final", evaluated.folder, "--out", tmp_path / "f")
    assert (code, err.startswith("nearfar: --lr: does not work with --final")) == (2, True)
    (evaluated.folder / "scores.json").unlink()
    with pytest.raises(TrainError, match="was not evaluated yet"):
        train_final(evaluated, tmp_path / "f")
    assert not (tmp_path / "f").exists()


def test_a_final_model_learns_from_another_source_of_the_test_too(tmp_path):
    rows_file(tmp_path / "train.npz")
    rows_file(tmp_path / "test.npz", classes=10, seed=1)
    whole = open_whole(tmp_path / "train.npz", test=tmp_path / "test.npz")
    assert whole.test is whole.train
    assert (len(whole.train), len(whole.train.classes)) == (48 + 60, 10)
    first, second = (open_dataset(tmp_path / name) for name in ("train.npz", "test.npz"))
    np.testing.assert_array_equal(whole.train.array, np.concatenate([first.array, second.array]))
    given = [*np.asarray(first.classes)[first.labels], *np.asarray(second.classes)[second.labels]]
    assert [whole.train.classes[label] for label in whole.train.labels] == given
    assert whole.train.subset([50]).read(0).tolist() == second.array[2].tolist()


def test_sets_of_other_sizes_are_joined_and_of_other_kinds_refused():
    images = [np.full((2, size, size), size, dtype=np.uint8) for size in (3, 4)]
    first, second = (Dataset.from_array(str(len(a[0])), a, ["x", "y"]) for a in images)
    joined = first.joined(second).joined(first)
    assert joined.array is None
    assert [joined.read(i).shape[0] for i in range(6)] == [3, 3, 4, 4, 3, 3]
    assert joined.class_counts.tolist() == [3, 3]
    with pytest.raises(DataError, match="cannot be joined"):
        first.joined(Dataset.from_array("rows", np.ones((2, 2), np.float32), ["x", "y"]))


def test_a_learner_is_fitted_on_all_rows(capsys, monkeypatch, tmp_path):
    rows, file = rows_file(tmp_path / "rows.npz"), tmp_path / "rca.safetensors"
    code, out, _ = run(capsys, monkeypatch, "fit", rows, "RCA()", "--final", "-o", file)
    assert code == 0
    assert "48 rows of 8 classes, all for training and none for a test" in out
    assert "Recall@1" not in out
    assert "these are training scores" in run(capsys, monkeypatch, "evaluate", file, rows)[1]
    code, _, err = run(capsys, monkeypatch, "fit", rows, "RCA()", "--final", "--test-class", "1", "-o", tmp_path / "x")
    why = "fits on all of DATA, without a test"
    expected = f"nearfar: --test-class: does not work with --final, which {why}; leave it out\n"
    assert (code, err) == (2, expected)


def test_a_final_model_of_turned_classes_turns_all(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "images.npz", X=rng.integers(0, 256, (32, 8, 8), dtype=np.uint8), y=np.repeat(np.arange(8), 4))
    data = str(tmp_path / "images.npz")
    made = train(TrainConfig.of(data=data, **SMALL, symmetries="rotations"), tmp_path / "run", progress=False)
    evaluate_run(made)
    final = train_final(made, tmp_path / "final", progress=False)
    assert read_about(open_run(final.folder).best)["num_classes"] == 32
    assert len(open_task(data).train) < 32


def test_a_whitening_is_fitted_where_the_run_has_kept_it(tmp_path):
    rows = str(rows_file(tmp_path / "rows.npz"))
    made = train(TrainConfig.of(data=rows, **SMALL, metric="auto"), tmp_path / "run", progress=False)
    evaluate_run(made)
    kept = read_about(open_run(made.folder).best)["metric"]["kept"]
    assert final_config(made).metric == ("whitening" if kept else "none")
    with pytest.raises(TrainError, match='metric="auto" needs validation classes'):
        made.config.replace(metric="auto", final="run")


def test_the_final_model_of_a_frozen_trunk_is_frozen(tmp_path):
    rows = str(rows_file(tmp_path / "rows.npz"))
    config = TrainConfig.of(data=rows, **{**SMALL, "epochs": 7}, metric="whitening", freeze_trunk=True)
    made = save_untrained(config, tmp_path / "run")
    evaluate_run(made)
    final = train_final(made, tmp_path / "final", progress=False)
    about = read_about(open_run(final.folder).best)
    assert (about["step"], about["num_classes"], about["final"]) == (0, 8, str(made.folder))
    marked = TrainingMarks.read(open_run(final.folder).training_items)
    assert (marked.count, marked.final) == (48, True)
    assert TrainingMarks.read(open_run(made.folder).training_items).count < 48


def test_features_of_joined_sources_are_computed_anew_when_a_file_changes(tmp_path):
    folders = [write(tmp_path / name, class_folders()) for name in ("first", "second")]
    task = open_whole(folders[0], test=folders[1])
    before = list(_stamps(replace(task.train, array=None, read=task.train.stored)))
    assert len(before) == len(task.train)
    os.utime(folders[1] / Path(task.train.names[-1]), ns=(1, 1))
    assert list(_stamps(replace(task.train, array=None, read=task.train.stored))) != before


def test_nothing_is_said_of_a_test_where_items_are_given_in_python(capsys):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (16, 8, 8), dtype=np.uint8)
    how = {"trunk": "mlp(width=8, depth=1)", "embedding_dim": 4, "epochs": 1, "batch_size": 8}
    DeepMetric(**how, verbose=True).fit(X, np.repeat(np.arange(4), 4))
    pairs = [[0, 1], [0, 5], [8, 9], [8, 15]]
    DeepMetric("ContrastiveLoss()", **how, verbose=True).fit(X, pairs=pairs, pair_labels=[1, -1, 1, -1])
    assert "NOT disjoint" not in "".join(capsys.readouterr())


def test_a_final_model_of_interpolated_weights_is_the_same_if_it_was_killed_at_its_end(tmp_path, monkeypatch):
    """Weights of a small network serve as pretrained ones; the run is changed to keep weights half of the way."""
    pixels = np.random.default_rng(0).integers(0, 256, (32, 16, 16, 3)).astype(np.uint8)
    np.savez(tmp_path / "images.npz", X=pixels, y=np.arange(32) // 4)
    trunk = make_trunk("conv4", (3, 16, 16))
    save_file(trunk.state_dict(), tmp_path / "weights.safetensors")
    config = TrainConfig.of(
        data=str(tmp_path / "images.npz"),
        trunk="conv4",
        pretrained=str(tmp_path / "weights.safetensors"),
        lr=0.1,
        epochs=1,
        device="cpu",
    )
    config = config.replace(embedding_start="whitening", embedding_dim=4, batch_size=8, keep="trained", ks=(1,))
    made = train(config, tmp_path / "run", progress=False)
    evaluate_run(made, clustering=False)
    folder = open_run(made.folder)
    tensors, about = load_tensors(folder.best)
    save_tensors(folder.best, tensors, {**about, "kept": "interpolated", "kept_title": "half of the way", "share": 0.5})
    final = open_run(train_final(made.folder, tmp_path / "final", progress=False).folder)
    trained = load_tensors(final.trained)[0]
    kept, about = load_tensors(final.best)
    assert (about["kept"], about["share"]) == ("interpolated", 0.5)
    name = next(name for name in kept if name.endswith("0.weight") and "trunk" in name)
    first = dict(trunk.state_dict())[name.partition("trunk.")[2]]
    assert_allclose(kept[name], (first + trained[name]) / 2, atol=1e-6)
    for place in ("interpolate", "add_metric"):  # a kill before the interpolation, and after it
        with monkeypatch.context() as patch:
            patch.setattr(f"nearfar.train.trainer.{place}", broken)
            with pytest.raises(KeyboardInterrupt):
                train_final(made.folder, tmp_path / place, progress=False)
        train(None, tmp_path / place, resume=True, progress=False)
        again, about = load_tensors(tmp_path / place / "best.safetensors")
        assert about["kept"] == "interpolated"
        assert all((again[name] == kept[name]).all() for name in kept)


def broken(*_):
    raise KeyboardInterrupt
