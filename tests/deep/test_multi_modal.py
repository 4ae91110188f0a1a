"""Multi-modal autoencoder: one modality is the plain one, missing ones do not count, pairs as in the formula."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.neighbors import KNeighborsClassifier

from nearfar import Autoencoder, ContrastiveLoss, MultiModalAutoencoder
from nearfar.deep.networks.multi_modal import multi_modal
from nearfar.deep.networks.multi_modal.modalities import Modalities, MultiCodec, greedy, hide

SMALL = {"max_iter": 4, "pretrain": 2, "random_state": 0}


def wine():
    X, y = load_wine(return_X_y=True)
    return [X[:, :5], X[:, 5:]], y


def halves(n=900):
    X, y = load_digits(return_X_y=True)
    return [X[:n, :32] / 16, X[:n, 32:] / 16], y[:n]


def codes(n=12, p=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, p, generator=g, dtype=torch.float64, requires_grad=True)
    return z, torch.tensor([0, 0, 0, 1, 1, 2, 3, 3, 3, -1, -1, 4])[:n], torch.rand(n, generator=g, dtype=torch.float64)


def loops(errors, z, y, lam1, lam2, m1, m2, pairs):
    similar, dissimilar = [], []
    for i in range(len(z)):
        for j in range(i):
            if min(y[i], y[j]) < 0:
                continue
            d = ((z[i] - z[j]) ** 2).sum()
            if y[i] == y[j]:
                similar.append((d - m1).clamp_min(0))
            else:
                dissimilar.append((m2 - d).clamp_min(0))
    sizes = (len(similar), len(dissimilar)) if pairs == "mean" else (len(z), len(z))
    return errors.mean() + lam1 * sum(similar) / sizes[0] + lam2 * sum(dissimilar) / sizes[1]


@pytest.mark.parametrize("pairs", ["mean", "sum"])
@pytest.mark.parametrize("margins", [(0.0, 1.0), (0.5, 8.0)])
def test_objective_equals_the_loops(pairs, margins):
    z, y, errors = codes()
    value = multi_modal(errors, z, y, (0.7, 1.3), margins, pairs)
    expected = loops(errors, z, y, 0.7, 1.3, *margins, pairs)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v, z)[0] for v in (value, expected)))


def test_pair_terms_are_the_contrastive_loss():
    z, y, errors = codes()
    terms = multi_modal(errors * 0, z, y, (1.0, 1.0), (0.0, 4.0), "sum") * len(z)
    whole = ContrastiveLoss(4.0, form="survey", reduction="sum")(z, y)  # counts every pair from both its sides
    torch.testing.assert_close(2 * terms, whole)


def test_batches_without_pairs_are_the_reconstruction():
    z, _, errors = codes()
    for y in (torch.full((12,), -1), torch.arange(12) * 0 - 1):
        value = multi_modal(errors, z, y, (1.0, 1.0), (0.0, 1.0), "mean")
        torch.testing.assert_close(value, errors.mean())
        assert torch.autograd.grad(value, z)[0].abs().max() == 0


@pytest.mark.parametrize("hidden", [0, 1, (7, 4)])
def test_one_modality_without_pairs_is_the_plain_autoencoder(hidden):
    X = load_wine().data
    how = {"n_components": 3, "hidden": hidden, "max_iter": 5, "random_state": 1}
    one = MultiModalAutoencoder(lam1=0, lam2=0, scale_views=False, pretrain=0, **how).fit([X])
    plain = Autoencoder(**how).fit(X)
    np.testing.assert_allclose(one.transform([X]), plain.transform(X), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(one.reconstruct([X])[0], plain.reconstruct(X))
    np.testing.assert_allclose(one.reconstruction_error([X]), plain.reconstruction_error(X))
    np.testing.assert_allclose(one.loss_curve_, plain.loss_curve_)


def test_order_of_the_modalities_changes_nothing():
    torch.manual_seed(0)
    net, swapped = (MultiCodec(sizes, 3, "tanh").double() for sizes in ([[5, 4], [8, 6]], [[8, 6], [5, 4]]))
    with torch.no_grad():
        for name in ("encoders", "decoders"):
            for v in (0, 1):
                getattr(swapped, name)[v].load_state_dict(getattr(net, name)[1 - v].state_dict())
        for v in (0, 1):
            net.defaults[v].normal_()
            swapped.defaults[1 - v].copy_(net.defaults[v])
        swapped.shared.weight.copy_(torch.cat([net.shared.weight[:, 4:], net.shared.weight[:, :4]], 1))
        swapped.shared.bias.copy_(net.shared.bias)
    rows = [torch.randn(6, d, dtype=torch.float64) for d in (5, 8)]
    present = torch.tensor([[1, 1], [1, 0], [0, 1]] * 2, dtype=torch.bool)
    decoded, z = net(Modalities(rows, present))
    other, moved = swapped(Modalities(rows[::-1], present.flip(1)))
    torch.testing.assert_close(moved, z)
    torch.testing.assert_close(other[::-1], decoded)


def test_what_is_missing_does_not_matter():
    views, y = wine()
    views = [X.copy() for X in views]
    views[0][::3], views[1][1::3] = np.nan, np.nan
    learner = MultiModalAutoencoder(3, **SMALL).fit(views, y)
    marked = [X.copy() for X in views]
    marked[0][::3, 1:] = 1e6  # one NaN is enough
    np.testing.assert_array_equal(learner.transform(marked), learner.transform(views))
    np.testing.assert_array_equal(learner.reconstruction_error(marked), learner.reconstruction_error(views))
    made = learner.reconstruct(views)
    assert all(np.isfinite(X).all() for X in made)
    assert [X.shape for X in made] == [(178, 5), (178, 8)]
    whole, _ = wine()
    np.testing.assert_array_equal(learner.transform([None, whole[1]]), learner.transform([whole[0] * np.nan, whole[1]]))
    defaults = [default.detach().abs().max() for default in learner.network_.defaults]
    assert min(defaults) > 0  # learned


def test_reconstruction_counts_what_is_there():
    views, y = wine()
    learner = MultiModalAutoencoder(3, **SMALL).fit(views, y)
    half = [views[0], views[1] * np.nan]
    made = learner.reconstruct(half)[0]
    expected = (((views[0] - made) / learner.scale_[:5]) ** 2).sum(1) / 5
    np.testing.assert_allclose(learner.reconstruction_error(half), expected)
    np.testing.assert_allclose(learner.score_samples(half), -expected)


def test_hidden_modalities_leave_one():
    present = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 1, 1]], dtype=torch.bool).repeat(200, 1)
    kept = hide(present, 0.5, torch.Generator().manual_seed(0))
    assert kept.any(1).all()
    assert not (kept & ~present).any()
    assert 0.4 < kept[::3].double().mean() < 0.65
    assert torch.equal(hide(present, 0.0, torch.Generator()), present)


@pytest.mark.slow
def test_greedy_training_lowers_the_start_of_the_fine_tuning():
    views, y = halves(400)
    how = {"n_components": 6, "hidden": 2, "max_iter": 1, "random_state": 0, "lam1": 0, "lam2": 0}
    how |= {"learning_rate": 3e-3, "standardize": False}
    cold = MultiModalAutoencoder(pretrain=0, **how).fit(views, y)
    warm = MultiModalAutoencoder(pretrain=20, **how).fit(views, y)
    assert warm.loss_curve_[0] < 0.7 * cold.loss_curve_[0]


def test_greedy_training_takes_one_layer_at_a_time():
    torch.manual_seed(0)
    codec = MultiCodec([[5, 4, 3], [8, 6]], 2, "relu").double()
    views = Modalities([torch.randn(20, d, dtype=torch.float64) for d in (5, 8)], torch.ones(20, 2, dtype=torch.bool))
    views.present[::4, 1] = False
    names = {id(p): name for name, p in codec.named_parameters()}
    stages = []

    def train(parameters, loss, n):
        value = loss(torch.arange(n))
        value.backward()
        stages.append((sorted(names[id(p)] for p in parameters if p.ndim == 2), n))
        assert all(p.grad.abs().max() > 0 for p in parameters)
        trained = {id(p) for p in parameters}
        assert all(p.grad is None for p in codec.parameters() if id(p) not in trained)
        codec.zero_grad()

    greedy(codec, views, 0.1, torch.Generator().manual_seed(0), train)
    assert stages == [
        (["decoders.0.4.weight", "encoders.0.0.weight"], 20),
        (["decoders.0.2.weight", "encoders.0.2.weight"], 20),
        (["decoders.1.2.weight", "encoders.1.0.weight"], 15),
        (["decoders.0.0.weight", "decoders.1.0.weight", "shared.weight"], 20),
    ]


@pytest.mark.slow
def test_labels_and_hidden_modalities_shape_the_code_of_real_images():
    views, y = halves()
    how = {"n_components": 8, "hidden": (64,), "max_iter": 25, "pretrain": 3, "learning_rate": 3e-3}
    train, test = [X[:600] for X in views], [X[600:] for X in views]

    def accuracy(learner, queries):
        nearest = KNeighborsClassifier(3).fit(learner.transform(train), y[:600])
        return nearest.score(learner.transform(queries), y[600:])

    plain = MultiModalAutoencoder(lam1=0, lam2=0, random_state=0, **how).fit(train)
    told = MultiModalAutoencoder(hide=0.4, random_state=0, **how).fit(train, y[:600])
    assert accuracy(told, test) > accuracy(plain, test)
    for half in ([test[0], None], [None, test[1]]):
        assert accuracy(told, half) > 0.5
        assert accuracy(told, half) > accuracy(plain, half) + 0.1


def test_file_holds_the_learner(tmp_path):
    views, y = wine()
    learner = MultiModalAutoencoder(3, hidden=(6,), **SMALL).fit(views, y)
    learner.save(tmp_path / "m.safetensors")
    again = MultiModalAutoencoder.load(tmp_path / "m.safetensors")
    assert again.get_params() == learner.get_params()
    np.testing.assert_array_equal(again.transform([views[0], None]), learner.transform([views[0], None]))
    np.testing.assert_array_equal(again.fit_transform(views, y), learner.transform(views))
    with pytest.raises(ValueError, match="holds MultiModalAutoencoder, not Autoencoder"):
        Autoencoder.load(tmp_path / "m.safetensors")


def test_columns_side_by_side_are_cut():
    views, y = wine()
    side = np.hstack(views)
    apart = MultiModalAutoencoder(3, **SMALL).fit(views, y)
    learner = MultiModalAutoencoder(3, view_sizes=(5, 8), **SMALL).fit(side, y)
    np.testing.assert_array_equal(learner.transform(side), apart.transform(views))
    np.testing.assert_array_equal(apart.transform(side), apart.transform(views))  # fitted on views, their widths known
    np.testing.assert_array_equal(learner.reconstruction_error(side), apart.reconstruction_error(views))
    names = list("abcdefghijklm")
    table = pytest.importorskip("pandas").DataFrame(side, columns=names)
    for model in (learner, apart, clone(learner).fit(table, y)):
        np.testing.assert_allclose(model.transform(table), apart.transform(views), rtol=1e-9)
    with pytest.raises(TypeError, match="dense data is required"):
        clone(learner).fit(csr_matrix(side))
    with pytest.raises(ValueError, match=r"views: expected a list of arrays, one per modality.* got DataFrame"):
        MultiModalAutoencoder(3, **SMALL).fit(table)
    with pytest.raises(ValueError, match=r"view_sizes: expected widths that add up to 13 columns, got \[5, 7\]"):
        MultiModalAutoencoder(3, view_sizes=(5, 7), **SMALL).fit(side)


@pytest.mark.slow
def test_labels_of_any_kind():
    views, y = wine()
    plain = MultiModalAutoencoder(3, **SMALL).fit(views, y).transform(views)
    named = MultiModalAutoencoder(3, **SMALL).fit(views, np.array(["a", "b", "c"])[y]).transform(views)
    np.testing.assert_array_equal(named, plain)
    unknown = MultiModalAutoencoder(3, **SMALL).fit(views, np.full(178, -1)).transform(views)
    np.testing.assert_array_equal(unknown, MultiModalAutoencoder(3, **SMALL).fit(views).transform(views))
    partly = np.where(y == 1, -1, y)
    some = MultiModalAutoencoder(3, **SMALL).fit(views, partly).transform(views)
    words = ["a" if k == 0 else "b" if k == 2 else -1 for k in partly]
    np.testing.assert_array_equal(MultiModalAutoencoder(3, **SMALL).fit(views, words).transform(views), some)
    single = MultiModalAutoencoder(3, **SMALL).fit([X.astype(np.float32) for X in views], y)
    assert single.transform(views).dtype == np.float32


def test_bad_input_is_named():
    views, y = wine()
    fit = MultiModalAutoencoder(3, **SMALL).fit
    learner = fit(views, y)
    nothing = [X.copy() for X in views]
    nothing[0][4], nothing[1][4] = np.nan, np.nan
    for call, message in (
        (lambda: fit(views[0]), "views: expected a list of arrays, one per modality"),
        (
            lambda: fit([views[0], views[1][:-1]]),
            r"views: expected arrays with the same number of rows, got \[177, 178\]",
        ),
        (lambda: fit([views[0], None]), "views: expected arrays with the same number of rows"),
        (lambda: fit([views[0], views[1] * np.nan]), "views: every modality needs a row without NaN"),
        (lambda: fit(nothing), "views: 1 of 178 samples have no modality"),
        (lambda: fit(views, y[:-1]), "y must have one entry per sample, 178, got 177"),
        (lambda: fit(views, np.where(y == 0, np.nan, y)), "^MultiModalAutoencoder: y: 59 of 178 labels are missing"),
        (lambda: fit(views, np.where(y == 0, None, "b")), "^MultiModalAutoencoder: y: 59 of 178 labels are missing"),
        (lambda: fit(views, views[0][:, 0]), "^MultiModalAutoencoder: Unknown label type: continuous"),
        (lambda: learner.transform(views[:1]), "views: expected a list of 2 arrays"),
        (lambda: learner.transform(views[::-1]), r"views: expected \[5, 8\] columns, got \[8, 5\]"),
        (lambda: MultiModalAutoencoder(m1=1.0, m2=0.5).fit(views), "m2 must be above m1 and hide in"),
        (lambda: MultiModalAutoencoder(pairs="all").fit(views), "pairs must be one of 'mean', 'sum'; got 'all'"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
