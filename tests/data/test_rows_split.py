"""Data whose classes are fixed: items of every class are held out, not classes."""

import re
from dataclasses import replace

import numpy as np
import pytest

from nearfar.cli.inspecting import report_text, sizes
from nearfar.data import DataError, inspect_data, open_task
from nearfar.data.dataset import held_out_pairs, held_out_rows
from nearfar.train import TrainConfig, evaluate_run, train
from nearfar.train.task import protocol_note

from ..commands import run

SMALL = {"trunk": "mlp(width=8, depth=1)", "embedding_dim": 4, "epochs": 1, "batch_size": 16, "device": "cpu"}


@pytest.fixture
def source(tmp_path):
    """Rows of classes of 1, 2, 3, 8 and 20 items, all different."""
    y = np.repeat(list("abcde"), [1, 2, 3, 8, 20])
    X = np.random.default_rng(0).normal(size=(len(y), 3)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    return str(tmp_path / "rows.npz")


def counts(part):
    return dict(zip(part.classes, part.class_counts.tolist(), strict=True))


def test_half_of_every_class_is_held_out(source):
    task = open_task(source, split="rows", validation=0.3, seed=4)
    assert counts(task.test) == {"b": 1, "c": 1, "d": 4, "e": 10}
    assert counts(task.validation) == {"e": 3}  # of fewer than two, none would be found by another
    assert counts(task.train) == {"a": 1, "b": 1, "c": 2, "d": 4, "e": 7}
    rows = [row.tobytes() for part in (task.train, task.validation, task.test) for row in part.array]
    assert len(set(rows)) == 34
    assert (
        "closed set: the classes of the test are those of the training, one half of the rows of each" in task.protocol
    )
    assert "with seed 4" in task.protocol
    assert "NOT zero-shot" not in task.protocol
    again = open_task(source, split="rows", validation=0.3, seed=4)
    assert again.test.names == task.test.names
    assert len({open_task(source, split="rows", seed=s).test.names for s in range(4)}) == 4
    assert open_task(source, split="rows", validation=0.0).validation is None


@pytest.mark.parametrize("share", [0.0, 0.15, 0.5, 0.9])
@pytest.mark.parametrize("least", [1, 2])
def test_the_share_of_every_class_is_that_of_a_loop(share, least):
    labels = np.random.default_rng(1).integers(0, 7, 60)
    held = held_out_rows(labels, share, seed=2, least=least)
    for label in np.unique(labels):
        m = int((labels == label).sum())
        drawn = int(np.floor(share * m + 1e-9))
        if min(drawn, m - drawn) < least:
            drawn = 0
        assert held[labels == label].sum() == drawn
    with pytest.raises(DataError, match="seed: expected"):
        held_out_rows(labels, share, seed=-1)


@pytest.mark.parametrize("share", [0.0, 0.15, 0.4])
def test_pairs_of_small_classes_are_held_out(share):
    labels = np.repeat(np.arange(12), [1, 3, *[4] * 9, 30])
    held = held_out_pairs(labels, share, seed=5)
    drawn = np.bincount(labels[held], minlength=12)
    assert set(drawn[2:11]) <= {0, 2}
    assert drawn[:2].sum() == drawn[11] == 0
    assert drawn.sum() == 2 * int(share * 36 / 2 + 1e-9)
    assert np.array_equal(held, held_out_pairs(labels, share, seed=5))
    if share:
        assert not np.array_equal(held, held_out_pairs(labels, share, seed=6))


def test_classes_of_ten_items_give_validation_items_and_smaller_ones_say_why_not(tmp_path):
    for items in (6, 10):
        y = np.repeat(np.arange(20), items)
        X = np.random.default_rng(0).normal(size=(len(y), 3)).astype(np.float32)
        np.savez(tmp_path / f"{items}.npz", X=X, y=y)
    task = open_task(tmp_path / "10.npz", split="rows")
    assert len(task.validation) == 14  # 0.15 * 100 training rows, in pairs
    assert set(task.validation.class_counts.tolist()) <= {0, 2}
    assert task.train.class_counts.min() == 3
    assert "validation rows drawn from the training in the same way" in task.protocol
    task = open_task(tmp_path / "6.npz", split="rows")
    assert task.validation is None
    assert "; no validation rows, because the classes have too few rows" in task.protocol
    assert "no validation" not in open_task(tmp_path / "6.npz", split="rows", validation=0.0).protocol


def test_a_split_that_is_told_is_not_drawn(source, tmp_path):
    with pytest.raises(
        DataError, match=r'split="rows" holds out items of every class, but `test` gives other test items'
    ):
        open_task(source, split="rows", test=source)
    with pytest.raises(DataError, match="but `test_classes` gives the test classes"):
        open_task(source, split="rows", test_classes=["a"])
    np.savez(tmp_path / "told.npz", X=np.ones((4, 2), np.float32), y=list("abab"), split=["train"] * 2 + ["test"] * 2)
    with pytest.raises(DataError, match="but told is already split"):
        open_task(tmp_path / "told.npz", split="rows")
    np.savez(tmp_path / "alone.npz", X=np.ones((3, 2), np.float32), y=list("abc"))
    with pytest.raises(DataError, match="alone: every class has only one item"):
        open_task(tmp_path / "alone.npz", split="rows")
    with pytest.raises(DataError, match=r"validation must be a share in \[0, 1\), got 1"):
        open_task(source, split="rows", validation=1.0)


def test_it_is_recommended_where_classes_are_few(source, tmp_path, capsys, monkeypatch):
    found = inspect_data(source)
    assert any(
        "`--split rows`, which holds out rows of every class instead of classes" in remark for remark in found.remarks
    )
    closed = inspect_data(source, split="rows")
    assert not any("--split" in remark or "classes, so" in remark for remark in closed.remarks)
    assert not any("are in training or validation and in the test" in remark for remark in closed.remarks)
    np.savez(tmp_path / "two.npz", X=np.eye(8, dtype=np.float32), y=list("ab") * 4)
    found = inspect_data(tmp_path / "two.npz")
    assert any("every class, pass split='rows'" in remark for remark in found.remarks)
    assert "every class, pass --split rows" in report_text(found)  # on the command line
    code, out, _ = run(capsys, monkeypatch, "inspect", source, "--split", "rows")
    assert (code, "closed set" in out) == (0, True)


@pytest.mark.parametrize(
    ("kind", "size", "said"),
    [("text", (30,), "30 char"), ("sound", (8000,), "0.5 sec"), ("image", (9, 8, 3), "8 x 9 pix")],
)
def test_one_size_of_all_items_is_printed_once(kind, size, said):
    found = replace(inspect_data("digits"), kind=kind, smallest=size, largest=size)
    assert said in sizes(found)
    assert " to " not in sizes(found)


def test_a_run_says_what_chooses_its_checkpoint(source):
    config = TrainConfig.of(data=source, split="rows")
    told = protocol_note(config, open_task(source, split="rows", validation=0.3))
    assert told == "Honest protocol: held-out training items choose the checkpoint."
    assert protocol_note(config, open_task(source, split="rows", validation=0.0)) == ""
    told = protocol_note(TrainConfig.of(data="digits"), open_task("digits", validation=0.3))
    assert told == "Honest protocol: held-out training classes choose the checkpoint."


def test_commands_train_and_fit_on_rows_of_every_class(source, tmp_path, capsys, monkeypatch):
    config = TrainConfig.of(data=source, split="rows", validation=0.3, **SMALL)
    made = train(config, tmp_path / "run", progress=False)
    result = evaluate_run(made)
    assert "closed set" in result.protocol
    assert config.digest != config.replace(split="classes").digest
    words = ["fit", source, "RCA()", "--split", "rows", "-o", tmp_path / "rca.safetensors"]
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, err) == (0, "")
    assert "train 18 rows of 5 classes, test 16 rows of 4 classes; closed set" in out
    words = ["train", source, "--split", "rows", "--epochs", "1", "--trunk", "mlp(width=4, depth=1)"]
    code, out, _ = run(capsys, monkeypatch, *words, "--out", tmp_path / "other")
    assert (code, "closed set" in out) == (0, True)
    code, _, err = run(capsys, monkeypatch, *words[:4], "--final", made.folder, "--out", tmp_path / "third")
    assert code == 2


def test_groups_on_both_sides_of_a_split_by_rows_are_told(tmp_path):
    lines = [f"{k},{k % 3},patient {k // 6}" for k in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["size,label,group", *lines]))
    told = open_task(str(tmp_path / "rows.csv"), split="rows").protocol
    assert re.search(
        r"; \d+ of \d+ groups in the test are also in the training, so that the scores are not those", told
    )
    own = [f"{k},{k % 3},scan {k}" for k in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["size,label,group", *own]))
    assert "group" not in open_task(str(tmp_path / "rows.csv"), split="rows").protocol
