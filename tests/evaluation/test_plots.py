"""Pictures of scores show the numbers that the scores have."""

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from nearfar.evaluation import evaluate, plot_confusions, plot_map, plot_recall, plot_roc, verify


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 12)
    return rng.normal(size=(5, 4))[y] + 0.6 * rng.normal(size=(60, 4)), y


def test_recall_is_that_of_the_scores(rows):
    x, y = rows
    axes = plot_recall(x, y, ks=(1, 2, 4), label="model")
    (line,) = axes.lines
    scores = evaluate(x, y, ks=(1, 2, 4), clustering=False)
    np.testing.assert_allclose(line.get_ydata(), [scores.recall_at[k] for k in (1, 2, 4)])
    assert line.get_label() == "model"
    assert plot_recall(x[:, :2], y, axes=axes) is axes
    assert len(axes.lines) == 2


def test_items_without_a_partner_are_left_out(rows):
    x, y = rows
    alone = np.append(y, 99)
    axes = plot_recall(np.concatenate([x, x[:1]]), alone, ks=(1,))
    scores = evaluate(np.concatenate([x, x[:1]]), alone, ks=(1,), clustering=False)
    assert axes.lines[0].get_ydata()[0] == pytest.approx(scores.recall_at[1])


def test_roc_is_that_of_the_verification(rows):
    found = verify(*rows)
    (line,) = plot_roc(found).lines
    np.testing.assert_array_equal(line.get_xdata(), found.curve[0])
    np.testing.assert_array_equal(line.get_ydata(), found.curve[1])


def test_confusions_are_shares_of_nearest_items(rows):
    x, y = rows
    names = np.array(["ant", "bee", "cat", "dog", "elk"])
    axes = plot_confusions(x, names[y])
    shown = axes.images[0].get_array()
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -2)
    nearest = y[similarity.argmax(1)]
    expected = [[np.mean(nearest[y == a] == b) for b in range(5)] for a in range(5)]
    np.testing.assert_allclose(shown, expected)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(names)
    assert plot_confusions(x, y, most=2).images[0].get_array().shape == (2, 2)


def test_a_map_has_a_point_for_each_item(rows):
    x, y = rows
    axes = plot_map(x, y)
    assert sum(len(points.get_offsets()) for points in axes.collections) == len(y)


@pytest.mark.parametrize("plot", [plot_confusions, plot_map])
def test_labels_may_be_anything_hashable_and_must_match_the_rows(rows, plot):
    x, y = rows
    axes = plot(x[::4], [("class", int(one)) for one in y[::4]])
    if plot is plot_map:
        shown = [points.get_label() for points in axes.collections]
    else:
        shown = [tick.get_text() for tick in axes.get_yticklabels()]
    assert shown == [f"('class', {k})" for k in range(5)]
    with pytest.raises(ValueError, match="labels: expected 60 labels, one per row, got 61"):
        plot(x, [*y, 0])
    with pytest.raises(ValueError, match="labels: 1 of 60 labels are missing"):
        plot(x, [None, *y[1:].tolist()])


def test_a_map_needs_three_items(rows):
    x, y = rows
    assert len(plot_map(x[:3], y[:3]).collections) == 1
    with pytest.raises(ValueError, match="embeddings: expected at least 3 rows for a map, got 2"):
        plot_map(x[:2], y[:2])


@pytest.mark.filterwarnings("error")
def test_recall_without_partners_is_no_line(rows):
    x, _ = rows
    assert np.isnan(plot_recall(x, np.arange(60), ks=(1, 2)).lines[0].get_ydata()).all()


def test_scores_become_a_frame_and_a_table_of_a_notebook(rows):
    pytest.importorskip("pandas")
    scores = evaluate(*rows)
    frame = scores.to_frame()
    assert frame.loc["MAP@R", "value"] == scores.map_at_r
    assert np.isnan(frame.loc["AMI", "chance"])
    assert f"<td>MAP@R</td><td>{scores.map_at_r:.4f}</td>" in scores._repr_html_()
