"""The command line as a person meets it: what it prints, what it leaves behind, how it ends."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from docstring_parser import parse_from_object
from sklearn.datasets import load_digits

pytest.importorskip("torch")

import nearfar
import nearfar.evaluation
from nearfar import cli
from nearfar.catalog import METHODS
from nearfar.cli.given import make_config
from nearfar.data import images_from, open_dataset
from nearfar.deep.networks.weights import pickles_are_safe
from nearfar.extras import NEEDS, PACKAGES, hint
from nearfar.index import Index
from nearfar.train import recipe_names
from nearfar.train.papers.paper_tables import table_names
from nearfar.workflows.listing import description
from nearfar.workflows.reporting import pictures_of

from . import forking
from .commands import run

COMMANDS = tuple(name for name in cli.app if not name.startswith("-"))
SMALL = ["--trunk", "conv4(width=8)", "--set", "image_size=16", "--sampler", "random", "--batch-size", "32"]
SMALL += ["--set", "steps=3", "--quiet"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A run of three steps on the digits."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    forking.run("-m", "nearfar", "train", "digits", "--out", folder, *SMALL).check_returncode()
    return folder


@pytest.fixture(scope="module")
def scored(digits, tmp_path_factory):
    """The run on the digits with its scores."""
    folder = tmp_path_factory.mktemp("scored") / "run"
    shutil.copytree(digits, folder)
    forking.run("-m", "nearfar", "evaluate", folder).check_returncode()
    return folder


def test_the_help_of_training_tells_what_holds_where_nothing_is_given(capsys, monkeypatch):
    from nearfar.train import TrainConfig

    config = TrainConfig.of(data="digits")
    _, out, _ = run(capsys, monkeypatch, "train", "--help")
    told = (
        f"{config.objective}, {config.embedding_dim} dimensions, batches of {config.batch_size}, {config.epochs} epochs"
    )
    assert f"{told}, learning rate {config.lr}, seed {config.seed}." in " ".join(out.split())


def test_help_loads_nothing_heavy():
    code = "import sys; from nearfar.cli import app; app('--help'.split(), exit_on_error=False)"
    heavy = "print(sorted({'numpy', 'torch', 'sklearn', 'matplotlib', 'accelerate'} & set(sys.modules)))"
    script = f"import atexit, sys; atexit.register(lambda: {heavy}); {code}"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout
    assert shown.strip().endswith("[]")
    for command in COMMANDS:
        assert command in shown


def test_the_doctor_names_what_is_there_and_what_is_missing(capsys, monkeypatch):
    from nearfar.workflows import diagnosing

    monkeypatch.setattr(diagnosing, "import_error", lambda name: "")  # imports of all packages take seconds
    found = diagnosing.installed
    there = {"timm": None, "torch": "2.10.0+cu130"}
    monkeypatch.setattr(diagnosing, "installed", lambda name: there[name] if name in there else found(name))
    monkeypatch.setattr(diagnosing, "find_spec", lambda name: None if name == "timm" else name)
    code, out, _ = run(capsys, monkeypatch, "doctor")
    assert code == 0
    assert f"numpy             {np.__version__}" in out
    assert "missing: timm (--trunk timm:NAME and transformers:NAME, LoRA): pip install 'nearfar[vision]'" in out
    there["torch"] = "2.10.0+cpu"  # which the line above would replace by another build
    command = (
        "pip install torchvision --index-url https://download.pytorch.org/whl/cpu && pip install 'nearfar[vision]'"
    )
    assert f"LoRA): {command}\n" in run(capsys, monkeypatch, "doctor")[1]


def test_the_doctor_lists_the_weights_in_the_cache_and_where_they_lead(capsys, monkeypatch, tmp_path):
    from nearfar.train import defaults, text_trunks
    from nearfar.workflows import diagnosing

    monkeypatch.setattr(diagnosing, "import_error", lambda name: "")
    monkeypatch.setattr(defaults, "cached_model", lambda: None)
    monkeypatch.setattr(text_trunks, "cached_text_trunk", lambda: "transformers:a folder")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    _, out, _ = run(capsys, monkeypatch, "doctor")
    assert "weights there     none\n" in out
    for name in ("timm--resnet18.a1_in1k", "owner--stopped"):
        snapshot = tmp_path / f"models--{name}" / "snapshots" / "0"
        snapshot.mkdir(parents=True)
        (snapshot / "model.safetensors").symlink_to(tmp_path / name)
    (tmp_path / "timm--resnet18.a1_in1k").write_bytes(b"weights")
    _, out, _ = run(capsys, monkeypatch, "doctor")
    assert "weights there     timm/resnet18.a1_in1k\n" in out
    assert "--trunk auto      photos: conv4, from random weights; texts: transformers:a folder\n" in out


def test_the_doctor_names_what_is_there_and_cannot_be_imported(capsys, monkeypatch, tmp_path):
    from nearfar.workflows import diagnosing

    monkeypatch.setattr(diagnosing, "PACKAGES", {"timm": "vision", "peft": "vision"})
    for name, error in {
        "timm": "RuntimeError('operator torchvision::nms does not exist')",
        "peft": "OSError(5)",
    }.items():
        (tmp_path / f"{name}.py").write_text(f"raise {error}")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    _, out, _ = run(capsys, monkeypatch, "doctor")
    use = "(--trunk timm:NAME and transformers:NAME, LoRA)"
    assert f"cannot be imported: timm {use}: RuntimeError: operator torchvision::nms does not exist\n" in out
    assert f"cannot be imported: peft {use}: OSError: 5\n" in out


@pytest.mark.parametrize("command", sorted(NEEDS))
def test_a_command_names_a_missing_package_before_it_reads_anything(command, capsys, monkeypatch):
    words = {"train": ["--out", "x"], "compare": ["--out", "x"], "report": ["-o", "x"], "export": ["-o", "x.onnx"]}
    for package in NEEDS[command]:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            code, _, err = run(capsys, patch, command, "no/such/data", *words.get(command, []))
        extra = command if command in PACKAGES.values() and package != "torch" else "deep"
        assert (code, err) == (2, f"nearfar: {package} is not installed: pip install 'nearfar[{extra}]'\n")


def test_packages_of_single_settings_are_missed_before_training(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    code, _, err = run(capsys, monkeypatch, "train", "no/such/data", "--out", "x", "--trunk", "timm:x")
    assert (code, err) == (2, "nearfar: timm is not installed: pip install 'nearfar[vision]'\n")


def test_the_doctor_names_a_required_package_that_is_missing(capsys, monkeypatch):
    from nearfar.workflows import diagnosing

    monkeypatch.setattr(diagnosing, "import_error", lambda name: "")
    found, present = diagnosing.installed, diagnosing.find_spec
    gone = {"numpy": "numpy", "scikit-learn": "threadpoolctl"}
    for package, module in gone.items():
        monkeypatch.setattr(
            diagnosing, "installed", lambda name, package=package: None if name == package else found(name)
        )
        monkeypatch.setattr(
            diagnosing, "find_spec", lambda name, module=module: None if name == module else present(name)
        )
        monkeypatch.setitem(sys.modules, module, None)
        code, out, err = run(capsys, monkeypatch, "doctor")
        assert (code, err) == (1, "")
        assert f"{package:<18}missing" in out


def test_the_doctor_says_what_every_extra_is_for():
    from nearfar.extras import PACKAGES
    from nearfar.workflows.diagnosing import NEEDED_BY

    assert set(NEEDED_BY) == set(PACKAGES.values())


def test_what_is_missing_is_in_the_extra_of_the_command():
    missing = ModuleNotFoundError(name="msgspec")
    assert hint(missing, "report") == "msgspec is not installed: pip install 'nearfar[report]'"
    assert hint(missing, "train") == "msgspec is not installed: pip install 'nearfar[deep]'"
    assert hint(ModuleNotFoundError(name="torch"), "report") == "torch is not installed: pip install 'nearfar[deep]'"


def test_embeddings_are_written_under_no_name_of_another_kind(capsys, monkeypatch, tmp_path):
    for name in ("rows.csv", "rows.npy", "rows.index"):
        code, _, err = run(capsys, monkeypatch, "embed", "learner.safetensors", "rows.npz", "-o", tmp_path / name)
        assert (code, "expected a file that ends in .npz" in err) == (2, True)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command, capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, command, "--help")
    assert code == 0
    assert "Example: nearfar" in out


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in ("list", "doctor")])
def test_every_option_has_help(command):
    for argument in cli.app[command].assemble_argument_collection(parse_docstring=True):
        assert argument.children or argument.parameter.help, argument.name


def test_every_text_on_an_option_is_shown():
    for command in COMMANDS:
        known = cli.app[command].assemble_argument_collection(parse_docstring=True)
        shown = {argument.field_info.name: argument.parameter.help for argument in known}
        texts = parse_from_object(cli.app[command].default_command).params
        for text in texts:
            assert shown[text.arg_name.rpartition(".")[2]] == text.description, f"{command}: {text.arg_name}"


def test_list_shows_what_every_method_is(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "list")
    assert code == 0
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines() if line.startswith("  ")}
    assert set(lines) == {method.name for method in METHODS}
    assert lines["LFDA"] == "Local Fisher discriminant analysis (Sugiyama 2007), from labels"
    assert lines["TripletLoss"] == "Triplet loss (Schroff 2015)"
    assert all(line[0] != "(" for line in lines.values())  # each has a title
    assert out.splitlines()[-1].startswith(f"{len(METHODS)} methods; ")


def test_list_shows_every_recipe_below_its_source(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "list", "--recipes")
    recipes, _, tables = out.partition("Tables and figures of papers")
    assert code == 0
    assert set(re.findall(r"\w+/\w+", recipes)) == set(recipe_names())
    assert set(re.findall(r"^  (\w+/\w+)", tables, re.M)) == set(table_names())
    assert (
        recipes.index("Photos with a pretrained network") < recipes.index("photos/finetune") < recipes.index("jrd/cub")
    )


def test_list_shows_one_method_or_those_with_a_part_of_the_name(capsys, monkeypatch):
    for name in ("TripletLoss", "tripletloss"):
        code, out, _ = run(capsys, monkeypatch, "list", name)
        assert code == 0
        assert out.startswith("TripletLoss(margin=None, soft=False, ")
        assert "Schroff 2015" in out
        assert "L = sum over triplets" in out
        assert "swap : bool" in out
    code, out, _ = run(capsys, monkeypatch, "list", "ITML")
    assert (code, out.splitlines()[0][:5]) == (0, "ITML(")
    code, out, _ = run(capsys, monkeypatch, "list", "proxy")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (
        0,
        ["ProxyNCALoss", "ProxyNCAPlusPlusLoss", "ProxyAnchorLoss"],
    )
    for words, message in (
        (["TripletLos_"], "did you mean TripletLoss"),
        (["LMNN", "--recipes"], "does not work with --recipes"),
    ):
        code, _, err = run(capsys, monkeypatch, "list", *words)
        assert code == 2
        assert message in err


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_can_be_shown(method):
    assert description(method).startswith(f"{method.name}(")


@pytest.mark.slow
def test_a_run_is_trained_scored_and_shown(digits, capsys, monkeypatch, tmp_path):
    scores = json.loads((digits / "scores.json").read_text())
    assert 0 < scores["scores"]["recall_at"]["1"] <= 1
    code, out, _ = run(capsys, monkeypatch, "evaluate", digits)
    assert code == 0
    assert "Recall@1" in out
    assert "baseline (raw inputs)" in out
    code, out, _ = run(capsys, monkeypatch, "embed", digits, "digits", "-o", tmp_path / "digits.npz")
    assert code == 0
    arrays = np.load(tmp_path / "digits.npz", allow_pickle=False)
    assert len(arrays["embeddings"]) == len(arrays["labels"]) == 1797
    code, out, _ = run(capsys, monkeypatch, "evaluate", tmp_path / "digits.npz")
    assert code == 0
    assert "MAP@R" in out


def in_a_folder_of_rows(folder, monkeypatch):
    """Go to a new folder that holds rows.npz; returns the options of a short run on them."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    np.savez("rows.npz", X=np.random.default_rng(0).normal(size=(40, 3)), y=np.arange(40) % 4)
    return ["--epochs", "1", "--set", "device=cpu", "--quiet"]


@pytest.mark.slow
def test_a_run_finds_its_data_from_another_folder(capsys, monkeypatch, tmp_path):
    (tmp_path / "there").mkdir()
    options = in_a_folder_of_rows(tmp_path / "here", monkeypatch)
    assert run(capsys, monkeypatch, "train", "rows.npz", "--out", "run", *options)[0] == 0
    scores = Path("run/scores.json").read_text()
    monkeypatch.chdir(tmp_path / "there")
    found = tmp_path / "here" / "run"
    assert json.loads((found / "config.json").read_text())["data"] == "rows.npz"
    verification = ["evaluate", found, "--protocol", "verification"]
    resumed = ["train", "--resume", "--quiet", "--out", found]
    for words in (["evaluate", found], verification, ["report", found], resumed):
        code, _, err = run(capsys, monkeypatch, *words)
        assert (code, err) == (0, "")
    assert (found / "scores.json").read_text() == scores
    (tmp_path / "here" / "rows.npz").unlink()
    code, _, err = run(capsys, monkeypatch, "evaluate", found)
    assert (code, err.count("\n")) == (2, 1)
    assert f"it is not in {tmp_path / 'here'}, where the run was started, either" in err


class OutOfMemoryError(RuntimeError):
    """As PyTorch calls that of accelerators."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "out of memory; "),
        (MemoryError("Unable to allocate 728. TiB"), "out of memory (Unable to allocate 728. TiB); "),
        (OutOfMemoryError("CUDA out of memory.\nTried"), "out of memory (CUDA out of memory. Tried); "),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes"),
            "out of memory (can't allocate memory: 9 bytes); ",
        ),
    ],
)
def test_a_lack_of_memory_is_one_line_that_says_what_takes_less(error, message, capsys, monkeypatch, tmp_path):
    def too_large(*args, **options):
        raise error

    monkeypatch.setattr("nearfar.workflows.training.climb", too_large)
    code, _, err = run(capsys, monkeypatch, "train", "digits", "--out", tmp_path / "run")
    assert (code, err) == (2, f"nearfar: {message}try a smaller --batch-size or --image-size\n")


def test_other_errors_of_the_machine_keep_their_trace(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(
        "nearfar.workflows.training.climb", lambda *args, **options: None
    )  # no run, which the library then misses
    with pytest.raises(AttributeError, match="'NoneType' object"):
        run(capsys, monkeypatch, "train", "digits", "--out", tmp_path / "run")


def test_a_run_finds_its_first_weights_from_another_folder(capsys, monkeypatch, tmp_path):
    options = [*in_a_folder_of_rows(tmp_path / "here", monkeypatch), "--set", "keep=trained"]
    assert run(capsys, monkeypatch, "train", "rows.npz", "--out", "first", *options)[0] == 0
    first = ["--set", "pretrained=first/best.safetensors"]
    assert run(capsys, monkeypatch, "train", "rows.npz", "--out", "second", *options, *first)[0] == 0
    monkeypatch.chdir(tmp_path)
    for more in ([], ["--epochs", "2"]):
        code, _, err = run(capsys, monkeypatch, "train", "--resume", "--quiet", "--out", "here/second", *more)
        assert (code, err) == (0, "")


@pytest.mark.slow
def test_classes_of_one_item_each_are_for_proxies(capsys, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "lone.npz", X=rng.normal(size=(8, 3)), y=np.arange(8))
    words = [
        "train",
        tmp_path / "lone.npz",
        "--epochs",
        "1",
        "--set",
        "device=cpu",
        "--quiet",
        "--out",
        tmp_path / "run",
    ]
    code, _, err = run(capsys, monkeypatch, *words)
    assert (code, err.count("\n")) == (2, 1)
    assert "no training class has two items, which SupConLoss needs" in err
    assert not (tmp_path / "run").exists()
    code, out, _ = run(capsys, monkeypatch, *words, "--objective", "ProxyNCALoss() + 0.1*TripletLoss()")
    assert code == 0

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    for path in (tmp_path / "run").glob("*.json*"):
        for line in [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines():
            json.loads(line, parse_constant=refuse)
    written = json.loads((tmp_path / "run" / "scores.json").read_text())["scores"]
    assert written["map_at_r"] is None
    scores = nearfar.evaluation.Scores.from_dict(written)
    _, out, _ = run(capsys, monkeypatch, "evaluate", tmp_path / "run")
    assert f"\n{scores}\n" in out
    assert scores.why_unscored() in out
    assert run(capsys, monkeypatch, "report", tmp_path / "run")[0] == 0


def test_images_of_another_size_are_refused_by_a_network_of_pixels(capsys, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    for name, sides in (("wide", (6, 9)), ("square", (8, 8))):
        images = rng.integers(0, 256, (16, *sides), dtype=np.uint8)
        np.savez(tmp_path / f"{name}.npz", X=images, y=np.arange(16) % 4)
    options = ["--trunk", "mlp", "--epochs", "1", "--set", "device=cpu", "--quiet"]
    assert run(capsys, monkeypatch, "train", tmp_path / "wide.npz", "--out", tmp_path / "run", *options)[0] == 0
    embed = ["embed", tmp_path / "run", "-o", tmp_path / "x.npz"]
    assert run(capsys, monkeypatch, *embed, tmp_path / "wide.npz")[0] == 0
    code, _, err = run(capsys, monkeypatch, *embed, tmp_path / "square.npz", "--overwrite")
    assert (code, err.count("\n")) == (2, 1)
    assert "takes images of 6 x 9 pixels, got 8 x 8" in err


@pytest.mark.slow
@pytest.mark.parametrize("text", ["hello", "# A readme of several lines\n"])
def test_weights_that_are_text_are_refused_without_advice(text, capsys, monkeypatch, tmp_path):
    (tmp_path / "text.pth").write_text(text, encoding="latin-1")
    words = ["train", "digits", "--out", tmp_path / "run", "--set", f"pretrained={tmp_path / 'text.pth'}"]
    words += SMALL
    code, _, err = run(capsys, monkeypatch, *words)
    assert code == 2
    if pickles_are_safe():
        assert err.endswith("text.pth: not readable as weights (holds something other than tensors)\n")
    else:
        assert err.endswith("or weights as .safetensors\n")


def test_sides_of_images_have_a_limit(capsys, monkeypatch, tmp_path):
    code, _, err = run(capsys, monkeypatch, "train", "glyphs", "--out", tmp_path / "run", "--image-size", "100000")
    assert (code, err) == (2, "nearfar: config: image_size: Expected `int` <= 8192, got 100000\n")


@pytest.mark.slow
def test_images_are_indexed_and_found(digits, capsys, monkeypatch, tmp_path):
    from PIL import Image
    from sklearn.datasets import load_digits

    images = (load_digits().images * 15).astype(np.uint8)
    for i in range(40):
        path = tmp_path / f"photos/{'low' if i < 20 else 'high'}/{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[i]).save(path)
    Image.fromarray(images[7]).convert("RGB").resize((64, 64), Image.Resampling.BILINEAR).save(tmp_path / "query.png")
    file = tmp_path / "photos.index"
    code, out, err = run(capsys, monkeypatch, "index", digits, tmp_path / "photos", "-o", file)
    assert (code, err) == (0, "")
    assert "Index of 40 x " in out
    code, out, _ = run(capsys, monkeypatch, "search", file, tmp_path / "query.png", "-k", "3")
    assert code == 0
    assert len(out.splitlines()) == 4
    assert "photos/low/07.png" in out.splitlines()[1]
    code, out, _ = run(capsys, monkeypatch, "index", digits, tmp_path / "photos", "-o", file, "--add")
    assert "40 of them replaced" in out
    code, out, _ = run(capsys, monkeypatch, "index", digits, tmp_path / "query.png", "-o", file, "--add")
    assert "Index of 41 x " in out
    code, out, _ = run(capsys, monkeypatch, "search", file, tmp_path / "photos", "-k", "1", "-o", tmp_path / "hits.csv")
    lines = (tmp_path / "hits.csv").read_text().splitlines()
    assert lines[0] == "query,rank,distance,class,name"
    assert len(lines) == 41
    assert all(line.startswith(line.rpartition(",")[2]) for line in lines[1:])  # every image finds itself
    page = tmp_path / "hits.html"
    code, out, _ = run(capsys, monkeypatch, "search", file, tmp_path / "query.png", "-k", "3", "-o", page)
    assert (code, page.read_text().count("<img ")) == (0, 4)
    assert '<figcaption><b><span class="leaf">query.png</span></b>' in page.read_text()  # and not its folder
    code, out, _ = run(capsys, monkeypatch, "duplicates", file, "--within", "0.3", "-o", page)
    assert (code, out.split(":")[0]) == (0, str(page))
    assert page.read_text().count("<img ") > 4
    code, out, _ = run(capsys, monkeypatch, "duplicates", file, "--within", "0", "-o", page)
    assert (code, page.read_text().count("<img ")) == (0, 0)
    assert run(capsys, monkeypatch, "index", digits, tmp_path / "photos/low", "-o", file, "--add")[0] == 0
    code, out, _ = run(capsys, monkeypatch, "search", file, tmp_path / "photos/low/03.png", "-k", "1")
    assert out.splitlines()[1].split()[2:] == ["low", (tmp_path / "photos/low/03.png").as_posix()]  # still of its class
    (tmp_path / "table.csv").write_text("path,label\nphotos/low/00.png,low\nphotos/high/20.png,high\n")
    assert run(capsys, monkeypatch, "index", digits, tmp_path / "table.csv", "-o", file, "--add")[0] == 0
    code, out, _ = run(capsys, monkeypatch, "search", file, tmp_path / "photos/high/20.png", "-k", "1")
    assert out.splitlines()[1].endswith((tmp_path / "photos/high/20.png").as_posix())
    added = run(capsys, monkeypatch, "index", digits, tmp_path / "table.csv", "-o", file, "--add", "--engine", "Flat")
    assert "engine Flat" in added[1]
    assert "engine Flat" in run(capsys, monkeypatch, "index", digits, tmp_path / "photos", "-o", file, "--add")[1]
    assert "Index of 41 x " in run(capsys, monkeypatch, "index", digits, tmp_path / "query.png", "-o", file, "--add")[1]


def test_an_index_knows_its_images_from_any_folder(digits, capsys, monkeypatch, tmp_path):
    from PIL import Image

    for i, image in enumerate((load_digits().images[:6] * 15).astype(np.uint8)):
        (tmp_path / "there/shop/images").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / f"there/shop/images/{i}.png")
    table = tmp_path / "there/shop/items.csv"
    table.write_text("path,label\n" + "".join(f"images/{i}.png,{i % 2}\n" for i in range(4)))
    names = [f"shop/images/{i}.png" for i in range(4)]

    def index(*words):
        code, out, err = run(capsys, monkeypatch, "index", *words)
        assert (code, err) == (0, ""), err
        return out

    monkeypatch.chdir(tmp_path / "there")
    index(digits, "shop/items.csv", "-o", "shop.index")
    assert Index.load("shop.index").names.tolist() == names
    monkeypatch.chdir(tmp_path / "there/shop")
    for data in ("items.csv", table):
        assert "4 of them replaced" in index(digits, data, "-o", "../shop.index", "--add")
        assert Index.load("../shop.index").names.tolist() == names
    table.write_text(table.read_text() + "images/4.png,0\n")
    index(digits, "items.csv", "-o", "../shop.index", "--add")
    index(digits, "images/5.png", "-o", "../shop.index", "--add")
    assert sorted(Index.load("../shop.index").names) == [*names, "shop/images/4.png", "shop/images/5.png"]
    index("-o", "../shop.index", "--remove", "images/0.png", "--remove", "shop/images/4.png")
    assert sorted(Index.load("../shop.index").names) == [*names[1:], "shop/images/5.png"]

    shutil.move(tmp_path / "there", tmp_path / "elsewhere")  # data and index together
    for folder, file in (("elsewhere", "shop.index"), ("", "elsewhere/shop.index")):
        monkeypatch.chdir(tmp_path / folder)
        words = ("search", file, tmp_path / "elsewhere/shop/images/1.png", "-k", "4", "-o", tmp_path / "hits.html")
        assert run(capsys, monkeypatch, *words)[0] == 0
        assert (tmp_path / "hits.html").read_text().count("<img ") == 5
    shutil.move("elsewhere/shop.index", tmp_path / "alone.index")  # the index alone: where it was nothing is any more
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "replaced" in index(digits, "shop/items.csv", "-o", "../alone.index", "--add")
    old = Index.load("../alone.index")
    old.about = {key: old.about[key] for key in ("source", "weights", "data")}  # without the folder, as in Python
    old.save("old.index")
    assert "5 of them replaced" in index(digits, "shop/items.csv", "-o", "old.index", "--add")


def test_equal_items_are_shown_at_distance_zero(capsys, monkeypatch, tmp_path):
    rows = np.random.default_rng(0).normal(size=(4, 32)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "again.npy", np.nextafter(rows, np.float32(9)))  # as a network gives in another batch
    run(capsys, monkeypatch, "index", tmp_path / "rows.npy", "-o", tmp_path / "rows.index")
    code, out, _ = run(capsys, monkeypatch, "search", tmp_path / "rows.index", tmp_path / "again.npy", "-k", "1")
    found = [line.split()[1] for line in out.splitlines() if line.startswith(" ")]
    assert (code, found) == (0, ["0"] * 4)


def test_only_neighbors_within_a_distance_are_found(capsys, monkeypatch, tmp_path):
    from nearfar.index import Index

    angles = np.array([0.0, 0.1, 0.3, 3.0])
    names, labels = ["a", "b", "c", "d"], ["x", "x", "y", "y"]
    Index(np.c_[np.cos(angles), np.sin(angles)], names=names, labels=labels).save(tmp_path / "a.index")
    np.save(tmp_path / "asked.npy", [[1.0, 0.0], [0.0, -1.0], [-1.0, 0.1]])
    words = ["search", tmp_path / "a.index", tmp_path / "asked.npy", "-k", "3", "--within", 1 - np.cos(0.25)]
    code, out, _ = run(capsys, monkeypatch, *words)
    assert code == 0
    assert [line.split()[-1] for line in out.splitlines()] == ["asked[0]", "a", "b", "none", "asked[2]", "d"]
    assert out.splitlines()[3] == "asked[1]: none"
    code, out, _ = run(capsys, monkeypatch, *words, "-o", tmp_path / "hits.csv")
    assert out == f"{tmp_path / 'hits.csv'}: up to 3 neighbors of 3 queries within 0.0310876; 1 has none\n"
    with (tmp_path / "hits.csv").open(newline="") as file:
        told = [(row["query"], row["rank"], row["name"]) for row in csv.DictReader(file)]
    assert told == [("asked[0]", "1", "a"), ("asked[0]", "2", "b"), ("asked[2]", "1", "d")]
    code, out, _ = run(capsys, monkeypatch, *words, "-o", tmp_path / "hits.html")
    assert code == 0
    assert "asked[1]" in (tmp_path / "hits.html").read_text()
    code, _, err = run(capsys, monkeypatch, *words[:-1], "-1")
    assert (code, err) == (2, "nearfar: --within: expected a distance of at least 0, got -1.0\n")


def test_items_are_removed_from_an_index_by_name_folder_or_class(capsys, monkeypatch, tmp_path):
    names = ["a/0", "a/1", "ab/0", "b/0", "b/1", "c", "d/0", "d/1"]
    rows = np.random.default_rng(0).normal(size=(8, 3))
    np.savez(tmp_path / "old.npz", embeddings=rows, labels=["x", "x", "y", "y", "b", "c", "z", "z"], names=names)
    np.savez(tmp_path / "new.npz", embeddings=rows[:2], labels=["x", "x"], names=["b/1", "e"])
    file = tmp_path / "a.index"

    def left(*words):
        code, out, err = run(capsys, monkeypatch, "index", *words, "-o", file)
        return code, out, err, Index.load(file).names.tolist()

    run(capsys, monkeypatch, "index", tmp_path / "old.npz", "-o", file)
    code, out, _, found = left("--remove", "a/", "--remove", "z")  # the folder a, not also ab; the class z
    assert (code, found) == (0, ["ab/0", "b/0", "b/1", "c"])
    assert out.endswith("; 4 items removed\n")
    code, out, _, found = left(tmp_path / "new.npz", "--add", "--remove", "./b/0")
    assert (code, found) == (0, ["ab/0", "c", "b/1", "e"])
    assert out.endswith("; 2 items embedded, 1 of them replaced; 1 removed\n")
    for words, message in (
        (["--remove", "c", "--remove", "no"], "--remove: no item, folder or class is called 'no'; the first"),
        (["--remove", ""], "--remove: no item, folder or class is called ''"),
        ([], "SOURCE: expected a run, a learner"),
        (["--add", "--remove", "c"], "SOURCE: expected a run, a learner"),
        ([tmp_path / "new.npz", "--remove", "c"], "--remove: with SOURCE, also give --add"),
        ([tmp_path / "new.npz", "--new"], "--new: works only with --add"),
        (["--new", "--remove", "c"], "SOURCE: expected a run, a learner"),
    ):
        code, out, err, found = left(*words)
        assert (code, out, found) == (2, "", ["ab/0", "c", "b/1", "e"])
        assert message in err


def test_names_are_not_gone_through_for_every_item_to_remove(monkeypatch, tmp_path):
    from nearfar.index.building import Present

    names = [f"a/{i}" for i in range(200)]
    there, seen, normal = Present(names, [""] * 200), [], os.path.normpath
    monkeypatch.setattr(os.path, "normpath", lambda path: seen.append(path) or normal(path))
    gone = there.named_by([*names[:40], str(tmp_path / "a/70")], tmp_path)
    assert gone == [*names[:40], "a/70"]
    assert len(seen) < 2 * 200


def test_only_items_that_an_index_has_not_are_embedded(capsys, monkeypatch, tmp_path):
    from nearfar.index import building

    rows, file, counts = np.random.default_rng(0).normal(size=(6, 3)), tmp_path / "a.index", []
    nearfar.RCA().fit(np.r_[rows, -rows], np.arange(12) % 3).save(tmp_path / "rca.safetensors")
    embed = building.embedded_beside
    monkeypatch.setattr(building, "embedded_beside", lambda *given: counts.append(len(given[3])) or embed(*given))

    def index(shift, names, *words):
        np.savez(tmp_path / "items.npz", X=rows[: len(names)] + shift, y=["x"] * len(names), names=names)
        sources = [tmp_path / "rca.safetensors", tmp_path / "items.npz"]
        code, out, err = run(capsys, monkeypatch, "index", *sources, "-o", file, *words)
        assert (code, err) == (0, "")
        return out.split("; ", 1)[1].rstrip(), Index.load(file)

    first = index(0, ["a", "b", "c", "d"])[1]
    told, second = index(1, ["b", "e", "a", "f"], "--add", "--new", "--remove", "c")
    assert told == "2 items embedded; 2 were there already (leave out --new to embed them again); 1 removed"
    assert second.names.tolist() == ["a", "b", "d", "e", "f"]
    assert np.array_equal(second.embeddings[:3], first.embeddings[[0, 1, 3]])
    assert np.array_equal(second.embeddings[3:], index(1, ["b", "e", "a", "f"], "--overwrite")[1].embeddings[[1, 3]])
    told, third = index(2, ["a", "f"], "--add", "--new", "--remove", "b")
    assert told == "nothing new; 2 were there already (leave out --new to embed them again); 1 removed"
    assert third.names.tolist() == ["e", "a", "f"]
    assert counts == [4, 2, 4]
    pytest.importorskip("faiss")
    assert index(2, ["a", "f"], "--add", "--new", "--engine", "Flat")[1].engine == "Flat"
    sources = [tmp_path / "rca.safetensors", tmp_path / "items.npz"]
    wrong = run(capsys, monkeypatch, "index", *sources, "-o", file, "--add", "--new", "--engine", "Flt")
    assert wrong[0] == 2
    assert Index.load(file).engine == "Flat"


def test_images_left_out_are_told_also_where_none_is_new(capsys, monkeypatch, tmp_path, digits):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "photos").mkdir()
    image.fromarray(open_dataset("digits").array[0][..., 0]).save(tmp_path / "photos/good.png")
    (tmp_path / "photos/bad.png").write_bytes(b"no image")
    told = ["index", digits, tmp_path / "photos", "-o", tmp_path / "a.index", "--skip-bad"]
    for words, start in (((), "1 item embedded"), (("--add", "--new"), "nothing new; 1 was there already")):
        out = run(capsys, monkeypatch, *told, *words)[1].replace(" (leave out --new to embed it again)", "")
        assert f"; {start}; 1 undecodable image left out (" in out


@pytest.mark.slow
def test_other_ks_can_be_scored(digits, capsys, monkeypatch):
    own = json.loads((digits / "scores.json").read_text())
    for source in (digits, digits / "test.npz"):
        code, out, err = run(capsys, monkeypatch, "evaluate", source, "--ks", "30", "--ks", "5")
        assert (code, err) == (0, "")
        assert re.findall(r"Recall@(\d+)  ", out) == ["1", "5", "30"]
    scored = json.loads((digits / "scores.json").read_text())
    assert list(scored["scores"]["recall_at"]) == list(scored["raw"]["recall_at"]) == ["1", "5", "30"]
    assert scored["config"] == own["config"]
    code, _, err = run(capsys, monkeypatch, "evaluate", digits, "--ks", "5", "--protocol", "verification")
    assert (code, err) == (2, "nearfar: --ks: works only with --protocol retrieval or subsets\n")
    run(capsys, monkeypatch, "evaluate", digits)
    assert json.loads((digits / "scores.json").read_text()) == own


def test_scores_without_clusters_are_those_of_neighbors(tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", embeddings=rng.normal(size=(60, 4)), labels=np.arange(60) % 6)
    words = ("evaluate", tmp_path / "rows.npz", "--json")
    all_scores = json.loads(run(capsys, monkeypatch, *words)[1])["scores"]
    found = json.loads(run(capsys, monkeypatch, *words, "--no-clustering")[1])["scores"]
    left_out = {name for name, value in all_scores.items() if found.get(name) != value}
    assert {"nmi", "ami", "f1"} <= left_out
    assert found["map_at_r"] == all_scores["map_at_r"]
    plain = json.loads(run(capsys, monkeypatch, *words, "--plain-clustering")[1])["scores"]
    assert plain["clusterer"].startswith("plain k-means of")
    code, _, err = run(capsys, monkeypatch, *words, "--plain-clustering", "--no-clustering")
    assert (code, err) == (2, "nearfar: --plain-clustering: does not work with --no-clustering\n")
    code, _, err = run(capsys, monkeypatch, *words, "--no-clustering", "--protocol", "verification")
    assert (code, err) == (2, "nearfar: --no-clustering: works only with --protocol retrieval\n")


def test_images_that_cannot_be_decoded_are_left_out_where_asked(digits, capsys, monkeypatch, tmp_path):
    from PIL import Image

    for name in ("low/0", "low/1", "high/0"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 9).save(tmp_path / f"photos/{name}.png")
    (tmp_path / "photos/low/bad.png").write_bytes(b"not an image")
    for command, file in (("embed", "photos.npz"), ("index", "photos.index")):
        words = [command, digits, tmp_path / "photos", "-o", tmp_path / file]
        code, out, err = run(capsys, monkeypatch, *words)
        assert (code, out) == (2, "")
        assert "low/bad.png: cannot be decoded" in err
        assert err.endswith("; --skip-bad leaves out such images\n")
        code, out, err = run(capsys, monkeypatch, *words, "--skip-bad")
        assert (code, err) == (0, "")
        assert out.endswith("; 1 undecodable image left out (low/bad.png)\n")
    assert len(np.load(tmp_path / "photos.npz")["labels"]) == 3
    words = ["search", tmp_path / "photos.index", tmp_path / "photos", "-k", "1"]
    assert "low/bad.png: cannot be decoded" in run(capsys, monkeypatch, *words)[2]
    assert run(capsys, monkeypatch, *words, "--skip-bad")[1].endswith("\n1 undecodable image left out (low/bad.png)\n")
    for words in (["evaluate"], ["evaluate", "--protocol", "verification"], ["report", "-o", tmp_path / "page.html"]):
        code, _, err = run(capsys, monkeypatch, words[0], digits, tmp_path / "photos", *words[1:])
        assert code == 2
        assert "low/bad.png: cannot be decoded" in err
        code, out, err = run(capsys, monkeypatch, words[0], digits, tmp_path / "photos", *words[1:], "--skip-bad")
        assert (code, err) == (0, "")
        text = (tmp_path / "page.html").read_text() if words[0] == "report" else out
        assert "3 items of 2 classes; 1 undecodable image left out (low/bad.png)." in text
        code, _, err = run(capsys, monkeypatch, words[0], digits, *words[1:], "--skip-bad")
        assert code == 2
        assert "--skip-bad: works only with DATA" in err


@pytest.fixture(scope="module")
def cameras(tmp_path_factory):
    """A table of rows of eight persons, which look more like their camera than like themselves."""
    rng = np.random.default_rng(0)
    persons, taken = np.repeat(np.arange(8), 12), rng.integers(3, size=96)
    rows = rng.normal(size=(8, 6))[persons] + 0.5 * rng.normal(size=(8, 3, 6))[persons, taken]
    rows += 0.3 * rng.normal(size=rows.shape)
    lines = [
        ",".join([*map(str, row), f"p{person}", f"c{c}"]) for row, person, c in zip(rows, persons, taken, strict=True)
    ]
    file = tmp_path_factory.mktemp("cameras") / "rows.csv"
    file.write_text("\n".join([*[",".join([*"abcdef", "label", "group"])], *lines]))
    return file, rows.astype(np.float32), persons, taken


@pytest.mark.slow
def test_neighbors_of_a_querys_group_do_not_count_in_tables_with_groups(cameras, capsys, monkeypatch, tmp_path):
    from nearfar.evaluation import evaluate, verify

    file, rows, persons, taken = cameras
    out = run(capsys, monkeypatch, "evaluate", file)[1]
    expected = evaluate(rows, persons, groups=taken, distance="euclidean")
    assert str(expected).split("clusters:")[0] in out
    assert expected.map_at_r < evaluate(rows, persons, distance="euclidean").map_at_r
    page = tmp_path / "page.html"
    assert run(capsys, monkeypatch, "report", file, "-o", page)[0] == 0
    wrong = round((1 - expected.recall_at[1]) * (expected.n_queries - expected.n_lone))
    assert f"<b>{wrong}</b>" in page.read_text()
    assert "Items of the class and the group of a query are left out of its search." in page.read_text()
    assert "every query searches all other items, those of its class in other groups only." in page.read_text()
    pairs = verify(rows, persons, groups=taken, distance="euclidean")
    assert str(pairs) in run(capsys, monkeypatch, "evaluate", file, "--protocol", "verification")[1]
    assert f"{pairs.n_similar} pairs of one class in two groups and {pairs.n_dissimilar:,} pairs of" in page.read_text()


@pytest.mark.slow
def test_a_run_on_a_table_with_groups_is_chosen_and_scored_by_them(cameras, capsys, monkeypatch, tmp_path):
    from nearfar.evaluation import evaluate
    from nearfar.train import TrainConfig, evaluate_run, train
    from nearfar.train.scoring import task_of

    file, _, _, _ = cameras
    settings = {"trunk": "mlp(width=8, depth=1)", "embedding_dim": 4, "batch_size": 8, "sampler": "m_per_class:4"}
    config = TrainConfig.of(
        data=str(file), objective="TripletLoss()", epochs=1, validation=0.5, device="cpu", **settings
    )
    done = train(config, tmp_path / "run", progress=False)
    result = evaluate_run(done.folder, clustering=False)
    assert "own class only in other groups" in str(result.scores)
    with np.load(done.folder / "test.npz") as kept:
        known = {"groups": kept["groups"], "ks": config.ks, "clustering": False}
        assert result.scores == evaluate(kept["embeddings"], kept["labels"], **known)
    held = task_of(done.folder).validation
    again = tmp_path / "again.npz"
    assert run(capsys, monkeypatch, "embed", done.folder, file, "-o", again)[0] == 0
    with np.load(again) as kept:
        names = np.isin(kept["names"], held.names)
        chosen = evaluate(kept["embeddings"][names], kept["labels"][names], groups=kept["groups"][names])
    best = json.loads((done.folder / "scores.json").read_text())["checkpoint"]["validation"]
    assert best == pytest.approx(chosen.map_at_r if config.select == "map_at_r" else chosen.recall_at[1])
    assert run(capsys, monkeypatch, "report", done.folder)[0] == 0
    page = (done.folder / "report.html").read_text()
    assert "Items of the class and the group of a query are left out of its search." in page


def test_items_without_a_class_are_no_class_in_the_scores_of_embeddings(digits, capsys, monkeypatch, tmp_path):
    """They come from images beside class folders, and from tables in which some labels are missing."""
    from PIL import Image

    for at, name in enumerate(("low/0", "low/1", "high/0", "high/1", "a", "b", "c")):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 30 * at).save(tmp_path / f"photos/{name}.png")
    labels = {"low/0": "low", "low/1": "low", "high/0": "high", "high/1": "high", "a": "", "b": "", "c": ""}
    table = tmp_path / "photos/table.csv"
    table.write_text("\n".join(["path,label", *(f"{name}.png,{label}" for name, label in labels.items())]))
    words = ["evaluate", "--protocol", "verification"]
    code, expected, _ = run(capsys, monkeypatch, words[0], digits, tmp_path / "photos", *words[1:])
    assert code == 0
    for data, file, end in (
        (tmp_path / "photos", "folder.npz", "; 1 file left out (1 .csv)"),
        (table, "table.npz", ""),
    ):
        line = run(capsys, monkeypatch, "embed", digits, data, "-o", tmp_path / file)[1]
        assert line.endswith(f", 2 classes{end}\n")
        out = run(capsys, monkeypatch, words[0], tmp_path / file, *words[1:])[1]
        told = "3 items without a class left out (a.png, b.png, c.png)."
        assert out.splitlines()[0] == f"{file[:-4]}, 4 items of 2 classes; {told}"
        assert out.split("\n", 1)[1] == expected.split("\n", 1)[1]
    (tmp_path / "pairs.csv").write_text("left,right,same\na.png,b.png,0\nlow/0.png,low/1.png,1\n")
    listed = run(capsys, monkeypatch, words[0], tmp_path / "folder.npz", *words[1:], "--pairs", tmp_path / "pairs.csv")
    assert "1 pairs of one class, 1 of two" in listed[1]


def test_images_of_kinds_that_are_not_read_are_told_by_every_command(digits, capsys, monkeypatch, tmp_path):
    from PIL import Image

    for name in ("low/0", "low/1", "high/0", "high/1"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 9).save(tmp_path / f"photos/{name}.png")
    (tmp_path / "photos/low/a.HEIC").write_bytes(b"ftyp")
    told = "1 file left out (1 .heic; pip install pillow-heif reads them)"
    for command, file in (("embed", "photos.npz"), ("index", "photos.index")):
        assert f"; {told}\n" in run(capsys, monkeypatch, command, digits, tmp_path / "photos", "-o", tmp_path / file)[1]
    assert f"2 classes; {told}.\n" in run(capsys, monkeypatch, "evaluate", digits, tmp_path / "photos")[1]
    loose = run(capsys, monkeypatch, "search", tmp_path / "photos.index", tmp_path / "photos/low", "-k", "1")[1]
    assert loose.endswith("\n1 file left out (1 .heic; pip install pillow-heif reads them)\n")


@pytest.mark.parametrize("kind", ["folder", "zip", "table"])
def test_embeddings_know_where_their_images_lie(digits, capsys, monkeypatch, tmp_path, kind):
    """From any folder the report of a file that `embed` wrote shows the images, and not embeddings as bars."""
    image = pytest.importorskip("PIL.Image")
    photos, out = tmp_path / "photos", tmp_path / "found" / "photos.npz"
    for folder in (photos / "a", photos / "b", out.parent):
        folder.mkdir(parents=True)
    for at, name in enumerate(("a/0", "a/1", "b/0", "b/1")):
        image.new("L", (8, 8), 60 * at).save(photos / f"{name}.png")
    data = photos
    if kind == "table":
        data = photos / "t.csv"
        data.write_text("path,label\n" + "".join(f"{name}.png,{name[0]}\n" for name in ("a/0", "a/1", "b/0", "b/1")))
    elif kind == "zip":
        data = Path(shutil.make_archive(str(photos), "zip", photos))
    monkeypatch.chdir(tmp_path)
    assert run(capsys, monkeypatch, "embed", digits, data.relative_to(tmp_path), "-o", out)[0] == 0
    monkeypatch.chdir(out.parent)
    with images_from(tmp_path):  # without, they come from below the folder of the embeddings
        read = pictures_of(Path("photos.npz"), open_dataset(out))
        assert [int(read(at).mean()) for at in range(4)] == [0, 60, 120, 180]


def test_a_run_does_not_embed_what_it_cannot(digits, capsys, monkeypatch, tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((3, 4)))
    code, _, err = run(capsys, monkeypatch, "embed", digits, tmp_path / "rows.npy", "-o", tmp_path / "out.npz")
    assert code == 2
    assert "takes images, got rows" in err


@pytest.mark.slow
@pytest.mark.parametrize("made", ["by the command", "in Python"])
def test_a_run_embeds_the_queries_of_an_index_of_embeddings(digits, made, capsys, monkeypatch, tmp_path):
    from nearfar.index import Index

    with np.load(digits / "test.npz") as test:
        rows, labels, classes = test["embeddings"], test["labels"], test["classes"]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    means, names = np.stack([rows[labels == c].mean(0) for c in range(len(classes))]), classes.tolist()
    file = tmp_path / "means.index"
    if made == "in Python":
        Index(means, names=names, labels=names).save(file)
    else:
        np.savez(tmp_path / "means.npz", embeddings=means, labels=names, names=names)
        assert run(capsys, monkeypatch, "index", tmp_path / "means.npz", "-o", file)[0] == 0
    words = ["search", file, "digits", "--run", digits, "-k", "1", "-o", tmp_path / "hits.csv"]
    assert run(capsys, monkeypatch, *words)[0] == 0
    with (tmp_path / "hits.csv").open(newline="") as table:
        answers = [row["class"] for row in csv.DictReader(table)]
    digit = load_digits().target.astype(str)
    of_test = np.isin(digit, names)
    assert np.mean(np.array(answers)[of_test] == digit[of_test]) > 0.5
    code, _, err = run(capsys, monkeypatch, "search", file, "digits")
    assert (code, err.count("\n")) == (2, 1)


@pytest.mark.slow
def test_an_index_knows_its_network(capsys, monkeypatch, tmp_path):
    copy = tmp_path / "run"
    run(capsys, monkeypatch, "train", "digits", "--out", copy, "--keep", "trained", *SMALL)
    run(capsys, monkeypatch, "index", copy, "digits", "-o", tmp_path / "a.index")
    copy = copy.rename(tmp_path / "moved")
    code, _, err = run(capsys, monkeypatch, "search", tmp_path / "a.index", "digits")
    assert code == 2
    assert "--run" in err
    code, out, _ = run(capsys, monkeypatch, "search", tmp_path / "a.index", "digits", "-k", "1", "--run", copy)
    assert code == 0
    assert len(out.splitlines()) == 2 * 1797
    from safetensors.numpy import save_file

    from nearfar.io import tensor_file

    arrays, text = tensor_file.read(copy / "best.safetensors")
    changed = {name: array * 1.5 if array.dtype == np.float32 else array for name, array in arrays.items()}
    save_file(changed, copy / "best.safetensors", text)
    for words in (
        ["search", tmp_path / "a.index", "digits", "--run", copy],
        ["index", copy, "digits", "-o", tmp_path / "a.index", "--add"],
    ):
        code, _, err = run(capsys, monkeypatch, *words)
        assert code == 2
        assert "make the index again" in err


def test_rows_are_indexed_with_a_learner_or_as_they_are(capsys, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.repeat(["a", "b"], 30)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    np.save(tmp_path / "query.npy", X[:2])
    nearfar.RCA().fit(X, y).save(tmp_path / "rca.safetensors")
    for source in (["rca.safetensors", "rows.npz"], ["rows.npz"]):
        words = [tmp_path / word for word in source]
        code, _, err = run(capsys, monkeypatch, "index", *words, "-o", tmp_path / "a.index", "--overwrite")
        assert (code, err) == (0, "")
        code, out, _ = run(capsys, monkeypatch, "search", tmp_path / "a.index", tmp_path / "query.npy", "-k", "1")
        assert [line.split()[-2:] for line in out.splitlines()[1::2]] == [["a", "rows[0]"], ["a", "rows[1]"]]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_of_embeddings_is_scored_shown_and_indexed(capsys, monkeypatch, tmp_path, kind):
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(24, 3)).astype(np.float32), [f"c{i % 4}" for i in range(24)]
    # separate columns are measurements, compared as `fit` compares them; lists are embeddings
    distance = {"csv": "euclidean", "parquet": "cosine"}[kind]
    np.savez(tmp_path / "rows.npz", embeddings=rows, labels=labels, distance=distance)
    file = tmp_path / f"rows.{kind}"
    if kind == "csv":
        lines = [",".join([*map(str, row), label]) for row, label in zip(rows.tolist(), labels, strict=True)]
        file.write_text("\n".join(["a,b,c,label", *lines]))
    else:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table({"vector": rows.tolist(), "label": labels}), file)
    code, out, _ = run(capsys, monkeypatch, "evaluate", file)
    assert (code, out) == (0, run(capsys, monkeypatch, "evaluate", tmp_path / "rows.npz")[1])
    assert f"(leave-one-out, {distance} distance)" in out
    verified = [
        run(capsys, monkeypatch, "evaluate", f, "--protocol", "verification") for f in (file, tmp_path / "rows.npz")
    ]
    assert verified[0] == verified[1]
    assert run(capsys, monkeypatch, "report", file, "-o", tmp_path / "page.html")[0] == 0
    assert f"{distance} distance" in (tmp_path / "page.html").read_text().lower()
    code, out, _ = run(capsys, monkeypatch, "index", file, "-o", tmp_path / "a.index")
    assert (code, f"Index of 24 x 3, {distance}," in out) == (0, True)
    code, out, _ = run(capsys, monkeypatch, "search", tmp_path / "a.index", file, "-k", "1")
    assert [line.split()[-2:] for line in out.splitlines()[1::2]] == [[f"c{i % 4}", f"rows[{i}]"] for i in range(24)]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"size": range(9), "vector": 1}, ""),  # the only column of lists holds the embeddings
        ({"stock": range(9), "price": range(9), "vector": 1}, ""),
        ({"row": range(9), "a": range(9)}, "The column 'row' seems to number the rows, but is used as a feature"),
        ({"name": range(9), "vector": 1}, ""),
        ({"width": range(9), "a": range(9)}, ""),
    ],
)
def test_columns_that_are_hardly_a_part_of_embeddings_are_told(capsys, monkeypatch, tmp_path, columns, told):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    lists = np.eye(9).tolist()
    table = {name: lists if column == 1 else list(column) for name, column in columns.items()}
    parquet.write_table(pyarrow.table({**table, "label": list("aabbccddd")}), tmp_path / "t.parquet")
    for words in (["index", "-o", tmp_path / "a.index"], ["evaluate"]):
        with warnings.catch_warnings(record=True) as caught:
            assert run(capsys, monkeypatch, words[0], tmp_path / "t.parquet", *words[1:])[0] == 0
        said = [str(warning.message) for warning in caught]
        assert len(said) == bool(told)
        assert all(text.startswith(f"{tmp_path}/t.parquet: ") and told in text for text in said)


def test_a_table_of_images_alone_is_not_scored(capsys, monkeypatch, tmp_path):
    for name in ("a.png", "b.png"):
        pytest.importorskip("PIL.Image").new("L", (4, 4)).save(tmp_path / name)
    (tmp_path / "images.csv").write_text("path,label\na.png,a\nb.png,b\n")
    for words in (["evaluate"], ["index", "-o", tmp_path / "a.index"]):
        code, _, err = run(capsys, monkeypatch, words[0], tmp_path / "images.csv", *words[1:])
        assert code == 2
        assert "images.csv: expected embeddings or rows, got images; give a run that embeds them" in err


def test_embeddings_without_labels_are_indexed_and_not_scored(capsys, monkeypatch, tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(9, 4)))
    code, _, err = run(capsys, monkeypatch, "index", tmp_path / "rows.npy", "-o", tmp_path / "a.index")
    assert (code, err) == (0, "")
    code, out, _ = run(capsys, monkeypatch, "search", tmp_path / "a.index", tmp_path / "rows.npy", "-k", "1")
    assert [line.split()[-1] for line in out.splitlines()[1::2]] == [f"rows[{i}]" for i in range(9)]
    for command in ("evaluate", "report"):
        code, _, err = run(capsys, monkeypatch, command, tmp_path / "rows.npy")
        assert code == 2
        assert "rows.npy: has rows without labels; save both with np.savez" in err


def test_a_run_keeps_the_verification_of_its_test_classes(digits, capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "evaluate", digits, "--protocol", "verification")
    assert code == 0
    found = json.loads((digits / "verification.json").read_text())
    assert f"AUC               {found['auc']:>8.4f}" in out
    assert set(found["tar_at"]) == {"0.1", "0.01", "0.001"}


def test_few_shot_accuracy_of_a_run_and_of_embeddings(digits, capsys, monkeypatch, tmp_path):
    few = ["--protocol", "few-shot", "--ways", "4", "--queries", "5", "--episodes", "20"]
    code, out, _ = run(capsys, monkeypatch, "evaluate", digits, *few)
    assert code == 0
    assert "4-way 1-shot accuracy 0." in out
    saved = json.loads((digits / "few_shot.json").read_text())
    assert f"accuracy {saved['accuracy']:.4f} ± {saved['interval_95']:.4f} (prototype, cosine; 20 episodes" in out
    y = np.repeat(np.arange(6), 10)
    np.savez(tmp_path / "rows.npz", X=np.eye(6)[y], y=y)
    code, out, _ = run(capsys, monkeypatch, "evaluate", tmp_path / "rows.npz", *few, "--classifier", "nearest")
    assert code == 0
    assert "accuracy 1.0000 ± 0.0000 (nearest" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [[], ["--protocol", "verification"], ["--protocol", "few-shot", "--ways", "2", "--episodes", "3"]], ids=str
)
def test_scores_of_other_items_are_not_written_as_those_of_the_run(how, digits, capsys, monkeypatch, tmp_path):
    before = {path: path.read_bytes() for path in digits.rglob("*") if path.is_file()}
    np.savez(tmp_path / "more.npz", X=np.zeros((40, 8, 8), np.uint8), y=np.arange(40) % 2)
    for others in (["digits"], [tmp_path / "more.npz"], ["--test-class", "7", "--test-class", "8"]):
        code, out, err = run(capsys, monkeypatch, "evaluate", digits, *others, *how)
        assert (code, err) == (0, "")
        assert out
    assert {path: path.read_bytes() for path in digits.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("option", ["--ways=20", "--shots=1", "--queries=3", "--episodes=9", "--classifier=nearest"])
@pytest.mark.parametrize("protocol", ["retrieval", "verification", "one-shot-runs"])
def test_options_of_few_shot_episodes_are_not_ignored(option, protocol, digits, capsys, monkeypatch):
    code, _, err = run(capsys, monkeypatch, "evaluate", digits, "--protocol", protocol, option)
    assert (code, err) == (2, f"nearfar: {option.partition('=')[0]}: works only with --protocol few-shot\n")


def test_one_shot_runs_are_scored(digits, capsys, monkeypatch, tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for part, word in (("training", "class"), ("test", "item")):
        (tmp_path / "runs/run01" / part).mkdir(parents=True)
        for i in range(4):
            image = Image.fromarray(rng.integers(0, 255, (28, 28), np.uint8))
            image.save(tmp_path / f"runs/run01/{part}/{word}{i + 1:02d}.png")
    lines = [f"run01/test/item{i + 1:02d}.png run01/training/class{i + 1:02d}.png" for i in range(4)]
    (tmp_path / "runs/run01/class_labels.txt").write_text("\n".join(lines))
    code, out, _ = run(capsys, monkeypatch, "evaluate", digits, tmp_path / "runs", "--protocol", "one-shot-runs")
    assert code == 0
    assert "1 runs of 4-way 1-shot classification" in out
    code, _, err = run(capsys, monkeypatch, "evaluate", digits, "--protocol", "one-shot-runs")
    assert code == 2
    assert "one-shot runs" in err


def test_a_learner_is_scored_on_rows(capsys, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 10)
    X = rng.normal(size=(6, 4))[y] * 3 + rng.normal(size=(60, 4))
    nearfar.RCA().fit(X, y).save(tmp_path / "rca.safetensors")
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    code, out, err = run(capsys, monkeypatch, "evaluate", tmp_path / "rca.safetensors", tmp_path / "rows.npz")
    assert (code, err) == (0, "")
    assert "baseline (raw inputs)" in out
    code, _, err = run(capsys, monkeypatch, "evaluate", tmp_path / "rca.safetensors")
    assert code == 2
    assert err.startswith("nearfar: DATA: rca.safetensors is a learner, which needs data to score")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "nowhere", "--out", "RUN"], "nowhere"),
        (["train", "digits", "--out", "RUN", "--objective", "TripletLos()"], "did you mean TripletLoss"),
        (["train", "digits", "--out", "RUN", "--set", "shedule=cosine"], "did you mean schedule"),
        (["train", "digits", "--out", "RUN", "--set", "schedule"], "expected name=value"),
        (["train", "digits", "--out", "RUN", "--trunk", "conv5"], "conv4"),
        (["train", "digits", "--out", "RUN", "--sampler", "m_per_class:2", "--batch-size", "64"], "classes"),
        (["train", "--out", "RUN"], "DATA: expected the data to train on"),
        (["train", "digits", "--out", "RUN", "--resume"], "no such run"),
        (["train", "digits", "--out", "RUN", "--recipe", "nonsense"], "nonsense"),
        (["train", "digits", "--out", "RUN", "--no-such"], "Unknown option: --no-such.\n"),
        (
            ["train", "digits", "--out", "RUN", "--loss", "TripletLoss()"],
            "Unknown option: --loss. Use --objective.\n",
        ),
        (["train", "digits", "--out", "RUN", "--embedding-size", "8"], "Use --embedding-dim.\n"),
        (["train", "digits", "--out", "RUN", "--patience", "3"], "Use --set patience=VALUE."),
        (
            ["compare", "digits", "--objective", "JRS()", "--out", "RUN", "--weight-decay", "8"],
            "Use --set weight_decay=VALUE.",
        ),
        (["evaluate", "RUN", "--batch-size", "8"], "Unknown option: --batch-size.\n"),
        (["train", "digits", "--out", "RUN", "--devices", "0"], "--devices: expected 1 or more"),
        (["evaluate", "RUN"], "expected the folder of a run or a saved learner"),
        (["evaluate", "RUN", "--protocol", "few-shot"], "RUN"),
        (["evaluate", "RUN", "--protocol", "zero-shot"], "--protocol"),
        (["report", "RUN"], "RUN"),
        (["embed", "RUN", "digits", "-o", "RUN.npz"], "RUN"),
        (["index", "RUN", "digits", "-o", "RUN.index"], "RUN"),
        (["index", "RUN", "-o", "RUN.index"], "expected the folder of a run or a saved learner"),
        (["index", "RUN", "digits", "-o", "RUN.index", "--add"], "expected the folder of a run or a saved learner"),
        (["index", "RUN", "digits", "-o", "RUN.npz"], "RUN.npz: is the name of a table or an array"),
        (["index", "RUN", "digits", "-o", "RUN.index", "--dims", "0"], "--dims: expected 1 or more, got 0"),
        (["embed", "RUN", "digits", "-o", "RUN.npz", "--dims", "0"], "--dims: expected 1 or more, got 0"),
        (["evaluate", "RUN.npz", "--theory"], "--theory: expected a run, which has seen and unseen classes"),
        (["push", "RUN", "owner/name"], "is not the folder of a run"),
        (["push", "RUN", "owner"], "repository: expected owner/name, got 'owner'"),
        (
            ["embed", "RUN.npy", "digits", "-o", "RUN.npz"],
            "RUN.npy: is a set of embeddings or rows; expected the folder of a run",
        ),
        (["adapt", "RUN.npz", "RUN.npz", "-o", "RUN", "--seed", "-1"], "seed: expected a whole number of at least 0"),
        (["search", "RUN.index", "digits"], "no such index"),
        (["search", "RUN.npz", "digits"], "is a file of rows, not an index"),
        (["search", "RUN.index", "digits", "-o", "RUN.txt"], "expected a .csv or an .html file"),
        (["duplicates", "RUN.index", "--within", "0.1", "-o", "RUN.txt"], "expected a .csv or an .html file"),
        (["train", "digits", "--out", "RUN", "--set", "ks=5"], "ks: Expected a list in brackets, got 5"),
        (["compare", "digits", "--out", "RUN"], "--objective"),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_leaves_nothing(words, message, capsys, monkeypatch, tmp_path):
    words = [str(tmp_path / word) if word.startswith("RUN") else word for word in words]
    code, _, err = run(capsys, monkeypatch, *words)
    assert code == 2
    assert err.startswith("nearfar: ")
    assert err.count("\n") == 1
    assert message in err.replace('"--', "--").replace('".', ".")  # older parsers quote an option
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_missing_package_names_its_extra(capsys, monkeypatch, tmp_path):
    np.savez(tmp_path / "rows.npz", X=np.eye(8), y=np.arange(8) % 2)
    import_module("nearfar.report")  # so that what is removed here is put back: later tests know this module
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "nearfar.report.page")
    monkeypatch.delitem(sys.modules, "nearfar.report")
    monkeypatch.delattr(nearfar, "report")
    code, _, err = run(capsys, monkeypatch, "report", tmp_path / "rows.npz")
    assert (code, err) == (2, "nearfar: jinja2 is not installed: pip install 'nearfar[report]'\n")


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["", "gallery_"], ids=["queries", "gallery"])
def test_embeddings_named_after_images_are_shown_by_them(capsys, monkeypatch, tmp_path, prefix):
    from PIL import Image

    rng, labels = np.random.default_rng(0), np.arange(12) // 4
    (tmp_path / "photos").mkdir()
    for i in range(1, 12):  # the first one is gone
        Image.fromarray(rng.integers(0, 255, (8, 8), np.uint8)).save(tmp_path / f"photos/{i}.png")
    arrays = {name + "embeddings": rng.normal(size=(12, 3)) for name in {"", prefix}}
    arrays |= {name + "labels": labels for name in {"", prefix}}
    paths = np.array([f"photos/{i}.png" for i in range(12)])
    (tmp_path / "elsewhere").mkdir()
    for folder, shown in ((tmp_path, True), (tmp_path / "elsewhere", False)):
        np.savez(folder / "e.npz", **arrays, **{f"{prefix}names": paths})
        assert run(capsys, monkeypatch, "report", folder / "e.npz")[0] == 0
        assert (re.search("data:image/(webp|png)", (folder / "e.html").read_text()) is not None) is shown
    monkeypatch.chdir(tmp_path)  # from where the names lead to the images, too
    code, _, err = run(capsys, monkeypatch, "report", "elsewhere/e.npz")
    assert (code, "a picture is not shown" in err, "--images" in err) == (0, True, True)
    assert not re.search("data:image/(webp|png)", (tmp_path / "elsewhere/e.html").read_text())
    code, _, err = run(capsys, monkeypatch, "report", "elsewhere/e.npz", "--images", "photos")
    assert (code, err) == (0, "")
    assert re.search("data:image/(webp|png)", (tmp_path / "elsewhere/e.html").read_text())


@pytest.mark.slow
def test_embeddings_keep_their_classes_names_and_gallery(capsys, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    centers = 4 * rng.normal(size=(3, 5))
    labels, there = np.repeat([0, 2], 6), np.repeat([1, 2, 0], 4)  # class 1 in the gallery only
    rows, gallery = centers[labels] + rng.normal(size=(12, 5)), centers[there] + rng.normal(size=(12, 5))
    classes, file = np.array(["cat", "cow", "dog"]), tmp_path / "e.npz"
    arrays = {
        "embeddings": rows,
        "labels": labels,
        "classes": classes,
        "names": np.array([f"{i}.jpg" for i in range(12)]),
    }
    np.savez(file, **arrays, gallery_embeddings=gallery, gallery_labels=there, gallery_classes=classes)
    code, out, err = run(capsys, monkeypatch, "evaluate", file)
    assert (code, err) == (0, "")
    expected = nearfar.evaluation.evaluate(rows, labels, gallery=gallery, gallery_labels=there)
    assert str(expected) in out
    code, out, err = run(capsys, monkeypatch, "report", file)
    assert (code, err) == (0, "")
    page = (tmp_path / "e.html").read_text()
    assert "dog" in page
    assert "queries search a separate gallery" in page
    np.savez(file, **arrays)
    assert run(capsys, monkeypatch, "index", file, "-o", tmp_path / "e.index")[0] == 0
    code, out, err = run(capsys, monkeypatch, "search", tmp_path / "e.index", file, "-k", "1")
    assert (code, err) == (0, "")
    assert out.splitlines()[-2:] == ["11.jpg", "    1           0  dog  11.jpg"]
    for words in (["evaluate", file, "digits"], ["report", file, "digits"], ["index", file, "digits", "-o", "f.index"]):
        code, _, err = run(capsys, monkeypatch, *words)
        assert code == 2
        assert err.startswith("nearfar: DATA: ")


@pytest.mark.slow
def test_a_report_on_other_data_lies_in_the_run(digits, capsys, monkeypatch, tmp_path):
    run_folder = tmp_path / "lr0.01"
    shutil.copytree(digits, run_folder)
    code, out, _ = run(capsys, monkeypatch, "report", run_folder, "digits")
    assert (code, out) == (0, f"{run_folder / 'report-digits.html'}\n")
    assert "lr0.01 on digits" in (run_folder / "report-digits.html").read_text()


@pytest.mark.slow
def test_a_report_sets_runs_learners_and_embeddings_against_each_other(scored, capsys, monkeypatch, tmp_path):
    before, after = tmp_path / "lr0.01", tmp_path / "after"
    for folder in (before, after):
        shutil.copytree(scored, folder)
    with np.load(before / "test.npz") as arrays:
        np.savez(
            tmp_path / "other.npz", **{name: arrays[name] for name in ("embeddings", "labels", "classes", "names")}
        )
    few = load_digits()
    np.savez(tmp_path / "few.npz", X=(few.images[:60] * 15).astype(np.uint8), y=few.target[:60])
    nearfar.CovarianceMetric().fit(few.data / 16).save(tmp_path / "covariance.safetensors")
    learner, own, data = tmp_path / "covariance.safetensors", ["report", after, "--against"], tmp_path / "few.npz"
    for words, page in (
        ([*own, before], after / "report-against-lr0.01.html"),
        ([*own, tmp_path / "other.npz"], after / "report-against-other.html"),
        (["report", after, data, "--against", before], after / "report-few-against-lr0.01.html"),
        (["report", learner, data, "--against", learner], tmp_path / "covariance-few-against-covariance.html"),
    ):
        code, out, err = run(capsys, monkeypatch, *words)
        assert (code, out, err) == (0, f"{page}\n", "")
        assert "Recall@1 +0.000 (95% interval over classes +0.000 to +0.000), no clear difference." in page.read_text()
        assert Path(words[-1]).name.removesuffix(".npz").removesuffix(".safetensors") in page.read_text()
    np.savez(tmp_path / "few_rows.npz", embeddings=few.data[:60], labels=few.target[:60])
    code, _, err = run(capsys, monkeypatch, *own, tmp_path / "few_rows.npz")
    assert code == 2
    assert err.startswith("nearfar: few_rows: has 60 items, expected the same ")


@pytest.mark.slow
def test_the_current_folder_may_be_a_run(scored, capsys, monkeypatch, tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        shutil.copytree(scored, folder)
    monkeypatch.chdir(before)
    code, out, err = run(capsys, monkeypatch, "report", after, "--against", ".")
    assert (code, out, err) == (0, f"{after / 'report-against-before.html'}\n", "")
    assert "Against before: Recall@1" in (after / "report-against-before.html").read_text()
    code, out, _ = run(capsys, monkeypatch, "evaluate", ".", "digits")
    assert code == 0
    assert "were in the training of before, and are left out" in out
    code, out, _ = run(capsys, monkeypatch, "report", ".", "digits", "-o", tmp_path / "page.html")
    assert code == 0
    assert "before on digits" in (tmp_path / "page.html").read_text()


def test_items_without_classes_are_not_scored(capsys, monkeypatch, tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(6, 4)))
    nearfar.CovarianceMetric().fit(np.random.default_rng(1).normal(size=(20, 4))).save(tmp_path / "c.safetensors")
    assert (
        run(capsys, monkeypatch, "embed", tmp_path / "c.safetensors", tmp_path / "rows.npy", "-o", tmp_path / "e.npz")[
            0
        ]
        == 0
    )
    code, _, err = run(capsys, monkeypatch, "evaluate", tmp_path / "e.npz")
    assert code == 2
    assert "its items have no class" in err


def test_what_cannot_be_written_is_refused_before_the_work(capsys, monkeypatch, tmp_path):
    np.savez(tmp_path / "rows.npz", X=np.random.default_rng(0).normal(size=(40, 3)), y=np.arange(40) % 4)
    monkeypatch.setattr(nearfar.RCA, "fit", lambda *_: pytest.fail("was fitted"))
    for out, message in ((tmp_path, "is a folder"), (tmp_path / "rows.npz/rca.safetensors", "cannot be created")):
        code, _, err = run(capsys, monkeypatch, "fit", tmp_path / "rows.npz", "RCA()", "--out", out)
        assert code == 2
        assert err.startswith("nearfar: --out: ")
        assert message in err
    monkeypatch.undo()
    code, _, err = run(capsys, monkeypatch, "index", tmp_path / "rows.npz", "--out", tmp_path / "new/rows.index")
    assert (code, err) == (0, "")


@pytest.mark.slow
def test_a_resumed_run_ignores_no_setting(digits, capsys, monkeypatch):
    code, _, err = run(capsys, monkeypatch, "train", "--resume", "--out", digits, "--lr", "0.5", "--quiet")
    assert code == 2
    assert err.endswith("resumed with other settings (run's / given): lr: 0.001 / 0.5\n")
    words = ("train", "digits", "--resume", "--out", digits, "--lr", "0.5", "--quiet")  # with the data named again
    code, _, again = run(capsys, monkeypatch, *words)
    assert (code, again) == (2, err)
    code, _, err = run(capsys, monkeypatch, "train", "--resume", "--out", digits, "--set", "workers=0", "--quiet")
    assert (code, err) == (0, "")


def test_epochs_beside_steps_are_not_overridden_in_silence(digits, capsys, monkeypatch, tmp_path):
    end = ["--set", "steps=3"]
    compared = ["compare", "digits", "--objective", "TripletLoss()", "--out", tmp_path / "compared"]
    for words in (
        ["train", "digits", "--epochs", "2", *end, "--out", tmp_path / "run"],
        ["train", "digits", "--set", "epochs=2", *end, "--out", tmp_path / "run"],
        ["train", "--resume", "--epochs", "2", *end, "--out", digits],
        [*compared, *end, "--vary", "epochs=1", "--vary", "epochs=2"],
        [*compared, "--vary", "steps=3", "--epochs", "2"],
    ):
        code, _, err = run(capsys, monkeypatch, *words)
        assert (code, err) == (2, "nearfar: epochs and steps: both set the length of training; give only one of them\n")
    code, _, err = run(capsys, monkeypatch, "train", "--resume", "--epochs", "3", "--out", digits, "--quiet")
    assert code == 2
    assert "(run's / given): steps: 3 / None; epochs: 1 / 3 (a run with `steps` ends within an epoch" in err
    chosen = {"data": "digits", "epochs": 3}
    config = make_config(chosen, "facility_location/cub")
    assert (config.epochs, config.steps) == (3, None)
    assert make_config({"data": "digits", "steps": 7}, "characters/glyphs").steps == 7
    assert make_config({"data": "digits"}, "facility_location/cub", varied=("epochs",)).steps is None


def test_ctrl_c_exits_with_130(capsys, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.training, "make_config", stopped)
    code, _, err = run(capsys, monkeypatch, "train", "digits", "--out", "RUN")
    assert code == 130
    assert "--resume" in err
    code, _, err = run(capsys, monkeypatch, "compare", "digits", "--objective", "TripletLoss()", "--out", "RUNS")
    assert (code, err) == (130, "nearfar: stopped; run the same command again to continue\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_also_what_turns_it_into_an_error(capsys, monkeypatch, number):
    def importing(*_, **__):
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            raise ImportError("cannot load module more than once per process") from None

    monkeypatch.setattr(cli.training, "make_config", importing)
    kept = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code, _, err = run(capsys, monkeypatch, "compare", "digits", "--objective", "TripletLoss()", "--out", "RUNS")
        assert (code, err) == (128 + number, "nearfar: stopped; run the same command again to continue\n")
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        for each, handler in kept.items():
            signal.signal(each, handler)


@pytest.mark.slow
def test_what_the_encoding_of_the_output_lacks_is_escaped():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "-m", "nearfar", "list", "MarginLoss"]
    done = subprocess.run(words, capture_output=True, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Smola & Kr\\xe4henb\\xfchl" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX")
def test_commands_work_without_a_standard_error(tmp_path):
    words = [sys.executable, "-m", "nearfar", "inspect", "digits"]
    done = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *words], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("digits: ")
    missing = [*words[:-1], str(tmp_path / "missing")]
    done = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *missing], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")


def test_compare_prints_its_table_without_what_a_page_needs(capsys, monkeypatch, tmp_path):
    y = np.repeat(np.arange(6), 8)
    np.savez(tmp_path / "rows.npz", X=np.random.default_rng(0).normal(size=(48, 4)), y=y)
    for package in ("matplotlib", "jinja2"):
        monkeypatch.setitem(sys.modules, package, None)
    words = ["compare", tmp_path / "rows.npz", "--objective", "TripletLoss()", "--seeds", "1", "--epochs", "1"]
    code, out, err = run(capsys, monkeypatch, *words, "--set", "trunk=mlp", "--out", tmp_path / "runs")
    assert (code, err) == (0, "")
    assert "| `TripletLoss()` |" in out
    assert "No page was written: " in out
    assert "pip install 'nearfar[report]'" in out


@pytest.mark.slow
def test_compare_prints_one_table_and_does_not_repeat(capsys, monkeypatch, tmp_path):
    words = [
        "compare",
        "digits",
        "--objective",
        "TripletLoss()",
        "--seeds",
        "2",
        "--vary",
        "lr=0.1",
        "--vary",
        "lr=0.2",
    ]
    words += ["--out", tmp_path / "compared", "--set", "steps=2", "--set", "image_size=16", "--set", "sampler=random"]
    code, out, _ = run(capsys, monkeypatch, *words)
    assert code == 0
    assert "| `TripletLoss(), lr=0.2` |" in out
    assert out.startswith("| Objective | MAP@R, validation | Recall@1 |")
    assert (tmp_path / "compared/comparison.html").exists()
    runs = {path: path.stat().st_mtime_ns for path in (tmp_path / "compared").glob("*/best.safetensors")}
    assert len(runs) == 4
    again, out_again, _ = run(capsys, monkeypatch, *words)
    assert (again, out_again) == (0, out)
    assert runs == {path: path.stat().st_mtime_ns for path in runs}


@pytest.mark.slow
def test_a_run_is_scored_on_its_test_classes_as_on_its_test(capsys, monkeypatch, tmp_path):
    settings = ["--set", "ks=[1,3]", "--set", "steps=2", "--seed", "3", "--trunk", "mlp", "--quiet"]
    assert run(capsys, monkeypatch, "train", "digits", "--out", tmp_path / "run", *settings)[0] == 0
    classes = [word for name in "56789" for word in ("--test-class", name)]
    whole, part = (run(capsys, monkeypatch, "evaluate", tmp_path / "run", *given)[1] for given in ([], classes))
    assert "Recall@3" in part
    lines = whole.splitlines()
    after = next(place for place, line in enumerate(lines) if line.startswith("digits: ")) + 1
    scores = [line for line in lines[after:] if not line.startswith("- ")]  # remarks are on the whole test
    assert "\n".join(scores).rstrip() == "\n".join(part.splitlines()[1:])


@pytest.mark.parametrize("columns", ["0", "1", "39"])
def test_help_is_printed_where_lines_have_no_room(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    code, _, _ = run(capsys, monkeypatch, "index", "--help")
    assert (code, os.environ["COLUMNS"]) == (0, "40")


@pytest.mark.slow
def test_help_fits_into_the_narrowest_width():
    """In a process of its own, because a console keeps the width that it began with."""
    words = [sys.executable, "-m", "nearfar", "index", "--help"]
    done = subprocess.run(words, env={**os.environ, "COLUMNS": "0"}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 40


def test_a_lack_of_threads_is_told_in_one_line(capsys, monkeypatch):
    def crowded(*_, **__):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(cli.training, "make_config", crowded)
    code, _, err = run(capsys, monkeypatch, "train", "digits", "--out", "RUN")
    assert (code, err.count("\n")) == (2, 1)
    assert "the system allows no more threads (see ulimit -u)" in err


EVIL = "a\x1b]0;owned\x07\x1b[2J\u202e"


def test_names_and_labels_do_not_control_the_terminal(capsys, monkeypatch, tmp_path):
    X = np.random.default_rng(0).normal(size=(8, 3))
    labels = np.repeat([EVIL, "b"], 4)
    Index(X, names=[f"{EVIL}{i}" for i in range(8)], labels=labels).save(tmp_path / "x.index")
    np.savez(tmp_path / "x.npz", X=X, y=labels)
    np.save(tmp_path / "q.npy", X[:1])
    for words in (["search", "x.index", "q.npy"], ["duplicates", "x.index"], ["inspect", "x.npz"], ["evaluate", EVIL]):
        places = [tmp_path / word if "." in word else word for word in words[1:]]
        _, out, err = run(capsys, monkeypatch, words[0], *places)
        assert not {"\x1b", "\x07", "\u202e"} & set(out + err), words
        assert words[0] not in ("search", "evaluate") or "\\x1b]0;owned\\x07" in out + err


def test_commands_print_by_one_function():
    for path in Path(cli.__file__).parent.glob("*.py"):
        calls = re.findall(r"^\s+(?:return )?print\(", path.read_text(), re.M)
        assert len(calls) == (path.name == "encoding.py"), path.name


def test_duplicates_of_one_group_are_left_out(capsys, monkeypatch, tmp_path):
    """Two photos of each of two objects, and a third object that is like the first."""
    rows = np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0], [0.01, 1.0], [1.0, 0.02]])
    objects = ["cup", "cup", "pen", "pen", "mug"]
    file = tmp_path / "photos.index"
    Index(rows, names=["a1", "a2", "b1", "b2", "c1"], columns={"object": objects}).save(file)
    code, out, _ = run(capsys, monkeypatch, "duplicates", file, "--within", 0.1, "--group-by", "object")
    assert (code, "1 group of 3 items" in out, "b1" in out) == (0, True, False)
    code, out, _ = run(capsys, monkeypatch, "duplicates", file, "--group-by", "object", "-k", 2)
    assert code == 0
    assert [line.split()[-2:] for line in out.splitlines()[:2]] == [["a2", "c1"], ["a1", "c1"]]
    assert "2 groups of 5 items" in run(capsys, monkeypatch, "duplicates", file, "--within", 0.1)[1]
    code, _, err = run(capsys, monkeypatch, "duplicates", file, "--group-by", "shop")
    assert (code, "--group-by: there is no column" in err) == (2, True)
