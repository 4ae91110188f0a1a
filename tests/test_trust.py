"""Files of strangers run no code: what they name is neither imported nor called unless its module is trusted."""

import copy
import json
import pickle
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone

torch = pytest.importorskip("torch")

import nearfar
from nearfar.data import open_dataset
from nearfar.deep.networks import weights
from nearfar.deep.networks.trunks import make_trunk
from nearfar.deep.objective.parser import ObjectiveError, parse_objective
from nearfar.deep.samplers.resolve import make_sampler
from nearfar.io import tensor_file as storage
from nearfar.models import load_embedder
from nearfar.train import DeepMetric, TrainConfig, TrainError, embed_run, evaluate_run, train
from nearfar.train.checkpoint import load_tensors, save_tensors
from nearfar.train.compare import train_and_compare
from nearfar.trust import VARIABLE, OwnCodeError, TrustError, import_own, modules_of, trusting

from .commands import run

STRANGER = """
import pathlib
pathlib.Path({mark!r}).touch()
from os import system
from nearfar.deep.losses.triplet import TripletLoss
from nearfar.deep.samplers.random import RandomBatchSampler
from torch import nn

def trunk(shape):
    return nn.Linear(shape[0], 8)

class Trunk(nn.Linear):
    def __init__(self, shape):
        super().__init__(shape[0], 8)

class Loss(TripletLoss):
    pass

class Sampler(RandomBatchSampler):
    pass

class Miner:
    def __call__(self, rows):
        return rows

class Called:
    def __init__(self, text="None"):
        eval(text)

    def __call__(self, anything):
        return anything
"""


@pytest.fixture
def mark(tmp_path, monkeypatch):
    """A file that the module `stranger` makes where it is imported, and that the texts below make."""
    mark, folder = tmp_path / "mark", tmp_path / "modules"
    folder.mkdir()
    (folder / "stranger.py").write_text(STRANGER.format(mark=str(mark)))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "stranger", raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)
    yield mark
    sys.modules.pop("stranger", None)


def sympy_text(mark, module="sympy"):
    """The text of a class that runs what it is given as it is made."""
    code = f"__import__('pathlib').Path('{mark}').touch() or x"
    return f"{module}:Lambda(signature=\"{code}\", expr='0')"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of one step, rows, and an index that it made."""
    folder = tmp_path_factory.mktemp("trust")
    rng = np.random.default_rng(0)
    np.savez(folder / "rows.npz", X=rng.normal(size=(64, 5)).astype(np.float32), y=np.arange(64) % 8)
    how = {"embedding_dim": 8, "steps": 1, "batch_size": 16, "keep": "trained"}
    config = TrainConfig.of(data=str(folder / "rows.npz"), trunk="identity", **how)
    evaluate_run(train(config, folder / "run", progress=False), clustering=False)
    return folder


@pytest.fixture
def hostile(made, tmp_path):
    """Write a setting into the config of a copy of the run."""

    def write(**settings):
        folder = tmp_path / "run"
        if not folder.exists():
            shutil.copytree(made / "run", folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | settings))
        return folder

    return write


def refused(capsys, monkeypatch, mark, *words, module):
    """Run a command, which must refuse in one line that says what allows it."""
    code, _, err = run(capsys, monkeypatch, *words)
    assert (code, err.count("\n")) == (2, 1), err
    assert "which is code" in err
    assert f"--trust {module} " in err
    assert f"{VARIABLE}={module}" in err
    assert not mark.exists()
    assert len(err) < 700


def fits_again(folder, rows, module):
    """A network that was loaded embeds, but is not fitted again with what a stranger wrote, and a copy neither."""
    metric = DeepMetric.load(folder)
    items = open_dataset(rows)
    assert metric.embed(items).shape == (64, 8)
    for copied in (metric, clone(metric), pickle.loads(pickle.dumps(clone(metric)))):
        with pytest.raises(TrustError, match=f"config.json names {module}.*trust='{module}'"):
            copied.fit(items.array, items.labels)


@pytest.mark.parametrize("module", ["sympy", "stranger"])
@pytest.mark.parametrize("command", ["embed", "evaluate", "evaluate data", "report", "export", "index", "resume"])
def test_the_trunk_of_a_run_is_not_called(made, hostile, mark, capsys, monkeypatch, tmp_path, command, module):
    trunk = "stranger:trunk" if module == "stranger" else sympy_text(mark)
    folder, rows, out = hostile(trunk=trunk), made / "rows.npz", tmp_path / "out.npz"
    words = {
        "embed": ("embed", folder, rows, "-o", out),
        "evaluate": ("evaluate", folder),
        "evaluate data": ("evaluate", folder, rows, "--protocol", "verification"),
        "report": ("report", folder, rows),
        "export": ("export", folder, "-o", tmp_path / "out.onnx"),
        "index": ("index", folder, rows, "-o", tmp_path / "out.index"),
        "resume": ("train", "--resume", "--out", folder),
    }[command]
    refused(capsys, monkeypatch, mark, *words, module=module)
    assert not out.exists()


def test_the_run_that_an_index_names_is_not_called(made, hostile, mark, capsys, monkeypatch, tmp_path):
    folder, index = hostile(), tmp_path / "photos.index"
    assert run(capsys, monkeypatch, "index", folder, made / "rows.npz", "-o", index)[0] == 0
    hostile(trunk=sympy_text(mark))
    refused(capsys, monkeypatch, mark, "search", index, made / "rows.npz", module="sympy")
    hostile(trunk="stranger:Trunk")
    refused(capsys, monkeypatch, mark, "search", index, made / "rows.npz", module="stranger")
    refused(capsys, monkeypatch, mark, "index", folder, made / "rows.npz", "-o", index, "--add", module="stranger")


@pytest.mark.parametrize(
    "objective",
    [
        "stranger:Loss()",
        "TripletLoss(miner=stranger:Miner())",
        "HORDE(embedding_dim=8, loss='stranger:Loss()')",
        "sympy",
    ],
)
def test_the_objective_of_a_run_is_not_built(made, hostile, mark, capsys, monkeypatch, objective):
    module = objective if objective == "sympy" else "stranger"
    folder = hostile(objective=f"TripletLoss(miner={sympy_text(mark)})" if module == "sympy" else objective)
    words = ("evaluate", folder, "--protocol", "few-shot", "--classifier", "scores")
    refused(capsys, monkeypatch, mark, *words, module=module)
    refused(capsys, monkeypatch, mark, "train", "--resume", "--out", folder, module=module)
    refused(capsys, monkeypatch, mark, "train", "--resume", "--out", folder, "--epochs", "9", module=module)
    fits_again(folder, made / "rows.npz", module)
    embedded = embed_run(folder, made / "rows.npz")  # which needs no objective
    assert embedded.shape == (64, 8)
    assert not mark.exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"trunk": "identity", "text_trunk": "stranger:trunk"},
        {"trunk": "identity", "objective": "stranger:Loss()"},
        {"trunk": "identity", "sampler": "stranger:Sampler()"},
        {"trunk": "stranger:trunk"},
        {"trunk": "identity", "network_weights": "elsewhere"},
        {"trunk": "identity", "pretrained": "elsewhere.pth"},
    ],
)
def test_a_checkpoint_says_of_raw_inputs_only_how_they_are_read(hostile, mark, settings):
    """The settings of a checkpoint name no code, whose trust `config.json` would not limit, and no file."""
    path = hostile() / "best.safetensors"
    tensors, about = load_tensors(path)
    save_tensors(path, tensors, {**about, "settings": settings, "text_length": 5})
    for load in (DeepMetric.load, load_embedder):
        with pytest.raises(TrainError, match="the settings of its network must be those of raw inputs"):
            load(path.parent)
    assert not mark.exists()


@pytest.mark.parametrize("field", ["trunk", "augment"])
def test_a_resumed_run_takes_over_texts_as_those_of_its_file(made, hostile, mark, field):
    """Settings that are typed do not vouch for those that a run adds to them."""
    folder = hostile(**{field: {"trunk": "stranger:trunk", "augment": "stranger:Mirror"}[field]})
    typed = TrainConfig.of(data=str(made / "rows.npz"), embedding_dim=8, steps=1, batch_size=16, keep="trained")
    with pytest.raises(ValueError, match=r"names stranger:trunk, which is code|unknown transform 'stranger:Mirror'"):
        train(typed, folder, resume=True, progress=False)
    assert not mark.exists()


def test_a_network_that_was_loaded_vouches_for_nothing(made, hostile, mark, tmp_path):
    """Every way from a loaded estimator to another training still knows the file that its objective is from."""
    folder = hostile(objective="stranger:Loss()", sampler="stranger:Sampler()")
    metric = DeepMetric.load(folder)
    items = open_dataset(made / "rows.npz")
    others = [
        DeepMetric(**metric.get_params()),
        copy.deepcopy(metric),
        clone(metric).set_params(lr=0.1, trunk="identity"),
        clone(metric).set_params(objective="TripletLoss()"),  # the sampler remains
        pickle.loads(pickle.dumps(metric)),
    ]
    metric.save(tmp_path / "saved")
    others.append(DeepMetric.load(tmp_path / "saved"))
    for other in others:
        with pytest.raises(TrustError, match="which is code"):
            other.fit(items.array, items.labels)
    for config in (metric.config_, metric.config_.replace(data=str(made / "rows.npz"))):
        with pytest.raises(TrustError, match="which is code"):
            train(config, tmp_path / "new", progress=False)
    with pytest.raises(TrustError, match="which is code"):
        train_and_compare(metric.config_, [metric.objective], [0], tmp_path / "compared")
    with pytest.raises(TrustError, match="which is code"):
        train_and_compare(TrainConfig.of(data=str(made / "rows.npz")), [metric.objective], [0], tmp_path / "compared")
    assert not mark.exists()


def test_the_sampler_of_a_run_is_not_built(made, hostile, mark, capsys, monkeypatch):
    folder = hostile(sampler="stranger:Sampler()")
    refused(capsys, monkeypatch, mark, "train", "--resume", "--out", folder, module="stranger")
    fits_again(folder, made / "rows.npz", "stranger")
    assert not mark.exists()


def test_a_config_that_is_read_stays_what_a_file_says(hostile, mark, tmp_path):
    path = hostile(objective="stranger:Loss()") / "config.json"
    read = TrainConfig.from_json(path)
    for config in (read, read.replace(epochs=1, seed=3), read.replace(trunk="mlp")):
        with pytest.raises(TrustError, match="names stranger:Loss"):
            train(config, tmp_path / "new", progress=False)
    assert not mark.exists()
    assert not (tmp_path / "new").exists()
    assert "origin" not in json.loads(read.to_json())
    (tmp_path / "other.json").write_text(json.dumps({"data": "digits", "origin": None}))
    with pytest.raises(ValueError, match="unknown setting 'origin'"):
        TrainConfig.from_json(tmp_path / "other.json")


@pytest.mark.slow
def test_a_comparison_takes_nothing_from_the_folders_that_it_finds(made, mark, capsys, monkeypatch, tmp_path):
    words = ("compare", made / "rows.npz", "--objective", "TripletLoss()", "--seeds", "1", "--out", tmp_path / "cmp")
    words += ("--set", "steps=1", "--set", "trunk=identity", "--set", "batch_size=16", "--set", "embedding_dim=8")
    assert run(capsys, monkeypatch, *words)[0] == 0
    (folder,) = (path.parent for path in (tmp_path / "cmp").glob("*/config.json"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"trunk": "stranger:trunk"}))
    (folder / "scores.json").unlink()
    code, _, err = run(capsys, monkeypatch, *words)
    assert (code, err.count("\n")) == (2, 1)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["stranger:Loss", "sympy:Lambda", "TripletLoss", "os:system"])
def test_a_saved_learner_names_only_the_catalog(made, mark, capsys, monkeypatch, tmp_path, name):
    file = tmp_path / "learner.safetensors"
    arrays = {"fit/components_": np.eye(5)}
    text = {"format": "nearfar-learner-1", "settings": "{}", "fitted": json.dumps({"n_features_in_": 5})}
    inner = json.dumps({"learner": {"class": name, "settings": {}}})
    for wrong in ({"class": name}, {"class": "Kernelized", "settings": inner}):
        storage.write(file, arrays, text | wrong)
        code, _, err = run(capsys, monkeypatch, "embed", file, made / "rows.npz", "-o", tmp_path / "out.npz")
        assert (code, err.count("\n")) == (2, 1)
        assert not mark.exists()


@pytest.mark.parametrize("how", ["option", "environment", "argument", "package"])
def test_a_trusted_module_runs(made, hostile, mark, capsys, monkeypatch, tmp_path, how):
    folder, words = (
        hostile(trunk="stranger:Trunk"),
        ["embed", tmp_path / "run", made / "rows.npz", "-o", tmp_path / "o.npz"],
    )
    arrays = load_embedder(made / "run").state_dict()
    own = {"trunk.module.weight": torch.zeros(8, 5), "trunk.module.bias": torch.zeros(8)}
    own |= {name: torch.zeros(8, 8) if name == "layer.weight" else arrays[name] for name in arrays}
    rewrite(folder / "best.safetensors", own)
    if how == "option":
        assert run(capsys, monkeypatch, *words, "--trust", "other,stranger")[0] == 0
    elif how == "environment":
        monkeypatch.setenv(VARIABLE, "other, stranger")
        assert run(capsys, monkeypatch, *words)[0] == 0
    elif how == "argument":
        assert load_embedder(folder, trust="stranger") is not None
    else:
        with trusting("stranger"):
            assert load_embedder(folder) is not None
    assert mark.exists()


def rewrite(path, tensors):
    from nearfar.train.checkpoint import read_about, save_tensors

    save_tensors(path, {f"embedder.{name}": value for name, value in tensors.items()}, read_about(path))


def test_what_is_typed_needs_no_trust_also_where_the_run_is_scored(made, mark, capsys, monkeypatch, tmp_path):
    words = ["train", made / "rows.npz", "--trunk", "stranger:trunk", "--sampler", "stranger:Sampler()", "--quiet"]
    words += ["--objective", "stranger:Loss(miner=stranger:Miner())", "--set", "steps=1", "--batch-size", "16"]
    code, _, err = run(capsys, monkeypatch, *words, "--out", tmp_path / "own")
    assert code == 0, err
    assert mark.exists()
    code, _, err = run(capsys, monkeypatch, "train", "--resume", "--out", tmp_path / "own")
    assert (code, "--trust stranger" in err) == (2, True)
    code, _, err = run(
        capsys, monkeypatch, "train", "--resume", "--out", tmp_path / "own", "--trust", "stranger", "--quiet"
    )
    assert code == 0, err
    metric = DeepMetric.load(tmp_path / "own", trust="stranger")
    assert metric.objective == words[words.index("--objective") + 1]


def test_what_is_typed_is_looked_at_before_it_is_called(mark, monkeypatch):
    text, shape = sympy_text(mark, "sympy.core.function"), (5,)
    for objective in (f"TripletLoss(miner={text})", text, "TripletLoss(miner=stranger:Called(text='1/0'))"):
        with pytest.raises(ObjectiveError, match=r"expected a class of losses or miners, or of modules, got the class"):
            parse_objective(objective)
    for trunk in (text, sympy_text(mark), "stranger:Called(text='1/0')", "stranger:system"):
        with pytest.raises(ValueError, match="expected a class of modules, or a function"):
            make_trunk(trunk, shape)
    for sampler in (text, "stranger:Called(text='1/0')", "stranger:system", "stranger:trunk"):
        with pytest.raises(ValueError, match=r"expected a subclass of .*BatchSampler, got"):
            make_sampler(sampler, [0, 0, 1, 1], 2)
    mark.unlink()  # the typed module was imported
    with pytest.raises(OwnCodeError, match="no attribute 'Missing'"):
        import_own("stranger:Missing", lambda found, module: True, "anything")
    assert not mark.exists()


@pytest.mark.parametrize("where", ["folder", "site-packages", "dist-packages"])
@pytest.mark.parametrize("text", ["made:make", "made:wrapped", "made:partly", "made:generated"])
def test_functions_of_installed_packages_are_not_called(monkeypatch, tmp_path, where, text):
    folder = tmp_path / where
    folder.mkdir()
    lines = [
        "from functools import lru_cache, partial, wraps",
        "from torch import nn, no_grad",
        "def make(shape, width=2):",
        "    return nn.Linear(*shape, width)",
        "wrapped = no_grad()(make)",
        "partly = partial(make, width=3)",
        "exec('def generated(shape):\\n    return nn.Identity()')",
    ]
    (folder / "made.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "made", raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)
    if where == "folder" and not text.endswith("generated"):
        assert make_trunk(text, (5,)).num_features in (2, 3)
        return
    with pytest.raises(ValueError, match=r"expected a class of modules, or a function .*; trust= if it is installed"):
        make_trunk(text, (5,))
    with trusting("made"):
        assert make_trunk(text, (5,)).num_features in (2, 3, 5)


@pytest.mark.parametrize(
    "text",
    ["sympy:nsimplify(rational='1/0')", "shutil:rmtree", "timeit:timeit", "numpy.testing:rundocs", "pickle:loads"],
)
def test_functions_of_libraries_are_not_called(text):
    with pytest.raises(ValueError, match="expected a class of modules, or a function"):
        make_trunk(text, (5,))


def test_names_of_modules_are_checked(capsys, monkeypatch, made, tmp_path):
    assert modules_of(["a.b, c", "d"]) == ("a.b", "c", "d")
    words = ("embed", made / "run", made / "rows.npz", "-o", tmp_path / "out.npz", "--trust", "*")
    code, _, err = run(capsys, monkeypatch, *words)
    assert code == 2
    assert "trust: expected names of modules such as mylosses, got '*'" in err


@pytest.mark.parametrize(("version", "safe"), [("2.4.1", False), ("2.9.1+cpu", False), ("2.10.0", True), ("3.0", True)])
def test_pickled_weights_need_a_safe_version_of_torch(monkeypatch, tmp_path, version, safe):
    path = tmp_path / "weights.pth"
    path.write_bytes(b"no pickle")
    monkeypatch.setattr(weights.torch, "__version__", version)
    expected = "not readable as weights" if safe else r"use PyTorch 2\.10 or newer, or weights as \.safetensors"
    with pytest.raises(weights.TrunkError, match=expected):
        weights.load_weights(torch.nn.Linear(2, 2), path)


def test_nothing_unpickles_what_a_file_holds():
    """`torch.load` stands behind the check of its version only, and NumPy reads no objects."""
    unsafe = re.compile(
        r"torch\.load\(|allow_pickle=True|\bpickle\.loads?\(|joblib\.load\(|yaml\.load\(|trust_remote_code=True"
    )
    source = Path(nearfar.__file__).parent
    found = {path.relative_to(source).as_posix() for path in source.rglob("*.py") if unsafe.search(path.read_text())}
    assert found == {"deep/networks/weights.py"}
    loads = [line for path in source.rglob("*.py") for line in path.read_text().splitlines() if "np.load(" in line]
    assert loads
    assert all("allow_pickle=False" in line for line in loads)


@pytest.mark.parametrize("kind", ["folder", "name"])
def test_transformers_is_told_to_run_no_code(monkeypatch, tmp_path, kind):
    asked = []

    def made(*given, **options):
        asked.append(options)
        raise ValueError("stop here")

    package = SimpleNamespace(
        AutoModel=SimpleNamespace(from_pretrained=made, from_config=made),
        AutoConfig=SimpleNamespace(for_model=lambda name, **options: name),
    )
    monkeypatch.setitem(sys.modules, "transformers", package)
    name = str(tmp_path) if kind == "folder" else "vit"
    with pytest.raises(weights.TrunkError, match="stop here"):
        make_trunk(f"transformers:{name}(num_hidden_layers=2)", (3, 32, 32))
    assert [options["trust_remote_code"] for options in asked] == [False]
    monkeypatch.setattr(weights.torch, "__version__", "2.9.0")
    with pytest.raises(weights.TrunkError, match="stop here"):
        make_trunk(f"transformers:{tmp_path}", (3, 32, 32))
    assert asked[-1]["use_safetensors"] is True


@pytest.mark.parametrize(
    "option",
    [
        "trust_remote_code=True",
        "auto_map={'AutoModel': 'a--b.C'}",
        "attn_implementation='stranger/kernel'",
        "use_safetensors=False",
        "code_revision='main'",
        "use_kernels=True",
    ],
)
def test_options_by_which_other_packages_run_code_are_refused(option):
    for name in ("transformers:vit", "timm:resnet18"):
        with pytest.raises(
            weights.TrunkError, match=f"{option.partition('=')[0]} is refused, because files must not run code"
        ):
            make_trunk(f"{name}({option})", (3, 32, 32))
