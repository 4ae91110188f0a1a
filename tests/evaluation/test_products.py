"""Products of several photos: ranked by their best photo or by all of them, as plain loops rank them."""

import numpy as np
import pytest

from nearfar.evaluation import evaluate, map_at_r, recall_at_k
from nearfar.evaluation.retrieval import retrieve

from ..commands import run


def distance_of(a, b, distance):
    if distance == "cosine":
        return 1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    squared = ((a - b) ** 2).sum()
    return np.sqrt(squared) if distance == "euclidean" else squared


def by_loops(x, labels, y, y_labels, products, score, distance, leave_one_out):
    """Recall@1, Recall@2 and MAP@R of every query; None for one without a relevant product."""
    found = []
    for i, query in enumerate(x):
        ranked = []
        for product in sorted(set(products)):
            photos = [j for j in range(len(y)) if products[j] == product and not (leave_one_out and i == j)]
            if photos:
                far = [distance_of(query, y[j], distance) for j in photos]
                ranked.append((min(far) if score == "best" else np.mean(far), y_labels[photos[0]] == labels[i]))
        hits = [hit for _, hit in sorted(ranked, key=lambda one: one[0])]
        r = sum(hits)
        if r == 0:
            found.append(None)
            continue
        precision = [sum(hits[: k + 1]) / (k + 1) * hits[k] for k in range(r)]
        found.append((any(hits[:1]), any(hits[:2]), sum(precision) / r))
    return found


def photos(seed=0, n=40, d=3):
    """Photos of 12 products of 5 classes; some products have one photo, and one class has one product."""
    rng = np.random.default_rng(seed)
    product = np.concatenate([np.arange(12), rng.integers(0, 8, n - 12)])
    of_class = np.array([0, 0, 1, 1, 1, 2, 2, 3, 3, 0, 1, 4])
    rows = rng.normal(size=(12, d))[product] + 0.7 * rng.normal(size=(n, d))
    order = rng.permutation(n)
    names = np.array([f"p{k:02}" for k in range(12)])
    return rows[order], of_class[product][order], names[product][order]


@pytest.mark.parametrize("distance", ["cosine", "euclidean", "sqeuclidean"])
@pytest.mark.parametrize("score", ["best", "mean"])
@pytest.mark.parametrize("leave_one_out", [True, False])
def test_products_are_ranked_as_by_loops(distance, score, leave_one_out):
    y, y_labels, products = photos()
    x, labels = (y, y_labels) if leave_one_out else photos(1)[:2]
    expected = by_loops(x, labels, y, y_labels, products, score, distance, leave_one_out)
    searched = {} if leave_one_out else {"gallery": y, "gallery_labels": y_labels}
    how = {"group_by": products, "group_score": score, "distance": distance, **searched}
    found = retrieve(x, labels, ks=(1, 2), **how)
    for i, scores in enumerate(expected):
        if scores is None:
            assert found.relevant[i] == 0
        else:
            assert (found.found(1)[i], found.found(2)[i]) == scores[:2]
            assert found.map_at_r[i] == pytest.approx(scores[2])
    fair = [scores for scores in expected if scores is not None]
    assert (len(fair) < len(expected)) == leave_one_out  # a photo that is all of its class
    scores = evaluate(x, labels, ks=(1, 2), clustering=False, **how)
    assert scores.recall_at[1] == pytest.approx(np.mean([one[0] for one in fair]))
    assert scores.map_at_r == pytest.approx(np.mean([one[2] for one in fair]))
    assert scores.n_lone == len(expected) - len(fair)
    assert scores.n_gallery == 12
    told = "their best photo" if score == "best" else "all their photos"
    assert f"items are products by {told}" in scores.protocol_line()
    assert recall_at_k(x, labels, 1, **how) == scores.recall_at[1]
    assert map_at_r(x, labels, **how) == scores.map_at_r


@pytest.mark.parametrize("score", ["best", "mean"])
def test_products_of_one_photo_are_items(score):
    rows, labels, _ = photos()
    each = np.arange(len(rows))
    plain = evaluate(rows, labels, clustering=False)
    grouped = evaluate(rows, labels, clustering=False, group_by=each, group_score=score)
    assert grouped.recall_at == plain.recall_at
    assert grouped.map_at_r == pytest.approx(plain.map_at_r)
    assert (grouped.n_lone, grouped.mrr) == (plain.n_lone, pytest.approx(plain.mrr))
    assert grouped.chance["map_at_r"] == pytest.approx(plain.chance["map_at_r"])


def test_what_does_not_go_together_is_told():
    rows, labels, products = photos()
    with pytest.raises(ValueError, match="has items of several classes; expected one class per product"):
        evaluate(rows, np.arange(len(rows)) % 3, group_by=products)
    with pytest.raises(ValueError, match="group_by: expected 40"):
        evaluate(rows, labels, group_by=products[:-1])
    with pytest.raises(ValueError, match="group_score: expected best or mean, got 'worst'"):
        evaluate(rows, labels, group_by=products, group_score="worst")
    with pytest.raises(ValueError, match="groups: does not work with group_by"):
        evaluate(rows, labels, groups=labels, group_by=products)
    with pytest.raises(ValueError, match="rerank: does not work with group_by"):
        evaluate(rows, labels, rerank="csls", group_by=products)


def test_evaluate_ranks_the_products_of_a_column(tmp_path, capsys, monkeypatch):
    rows, labels, products = photos()
    lines = [f"{a},{b},{c},{label},{product}" for (a, b, c), label, product in zip(rows, labels, products, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,label,product", *lines]))
    for score in ("best", "mean"):
        words = ("evaluate", tmp_path / "rows.csv", "--group-by", "product", "--group-score", score)
        code, out, err = run(capsys, monkeypatch, *words)
        assert (code, err) == (0, "")
        expected = evaluate(
            rows.astype(np.float32),
            labels,
            group_by=products,
            group_score=score,
            clustering=False,
            distance="euclidean",
        )
        assert f"{expected.map_at_r:.4f}" in next(line for line in out.splitlines() if line.startswith("MAP@R"))
        assert "items are products" in out
    code, _, err = run(capsys, monkeypatch, "evaluate", tmp_path / "rows.csv", "--group-score", "mean")
    assert (code, err.startswith("nearfar: --group-score: works only with --group-by COLUMN")) == (2, True)
    code, _, err = run(capsys, monkeypatch, "evaluate", tmp_path / "rows.csv", "--group-by", "shop")
    assert (code, "has no column 'shop'" in err) == (2, True)
    words = ("evaluate", tmp_path / "rows.csv", "--group-by", "product", "--protocol", "verification")
    assert run(capsys, monkeypatch, *words)[0] == 2
    np.savez(tmp_path / "rows.npz", X=rows, y=labels)
    code, _, err = run(capsys, monkeypatch, "evaluate", tmp_path / "rows.npz", "--group-by", "product")
    assert (code, "--group-by: needs a table" in err) == (2, True)
