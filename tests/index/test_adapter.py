"""An adapter brings queries of a new model to an index of an old one."""

import numpy as np
import pytest

from nearfar.evaluation import recall_at_k
from nearfar.index import Index, QueryAdapter
from nearfar.index.adapter import HELD_OUT, RIDGES, procrustes, ridge
from nearfar.io import tensor_file

from ..commands import run


def two_models(n=400, d=12, e=8, bent=0.0, seed=0):
    """Embeddings of the same items by two models; `bent` is how far the old one is from a linear map of the new one."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 20
    new = rng.normal(size=(20, d))[labels] + 0.4 * rng.normal(size=(n, d))
    map_ = rng.normal(size=(d, e))
    old = new @ map_ + bent * np.abs(new @ rng.normal(size=(d, e)))
    return new, old, labels


@pytest.mark.parametrize(("d", "e"), [(6, 6), (9, 6), (6, 9)])
def test_procrustes_is_the_nearest_rotation(d, e):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(50, d)), rng.normal(size=(50, e))
    W = procrustes(X, Y)
    small = W.T @ W if e <= d else W @ W.T
    np.testing.assert_allclose(small, np.eye(min(d, e)), atol=1e-12)
    best = np.trace(W.T @ X.T @ Y)
    for _ in range(50):
        other = np.linalg.qr(rng.normal(size=(max(d, e), min(d, e))))[0]
        other = other if e <= d else other.T
        assert np.trace(other.T @ X.T @ Y) <= best + 1e-9


def test_ridge_is_the_solution_of_its_equations():
    X, Y, _ = two_models(bent=0.5)
    out = np.arange(400) % 10 == 0
    W = ridge(X, Y, out)
    known = X[~out]
    size = np.linalg.eigvalsh(known.T @ known).mean()
    solutions = [np.linalg.solve(known.T @ known + a * size * np.eye(12), known.T @ Y[~out]) for a in RIDGES]
    errors = [((X[out] @ S - Y[out]) ** 2).sum() for S in solutions]
    np.testing.assert_allclose(W, solutions[int(np.argmin(errors))], atol=1e-9)
    assert np.linalg.matrix_rank(ridge(X, Y, out, rank=3)) == 3


@pytest.mark.parametrize("kind", ["linear", "orthogonal", "residual"])
def test_an_adapter_keeps_the_recall_and_is_kept(kind, tmp_path):
    if kind == "residual":
        pytest.importorskip("torch")
    new, old, labels = two_models(bent=0.3)
    if kind == "orthogonal":
        old = new @ np.linalg.qr(np.random.default_rng(1).normal(size=(12, 12)))[0]
    adapter = QueryAdapter(kind, hidden=32).fit(new[:300], old[:300])
    assert adapter.held_out_.sum() == int(HELD_OUT * 300)
    found = adapter.transform(new[300:])
    told = {"gallery": old[:300], "gallery_labels": labels[:300]}
    assert recall_at_k(found, labels[300:], 1, **told) >= 0.9 * recall_at_k(old[300:], labels[300:], 1, **told)
    adapter.save(tmp_path / "adapter.safetensors")
    again = QueryAdapter.load(tmp_path / "adapter.safetensors")
    np.testing.assert_array_equal(again.transform(new), adapter.transform(new))
    assert (again.kind, again.similarity_) == (adapter.kind, adapter.similarity_)


@pytest.mark.slow
def test_a_small_network_learns_what_is_bent():
    pytest.importorskip("torch")
    new, old, _ = two_models(n=1500, bent=1.5)
    linear = QueryAdapter("linear").fit(new, old)
    bent = QueryAdapter("residual").fit(new, old)
    assert bent.similarity_ > linear.similarity_ + 0.005


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda new, old: QueryAdapter("best"), "kind: expected one of orthogonal, linear, residual, got 'best'"),
        (lambda new, old: QueryAdapter(rank=0), "rank: expected a whole number of at least 1, got 0"),
        (lambda new, old: QueryAdapter().fit(new, old[:9]), "old: expected 400 rows, one for each of new, got 9"),
        (lambda new, old: QueryAdapter().fit(new[:9], old[:9]), "new: expected at least 20 rows"),
        (lambda new, old: QueryAdapter().transform(new), "this adapter is not fitted"),
        (lambda new, old: QueryAdapter().fit(new, old).transform(old), "new: expected 12 columns"),
    ],
)
def test_bad_input_is_told(call, told):
    new, old, _ = two_models()
    with pytest.raises(ValueError, match=told):
        call(new, old)


def test_damaged_files_are_told(tmp_path):
    new, old, _ = two_models()
    file = tmp_path / "a.safetensors"
    adapter = QueryAdapter().fit(new, old)
    adapter.save(file)
    arrays, text = tensor_file.read(file)
    tensor_file.write(tmp_path / "other.safetensors", arrays, {"format": "something else"})
    with pytest.raises(ValueError, match="is no adapter"):
        QueryAdapter.load(tmp_path / "other.safetensors")
    tensor_file.write(file, {**arrays, "weight": arrays["weight"][:, :3]}, text)
    with pytest.raises(ValueError, match="is damaged: weight: expected finite numbers of shape"):
        QueryAdapter.load(file)
    tensor_file.write(file, {name: array for name, array in arrays.items() if name != "mean"}, text)
    with pytest.raises(ValueError, match="is damaged"):
        QueryAdapter.load(file)


def test_commands_adapt_and_search(tmp_path, capsys, monkeypatch):
    new, old, labels = two_models()
    names = np.array([f"item {i}" for i in range(400)])
    turned = np.random.default_rng(0).permutation(400)  # another order of the same items
    np.savez(tmp_path / "new.npz", embeddings=new, labels=labels, names=names)
    np.savez(tmp_path / "old.npz", embeddings=old[turned], labels=labels[turned], names=names[turned])
    adapter = tmp_path / "adapter.safetensors"
    pair = (tmp_path / "new.npz", tmp_path / "old.npz")
    code, out, err = run(capsys, monkeypatch, "adapt", *pair, "--kind", "linear", "-o", adapter)
    assert code == 0, err
    assert "linear adapter from 12 to 8 dimensions, of 400 items" in out
    assert "the adapter keeps " in out

    index = tmp_path / "old.index"
    assert run(capsys, monkeypatch, "index", tmp_path / "old.npz", "-o", index)[0] == 0
    np.save(tmp_path / "asked.npy", new[:3])
    asked = ("search", index, tmp_path / "asked.npy", "-k", "1")
    code, out, err = run(capsys, monkeypatch, *asked, "--adapter", adapter)
    assert code == 0, err
    assert all(f"item {i}" in line for i, line in enumerate(line for line in out.splitlines() if line.startswith("  ")))
    code, _, err = run(capsys, monkeypatch, *asked)
    assert code == 2
    np.savez(tmp_path / "less.npz", embeddings=old[:9], labels=labels[:9], names=names[:9])
    code, _, err = run(
        capsys, monkeypatch, "adapt", tmp_path / "new.npz", tmp_path / "less.npz", "-o", adapter, "--overwrite"
    )
    assert code == 2
    assert "OLD: has no 'item 9' (391 of 400 items of NEW are missing); embed the same items" in err


def test_an_index_keeps_the_first_dimensions(tmp_path, capsys, monkeypatch):
    _, old, labels = two_models()
    np.savez(tmp_path / "old.npz", embeddings=old, labels=labels)
    index = tmp_path / "old.index"
    assert run(capsys, monkeypatch, "index", tmp_path / "old.npz", "-o", index, "--dims", "5")[0] == 0
    assert Index.load(index).embeddings.shape == (400, 5)
    np.save(tmp_path / "asked.npy", old[:3])
    code, out, err = run(capsys, monkeypatch, "search", index, tmp_path / "asked.npy", "-k", "1")
    assert code == 0, err
    found = [line.split()[-1] for line in out.splitlines() if line.startswith("  ")]
    assert found == Index.load(index).names[:3].tolist()
    for given, told in (("9", "--dims: expected 1 to 8"), ("0", "--dims: expected 1 or more, got 0")):
        code, _, err = run(
            capsys, monkeypatch, "index", tmp_path / "old.npz", "-o", index, "--overwrite", "--dims", given
        )
        assert code == 2
        assert told in err
