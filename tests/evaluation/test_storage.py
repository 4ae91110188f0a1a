"""Codes hold what they say, and their scores are those of what is read back."""

import numpy as np
import pytest

from nearfar.evaluation import evaluate, storage_scores
from nearfar.neighbors.codes import calibrate, from_int8, rescored, search_binary, signs_of, to_binary, to_int8

from ..commands import run


def rows_of(n=60, d=16, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 6
    return 1.5 * np.eye(6, d)[labels] + 0.7 * rng.normal(size=(n, d)) + 0.3, labels


def test_codes_of_8_bits_err_by_half_a_step():
    rows, _ = rows_of()
    codes = calibrate(rows, covered=1)
    packed = to_int8(rows, codes)
    assert packed.dtype == np.int8
    assert (np.abs(packed).max(axis=0) == 127).all()
    assert (np.abs(from_int8(packed, codes) - rows) <= codes.step * 0.5001).all()


def test_what_is_beyond_the_range_is_clipped():
    rows, _ = rows_of()
    codes = calibrate(rows)
    far = rows.copy()
    far[0] = 1e6
    assert (to_int8(far, codes)[0] == 127).all()
    assert np.isfinite(from_int8(to_int8(far, codes), codes)).all()


def test_a_dimension_that_does_not_vary_is_kept():
    rows, _ = rows_of()
    rows[:, 2] = 5.0
    codes = calibrate(rows)
    np.testing.assert_allclose(from_int8(to_int8(rows, codes), codes)[:, 2], 5.0)


@pytest.mark.parametrize("d", [8, 13])
def test_signs_come_back(d):
    rows, _ = rows_of(d=d)
    center = rows.mean(axis=0)
    packed = to_binary(rows, center)
    assert packed.shape == (60, -(-d // 8))
    np.testing.assert_array_equal(signs_of(packed, d), np.where(rows > center, 1.0, -1.0))


def test_candidates_are_ordered_by_exact_distances():
    rows, _ = rows_of(d=13)
    center = rows.mean(axis=0)
    found = search_binary(rows[:5], to_binary(rows, center), rows, 3, d=13, oversample=20, center=center)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    exact = 1 - unit[:5] @ unit.T
    np.testing.assert_array_equal(found[1], np.argsort(exact, axis=1, kind="stable")[:, :3])
    np.testing.assert_allclose(found[0], np.sort(exact, axis=1)[:, :3], atol=1e-12)
    few = search_binary(rows[:5], to_binary(rows, center), rows, 3, d=13, oversample=2, center=center)[1]
    signs = np.where(rows > center, 1, -1)
    for query, row in zip(signs[:5], few, strict=True):
        unequal = (query != signs).sum(axis=1)
        proposed = np.argsort(unequal, kind="stable")[:6]
        assert set(row) <= set(proposed)
    assert rescored(rows[:1], rows, np.array([[3, 1, 2]]), 1)[1].shape == (1, 1)


@pytest.mark.parametrize("with_gallery", [False, True])
def test_scores_are_those_of_what_is_read_back(with_gallery):
    rows, labels = rows_of()
    told = {}
    queries = rows
    if with_gallery:
        queries = rows_of(seed=1)[0]
        told = {"gallery": rows, "gallery_labels": labels}
    found = {(one.storage, one.dims): one for one in storage_scores(queries, labels, dims=(16, 8), **told)}
    assert found["int8", 8].bytes_searched == 8
    assert found["binary, then int8", 16].bytes_stored == 18
    for d in (16, 8):
        codes = calibrate(rows[:, :d])
        center = rows[:, :d].mean(axis=0)
        read = {
            "float32": lambda x, d=d: x[:, :d],
            "float16": lambda x, d=d: x[:, :d].astype(np.float16),
            "int8": lambda x, d=d, codes=codes: from_int8(to_int8(x[:, :d], codes), codes),
            "binary": lambda x, d=d, center=center: np.where(x[:, :d] > center, 1.0, -1.0),
        }
        for name, back in read.items():
            other = {**told, "gallery": back(rows)} if with_gallery else {}
            scores = evaluate(back(queries), labels, clustering=False, **other)
            assert found[name, d].map_at_r == pytest.approx(scores.map_at_r, abs=1e-12)
            assert found[name, d].recall_at_1 == pytest.approx(scores.recall_at[1], abs=1e-12)
        # with as many candidates as there are items, signs decide nothing
        again = found["binary, then int8", d]
        assert again.map_at_r == pytest.approx(found["int8", d].map_at_r, abs=1e-12)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_what_is_beyond_half_precision_is_clipped(distance):
    rows, labels = rows_of()
    rows[:, 0] = 1e6
    found = {one.storage: one.map_at_r for one in storage_scores(rows, labels, dims=(16,), distance=distance)}
    rows[:, 0] = 65504.0  # the largest value of half precision
    expected = {one.storage: one.map_at_r for one in storage_scores(rows, labels, dims=(16,), distance=distance)}
    assert found["float16"] == expected["float16"]


def test_signs_choose_the_candidates():
    rows, labels = rows_of(n=600, d=16)
    found = {one.storage: one.map_at_r for one in storage_scores(rows, labels, dims=(16,))}
    assert found["binary"] < found["binary, then int8"] <= found["int8"] + 0.02


def test_prefixes_are_scored_as_such():
    rows, labels = rows_of()
    assert evaluate(rows, labels, clustering=False, dims=5) == evaluate(rows[:, :5], labels, clustering=False)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda x, y: evaluate(x, y, dims=17),
            "dims: expected an integer from 1 to 16, the number of dimensions, got 17",
        ),
        (lambda x, y: evaluate(x, y, dims=True), "dims: expected an integer"),
        (lambda x, y: storage_scores(x, y, dims=(0,)), "dims: expected integers from 1 to 16"),
        (lambda x, y: calibrate(x, covered=0), "covered: expected a share above 0"),
        (lambda x, y: search_binary(x, to_binary(x), x, 0, d=16), "k: expected 1 to 60"),
    ],
)
def test_bad_settings_are_told(call, told):
    with pytest.raises(ValueError, match=told):
        call(*rows_of())


def test_the_command_prints_score_against_bytes(tmp_path, capsys, monkeypatch):
    rows, labels = rows_of()
    file = tmp_path / "rows.npz"
    np.savez(file, embeddings=rows, labels=labels)
    code, out, err = run(capsys, monkeypatch, "evaluate", file, "--storage", "--dims", "16", "--dims", "8")
    assert code == 0, err
    table = out.split("\n\n")[1].splitlines()
    assert [line.split()[0] for line in table] == ["storage", *2 * ["float32", "float16", "int8", "binary,", "binary"]]
    code, out, _ = run(capsys, monkeypatch, "evaluate", file, "--dims", "8")
    assert code == 0
    assert f"all 16 dimensions: Recall@1 {evaluate(rows, labels, clustering=False).recall_at[1]:.4f}" in out
    for given, told in (
        (("--dims", "8", "--dims", "4"), "--dims: expected one length; several lengths work only with --storage"),
        (("--storage", "--rerank", "csls"), "--storage: does not work with --rerank"),
        (("--storage", "--protocol", "verification"), "--storage: works only with --protocol retrieval"),
        (("--dims", "99"), "dims: expected an integer from 1 to 16"),
    ):
        code, _, err = run(capsys, monkeypatch, "evaluate", file, *given)
        assert code == 2
        assert told in err
