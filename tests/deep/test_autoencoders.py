"""Autoencoders: principal components, Wiener filters and divergences are what their simplest forms must find."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import scale
from sklearn.utils.estimator_checks import parametrize_with_checks

from nearfar import Autoencoder, DenoisingAutoencoder, VariationalAutoencoder
from nearfar.deep.networks.autoencoder import autoencoder
from nearfar.deep.networks.reconstruction.codecs import NOISES, PENALTIES, Codec, corrupt, omega, widths
from nearfar.deep.networks.variational_autoencoder import divergence, variational_autoencoder
from nearfar.io import tensor_file

KINDS = (Autoencoder, DenoisingAutoencoder, VariationalAutoencoder)
LINEAR = {"activation": "identity", "hidden": 0, "tol": 0.0, "learning_rate": 1e-2, "random_state": 0}
every_kind = pytest.mark.parametrize("kind", KINDS)


def wine(dtype=np.float64):
    return scale(load_wine().data).astype(dtype)


def tensor(n=20, d=5, seed=0):
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def matrix(learner):
    """The one matrix of a linear network."""
    encoder, decoder = learner.network_.encoder[0].weight, learner.network_.decoder[0].weight
    return (decoder @ encoder).detach()


def cosines(A, B):
    return np.linalg.svd(np.linalg.qr(A)[0].T @ np.linalg.qr(B)[0])[1]


@pytest.mark.slow
@parametrize_with_checks([kind(max_iter=3, random_state=0) for kind in KINDS])
def test_scikit_learn_accepts_them(estimator, check):
    check(estimator)


# Autoencoder


@pytest.mark.slow
def test_linear_autoencoder_finds_the_principal_components():
    X = wine()
    learner = Autoencoder(3, max_iter=300, batch_size=178, **LINEAR).fit(X)
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    rest = values[:-3].sum()
    assert learner.reconstruction_error(X).mean() == pytest.approx(rest, rel=0.01)
    assert learner.reconstruction_error(X).mean() > rest * (1 - 1e-9)
    decoder = learner.network_.decoder[0].weight.detach().numpy()
    np.testing.assert_allclose(cosines(decoder, vectors[:, -3:]), 1, atol=5e-3)


def test_linear_layers_are_one_matrix():
    X = wine()
    learner = Autoencoder(3, activation="identity", hidden=2, max_iter=2, random_state=0).fit(X)
    zero = learner.inverse_transform(learner.transform(np.zeros((1, 13))))
    weights = [
        layer.weight.detach().numpy() for layer in learner.network_.modules() if isinstance(layer, torch.nn.Linear)
    ]
    assert len(weights) == 6
    whole = np.linalg.multi_dot(weights[::-1])
    np.testing.assert_allclose(learner.reconstruct(X) - zero, X @ whole.T, atol=1e-9)


@pytest.mark.slow
def test_a_long_code_copies():
    X = wine()
    learner = Autoencoder(13, max_iter=400, batch_size=178, **LINEAR).fit(X)
    assert learner.reconstruction_error(X).mean() < 0.01 * 13


@pytest.mark.parametrize("kind", PENALTIES)
def test_penalties_equal_the_loops(kind):
    network = Codec([5, 4, 3], "relu").double()
    x = tensor()
    with torch.no_grad():
        code = network.encoder(x)
        power = 2 if kind.endswith("l2") else 1
        if kind.startswith("codes"):
            expected = sum(abs(float(v)) ** power for row in code for v in row) / len(x)
        else:
            matrices = [layer.weight for layer in network.modules() if isinstance(layer, torch.nn.Linear)]
            expected = sum(abs(float(v)) ** power for W in matrices for v in W.detach().flatten())
        error = sum(float(((row - made) ** 2).sum()) for row, made in zip(x, network(x)[0], strict=True)) / len(x)
        assert omega(kind, network, code).item() == pytest.approx(expected)
        assert autoencoder(network, x, kind, 0.3).item() == pytest.approx(error + 0.3 * expected)


@pytest.mark.parametrize("kind", PENALTIES)
def test_penalties_shrink_what_they_name(kind):
    X = wine()
    how = {"max_iter": 40, "random_state": 0, "batch_size": 178, "learning_rate": 0.01}
    free, held = Autoencoder(3, **how).fit(X), Autoencoder(3, reg=0.3, penalty=kind, **how).fit(X)
    sizes = [omega(kind, one.network_, torch.from_numpy(one.transform(X))).item() for one in (free, held)]
    assert sizes[1] < 0.8 * sizes[0]
    assert held.reconstruction_error(X).mean() > free.reconstruction_error(X).mean()


def test_errors_per_sample_and_per_feature():
    X = wine()
    learner = Autoencoder(2, max_iter=5, random_state=0).fit(X)
    made = learner.reconstruct(X)
    np.testing.assert_allclose(learner.reconstruction_error(X), ((X - made) ** 2).sum(1))
    np.testing.assert_allclose(learner.reconstruction_error(X, per="feature"), ((X - made) ** 2).mean(0))
    np.testing.assert_allclose(learner.score_samples(X), -learner.reconstruction_error(X))
    with pytest.raises(ValueError, match="per must be one of 'sample', 'feature'; got 'row'"):
        learner.reconstruction_error(X, per="row")


@pytest.mark.slow
def test_error_is_an_outlier_score_on_digits():
    X, y = load_digits(return_X_y=True)
    known = y < 5
    learner = Autoencoder(8, hidden=(64,), max_iter=40, learning_rate=3e-3, standardize=False, random_state=0)
    learner.fit(X[known][:600] / 16)
    score = learner.reconstruction_error(X / 16)
    rest = np.r_[np.flatnonzero(known)[600:], np.flatnonzero(~known)]
    assert roc_auc_score(~known[rest], score[rest]) > 0.85


@every_kind
def test_units_of_the_features_do_not_matter(kind):
    X, factor = wine(), 10.0 ** np.arange(-6, 7)
    plain, moved = (kind(2, max_iter=3, random_state=0).fit(data) for data in (X, X * factor + 3 * factor))
    np.testing.assert_allclose(moved.transform(X * factor + 3 * factor), plain.transform(X), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        (moved.reconstruct(X * factor + 3 * factor) / factor) - 3, plain.reconstruct(X), atol=1e-6
    )


@every_kind
def test_constant_features_are_no_trouble(kind):
    X = np.c_[wine(), np.full(178, 7.0), np.zeros(178)]
    learner = kind(2, max_iter=3, random_state=0).fit(X)
    assert learner.scale_[-2:].tolist() == [1, 1]
    assert np.isfinite(learner.reconstruction_error(X)).all()


@every_kind
def test_same_seed_same_result_and_the_global_seed_is_left_alone(kind):
    X = wine()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, other, third = (kind(2, max_iter=3, random_state=seed).fit(X) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(one.transform(X), other.transform(X))
    assert np.abs(one.transform(X) - third.transform(X)).max() > 1e-3
    assert one.loss_curve_.shape == (3,)


@every_kind
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_file_holds_the_learner(kind, dtype, tmp_path):
    X = wine(dtype)
    learner = kind(2, hidden=(7, 4), max_iter=3, random_state=0).fit(X)
    learner.save(tmp_path / "learner.safetensors")
    again = kind.load(tmp_path / "learner.safetensors")
    assert again.get_params() == learner.get_params()
    assert again.transform(X).dtype == dtype
    np.testing.assert_array_equal(again.transform(X), learner.transform(X))
    np.testing.assert_array_equal(again.reconstruction_error(X), learner.reconstruction_error(X))
    np.testing.assert_array_equal(again.loss_curve_, learner.loss_curve_)
    other = next(k for k in KINDS if k is not kind)
    with pytest.raises(ValueError, match=f"holds {kind.__name__}, not {other.__name__}"):
        other.load(tmp_path / "learner.safetensors")
    assert type(clone(again).fit(X)) is kind


@pytest.mark.filterwarnings("error")
def test_file_holds_the_names_of_the_columns(tmp_path):
    table = pytest.importorskip("pandas").DataFrame(wine(), columns=[f"x{k}" for k in range(13)])
    learner = Autoencoder(2, max_iter=1).fit(table)
    learner.save(tmp_path / "x")
    again = Autoencoder.load(tmp_path / "x")
    assert again.feature_names_in_.dtype == learner.feature_names_in_.dtype
    np.testing.assert_array_equal(again.feature_names_in_, table.columns)
    np.testing.assert_array_equal(again.transform(table), learner.transform(table))


def test_a_generator_is_a_seed_as_for_every_learner():
    one, other, third = (
        Autoencoder(2, max_iter=2, random_state=np.random.default_rng(seed)).fit_transform(wine()) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, other)
    assert (one != third).any()


def test_integers_of_numpy_are_sizes():
    plain, numbers = ({"max_iter": i(2), "batch_size": i(64), "hidden": i(2)} for i in (int, np.int64))
    codes = [Autoencoder(2, random_state=0, **how).fit(wine()).transform(wine()) for how in (plain, numbers)]
    np.testing.assert_array_equal(*codes)


def test_a_file_that_is_read_draws_nothing(tmp_path):
    Autoencoder(2, max_iter=1).fit(wine()).save(tmp_path / "x")
    before = torch.get_rng_state()
    Autoencoder.load(tmp_path / "x")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda arrays: arrays.pop("fit/mean_"), "it lacks mean_"),
        (lambda arrays: arrays["net/encoder.0.weight"].fill(np.nan), r"net/encoder.0.weight is not finite numbers"),
        (lambda arrays: arrays.pop("net/encoder.0.weight"), "Missing key"),
    ],
)
def test_files_that_lack_something_are_one_line(tmp_path, change, words):
    Autoencoder(2, max_iter=1).fit(wine()).save(tmp_path / "x")
    arrays, text = tensor_file.read(tmp_path / "x")
    change(arrays)
    tensor_file.write(tmp_path / "x", arrays, text)
    with pytest.raises(ValueError, match=rf"x holds no Autoencoder of this version: .*{words}") as raised:
        Autoencoder.load(tmp_path / "x")
    assert "\n" not in str(raised.value)


def test_files_of_other_kinds_are_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    for text in ({}, {"format": "nearfar-network-1", "class": "TripletLoss"}, {"format": "nearfar-network-1"}):
        tensor_file.write(path, {"a": np.zeros(1)}, text)
        with pytest.raises(ValueError, match="holds no network learner"):
            Autoencoder.load(path)
    learner = Autoencoder(2, max_iter=1, random_state=np.random.RandomState(0)).fit(wine())
    with pytest.raises(ValueError, match=r"random_state=.* cannot be saved"):
        learner.save(path)


def test_widths_and_verbosity(capsys):
    assert widths(64, 4, 2) == [64, 25, 10, 4]
    assert widths(3, 100, 1) == [3, 17, 100]
    learner = Autoencoder(2, max_iter=2, verbose=True, random_state=0).fit(wine())
    assert capsys.readouterr().out.count("Autoencoder: epoch") == 2
    assert make_pipeline(learner).fit_transform(wine()).shape == (178, 2)


@pytest.mark.slow
def test_a_fit_ends_ten_passes_after_its_last_gain():
    how = {"max_iter": 60, "learning_rate": 0.01, "random_state": 0}
    curve = Autoencoder(2, tol=0.0, **how).fit(wine()).loss_curve_
    assert len(curve) == 60
    stopped = Autoencoder(2, tol=0.1, **how).fit(wine())
    best, since, passes = np.inf, 0, 0
    while since < 10 and passes < 60:
        gained = curve[passes] < best * (1 - 0.1)
        best, since = (curve[passes], 0) if gained else (best, since + 1)
        passes += 1
    assert 10 < stopped.n_iter_ == passes < 60
    np.testing.assert_array_equal(stopped.loss_curve_, curve[:passes])


@pytest.mark.parametrize(
    ("text", "drop", "word"),
    [
        ({"settings": None}, "-", "'settings'"),
        ({"settings": '{"depth": 3}'}, "-", "unexpected keyword argument 'depth'"),
        ({"settings": '{"n_components": 3}'}, "-", "size mismatch"),
        ({"fitted": "nope"}, "-", "Expecting value"),
        ({"fitted": '{"transform": 1}'}, "-", "'transform' is no fitted attribute"),
        ({}, "net/", "it has no weights"),
    ],
)
def test_half_a_learner_is_refused_in_one_line(tmp_path, text, drop, word):
    path = tmp_path / "learner.safetensors"
    Autoencoder(2, max_iter=1, random_state=0).fit(wine()).save(path)
    arrays, told = tensor_file.read(path)
    arrays = {name: value for name, value in arrays.items() if not name.startswith(drop)}
    tensor_file.write(path, arrays, {name: value for name, value in (told | text).items() if value is not None})
    with pytest.raises(ValueError, match=rf"(?s)learner\.safetensors holds no Autoencoder of this version: .*{word}"):
        Autoencoder.load(path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 0}, "n_components must be at least 1, got 0"),
        ({"learning_rate": "fast"}, "learning_rate must be a number; got 'fast'"),
        ({"tol": float("inf")}, "tol must be at least 0, got inf"),
        ({"hidden": -1}, "hidden must be an integer of at least 0, or a sequence of sizes of at least 1, got -1"),
        ({"hidden": (4, 0)}, r"hidden must be .* got \(4, 0\)"),
        ({"hidden": "deep"}, "hidden must be .* got 'deep'"),
        ({"activation": "swish"}, "activation must be one of 'relu', 'tanh', 'sigmoid', 'identity'; got 'swish'"),
        ({"penalty": "l2"}, "penalty must be one of 'weights_l2', .*; got 'l2'"),
        ({"reg": -1.0}, "reg must be at least 0"),
        ({"learning_rate": 1e200, "max_iter": 9}, "the loss is (nan|inf) in epoch .; lower learning_rate"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=f"Autoencoder: {message}"):
        Autoencoder(**{"random_state": 0, **settings}).fit(wine())


# Denoising autoencoder


@pytest.mark.parametrize("noise", NOISES)
def test_without_noise_it_is_the_plain_autoencoder_bit_for_bit(noise):
    X = wine()
    how = {"max_iter": 4, "random_state": 3, "reg": 0.01}
    plain, quiet = Autoencoder(2, **how).fit(X), DenoisingAutoencoder(2, noise=noise, level=0, **how).fit(X)
    np.testing.assert_array_equal(quiet.transform(X), plain.transform(X))
    np.testing.assert_array_equal(quiet.loss_curve_, plain.loss_curve_)
    loud = DenoisingAutoencoder(2, noise=noise, **how).fit(X)
    assert np.abs(loud.transform(X) - plain.transform(X)).max() > 1e-3


def wiener(X, sigma):
    cov = np.cov(X.T, bias=True)
    return cov @ np.linalg.inv(cov + sigma**2 * np.eye(len(cov)))


def test_least_squares_on_noisy_copies_is_the_wiener_filter():
    X = torch.from_numpy(wine() - wine().mean(0))
    draws = torch.Generator().manual_seed(0)
    noisy = torch.cat([corrupt(X, "gaussian", 0.7, draws, X[0], X[0]) for _ in range(1000)])
    W = torch.linalg.lstsq(noisy, X.repeat(1000, 1)).solution.T
    expected = wiener(X.numpy(), 0.7)
    np.testing.assert_allclose(W.numpy(), expected, atol=0.01)
    assert np.linalg.eigvalsh(expected).max() < 1


@pytest.mark.slow
def test_linear_denoising_autoencoder_tends_to_the_wiener_filter():
    X = wine()[:, :5]
    X = X - X.mean(0)
    how = {**LINEAR, "learning_rate": 3e-3}
    learner = DenoisingAutoencoder(5, level=0.7, max_iter=900, batch_size=178, **how).fit(X)
    W, expected = matrix(learner).numpy(), wiener(X, 0.7)
    np.testing.assert_allclose(W, expected, atol=0.08)
    assert np.abs(W - np.eye(5)).max() > 0.3
    assert np.abs(np.linalg.eigvals(W)).max() < 1


@pytest.mark.slow
def test_fully_masked_rows_give_the_mean():
    X = wine() + 5
    learner = DenoisingAutoencoder(2, noise="masking", level=1.0, **{**LINEAR, "max_iter": 200}).fit(X)
    masked = learner.inverse_transform(learner.transform(X.mean(0)[None]))
    np.testing.assert_allclose(masked[0], X.mean(0), atol=0.1)


def test_noise_is_what_it_says():
    x, draws = tensor(4000, 3), torch.Generator().manual_seed(0)
    low, high = x.amin(0), x.amax(0)
    gauss = corrupt(x, "gaussian", 0.5, draws, low, high) - x
    assert gauss.std().item() == pytest.approx(0.5, rel=0.02)
    masked = corrupt(x, "masking", 0.2, draws, low, high)
    assert (masked == 0).double().mean().item() == pytest.approx(0.2, abs=0.02)
    assert ((masked == 0) | (masked == x)).all()
    salted = corrupt(x, "salt_pepper", 0.2, draws, low, high)
    assert (salted == low).double().mean().item() == pytest.approx(0.1, abs=0.02)
    assert (salted == high).double().mean().item() == pytest.approx(0.1, abs=0.02)
    again = corrupt(x, "gaussian", 0.5, torch.Generator().manual_seed(0), low, high) - x
    torch.testing.assert_close(again, gauss)


@pytest.mark.slow
def test_denoising_takes_noise_off_real_images():
    X = load_digits().data[:800] / 16
    rng = np.random.default_rng(0)
    noisy = X + 0.3 * rng.normal(size=X.shape)
    how = {
        "n_components": 24,
        "hidden": 1,
        "max_iter": 30,
        "learning_rate": 3e-3,
        "standardize": False,
        "random_state": 0,
    }
    plain = Autoencoder(**how).fit(X[:600])
    trained = DenoisingAutoencoder(level=0.3, **how).fit(X[:600])
    errors = [((one.reconstruct(noisy[600:]) - X[600:]) ** 2).mean() for one in (trained, plain)]
    assert errors[0] < errors[1] < 0.3**2


def test_denoising_settings_are_named():
    for settings, message in (
        ({"noise": "rain"}, "noise must be one of 'gaussian', 'masking', 'salt_pepper'; got 'rain'"),
        ({"noise": "masking", "level": 1.5}, "level must be at most 1 for masking"),
        ({"level": -1}, "level must be at least 0"),
    ):
        with pytest.raises(ValueError, match=f"DenoisingAutoencoder: {message}"):
            DenoisingAutoencoder(**settings).fit(wine())


# Variational autoencoder


def test_divergence_equals_the_distributions_of_torch():
    mu, logvar = tensor(), tensor(seed=1)
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(normal(mu, (logvar / 2).exp()), normal(0.0, 1.0)).sum(1)
    torch.testing.assert_close(divergence(mu, logvar), expected)
    assert (divergence(mu, logvar) > 0).all()
    assert (divergence(mu * 0, logvar * 0) == 0).all()


@pytest.mark.parametrize("far", [-1e3, 1e3])
def test_a_variance_beyond_its_limits_is_led_back(far):
    """Features that are not standardized can begin there; without a gradient, the code would remain noise."""
    network = Codec([3, 2], "relu", outputs=2)
    x, e = torch.randn(8, 3), torch.randn(8, 2)
    bias = network.encoder[-1].bias
    bias.data[2:] = far
    variational_autoencoder(network, x, e, 1.0).backward()
    assert (bias.grad[2:] * far > 0).all()


def test_without_variance_it_is_the_plain_autoencoder():
    x = tensor()
    network, plain = Codec([5, 4, 3], "relu", outputs=2).double(), Codec([5, 4, 3], "relu").double()
    with torch.no_grad():
        network.encoder[-1].weight[3:], network.encoder[-1].bias[3:] = 0.0, -1e9
        for mine, theirs in zip(network.parameters(), plain.parameters(), strict=True):
            theirs.copy_(mine[: len(theirs)])
    value = variational_autoencoder(network, x, tensor(20, 3, seed=2), beta=0.0)
    torch.testing.assert_close(value, autoencoder(plain, x, "weights_l2", 0.0), rtol=1e-3, atol=0)
    assert variational_autoencoder(network, x, tensor(20, 3), beta=1.0).isfinite()


@pytest.mark.slow
def test_codes_come_close_to_a_standard_normal():
    X = load_digits().data[:600]
    free, held, tight = (
        VariationalAutoencoder(2, beta=beta, max_iter=30, learning_rate=3e-3, random_state=0).fit(X)
        for beta in (0.0, 2.0, 1000.0)
    )
    spread = [np.abs(one.transform(X)).max() for one in (free, held, tight)]
    assert spread[0] > spread[1] > 2 > 1 > spread[2]
    errors = [one.reconstruction_error(X).mean() for one in (free, held, tight)]
    assert errors[0] < errors[1] < errors[2]
    new = held.sample(50, random_state=0)
    assert new.shape == (50, 64)
    assert np.isfinite(new).all()
    np.testing.assert_array_equal(new, held.sample(50, random_state=0))


def test_units_of_many_rows_in_single_precision_are_exact():
    from nearfar.deep.networks.standardize import standard

    X = (1e4 + np.random.default_rng(0).normal(size=(100_000, 2))).astype(np.float32)
    mean, scale = standard(X)
    np.testing.assert_allclose(mean, X.mean(0, dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(scale, X.std(0, dtype=np.float64), rtol=1e-6)
    assert mean.dtype == scale.dtype == np.float32


def test_a_learner_of_a_missing_device_is_loaded_on_the_cpu(tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 4))
    learner = Autoencoder(2, max_iter=2, random_state=0).fit(X)
    codes = learner.transform(X)
    learner.device = "cuda:99"
    learner.save(tmp_path / "learner.safetensors")
    with pytest.warns(UserWarning, match="saved with device='cuda:99', which this machine lacks; it uses the CPU"):
        loaded = Autoencoder.load(tmp_path / "learner.safetensors")
    assert loaded.device == "cpu"
    assert np.array_equal(loaded.transform(X), codes)


@pytest.mark.parametrize("device", ["cuda:99", "gpu"])
def test_a_device_that_is_missing_is_named_in_one_line(device):
    with pytest.raises(ValueError, match=f"^Autoencoder: device: expected a device of this machine.*got '{device}'$"):
        Autoencoder(2, device=device).fit(np.eye(4))
