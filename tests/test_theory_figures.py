"""What the pictures of the page on the papers show is so."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("torch")

DOCS = Path(__file__).parent.parent / "docs"
TOOLS = DOCS.with_name("tools")


@pytest.fixture(scope="module")
def theory():
    if not (DOCS / "theory_figures.py").is_file():
        pytest.skip("the documentation is not here")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(DOCS)
        patched.syspath_prepend(TOOLS)
        import theory_figures

        yield theory_figures


def test_random_features_estimate_jrs(theory) -> None:
    exact, found = theory.random_feature_estimates()
    error = np.abs(found - exact).mean(axis=1)
    assert error[-1] < 0.03 * exact  # 1 / sqrt(20,000) is its scale
    assert error[-1] < error[0] / 10


def test_dependent_layers_are_no_product(theory) -> None:
    joint, product = theory.joint_and_product(0.0)
    assert joint == pytest.approx(product)
    joint, product = theory.joint_and_product(1.0)
    assert joint == pytest.approx(1 / 3)
    assert product == pytest.approx(1 / 5)


def test_energy_is_above_its_bound(theory) -> None:
    energy, bound = theory.energies(30)
    assert (energy >= bound).all()


def test_refinement_never_falls(theory) -> None:
    values = theory.refinements(6)
    assert (np.diff(values, axis=1) >= -1e-9).all()
    assert values[:, -1].max() > 0


def test_pictures_are_drawn(theory, tmp_path) -> None:
    theory.write(tmp_path)
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(theory.FIGURES)


def test_the_picture_of_families_shows_the_best_of_each_in_the_table(theory) -> None:
    import figures

    gains = figures.gains_of_learners()
    shown = figures.best_of_families(gains)
    assert len(shown) == len({gain.family for gain in shown}) == 10
    means = [gain.mean for gain in shown]
    assert means == sorted(means, reverse=True)
    for gain in gains:
        same = [best for best in shown if best.family == gain.family]
        assert not same or gain.mean <= same[0].mean, gain.learner
    drawn = figures.gain_against_time()
    assert [label.get_text() for label in drawn.axes[0].texts] == [gain.learner for gain in shown]
